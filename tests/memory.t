#!/bin/sh
# Memory that can't be had: its own rows fail with the reason, the others are measured.
. "$(dirname "$0")/lib.sh"

SIM_PIN_LIMIT=200000 run -s 64K 1M
exits 'pinned limit' 1
out 'rows that fit are whole' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
out 'pageable is kept where only pinned failed' '^ 1MB    H2D     16\.95 GB/s           -       -            -$'
err 'reason, memory and size' 'GPU 0, 1MB H2D pinned: allocating 1MB of pinned host memory: cudaErrorMemoryAllocation \(out of memory\)'
out 'the report has it too' '^note: 1MB H2D pinned failed: allocating 1MB of pinned host memory'
is 'the reason is given once' "$(wc -l <"$tmp/err")" 1

SIM_MEM=100000 run -s 64K 1M 2M
exits 'GPU memory' 1
out 'rows that fit' '^ 64KB   D2H     14\.60 GB/s  46\.75 GB/s'
out 'rows that do not' '^ 1MB    H2D              -           -'
err 'GPU memory is named' '1MB H2D pageable: allocating 1MB of GPU memory'
err 'for each size' '2MB H2D pageable: allocating 2MB of GPU memory'

SIM_MEM=10 run -s 64K
exits 'no GPU memory at all' 1
out 'link is still read' '^Link: PCIe Gen5 x16'

run -s 64K 1024T
exits 'GPU memory of 1024 TB' 1
out 'the small one is measured' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
if [ -r /proc/meminfo ]; then
  SIM_MEM=9999999999999999 run -s 64K 2T
  exits 'more than the host has' 1
  err 'host memory is refused before it is touched' '2048GB H2D pageable: allocating 2048GB of pageable host memory: [0-9.]+ GB are left \(available memory\)'
  out 'the small one is measured' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
else
  skip 'more than the host has' 'no /proc/meminfo'
fi

for method in register write-combined; do
  SIM_PIN_LIMIT=70000 run -s 64K 1M -m $method
  exits "pinned limit with --pin $method" 1
  out "--pin $method: pageable is kept" '^ 1MB    H2D     16\.95 GB/s           -'
  out "--pin $method: what fits is measured" '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
done

SIM_PIN_LIMIT=0 run -s 64K -f json
exits 'nothing can be pinned' 1
if command -v jq >/dev/null; then
  jq -e '.status == "failed" and (.gpus[0].results | all(.pageable.median > 10 and .pinned == null and
    .ratio == null and (.status | startswith("failed: allocating 64KB of pinned"))))' "$tmp/out" >/dev/null
  ok 'null where nothing was measured'
else
  skip 'null where nothing was measured' 'no jq'
fi

# A limit on this process's address space: malloc itself fails.
if [ -z "$asan" ]; then
  ( ulimit -v 400000 2>/dev/null && "$SIM" -s 64K 1 -n >"$tmp/out" 2>"$tmp/err"; echo $? >"$tmp/status" )
  status=$(cat "$tmp/status")
  exits 'malloc fails' 1
  out 'the small one is measured' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
else
  skip 'malloc fails' 'AddressSanitizer needs the address space'
fi
done_testing
