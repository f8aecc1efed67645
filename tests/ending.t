#!/bin/sh
# Endings: signals, output that can't be written, closed descriptors.
. "$(dirname "$0")/lib.sh"
formats='text markdown csv json svg'

# begin ARG...: launches a run of 40 rows, each of 8 copies of 10 ms, and waits until it has measured a row. SIM_ORDER
# says how far it is, since not every format prints before its end.
begin() {
  SIM_ORDER="$tmp/order" SIM_DELAY=10 launch -s 1B:512K -i 4 -w 0 "$@"
  await grep -q 'copy-begin d2h pinned' "$tmp/order"
}
counted='interrupted: [1-9][0-9]* of 40 rows are whole(, one holds fewer copies)?'
# whole FORMAT: what the last run printed is a whole report of an interrupted run.
whole() {
  last=$(tail -n 1 "$tmp/out")
  case $1 in
  text) echo "$last" | grep -Eq "^note: $counted$" ;;
  markdown) echo "$last" | grep -Eq "^- $counted$" ;;
  csv)
    awk -F, 'NR == 1 { n = NF } NF != n { bad = 1 } END { exit bad || NR < 2 || NR > 40 }' "$tmp/out" &&
      [ -z "$(tail -c 1 "$tmp/out")" ] && grep -Eq "^dma_bandwidth: GPU [0-9]*: note: $counted$" "$tmp/err"
    ;;
  json) echo "$last" | grep -Eq "^{\"tool\".*\"notes\":\[\"$counted\"\].*\"status\":\"interrupted\",\"exit_status\":130,\"error\":null}$" ;;
  svg) [ "$last" = '</svg>' ] ;;
  esac
}
for signal in INT TERM HUP; do
  for format in $formats; do
    begin -f "$format"
    kill -s $signal "$pid"
    reap
    exits "$signal, $format" 130
    whole "$format"
    ok "$signal, $format: the report is whole"
  done
done
begin
kill -INT "$pid"
reap
out 'what is measured is reported' '^ 1B     H2D     16\.95 GB/s  54\.72 GB/s'
out 'with its summary' '^Pinned:    54\.7 GB/s'
lacks 'rows that were not begun are not there' '512KB  D2H'
if command -v jq >/dev/null; then
  begin -f json
  kill -INT "$pid"
  reap
  jq -e '.gpus[0] | .results as $r | ([.notes[0] | scan("[0-9]+")] | map(tonumber)) == [([$r[] | select(.status == "ok")] | length), 40] and
    ([$r[] | select(.status == "interrupted")] | length) <= 1 and
    all($r[] | select(.status == "ok"); (.pinned.samples | length) == 4)' "$tmp/out" >/dev/null
  ok 'the note counts the whole rows'
else
  skip 'the note counts the whole rows' 'no jq'
fi

# Before the first copy, and between two allocations.
for options in '' '-x' '-m staged' '-p -d all'; do
  # shellcheck disable=SC2086
  SIM_GPUS=2 SIM_PIN_COST=300,300 SIM_DELAY=20 launch -s 64K 128K -i 100 -w 100 -f json $options
  armed "$pid"
  kill -INT "$pid"
  reap
  exits "Ctrl-C at once $options" 130
  out "the object is whole $options" '^\{"tool".*"status":"interrupted","exit_status":130,"error":null\}$'
done
SIM_DELAY=50 launch -s 4M -i 1 -w 0 -x
await grep -q D2H "$tmp/out"
kill -INT "$pid"
reap
exits 'Ctrl-C in --explain' 130
out 'it says so' '^note: interrupted: all rows are whole, --explain may be missing$'

SIM_DELAY=20 SIM_ORDER=$tmp/order launch -s 64K -i 1 -w 1000 -f json
await grep -q 'copy-end h2d pageable' "$tmp/order"
kill -INT "$pid"
reap
out 'a row that was begun is there, also without a copy' '"results":\[\{"bytes":65536,"direction":"H2D","pageable":null,"pinned":null,"ratio":null,"delta":null,"status":"interrupted"\}\]'

# With other reasons for a status: Ctrl-C is the strongest.
begin -t 100
kill -INT "$pid"
reap
exits 'Ctrl-C with --min-efficiency' 130
! grep -q min-efficiency "$tmp/err"
ok 'nothing is judged'
SIM_COPY='pageable.h2d:none' begin
kill -INT "$pid"
reap
exits 'Ctrl-C after a failure' 130
out 'which is reported' '^note: 1B H2D pageable: data mismatch'
SIM_GPUS=3 begin -d all
kill -INT "$pid"
reap
exits 'Ctrl-C with three GPUs' 130
is 'GPUs not come to are named' "$(grep -c '^note: interrupted before it was measured$' "$tmp/out")" 2
is 'each with its heading' "$(grep -c '^GPU:  NVIDIA' "$tmp/out")" 3
is 'and without a table' "$(grep -c '^ Size' "$tmp/out")" 1
SIM_GPUS=2 begin -d all -p -f json
kill -TERM "$pid"
reap
exits 'SIGTERM with --parallel' 130
out 'totals of what all have' '"totals":\{"results":\[\{"bytes":1,"direction":"H2D","pageable":\{"median":33\.8'

# How often: a second Ctrl-C kills; SIGTERM and others do not add up. The run hangs here in a pipe that is full, so that
# it is still there when the second signal comes.
# hang ARG...: launches one.
hang() {
  rm -f "$tmp/fifo"
  mkfifo "$tmp/fifo"
  exec 3<>"$tmp/fifo"
  head -c 65536 /dev/zero >&3
  SIM_DELAY=10 perl -e '$SIG{$_} = "DEFAULT" for "INT", "HUP", "TERM"; exec @ARGV' -- "$SIM" -s 64K -i 20 "$@" 2>"$tmp/err" >"$tmp/fifo" 3>&- &
  pid=$!
  armed "$pid"
}
hang
kill -INT "$pid"
await sh -c '! grep -Eq "^SigCgt:.*[2367abef]$" "/proc/$1/status"' - "$pid"
sleep 0.3
kill -0 "$pid"
ok 'one Ctrl-C does not break a slow output off'
kill -INT "$pid"
reap
exits 'a second Ctrl-C kills' 130
exec 3<&-
for format in text json; do
  hang -f $format
  for signal in TERM TERM CONT TERM HUP HUP INT; do
    kill -s $signal "$pid"
    sleep 0.1
  done
  exec 4<"$tmp/fifo" 3<&- # from now on the end of the run is the end of the file
  timeout -s KILL 60 cat <&4 >"$tmp/drained"
  exec 4<&-
  reap
  tr -d '\0' <"$tmp/drained" >"$tmp/out"
  exits "SIGTERM again and again, SIGHUP, one Ctrl-C, $format" 130
  out "the report is whole, $format" '^note: interrupted|"status":"interrupted","exit_status":130,"error":null}$'
done
# timeout sends SIGTERM to the program and then to its whole group, and SIGCONT too: LeakSanitizer, which stops the program
# as it ends, would wait for its stop for ever.
pids=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  ASAN_OPTIONS=detect_leaks=0 SIM_ORDER=$tmp/order$i SIM_DELAY=20 timeout 600 "$SIM" -f json -s 64K 128K -i 1000 \
    >"$tmp/term$i.json" 2>/dev/null </dev/null &
  pids="$pids $!"
done
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do await grep -q copy-begin "$tmp/order$i"; done
# shellcheck disable=SC2086
kill -TERM $pids
wait
is 'timeout, which sends SIGTERM twice, 20 times: whole each time' \
  "$(cat "$tmp"/term*.json | grep -c '^{"tool".*"status":"interrupted","exit_status":130,"error":null}$')" 20

# What the caller ignores stays ignored.
: >"$tmp/out"
(
  trap '' INT TERM HUP
  # What runs is the program itself: sh replaces itself.
  SIM_DELAY=30 exec "$SIM" -s 64K 128K -i 5 -w 0 >"$tmp/out" 2>"$tmp/err"
) &
pid=$!
await grep -q H2D "$tmp/out"
kill -INT "$pid"
kill -TERM "$pid"
kill -HUP "$pid"
reap
exits 'signals that the caller ignores' 0
out 'and all is measured' '^ 128KB  D2H     14\.60'

# Status of a run with several reasons.
SIM_COPY='pinned.d2h:none' run -s 16M -i 1 -t 100
exits 'failed and below the minimum' 1
err 'both are told' 'min-efficiency 100: GPU 0 H2D pinned 54\.7 GB/s is 85.51 % of 64 GB/s'
err 'also that a rate is missing' 'min-efficiency 100: GPU 0 D2H can.t be judged, the pinned rate is not known'
SIM_COPY='pageable.d2h:none' run -s 16M -i 1 -t 100 -f json
exits 'below the minimum, and something else failed' 1
out 'JSON has the same' '"status":"failed","exit_status":1,'
run -s 16M -i 1 -t 100 -f json
exits 'below the minimum' 4
out 'JSON has the same' '"status":"below minimum","exit_status":4,'

# A full disk, at any byte: told, and status 1. RLIMIT_FSIZE stands for it.
if command -v prlimit >/dev/null; then
  for arguments in '-s 64K -i 1' '-s 64K -i 1 -f markdown' '-s 64K -i 1 -f csv' '-s 64K -i 1 -f json' '-s 64K -i 1 -f svg' \
    '-s 1B:16K -i 9 -f json' '-s 1B:4K -i 1 -f svg' '-l' '-l -f json' '-h' '-V'; do
    # shellcheck disable=SC2086
    run $arguments
    whole=$(wc -c <"$tmp/out")
    bad=
    for at in 0 1 $((whole / 4)) $((whole / 3)) $((whole / 2)) 512 4095 4096 4097 $((whole - 100)) $((whole - 2)) $((whole - 1)); do
      # JSON's duration makes its length vary by some bytes.
      case $arguments in *json*) [ $at -lt $((whole - 20)) ] || continue ;; esac
      { [ $at -ge 0 ] && [ $at -lt "$whole" ]; } || continue
      # shellcheck disable=SC2086
      prlimit --fsize=$at "$SIM" $arguments >"$tmp/full" 2>"$tmp/told" </dev/null
      status=$?
      # stderr is a file too: it may be cut, at the same length.
      [ $status = 1 ] && { [ $at -lt 80 ] || [ "$(grep -c 'standard output can.t be written: File too large' "$tmp/told")" = 1 ]; } ||
        bad="$bad $at: $status;"
    done
    is "full disk at any byte: $arguments" "$bad" ''
  done
else
  skip 'full disk at any byte' 'no prlimit'
fi
if [ -w /dev/full ]; then
  for arguments in '-s 64K' '-s 64K -f json' '-s 1B:1M -f json' '-s 1B:1M -f svg' '-s 64K -f csv' '-s 64K -f markdown' '-s 64K -f svg' \
    '-l' '-h' '-V'; do
    # shellcheck disable=SC2086
    "$SIM" $arguments >/dev/full 2>"$tmp/err"
    status=$?
    exits "full disk: $arguments" 1
    is 'and says so once' "$(grep -c 'standard output can.t be written: No space left on device' "$tmp/err")" 1
  done
  "$SIM" -s 64K -i 1 2>/dev/full >"$tmp/out"
  status=$?
  exits 'full disk under stderr' 0
else
  skip 'full disk' 'no /dev/full'
fi

# Ctrl-C in the first cell of all.
SIM_DELAY=5 SIM_ORDER=$tmp/order launch -s 64K -i 100000 -w 0
await sh -c '[ "$(grep -c copy-end "$1")" -ge 3 ]' - "$tmp/order"
kill -INT "$pid"
reap
exits 'Ctrl-C in the first cell' 130
out 'Ctrl-C in the first cell: what is there' '^note: interrupted: 0 of 2 rows are whole, one holds fewer copies$'

# Output that can't be written ends the measuring.
SIM_CALLS=$tmp/all run -s 1B:64K -i 3
for closed in 'a pipe that closed' 'stdout closed' 'a full disk'; do
  rm -f "$tmp/calls"
  case $closed in
  a\ pipe*) { SIM_DELAY=10 SIM_CALLS=$tmp/calls "$SIM" -s 1B:64K -i 3 2>"$tmp/err"; echo $? >"$tmp/status"; } | : ;;
  stdout*) SIM_CALLS=$tmp/calls "$SIM" -s 1B:64K -i 3 2>"$tmp/err" >&-; echo $? >"$tmp/status" ;;
  a\ full*) SIM_CALLS=$tmp/calls "$SIM" -s 1B:64K -i 3 2>"$tmp/err" >/dev/full; echo $? >"$tmp/status" ;;
  esac
  status=$(cat "$tmp/status")
  exits "$closed" 1
  err "$closed: it is told" 'standard output can.t be written: (Broken pipe|Bad file descriptor|No space left on device)'
  [ "$(cat "$tmp/calls")" -lt $(($(cat "$tmp/all") / 4)) ]
  ok "$closed: the measuring ends" "fewer than a quarter of $(cat "$tmp/all") CUDA calls"
done
{ SIM_DELAY=10 "$SIM" -s 1B:64K -i 3 2>"$tmp/err"; echo $? >"$tmp/status"; } | head -n 1 >"$tmp/out"
is 'a reader that reads one line' "$(cat "$tmp/status")" 1
"$SIM" -s 64K <&- >"$tmp/out" 2>&-
status=$?
exits 'stdin and stderr closed' 0
out 'and it measures' '^ 64KB   D2H     14\.60'
"$SIM" -s 64K <&- >&- 2>&-
status=$?
exits 'all closed' 1
"$SIM" -s 64K -i 1 -o "$tmp/x.txt" -o "$tmp/y.json" <&- >&- 2>&-
status=$?
exits 'all closed, with files' 1
! grep -q tool "$tmp/x.txt" && grep -q '^{"tool".*"exit_status":1,' "$tmp/y.json"
ok 'nothing of one goes into another'


# A standard output that breaks does not end the measuring for files: they are whole.
for output in 'a pipe that closed' 'a full disk'; do
  case $output in
  a\ pipe*) { "$SIM" -s 64K 1M -i 2 -w 0 -o "$tmp/r.json" -o "$tmp/r.md" 2>"$tmp/err"; echo $? >"$tmp/status"; } | : ;;
  *) "$SIM" -s 64K 1M -i 2 -w 0 -o "$tmp/r.json" -o "$tmp/r.md" 2>"$tmp/err" >/dev/full; echo $? >"$tmp/status" ;;
  esac
  is "$output, with files" "$(cat "$tmp/status")" 1
  is "$output: every row is in them" "$(grep -o '"status":"ok"' "$tmp/r.json" | wc -l) $(grep -c 'GB/s.*x' "$tmp/r.md")" '4 6'
done

# CSV's notes go to stderr, each line in one write, so that lines of several runs do not mix.
if command -v strace >/dev/null && strace -o "$tmp/trace" true 2>/dev/null; then
  SIM_JITTER=0.3 SIM_NAME='x' SIM_PIN_LIMIT=5000000 strace -f -s 4000 -e trace=write,writev -o "$tmp/trace" "$SIM" -s 4M 8M -i 3 -f csv -u -x -T 2 \
    >"$tmp/out" 2>"$tmp/err"
  [ "$(grep -c 'note: ' "$tmp/err")" -ge 2 ]
  ok 'notes on stderr'
  [ "$(grep -Ec 'write(v)?\(2,' "$tmp/trace")" -ge 10 ] && ! grep -E 'write(v)?\(2,' "$tmp/trace" | grep -Evq 'write\(2, ".*\\n", '
  ok 'no write ends in the middle of a line'
else
  skip 'one write for each line' 'no strace'
fi
done_testing
