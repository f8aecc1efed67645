#!/bin/sh
# --pin staged: threads copy malloc'd data through small pinned buffers. All sizes, ways and faults.
. "$(dirname "$0")/lib.sh"
kill_after() { timeout -s KILL 30 "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; status=$?; }

# Right data for all sizes and numbers of threads, each copied more than once; nothing is left behind.
for threads in 1 2 3 8; do
  for sizes in '2B 7B 64K 1M' '2M 2097153B 5M' '33M 12345678B'; do
    # shellcheck disable=SC2086
    SIM_LEFT=$tmp/left kill_after -m staged -T $threads -s $sizes -i 2 -w 1 -b
    exits "$threads threads, $sizes" 0
    no_err "$threads threads, $sizes"
    is "$threads threads, $sizes: all is given back" "$(cat "$tmp/left")" ''
  done
done
kill_after -m staged -T 2 -s 1B -i 2 -w 1
exits 'one byte' 0
SIM_GPUS=2 SIM_LEFT=$tmp/left kill_after -m staged -T 3 -s 64K 5M -i 2 -w 1 -b -d all -p
exits 'two GPUs at once' 0
is 'two GPUs at once: all is given back' "$(cat "$tmp/left")" ''
SIM_GPUS=2 kill_after -m staged -T 2 -s 5M -i 2 -w 1 -d all
exits 'two GPUs in turn' 0

# gbps: the pinned column of the last run's first row.
gbps() { awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i } NR == 2 { print $at["pinned_gbps"] }' "$tmp/out"; }
# within LOW GOT HIGH
within() { awk -v low="$1" -v got="$2" -v high="$3" 'BEGIN { exit !(got != "" && got >= low && got <= high) }'; }
# One thread, by hand: 8 chunks of 2 MB at 5 GB/s, and the last one's way over a link of 40: 8 / (8/5 + 1/40) = 4.9231.
SIM_STAGE=5 SIM_RATES='pinned.h2d=40' run -m staged -T 1 -s 16M -i 1 -w 0 -f csv
is 'one thread: as fast as it copies' "$(gbps)" 4.92308
# A slow link rules: 8 / (8/4 + 1/10) = 3.8095, whatever the threads.
SIM_STAGE=10 SIM_RATES='pinned.h2d=4' run -m staged -T 1 -s 16M -i 1 -w 0 -f csv
is 'a slow link rules' "$(gbps)" 3.80952
for threads in 1 2 4 8; do
  SIM_STAGE=5 SIM_RATES='pinned.h2d=30' run -m staged -T $threads -s 64M -i 2 -w 1 -f csv
  most=$((threads * 5 < 30 ? threads * 5 : 30))
  within 1 "$(gbps)" $most
  ok "$threads threads: at most min(threads x 5, 30) GB/s" "1 to $most
came: $(gbps)"
done
# Two threads are faster than one could be, at least once in five (on a busy machine one may come too late).
for try in 1 2 3 4 5; do
  SIM_STAGE=5 SIM_RATES='pinned.h2d=40' run -m staged -T 2 -s 32M -i 3 -w 1 -f csv
  if within 5.1 "$(gbps)" 10; then break; fi
done
within 5.1 "$(gbps)" 10
ok "two threads copy side by side (try $try)" "5.1 to 10
came: $(gbps)"

# What is asked for is what there is: buffers of two chunks of 2 MB for each thread, 2 MB in a copy, all threads at work.
for threads in 1 3; do
  rm -f "$tmp/order"
  SIM_ORDER=$tmp/order run -m staged -T $threads -s 5M -i 1 -w 0
  is "$threads threads: buffers" "$(grep -c pin "$tmp/order" | awk '{ print $1 }')" \
    "$(($(grep -c ' pinned ' "$tmp/order") + 2 * threads))"
  is "$threads threads: chunks" "$(sed -n 's/.*copy-begin h2d pinned //p' "$tmp/order" | sort -n | tr '\n' ' ')" '1048576 2097152 2097152 '
done
SIM_PIN_LIMIT=12582912 run -m staged -T 3 -s 64K -i 1 -w 0
exits 'three threads pin 12 MB' 0
SIM_PIN_LIMIT=12582911 run -m staged -T 3 -s 64K 1M -i 1 -w 0
exits 'and not less' 1
is 'what could not be had, once' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: cudaMallocHost: cudaErrorMemoryAllocation (out of memory); try smaller --sizes, or free memory first'
is 'pageable is kept' "$(grep -c 'GB/s           -       -            -$' "$tmp/out")" 4

# Faulty chunks. 12 copies of pinned memory are staged chunks; nothing else is pinned, so all counts are theirs.
# faulty RULE CELL OFFSETS: one copy in a cell, by one thread; the cell fails at one of these offsets.
faulty() {
  SIM_COPY=$1 kill_after -m staged -T "${T:-1}" -s 5M -i 1 -w 0 -b
  exits "$1" 1
  grep -Exq "dma_bandwidth: GPU 0: 5MB $2 pinned: data mismatch at offset ($3)" "$tmp/err" && [ "$(wc -l <"$tmp/err")" = 1 ]
  ok "$1: its cell, and where" "5MB $2 pinned, offset $3"
  is "$1: no other cell" "$(grep -c ' GB/s .* GB/s .*x ' "$tmp/out")" 2
}
# One thread takes chunks in their order: at 0, 2 MB and 4 MB; BiD's halves end and begin at 2.5 MB.
faulty 'pinned.h2d#1:none' H2D 0
faulty 'pinned.h2d#2:none' H2D 2097152
faulty 'pinned.h2d#3:none' H2D 4194304
faulty 'pinned.d2h#1:none' D2H 0
faulty 'pinned.d2h#2:none' D2H 2097152
faulty 'pinned.d2h#3:none' D2H 4194304
faulty 'pinned.h2d#4:none' BiD 0
faulty 'pinned.h2d#5:none' BiD 2097152
faulty 'pinned.d2h#4:none' BiD 2621440
faulty 'pinned.d2h#5:none' BiD 4718592
faulty 'pinned.h2d#2:flip@4096' H2D 2101248
faulty 'pinned.d2h#2:flip@1048583' D2H 3145728
faulty 'pinned.h2d#3:short' H2D 5242872
faulty 'pinned.d2h#3:short' D2H 5242872
faulty 'pinned.h2d#2:half' H2D 3145728
faulty 'pinned.h2d#2:swap' H2D 2097152
faulty 'pinned.d2h#2:swap' D2H 2097152
faulty 'pinned.h2d#2:shift' H2D 2097152
faulty 'pinned.d2h#2:shift' D2H 2097152
# What a staging buffer holds from the H2D cell before is no excuse: there one chunk, or two, stay in the same place.
for size in 64K 1M 2M 4M; do
  SIM_COPY=pinned.d2h:none kill_after -m staged -T 1 -s $size -i 1 -w 0
  is "no D2H chunk of $size arrives" "$(cut -d: -f4- "$tmp/err")" ' data mismatch at offset 0'
done
# Several threads take them in any order.
T=3 faulty 'pinned.h2d#2:none' H2D '0|2097152|4194304'
T=8 faulty 'pinned.d2h#3:flip@8192' D2H '8192|2105344|4202496'
T=8 faulty 'pinned.d2h#1:none' D2H '0|2097152|4194304'
# D2H chunks of a large copy through one thread's two buffers: what is waited for too late is another chunk's data.
SIM_COPY='pinned.h2d#9:none;pinned.d2h#17:flip@0' kill_after -m staged -T 1 -s 33M -i 1 -w 0
is 'two faults in one run' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: 33MB H2D pinned: data mismatch at offset 16777216
dma_bandwidth: GPU 0: 33MB D2H pinned: data mismatch at offset 33554432'
SIM_GPUS=2 SIM_COPY='gpu1.pinned.d2h#2:none' kill_after -m staged -T 1 -s 5M -i 1 -w 0 -d all -p
is 'the GPU is named' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 1: 5MB D2H pinned: data mismatch at offset 2097152'

# A call that fails: no hang, no leak, the other column is kept where the error does not stick.
# failing STATUS CALL ROWS: ROWS of pageable figures are there all the same.
failing() {
  SIM_FAIL=$2 SIM_LEFT=$tmp/left kill_after -m staged -T 3 -s 64K 5M -i 2 -w 1
  exits "$2" "$1"
  is "$2: all is given back" "$(cat "$tmp/left")" ''
  is "$2: pageable" "$(awk '$2 ~ /^(H2D|D2H)$/ && $3 != "-"' "$tmp/out" | wc -l)" "$3"
}
failing 1 cudaMallocHost:1 4
failing 1 cudaMallocHost:3 4
failing 1 cudaStreamCreate:4 4
failing 1 cudaEventCreateWithFlags:3 4
for n in 2 3 4; do # of a staging thread or not
  SIM_FAIL=cudaSetDevice:$n SIM_LEFT=$tmp/left kill_after -m staged -T 3 -s 64K 5M -i 2 -w 1
  exits "cudaSetDevice:$n" 1
  is "cudaSetDevice:$n: all is given back" "$(cat "$tmp/left")" ''
done
for n in 1 5 20; do failing 1 cudaMemcpyAsync:$n:cudaErrorInvalidValue 4; done
failing 1 cudaMemcpyAsync:1:cudaErrorIllegalAddress 1
failing 1 cudaEventSynchronize:1 3 # of a pageable cell
failing 1 cudaEventSynchronize:9 4
failing 1 cudaEventSynchronize:30 3
SIM_FAIL=cudaMemcpyAsync:1:cudaErrorInvalidValue run -m staged -T 2 -s 64K -i 1 -w 0
is 'what failed, and where' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: 64KB H2D pinned: cudaMemcpyAsync: cudaErrorInvalidValue (invalid argument)'
is 'the cell after it is whole' "$(grep -c ' GB/s .* GB/s .*x ' "$tmp/out")" 1
# Of 32 chunks the first fails at once, while each that the other thread copies takes 20 ms.
rm -f "$tmp/order"
SIM_FAIL=cudaMemcpyAsync:1:cudaErrorInvalidValue SIM_DELAY=20 SIM_ORDER=$tmp/order kill_after -m staged -T 2 -s 64M -i 1 -w 0
exits 'one thread fails' 1
[ "$(grep -c 'copy-begin h2d pinned' "$tmp/order")" -lt 20 ]
ok 'the other takes no further chunk' "fewer than 20 copies
came: $(grep -c 'copy-begin h2d pinned' "$tmp/order")"
libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
if [ -f "$libc" ] && [ -z "$asan" ]; then
  for n in 1 2 3; do # 64 KB are written without threads
    FAIL_LIBC=pthread_create:$n LD_PRELOAD=$libc SIM_LEFT=$tmp/left kill_after -m staged -T 3 -s 64K -i 1 -w 0
    exits "thread $n of 3 can not be started" 1
    is "thread $n of 3: told once" "$(cat "$tmp/err")" "dma_bandwidth: GPU 0: starting thread $n of 3: Resource temporarily unavailable; try fewer --threads"
    is "thread $n of 3: all is given back" "$(cat "$tmp/left")" ''
    is "thread $n of 3: pageable is kept" "$(grep -c 'GB/s           -' "$tmp/out")" 2
  done
else
  skip 'threads that can not be started' 'not with AddressSanitizer, or not built'
fi

# Ctrl-C in the middle.
SIM_DELAY=2 SIM_ORDER=$tmp/order SIM_LEFT=$tmp/left launch -m staged -T 4 -s 5M -i 500
await grep -q 'copy-end h2d pinned' "$tmp/order"
kill -INT "$pid"
reap
exits 'Ctrl-C' 130
is 'Ctrl-C: all is given back' "$(cat "$tmp/left")" ''

# Options and headings.
run -m staged -u -s 64K
exits '--untouched is refused' 2
err 'and why' '^dma_bandwidth: --untouched: --pin staged copies data that has been written'
run -T 2 -s 64K
exits '--threads alone is refused' 2
run -m staged -T 3 -s 64K -i 1 -w 0
out 'text' '^note: pinned memory from staged, 3 threads, 2 MB chunks \(--pin staged\)$'
run -m staged -T 1 -s 64K -i 1 -w 0 -f markdown
out 'markdown' '^### .*: cudaMemcpy, median of 1 copy, pinned by staged, 1 thread, 2 MB chunks$'
run -m staged -T 3 -s 64K -i 1 -w 0 -f csv
is 'csv' "$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { print $at["pin"], $at["threads"], $at["status"] }' "$tmp/out" | sort -u)" 'staged 3 ok'
run -s 64K -i 1 -w 0 -f csv
is 'csv: no threads without it' "$(awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { print $at["pin"] "," $at["threads"] }' "$tmp/out" | sort -u)" 'malloc-host,'
run -m staged -T 3 -s 64K -i 1 -w 0 -f json
out 'json' '"settings":\{[^}]*"pin":"staged","threads":3[,}]'

# The section can be lifted into a program with what its comment names: that compiles, and so does a program that calls it.
if command -v "${CC:-cc}" >/dev/null; then
  {
    awk '/^#include/ || /^#define COUNT/' "$top/dma_bandwidth.c"
    echo 'enum { WHY = 512 };'
    awk '/^static const struct advice/ { inside = 1 } inside; inside && /^};/ { exit }' "$top/dma_bandwidth.c"
    awk '/^static bool cuda_failed/ { inside = 1 } inside; inside && /^}/ { exit }' "$top/dma_bandwidth.c"
    awk '/^\/\* ---- / { inside = /Staged copies/ } inside' "$top/dma_bandwidth.c"
    cat <<'END'
int main(void) {
    static struct staged s;
    static unsigned char device, host;
    char why[WHY] = "";
    return staged_start(&s, 0, 4, false, why) && staged_copy(&s, (struct transfer){&device, &host, 1, 1}, why)
               ? (staged_spoil(&s), staged_stop(&s), 0) : 1;
}
END
  } >"$tmp/lifted.c"
  "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -D_GNU_SOURCE -fsyntax-only -isystem "$(make --silent -C "$top" print-include)" "$tmp/lifted.c" >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits 'the section alone compiles' 0
else
  skip 'the section alone' 'no C compiler'
fi
done_testing
