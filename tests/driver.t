#!/bin/sh
# No driver, old driver, no device, CUDA errors in plain words.
. "$(dirname "$0")/lib.sh"

# refused NAME REGEX: the last run ended with 3, one sentence on stderr, nothing on stdout.
refused() {
  exits "$1" 3
  no_out "$1"
  is "$1: one line" "$(wc -l <"$tmp/err")" 1
  err "$1: message" "$2"
}
for format in text json csv markdown; do
  SIM_DRIVER=0 run -f $format
  refused "no driver, $format" '^dma_bandwidth: no NVIDIA driver: '
done
runtime=$("$SIM" -V | sed -n 's/^CUDA runtime //p')
SIM_DRIVER=10020 run
refused 'old driver' "the NVIDIA driver supports CUDA 10\\.2, this program needs $runtime: update the driver, or build"
SIM_GPUS=0 run
refused 'no device' 'cudaErrorNoDevice \(no CUDA-capable device is detected\); check nvidia-smi and CUDA_VISIBLE_DEVICES'
SIM_FAIL=cudaGetDeviceCount:1:cudaErrorSystemNotReady run
refused 'fabric manager' 'cudaErrorSystemNotReady .*nvidia-fabricmanager'
SIM_FAIL=cudaGetDeviceCount:1:cudaErrorSystemDriverMismatch run
refused 'driver mismatch' 'cudaErrorSystemDriverMismatch .*reboot, or reload'
SIM_DRIVER=0 run -l
refused 'no driver, --list' 'no NVIDIA driver'
SIM_DRIVER=0 run -V
exits 'no driver, --version' 0
out 'version without a driver' '^CUDA driver  none$'

SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable run -s 1M
exits 'busy GPU' 3
err 'busy GPU: what to do' 'cudaSetDevice: cudaErrorDevicesUnavailable .*busy or in exclusive mode: see nvidia-smi'
SIM_FAIL=cudaMemcpy:9:cudaErrorECCUncorrectable run -s 1M 2M -i 2 -w 1
exits 'ECC' 1
err 'ECC: what to do' 'cudaMemcpy: cudaErrorECCUncorrectable .*nvidia-smi -q'
SIM_FAIL=cudaMemcpy:9 run -s 1M 2M -i 2 -w 1
exits 'an error that sticks' 1
out 'what was measured is there' '^ 1MB    H2D     16\.95 GB/s  54\.72 GB/s'
out 'nothing after it is measured' '^ 2MB    D2H              -           -'
is 'and it is said once' "$(grep -c cudaErrorIllegalAddress "$tmp/err")" 1
SIM_FAIL=cudaMemcpy:9:cudaErrorMemoryAllocation run -s 1M 2M -i 2 -w 1
exits 'an error that does not stick' 1
out 'the rows after it are measured' '^ 2MB    D2H     14\.60 GB/s  46\.75 GB/s'

# The real binary, where there is no driver: the same sentence.
if [ -x "$top/dma_bandwidth" ] && ! [ -e /dev/nvidiactl ] && ! [ -e /dev/dxg ]; then
  "$top/dma_bandwidth" >"$tmp/out" 2>"$tmp/err"
  status=$?
  refused 'the real binary' '^dma_bandwidth: no NVIDIA driver: |^dma_bandwidth: the NVIDIA driver supports'
else
  skip 'the real binary without a driver' 'not built, or there may be a driver'
fi
done_testing
