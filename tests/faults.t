#!/bin/sh
# Every call may fail: the Nth CUDA call of a run, for every N; memory, threads and files of libc.
# After each: no signal, no hang, no leak, a closed report, and status 0 only with the right rows.
. "$(dirname "$0")/lib.sh"
have_jq=$(command -v jq)
total=0

# sane: whether the last run may have ended so. $tmp/good holds the rows of an undisturbed run.
sane() {
  [ "$status" -le 4 ] || return 1
  ! grep -Eq 'Sanitizer|runtime error' "$tmp/err" || return 1
  [ "$status" = 0 ] || [ -s "$tmp/err" ] || return 1
  case $format in
  json) if [ -n "$have_jq" ] && [ -s "$tmp/out" ]; then jq -e . "$tmp/out" >/dev/null 2>&1 || return 1; fi ;;
  csv) [ "$(awk -F, '{ print ($0 ~ /"/ ? 20 : NF) }' "$tmp/out" | sort -u | wc -l)" -le 1 ] || return 1 ;;
  esac
  [ "$status" != 0 ] || { rows <"$tmp/out" >"$tmp/rows" && cmp -s "$tmp/rows" "$tmp/good"; }
}

# rows: what must not differ where a run ends with 0.
rows() {
  if [ "$format" = json ]; then tr '{' '\n' | grep -E '^"(bytes|median)"' | sed 's/"samples".*//'; else grep -E '^[ |]+[0-9.]+[KMG]?B[ |]+(H2D|D2H|BiD)|,(H2D|D2H|BiD),'; fi
}

# faults NAME ARG...: all N for one command line.
faults() {
  name=$1
  shift
  format=text
  for argument; do case $argument in json | csv | markdown) format=$argument ;; esac; done
  SIM_CALLS=$tmp/calls run "$@"
  rows <"$tmp/out" >"$tmp/good"
  last=$(cat "$tmp/calls")
  n=0
  bad=
  [ -s "$tmp/good" ] && [ "$last" -gt 50 ] || bad='no calls to fail'
  while [ $n -lt "$last" ]; do
    n=$((n + ${STEP:-1}))
    total=$((total + 1))
    SIM_FAIL=$n timeout 30 "$SIM" "$@" >"$tmp/out" 2>"$tmp/err"
    status=$?
    sane || { bad="$bad $n"; break; }
  done
  [ -z "$bad" ]
  ok "$name: each of $last CUDA calls fails$bad"
}
for format in text markdown csv json; do
  faults "$format" -s 64K 1M -i 2 -w 1 -f $format
done
faults 'bidir' -s 64K 1M -i 2 -w 1 -b
faults 'bidir, untouched, json' -s 64K 1M -i 2 -w 1 -b -u -f json
faults 'explain' -s 64K 1M -i 2 -w 1 -x
faults 'explain, json' -s 64K 1M -i 2 -w 1 -x -f json
faults 'register' -s 64K 1M -i 2 -w 1 -m register
SIM_GPUS=2
export SIM_GPUS
faults 'two GPUs in turn' -s 64K 1M -i 2 -w 1 -d all
faults 'two GPUs at once' -s 64K 1M -i 2 -w 1 -d all -p
faults 'two GPUs at once, json' -s 64K 1M -i 2 -w 1 -d all -p -f json
unset SIM_GPUS
for error in cudaErrorIllegalAddress cudaErrorECCUncorrectable cudaErrorMemoryAllocation; do
  for n in 2 5 9 12; do # the first one only wakes the link
    format=json
    total=$((total + 1))
    SIM_FAIL=cudaMemcpy:$n:$error run -s 64K 1M -i 2 -w 1 -f json
    sane && [ "$status" = 1 ]
    ok "copy $n fails with $error"
  done
done

# The C library's calls.
libc=$(dirname "$SIM")/sim/fail_libc.so
format=text
if [ -f "$libc" ] && [ -z "$asan" ]; then
  for function in malloc pthread_create fopen; do
    for arguments in '-s 64K 2M -i 2 -w 1 -x' '-s 64K 2M -i 2 -w 1 -f json' '-s 64K 2M -i 2 -w 1 -d all -p'; do
      format=text
      case $arguments in *json*) format=json ;; esac
      # shellcheck disable=SC2086
      SIM_GPUS=2 FAIL_LIBC=$function:0 FAIL_LIBC_CALLS=$tmp/calls LD_PRELOAD=$libc "$SIM" $arguments >"$tmp/out" 2>"$tmp/err"
      rows <"$tmp/out" >"$tmp/good"
      last=$(cat "$tmp/calls")
      n=0
      bad=
      [ "$last" -ge 2 ] || bad='no calls to fail'
      while [ $n -lt "$last" ]; do
        n=$((n + 1))
        total=$((total + 1))
        # shellcheck disable=SC2086
        SIM_GPUS=2 FAIL_LIBC=$function:$n LD_PRELOAD=$libc timeout 30 "$SIM" $arguments >"$tmp/out" 2>"$tmp/err"
        status=$?
        sane || { bad="$bad $n"; break; }
      done
      [ -z "$bad" ]
      ok "$function: each of $last calls fails: $arguments$bad"
    done
  done
else
  skip 'the C library' 'not with AddressSanitizer, or not built'
fi
echo "# $total faults"
done_testing
