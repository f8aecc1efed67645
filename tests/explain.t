#!/bin/sh
# --explain, --untouched, --pin, --bidir, notes.
. "$(dirname "$0")/lib.sh"

run -s 1M 8M -x
exits '--explain' 0
out 'the section' '^--- Why ---$'
out 'memcpy' '^[0-9.]+ GB/s for memcpy by one core: pageable H2D of 8MB ran at [0-9]+ % of it, '
out 'first touch' '^14\.6 GB/s for D2H into a fresh malloc buffer, 14\.6 GB/s into it again: first touch cost little here$'
out 'cudaMallocHost' '^[0-9.]+ s per GB for cudaMallocHost: paid for after [0-9]+ H2D cop(y|ies) of 8MB$'
out 'cudaHostRegister' '^[0-9.]+ s per GB for cudaHostRegister of written memory: paid for after [0-9]+ H2D cop'
if [ -r /sys/kernel/mm/transparent_hugepage/enabled ]; then
  policy=$(sed 's/.*\[\(.*\)\].*/\1/' /sys/kernel/mm/transparent_hugepage/enabled)
  out 'page policy' "^$policy: transparent huge pages, malloc gets "
fi
SIM_RATES='pageable.h2d=50,pinned.h2d=20' run -s 1M -x
out 'pinned that is not faster is never paid for' 'cudaMallocHost: not paid for by copies, pinned H2D was not faster$'
SIM_RATES='pageable.h2d=0.01' run -s 1M -x
out 'the staging copy, where the figure supports it' 'as a CPU copying into a pinned staging buffer would$'
SIM_RATES='pageable.h2d=1000' run -s 1M -x
out 'and not where it does not' "more than one core's plain copy gives\$"
SIM_FAIL=cudaMemcpy:2:cudaErrorMemoryAllocation run -s 1M -i 1 -w 0 -x
out 'without a pageable rate, memcpy stands alone' '^[0-9.]+ GB/s for memcpy by one core$'
out 'and nothing is said of paying' '^[0-9.]+ s per GB for cudaMallocHost$'
lacks 'no odd number' 'nan|inf'
SIM_FAIL=cudaMemcpy:3:cudaErrorMemoryAllocation run -s 1M -i 1 -w 0 -x
out 'without a pinned rate neither' '^[0-9.]+ s per GB for cudaHostRegister of written memory$'
run -s 1M -x -f markdown
out 'markdown' '^#### Why$'
run -s 1M -x -f csv
err 'csv: on stderr' 'GB/s for memcpy by one core'
run -s 1M -x -f json
if command -v jq >/dev/null; then
  is 'json: a key per figure' "$(jq -rc '.gpus[0].explain | keys_unsorted | join(" ")' "$tmp/out")" \
    'memcpy_gbps d2h_cold_gbps d2h_warm_gbps malloc_host_s_per_gb malloc_host_paid_after_copies register_s_per_gb register_paid_after_copies page_policy'
  SIM_FAIL=cudaHostRegister:1 run -s 1M -x -f json
  exits 'a part that fails' 1
  jq -e '.gpus[0] | .explain.register_s_per_gb == null and .explain.memcpy_gbps > 0 and
    (.notes[0] | startswith("--explain could not measure everything: cudaHostRegister: cudaErrorUnknown"))' "$tmp/out" >/dev/null
  ok 'is null, and a note says why'
else
  skip 'json' 'no jq'
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
out '--untouched in csv' ",ok; pageable source never written: reads the kernel's zero page\$"
for format in text markdown json csv; do
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

SIM_JITTER=0.3 run -s 1M 2M
out 'spread' '^note: 8 cells spread over 10 % of the mean, [12]MB (H2D|D2H) (pageable|pinned) most \([0-9]+ %\): quiet the host or raise --iters above 10$'
SIM_JITTER=0.05 run -s 1M 2M
lacks 'little spread' '^note:'
SIM_BUSY=35,2 run -s 1M
out 'busy GPU' '^note: the GPU was in use before the run \(utilisation 35 %, 2 other processes\): repeat when it is idle$'
SIM_BUSY=0,1 run -s 1M -f json
out 'another process' 'utilisation 0 %, 1 other process\)'
SIM_BUSY=9,0 run -s 1M
lacks 'not busy' '^note:'
if command -v taskset >/dev/null && [ "$(nproc)" -ge 2 ]; then
  status=0
  SIM_CPUS=1 taskset -c 0 "$SIM" -s 1M >"$tmp/out" 2>"$tmp/err" || status=$?
  out "the caller's binding is kept and noted where it does not match" '^note: 1 of the CPUs that the caller chose are not near the GPU'
  SIM_CPUS=0 taskset -c 0 "$SIM" -s 1M >"$tmp/out" 2>"$tmp/err"
  lacks 'and not where it does' '^note:'
  SIM_CPUS=1 taskset -c 0 "$SIM" -a -s 1M >"$tmp/out" 2>"$tmp/err"
  lacks '--no-affinity looks at no binding' '^note:'
  "$SIM" -s 64K -i 100000 >/dev/null 2>&1 &
  pid=$!
  SIM_CPUS=1 "$SIM" -s 64K -i 100000 >/dev/null 2>&1 &
  bound=$!
  SIM_CPUS=1 "$SIM" -a -s 64K -i 100000 >/dev/null 2>&1 &
  free=$!
  armed $pid
  armed $bound
  armed $free
  sleep 0.5
  # cpus PID: the CPUs that the thread which drives the GPU may use.
  cpus() { sed -n 's/^Cpus_allowed_list:\t*//p' "/proc/$1"/task/*/status | tail -n 1; }
  is "the process binds itself to the GPU's CPUs" "$(cpus $bound)" 1
  is 'but not with --no-affinity' "$(cpus $free)" "$(cpus $pid)"
  kill $pid $bound $free
  wait
else
  skip 'binding' 'needs taskset and two CPUs'
fi
done_testing
