#!/bin/sh
# Several GPUs: in turn and at once, totals, one that fails alone.
. "$(dirname "$0")/lib.sh"
SIM_GPUS=3
export SIM_GPUS

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
is 'csv: rows' "$(wc -l <"$tmp/out")" 7
is 'csv: index' "$(awk -F, 'NR > 1 { print $2 }' "$tmp/out" | tr '\n' ' ')" '1 1 2 2 total total '
run -s 1M -d 0 -p
is 'one GPU has no totals' "$(grep -c '^GPU:' "$tmp/out")" 1
run -s 1M -d all -p -b -x -f json
if command -v jq >/dev/null; then
  jq -e '.settings.parallel and (.gpus | length) == 3 and (.totals.results | length) == 3 and
    ([.gpus[].results[0].pinned.median] | add) - .totals.results[0].pinned.median < 1e-6 and
    .totals.results[2].direction == "BiD" and .status == "ok"' "$tmp/out" >/dev/null
  ok 'json: totals are sums'
else
  skip 'json: totals are sums' 'no jq'
fi

# GPU 1 fails in the middle; the calls of several threads interleave, so any of them may be hit.
for n in 10 20 30 40 60 80; do
  SIM_FAIL=cudaMemcpy:$n run -s 1M 2M -i 3 -w 1 -d all -p -f csv
  exits "a copy fails ($n)" 1
  is 'all rows are there' "$(wc -l <"$tmp/out")" 17
  is 'the others are measured' "$(awk -F, '$2 != "total" && $NF == "ok" { print $2 }' "$tmp/out" | sort -u | wc -l | awk '{ print ($1 >= 2) }')" 1
  is 'one GPU has failed rows' "$(awk -F, '$2 != "total" && $NF != "ok" && NR > 1 { print $2 }' "$tmp/out" | sort -u | wc -l | tr -d ' ')" 1
done
SIM_FAIL=cudaSetDevice:2 run -s 1M -d all -p
exits 'one GPU that can not be set up' 1
is 'it does not hold up the others' "$(grep -c '^ 1MB    H2D     16\.95' "$tmp/out")" 2
out 'a total with a part missing is unknown' '^ 1MB    H2D              -           -'
SIM_FAIL=cudaGetDeviceProperties:2 run -s 1M -d all
exits 'one GPU without properties' 1
is 'the others are measured' "$(grep -c '^ 1MB    H2D     16\.95' "$tmp/out")" 2

"$SIM" -s 64K -i 100000 -d all -p -f json >"$tmp/out" 2>"$tmp/err" &
pid=$!
armed $pid
sleep 0.3
kill -INT $pid
wait $pid
status=$?
exits 'Ctrl-C while all are driven' 130
grep -q '"status":"interrupted"}$' "$tmp/out"
ok 'and the object is closed'
SIM_FAIL=cudaGetDeviceProperties:2 run -l
exits '--list with one that can not be looked at' 1
err 'it is named' '^dma_bandwidth: GPU 1: cudaGetDeviceProperties: cudaErrorUnknown'
is 'the others are listed' "$(grep -c 'PCIe Gen5' "$tmp/out")" 2
done_testing
