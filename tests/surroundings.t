#!/bin/sh
# Odd surroundings: what a container, a cron job or a broken machine looks like.
. "$(dirname "$0")/lib.sh"
root() { [ "$(id -u)" = 0 ] && command -v unshare >/dev/null && unshare -m true 2>/dev/null; }

env -i "$SIM" -s 64K >"$tmp/out" 2>"$tmp/err"
status=$?
exits 'an empty environment, HOME unset' 0
out 'an empty environment' '^ 64KB   D2H'
TERM=dumb run -s 64K
exits 'TERM=dumb' 0
if command -v script >/dev/null && script -qec true "$tmp/typescript" >/dev/null 2>&1 && [ -f "$tmp/typescript" ]; then
  for term in dumb xterm; do
    SIM_DELAY=60 TERM=$term script -qec "\"$SIM\" -s 64K 128K -i 3 -w 1 -n 2>&1 >$tmp/out" "$tmp/typescript" >/dev/null 2>&1
    if [ $term = dumb ]; then
      ! grep -q 'copy [0-9]* of' "$tmp/typescript"
      ok 'no progress on a dumb terminal'
    else
      grep -q 'GPU 0: 64KB H2D pageable, copy [0-9]* of 4' "$tmp/typescript"
      ok 'progress on a terminal'
      ! grep -Eq 'copy (0|-[0-9]+|[5-9]) of' "$tmp/typescript"
      ok 'copies are counted from 1'
      grep -q 'GPU 0: setting up' "$tmp/typescript"
      ok 'progress while a GPU is set up'
      lacks 'which is not on stdout' 'copy'
      tail -c 100 "$tmp/typescript" | tr '\r' '\n' | grep -q "$(printf '\033')\\[K\$"
      ok 'and gone before the end'
    fi
  done
  for columns in 40 2 1; do
    SIM_DELAY=60 TERM=xterm script -qec "stty cols $columns; \"$SIM\" -s 64K -i 2 -w 0 -n 2>&1 >$tmp/out" "$tmp/typescript" >/dev/null 2>&1
    widest=$(sed 1d "$tmp/typescript" | tr '\r' '\n' | sed -n "s/^$(printf '\033')\[K\(.*\)/\1/p" | awk '{ if (length > n) n = length } END { print n }')
    is "a terminal of $columns columns is not filled" "$widest" "$([ "$columns" = 1 ] || echo $((columns - 1)))"
  done
  SIM_DELAY=60 TERM=xterm script -qec "\"$SIM\" -q -s 64K -i 3 -w 1 -n 2>&1 >$tmp/out" "$tmp/typescript" >/dev/null 2>&1
  ! grep -q 'copy' "$tmp/typescript"
  ok 'no progress with --quiet'
else
  skip 'progress' 'no script(1), or no terminal for it'
fi
run -s 64K
no_err 'no progress where stderr is no terminal'

mkdir "$tmp/closed" && chmod 555 "$tmp/closed"
(cd "$tmp/closed" && "$SIM" -s 64K) >"$tmp/out" 2>"$tmp/err"
status=$?
exits 'a read-only folder' 0
(ulimit -f 2 && "$SIM" -s 1B:1M -i 1 -f csv >"$tmp/out" 2>"$tmp/err")
status=$?
exits 'a disk that fills in the middle' 1
err 'and says so' 'standard output can.t be written: (File too large|No space left on device)'
"$SIM" -s 64K 1M >"$tmp/one" 2>&1 &
"$SIM" -s 64K 1M >"$tmp/two" 2>&1
wait $!
cmp -s "$tmp/one" "$tmp/two"
ok 'two runs at once'
if command -v taskset >/dev/null; then
  taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "$SIM" -s 64K 4M >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits 'one CPU' 0
  out 'one CPU' '^ 4MB    D2H     14\.60'
fi
if [ -z "$asan" ]; then # whose frames are larger
  (ulimit -s 256 && exec "$SIM" -s 64K -x -m staged -T 4 -o "$tmp/small.json" -o "$tmp/small.svg") >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits 'a stack of 256 KB' 0
fi
(ulimit -u 0 2>/dev/null; exec "$SIM" -s 64K 4M) >"$tmp/out" 2>"$tmp/err"
status=$?
exits 'no further processes allowed: memory is written by one thread' 0
out 'no further processes allowed' '^ 4MB    D2H     14\.60 GB/s  46\.75'

# Files that stand in for the kernel's. staged FILE OVER ARG...: runs with FILE bound over OVER; status 77 if it can't be.
staged() {
  unshare -m sh -c 'mount --bind "$1" "$2" && cmp -s "$1" "$2" || exit 77
    shift 2
    exec "$0" "$@"' "$SIM" "$@" >"$tmp/out" 2>"$tmp/err"
  status=$?
}
if root; then
  limits='-s 64K -i 1 -w 0'
  # WSL2: what caps pinned memory there is said where it can't be had, and only there.
  for case in '5.15.167.4-microsoft-standard-WSL2|yes' '4.4.0-19041-Microsoft|yes' '6.8.0-generic|no'; do
    echo "${case%|*}" >"$tmp/release"
    # shellcheck disable=SC2086
    SIM_PIN_LIMIT=0 staged "$tmp/release" /proc/sys/kernel/osrelease $limits
    [ $status != 77 ] || { skip "${case%|*}" 'no file can be bound over osrelease'; continue; }
    exits "${case%|*}" 1
    is "${case%|*}: WSL2 is named" "$(grep -c '; WSL2 caps pinned memory$' "$tmp/err")" "$([ "${case#*|}" = yes ] && echo 1 || echo 0)"
  done
  echo 5.15.167.4-microsoft-standard-WSL2 >"$tmp/release"
  # shellcheck disable=SC2086
  SIM_MEM=10 staged "$tmp/release" /proc/sys/kernel/osrelease $limits
  [ $status = 77 ] || { ! grep -q WSL2 "$tmp/err"; ok 'not of other memory' 'no word of WSL2'; }

  # A virtual machine's guest can't reseat a card.
  for case in 'fpu vme hypervisor lahf_lm|ask who runs the host of this virtual machine to check slot and BIOS' \
    'fpu vme lahf_lm|reseat the card, check its slot, riser and the BIOS settings'; do
    printf 'processor\t: 0\nmodel name\t: A CPU @ 3.0GHz\nflags\t\t: %s\n' "${case%|*}" >"$tmp/cpuinfo"
    # shellcheck disable=SC2086
    SIM_LINK=5x16/4x16 SIM_RATES='pinned.h2d=20,pinned.d2h=20' staged "$tmp/cpuinfo" /proc/cpuinfo $limits
    [ $status != 77 ] || { skip "${case%|*}" 'no file can be bound over cpuinfo'; continue; }
    is "flags ${case%|*}: the remedy" "$(grep '^note:' "$tmp/out")" \
      "note: the link ran at Gen4 x16 under load, GPU and slot can do Gen5 x16: ${case#*|}"
  done
  # 20 KB of it, with and without the lines that are looked for; a name of 300 characters.
  awk 'BEGIN { for (i = 0; i < 40; i++) { printf "processor\t: %d\nmodel name\t: A CPU @ 3.0GHz\nflags\t\t:", i
    for (j = 0; j < 90; j++) printf " flag%d", j; print "" } }' >"$tmp/cpuinfo"
  # shellcheck disable=SC2086
  staged "$tmp/cpuinfo" /proc/cpuinfo $limits -f json
  if [ $status = 77 ]; then
    skip '/proc/cpuinfo' 'no file can be bound over it'
  else
    exits '20 KB of /proc/cpuinfo' 0
    out '20 KB of /proc/cpuinfo: the CPU' '"cpu":"A CPU @ 3\.0GHz"'
    head -c 20000 /dev/zero | tr '\0' 'x' >"$tmp/cpuinfo"
    # shellcheck disable=SC2086
    staged "$tmp/cpuinfo" /proc/cpuinfo $limits -f json
    exits '20 KB without a line' 0
    out '20 KB without a line: no CPU' '"cpu":null'
    { printf 'model name\t: ' && head -c 300 /dev/zero | tr '\0' 'n' && echo; } >"$tmp/cpuinfo"
    # shellcheck disable=SC2086
    staged "$tmp/cpuinfo" /proc/cpuinfo $limits -f json
    exits 'a name of 300 characters' 0
    out 'a name of 300 characters is cut' '"cpu":"n{127}"'
    : >"$tmp/cpuinfo"
    # shellcheck disable=SC2086
    staged "$tmp/cpuinfo" /proc/cpuinfo $limits -f json
    exits 'an empty /proc/cpuinfo' 0
  fi

  # Memory is written by threads on the CPUs of the memory node where it is copied, and by no others.
  libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
  cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
  list=/sys/devices/system/node/node0/cpulist
  if [ -f "$libc" ] && [ -z "$asan" ] && [ -f $list ] && [ "$(nproc)" -ge 2 ] && [ ! -d /sys/devices/system/node/node1 ]; then
    own=$(sed -n 's/^Cpus_allowed_list:[^0-9]*\([0-9]*\).*/\1/p' /proc/self/status)
    for case in "$own|0" "$(cat $list)|yes"; do
      echo "${case%|*}" >"$tmp/cpulist"
      FAIL_LIBC=pthread_create:0 FAIL_LIBC_CALLS=$tmp/calls LD_PRELOAD=$libc staged "$tmp/cpulist" $list -s 4M -i 1 -w 0 -a
      [ $status != 77 ] || { skip "CPUs ${case%|*}" 'no file can be bound over the list'; continue; }
      exits "a memory node with the CPUs ${case%|*}" 0
      case ${case#*|} in 0) [ "$(cat "$tmp/calls")" = 0 ] ;; *) [ "$(cat "$tmp/calls")" -gt 0 ] ;; esac
      ok "a memory node with the CPUs ${case%|*}: threads" "${case#*|}
came:     $(cat "$tmp/calls")"
    done
  else
    skip 'memory nodes' 'needs two CPUs on one node, and fail_libc.so'
  fi

  unshare -m sh -c 'mount -t tmpfs none /proc && exec "$1" -s 64K' sh "$SIM" >"$tmp/out" 2>"$tmp/err"
  status=$?
  if [ -z "$asan" ]; then
    exits 'no /proc' 0
    out 'no /proc' '^ 64KB   D2H     14\.60'
  else
    skip 'no /proc' 'AddressSanitizer needs it'
  fi
else
  skip 'files that stand in for the kernel'"'"'s, no /proc' 'needs root and unshare'
fi
# A real control group of version 1 or 2, where this test may make one.
made=
for parent in /sys/fs/cgroup/memory /sys/fs/cgroup; do
  group=$parent/dma_bandwidth_test_$$
  if [ -z "$made" ] && mkdir "$group" 2>/dev/null; then
    for file in memory.limit_in_bytes memory.max; do # whichever the kernel has put there
      if [ -f "$group/$file" ] && echo 1073741824 2>/dev/null >"$group/$file"; then made=$group; fi
    done
    [ -n "$made" ] || rmdir "$group"
  fi
done
if [ -n "$made" ]; then
  sh -c 'echo $$ >"$1/cgroup.procs" && exec "$2" -s 0.125 2 -i 1 -w 0' sh "$made" "$SIM" >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits 'a container of 1 GiB, 2 GB asked' 1
  err 'a clear refusal' '^dma_bandwidth: GPU 0: allocating 2\.0GB of pinned host memory: 4096 MB are needed with the other buffers of that size and 64 MB kept back, (9[0-9][0-9]|10[012][0-9]) MB are left \(memory limit of its control group\); try smaller --sizes$'
  out 'what fits is measured' '^ 128MB  H2D     16\.95 GB/s  54\.72'
  rmdir "$made"
else
  skip 'a container of 1 GiB' 'no control group can be made here'
fi
done_testing
