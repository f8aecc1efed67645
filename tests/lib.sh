# shellcheck shell=sh
# What the tests share: TAP in plain sh. A test sources this, calls run and the checks, and ends
# with done_testing. SIM is the simulated binary.
here=$(cd "$(dirname "$0")" && pwd)
top=$(dirname "$here")
SIM=${SIM:-$top/build/dma_bandwidth_sim}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
count=0
asan=$(ldd "$SIM" 2>/dev/null | grep asan) # not empty: built with AddressSanitizer
export asan
for variable in $(env | sed -n 's/^\(SIM_[A-Z0-9_]*\)=.*/\1/p'); do unset "$variable"; done

# run ARG...: runs the simulated program; leaves $tmp/out, $tmp/err and $status.
run() {
  "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}

# launch ARG...: runs the simulated program in the background, with SIGINT as from a terminal (a shell's & makes its
# children ignore it); its pid is $pid. It writes to $tmp/out and $tmp/err.
launch() {
  perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' -- "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null &
  pid=$!
}

# ok NAME [EXPECTED]: passes if the command before it succeeded. If not, says what was expected and what came, on
# stderr and in one write: prove shows it as it is, and tests that run at the same time do not mix.
ok() {
  result=$?
  count=$((count + 1))
  if [ $result = 0 ]; then
    echo "ok $count - $1"
    return
  fi
  echo "not ok $count - $1"
  report=$(
    echo "# ${0##*/}, test $count: $1"
    [ -z "${2:-}" ] || printf '%s\n' "expected: $2" | sed 's/^/#   /'
    echo "#   status: ${status:-none}"
    [ ! -f "$tmp/out" ] || head -n 40 "$tmp/out" | sed 's/^/#   out: /'
    [ ! -f "$tmp/err" ] || head -n 20 "$tmp/err" | sed 's/^/#   err: /'
  )
  printf '%s\n' "$report" >&2
}

skip() {
  count=$((count + 1))
  echo "ok $count - $1 # SKIP $2"
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

# armed PID: waits until that process has its handler for SIGINT (before, a shell's & ignores it).
armed() {
  i=0
  while ! grep -Eq '^SigCgt:.*[2367abef]$' "/proc/$1/status" 2>/dev/null && [ $i -lt 200 ]; do
    sleep 0.05
    i=$((i + 1))
  done
}

# available_gb: whole GB of memory that can be used now.
available_gb() {
  awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo 0
}

done_testing() {
  echo "1..$count"
}
