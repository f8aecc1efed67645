#!/bin/sh
# No driver, old driver, no device, CUDA errors in plain words.
. "$(dirname "$0")/lib.sh"

# refused NAME REGEX [FORMAT]: the last run ended with 3 and one sentence on stderr. Nothing is on stdout, but JSON has the
# same sentence.
refused() {
  exits "$1" 3
  is "$1: one line" "$(wc -l <"$tmp/err")" 1
  err "$1: message" "^dma_bandwidth: $2"
  case ${3:-text} in
  json)
    is "$1: one object" "$(wc -l <"$tmp/out")" 1
    sentence=$(sed 's/^dma_bandwidth: //' "$tmp/err")
    grep -Fq "\"gpus\":[],\"totals\":null,\"status\":\"failed\",\"exit_status\":3,\"error\":\"$sentence\"}" "$tmp/out"
    ok "$1: with the sentence" "error: $sentence"
    ;;
  csv) is "$1: nothing on stdout, or a header" "$(grep -vc ^host, "$tmp/out")" 0 ;;
  *) no_out "$1" ;;
  esac
}
SIM_RUNTIME=12090 SIM_DRIVER=12080
export SIM_RUNTIME SIM_DRIVER
run -V
out 'version of the runtime' '^CUDA runtime 12\.9$'
SIM_RUNTIME=0 run -V
out "a runtime that does not tell: the headers' version" '^CUDA runtime 1[1-9]\.[0-9]$'
run -V
out 'version of the driver' '^CUDA driver  12\.8$'
for format in text json csv markdown svg; do
  SIM_DRIVER=0 run -f $format
  refused "no driver, $format" 'no NVIDIA driver: none is loaded on this machine, or this container was not given it$' $format
  SIM_DRIVER=10020 run -f $format
  refused "old driver, $format" "the NVIDIA driver supports CUDA 10\\.2, this program needs 12\\.9: update the driver\$" $format
  SIM_DRIVER=11000 run -f $format
  refused "old driver that a toolkit is left for, $format" \
    'the NVIDIA driver supports CUDA 11\.0, this program needs 12\.9: update the driver, or build with an older CUDA runtime \(make toolkit CUDA=11 && make\)$' $format
  SIM_GPUS=0 run -f $format
  refused "no device, $format" 'no usable GPU: cudaErrorNoDevice \(no CUDA-capable device is detected\); check nvidia-smi and CUDA_VISIBLE_DEVICES$' $format
done
SIM_FAIL=cudaGetDeviceCount:1:cudaErrorSystemNotReady run
refused 'fabric manager' 'no usable GPU: cudaErrorSystemNotReady .*nvidia-fabricmanager'
SIM_FAIL=cudaGetDeviceCount:1:cudaErrorSystemDriverMismatch run -f json
refused 'driver mismatch' 'no usable GPU: cudaErrorSystemDriverMismatch .*reboot, or reload' json
for options in '' '-d all' '-d 3' '-a -q'; do
  # shellcheck disable=SC2086
  SIM_DRIVER=0 run -l $options
  refused "no driver, --list $options" 'no NVIDIA driver'
done
SIM_DRIVER=0 run -l -f json
refused 'no driver, --list in JSON' 'no NVIDIA driver' json
SIM_DRIVER=0 run -V
exits 'no driver, --version' 0
out 'version without a driver' '^CUDA driver  none$'
out 'the runtime needs none' '^CUDA runtime 12\.9$'
unset SIM_RUNTIME SIM_DRIVER

# A GPU that can't be used: the reason, and no empty table.
for format in text markdown csv; do
  SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable run -s 1M -f $format
  exits "busy GPU, $format" 3
  err 'busy GPU: what to do' 'GPU 0: cudaSetDevice: cudaErrorDevicesUnavailable .*busy or in exclusive mode: see nvidia-smi'
  is 'busy GPU: told once' "$(wc -l <"$tmp/err")" 1
  lacks "busy GPU, $format: no table" 'Summary|Pageable|1MB'
done
SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable run -s 1M
out 'busy GPU: the report has the reason, as its only note' '^note: cudaSetDevice: cudaErrorDevicesUnavailable '
is 'busy GPU: one note' "$(grep -c '^note: ' "$tmp/out")" 1
SIM_GPUS=2 SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable@1 run -s 1M -d all
exits 'one of two GPUs busy' 1
out 'the other one is measured' '^ 1MB    H2D     16\.95 GB/s  54\.72 GB/s'
err 'which is told' '^dma_bandwidth: GPU 1: cudaSetDevice: cudaErrorDevicesUnavailable'
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
  refused 'the real binary' 'no NVIDIA driver: |the NVIDIA driver supports'
else
  skip 'the real binary without a driver' 'not built, or there may be a driver'
fi
done_testing
