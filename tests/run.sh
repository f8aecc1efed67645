#!/bin/sh
# make run. Usage: tests/run.sh PROGRAM SIM [OPTION]...
# SIM is the simulated binary where there is no NVIDIA device at all. Where there is one it is empty: a table that was
# not measured would hide why the GPU can't be used.
set -eu
program=$1 sim=$2
shift 2
if [ -z "$sim" ]; then
  # version NAME: the major version of CUDA's runtime or driver, 0 where there is none.
  version() { "$program" --version | sed -n "s/^CUDA $1 *\([0-9]*\)\..*/\1/p" | grep . || echo 0; }
  runtime=$(version runtime) driver=$(version driver)
  if [ "$driver" = 0 ] || [ "$driver" -ge "$runtime" ]; then exec "$program" "$@"; fi
  status=0
  "$program" "$@" || status=$?
  if [ $status = 3 ] && [ "$driver" -ge 11 ]; then
    home=${CUDA_HOME:-${CUDA_PATH:-}} # goes before .cuda/
    echo "To build for this driver: make toolkit CUDA=$driver && make${home:+ CUDA_HOME=.cuda}" >&2
  fi
  exit $status
fi
status=0
reason=$("$program" --list 2>&1 >/dev/null) || status=$?
[ $status = 3 ] || exec "$program" "$@"
echo 'No NVIDIA device here: what follows is simulated, not measured.'
printf '%s\n\n' "$reason" >&2
"$sim" "$@"
cat <<'E'

Simulated: the table has the course's figures, measured from a source buffer that was never written; a real run's pageable
H2D is lower. What --explain adds only shows what it looks like.
E
