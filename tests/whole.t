#!/bin/sh
# Whole runs: status, output and messages to the letter, so that nothing is told twice, in another order, or beside what
# the other tests look for. Each command line stands in golden/whole.txt with what it gives; GOLDEN_WRITE=1 writes it.
. "$(dirname "$0")/lib.sh"
golden=$here/golden/whole.txt
[ -z "${GOLDEN_WRITE:-}" ] || : >"$golden"
asked=0
dma_bandwidth() { "$SIM" "$@"; }
while IFS= read -r line; do
  case $line in '' | '#'*) continue ;; esac
  asked=$((asked + 1))
  (eval "$line") >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
  {
    echo "\$ $line"
    echo "status $status"
    mask <"$tmp/err" | sed 's/^/! /'
    mask <"$tmp/out"
  } | sed 's/\(GPU and slot can do Gen. x[0-9]*:\) [^"]*/\1 ADVICE/' >"$tmp/whole" # another one in a virtual machine
  [ -z "${GOLDEN_WRITE:-}" ] || cat "$tmp/whole" >>"$golden"
  awk -v line="\$ $line" '/^\$ / { inside = $0 == line } inside' "$golden" >"$tmp/want"
  cmp -s "$tmp/whole" "$tmp/want"
  ok "$line" "$(diff "$tmp/want" "$tmp/whole" | head -n 20)"
done <<'END'
# Links
SIM_LINK=5x16/4x8 SIM_RATES=pageable.h2d=5,pageable.d2h=5,pinned.h2d=14,pinned.d2h=14 dma_bandwidth -s 1M 16M -i 2 -w 1
SIM_LINK=5x16/4x8 SIM_RATES=pageable.h2d=5,pageable.d2h=5,pinned.h2d=14,pinned.d2h=14 dma_bandwidth -s 1M -i 1 -w 0 -b -t 80 -f json
SIM_LINK=4x8 dma_bandwidth -s 1M -i 1 -w 0 -b
SIM_LINK=4x8 dma_bandwidth -s 1M -i 1 -w 0 -f markdown
SIM_LINK=7x16 dma_bandwidth -s 1M -i 1 -w 0 -t 10
SIM_LINK=5x16/1x16 dma_bandwidth -s 1M -i 1 -w 0 -f csv
SIM_C2C=1 dma_bandwidth -s 1M -i 1 -w 0 -f markdown
SIM_INTEGRATED=1 dma_bandwidth -s 1M -i 1 -w 0
SIM_NVML_FAIL=nvmlDeviceGetHandleByPciBusId_v2:6 dma_bandwidth -s 1M -i 1 -w 0
SIM_NVML_FAIL=nvmlDeviceGetCurrPcieLinkWidth dma_bandwidth -s 1M -i 1 -w 0 -t 1
SIM_GPUS=3 SIM_LINK='5x16/4x8;4x16;7x16' dma_bandwidth -l
SIM_GPUS=2 SIM_LINK='5x16/4x8;1x16' dma_bandwidth -l -d 1,0 -f json
SIM_GPUS=2 SIM_FAIL=cudaGetDeviceProperties:1 dma_bandwidth -l
# Several GPUs
SIM_GPUS=3 dma_bandwidth -d 2,0 -s 64K 1M -i 2 -w 1
SIM_GPUS=2 SIM_RATES='pageable.h2d=8,pageable.d2h=9,pinned.h2d=50,pinned.d2h=40;pageable.h2d=4,pageable.d2h=3,pinned.h2d=25,pinned.d2h=10' dma_bandwidth -s 16M 32M -i 2 -w 1 -d all -p -b
SIM_GPUS=2 SIM_RATES='pageable.h2d=8,pageable.d2h=9,pinned.h2d=50,pinned.d2h=40;pageable.h2d=4,pageable.d2h=3,pinned.h2d=25,pinned.d2h=10' dma_bandwidth -s 16M -i 2 -w 1 -d all -p -f markdown
SIM_GPUS=2 SIM_RATES='pageable.h2d=8,pageable.d2h=9,pinned.h2d=50,pinned.d2h=40;pageable.h2d=4,pageable.d2h=3,pinned.h2d=25,pinned.d2h=10' dma_bandwidth -s 64K 16M -i 2 -w 1 -d all -p -f svg
SIM_GPUS=2 SIM_FAIL=cudaMemcpy:4:cudaErrorECCUncorrectable@1 dma_bandwidth -s 64K 1M -i 2 -w 1 -d all -p
SIM_GPUS=2 SIM_FAIL=cudaMemcpy:4:cudaErrorECCUncorrectable@1 dma_bandwidth -s 64K 1M -i 2 -w 1 -d all -p -f json
SIM_GPUS=2 SIM_FAIL=cudaStreamCreate:1:cudaErrorDevicesUnavailable@1 dma_bandwidth -s 64K -i 1 -w 0 -d all -p -f csv
SIM_GPUS=2 SIM_FAIL=cudaSetDevice:all:cudaErrorDevicesUnavailable dma_bandwidth -s 64K -i 1 -w 0 -d all -p
SIM_GPUS=2 dma_bandwidth -d 0,2 -s 64K
SIM_GPUS=2 SIM_MEM=100000,8000000 dma_bandwidth -s 64K 1M -i 1 -w 0 -d all -t 70
# Failures
SIM_COPY='pinned.d2h:flip@8192' dma_bandwidth -s 64K 1M -i 1 -w 0 -t 90
SIM_COPY='h2d:none' dma_bandwidth -s 64K -i 1 -w 0 -f csv
SIM_COPY='d2h:shift' dma_bandwidth -s 64K 1M -i 1 -w 0 -b -f markdown
SIM_STALL=3 dma_bandwidth -s 64K 1M -i 2 -w 0
SIM_FAIL=cudaMemcpy:5:cudaErrorIllegalAddress dma_bandwidth -s 64K 1M -i 1 -w 0 -b
SIM_FAIL=cudaMalloc:1 dma_bandwidth -s 64K 1M -i 1 -w 0
SIM_FAIL=cudaMallocHost:all dma_bandwidth -s 64K 1M -i 1 -w 0 -f json
SIM_FAIL=cudaHostRegister:1 dma_bandwidth -s 64K 1M -i 1 -w 0 -m register
SIM_FAIL=cudaEventSynchronize:2 dma_bandwidth -s 1M -i 1 -w 0 -m staged -T 1
SIM_FAIL=cudaMallocHost:2 dma_bandwidth -s 1M -i 1 -w 0 -m staged -T 2
SIM_FAIL=cudaMallocHost:3 dma_bandwidth -s 1M -i 1 -w 0 -m staged -T 2 -f csv
SIM_FAIL=cudaMemset2D:1 dma_bandwidth -s 64K -i 1 -w 0
SIM_FAIL=cudaMemcpy2D:1 dma_bandwidth -s 64K -i 1 -w 0
SIM_PIN_LIMIT=100000 dma_bandwidth -s 64K 1M 2M -i 1 -w 0 -b
SIM_PIN_LIMIT=100000 dma_bandwidth -s 64K 1M 2M -i 1 -w 0 -f svg
SIM_OVERSELL=1 SIM_MEM=3000000 dma_bandwidth -s 1M 2M -i 1 -w 0
# Notes and settings
SIM_BUSY=35,2 SIM_CC=1 dma_bandwidth -s 64K 1000003B 1.5M -i 3 -w 1 -b -n
SIM_BUSY=35,1 dma_bandwidth -s 64K -i 1 -w 0 -m register -u -f csv
SIM_JITTER=0.3 dma_bandwidth -s 64K 16M 32M -i 3 -w 0 -m write-combined
SIM_JITTER=0.3 dma_bandwidth -s 64K 16M -i 4 -w 0 -f json
SIM_RATES=pageable.h2d=0.00002,pageable.d2h=0.04,pinned.h2d=1234,pinned.d2h=12345 SIM_C2C=1 dma_bandwidth -s 64K -i 1 -w 0
SIM_RATES=pageable.h2d=0.02,pageable.d2h=0.04,pinned.h2d=1234,pinned.d2h=12345 SIM_C2C=1 dma_bandwidth -s 64K -i 1 -w 0 -f svg
dma_bandwidth -s 64K 5M -i 1 -w 0 -m staged -T 1 -f json
dma_bandwidth -s 64K:1M,3M 1B -i 1 -w 0 -f csv -a
# Wrong command lines
dma_bandwidth -s 0
dma_bandwidth -s 1M,,2M
dma_bandwidth -s 2M:1M
dma_bandwidth -s 1:2:3
dma_bandwidth -s 1X
dma_bandwidth -s 2000T
dma_bandwidth -s 1B:1T,1B:1T,1B:1T -l
dma_bandwidth -i 0
dma_bandwidth -i 1.5
dma_bandwidth -w -1
dma_bandwidth -w 100001
dma_bandwidth -d 0,0
dma_bandwidth -d 128
dma_bandwidth -d all,1
dma_bandwidth -T 0 -x
dma_bandwidth -T 4
dma_bandwidth -m stage
dma_bandwidth -f jsn
dma_bandwidth -t 0
dma_bandwidth -t 101
dma_bandwidth -t x
dma_bandwidth -o x.png
dma_bandwidth -u -m staged
dma_bandwidth -b -s 1B
dma_bandwidth -l -s 1M
dma_bandwidth -l -f csv
dma_bandwidth -d 0 5
dma_bandwidth 5
END
is 'command lines' "$(grep -c '^\$ ' "$golden")" $asked
done_testing
