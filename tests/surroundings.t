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
    SIM_DELAY=60 TERM=$term script -qec "$SIM -s 64K 128K -i 3 -w 1 -n 2>&1 >$tmp/out" "$tmp/typescript" >/dev/null 2>&1
    if [ $term = dumb ]; then
      ! grep -q 'copy [0-9]* of' "$tmp/typescript"
      ok 'no progress on a dumb terminal'
    else
      grep -q 'GPU 0: 64KB H2D pageable, copy [0-9]* of 4' "$tmp/typescript"
      ok 'progress on a terminal'
      lacks 'which is not on stdout' 'copy'
      tail -c 100 "$tmp/typescript" | tr '\r' '\n' | grep -q "$(printf '\033')\\[K\$"
      ok 'and gone before the end'
    fi
  done
  SIM_DELAY=60 TERM=xterm script -qec "$SIM -q -s 64K -i 3 -w 1 -n 2>&1 >$tmp/out" "$tmp/typescript" >/dev/null 2>&1
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
err 'and says so' 'cannot write standard output: (File too large|No space left on device)'
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
(ulimit -u 0 2>/dev/null; "$SIM" -s 64K 4M >"$tmp/out" 2>"$tmp/err")
status=$?
[ "$status" = 0 ] || [ "$status" = 3 ]
ok 'no further processes allowed'

# Control groups, both versions, through files that stand in for the kernel's.
if root; then
  # limited V2|V1 LIMIT USED: runs -s 0.25 0.5 -n with such a limit.
  limited() {
    group=$tmp/group && rm -rf "$group" && mkdir -p "$group/memory/a" "$group/a"
    case $1 in
    v2) line='0::/a' && echo "$2" >"$group/a/memory.max" && echo "$3" >"$group/a/memory.current" &&
      printf 'anon 5\nfile 1\ninactive_file 1000\nactive_file 1000\n' >"$group/a/memory.stat" ;;
    v1) line='4:cpu,memory:/a' && echo "$2" >"$group/memory/a/memory.limit_in_bytes" &&
      echo "$3" >"$group/memory/a/memory.usage_in_bytes" &&
      printf 'cache 5\ntotal_inactive_file 1000\ntotal_active_file 1000\n' >"$group/memory/a/memory.stat" ;;
    esac
    case $1 in v1) line='4:memory:/a' ;; esac
    echo "$line" >"$tmp/cgroup"
    unshare -m sh -c 'mount --bind "$1" /sys/fs/cgroup && exec 3<"$2" && mount --bind "$2" /proc/$$/cgroup 2>/dev/null
      exec "$3" -s 64K 0.25 0.5 -i 1 -w 0 -n' sh "$group" "$tmp/cgroup" "$SIM" >"$tmp/out" 2>"$tmp/err"
    status=$?
  }
  for version in v2 v1; do
    limited $version 1073741824 0
    if grep -q 'control group' "$tmp/err"; then
      exits "$version: 1 GiB, 0.75 and 1 GiB asked" 1
      err "$version: what, and what is left" '0\.5GB H2D pinned: allocating 0\.5GB of pinned host memory: 0\.5 GB are left \(memory limit of its control group\)'
      out "$version: pageable is kept" '^ 0\.5GB  H2D     16\.95 GB/s           -'
      out "$version: the next smaller size is whole" '^ 256MB  H2D     16\.95 GB/s  54\.72'
      limited $version 1073741824 1073741824
      err "$version: nothing left" '64KB H2D pageable: allocating 64KB of pageable host memory: 0\.0 GB are left'
      limited $version max 0
      exits "$version: no limit" 0
    else
      skip "$version" 'no control group could be staged'
    fi
  done
  unshare -m sh -c 'mount -t tmpfs none /proc && exec "$1" -s 64K' sh "$SIM" >"$tmp/out" 2>"$tmp/err"
  status=$?
  if [ -z "$asan" ]; then
    exits 'no /proc' 0
    out 'no /proc' '^ 64KB   D2H     14\.60'
  else
    skip 'no /proc' 'AddressSanitizer needs it'
  fi
else
  skip 'control groups, no /proc' 'needs root and unshare'
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
  err 'a clear refusal' '2\.0GB H2D pageable: allocating 2\.0GB of pageable host memory: [01]\.[0-9] GB are left \(memory limit of its control group\)'
  out 'what fits is measured' '^ 128MB  H2D     16\.95 GB/s  54\.72'
  rmdir "$made"
else
  skip 'a container of 1 GiB' 'no control group can be made here'
fi
done_testing
