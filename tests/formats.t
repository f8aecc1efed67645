#!/bin/sh
# All formats: golden outputs, odd names, locale, numbers.
. "$(dirname "$0")/lib.sh"
formats='text markdown csv json svg'
odd='Odd "name" \back|pipe, <b>&amp; *a* _b_ `c` [d] #1 ~x é 显卡'

# golden NAME: the last run's output is that of tests/golden/NAME. GOLDEN_WRITE=1 writes it instead.
golden() {
  mask <"$tmp/out" >"$tmp/masked"
  [ -z "${GOLDEN_WRITE:-}" ] || cp "$tmp/masked" "$here/golden/$1"
  diff "$here/golden/$1" "$tmp/masked" >"$tmp/err" 2>&1
  ok "golden: $1"
}
SIM_RATES='pageable.h2d=8,pageable.d2h=16,pinned.h2d=50,pinned.d2h=50,pageable.h2d@65536=4'
export SIM_RATES
for format in $formats; do
  run -s 64K 16M 32M -i 2 -w 1 -f "$format"
  golden "plain.$format"
  SIM_NAME=$odd run -s 64K -i 2 -w 1 -f "$format"
  golden "odd.$format"
  SIM_PIN_LIMIT=100000 SIM_COPY='pageable.d2h:none' run -s 64K 1M -i 2 -w 1 -f "$format" -u
  golden "failing.$format"
  SIM_GPUS=2 run -s 64K -i 2 -w 1 -f "$format" -d all -p -b -m register
  golden "parallel.$format"
  SIM_NVML_FAIL=nvmlInit_v2 SIM_JITTER=0.3 run -s 64K 16M -i 4 -w 1 -b -m write-combined -f "$format"
  golden "unknown.$format"
done

# --explain. What takes real time is masked: memcpy, pinning, and D2H into memory that was just pinned.
for format in text markdown json svg; do
  SIM_STAGE=5 run -s 16M -i 1 -w 0 -x -T 2 -f "$format"
  if grep -q 'into small ones' "$tmp/out" "$tmp/err"; then
    skip "golden: explain.$format" 'the kernel gives no 2 MB pages'
    continue
  fi
  sed -E -e '/transparent huge pages are set to/d; s/"page_policy":[^,]*/"page_policy":POLICY/' \
    -e 's/[0-9.]+ (GB\/s for memcpy by one core).*/N \1/; s/[0-9.]+ (s per GB for cuda[^:]*).*/N \1/; s/ [0-9]+\.[0-9]{3} s/ N s/' \
    -e '/pinned: /s/ +[0-9.]+( \|)?( +16MB)/ NEW\1\2/; s/<rect class="pinned" x="517\.3" (y="[0-9.]*").*/NEW \1/' \
    -e 's/("(memcpy_gbps|[a-z_]*per_gb|[a-z_]*after_copies|cost_s)":)[^,}]*/\1N/g' \
    -e 's/("method":"pinned: [^}]*"d2h_fresh_gbps":)[^,]*/\1NEW/g' "$tmp/out" >"$tmp/shown"
  mv "$tmp/shown" "$tmp/out"
  golden "explain.$format"
done

# Names from outside, whatever bytes they hold.
cat >"$tmp/names.py" <<'P'
"""names.py FOLDER...: in each, the reports name.* and list, the output of --list, hold the name in the file wanted as far
as it is UTF-8 and no control character, and nothing that would disturb a reader or a terminal. Prints what is wrong."""
import csv, json, sys, unicodedata
import xml.etree.ElementTree as xml

def clean(data, what):
    text = data.decode("utf-8")
    bad = [c for c in text if unicodedata.category(c) == "Cc" and c != "\n"]
    assert not bad, (what, bad)
    return text

def bare(text):
    return text.replace("?", "")

def check(folder):
    wanted = open(folder + "/wanted", "rb").read().decode("utf-8", "ignore")
    wanted = bare("".join(c for c in wanted if unicodedata.category(c) != "Cc" and ord(c) & 0xFFFE != 0xFFFE))
    files = ("name.txt", "name.md", "name.csv", "name.json", "name.svg", "list")
    text, markdown, table, run, chart, listing = (clean(open(folder + "/" + f, "rb").read(), f) for f in files)
    name = json.loads(run)["gpus"][0]["name"]
    assert bare(name) == wanted, (name, wanted)
    assert ("?" in name) == (len(name.encode()) != len(bare(name).encode()))
    rows = list(csv.reader(open(folder + "/name.csv", encoding="utf-8", newline="")))
    assert len(rows) == 3 and len({len(row) for row in rows}) == 1, rows
    assert {row[rows[0].index("gpu_name")] for row in rows[1:]} == {name}, rows
    assert "GPU:  " + name + "\n" in text
    assert listing.startswith("0  " + name + "  GPU-")
    heading = markdown.split("\n")[0]
    assert heading.startswith("### ") and "<b" not in heading.replace("\\<", ""), heading
    title = [e.text for e in xml.fromstring(chart).iter() if e.get("class") == "title"][0]
    assert title == (name if len(name) <= 36 else name[:36] + "…"), (title, name)

for folder in sys.argv[1:]:
    try:
        check(folder)
    except Exception as why:
        print(open(folder + "/wanted", "rb").read(), repr(why))
P
long=$(printf 'NVIDIA %0139d' 0)
if command -v python3 >/dev/null; then
  n=0
  for bytes in 'A100' 'a"b' 'a,b' 'a|b' 'a\\b' "a'b" '<b>&amp;</b>' '<!--' ']]>' '*a*_b_`c`[d](e)#~' '%%s%%n%%d' '\303\251 \346\230\276' \
    '\033[31mred' '\033]0;title\007' 'a\nb' 'a\rb' 'a\tb' '\001\002\036\037' 'a\177b' '\302\200\302\205\302\233[2J\302\237' \
    '\233[2J' '\355\240\200' 'a\377b' '\376\377' 'cut \303' '\303(' '\360\237\230' '\360\237\230\200' '\300\257' \
    '\340\200\257' '\360\200\200\257' '\301\277' '\364\220\200\200' '\370\210\200\200\200' '\200' '\357\277\276' '\357\277\277' "$long" \
    'x\346\230\276xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx'; do
    n=$((n + 1))
    at=$tmp/name$n
    mkdir "$at"
    # shellcheck disable=SC2059
    name=$(printf "$bytes")
    printf %s "$name (simulated)" >"$at/wanted" # the simulator says so of a name
    SIM_NAME=$name run -l
    cp "$tmp/out" "$at/list"
    SIM_NAME=$name run -s 64K -i 1 -w 0 -o "$at/name.txt" -o "$at/name.md" -o "$at/name.csv" -o "$at/name.json" -o "$at/name.svg"
    exits "name: $(printf %.30s "$bytes")" 0
  done
  is 'odd names: nothing is wrong in any format' "$(python3 "$tmp/names.py" "$tmp"/name[0-9]* 2>&1)" ''
  ! command -v xmllint >/dev/null || xmllint --noout "$tmp"/name[0-9]*/name.svg 2>"$tmp/err"
  ok 'odd names: every picture is well-formed'
  ! command -v jq >/dev/null || jq -e .gpus "$tmp"/name[0-9]*/name.json >/dev/null 2>"$tmp/err"
  ok 'odd names: every object is'
else
  skip 'odd names' 'no python3'
fi
SIM_NAME=$(printf 'bad \377 cut \303( long \360\237 \033[2J') run -s 64K -i 1 -f json
out 'what is not UTF-8 or a control character is replaced' '"name":"bad \? cut \?\( long \?\? \?\[2J \(simulated\)"'
SIM_NAME=$(printf 'a\nb') run -s 64K -i 1
is 'no line more with a newline in the name' "$(sed -n 3p "$tmp/out")" 'GPU:  a?b (simulated)'

# Host names likewise: as root, or where a user may have a name space.
apart='unshare -u'
[ "$(id -u)" = 0 ] || apart='unshare -Uru'
for host in 'caf\351' '\033[2Jx' 'a"b,c' 'x\302\233y'; do
  # shellcheck disable=SC2016,SC2059,SC2086
  if $apart sh -c 'name=$(printf "$1"); printf "$1" >/proc/sys/kernel/hostname && [ "$(uname -n)" = "$name" ]' - "$host" 2>/dev/null &&
    command -v python3 >/dev/null; then
    rm -f "$tmp"/host.*
    $apart sh -c 'printf "$1" >/proc/sys/kernel/hostname; shift; exec "$@"' - "$host" "$SIM" -s 64K -i 1 -w 0 \
      -o "$tmp/host.csv" -o "$tmp/host.json" -o "$tmp/host.svg" -o "$tmp/host.txt" -o "$tmp/host.md" >"$tmp/out" 2>"$tmp/err"
    # shellcheck disable=SC2059
    NAME=$(printf "$host") python3 - "$tmp/host" >"$tmp/err" 2>&1 <<'P'
import csv, json, os, sys, unicodedata
want = os.environb[b"NAME"].decode("utf-8", "ignore")
want = "".join(c for c in want if unicodedata.category(c) != "Cc").replace("?", "")
for suffix in (".txt", ".md", ".csv", ".json", ".svg"):
    text = open(sys.argv[1] + suffix, "rb").read().decode("utf-8")
    assert all(c == "\n" or unicodedata.category(c) != "Cc" for c in text), suffix
host = json.load(open(sys.argv[1] + ".json", encoding="utf-8"))["host"]
assert host.replace("?", "") == want, (host, want)
rows = list(csv.reader(open(sys.argv[1] + ".csv", encoding="utf-8", newline="")))
assert [row[rows[0].index("host")] for row in rows[1:]] == [host, host]
P
    ok "host name: $host"
  else
    skip "host name: $host" 'no host name of its own can be had here, or no python3'
  fi
done

# JSON: its keys stand in tests/schema.json (schema.t).
if command -v jq >/dev/null; then
  run -s 64K 1M -i 3 -w 2 -f json
  is 'json: settings' "$(jq -rc '.settings | del(.threads)' "$tmp/out")" \
    '{"sizes":[65536,1048576],"iters":3,"warmup":2,"pin":"malloc-host","untouched":false,"parallel":false,"bidir":false,"verify":true,"affinity":true}'
  run -s 64K -i 1 -w 0 -f json -u -b -n -a -m register -T 7 -x
  is 'json: the other settings' "$(jq -rc '.settings' "$tmp/out")" \
    '{"sizes":[65536],"iters":1,"warmup":0,"pin":"register","threads":7,"untouched":true,"parallel":false,"bidir":true,"verify":false,"affinity":false}'
  is 'json: one line' "$(wc -l <"$tmp/out")" 1
  is 'json: host' "$(jq -r .host "$tmp/out")" "$(uname -n)"
  run -s 64K -i 1 -w 0 -f json
  now=$(date -u +%s)
  jq -e --argjson now "$now" '(.time | fromdateiso8601 - $now | fabs) < 60' "$tmp/out" >/dev/null
  ok 'json: the time is now, in UTC'
  begun=$(date +%s)
  SIM_DELAY=100 run -s 64K -i 3 -w 0 -f json
  jq -e --argjson most $(($(date +%s) - begun + 1)) '.duration_s >= 1.2 and .duration_s <= $most' "$tmp/out" >/dev/null
  ok 'json: the duration is the whole run'
  is 'json: a GPU alone has no totals' "$(jq -c .totals "$tmp/out")" null
  SIM_PIN_LIMIT=0 run -s 64K -i 1 -w 0 -f json
  is 'json: what is unknown is null' "$(jq -c '.gpus[0].results[0] | .pinned, .ratio, .delta' "$tmp/out" | tr '\n' ' ')" 'null null null '
  is 'json: one sample has no deviation' "$(jq -c '.gpus[0].results[0].pageable | .stddev' "$tmp/out")" null
  SIM_PIN_LIMIT=0 run -s 64K -i 1 -w 0 -f csv
  is 'csv: what is unknown is empty' "$(fields pinned_gbps pinned_mean_gbps ratio delta_gbps pageable_stddev_gbps | head -n 1)" '    '
else
  skip 'json through jq' 'no jq'
fi

# Numbers: every format shows the same.
SIM_RATES='pageable.h2d=8,pinned.h2d=2,pageable.d2h=10,pinned.d2h=25' run -s 64K -i 2 -f csv
is 'csv: ratio and delta' "$(fields direction pageable_gbps pinned_gbps ratio delta_gbps)" "$(printf 'H2D 8 2 0.25 -6\nD2H 10 25 2.5 15')"
SIM_RATES='pageable.h2d=8,pinned.h2d=2,pageable.d2h=10,pinned.d2h=25' run -s 64K -i 2
out 'text: ratio and delta' '^ 64KB   H2D      8\.00 GB/s   2\.00 GB/s    0\.2x   -6\.00 GB/s$'
SIM_RATES='pageable.h2d=8,pinned.h2d=2,pageable.d2h=10,pinned.d2h=25' run -s 64K -i 2 -f markdown
out 'markdown: ratio and delta' '^\| 64KB \| D2H \| 10\.00 GB/s \| 25\.00 GB/s \| 2\.5x \| \+15\.00 GB/s \|$'
run -s 65536B 1000003B 0.15 -i 1 -w 0 -f csv
is 'csv: sizes are bytes' "$(fields size_bytes direction | grep H2D | tr '\n' ' ')" '65536 H2D 1000003 H2D 161061274 H2D '
run -s 64K -i 1 -w 0 -f csv -m staged -T 3 -u 2>/dev/null
run -s 64K -i 1 -w 0 -f csv -m staged -T 3
is 'csv: settings that change a column have columns' "$(fields pin threads untouched parallel status)" \
  "$(printf 'staged 3 no no ok\nstaged 3 no no ok')"
SIM_GPUS=2 run -s 64K -i 1 -w 0 -f csv -u -p -d all
is 'csv: the others too, and totals' "$(fields gpu_index pin threads untouched parallel link | grep -c 'malloc-host  yes yes')" 6
is 'csv: a header once' "$(grep -c ^host, "$tmp/out")" 1
is 'csv: whose rows they are' "$(fields gpu_index | tr '\n' ' ')" '0 0 1 1 total total '

# Whatever the locale. A German one is made here if the tools for it are there.
if command -v localedef >/dev/null && localedef -i de_DE -f UTF-8 "$tmp/de_DE.UTF-8" 2>/dev/null; then
  for format in $formats; do
    LOCPATH=$tmp LC_ALL=de_DE.UTF-8 run -s 0.0001 16M 32M -i 2 -w 1 -f "$format"
    mask <"$tmp/out" >"$tmp/de"
    LC_ALL=C run -s 0.0001 16M 32M -i 2 -w 1 -f "$format"
    mask <"$tmp/out" | cmp -s - "$tmp/de"
    ok "$format: the same in a German locale"
  done
  LOCPATH=$tmp LC_ALL=de_DE.UTF-8 run -s 0,5 -f csv -i 1 -w 0
  exits 'a comma is no decimal point' 2
else
  skip 'German locale' 'localedef can not make one'
fi
done_testing
