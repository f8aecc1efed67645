#!/bin/sh
# The table, byte for byte.
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

run -s 1000B 64K 1M 0.1
out '1000 bytes' '^ 1000B   *H2D '
out '64 KB' '^ 64KB   H2D '
out '1 MB' '^ 1MB    H2D '
out '0.1 GB' '^ 0\.1GB  H2D '
out 'small sizes are left out of the summary' '^--- Summary \(H2D, sizes of 16 MB and more\) ---$'
run -s 64K 1M
out 'the summary is over all sizes where all are small' '^--- Summary \(H2D\) ---$'

SIM_RATES='pageable.h2d=5,pageable.h2d@65536=1,pinned.h2d=50' run -s 64K 16M 32M -n
out 'mean of the large sizes only' '^Pageable:  5\.0 GB/s$'
out 'ratio of the means' '^Ratio:     10\.0x$'

SIM_RATES='pageable.h2d=30,pinned.h2d=10' run -s 1M
out 'pinned may be slower' '  0\.3x  -20\.00 GB/s$'

SIM_RATES='pinned.h2d=1' SIM_JITTER=0.5 run -s 1M -i 3 -f csv
# Samples 1.5, 0.5, 1.25 in some order of the fixed sequence: the median is one of them, not a mean.
awk -F, '$7 == "H2D" && $9 > 0.49 && $9 < 1.51 && $17 <= $9 && $9 <= $18 { good = 1 } END { exit !good }' "$tmp/out"
ok 'the median lies between minimum and maximum'

SIM_RATES='pinned.h2d=10' SIM_JITTER=0.1 run -s 1M -i 5 -w 0 -f json
if command -v jq >/dev/null; then
  jq -e '.gpus[0].results[0].pinned | (.samples | length) == 5 and .median == (.samples | sort)[2] and
    ((.mean - (.samples | add / 5)) | fabs) < 1e-3 and .min == (.samples | min) and .max == (.samples | max) and
    (.mean as $m | (.stddev - ([.samples[] | . - $m | . * .] | add / 4 | sqrt)) | fabs) < 1e-3' "$tmp/out" >/dev/null
  ok 'median, mean, minimum, maximum and deviation follow from the samples'
else
  skip 'statistics follow from the samples' 'no jq'
fi

# Rows appear as they are measured, also into a pipe.
"$SIM" -s 64K 128K -i 100000 >"$tmp/slow" 2>/dev/null &
pid=$!
i=0
while [ "$(grep -c H2D "$tmp/slow")" = 0 ] && [ $i -lt 300 ]; do
  sleep 0.1
  i=$((i + 1))
done
! grep -q Summary "$tmp/slow"
ok 'the first row is there before the run ends'
kill -INT $pid
wait $pid
done_testing
