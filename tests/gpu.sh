#!/bin/sh
# make check-gpu: what needs a GPU, in about a minute. TAP, as the other tests.
SIM=${SIM:-$(dirname "$0")/../dma_bandwidth}
. "$(dirname "$0")/lib.sh"

run -l
if [ "$status" = 3 ]; then
  skip 'all' "$(cat "$tmp/err")"
  done_testing
  exit
fi
exits 'a GPU is found' 0
if command -v nvidia-smi >/dev/null; then
  uuid=$(grep -oE -m 1 '(GPU|MIG)-[0-9a-f-]{36}' "$tmp/out" | head -n 1)
  bus=$(grep -oE -m 1 '[0-9A-F]{8}:[0-9A-F]{2}:[0-9A-F]{2}\.0' "$tmp/out" | head -n 1)
  is "bus id is nvidia-smi's for this uuid" "$bus" \
    "$(nvidia-smi --query-gpu=uuid,pci.bus_id --format=csv,noheader | sed -n "s/^$uuid, //p")"
else
  skip "bus id is nvidia-smi's" 'no nvidia-smi'
fi
# field NAME DIRECTION: of the csv that the last run left.
field() {
  awk -F, -v name="$1" -v d="$2" 'NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
    $column["direction"] == d { print $column[name] }' "$tmp/out"
}
# more NAME A B
more() {
  awk "BEGIN { exit !($2 > $3) }"
  ok "$1: $2 > $3"
}
run -s 256M -f csv
exits 'measured, data verified' 0
cp "$tmp/out" "$tmp/csv"
more 'pinned is faster than pageable, H2D' "$(field pinned_gbps H2D)" "$(field pageable_gbps H2D)"
more 'pinned is faster than pageable, D2H' "$(field pinned_gbps D2H)" "$(field pageable_gbps D2H)"
written=$(field pageable_gbps H2D)
pinned=$(field pinned_gbps H2D)
run -s 256M -f csv -u
more 'a written buffer is slower than an untouched one' "$(field pageable_gbps H2D)" "$written"
run -s 256M -f json
exits 'json' 0
grep -Eq '"link":\{"kind":"(pcie","gen":[1-6],"width":[0-9]+,.*"limit_gbps":[0-9.]+|nvlink-c2c|integrated)' "$tmp/out"
ok 'link and limit are known'
for format in json text markdown; do
  run -s 256M -f $format
  got=$(case $format in
json) sed -n 's/.*"H2D","pageable":{[^}]*},"pinned":{"median":\([0-9.]*\).*/\1/p' "$tmp/out" ;;
    text) awk '$2 == "H2D" { print $5; exit }' "$tmp/out" ;;
    markdown) awk -F'|' '$3 == " H2D " { print $5 + 0; exit }' "$tmp/out" ;;
    esac)
  awk "BEGIN { exit !($got > 0.95 * $pinned && $got < 1.05 * $pinned) }"
  ok "$format agrees with csv: $got, $pinned GB/s"
done
run -s 256M -b
exits 'both directions at once' 0
for method in register huge write-combined staged; do
  run -s 64M -b -m $method
  exits "--pin $method" 0
done
run -s 64M -x
out '--explain' '^[0-9.]+ GB/s for memcpy by one core'
out 'what helps' '^staged by 1 thread +[0-9.]+ +[0-9.]+'
lacks 'all of it is measured' 'could not measure'
run -s 1K 4097B 1000001B 33M -b -i 2
exits 'odd sizes, data verified' 0
run -s 1K 4097B 1000001B 33M -b -i 2 -m staged -T 3
exits 'odd sizes, staged, data verified' 0
run -s 1M 32M -b -u -i 2
exits 'untouched, data verified' 0
run -s 64K -d 127
exits 'a GPU that is not there' 2
done_testing
