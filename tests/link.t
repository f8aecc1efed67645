#!/bin/sh
# The link, its limit and what is made of it; absent and lying NVML; kinds of GPU.
. "$(dirname "$0")/lib.sh"

# link LINK NAME LIMIT PERCENT: SIM_LINK gives this Link line, limit and pinned efficiency.
link() {
  SIM_LINK=$1 SIM_RATES='pinned.h2d=0.21,pageable.h2d=0.1,pinned.d2h=0.21,pageable.d2h=0.1' run -s 1M
  out "SIM_LINK=$1: Link line" "^Link: $2\$"
  out "SIM_LINK=$1: limit" "^Theoretical \($2\): ~$3 GB/s\$"
  out "SIM_LINK=$1: efficiency" "^Pinned efficiency:   $4%\$"
}
# The efficiency of 0.21 GB/s, by hand.
link 1x16 'PCIe Gen1 x16' 4 5
link 2x16 'PCIe Gen2 x16' 8 3
link 3x16 'PCIe Gen3 x16' 16 1
link 6x16 'PCIe Gen6 x16' 128 0
link 3x8 'PCIe Gen3 x8' 8 3
link 3x1 'PCIe Gen3 x1' 1 21
link 1x1 'PCIe Gen1 x1' '0\.25' 84
link 2x2 'PCIe Gen2 x2' 1 21
link 1x1,4x2 'PCIe Gen4 x2' 4 5
run -s 1M
out 'Gen5 x16: limit' '^Theoretical \(PCIe Gen5 x16\): ~64 GB/s$'
out 'Gen5 x16: 54.72 of 64' '^Pinned efficiency:   86%$'
out 'Gen5 x16: 16.95 of 64' '^Pageable efficiency: 26%$'
SIM_LINK=6x16 run -s 1M
out 'Gen6 x16: 54.72 of 128' '^Pinned efficiency:   43%$'

SIM_LINK=5x16/4x16 SIM_RATES='pinned.h2d=20,pinned.d2h=20' run -s 1M
out 'a link below its maximum gets a note' '^note: the link ran at Gen4 x16 under load, GPU and slot can do Gen5 x16: '
out 'efficiency is of the link as it is: 20 of 32' '^Pinned efficiency:   62%$'
run -s 1M
lacks 'a link at its maximum gets none' '^note:'

# A link that falls back when it is idle: the fastest state seen counts, also where the maximum is not known.
for max in '' nvmlDeviceGetMaxPcieLinkGeneration nvmlDeviceGetMaxPcieLinkWidth; do
  for link in 5x16~1x16 5x16~5x1; do
    SIM_NVML_FAIL=$max SIM_LINK=$link run -s 1M 2M
    out "SIM_LINK=$link ${max:-maximum known}" '^Link: PCIe Gen5 x16$'
    out "SIM_LINK=$link ${max:-maximum known}: one limit" '^Theoretical \(PCIe Gen5 x16\): ~64 GB/s$'
    lacks "SIM_LINK=$link ${max:-maximum known}: no note" '^note:'
  done
done
SIM_LINK=5x16/4x8 SIM_RATES='pinned.h2d=14,pinned.d2h=14,pageable.h2d=5,pageable.d2h=5' run -s 1M -i 1 -w 0 -f json
out 'JSON: the limit is that of the link as it is' '"link":\{"kind":"pcie","gen":4,"width":8,"max_gen":5,"max_width":16,"limit_gbps":16\}'
# Copies that wake it: one where it is at its best at once, ten at the most.
for case in 5x16:1 5x16/1x16:10 1x16,1x16,5x16:1; do
  rm -f "$tmp/order"
  SIM_ORDER=$tmp/order SIM_LINK=${case%:*} run -s 1M -i 1 -w 0 -n
  is "copies that wake ${case%:*}, and the cell's" "$(grep -c 'copy-begin h2d pinned' "$tmp/order")" $((${case#*:} + 1))
done
# One that wakes up: one link in one report, though the maximum is not known.
SIM_NVML_FAIL=nvmlDeviceGetMaxPcieLinkGeneration SIM_LINK=1x16,5x16 run -s 16M
out 'a link that wakes up' '^Link: PCIe Gen5 x16$'
out 'is the same everywhere' '^Theoretical \(PCIe Gen5 x16\): ~64 GB/s$'
SIM_LINK=5x16/4x8 run -l
out '--list: maximum and now' 'PCIe Gen5 x16 \(now PCIe Gen4 x8\)$'
SIM_LINK=4x8 run -l
out '--list: one link' '00000000:18:00\.0  PCIe Gen4 x8$'

# A limit that rates exceed is no limit: no efficiency, one note for all of it. 54.72 over 1 exceeds by most.
SIM_LINK=3x1 run -s 1M 2M 16M
lacks 'a limit that rates exceed: no efficiency' 'Theoretical|efficiency'
is 'one note' "$(grep -c '^note:' "$tmp/out")" 1
out 'which names the rate and the limit' '^note: (1MB|2MB|16MB) H2D at 54\.72 GB/s is more than the ~1 GB/s of PCIe Gen3 x1: the link is not what NVML says, so nothing is compared with it$'
SIM_LINK=3x1 run -s 1M -f json
grep -q '"limit_gbps":null' "$tmp/out" && ! grep -q '_percent":[0-9]' "$tmp/out"
ok 'JSON: no limit and no share of it' 'null'
SIM_LINK=1x8,1x16 run -s 16M
lacks 'no 1368 %' '%'
SIM_LINK=5x16/4x8 run -s 1M
lacks 'a link that is not what NVML says is not called below its maximum' 'the link ran at'
SIM_LINK=5x16 SIM_RATES='pinned.h2d=63.99' run -s 1M
out 'as fast as the limit is not above it' '^Pinned efficiency:   100%$'
SIM_LINK=5x16 SIM_RATES='pageable.d2h=64.2' run -s 1M
out 'pageable rates and D2H count too' '^note: 1MB D2H at 64\.20 GB/s is more than the ~64 GB/s of PCIe Gen5 x16: '
SIM_RATES='pinned.h2d=63,pinned.d2h=63' run -s 1M -b
out 'BiD has twice the limit' '^Theoretical \(2 x PCIe Gen5 x16\): ~128 GB/s$'
lacks 'and is not above it' '^note: 1MB BiD at'

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
# Why the link is unknown, in one note; and that alone.
for case in 'nvmlInit_v2:18|nvmlInit_v2 answers 18 (Driver/library version mismatch)' \
  'nvmlDeviceGetHandleByPciBusId_v2:6|nvmlDeviceGetHandleByPciBusId_v2 answers 6 (Not Found)' \
  'nvmlDeviceGetCurrPcieLinkGeneration|nvmlDeviceGetCurrPcieLinkGeneration answers 3 (Not Supported)'; do
  SIM_NVML_FAIL=${case%|*} run -s 1M 2M
  is "${case%|*}: the note" "$(grep '^note:' "$tmp/out")" "note: the link is unknown: ${case#*|}"
done
mkdir "$tmp/alone" && cp "$SIM" "$tmp/alone/sim"
if ldconfig -p 2>/dev/null | grep -q 'libnvidia-ml\.so\.1'; then
  skip 'no NVML' 'this machine has one'
else
  "$tmp/alone/sim" -s 1M >"$tmp/out" 2>"$tmp/err"
  status=$?
  unknown 'no NVML' '^Link: PCIe \(unknown\)$'
  is 'no NVML: the note' "$(grep '^note:' "$tmp/out")" "note: the link is unknown: libnvidia-ml.so.1 (NVML) can't be loaded"
fi

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

SIM_CC=1 run -s 1M
is 'confidential computing gets a note' "$(grep '^note:' "$tmp/out")" \
  'note: confidential computing is on: the driver encrypts what it copies, so pinned memory is slow too'
SIM_CC=1 SIM_NVML_FAIL=nvmlSystemGetConfComputeState run -s 1M
lacks 'none where NVML does not tell' '^note:'

# --min-efficiency: against the best that GPU and slot can do.
run -s 1M -t 80
exits 'above 80 % in H2D, below in D2H' 4
is 'GPU, direction, figure and threshold' "$(cat "$tmp/err")" 'dma_bandwidth: --min-efficiency 80: GPU 0 D2H pinned 46.8 GB/s is 73.05 % of 64 GB/s'
run -s 1M -t 73
exits 'above 73 %' 0
no_err 'above 73 %'
run -s 1M -t 73.1 -f json
exits 'below 73.1 %' 4
grep -q '"status":"below minimum"' "$tmp/out"
ok 'JSON says so'
SIM_RATES='pinned.h2d=32,pinned.d2h=32' run -s 1M -t 50
exits 'half of the limit is 50 %' 0
SIM_RATES='pinned.h2d=32,pinned.d2h=32' run -s 32000000B -i 1 -w 0 -t 50 -f json
exits 'exactly half, 32,000,000 bytes in 1 ms' 0
out 'exactly half: the figure' '"pinned_percent":50,'
SIM_RATES='pinned.h2d=31.9,pinned.d2h=32' run -s 1M -t 50
exits 'a little less is not' 4
SIM_RATES='pinned.h2d=63.99,pinned.d2h=63.99' run -s 1M -t 99.9
exits '99.98 % of 64' 0
SIM_LINK=5x16/4x8 SIM_RATES='pinned.h2d=14,pinned.d2h=14' run -s 64M -t 80
exits 'half a link, twice over' 4
is 'both directions' "$(cat "$tmp/err")" 'dma_bandwidth: --min-efficiency 80: GPU 0 H2D pinned 14.0 GB/s is 21.87 % of 64 GB/s
dma_bandwidth: --min-efficiency 80: GPU 0 D2H pinned 14.0 GB/s is 21.87 % of 64 GB/s'
SIM_LINK=5x16/4x8 SIM_RATES='pageable.h2d=5,pinned.h2d=14,pageable.d2h=5,pinned.d2h=14' run -s 64M -t 80
exits 'half a link, slow pageable copies' 4
out 'the report compares with the link as it is: 14 of 16' '^Pinned efficiency:   8[78]%$'
SIM_LINK=5x16/5x8 SIM_RATES='pinned.h2d=28,pinned.d2h=28' run -s 64M -t 80
exits 'half a link' 4
# Where NVML does not tell what GPU and slot can do, a link that may be half of it is not judged.
for call in nvmlDeviceGetMaxPcieLinkWidth nvmlDeviceGetMaxPcieLinkGeneration; do
  SIM_NVML_FAIL=$call SIM_LINK=5x16/5x8 SIM_RATES='pinned.h2d=28,pinned.d2h=28' run -s 64M -t 80
  exits "$call fails" 1
  is "$call fails: it is told" "$(cat "$tmp/err")" "dma_bandwidth: --min-efficiency 80: GPU 0 H2D can't be judged, what GPU and slot can do is not known
dma_bandwidth: --min-efficiency 80: GPU 0 D2H can't be judged, what GPU and slot can do is not known"
done
# What is a little less is shown as less.
slow=pageable.h2d=0.2,pageable.d2h=0.2,pinned.h2d=0.45
SIM_LINK=1x2 SIM_RATES=$slow,pinned.d2h=0.4 run -s 1M -t 80
exits 'the slowest link, Gen1 x2, carries 0.5 GB/s' 0
SIM_LINK=1x2 SIM_RATES=$slow,pinned.d2h=0.39 run -s 1M -t 80
is 'and a little less is too little' "$(cat "$tmp/err")" 'dma_bandwidth: --min-efficiency 80: GPU 0 D2H pinned 0.4 GB/s is 78.00 % of 0.5 GB/s'
SIM_RATES='pinned.h2d=51.1999,pinned.d2h=60' run -s 64M -t 80
err 'never "80.00 % is below 80"' 'GPU 0 H2D pinned 51\.2 GB/s is 79\.9998[0-9]* % of 64 GB/s$'
# A link that nothing was copied over may be idle: nothing is said of it.
SIM_LINK=5x16/1x16 run -l -f json
lacks '--list' 'under load'
SIM_LINK=5x16/1x16 SIM_MEM=1000 run -s 1M -i 1 -w 0
lacks 'no buffer' 'under load'
SIM_LINK=7x16 run -s 1M -i 1 -w 0
out 'what NVML says that can not be' '^note: the link is unknown: NVML tells of PCIe Gen7 x16$'
SIM_RATES='pinned.h2d=55.4,pinned.d2h=55.3,pinned.h2d@33554432=48,pinned.d2h@33554432=48' run -s 64M -b -t 80
exits 'BiD is not judged' 0
no_err 'BiD is not judged'
SIM_NVML_FAIL=nvmlInit_v2 run -s 1M -t 1
exits 'no known limit is no pass' 1
err 'and says so' "GPU 0 H2D can't be judged, what GPU and slot can do is not known"
out 'after the measuring' '^ 1MB    D2H '
SIM_LINK=3x1 run -s 1M -t 1
exits 'a limit that rates exceed is no pass' 1
SIM_C2C=1 run -s 1M -t 1
exits 'NVLink-C2C has no limit' 1
SIM_PIN_LIMIT=0 run -s 1M -t 1
exits 'no pinned rate is no pass' 1
err 'and says so' "GPU 0 H2D can't be judged, the pinned rate is not known"
SIM_PIN_LIMIT=200000 run -s 64K 1M -t 80
exits 'failed and below the minimum at once' 1
SIM_GPUS=2 SIM_RATES='pinned.h2d=60,pinned.d2h=60;pinned.h2d=60,pinned.d2h=20' run -s 1M -t 80 -d all
exits 'one of two GPUs' 4
is 'is named' "$(cat "$tmp/err")" 'dma_bandwidth: --min-efficiency 80: GPU 1 D2H pinned 20.0 GB/s is 31.25 % of 64 GB/s'
done_testing
