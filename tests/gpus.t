#!/bin/sh
# Several GPUs: in turn and at once, totals, one that fails alone.
. "$(dirname "$0")/lib.sh"
SIM_GPUS=3
export SIM_GPUS

# column NAME: a column of the last run's CSV, by its name; the names before "status" hold no commas. Status: up to a colon.
column() {
  awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { value = $at[name]; gsub(/"/, "", value); sub(/:.*/, "", value); print value }' "$tmp/out"
}

run -l
is 'all are listed' "$(wc -l <"$tmp/out")" 3
run -l -d 2,0
is 'those asked for are listed, in that order' "$(cut -c1 "$tmp/out" | tr -d '\n')" 20
out 'bus id as nvidia-smi writes it' '^2 .* GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}  00000000:38:00\.0  PCIe'
run -s 1M
out 'GPU 0 by default, named by index and bus id' '^GPU:  NVIDIA H100 80GB HBM3 \(simulated\) \(GPU 0, 00000000:18:00\.0\)$'
is 'one table' "$(grep -c '^GPU:' "$tmp/out")" 1
run -s 1M -d 2,0
is 'in the order asked for' "$(sed -n 's/^GPU:.*(GPU \([0-9]\).*/\1/p' "$tmp/out" | tr -d '\n')" 20
run -s 1M -d all
is 'all of them' "$(sed -n 's/^GPU:.*(GPU \([0-9]\).*/\1/p' "$tmp/out" | tr -d '\n')" 012
lacks 'no totals of GPUs measured in turn' 'at once'
run -s 1M -d 3
exits 'a GPU that is not there' 2
err 'and says so' '--device: GPU 3 is not there, 3 visible'

run -s 1M -d all -p
exits 'at once' 0
is 'tables: each, and the totals' "$(grep -c '^GPU:' "$tmp/out")" 4
out 'totals are named' '^GPU:  3 GPUs at once$'
out 'totals add up' '^ 1MB    H2D     50\.84 GB/s 164\.17 GB/s    3\.2x \+113\.33 GB/s$'
is 'no limit of totals' "$(grep -c Theoretical "$tmp/out")" 3
run -s 1M -d 1,2 -p -f csv
is 'csv: index' "$(column gpu_index | tr '\n' ' ')" '1 1 2 2 total total '
is 'csv: all are ok' "$(column status | sort -u)" ok
is 'csv: parallel' "$(column parallel | sort -u)" yes
run -s 1M -d 0 -p
is 'one GPU has no totals' "$(grep -c '^GPU:' "$tmp/out")" 1

# Totals: all bytes over the time of the GPU that took longest. 3 GPUs at 50, 10 and 20 GB/s: 3 x 10.
SIM_RATES='pinned.h2d=50;pinned.h2d=10;pinned.h2d=20' run -s 1M -d all -p -f csv
is 'the slowest rules' "$(column pinned_gbps | tr '\n' ' ' | cut -d' ' -f1,3,5,7)" '50 10 20 30'
SIM_RATES='pageable.d2h=8;pageable.d2h=2,pinned.h2d=5' SIM_JITTER=0.2 run -s 1M 64K -d 0,1 -p -b -i 7 -f json
if command -v jq >/dev/null; then
  # Recomputed from the samples alone.
  jq -e '. as $run | .status == "ok" and (.totals.results | length) == 6 and
    ([range(6) as $r | ("pageable", "pinned") as $k | $run.totals.results[$r] as $total |
      [$run.gpus[].results[$r]] as $rows | ($rows | map($total.bytes * (.[$k].samples | length)) | add) as $bytes |
      ($rows | map([.[$k].samples[] | $total.bytes / . / 1e9] | add) | max) as $seconds |
      ($total[$k].median / ($bytes / $seconds / 1e9) - 1) | . < 1e-4 and . > -1e-4] | length == 12 and all) and
    ([.totals.results[].direction] == ["H2D", "D2H", "BiD", "H2D", "D2H", "BiD"])' "$tmp/out" >/dev/null
  ok 'json: totals follow from the samples'
  jq -e '.settings.parallel == true and .gpus[1].index == 1 and .totals.results[0].ratio == null or
    (.totals.results | all((.pinned.median / .pageable.median / .ratio - 1) | . < 1e-4 and . > -1e-4))' "$tmp/out" >/dev/null
  ok "json: a total's ratio is its own"
  run -s 64K -d all -f json
  is 'json: no totals in turn' "$(jq -c '.totals, .settings.parallel' "$tmp/out" | tr '\n' ' ')" 'null false '
else
  skip 'json' 'no jq'
fi

# One GPU's link and PCI domain are its own.
SIM_LINK='5x16;4x8;5x16/3x4' run -s 1M -d all
is 'a link for each GPU' "$(sed -n 's/^Link: //p' "$tmp/out" | tr '\n' ',')" 'PCIe Gen5 x16,PCIe Gen4 x8,PCIe Gen3 x4,'
SIM_LINK='4x8;5x16' run -l -d 1,0
is '--list: a link for each GPU' "$(sed 's/.*  //' "$tmp/out" | tr '\n' ',')" 'PCIe Gen5 x16,PCIe Gen4 x8,'
SIM_DOMAIN=65537 run -s 1M -d 1
out 'the PCI domain' '\(GPU 1, 00010001:28:00\.0\)$'
out 'and NVML is asked by it' '^Link: PCIe Gen5 x16$'

# A GPU fails in the middle: it alone, all rows are there, and what is missing of the totals is unknown.
for n in 2 9 20 30; do
  SIM_FAIL=cudaMemcpy:$n@1 run -s 1M 2M -i 3 -w 1 -d all -p -f csv
  exits "copy $n of GPU 1 fails" 1
  is 'all rows are there' "$(column gpu_index | sort | uniq -c | awk '{ printf "%s x %s ", $1, $2 }')" \
    '4 x 0 4 x 1 4 x 2 4 x total '
  is 'the others are whole' "$(column status | sed -n '1,4p;9,12p' | sort -u)" ok
  is 'it is named' "$(sed 's/^\(dma_bandwidth: GPU .\).*/\1/' "$tmp/err" | sort -u)" 'dma_bandwidth: GPU 1'
  is "the totals lack what it lacks" "$(column pinned_gbps | sed -n '5,8p' | sed 's/..*/x/' | tr '\n' ,)" \
    "$(column pinned_gbps | sed -n '13,16p' | sed 's/..*/x/' | tr '\n' ,)"
done
SIM_FAIL=cudaMemcpy:2@1 run -s 1M -i 3 -w 1 -d all -p -f csv
is 'a context that is lost: nothing of that GPU' "$(column pageable_gbps | sed -n '3,4p' | tr -d '\n')" ''
SIM_FAIL=cudaStreamCreate:1@1 run -s 1M -d all -p
exits 'one GPU that can not be set up' 1
is 'it does not hold up the others' "$(grep -c '^ 1MB    H2D     16\.95' "$tmp/out")" 2
out 'a total with a part missing is unknown' '^ 1MB    H2D              -           -'
SIM_FAIL=cudaStreamCreate:1@0 run -s 1M -d all -p -f csv
# After Ctrl-C totals are of the copies that all have made; only the GPU that was broken off says so.
SIM_GPUS=2 SIM_DELAY=10,100 SIM_ORDER=$tmp/order launch -d all -p -s 1M -i 100 -w 0
await sh -c '[ "$(grep -c "gpu 1 copy-end h2d pageable" "$1")" -ge 3 ]' - "$tmp/order"
kill -INT "$pid"
reap
exits 'Ctrl-C where one GPU is slower' 130
out 'totals are of the copies that both made' '^ 1MB    H2D     33\.89 GB/s '
SIM_GPUS=2 SIM_DELAY=1,50 SIM_ORDER=$tmp/order launch -d all -s 64K -i 10 -w 0 -o "$tmp/r.txt"
await grep -q 'gpu 1 copy-end h2d pageable' "$tmp/order"
kill -INT "$pid"
reap
cmp -s "$tmp/out" "$tmp/r.txt"
ok 'a GPU that was done before the other was interrupted: file and standard output say the same'
is 'one note' "$(grep -c '^note: interrupted' "$tmp/r.txt")" 1
SIM_FAIL=cudaStreamCreate:all run -s 1M -d all -p -f json
exits 'all GPUs fail' 3
out 'then there are no totals' '"totals":null,"status":"failed","exit_status":3,"error":"GPU 0: cudaStreamCreate: '
SIM_FAIL=cudaStreamCreate:1@0 run -s 1M -d all -p -f csv
is 'it does not matter which one that is' "$(tail -n 2 "$tmp/out" | sed 's/.*,//')" 'failed: GPU 0 failed
failed: GPU 0 failed'
SIM_FAIL=cudaGetDeviceProperties:2 run -s 1M -d all
exits 'one GPU without properties' 1
is 'the others are measured' "$(grep -c '^ 1MB    H2D     16\.95' "$tmp/out")" 2

# A GPU that another process holds: the reason, and no table.
SIM_GPUS=1 SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable run -s 1M
exits 'a GPU in exclusive use' 3
is 'the reason, once' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: cudaSetDevice: cudaErrorDevicesUnavailable (CUDA-capable device(s) is/are busy or unavailable); the GPU is busy or in exclusive mode: see nvidia-smi for other processes'
lacks 'no table and no summary' 'Size|Summary|1MB'

SIM_DELAY=2 launch -s 64K -i 100000 -d all -p -f json
armed "$pid"
kill -INT "$pid"
wait "$pid"
status=$?
exits 'Ctrl-C while all are driven' 130
grep -q '"status":"interrupted",' "$tmp/out" && [ "$(wc -l <"$tmp/out")" = 1 ] && [ "$(tail -c 2 "$tmp/out")" = '}' ]
ok 'and the object is closed'
SIM_DELAY=2 SIM_ORDER=$tmp/order launch -s 64K -i 100000 -d 0,1
await grep -q copy-end "$tmp/order"
kill -INT "$pid"
reap
exits 'Ctrl-C in the first of two' 130
is 'the second gets a word' "$(sed -n '/^GPU: .*GPU 1,/,$p' "$tmp/out" | grep '^note')" 'note: interrupted before it was measured'
out 'and the first one too' '^note: interrupted: [01] of 2 rows are whole(, one holds fewer copies)?$'
SIM_FAIL=cudaGetDeviceProperties:2 run -l
exits '--list with one that can not be looked at' 1
err 'it is named' '^dma_bandwidth: GPU 1: cudaGetDeviceProperties: cudaErrorUnknown'
is 'the others are listed' "$(grep -c 'PCIe Gen5' "$tmp/out")" 2
out 'a dash for what is not known' '^1  GPU 1  -  -  PCIe \(unknown\)'

# Prose beside CSV says which GPU it is about.
SIM_GPUS=2 SIM_LINK='5x16;5x16/1x4' SIM_RATES='pageable.h2d=1;pageable.h2d=0.5,pageable.d2h=0.5,pinned.h2d=0.9,pinned.d2h=0.9' \
  run -s 1M -i 1 -w 0 -d all -f csv -x -T 1
is "CSV's notes" "$(grep -o '^dma_bandwidth: GPU .*: note: the link ran at Gen. x[0-9]*' "$tmp/err")" 'dma_bandwidth: GPU 1: note: the link ran at Gen1 x4'
is "CSV's --explain" "$(grep -o '^dma_bandwidth: GPU .*--explain:$' "$tmp/err" | tr '\n' ' ')" 'dma_bandwidth: GPU 0: --explain: dma_bandwidth: GPU 1: --explain: '

# --parallel without --device measures one GPU, and says so where there are more.
SIM_GPUS=2 run -p -s 64K -i 1 -w 0
exits '--parallel without --device' 0
is 'says so' "$(cat "$tmp/err")" 'dma_bandwidth: --parallel: only GPU 0 is measured, choose more with --device'
lacks 'and has no totals' 'at once'
for arguments in '-d 0' '-d all' '-d 0,1'; do
  # shellcheck disable=SC2086
  SIM_GPUS=2 run -p $arguments -s 64K -i 1 -w 0
  no_err "--parallel $arguments: nothing to say"
done
SIM_GPUS=1 run -p -s 64K -i 1 -w 0
no_err '--parallel on one GPU: nothing to say'
done_testing
