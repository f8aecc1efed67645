#!/bin/sh
# Endings: interruption, output that can't be written, closed descriptors.
. "$(dirname "$0")/lib.sh"

# start ARG...: starts a long run in the background, waits for its first row; its pid is $pid.
start() {
  "$SIM" "$@" -i 100000 >"$tmp/out" 2>"$tmp/err" &
  pid=$!
  i=0
  while ! grep -q "$first" "$tmp/out" && [ $i -lt 300 ]; do
    sleep 0.1
    i=$((i + 1))
  done
}

# stop SIGNAL: sends it to the run and waits for its end.
stop() {
  armed $pid
  kill "-$1" $pid
  wait $pid
  status=$?
}

first=D2H
start -s 64K 128K 256K
stop INT
exits 'Ctrl-C' 130
out 'what is measured is reported' '^ 64KB   D2H     14\.60 GB/s  46\.75 GB/s'
out 'with its summary' '^Pinned:    54\.7 GB/s'
out 'and a note' '^note: interrupted: [0-9] of 6 rows were begun'
lacks 'rows that were not begun are not there' '256KB  D2H'

start -s 64K 128K 256K
stop TERM
exits 'SIGTERM' 130
out 'it is reported too' '^note: interrupted'

for format in json csv markdown; do
  first=.
  [ $format = json ] && first= # it prints nothing before its end
  start -s 64K 128K 256K -f $format
  stop INT
  exits "Ctrl-C, $format" 130
done
if command -v jq >/dev/null; then
  start -s 64K 128K 256K -f json
  sleep 0.5
  stop INT
  jq -e '.status == "interrupted" and (.gpus[0].notes[0] | startswith("interrupted: ")) and
    (.gpus[0].results | length) < 6' "$tmp/out" >/dev/null
  ok 'json is closed'
else
  skip 'json is closed' 'no jq'
fi
"$SIM" -s 64K -i 100000 -w 100000 >"$tmp/out" 2>"$tmp/err" &
pid=$!
armed $pid
kill -STOP $pid && kill -INT $pid && kill -INT $pid && kill -CONT $pid
wait $pid
status=$?
exits 'Ctrl-C before the first timed copy' 130

first=D2H
start -s 64K 128K 256K -n
kill -STOP $pid
kill -INT $pid
kill -TERM $pid
kill -CONT $pid
wait $pid
status=$?
exits 'one signal of each kind is one request' 130

# A reader that does not read: the program hangs in its output, so the second signal has to kill it.
mkfifo "$tmp/fifo"
many=$(i=0; while [ $i -lt 300 ]; do i=$((i + 1)); printf '%dB ' $i; done)
# shellcheck disable=SC2086
"$SIM" -f csv -i 1 -w 0 -s $many >"$tmp/fifo" 2>"$tmp/err" &
pid=$!
exec 3<"$tmp/fifo"
armed $pid
sleep 1
kill -INT $pid
sleep 0.3
kill -0 $pid 2>/dev/null
ok 'one Ctrl-C does not break a slow output off'
kill -INT $pid
wait $pid
status=$?
exits 'a second Ctrl-C kills' 130
exec 3<&-

if [ -w /dev/full ]; then
  for arguments in '-s 64K' '-s 64K -f json' '-s 64K -f csv' '-s 64K -f markdown' '-l' '-h' '-V'; do
    # shellcheck disable=SC2086
    "$SIM" $arguments >/dev/full 2>"$tmp/err"
    status=$?
    exits "full disk: $arguments" 1
    err 'and says so' 'cannot write standard output: No space left on device'
  done
  run -s 64K -c /dev/full
  exits 'full disk under the chart' 1
  err 'and says so' "cannot write /dev/full: No space left on device"
  out 'the table is there' '^ 64KB   D2H'
else
  skip 'full disk' 'no /dev/full'
fi
"$SIM" -s 64K >&- 2>"$tmp/err"
status=$?
exits 'stdout closed' 1
err 'and says so' 'cannot write standard output'
"$SIM" -s 64K -c "$tmp/chart.svg" >&- 2>"$tmp/err"
status=$?
exits 'stdout closed, with a chart' 1
! grep -q 'DMA Bandwidth Test' "$tmp/chart.svg"
ok 'the table does not go into the chart'
"$SIM" -s 64K <&- >"$tmp/out" 2>&-
status=$?
exits 'stdin and stderr closed' 0
out 'and it measures' '^ 64KB   D2H     14\.60'
"$SIM" -s 64K <&- >&- 2>&-
status=$?
exits 'all closed' 1
"$SIM" -s 64K 128K -i 20000 2>"$tmp/err" | head -n 3 >"$tmp/out"
err 'a pipe that closes' 'cannot write standard output: Broken pipe'
run -s 64K -c "$tmp/none/chart.svg"
exits 'a chart in a folder that is not there' 1
no_out 'a chart in a folder that is not there'
err 'it names option, file and reason' "--chart: '.*/none/chart\\.svg' can't be written: No such file or directory"
run -s 64K -c "$tmp"
exits 'a chart that is a folder' 1
no_out 'a chart that is a folder'
done_testing
