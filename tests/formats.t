#!/bin/sh
# markdown, csv and json: golden outputs, odd names, failures, locale.
. "$(dirname "$0")/lib.sh"
odd='Odd "name" \back|pipe, <b>&amp; *a* _b_ `c` [d] #1 ~x é 显卡'
tab=$(printf 'tab\there')

# mask: what differs from run to run and machine to machine.
mask() {
  sed -e 's/"host":"[^"]*"/"host":"HOST"/; s/"time":"[^"]*"/"time":"TIME"/' \
    -e 's/"cuda_runtime":"[^"]*","cuda_driver":"[^"]*"/"cuda_runtime":"RUNTIME","cuda_driver":"DRIVER"/' \
    -e "s/^$(uname -n),/HOST,/"
}
# golden NAME: the last run's output is that of tests/golden/NAME.
golden() {
  mask <"$tmp/out" >"$tmp/masked"
  [ -n "${GOLDEN_WRITE:-}" ] && cp "$tmp/masked" "$here/golden/$1"
  cmp "$here/golden/$1" "$tmp/masked" >"$tmp/cmp" 2>&1
  ok "golden: $1"
}
SIM_RATES='pageable.h2d=8,pageable.d2h=16,pinned.h2d=50,pinned.d2h=50,pageable.h2d@65536=4'
export SIM_RATES
for format in text markdown csv json; do
  run -s 64K 16M 32M -i 2 -w 1 -f $format
  golden "plain.$format"
  SIM_NAME=$odd run -s 64K -i 2 -w 1 -f $format
  golden "odd.$format"
  SIM_PIN_LIMIT=100000 run -s 64K 1M -i 2 -w 1 -f $format -u
  golden "failing.$format"
  SIM_GPUS=2 run -s 64K -i 2 -w 1 -f $format -d all -p -b -m register
  golden "parallel.$format"
done

SIM_NAME=$(printf 'bad \377 cut \303( long \360\237') run -s 64K -i 1 -f json -c "$tmp/chart.svg"
out 'what is not UTF-8 is replaced' '"name":"bad \? cut \?\( long \?\? \(simulated\)"'
if command -v xmllint >/dev/null; then
  xmllint --noout "$tmp/chart.svg" 2>"$tmp/err"
  ok 'so that the chart is well-formed'
fi

if command -v jq >/dev/null; then
  SIM_NAME="$odd$tab" run -s 64K -i 1 -f json
  is 'json: the name comes back as it was' "$(jq -r '.gpus[0].name' "$tmp/out")" "$odd$tab (simulated)"
  run -s 64K 1M -i 3 -w 2 -f json
  is 'json: keys' "$(jq -rc 'keys_unsorted | join(" ")' "$tmp/out")" \
    'tool version host time cuda_runtime cuda_driver settings gpus status'
  is 'json: keys of a GPU' "$(jq -rc '.gpus[0] | keys_unsorted | join(" ")' "$tmp/out")" \
    'index name uuid bus_id link results summary notes'
  is 'json: keys of a link' "$(jq -rc '.gpus[0].link | keys_unsorted | join(" ")' "$tmp/out")" \
    'kind gen width max_gen max_width limit_gbps'
  is 'json: keys of a result' "$(jq -rc '.gpus[0].results[0] | keys_unsorted | join(" ")' "$tmp/out")" \
    'bytes direction pageable pinned ratio delta status'
  is 'json: keys of a kind' "$(jq -rc '.gpus[0].results[0].pinned | keys_unsorted | join(" ")' "$tmp/out")" \
    'median mean min max stddev samples'
  is 'json: settings' "$(jq -rc '.settings' "$tmp/out")" \
    '{"iters":3,"warmup":2,"pin":"malloc-host","untouched":false,"parallel":false}'
  is 'json: all samples' "$(jq -c '[.gpus[].results[] | .pageable, .pinned | .samples | length] | unique' "$tmp/out")" '[3]'
  is 'json: one line' "$(wc -l <"$tmp/out")" 1
  jq -e '.time | test("^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z$")' "$tmp/out" >/dev/null
  ok 'json: time in UTC'
else
  skip 'json through jq' 'no jq'
fi

SIM_NAME=$odd run -s 64K 1M -f csv -u
is 'csv: header' "$(head -n 1 "$tmp/out")" "host,gpu_index,gpu_name,bus_id,link,size_bytes,direction,pageable_gbps,\
pinned_gbps,ratio,delta_gbps,pageable_mean_gbps,pageable_min_gbps,pageable_max_gbps,pageable_stddev_gbps,\
pinned_mean_gbps,pinned_min_gbps,pinned_max_gbps,pinned_stddev_gbps,status"
if command -v python3 >/dev/null; then
  SIM_PIN_LIMIT=100000 SIM_NAME=$odd run -s 64K 1M -f csv -u
  python3 - "$tmp/out" "$odd (simulated)" <<'P'
import csv, sys
rows = list(csv.reader(open(sys.argv[1], encoding="utf-8", newline="")))
assert len(rows) == 5 and {len(row) for row in rows} == {20}, rows
assert all(row[2] == sys.argv[2] for row in rows[1:]), rows
assert [row[-1].split(":")[0].split(";")[0] for row in rows[1:]] == ["ok", "ok", "failed", "failed"]
P
  ok 'csv: same number of fields in every row, the name comes back as it was'
else
  skip 'csv through a reader' 'no python3'
fi

# Whatever the locale. A German one is made here if the tools for it are there.
if command -v localedef >/dev/null && localedef -i de_DE -f UTF-8 "$tmp/de_DE.UTF-8" 2>/dev/null; then
  for format in text markdown csv json; do
    LOCPATH=$tmp LC_ALL=de_DE.UTF-8 run -s 0.0001 16M 32M -i 2 -w 1 -f $format
    mask <"$tmp/out" >"$tmp/de"
    run -s 0.0001 16M 32M -i 2 -w 1 -f $format
    mask <"$tmp/out" | sed 's/TIME/TIME/' | cmp -s - "$tmp/de"
    ok "$format: the same in a German locale"
  done
  LOCPATH=$tmp LC_ALL=de_DE.UTF-8 run -s 0,5 -f csv -i 1 -w 0
  exits 'a comma is no decimal point' 2
else
  skip 'German locale' 'localedef can not make one'
fi
done_testing
