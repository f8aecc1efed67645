# shellcheck shell=sh
# What the tests share: TAP in plain sh. A test sources this, calls run and the checks, and ends
# with done_testing. SIM is the simulated binary.
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
SIM=${SIM:-$top/build/dma_bandwidth_sim}
tmp=$(mktemp -d) || exit 1
trap 'log_json; log_files; rm -rf "$tmp"' EXIT
trap 'exit 1' PIPE # prove was stopped
count=0
export LC_ALL=C # ranges such as [a-z] depend on it
asan=$(ldd "$SIM" 2>/dev/null | grep asan) # not empty: built with AddressSanitizer
export asan
for variable in $(env | sed -n 's/^\(SIM_[A-Z0-9_]*\)=.*/\1/p'); do unset "$variable"; done

# Where JSON_LOG, a full path, is set, every JSON object that a run printed is added to that file: by run at once, for launch when
# the next run starts or the test ends; and the .json files of --output when the test ends. tests/validate.py reads it.
launched=
log_json() {
  [ -z "${JSON_LOG:-}" ] || [ -z "$launched" ] || append_json "$tmp/out"
  launched=
}
append_json() {
  grep '^{"tool":.*}$' "$1" >"$tmp/.log" 2>/dev/null && cat "$tmp/.log" >>"$JSON_LOG"
}
log_files() {
  [ -n "${JSON_LOG:-}" ] || return 0
  for file in "$tmp"/*.json; do append_json "$file"; done
}

# run ARG...: runs the simulated program; leaves $tmp/out, $tmp/err and $status.
run() {
  log_json
  "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
  [ -z "${JSON_LOG:-}" ] || append_json "$tmp/out"
}

# launch ARG...: runs the simulated program in the background, with SIGINT as from a terminal (a shell's & makes its
# children ignore it); its pid is $pid. It writes to $tmp/out and $tmp/err, and begins a new $tmp/order.
launch() {
  log_json
  launched=yes
  rm -f "$tmp/order"
  : >"$tmp/out" # at once, not when the child comes to it
  : >"$tmp/err"
  perl -e '$SIG{$_} = "DEFAULT" for "INT", "HUP", "TERM"; exec @ARGV' -- "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
  pid=$!
}

# await COMMAND...: waits until the command succeeds; fails after a minute.
await() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || return 1
    sleep 0.05
  done
}

# reap: waits for the launched run, and kills it after a minute; leaves $status.
reap() {
  await ended "$pid" || kill -KILL "$pid"
  wait "$pid"
  status=$?
}
ended() { ! grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status"; }

# fields NAME...: these columns of the CSV in $tmp/out, found by the header; blanks between, a line for each row.
fields() {
  awk -F, -v names="$*" '
    NR == 1 {
      n = split(names, want, " ")
      for (i = 1; i <= NF; i++) at[$i] = i
      for (i = 1; i <= n; i++) if (!(want[i] in at)) { print "no column " want[i]; exit 1 }
      next
    }
    { for (i = 1; i <= n; i++) printf "%s%s", (i > 1 ? " " : ""), $at[want[i]]; print "" }' "${csv:-$tmp/out}"
}

# mask: a filter that hides what differs from run to run and machine to machine.
mask() {
  sed -e 's/"host":[^,]*,"time":"[^"]*","duration_s":[^,]*,"cpu":.*,"cuda_runtime":"[^"]*","cuda_driver":"[^"]*"/MASKED/' \
    -e 's/"driver_release":"[^"]*"/"driver_release":"RELEASE"/; s/"threads":[0-9]*,"unt/"threads":THREADS,"unt/' \
    -e "s/^$(uname -n),/HOST,/; s/20[0-9][0-9]-[0-9][0-9]-[0-9][0-9], median/DATE, median/"
}

# ok NAME [EXPECTED]: passes if the command before it succeeded. If not, says what was expected and what came, on
# stderr and in one write: prove shows it as it is, and tests that run at the same time do not mix.
ok() {
  result=$?
  count=$((count + 1))
  if [ $result = 0 ]; then
    printf '%s\n' "ok $count - $1"
    return
  fi
  printf '%s\n' "not ok $count - $1"
  report=$(
    printf '%s\n' "# ${0##*/}, test $count: $1"
    [ -z "${2:-}" ] || printf '%s\n' "expected: $2" | sed 's/^/#   /'
    echo "#   status: ${status:-none}"
    [ ! -f "$tmp/out" ] || head -n 40 "$tmp/out" | sed 's/^/#   out: /'
    [ ! -f "$tmp/err" ] || head -n 20 "$tmp/err" | sed 's/^/#   err: /'
  )
  printf '%s\n' "$report" >&2
}

skip() {
  count=$((count + 1))
  printf '%s\n' "ok $count - $1 # SKIP $2"
}

# is NAME GOT WANT
is() {
  [ "$2" = "$3" ]
  ok "$1" "$3
came:     $2"
}

# exits NAME STATUS: the last run's.
exits() {
  [ "$status" = "$2" ]
  ok "$1: exit status $2" "status $2"
}

# out NAME REGEX, err NAME REGEX: a line of the last run matches. no_out: nothing was printed.
out() {
  grep -Eq -- "$2" "$tmp/out"
  ok "$1" "a line of out that matches $2"
}
err() {
  grep -Eq -- "$2" "$tmp/err"
  ok "$1" "a line of err that matches $2"
}
lacks() {
  ! grep -Eq -- "$2" "$tmp/out"
  ok "$1" "no line of out that matches $2"
}
no_out() {
  [ ! -s "$tmp/out" ]
  ok "$1: nothing on stdout" 'an empty out'
}
no_err() {
  [ ! -s "$tmp/err" ]
  ok "$1: nothing on stderr" 'an empty err'
}

# armed PID: waits until that process has its handlers, of which that for SIGHUP comes last.
armed() {
  await grep -q '^Name:.*dma_bandwidth' "/proc/$1/status"
  await grep -Eq '^SigCgt:.*[37bf]$' "/proc/$1/status"
}

# available_gb: whole GB of memory that can be used now.
available_gb() {
  awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo 0
}

done_testing() {
  echo "1..$count"
}
