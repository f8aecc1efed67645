#!/bin/sh
# Memory errors and leaks, through valgrind.
. "$(dirname "$0")/lib.sh"
if ! command -v valgrind >/dev/null || [ -n "$asan" ]; then
  skip 'valgrind' 'not here, or not with AddressSanitizer'
  done_testing
  exit
fi
SIM_GPUS=2
export SIM_GPUS
for arguments in '-s 4K 2M -i 2 -w 1' '-s 4K 64K -i 2 -w 1 -d all -p -b -x -u -f json' '-s 4K -i 2 -m register -f markdown' \
  '-s 4K -i 1 -f csv -m write-combined' '-l' '--help' '-s x' '-s 1024T' "-s 4K 8K -c $tmp/chart.svg -t 99"; do
  # shellcheck disable=SC2086
  valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect,possible \
    --errors-for-leak-kinds=definite,indirect,possible "$SIM" $arguments >"$tmp/out" 2>"$tmp/err"
  status=$?
  [ $status -lt 99 ]
  ok "$arguments"
done
SIM_FAIL=cudaMemcpy:7 valgrind --quiet --error-exitcode=99 --leak-check=full "$SIM" -s 4K 8K -i 2 >"$tmp/out" 2>"$tmp/err"
status=$?
exits 'after an error that sticks' 1
done_testing
