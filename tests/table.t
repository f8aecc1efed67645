#!/bin/sh
# The table: layout byte for byte, alignment, labels, means, and rows as they are measured.
. "$(dirname "$0")/lib.sh"

if [ "$(available_gb)" -ge 14 ]; then
  run --sizes 0.5 1 2 4
  exits 'golden table' 0
  cmp -s "$tmp/out" "$here/expected-h100.txt"
  ok 'the table of the course, byte for byte'
  no_err 'golden table'
else
  skip 'golden table' 'it needs 14 GB of memory'
fi
run --sizes 0.5
head -n 10 "$here/expected-h100.txt" >"$tmp/want"
head -n 10 "$tmp/out" | cmp -s - "$tmp/want"
ok 'header and first rows are those of the course'
out 'summary of one size' '^Pageable:  16\.9 GB/s$'

# aligned NAME: every row is as long as the line below the headings, and a blank stands between all columns.
aligned() {
  awk '/^---------/ { rule = length($0); next }
    rule && /^$/ { exit !(rows && !bad) }
    rule && ! / [HDB][2i][HD] / { next }
    rule { rows++; if (! / ([HDB][2i][HD]) +[0-9.]+ GB\/s +[0-9.]+ GB\/s +[0-9.]+x +[-+][0-9.]+ GB\/s$/) bad = 1 }
    rule { if (!width) width = length($0); if (length($0) != width) bad = 1 }' "$tmp/out"
  ok "$1: rows are equally long, blanks between the columns" 'rows of one length'
}
run -s 64K 1M 0.1 -b
aligned 'usual'
is 'rows are as long as those of the course' "$(awk '/^ 64KB/ { print length($0); exit }' "$tmp/out")" 59
for rate in 1000 9999 10000 99999 100000 999999 0.0004 0.05 0.1 99.996 999.99 999.996; do
  SIM_RATES="pageable.h2d=1,pageable.d2h=1,pinned.h2d=$rate,pinned.d2h=2" run -s 64K -i 1 -w 0 -n
  out "$rate GB/s pinned: blanks between the columns" '^ 64KB   H2D +1\.00 GB/s +[0-9.]+ GB/s +[0-9.]+x +[-+][0-9.]+ GB/s$'
  shown=$(awk '$2 == "H2D" { print $5; exit }' "$tmp/out")
  awk -v shown="$shown" -v rate="$rate" 'BEGIN { d = shown - rate; if (d < 0) d = -d; exit !(d <= rate * 0.005 && length(shown) <= 7) }'
  ok "$rate GB/s is shown to three digits" "$rate"
  SIM_RATES="pageable.h2d=$rate,pageable.d2h=1,pinned.h2d=2,pinned.d2h=2" run -s 64K -i 1 -w 0 -n
  out "$rate GB/s pageable: blanks between the columns" '^ 64KB   H2D +[0-9.]+ GB/s +2\.00 GB/s +[0-9.]+x +[-+][0-9.]+ GB/s$'
done
SIM_RATES='pageable.h2d=1000,pageable.d2h=10000,pinned.h2d=100000,pinned.d2h=0.0004' run -s 64K 1M -i 1 -w 0 -n
aligned '1000, 10000, 100000 and 0.0004 GB/s'
out 'decimals that mean something' '^ 64KB   H2D +1000\.0 GB/s +100000 GB/s '
out 'likewise' '^ 64KB   D2H +10000 GB/s +0\.0004 GB/s '
SIM_RATES='pageable.h2d=0.0004,pinned.h2d=100000' run -s 64K -i 1 -w 0 -n
out 'a cell wider than its column moves the rest' '^ 64KB   H2D    0\.0004 GB/s 100000 GB/s [0-9]+\.[0-9]x \+100000 GB/s$'
SIM_PIN_LIMIT=100000 run -s 64K 1M -i 1 -w 0
is 'rows without a figure are as long' "$(awk '/ [HD]2[HD] / { print length($0) }' "$tmp/out" | sort -u)" 59

# Labels: exact, distinct, in no exponent notation; the column grows with them.
run -s 0.15 1000003B 1.3M 1000B 1B 64K 65535B 0.001 -i 1 -w 0
aligned 'wide labels'
is 'labels' "$(awk '$2 == "H2D" { printf "%s ", $1 }' "$tmp/out")" '0.15GB 1000003B 1.3MB 1000B 1B 64KB 65535B 1073742B '
is 'the rule grows with the column' "$(awk '/^---------/ { print length($0); exit }' "$tmp/out")" 68
# Sizes that no machine has fail, and are labelled all the same.
SIM_MEM=1000000 run -s 65536 1000.1 1000.4 1024T 100 128 999.9 1 -i 1 -w 0
is 'labels of large sizes' "$(awk '$2 == "H2D" { printf "%s ", $1 }' "$tmp/out")" \
  '65536GB 1000.1GB 1000.4GB 1048576GB 100GB 128GB 999.9GB 1.0GB '
many=$(awk 'BEGIN { srand(3); for (i = 0; i < 300; i++) printf "%.*f%s ", int(rand() * 4), 1 + 2000 * rand(), substr("KMG", 1 + int(rand() * 3), 1) }')
# shellcheck disable=SC2086
SIM_MEM=1 run -f csv -i 1 -w 0 -s $many
fields size_bytes direction | awk '$2 == "H2D" { print $1 }' | sort -u | wc -l >"$tmp/sizes"
# shellcheck disable=SC2086
SIM_MEM=1 run -i 1 -w 0 -s $many
is 'as many labels as sizes' "$(awk '/ H2D / { print $1 }' "$tmp/out" | sort -u | wc -l)" "$(cat "$tmp/sizes")"
! awk '/ H2D / { print $1 }' "$tmp/out" | grep -Evq '^[0-9]+(\.[0-9]+)?([KMG]?B)$'
ok 'labels are a number and a unit'
run -s 1B -i 2 -w 0
exits 'one byte' 0
out 'one byte' '^ 1B     H2D'

# Summaries: means over one set of rows, and what was left out.
SIM_RATES='pageable.h2d=0.01,pageable.d2h=0.0499,pinned.h2d=0.05,pinned.d2h=0.2' run -s 64K -i 1 -w 0
out 'a rate that one decimal would make 0.0' '^Pageable:  0\.0100 GB/s$'
out 'a rate below 0.05' '^Pageable:  0\.0499 GB/s$'
out 'one of 0.05' '^Pinned:    0\.1 GB/s$'
out 'a share of the limit is no rate' '^Pageable efficiency: 0%$'
run -s 1000B 64K 1M 0.1
out 'small sizes are left out of the summary' '^--- Summary \(H2D, sizes of 16 MB and more\) ---$'
run -s 64K 1M
out 'the summary is over all sizes where all are small' '^--- Summary \(H2D\) ---$'
run -s 16M 32M
out 'nor is anything left out where all are large' '^--- Summary \(H2D\) ---$'
SIM_RATES='pageable.h2d=5,pageable.h2d@65536=1,pageable.h2d@33554432=15,pinned.h2d=50' run -s 64K 16M 32M -n
out 'mean of the large sizes only, 16 MB among them' '^Pageable:  10\.0 GB/s$'
out 'ratio of the means, not mean of the ratios' '^Ratio:     5\.0x$'
SIM_RATES='pageable.h2d=5,pageable.h2d@16777215=1,pinned.h2d=50' run -s 16777215B 16M
out 'a byte less than 16 MB is small' '^Pageable:  5\.0 GB/s$'
SIM_PIN_LIMIT=20000000 SIM_RATES='pageable.h2d=5,pageable.h2d@33554432=50,pinned.h2d=50' run -s 16M 32M -n -i 1
out 'a row with one kind of memory is left out' '^--- Summary \(H2D, rows with both\) ---$'
out 'of both means' '^Pageable:  5\.0 GB/s$'
SIM_PIN_LIMIT=20000000 SIM_RATES='pageable.h2d=5,pageable.h2d@33554432=50,pageable.h2d@65536=1' run -s 64K 16M 32M -n -i 1
out 'both are said' '^--- Summary \(H2D, sizes of 16 MB and more, rows with both\) ---$'
SIM_PIN_LIMIT=100000 SIM_RATES='pageable.h2d=5' run -s 64K 32M -n -i 1
out 'small sizes count where no large one has both' '^--- Summary \(H2D, rows with both\) ---$'
SIM_PIN_LIMIT=0 SIM_RATES='pageable.h2d=5,pageable.h2d@33554432=15' run -s 16M 32M -n -i 1
out 'where no row has both, those with one kind count' '^Pageable:  10\.0 GB/s$'
out 'without a ratio' '^Ratio:     -$'

SIM_RATES='pageable.h2d=30,pinned.h2d=10' run -s 1M
out 'pinned may be slower' '  0\.3x  -20\.00 GB/s$'
SIM_RATES='pinned.h2d=1' SIM_JITTER=0.5 run -s 1M -i 3 -f csv
# Samples 1.5, 0.5, 1.25 in some order of the fixed sequence: the median is one of them, not a mean.
fields direction pinned_gbps pinned_min_gbps pinned_max_gbps |
  awk '$1 == "H2D" && $2 > 0.49 && $2 < 1.51 && $3 < $2 && $2 < $4 { good = 1 } END { exit !good }'
ok 'the median lies between minimum and maximum'
for iters in 5 4; do
  SIM_RATES='pinned.h2d=10' SIM_JITTER=0.1 run -s 1M -i $iters -w 0 -f json
  if command -v jq >/dev/null; then
    jq -e --argjson n $iters '.gpus[0].results[0].pinned | (.samples | sort) as $s | (.samples | length) == $n and
      ((.median - (if $n == 5 then $s[2] else ($s[1] + $s[2]) / 2 end) | fabs) < 1e-3) and
      ((.mean - ($s | add / $n)) | fabs) < 1e-3 and .min == $s[0] and .max == $s[-1] and $s[0] < $s[1] and
      (.mean as $m | (.stddev - ([$s[] | . - $m | . * .] | add / ($n - 1) | sqrt)) | fabs) < 1e-3' "$tmp/out" >/dev/null
    ok "median, mean, minimum, maximum and deviation follow from $iters samples"
  else
    skip 'statistics follow from the samples' 'no jq'
  fi
done

# Rows appear as they are measured, also into a pipe and in every format with rows: each copy takes 0.1 s here, so
# the last row is a long time off when the first is there.
for format in text markdown csv; do
  log_json
  mkfifo "$tmp/pipe.$format"
  SIM_DELAY=100 perl -e '$SIG{$_} = "DEFAULT" for "INT", "HUP", "TERM"; exec @ARGV' -- "$SIM" -s 1K:256K -i 2 -w 0 -f $format >"$tmp/pipe.$format" 2>"$tmp/err" &
  pid=$!
  grep -m 1 H2D <"$tmp/pipe.$format" >"$tmp/out"
  ! ended "$pid"
  ok "$format: the first row comes through a pipe before the run ends"
  out "$format: it is whole" '16\.9.*54\.7'
  kill -KILL "$pid"
  wait "$pid" 2>/dev/null
done
SIM_DELAY=50 launch -s 1K:64K -i 1 -w 0
await grep -q ' H2D ' "$tmp/out"
ok 'the first row appears in a file'
! grep -q 64KB "$tmp/out" && ! grep -q Summary "$tmp/out"
ok 'and others only later'
reap
is 'until all are there' "$(grep -c ' GB/s .*x ' "$tmp/out")" 14
done_testing
