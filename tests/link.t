#!/bin/sh
# The link, its limit and what is made of it; absent and lying NVML; kinds of GPU.
. "$(dirname "$0")/lib.sh"

# link LINK NAME LIMIT PERCENT: SIM_LINK gives this Link line, limit and pinned efficiency.
link() {
  SIM_LINK=$1 SIM_RATES='pinned.h2d=10,pageable.h2d=1' run -s 1M
  out "SIM_LINK=$1: Link line" "^Link: $2\$"
  out "SIM_LINK=$1: limit" "^Theoretical \($2\): ~$3 GB/s\$"
  out "SIM_LINK=$1: efficiency" "^Pinned efficiency:   $4%\$"
}
link 1x16 'PCIe Gen1 x16' 4 250
link 2x16 'PCIe Gen2 x16' 8 125
link 3x16 'PCIe Gen3 x16' 16 62
link 4x16 'PCIe Gen4 x16' 32 31
link 5x16 'PCIe Gen5 x16' 64 16
link 6x16 'PCIe Gen6 x16' 128 8
link 3x8 'PCIe Gen3 x8' 8 125
link 3x1 'PCIe Gen3 x1' 1 1000
link 1x1 'PCIe Gen1 x1' '0\.25' 4000
link 1x16,4x16 'PCIe Gen4 x16' 32 31
link 5x16/4x8 'PCIe Gen4 x8' 16 62

SIM_LINK=5x16/4x8 run -s 1M
out 'a link below its maximum gets a note' '^note: the link ran at Gen4 x8 under load, GPU and slot can do Gen5 x16: '
run -s 1M
lacks 'a link at its maximum gets none' '^note:'
SIM_LINK=1x16,4x16 run -s 1M
lacks 'a link that woke up gets none' '^note: the link'
SIM_LINK=3x1 run -s 1M
out 'a rate above the limit gets a note' '^note: 1MB H2D pinned: 54\.72 GB/s is above .* 1 GB/s'
SIM_LINK=5x16/4x8 run -l
out '--list: maximum and now' 'PCIe Gen5 x16 \(now PCIe Gen4 x8\)$'
SIM_LINK=4x8 run -l
out '--list: one link' '00000000:18:00\.0  PCIe Gen4 x8$'

# unknown NAME: no limit, no efficiency, whatever NVML claims.
unknown() {
  exits "$1" 0
  out "$1: Link line" "$2"
  lacks "$1: no limit" 'Theoretical|efficiency'
}
for lie in 0x16 5x0 7x16 9x99 5x33 255x255 4294967295x16; do
  SIM_LINK=$lie run -s 1M
  unknown "NVML claims $lie" '^Link: PCIe \(unknown\)$'
done
for function in nvmlInit_v2 nvmlDeviceGetHandleByPciBusId_v2 nvmlDeviceGetCurrPcieLinkGeneration \
  nvmlDeviceGetCurrPcieLinkWidth; do
  SIM_NVML_FAIL=$function run -s 1M
  unknown "$function fails" '^Link: PCIe \(unknown\)$'
done
for function in nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetCpuAffinity \
  nvmlDeviceGetUtilizationRates nvmlDeviceGetComputeRunningProcesses_v3; do
  SIM_NVML_FAIL=$function run -s 1M
  exits "$function fails" 0
  out "$function fails: the link is known all the same" '^Theoretical \(PCIe Gen5 x16\): ~64 GB/s$'
done
mkdir "$tmp/alone" && cp "$SIM" "$tmp/alone/sim"
"$tmp/alone/sim" -s 1M >"$tmp/out" 2>"$tmp/err"
status=$?
if grep -q 'unknown' "$tmp/out"; then unknown 'no NVML' '^Link: PCIe \(unknown\)$'; else skip 'no NVML' 'this machine has one'; fi

SIM_C2C=1 run -s 1M
unknown 'NVLink-C2C' '^Link: NVLink-C2C$'
SIM_INTEGRATED=1 run -s 1M
unknown 'integrated' '^Link: integrated \(shared memory\)$'
SIM_INTEGRATED=1 SIM_C2C=1 run -s 1M
unknown 'integrated with host page tables' '^Link: integrated \(shared memory\)$'
SIM_C2C=1 run -s 1M -f json
grep -q '"link":{"kind":"nvlink-c2c","gen":null,"width":null,"max_gen":null,"max_width":null,"limit_gbps":null}' "$tmp/out"
ok 'NVLink-C2C in JSON'
SIM_NAME='NVIDIA A100-SXM4-40GB MIG 1g.5gb' run -l
out 'MIG: uuid' 'MIG-00112233-'
SIM_NAME='NVIDIA A100-SXM4-40GB MIG 1g.5gb' SIM_NVML_FAIL=nvmlDeviceGetUtilizationRates run -s 1M
exits 'MIG' 0

# --min-efficiency
run -s 1M -t 80
exits 'above 80 % in H2D, below in D2H' 4
err 'GPU, direction, figure and threshold' '^dma_bandwidth: --min-efficiency 80: GPU 0 D2H pinned 46\.8 GB/s is 73\.0 % of 64 GB/s$'
is 'only what is below is named' "$(wc -l <"$tmp/err")" 1
run -s 1M -t 73
exits 'above 73 %' 0
run -s 1M -t 73.1 -f json
grep -q '"status":"below minimum"}$' "$tmp/out"
ok 'JSON says so'
SIM_NVML_FAIL=nvmlInit_v2 run -s 1M -t 1
exits 'no known limit is no pass' 1
err 'and says so' "GPU 0 H2D can't be judged, the link's limit is not known"
out 'after the measuring' '^ 1MB    D2H '
SIM_PIN_LIMIT=0 run -s 1M -t 1
exits 'no pinned rate is no pass' 1
run -s 1M -b -t 70
exits 'BiD against twice the limit' 0
run -s 1M -b -t 73.05
err 'BiD below' 'GPU 0 BiD pinned 93\.5 GB/s is 73\.0 % of 128 GB/s'
done_testing
