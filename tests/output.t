#!/bin/sh
# --output: files beside standard output, written whole or not at all.
. "$(dirname "$0")/lib.sh"
fast='-s 64K 1M -i 2 -w 1'
suffixes='txt md csv json svg'
mkdir "$tmp/d" && cd "$tmp/d" || exit 1
# listed FOLDER: what lies in it.
listed() { find "${1:-.}" -mindepth 1 -maxdepth 1 | sed 's|.*/||' | sort | tr '\n' ' '; }
all_outputs() { for suffix in $suffixes; do printf -- '-o %s.%s ' "${1:-x}" "$suffix"; done; }

# Several at once agree with what the same run prints.
# shellcheck disable=SC2046,SC2086
SIM_GPUS=2 SIM_PIN_LIMIT=1000000 run $fast -b -d all -p $(all_outputs)
exits 'five files at once' 1
cmp -s "$tmp/out" x.txt
ok 'the text file is what was printed'
is 'nothing else lies in the folder' "$(listed)" 'x.csv x.json x.md x.svg x.txt '
for format in markdown:md csv:csv text:txt; do
  # shellcheck disable=SC2086
  SIM_GPUS=2 SIM_PIN_LIMIT=1000000 run $fast -b -d all -p -f ${format%:*} -o y.${format#*:}
  cmp -s "$tmp/out" y.${format#*:} && cmp -s y.${format#*:} x.${format#*:}
  ok "$format: file, standard output and the file of another run are the same"
done
if command -v python3 >/dev/null; then
  python3 - >"$tmp/err" 2>&1 <<'P'
import csv, json, re
run = json.load(open("x.json"))
assert run["exit_status"] == 1
parts = [(str(g["index"]), g) for g in run["gpus"]] + [("total", run["totals"])]
rows = list(csv.DictReader(open("x.csv", newline="")))
results = [(name, r) for name, part in parts for r in part["results"]]
assert len(rows) == len(results) == 18
text = re.findall(r"^ \S+ +(?:H2D|D2H|BiD) .*$", open("x.txt").read(), re.M)
table = [l for l in open("x.md") if re.match(r"\| \S+ \| (H2D|D2H|BiD) \|", l)]
assert len(text) == len(table) == 18
number = lambda s: float(s) if s else None
for row, (name, r), line, md in zip(rows, results, text, table):
    assert (row["gpu_index"], int(row["size_bytes"]), row["direction"], row["status"]) == \
        (name, r["bytes"], r["direction"], r["status"]), (row, r)
    cells = [r[k]["median"] if r[k] else None for k in ("pageable", "pinned")]
    assert [number(row["pageable_gbps"]), number(row["pinned_gbps"])] == cells
    assert number(row["ratio"]) == r["ratio"] and number(row["delta_gbps"]) == r["delta"]
    shown = ["%.2f GB/s" % c if c is not None else "-" for c in cells]
    assert [c.strip() for c in md.split("|")[3:5]] == shown, (md, shown)
    assert re.sub(" +", " ", " ".join([r["direction"]] + shown)) in re.sub(" +", " ", line), (line, shown)
svg = open("x.svg").read()
assert len(re.findall(r'<rect class="p', svg)) == 6 + sum(bool(r[k]) for _, r in results for k in ("pageable", "pinned"))
P
  ok 'csv, json, text, markdown and svg hold the same figures'
else
  skip 'the files hold the same figures' 'no python3'
fi
for format in text markdown csv svg; do
  # shellcheck disable=SC2086
  run $fast -f $format
  mv "$tmp/out" "$tmp/without"
  # shellcheck disable=SC2046,SC2086
  run $fast -f $format $(all_outputs)
  cmp -s "$tmp/out" "$tmp/without"
  ok "$format: what is printed is the same with files as without"
done
run -s 64K -i 1 -o a.txt -o b.txt -o c.json
cmp -s a.txt b.txt
ok 'two files of one format'
rm -f ./*

# What can't be is refused at once: nothing is measured, the message names option and value, no file appears.
# refused NAME STATUS REGEX ARG...
refused() {
  name=$1 want=$2 why=$3
  shift 3
  rm -f calls
  SIM_CALLS=$tmp/d/calls run -s 64K -i 1 -w 0 "$@"
  exits "$name" "$want"
  no_out "$name"
  err "$name: says why" "^dma_bandwidth: --output: $why"
  # Finding the GPU takes some calls, measuring takes 30 and more.
  [ ! -e calls ] || [ "$(cat calls)" -lt 12 ]
  ok "$name: nothing was measured" 'few CUDA calls'
}
refused 'the same file twice' 2 "'x.json' is given twice" -o x.json -o x.json
touch x.json
ln -s x.json link.json
ln x.json hard.json
refused 'a file that is there, twice' 2 "'x.json' is given twice" -o x.json -o x.json
refused 'the same file by another path' 2 "'\\./x.json' is given twice" -o x.json -o ./x.json
refused 'the same file by a link' 2 "'link.json' is given twice" -o x.json -o link.json
rm -f ./*
refused 'the same new file by another path' 2 "'\\./x.json' is given twice" -o x.json -o ./x.json
refused 'the same new file by its full path' 2 "'$tmp/d/x.json' is given twice" -o x.json -o "$tmp/d/x.json"
for value in x x.html .json x.JSON '' x.json/ txt x.txt.gz; do
  refused "suffix: '$value'" 2 "'$value' must end in one of \\.txt, \\.md, \\.csv, \\.json, \\.svg" -o "$value"
done
mkdir folder.txt
refused 'a folder' 1 "'folder.txt' can't be written: .*[Dd]irectory" -o folder.txt
refused 'a missing folder' 1 "'none/x.txt' can't be written: No such file or directory" -o none/x.txt
refused 'a file for a folder' 1 "'/dev/null/x.txt' can't be written: Not a directory" -o /dev/null/x.txt
refused 'one good, one bad' 1 "'none/x.txt' can't be written" -o good.json -o none/x.txt
[ ! -e good.json ]
ok 'the good one is not written either'
mkfifo pipe.json
refused 'a pipe' 1 "'pipe.json' can't be written: it is a pipe or a device" -o pipe.json
ln -s /dev/null null.txt
refused 'a device' 1 "'null.txt' can't be written: it is a pipe or a device" -o null.txt
[ -c /dev/null ] && [ -L null.txt ]
ok 'it is still there'
ln -s loop.txt loop.txt
refused 'a link to itself' 1 "'loop.txt' can't be written: " -o loop.txt
refused 'a name too long' 1 "'x*\\.txt' can't be written: File name too long" -o "$(printf 'x%0300d.txt' 0 | tr 0 x)"
# shellcheck disable=SC2046
refused 'more than 16 files' 2 "'16.csv' is more than 16 files" \
  $(i=0; while [ $i -le 16 ]; do printf -- '-o %d.csv ' $i; i=$((i + 1)); done)
rm -rf ./*

# Standard output's own file, whole or appended to, by its name and by a link.
for way in '>' '>>'; do
  echo old >own.txt
  ln -sf own.txt link.txt
  for path in own.txt link.txt ./own.txt; do
    eval "\"\$SIM\" -s 64K -i 1 -o $path $way own.txt 2>\"\$tmp/err\""
    status=$?
    exits "stdout's own file: $way, $path" 2
    err 'it is told' "^dma_bandwidth: --output: '$path' is where standard output goes"
  done
done
rm -f ./*

# As a user who may not.
mkdir closed && echo old >closed/x.txt && echo old >readonly.txt && chmod 500 closed && chmod 400 readonly.txt
if [ "$(id -u)" != 0 ]; then
  refused 'a read-only folder' 1 "'closed/y.txt' can't be written: Permission denied" -o closed/y.txt
  refused 'a read-only file' 1 "'readonly.txt' can't be written: Permission denied" -o readonly.txt
elif command -v setpriv >/dev/null && chmod 755 "$tmp" && setpriv --reuid 65534 --clear-groups test -x "$SIM" 2>/dev/null; then
  chown -R 65534 "$tmp/d"
  for path in closed/y.txt readonly.txt; do
    setpriv --reuid 65534 --clear-groups "$SIM" -s 64K -i 1 -o $path >"$tmp/out" 2>"$tmp/err"
    status=$?
    exits "a read-only place: $path" 1
    no_out "a read-only place: $path"
    err "a read-only place: $path" "^dma_bandwidth: --output: '$path' can't be written: Permission denied"
  done
  chown -R 0 "$tmp/d"
else
  skip 'a read-only folder and file' 'root may write anywhere, and can not become another user here'
fi
is 'the file is as it was' "$(cat readonly.txt closed/x.txt)" "$(printf 'old\nold')"
chmod 700 closed
rm -rf ./*

# The old file stays until the new one is whole.
for file in x.txt x.json x.svg; do echo old >$file; done
SIM_DELAY=50 launch -s 64K 128K -i 100 -o x.txt -o x.json -o x.svg
await test -s "$tmp/out"
is 'while it is measured the old file stays' "$(cat x.txt x.json x.svg | tr '\n' ' ')" 'old old old '
is 'and nothing lies beside it' "$(listed)" 'x.json x.svg x.txt '
kill -KILL "$pid"
wait "$pid" 2>/dev/null
is 'after kill -9 too' "$(cat x.txt x.json x.svg | tr '\n' ' ')" 'old old old '
is 'nothing is left beside it' "$(listed)" 'x.json x.svg x.txt '
SIM_DELAY=50 launch -s 64K 128K -i 100 -o x.txt -o x.json -o x.svg
await test -s "$tmp/out"
armed "$pid"
kill -TERM "$pid"
reap
exits 'SIGTERM' 130
grep -q '^note: interrupted' x.txt && grep -q '"status":"interrupted","exit_status":130,"error":null}$' x.json && grep -q '^</svg>$' x.svg
ok 'after SIGTERM all files hold what was measured, and are whole'

# A disk that fills while a file is written: ulimit counts blocks of 512 bytes, standard output is a pipe.
many=$(i=0; while [ $i -lt 60 ]; do i=$((i + 1)); printf '%dB ' $i; done)
for suffix in $suffixes; do
  rm -f ./*
  echo old >"x.$suffix"
  # shellcheck disable=SC2086
  (ulimit -f 3 && "$SIM" -s $many -i 1 -w 0 -o "x.$suffix" -f text; echo $? >"$tmp/status") 2>&1 | cat >"$tmp/err"
  status=$(cat "$tmp/status")
  exits "$suffix: a full disk" 1
  err "$suffix: it is told" "^dma_bandwidth: --output: 'x.$suffix' can't be written: File too large"
  is "$suffix: the old file stays" "$(cat "x.$suffix")" old
  is "$suffix: nothing is left beside it" "$(listed)" "x.$suffix "
done
rm -f ./*
# shellcheck disable=SC2086
(ulimit -f 3 && "$SIM" -s $many -i 1 -w 0 -o x.csv -f json; echo $? >"$tmp/status") 2>"$tmp/err" | cat >"$tmp/out"
out 'and stands in the JSON that is printed' '"status":"failed","exit_status":1,"error":'
# shellcheck disable=SC2086
(ulimit -f 3 && "$SIM" -s $many -i 1 -w 0 -o x.csv -o y.json -o z.svg; :) 2>"$tmp/err" | cat >"$tmp/out"
is 'each file is told, once' "$(grep -c -e "--output: '[xyz]\\..*' can.t be written: File too large" "$tmp/err")" 3

# Files are whole also where standard output breaks: totals and notes too.
rm -f ./*
if [ -w /dev/full ]; then
  SIM_GPUS=2 "$SIM" -s 64K -i 1 -d all -p -o t.json -o t.txt >/dev/full 2>"$tmp/err"
  status=$?
  exits 'a full disk under stdout' 1
  grep -q '"totals":{"results"' t.json && grep -q '^GPU:  2 GPUs at once' t.txt
  ok 'a full disk under stdout: the totals are in the files'
  rm -f "$tmp/order"
  SIM_GPUS=2 SIM_DELAY=20 SIM_ORDER=$tmp/order perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- \
    "$SIM" -d all -s 64K -i 100 -w 0 -o u.json >/dev/full 2>"$tmp/err" &
  pid=$!
  await grep -q copy-begin "$tmp/order"
  kill -INT "$pid"
  reap
  exits 'and Ctrl-C' 130
  grep -q '"notes":\["interrupted before it was measured"\]' u.json
  ok 'a full disk under stdout and Ctrl-C: the note of the GPU that was not reached' "$(cat u.json)"
  SIM_GPUS=2 "$SIM" -s 64K -i 1 -d all >/dev/full 2>"$tmp/err"
  status=$?
  exits 'a full disk under stdout, no file: not taken for an interruption' 1
else
  skip 'a full disk under stdout' 'no /dev/full'
fi

# Prose goes to stderr where standard output has a format without a place for it.
rm -f ./*
for format in csv svg; do
  SIM_BUSY=35,2 run -s 64K -i 1 -w 0 -x -T 1 -f $format
  err "$format: notes on stderr" '^dma_bandwidth: GPU 0: note: the GPU was in use before the run \(utilisation 35 %, 2 other processes\): repeat when it is idle$'
  err "$format: and What helps" '^--- What helps ---$'
done
run -s 64K -i 1 -w 0 -n -x -T 1 -o x.csv -o x.svg
no_err 'beside files it does not go there'

# A name as long as a name can be.
long=$(printf '%0250d.json' 0)
run -s 64K -i 1 -w 0 -o "$long"
exits 'a name of 255 characters' 0
[ -s "$long" ]
ok 'is written'
rm -f ./*

# Modes and links.
rm -f ./*
(umask 027 && run -s 64K -i 1 -o new.txt)
is 'a new file gets the mode of the umask' "$(stat -c %a new.txt)" 640
(umask 0 && run -s 64K -i 1 -o open.txt)
is 'and another one' "$(stat -c %a open.txt)" 666
for mode in 600 664 755; do
  echo old >mode.csv
  chmod $mode mode.csv
  run -s 64K -i 1 -o mode.csv
  is "mode $mode is kept" "$(stat -c %a mode.csv)" $mode
  grep -q ^host, mode.csv
  ok 'and the file is new'
done
mkdir real
echo old >real/x.json
ln -s real/x.json link.json
run -s 64K -i 1 -o link.json
[ -L link.json ] && grep -q '^{"tool"' real/x.json
ok 'a link stays one, the file that it names is written'
ln -s real/new.json fresh.json
run -s 64K -i 1 -o fresh.json
[ -L fresh.json ] && grep -q '^{"tool"' real/new.json
ok 'also where that file is not there yet'
is 'nothing is left in its folder' "$(listed real)" 'new.json x.json '
mkdir 'a folder'
run -s 64K -i 1 -o 'a folder/a b.json' -o "$tmp/d/it's.csv"
[ -s 'a folder/a b.json' ] && [ -s "it's.csv" ]
ok 'blanks and quotes in a path'
run -s 64K -i 1 --output=long.md
exits 'the long option' 0
grep -q '^| 64KB' long.md
ok 'writes it'

# Where nothing was measured, only JSON has something to say.
rm -rf ./*
# shellcheck disable=SC2046
SIM_DRIVER=0 run $(all_outputs)
exits 'no driver' 3
is 'no driver: only JSON is written' "$(listed)" 'x.json '
grep -q '"gpus":\[\],.*"exit_status":3,"error":"no NVIDIA driver' x.json
ok 'with the reason'
# shellcheck disable=SC2046
run -d 7 $(all_outputs)
exits 'no such GPU' 2
grep -q '"exit_status":2,"error":"--device: GPU 7' x.json
ok 'likewise'
# shellcheck disable=SC2046
run -l $(all_outputs l)
exits '--list writes no report' 2
is 'and no file' "$(listed)" 'x.json '

# Whatever happens to standard output, the JSON in a file tells the process's exit status.
if [ -w /dev/full ]; then
  for format in text json csv svg markdown; do
    "$SIM" -s 64K -i 1 -w 0 -f $format -o x.json >/dev/full 2>"$tmp/err"
    status=$?
    exits "-f $format to a full disk" 1
    grep -q '"exit_status":1,' x.json
    ok "-f $format to a full disk: the JSON file says so too"
  done
else
  skip 'a full disk under standard output' 'no /dev/full'
fi
cd / || exit 1
done_testing
