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
unset SIM_FAIL SIM_RATES SIM_LINK SIM_NAME SIM_GPUS SIM_MEM SIM_JITTER SIM_PIN_LIMIT SIM_CALLS SIM_CORRUPT SIM_STALL \
  SIM_DELAY SIM_DRIVER SIM_INTEGRATED SIM_C2C SIM_NVML_FAIL SIM_CPUS SIM_BUSY

# run ARG...: runs the simulated program; leaves $tmp/out, $tmp/err and $status.
run() {
  "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}

# ok NAME: passes if the command before it succeeded.
ok() {
  result=$?
  count=$((count + 1))
  if [ $result = 0 ]; then echo "ok $count - $1"; else
    echo "not ok $count - $1"
    [ -f "$tmp/out" ] && sed 's/^/# out: /' "$tmp/out" | head -40
    [ -f "$tmp/err" ] && sed 's/^/# err: /' "$tmp/err" | head -20
    echo "# status: ${status:-none}"
  fi
}

skip() {
  count=$((count + 1))
  echo "ok $count - $1 # SKIP $2"
}

# is NAME GOT WANT
is() {
  [ "$2" = "$3" ]
  ok "$1"
  [ "$2" = "$3" ] || printf '# got:  %s\n# want: %s\n' "$2" "$3"
}

# exits NAME STATUS: the last run's.
exits() {
  [ "$status" = "$2" ]
  ok "$1: exit status $2"
}

# out NAME REGEX, err NAME REGEX: a line of the last run matches. no_out: nothing was printed.
out() {
  grep -Eq -- "$2" "$tmp/out"
  ok "$1"
}
err() {
  grep -Eq -- "$2" "$tmp/err"
  ok "$1"
}
lacks() {
  ! grep -Eq -- "$2" "$tmp/out"
  ok "$1"
}
no_out() {
  [ ! -s "$tmp/out" ]
  ok "$1: nothing on stdout"
}
no_err() {
  [ ! -s "$tmp/err" ]
  ok "$1: nothing on stderr"
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
