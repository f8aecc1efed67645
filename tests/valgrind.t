#!/bin/sh
# Memory errors and leaks, through valgrind.
. "$(dirname "$0")/lib.sh"
if ! command -v valgrind >/dev/null || [ -n "$asan" ]; then
  skip 'valgrind' 'not here, or not with AddressSanitizer'
  done_testing
  exit
fi

# clean STATUS ARG...: a run with that exit status, in which valgrind finds nothing.
clean() {
  want=$1
  shift
  timeout -s KILL 120 valgrind --quiet --error-exitcode=99 --leak-check=full --show-leak-kinds=definite,indirect,possible \
    --errors-for-leak-kinds=definite,indirect,possible "$SIM" "$@" >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits "${SIM_FAIL:+$SIM_FAIL, }${SIM_COPY:+$SIM_COPY, }$*" "$want"
  is 'valgrind finds nothing' "$(grep '^==' "$tmp/err" | head -n 20)" ''
}
SIM_GPUS=2
export SIM_GPUS
clean 0 -s 4K 2M -i 2 -w 1
clean 0 -s 64K 128K -i 1 -w 1 -d all -p -b -u -f json
clean 0 -s 4K -i 1 -w 0 -x -T 2
clean 0 -s 4K -i 2 -m register -f markdown
clean 0 -s 4K -i 1 -f csv -m write-combined
clean 0 -s 4K 5M 1048583B -i 2 -w 0 -m staged -T 2
clean 0 -s 4K 8K -o "$tmp/chart.svg" -o "$tmp/file.json" -o "$tmp/file.csv" -o "$tmp/file.md"
clean 4 -s 4K -t 99
clean 0 -l
clean 0 -l -f json
clean 0 --help
clean 2 -s x
clean 1 -s 1024T
SIM_MEM=4194304 SIM_OVERSELL=1 clean 0 -s 4K 3M -i 1 -w 0
SIM_FAIL=cudaMemcpy:7 clean 1 -s 4K 8K -i 2
SIM_FAIL=cudaStreamCreate:2 clean 3 -s 4K
SIM_FAIL=cudaMemcpyAsync:2 clean 1 -s 4K -i 2 -m staged -T 2
SIM_COPY=h2d:half clean 1 -s 4K 5000B -i 1 -w 0 -b
SIM_GPUS=0 clean 3 -s 4K -f json
done_testing
