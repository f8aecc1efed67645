#!/bin/sh
# --explain, --untouched, --pin, --bidir, binding.
. "$(dirname "$0")/lib.sh"
have_jq=$(command -v jq)

# figure KEY: a figure of "Why" in the last run's JSON, "null" or nothing if there is none.
figure() { grep -o "\"$1\":[^,}]*" "$tmp/out" | head -n 1 | cut -d: -f2; }
# at_least NAME GOT LEAST
at_least() {
  awk -v got="$2" -v least="$3" 'BEGIN { exit !(got != "" && got != "null" && got + 0 >= least) }'
  ok "$1" "$3 or more
came:     $2"
}

run -s 16M -x -T 2 -i 1 -w 0
exits '--explain' 0
out 'the sections' '^--- Why ---$'
out 'and the other one' '^--- What helps ---$'
out 'memcpy' '^[0-9.]+ GB/s for memcpy by one core: pageable H2D of 16MB ran at [0-9]+ % of it, '
out 'first touch' '^14\.6 GB/s for D2H into memory that nobody touched yet, 14\.6 GB/s into it again: first touch cost little here$'
out 'cudaMallocHost' '^[0-9.]+ s per GB for cudaMallocHost: paid for after [0-9]+ H2D cop(y|ies) of 16MB$'
out 'cudaHostRegister' '^[0-9.]+ s per GB for cudaHostRegister of written memory: paid for after [0-9]+ H2D cop(y|ies) of 16MB$'
out 'threads' '^16\.9 GB/s for pageable H2D by 2 threads at once, 16\.9 GB/s by one: as if the driver made them wait for each other$'
run -s 16M -x -T 1 -i 1 -w 0
lacks 'one thread is no several' 'at once'

# First touch, by hand: 14.6 GB/s beside 5 for absent pages is 1 / (1/14.6 + 1/5) = 3.72.
SIM_TOUCH=5 run -s 16M -x -T 2 -i 1 -w 0
out 'first touch at 5 GB/s' '^3\.7 GB/s for D2H into memory that nobody touched yet, 14\.6 GB/s into it again: first touch is paid by the first copy$'
is 'only fresh memory pays' "$(awk '$1 == "cudaMemcpy" { print $(NF - 4), $(NF - 3), $(NF - 2) }' "$tmp/out")" '16.9 14.6 3.7'
SIM_TOUCH=5 SIM_RATES='pageable.d2h=40' run -s 16M -x -T 1 -i 1 -w 0 -f json
is 'cold in JSON: 1 / (1/40 + 1/5) = 4.44' "$(figure d2h_cold_gbps | cut -c1-4)" 4.44
is 'warm in JSON' "$(figure d2h_warm_gbps | cut -c1-2)" 40

# What pinning costs, in real time: 100 ms for 16 MB is 5.96 s per GB, and a slow machine takes longer.
SIM_PIN_COST=100,0 SIM_RATES='pageable.h2d=10,pinned.h2d=50' run -s 16M -x -T 1 -i 1 -w 0 -f json
at_least 'seconds per GB of cudaMallocHost' "$(figure malloc_host_s_per_gb)" 5.96
# A GB takes 0.1 s and 0.02 s: 0.08 s are saved by each.
paid() { awk -v s="$(figure "$1_s_per_gb")" -v n="$(figure "$1_paid_after_copies")" -v saved="$2" \
  'BEGIN { exit !(s > 0 && n > 0 && (n - 1) * saved < s * 1.001 && n * saved > s * 0.999) }'; }
paid malloc_host 0.08
ok 'cudaMallocHost is paid for when copies saved as much' "$(figure malloc_host_s_per_gb) / 0.08
came:     $(figure malloc_host_paid_after_copies)"
paid register 0.08
ok 'and so is cudaHostRegister' "$(figure register_s_per_gb) / 0.08
came:     $(figure register_paid_after_copies)"
SIM_PIN_COST=0,100 SIM_RATES='pageable.h2d=1,pinned.h2d=2' run -s 16M -x -T 1 -i 1 -w 0 -f json
at_least 'seconds per GB of cudaHostRegister' "$(figure register_s_per_gb)" 5.96
awk "BEGIN { exit !($(figure register_s_per_gb) < 2000) }"
ok 'and not by the square of it' "$(figure register_s_per_gb) < 2000"
paid register 0.5
ok 'paid for, at other rates' "$(figure register_s_per_gb) / 0.5
came:     $(figure register_paid_after_copies)"
SIM_RATES='pageable.h2d=50,pinned.h2d=20' run -s 16M -x -T 1 -i 1 -w 0
out 'pinned that is not faster is never paid for' 'cudaMallocHost: not paid for by copies, pinned H2D was not faster$'
lacks 'by no number of copies' 'paid for after'
SIM_RATES='pageable.h2d=50,pinned.h2d=20' run -s 16M -x -T 1 -i 1 -w 0 -f json
is 'null in JSON' "$(figure malloc_host_paid_after_copies)" null

# The sentence about memcpy fits its figure, whatever this machine's memcpy does.
for rate in 0.1 2 8 32 1000; do
  SIM_RATES="pageable.h2d=$rate" run -s 16M -x -T 1 -i 1 -w 0
  sentence=$(sed -n 's/.* ran at \([0-9]*\) % of it, /\1 /p' "$tmp/out")
  percent=${sentence%% *}
  case ${sentence#* } in
  "so more than the CPU's copy holds it back") [ "$percent" -le 50 ] ;;
  'as a CPU copying into a pinned staging buffer would') [ "$percent" -ge 50 ] && [ "$percent" -le 130 ] ;;
  "more than one core's plain copy gives") [ "$percent" -ge 130 ] ;;
  *) false ;;
  esac
  ok "pageable H2D at $rate GB/s: $sentence" 'a sentence that fits'
done
SIM_RATES=pageable.h2d=0.01 run -s 16M -x -T 1 -i 1 -w 0
out 'far below memcpy' "of it, so more than the CPU's copy holds it back\$"
SIM_RATES=pageable.h2d=9999 run -s 16M -x -T 1 -i 1 -w 0
out 'far above memcpy' "of it, more than one core's plain copy gives\$"
run -s 16M -x -T 1 -i 1 -w 0 -u
out 'a source that was never written' 'of it, reading a source that was never written$'

# Small sizes, where the cost of a call rules: figures alone. The largest one of 16 MB and more is spoken of.
run -s 64K 16777215B -x -T 1 -i 1 -w 0
out 'small sizes: memcpy alone' '^[0-9.]+ GB/s for memcpy by one core$'
lacks 'small sizes: no cost per GB' 's per GB'
lacks 'small sizes: no advice' 'paid for|Data copied'
run -s 32M 16M 1M -x -T 1 -i 1 -w 0
out 'the largest size' 'pageable H2D of 32MB ran at'
is 'and no other' "$(grep -c 'of 16MB' "$tmp/out")" 0

SIM_COPY=pageable.h2d#1:none run -s 16M -i 1 -w 0 -x -T 1
out 'without a pageable rate, memcpy stands alone' '^[0-9.]+ GB/s for memcpy by one core$'
out 'what is paid for rests on the rows of What helps' '^[0-9.]+ s per GB for cudaMallocHost: paid for after [0-9]+ H2D'
lacks 'no odd number' 'nan|inf'
SIM_COPY=pinned.h2d#2:none run -s 16M -i 1 -w 0 -x -T 1
out 'without a pinned rate too' '^[0-9.]+ s per GB for cudaHostRegister of written memory: paid for after [0-9]+ H2D'
lacks 'no odd number either' 'nan|inf'

# What helps: which rows, and figures that the simulated rates give. Real time only makes what counts it slower.
methods() { sed -n '/^--- What helps/,/^Rates/p' "$tmp/out" | sed -n 's/^\(staged by [0-9]* thread\).*/\1/p' | tr -dc '0-9\n' | tr '\n' ' '; }
for case in '1|1 ' '2|1 2 ' '3|1 2 3 ' '4|1 2 4 ' '6|1 2 4 6 '; do
  run -s 1M -x -T "${case%%|*}" -i 1 -w 0
  is "--threads ${case%%|*}: staged by" "$(methods)" "${case#*|}"
done
SIM_STAGE=5 SIM_RATES='pageable.h2d=10,pageable.d2h=8,pinned.h2d=50,pinned.d2h=40' run -s 16M -x -T 2 -i 1 -w 0
# row NAME: the figures behind a row's name.
row() { sed -n "s/^$1  *//p" "$tmp/out"; }
out 'sizes' "^16MB of malloc'd data                    H2D     D2H  D2H new   pinned     once\$"
out 'columns' '^cudaMemcpy                              10\.0     8\.0      8\.0        -        -$'
is 'cudaMemcpy' "$(row cudaMemcpy | tr -s ' ')" '10.0 8.0 8.0 - -'
is '2 MB pages' "$(row 'cudaMemcpy, 2 MB pages' | tr -s ' ')" '10.0 8.0 8.0 - -'
is 'register, copy, unregister' "$(row 'register, copy, unregister' | tr -s ' ')" '50.0 40.0 40.0 - -'
# By hand: 16 MB by one core at 5 GB/s and the last chunk's way at 50, 40: 8 / (8/5 + 1/50), 8 / (8/5 + 1/40).
is 'staged by 1 thread' "$(row 'staged by 1 thread' | tr -s ' ' | cut -d' ' -f1-4)" '4.9 4.9 4.9 4MB'
is 'staged by 2 threads pins 8MB' "$(row 'staged by 2 threads' | tr -s ' ' | cut -d' ' -f4)" '8MB'
is 'pinned from the start' "$(row 'pinned: cudaMallocHost' | tr -s ' ' | cut -d' ' -f1,2,4)" '50.0 40.0 16MB'
is 'pinned in 2 MB pages' "$(row 'pinned: 2 MB pages, registered' | tr -s ' ' | cut -d' ' -f1,2,4)" '50.0 40.0 16MB'
SIM_PIN_COST=100,0 SIM_CALLS=$tmp/calls run -s 16M -x -T 2 -i 1 -w 0 -f json
if [ -n "$have_jq" ]; then
  jq -e '.gpus[0].explain.helps[] | select(.method == "cudaMemcpyAsync by 2 threads") | .pinned_bytes == 0 and .cost_s < 0.2' \
    "$tmp/out" >/dev/null
  ok 'threads that need no pinned buffers get none' 'less than 0.2 s'
  jq -e '.gpus[0].explain as $e | $e.helps[] | select(.method == "pinned: cudaMallocHost") |
    (.cost_s / $e.bytes * 1e9 / $e.malloc_host_s_per_gb - 1) | fabs < 1e-4' "$tmp/out" >/dev/null
  ok 'the cost of cudaMallocHost per GB is that of its row'
  jq -e '.gpus[0].explain.helps[] | select(.method == "pinned: cudaMallocHost") |
    .cost_s >= 0.1 and .pinned_bytes == 16777216 and .d2h_fresh_gbps < 0.168' "$tmp/out" >/dev/null
  ok 'memory that is pinned first costs its time, also when it is new: 16 MB in more than 0.1 s' '< 0.168 GB/s'
  # The sentences, recomputed from the rows: the fastest way for 1 and for 1000 H2D copies.
  for rates in 'pageable.h2d=10,pinned.h2d=50' 'pageable.h2d=50,pinned.h2d=20' 'pageable.h2d=1,pinned.h2d=60'; do
    SIM_STAGE=5 SIM_PIN_COST=50,0 SIM_RATES=$rates run -s 16M -x -T 2 -i 1 -w 0 -f json
    jq -e '.gpus[0].explain as $e | def seconds($n): .cost_s + $n * $e.bytes / .h2d_gbps / 1e9;
      [[1, $e.once], [1000, $e.again]] | all(. as [$n, $text] |
        ($e.helps | map(seconds($n)) | min) as $best | ($e.helps[0] | seconds($n) / $best) as $gain |
        if ($text | test("nothing beats")) then $gain < 1.051
        else $gain > 1.049 and ([$e.helps[] | select(seconds($n) < $best * 1.0001) as $h |
            $text | contains(": " + $h.method + ", ")] | any) and
          ($text | capture(", (?<x>[0-9.]+) times").x | tonumber - $gain | . < 0.06 and . > -0.06) end)' "$tmp/out" >/dev/null
    ok "the advice follows from the rows: $rates"
  done
  run -s 1M -x -f json -T 2
  is 'json: a key per figure' "$(jq -rc '.gpus[0].explain | keys_unsorted | join(" ")' "$tmp/out")" \
    'bytes memcpy_gbps d2h_cold_gbps d2h_warm_gbps malloc_host_s_per_gb malloc_host_paid_after_copies register_s_per_gb register_paid_after_copies threads_h2d_gbps page_policy helps once again'
  SIM_FAIL=cudaHostRegister:1 run -s 1M -x -f json -T 2
  exits 'a part that fails' 1
  jq -e '.gpus[0] | .explain.register_s_per_gb == null and .explain.memcpy_gbps > 0 and
    (.notes[0] | startswith("--explain could not measure everything: cudaHostRegister: cudaErrorUnknown"))' "$tmp/out" >/dev/null
  ok 'is null, and a note says why'
  run -s 1M -f json
  is 'null without --explain' "$(jq -c '.gpus[0].explain' "$tmp/out")" null
else
  skip 'json' 'no jq'
fi

# Formats.
run -s 1M -x -T 1 -f markdown
out 'markdown' '^#### Why$'
out 'markdown: a table' '^\| cudaMemcpy \| 16\.9 \| 14\.6 \| 14\.6 \| - \| - \|$'
run -s 1M -x -T 1 -f csv
err 'csv: on stderr' 'GB/s for memcpy by one core'
lacks 'csv: not beside the rows' 'memcpy by one core'

# A way is copied three times, or for a tenth of a second, each way, after a first D2H. cudaMemcpy as it is comes first.
# copies: how many D2H copies of it a run makes.
copies() {
  SIM_ORDER=$tmp/order launch -x -s 64B -T 1 -i 1 -w 0 -n
  await sh -c '[ "$(grep -c "copy-begin h2d pageable" "$1")" -ge 2 ]' - "$tmp/order" # the second is the way's first
  kill -KILL "$pid" 2>/dev/null
  reap
  sed -n 's/.*copy-begin \([dh]2[dh]\) pageable.*/\1/p' "$tmp/order" | sed 1,2d | sed '/d2h/!q' | grep -c d2h
}
is 'copies of 150 ms' "$(SIM_DELAY=150 copies)" 2
for try in 1 2 3 4 5; do # on a busy machine three may take longer
  came=$(copies)
  [ "$came" != 4 ] || break
done
is "copies of no time (try $try)" "$came" 4
# Nothing is said to be best where ways are missing.
SIM_PIN_LIMIT=1000000 run -s 16M -i 1 -w 0 -x -T 2 -f json
out 'nothing can be pinned' '"once":null,"again":null'
SIM_FAIL=cudaStreamCreate:4:cudaErrorIllegalAddress run -s 16M -i 1 -w 0 -x -T 2
lacks 'the GPU is lost' 'nothing beats'
SIM_DELAY=50 SIM_ORDER=$tmp/order launch -s 16M -i 1 -w 0 -x -T 2
await sh -c '[ "$(grep -c "copy-end d2h pageable" "$1")" -ge 2 ]' - "$tmp/order"
kill -INT "$pid"
reap
out 'Ctrl-C: --explain began' '^--- What helps ---$'
lacks 'Ctrl-C' 'nothing beats'
# What copies bring is checked, of every cell and of every line: each stretch of copies between two preparations is left
# out once. How many copies a line takes depends on time, so a run counts only if it began as the first one did.
copies() { awk -v last="$1" '/ (put|spoil)$/ { print "prepare" } / copy-begin / { print $4, $5; if (++n == last) exit }' "$tmp/order"; }
rm -f "$tmp/order"
SIM_ORDER=$tmp/order run -s 1M -i 1 -w 0 -x -T 1
copies 0 >"$tmp/first"
awk '$1 != "prepare" { n++; to = n; if (from == 0) from = n; next }
  function say() { print from "-" to, "none"; print from "-" to, "short"; from = 0 }
  from > 0 { if (prepared) say(); from = 0 } { prepared = 1 } END { say() }' "$tmp/first" >"$tmp/stretches"
is 'stretches of copies: four cells, seven lines of three, two faults' "$(wc -l <"$tmp/stretches")" 50
while read -r stretch what; do
  for try in 1 2 3 4 5 6 7 8 9; do
    rm -f "$tmp/order"
    SIM_COPY="$stretch:$what" SIM_ORDER=$tmp/order run -s 1M -i 1 -w 0 -x -T 1
    copies "${stretch#*-}" >"$tmp/these"
    head -n "$(wc -l <"$tmp/these")" "$tmp/first" | cmp -s - "$tmp/these" && break
  done
  exits "copies $stretch, $what arrives" 1
  err "copies $stretch, $what arrives: it is told" 'data mismatch at offset (0|4096|1048568)$'
done <"$tmp/stretches"
SIM_C2C=1 SIM_RATES='pageable.h2d=60,pinned.h2d=54' run -s 16M -i 1 -w 0 -x -T 2
out 'threads where one fills the link' '60\.0 GB/s by one: they gain little$'
SIM_CPUS=0 run -s 64K -i 1 -w 0 -m staged
out 'as many threads as CPUs near the GPU' '^note: pinned memory from staged, 1 thread, '
SIM_RATES='pageable.h2d=0.01,pinned.h2d=50' run -s 16M -i 1 -w 0 -x -T 1
out 'paid for at once' '^[0-9.]+ s per GB for cudaHostRegister of written memory: paid for after 1 H2D copy of 16MB$'
SIM_PIN_COST=0,20 SIM_RATES='pageable.h2d=1,pinned.h2d=50' run -s 16M -i 1 -w 0 -x -T 1
out 'paid for after some' '^[0-9.]+ s per GB for cudaHostRegister of written memory: paid for after ([2-9]|[0-9]{2,}) H2D copies of 16MB$'
# A sentence compares with what is known only. The 7th copy is the second D2H into the buffer that was fresh.
SIM_FAIL=cudaMemcpy:7:cudaErrorInvalidValue run -x -s 16M -T 2 -i 1 -w 0
out 'no rate into it again' '^14\.6 GB/s for D2H into memory that nobody touched yet$'
out 'nor one thread to compare with' '^[0-9.]+ GB/s for pageable H2D by 2 threads at once$'
lacks 'and no odd number' 'nan|inf'
# What is not fresh is not shown as such: pages that the kernel keeps, and a buffer without a whole page.
libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
if [ -f "$libc" ] && [ -z "$asan" ]; then
  FAIL_LIBC=madvise:1 LD_PRELOAD=$libc SIM_TOUCH=0.5 run -x -s 16M -T 1 -i 1 -w 0
  is 'pages that the kernel keeps' "$(row cudaMemcpy | tr -s ' ')" '16.9 14.6 - - -'
  SIM_TOUCH=0.5 run -x -s 16M -T 1 -i 1 -w 0
  is 'and those that it takes' "$(row cudaMemcpy | tr -s ' ')" '16.9 14.6 0.5 - -'
else
  skip 'pages that the kernel keeps' 'not with AddressSanitizer, or not built'
fi
run -x -s 64B -T 1 -i 1 -w 0
is 'a buffer of less than a page is never fresh' "$(row cudaMemcpy | tr -s ' ' | cut -d' ' -f3)" '-'

# Not after Ctrl-C.
SIM_DELAY=10 SIM_ORDER=$tmp/order launch -s 64K -i 10000 -x -T 1
await grep -q copy-end "$tmp/order"
kill -INT "$pid"
reap
exits 'Ctrl-C' 130
lacks 'nothing is explained after it' 'Why|What helps|memcpy by'

# The page policy, from a file that stands in for the kernel's.
policy=/sys/kernel/mm/transparent_hugepage/enabled
if [ "$(id -u)" = 0 ] && [ -r $policy ] && unshare -m true 2>/dev/null; then
  for case in '[always] madvise never|transparent huge pages are set to "always": malloc gets 2 MiB pages where it can' \
    'always [madvise] never|transparent huge pages are set to "madvise": malloc gets 4 KiB pages unless a program asks for more' \
    'always madvise [never]|transparent huge pages are set to "never": malloc gets 4 KiB pages, also where a program asks for more' \
    'always madvise never|' 'always [|' '[|' ']|' '[ALWAYS]|' "[$(printf '%0300d' 0 | tr 0 a)|"; do
    printf '%s\n' "${case%|*}" >"$tmp/policy"
    unshare -m sh -c 'mount --bind "$1" "$2" && cmp -s "$1" "$2" || exit 77
      exec "$3" -s 1M -x -T 1 -i 1 -w 0' sh "$tmp/policy" $policy "$SIM" >"$tmp/out" 2>"$tmp/err"
    status=$?
    if [ $status = 77 ]; then
      skip 'page policy' 'no file can be bound over it'
      break
    fi
    exits "page policy '$(head -c 40 "$tmp/policy" | tr -d '\n')'" 0
    case $case in
    *aaa*) lacks 'a policy of 300 characters is cut' 'a{40}' ;;
    *) is 'page policy: the sentence' "$(grep '^transparent' "$tmp/out")" "${case#*|}" ;;
    esac
  done
else
  skip 'page policy' 'needs root and the file'
fi
run -s 1M
lacks 'no section without --explain' 'Why'

run -s 1M -u
out '--untouched in text' "^note: pageable source never written: reads the kernel's zero page \\(--untouched\\)\$"
run -s 1M -u -f markdown
out '--untouched in markdown' "^- pageable source never written: reads the kernel's zero page"
run -s 1M -u -f json
out '--untouched in json' "\"untouched\":true.*pageable source never written: reads the kernel's zero page"
run -s 1M -u -f csv
# column NAME: a column of the last run's CSV, by its name, each value once.
column() {
  awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { print $at[name] }' "$tmp/out" | sort -u
}
is '--untouched in csv' "$(column untouched)" yes
is '--untouched in csv: the status is as ever' "$(column status)" ok
run -s 1M -m register -f csv
is '--pin in csv' "$(column pin) $(column status) $(column untouched)" 'register ok no'
run -s 1M -m write-combined -f json
out '--pin in json' '"pin":"write-combined"'
for format in text markdown; do
  run -s 1M -m write-combined -f $format
  out "--pin in $format" 'cudaHostAllocWriteCombined'
  run -s 1M -f $format
  lacks "not where it is the default, in $format" '--pin|note:'
done

run -s 1M -b
out 'BiD: pinned overlaps' '^ 1MB    BiD     15\.69 GB/s  93\.50 GB/s    6\.0x  \+77\.81 GB/s$'
out 'BiD: a summary of its own' '^--- Summary \(BiD\) ---$'
out 'BiD: against twice the limit' '^Theoretical \(2 x PCIe Gen5 x16\): ~128 GB/s$'
is 'BiD comes after D2H' "$(awk '$1 == "1MB" { printf "%s ", $2 }' "$tmp/out")" 'H2D D2H BiD '

if command -v taskset >/dev/null && [ "$(nproc)" -ge 2 ]; then
  status=0
  SIM_CPUS=1 taskset -c 0 "$SIM" -s 1M >"$tmp/out" 2>"$tmp/err" || status=$?
  out "the caller's binding is kept and noted where it does not match" '^note: 1 of the CPUs that the caller chose are not near the GPU'
  SIM_CPUS=0 taskset -c 0 "$SIM" -s 1M >"$tmp/out" 2>"$tmp/err"
  lacks 'and not where it does' '^note:'
  SIM_CPUS=1 taskset -c 0 "$SIM" -a -s 1M >"$tmp/out" 2>"$tmp/err"
  lacks '--no-affinity looks at no binding' '^note:'
  # bound ARG...: runs, and prints the CPUs that it may use while it copies.
  bound() {
    SIM_DELAY=5 SIM_ORDER=$tmp/order launch -s 64K -i 100000 "$@"
    await grep -q copy-end "$tmp/order"
    sed -n 's/^Cpus_allowed_list:[^0-9]*//p' "/proc/$pid/status"
    kill "$pid"
    reap
  }
  own=$(sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status)
  export SIM_CPUS=1
  is "the process binds itself to the GPU's CPUs" "$(bound)" 1
  is 'but not with --no-affinity' "$(bound -a)" "$own"
  unset SIM_CPUS
else
  skip 'binding' 'needs taskset and two CPUs'
fi
done_testing
