#!/bin/sh
# Memory that can't be had: its own rows fail with the reason, the others are measured. Memory that was had is given back.
. "$(dirname "$0")/lib.sh"
MB=1048576

SIM_PIN_LIMIT=200000 run -s 64K 1M
exits 'pinned limit' 1
out 'rows that fit are whole' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
out 'pageable is kept where only pinned failed' '^ 1MB    H2D     16\.95 GB/s           -       -            -$'
reason='allocating 1MB of pinned host memory: cudaErrorMemoryAllocation (out of memory); try smaller --sizes, or free memory first'
is 'reason, memory and size, once' "$(cat "$tmp/err")" "dma_bandwidth: GPU 0: $reason"
is 'the report has it too' "$(grep '^note:' "$tmp/out")" "note: $reason"

SIM_MEM=100000 run -s 64K 1M 2M
exits 'GPU memory' 1
out 'rows that fit' '^ 64KB   D2H     14\.60 GB/s  46\.75 GB/s'
out 'rows that do not' '^ 1MB    H2D              -           -'
err 'GPU memory is named, and no column' '^dma_bandwidth: GPU 0: allocating 1MB of GPU memory: cudaErrorMemoryAllocation'
err 'for each size' '^dma_bandwidth: GPU 0: allocating 2MB of GPU memory: cudaErrorMemoryAllocation'
is 'once for each size' "$(wc -l <"$tmp/err")" 2

SIM_FAIL=cudaMalloc:1 run -s 1M
is 'what failed is named' "$(cut -d';' -f1 "$tmp/err")" \
  'dma_bandwidth: GPU 0: allocating 1MB of GPU memory: cudaErrorMemoryAllocation (out of memory)'
SIM_MEM=10 run -s 64K
exits 'no GPU memory at all' 1
out 'the heading is there' '^Link: PCIe'
# A GPU that claims half of the memory it has: what can be had is measured.
SIM_MEM=4194304 SIM_OVERSELL=1 run -s 64K 3M 5M -i 2 -w 1
exits 'more memory than the GPU claims' 1
out 'all that can be had is measured' '^ 3MB    H2D     16\.95 GB/s  54\.72 GB/s'
is 'the rest is not' "$(cut -d: -f1-4 "$tmp/err" | cut -d';' -f1)" 'dma_bandwidth: GPU 0: allocating 5MB of GPU memory: cudaErrorMemoryAllocation (out of memory)'

run -s 64K 1024T
exits 'GPU memory of 1024 TB' 1
out 'the small one is measured' '^ 64KB    *H2D     16\.95 GB/s  54\.72 GB/s'
SIM_MEM=9999999999999999 run -s 64K 1T
exits 'a GPU that has it, on a host that has not' 1
err 'the simulator takes no more than the host can spare' '^dma_bandwidth: GPU 0: allocating 1024GB of GPU memory: cudaErrorMemoryAllocation'

for method in register huge write-combined; do
  SIM_PIN_LIMIT=70000 run -s 64K 1M -m $method
  exits "pinned limit with --pin $method" 1
  out "--pin $method: pageable is kept" '^ 1MB    H2D     16\.95 GB/s           -'
  out "--pin $method: what fits is measured" '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
done

# --explain gives the pinned buffer back first: it may be all that can be pinned.
SIM_PIN_LIMIT=17000000 run -s 16M -i 1 -w 0 -x -T 2
exits '--explain within the limit of one buffer' 0
is 'all its ways are measured' "$(sed -n '/^--- What helps/,/^GB.s/p' "$tmp/out" | grep -c ' -  *-  *-  *-  *-')" 0

SIM_PIN_LIMIT=0 run -s 64K -f json
exits 'nothing can be pinned' 1
if command -v jq >/dev/null; then
  jq -e '.status == "failed" and (.gpus[0].results | length == 2 and all(.pageable.median > 10 and .pinned == null and
    .ratio == null and (.status | startswith("failed: allocating 64KB of pinned"))))' "$tmp/out" >/dev/null
  ok 'null where nothing was measured'
else
  skip 'null where nothing was measured' 'no jq'
fi

# A limit on this process's address space: malloc itself fails.
if [ -z "$asan" ]; then
  (ulimit -v 400000 2>/dev/null && exec "$SIM" -s 64K 1 -n -i 1 -w 0) >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits 'malloc fails' 1
  out 'the small one is measured' '^ 64KB   H2D     16\.95 GB/s  54\.72 GB/s'
else
  skip 'malloc fails' 'AddressSanitizer needs the address space'
fi

# 2 MB pages that are not to be had are told, in MB of the buffer in whole pages; --explain's as well.
libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
if [ -f "$libc" ] && [ -z "$asan" ]; then
  for case in '3M -m huge|4' '2M -m huge|2' '1M 5M -m huge|6' '2097153B -m huge|4' '3M -x -T 1|4' '4M -x -T 1 -m huge|4'; do
    # shellcheck disable=SC2086
    FAIL_LIBC=hugepage:all LD_PRELOAD=$libc run -i 1 -w 0 -s ${case%|*}
    exits "no 2 MB pages: ${case%|*}" 0
    is "no 2 MB pages: ${case%|*}" "$(grep small "$tmp/out" | head -n 1)" \
      "note: the kernel put ${case#*|} MB of a buffer that asks for 2 MB pages into small ones: see /sys/kernel/mm/transparent_hugepage"
  done
  FAIL_LIBC=hugepage:2 LD_PRELOAD=$libc run -i 1 -w 0 -s 8M -m huge # the first is the simulated GPU's memory
  out 'huge pages of other memory do not count' 'put 8 MB of'
  FAIL_LIBC=hugepage:all LD_PRELOAD=$libc run -i 1 -w 0 -s 0.6 -m huge -x -T 1 -n
  out 'the most of all buffers: 308 pages of the first, 256 of the others' 'put 616 MB of'
  FAIL_LIBC=hugepage:all LD_PRELOAD=$libc SIM_PIN_LIMIT=0 run -i 1 -w 0 -s 3M -x -T 1
  out 'told of what was written only' 'put 4 MB of'
  FAIL_LIBC=hugepage:all LD_PRELOAD=$libc SIM_MEM=1 run -i 1 -w 0 -s 3M -x -T 1
  lacks 'not of what was not got' 'into small ones'
  FAIL_LIBC=hugepage:all LD_PRELOAD=$libc run -i 1 -w 0 -s 3M -m register
  lacks 'where none are asked for nothing is told' 'small'
else
  skip 'no 2 MB pages' 'not with AddressSanitizer, or not built'
fi

# Flags of the calls that pin.
for case in 'write-combined cudaHostAlloc 0x4' 'register cudaHostRegister 0x0' 'huge cudaHostRegister 0x0' 'malloc-host '; do
  rm -f "$tmp/flags" && : >"$tmp/flags"
  SIM_FLAGS=$tmp/flags run -s 64K -i 1 -w 0 -m "${case%% *}"
  is "--pin ${case%% *}: flags" "$(cat "$tmp/flags")" "${case#* }"
done

# kept NAME WANT ARG...: what such a run, ending with that status, has not given back is nothing.
kept() {
  name=$1
  want=$2
  shift 2
  echo unwritten >"$tmp/left"
  SIM_LEFT=$tmp/left run "$@"
  exits "$name" "$want"
  is "$name: all is given back" "$(cat "$tmp/left")" ''
}
for method in malloc-host register huge write-combined staged; do
  kept "--pin $method" 0 -s 64K 3M -i 1 -w 0 -b -m $method
  SIM_PIN_LIMIT=70000 kept "--pin $method, not for all sizes" 1 -s 64K 3M -i 1 -w 0 -m $method
  SIM_COPY=pinned.h2d:none kept "--pin $method, wrong data" 1 -s 64K 3M -i 1 -w 0 -m $method
done
kept '--explain' 0 -s 64K 3M -i 1 -w 0 -x -T 2
SIM_FAIL=cudaHostRegister:2 kept '--explain, a part fails' 1 -s 64K 3M -i 1 -w 0 -x -T 2
SIM_GPUS=3 kept 'three GPUs in turn' 0 -s 64K -i 1 -w 0 -d all
SIM_GPUS=3 kept 'three GPUs at once' 0 -s 64K -i 1 -w 0 -d all -p -x -T 1
SIM_FAIL=cudaMemcpy:3 kept 'an error that sticks' 1 -s 64K 3M -i 1 -w 0
for call in cudaStreamCreate:1 cudaStreamCreate:2 cudaEventCreate:1 cudaEventCreate:2; do
  SIM_FAIL=$call kept "$call fails" 3 -s 64K -i 1 -w 0
done
SIM_MEM=10 kept 'no GPU memory' 1 -s 64K -i 1 -w 0
for method in malloc-host register staged; do
  echo unwritten >"$tmp/left"
  SIM_DELAY=5 SIM_LEFT=$tmp/left SIM_ORDER=$tmp/order launch -s 64K -i 1000 -m $method
  await grep -q copy-end "$tmp/order"
  kill -INT "$pid"
  reap
  exits "Ctrl-C with --pin $method" 130
  is "Ctrl-C with --pin $method: all is given back" "$(cat "$tmp/left")" ''
done

# What the machine and its control groups leave, through files that stand in for the kernel's.
staged=
if [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && unshare -m true 2>/dev/null; then staged=yes; fi
group=$tmp/group

# with MEMINFO CGROUP ARG...: runs with these lines of /proc/meminfo and /proc/self/cgroup ("": as they are), and $group
# for /sys/fs/cgroup. Status 77 if the files could not be put there.
with() {
  printf '%s\n' "$1" >"$tmp/meminfo"
  printf '%s\n' "$2" >"$tmp/cgroup"
  shift 2
  unshare -m sh -c '
    put() { [ ! -s "$1" ] || [ "$(cat "$1")" = "" ] || { mount --bind "$1" "$2" && cmp -s "$1" "$2"; }; }
    mount --bind "$1" /sys/fs/cgroup && put "$2/meminfo" /proc/meminfo && put "$2/cgroup" /proc/$$/cgroup || exit 77
    shift 2
    exec "$@"' sh "$group" "$tmp" env SIM_SPARE=4294967296 "$SIM" "$@" -i 1 -w 0 -n >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}
# groups: begins anew, with no limits.
groups() { rm -rf "$group" && mkdir -p "$group/a/b" "$group/memory/a/b"; }
mkdir -p "$group"
plenty='MemAvailable:   16777216 kB'
[ -z "$staged" ] || with "$plenty" '0::/' -s 64K
if [ -z "$staged" ] || [ "$status" = 77 ]; then
  skip 'what machine and control groups leave' 'needs root, and files bound over /proc and /sys'
  done_testing
  exit
fi

# measured NAME, refused NAME SIZE NEEDED LEFT [SOURCE]: the last run's only size was measured whole, or refused for pinned
# memory, needing NEEDED MB with LEFT MB left.
measured() {
  exits "$1" 0
  is "$1: nothing is missing" "$(grep -c ' GB/s .* GB/s .*x ' "$tmp/out")" 2
}
refused() {
  exits "$1" 1
  is "$1: what, and what is left" "$(grep 'of pinned' "$tmp/err")" \
    "dma_bandwidth: GPU 0: allocating $2 of pinned host memory: $3 MB are needed with the other buffers of that size and 64 MB kept back, $4 MB are left (${5:-memory limit of its control group}); try smaller --sizes"
}

# Available memory, in kB; not free memory. Two buffers of a size and 64 MB must fit.
groups
available='MemTotal:       16777216 kB
MemFree:        8000000 kB
MemAvailable:     204800 kB
SwapTotal:      8000000 kB'
with "$available" '0::/' -s 68M
measured '200 MB available, 68 MB asked'
with "$available" '0::/' -s 69M
refused '200 MB available, 69 MB asked' 69MB 138 200 'available memory'
with 'MemTotal:       16777216 kB
MemFree:        100 kB
MemAvailable:     204800 kB' '0::/' -s 68M
measured 'free memory does not matter'
with 'MemFree:        100 kB' '0::/' -s 68M
measured 'nothing is refused where nothing is known'
with "$available" '0::/' -s 64K 69M
out 'a size that is refused costs its own rows only' '^ 64KB   D2H     14\.60 GB/s  46\.75 GB/s'

# The buffers of staged copies, 4 MB for each thread, want room too: 34 threads fit, with two buffers of 64 KB got before.
with "$available" '0::/' -s 64K -m staged -T 34
exits '200 MB available, 34 threads' 0
with "$available" '0::/' -s 64K -m staged -T 35
exits '200 MB available, 35 threads' 1
is '35 threads: what, and what is left' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: allocating the buffers of staged copies: 140 MB are needed and 64 MB kept back, 200 MB are left (available memory); try fewer --threads'
out 'pageable memory is measured' '^ 64KB   D2H     14\.60 GB/s           -'
with "$available" '0::/' -s 64K -x -T 35
err 'so do those of --explain' '^dma_bandwidth: GPU 0: --explain: staged by 35 threads: allocating the buffers of staged copies: 140 MB are needed'
out 'the rest of it is measured' '^pinned: 2 MB pages, registered +54\.7'

# Version 2: limit 400 MB, used 300 MB, of which 200 MB are page cache: 300 MB are left.
groups
echo $((400 * MB)) >"$group/a/memory.max"
echo $((300 * MB)) >"$group/a/memory.current"
printf 'anon 5\nfile 1\ninactive_anon 7\ninactive_file %d\nactive_anon 9\nactive_file %d\n' $((100 * MB)) $((100 * MB)) >"$group/a/memory.stat"
with "$plenty" '0::/a' -s 118M
measured 'version 2: page cache counts as free'
with "$plenty" '0::/a' -s 119M
refused 'version 2: not more' 119MB 238 300
with "$plenty" '0::/a/b' -s 119M
refused "version 2: a parent's limit" 119MB 238 300
with "$available" '0::/a' -s 69M
refused 'the machine has less than the group' 69MB 138 200 'available memory'
groups
echo $((300 * MB)) >"$group/memory.max"
echo 0 >"$group/memory.current"
with "$plenty" '0::/a/b' -s 119M
refused 'version 2: a limit at the root of the tree' 119MB 238 300
with "$plenty" '0::/' -s 119M
refused 'version 2: a process at the root of the tree' 119MB 238 300
with "$plenty" '0::/a/b' -s 118M
measured 'version 2: room below it'
groups
echo max >"$group/a/memory.max"
echo $((300 * MB)) >"$group/a/memory.high"
echo 0 >"$group/a/memory.current"
with "$plenty" '0::/a' -s 119M
refused 'memory.high' 119MB 238 300
echo $((200 * MB)) >"$group/a/memory.max"
with "$plenty" '0::/a' -s 119M
refused 'the lower of memory.high and memory.max' 119MB 238 200
echo max >"$group/a/memory.high"
echo max >"$group/a/memory.max"
with "$plenty" '0::/a' -s 119M
measured 'no limit'
echo 100 >"$group/a/memory.max"
with "$plenty" '0::/a' -s 64K
exits 'nothing left' 1
err 'nothing left: 1 MB is needed' ': 1 MB are needed with .* and 64 MB kept back, 0 MB are left'
groups
echo $((100 * MB)) >"$group/a/memory.max"
echo $((200 * MB)) >"$group/a/memory.current"
with "$plenty" '0::/a' -s 1M
refused 'used more than the limit' 1MB 2 0

# Colons in the path.
groups
path=/kubepods.slice/kubepods-pod1.slice:cri-containerd:abc
mkdir -p "$group$path"
echo $((100 * MB)) >"$group$path/memory.max"
echo 0 >"$group$path/memory.current"
with "$plenty" "0::$path" -s 64M
refused 'a path with colons' 64MB 128 100
with "$plenty" "0::$path" -s 18M
measured 'a path with colons, where there is room'

# Version 1, alone and beside version 2.
groups
echo $((400 * MB)) >"$group/memory/a/memory.limit_in_bytes"
echo $((300 * MB)) >"$group/memory/a/memory.usage_in_bytes"
printf 'cache 5\ninactive_file 1\nactive_file 2\ntotal_inactive_file %d\ntotal_active_file %d\n' $((100 * MB)) $((100 * MB)) >"$group/memory/a/memory.stat"
for lines in '4:memory:/a' '4:cpu,memory,pids:/a/b' '5:cpu:/
4:memory:/a
0::/b'; do
  with "$plenty" "$lines" -s 119M
  refused "version 1, $lines" 119MB 238 300
  with "$plenty" "$lines" -s 118M
  measured "version 1, $lines"
done
with "$plenty" '4:cpu:/a' -s 119M
measured 'version 1, another controller'
groups
echo $((300 * MB)) >"$group/memory/memory.limit_in_bytes"
echo 0 >"$group/memory/memory.usage_in_bytes"
with "$plenty" '4:memory:/a/b' -s 119M
refused 'version 1: a limit at the root of the tree' 119MB 238 300
printf '%s\n' 9223372036854771712 >"$group/memory/memory.limit_in_bytes"
with "$plenty" '4:memory:/a/b' -s 119M
measured 'version 1: no limit'

# What is asked together. The simulated GPU's own memory does not count where it is none of the host's.
groups
echo $((448 * MB)) >"$group/a/memory.max"
echo 0 >"$group/a/memory.current"
with "$plenty" '0::/a' -s 160M
measured '448 MB, 160 MB asked'
SIM_INTEGRATED=1
export SIM_INTEGRATED
with "$plenty" '0::/a' -s 160M
exits 'an integrated GPU: three buffers from one memory' 1
is 'an integrated GPU: what is needed' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: allocating 160MB of GPU memory: 480 MB are needed with the other buffers of that size and 64 MB kept back, 448 MB are left (memory limit of its control group); try smaller --sizes'
with "$plenty" '0::/a' -s 128M
measured 'an integrated GPU with room'
with "$plenty" '0::/a' -s 129M
exits 'an integrated GPU, 1 MB more' 1
unset SIM_INTEGRATED
echo $((1000 * MB)) >"$group/a/memory.max"
with "$plenty" '0::/a' -s 400M 600M
exits '1000 MB, 400 and 600 MB asked' 1
is 'what fits alone is measured whole' "$(grep -c '^ 400MB .* GB/s .* GB/s .*x ' "$tmp/out")" 2
is 'what does not is refused, once' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: allocating 600MB of pinned host memory: 1200 MB are needed with the other buffers of that size and 64 MB kept back, 1000 MB are left (memory limit of its control group); try smaller --sizes'
echo $((512 * MB)) >"$group/a/memory.max"
with "$plenty" '0::/a' -s 0.5
refused 'both numbers in one unit' 0.5GB 1024 512
done_testing
