#!/bin/sh
# Every call may fail: the Nth CUDA call of a run, for every N; memory, threads and files of libc.
# After each: no signal, no hang, no leak, a report that can be read, no wrong figure, and status 0 only with all of them.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null && python3 -c '' 2>/dev/null && python=yes
total=0
runs=$tmp/runs

# The simulated GPU's rates, and what follows from them by hand. BiD pageable: one half after the other, 2 / (1/10 + 1/8);
# pinned: both at once, 2 x 40. Totals of two GPUs are twice as much. One chunk staged at 10 GB/s: 1 / (1/10 + 1/50),
# 1 / (1/10 + 1/40), BiD 4 / (2/10 + 1/50 ...) is left to staged.t.
SIM_RATES='pageable.h2d=10,pageable.d2h=8,pinned.h2d=50,pinned.d2h=40;pageable.h2d=10,pageable.d2h=8,pinned.h2d=50,pinned.d2h=40'
SIM_STAGE=10
export SIM_RATES SIM_STAGE
plain='H2D 10.00 50.00
D2H 8.00 40.00
BiD 8.89 80.00'
totals='H2D 20.00 100.00
D2H 16.00 80.00'
staged='H2D 10.00 8.33
D2H 8.00 8.00'

# Reads one run: status, out, err, and whatever file the run wrote. Prints what is wrong.
cat >"$tmp/check.py" <<'PYTHON'
import csv, io, json, os, sys
runs, form, rows_file, want = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
expected = {}
for line in open(rows_file):
    way, pageable, pinned = line.split()
    expected.setdefault(way, []).append((float(pageable), float(pinned)))
words = {0: "ok", 1: "failed", 3: "failed"}

def figure(text):
    return None if text in ("", "-", None) else float(text)

def wrong(rows, status):
    for way, figures, word in rows:
        if word != "ok" and not word.startswith("failed: "): return "status " + word
        if word == "ok" and None in figures: return "ok without figures"
        if word != "ok" and None not in figures: return "failed with all figures"
        for kind in 0, 1:
            if figures[kind] is not None and not any(abs(figures[kind] / e[kind] - 1) < 0.002 for e in expected[way]):
                return "%s: %s" % (way, figures)
    if status == 0 and (len(rows) != want or any(None in r[1] for r in rows)): return "%d rows" % len(rows)

def check_json(text, status):
    run = json.loads(text)
    if run["exit_status"] != status or run["status"] != words[status]: return "exit status %s" % run["exit_status"]
    if status == 3 and not run["error"]: return "no reason"
    median = lambda cell: cell and cell["median"]
    tables = [r for g in run["gpus"] for r in g["results"]] + (run["totals"]["results"] if run["totals"] else [])
    return wrong([(r["direction"], (median(r["pageable"]), median(r["pinned"])), r["status"]) for r in tables], status)

def check_csv(text, status):
    table = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if any(len(row) != len(table[0]) for row in table): return "columns"
    rows = [dict(zip(table[0], row)) for row in table[1:]]
    return wrong([(r["direction"], (figure(r["pageable_gbps"]), figure(r["pinned_gbps"])), r["status"]) for r in rows], status)

def check_text(text, status):
    rows = []
    for line in text.splitlines():
        if line[:1] not in (" ", "|"): continue
        words = line.replace("|", " ").replace("GB/s", " ").split()
        if len(words) > 3 and words[1] in expected:
            figures = (figure(words[2]), figure(words[3]))
            rows.append((words[1], figures, "failed: " if None in figures else "ok"))
    return wrong(rows, status)

def read_wishes():
    return open(os.path.join(runs, "files")).read().split() if os.path.exists(os.path.join(runs, "files")) else []

def check(name):
    read = lambda suffix: open(os.path.join(runs, name + suffix), errors="strict").read()
    status, out, err = int(read(".status")), read(".out"), read(".err")
    if status == 2 and os.environ.get("FUNCTION") == "malloc" and err and not out: return # while options are read
    if status not in words: return "status %d" % status
    if status and not err: return "no reason"
    if "Sanitizer" in err or "runtime error" in err: return "sanitizer"
    if os.path.exists(os.path.join(runs, name + ".left")) and read(".left"): return "left: " + read(".left")
    check_out = {"json": check_json, "csv": check_csv}.get(form, check_text)
    if not (form == "csv" and status == 3 and not out): # no GPU: nothing was begun
        found = check_out(out, status)
        if found: return found
    for suffix, reader in (".json", check_json), (".csv", check_csv):
        if os.path.exists(os.path.join(runs, name + suffix)):
            found = reader(read(suffix), status)
            if found: return suffix + ": " + found
        elif status == 0 and suffix in read_wishes(): return "no file" + suffix

for name in sorted((f[:-7] for f in os.listdir(runs) if f.endswith(".status")), key=int):
    try: found = check(name)
    except Exception as error: found = repr(error)
    if found: print("%s: %s" % (name, found))
PYTHON

# once N ARG...: one run, killed if it hangs, and what is left of it. With $fault, a call of libc fails in it.
fault=
libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
once() {
  n=$1
  shift
  total=$((total + 1))
  SIM_LEFT=$runs/$n.left timeout -s KILL 30 env ${fault:+"LD_PRELOAD=$libc"} ${fault:+"FAIL_LIBC=$fault"} \
    ${fault:+"FAIL_LIBC_CALLS=$tmp/calls"} "$SIM" "$@" >"$runs/$n.out" 2>"$runs/$n.err" </dev/null
  echo $? >"$runs/$n.status"
  if [ -e "$runs/files" ]; then for suffix in json csv; do mv "$runs/file.$suffix" "$runs/$n.$suffix" 2>/dev/null; done; fi
}
# judge NAME ROWS COUNT: what is wrong with the runs in $runs, all of which have this many rows.
judge() {
  printf '%s\n' "$2" >"$tmp/rows"
  if [ -n "$python" ]; then
    bad=$(python3 "$tmp/check.py" "$runs" "$format" "$tmp/rows" "$3" | head -n 5)
  else # at least: no signal, no hang, no leak, and a reason
    bad=
    for file in "$runs"/*.status; do
      case $(cat "$file") in 0) continue ;; 1 | 3) [ -s "${file%.status}.err" ] && [ ! -s "${file%.status}.left" ] && continue ;; esac
      bad="$bad ${file##*/}"
    done
  fi
  is "$1" "$bad" ''
}
# begin ARG...: an empty folder for runs; the format that the arguments ask for.
begin() {
  rm -rf "$runs" && mkdir "$runs"
  format=text
  for argument; do
    case $argument in json | csv | markdown) format=$argument ;; esac
    case $argument in */file.*) echo ".${argument##*.}" >>"$runs/files" ;; esac
  done
}
# faults NAME ROWS COUNT ARG...: all N for one command line; with STEP only every so many.
faults() {
  name=$1
  rows=$2
  want=$3
  shift 3
  begin "$@"
  SIM_CALLS=$tmp/calls once 0 "$@"
  last=$(cat "$tmp/calls")
  is "$name: undisturbed" "$(cat "$runs/0.status")" 0
  n=$((${STEP:-1}))
  while [ $n -le "$last" ]; do
    SIM_FAIL=$n once $n "$@"
    n=$((n + ${STEP:-1}))
  done
  judge "$name: of $last CUDA calls each ${STEP:-1}. fails" "$rows" "$want"
}
# Each call once with BiD, with staged copies and with two GPUs at once; elsewhere the calls that STEP hits.
faults 'text, bidir' "$plain" 3 -s 64K -i 1 -w 1 -b
faults 'staged' "$staged" 2 -s 64K -i 1 -w 1 -m staged -T 1
SIM_GPUS=2
export SIM_GPUS
faults 'two GPUs at once' "$plain
$totals" 6 -s 64K -i 1 -w 0 -d all -p
STEP=3
faults 'two GPUs at once, json' "$plain
$totals" 6 -s 64K -i 1 -w 1 -d all -p -f json
faults 'two GPUs in turn, csv' "$plain" 4 -s 64K -i 1 -w 1 -d all -f csv
unset SIM_GPUS
for format in markdown csv json; do
  faults "$format" "$plain" 4 -s 64K 1M -i 1 -w 1 -f $format
done
faults 'files' "$plain" 2 -s 64K -i 1 -w 0 -o "$runs/file.json" -o "$runs/file.csv"
faults 'staged, files' "$staged" 2 -s 64K -i 1 -w 0 -m staged -T 1 -f csv -o "$runs/file.json"
faults 'bidir, untouched, json' "$plain" 3 -s 64K -i 1 -w 1 -b -u -f json
faults 'register, csv' "$plain" 2 -s 64K -i 1 -w 1 -m register -f csv
faults 'huge, json' "$plain" 2 -s 64K -i 1 -w 1 -m huge -f json
STEP=8
faults 'explain' "$plain" 2 -s 64K -i 1 -w 0 -x -T 2
faults 'explain, json' "$plain" 2 -s 64K -i 1 -w 0 -x -T 2 -f json

# Errors that stick and errors that do not: the status is 1, each time.
begin json
n=0
for error in cudaErrorIllegalAddress cudaErrorECCUncorrectable cudaErrorMemoryAllocation; do
  for copy in 2 5 9 12; do # the first one only wakes the link
    n=$((n + 1))
    SIM_FAIL=cudaMemcpy:$copy:$error once $n -s 64K 1M -i 2 -w 1 -f json
  done
done
is 'copies that fail with errors of both kinds: status' "$(cat "$runs"/*.status | sort -u)" 1
judge 'copies that fail with errors of both kinds' "$plain" 4

# The C library's calls.
if [ -f "$libc" ] && [ -z "$asan" ]; then
  for function in malloc pthread_create fopen; do
    for case in '2|-s 64K -i 2 -w 1 -x -T 2' '4|-s 64K 2M -i 1 -w 1 -f json' '6|-s 64K -i 1 -w 1 -d all -p -f csv' \
      '2|-s 64K -i 1 -w 0 -m staged -T 2'; do
      rows="$plain
$totals"
      case $case in *all*) export SIM_GPUS=2 ;; *staged*) rows=$staged ;; esac
      # shellcheck disable=SC2086
      begin ${case#*|}
      fault=$function:0
      # shellcheck disable=SC2086
      once 0 ${case#*|}
      last=$(cat "$tmp/calls")
      [ "$last" -ge 2 ]
      ok "$function: there are calls to fail: ${case#*|}" '2 or more'
      case $function in fopen) STEP=7 ;; *) STEP=1 ;; esac # files of /proc are opened all the time
      n=0
      while [ $((n + STEP)) -le "$last" ]; do
        n=$((n + STEP))
        fault=$function:$n
        # shellcheck disable=SC2086
        once $n ${case#*|}
      done
      FUNCTION=$function judge "$function: calls of $last fail: ${case#*|}" "$rows" "${case%%|*}"
      unset SIM_GPUS
    done
  done
else
  skip 'the C library' 'not with AddressSanitizer, or not built'
fi
echo "# $total faults"
done_testing
