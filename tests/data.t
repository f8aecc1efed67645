#!/bin/sh
# Wrong data and wrong times fail the cell; right data passes wherever it comes from.
. "$(dirname "$0")/lib.sh"

# Copies with -i 1 -w 0: 1 wakes the link, 2 and 3 are H2D, 4 is D2H pageable, 5 is D2H pinned.
for bytes in 1B 7B 8B 100B 4K 5000B 1M 1048583B 3M; do
  SIM_CORRUPT=4 run -s $bytes -i 1 -w 0
  exits "corrupt pageable D2H of $bytes" 1
  err "it names GPU, size, direction and offset" 'GPU 0, .* D2H pageable: data mismatch at offset [0-9]+'
  SIM_CORRUPT=5 run -s $bytes -i 1 -w 0
  err "corrupt pinned D2H of $bytes" 'D2H pinned: data mismatch at offset [0-9]+'
  run -s $bytes -i 1 -w 0 -b
  exits "clean run of $bytes with BiD" 0
done
SIM_CORRUPT=4 run -s 1M 2M -i 1 -w 0 -f csv
is 'one row of four fails' "$(grep -c ',ok$' "$tmp/out")" 3
SIM_CORRUPT=3 run -s 1M -i 1 -w 0
err 'corruption on the way in is seen on the way out' 'D2H pageable: data mismatch at offset 1048568'
SIM_CORRUPT=4 run -s 1M -i 1 -w 0 -n
exits 'no check with --no-verify' 0
SIM_CORRUPT=7 run -s 1M -i 1 -w 0 -b
err 'BiD is checked' 'BiD pageable: data mismatch at offset 1048568'

for n in 1 2 3 4; do
  SIM_STALL=$n run -s 1M -i 1 -w 0
  exits "elapsed time $n reads zero" 1
  err 'and says so' 'the elapsed time of a copy reads 0 ms'
done
SIM_STALL=3 run -s 1M -w 5 -i 1
exits 'a stalled warm-up copy counts too' 1
lacks 'no figure of a failed cell' 'inf|nan'

for sizes in '64K' '1M 64K' '64K 1M 3M'; do
  # shellcheck disable=SC2086
  run -u -s $sizes -i 2 -w 1 -b
  exits "--untouched $sizes: the check still works" 0
  # shellcheck disable=SC2086
  SIM_PIN_LIMIT=0 run -u -s $sizes -i 2 -w 1
  lacks "--untouched $sizes without pinned memory: no mismatch" 'mismatch'
  err 'only pinned fails' 'pinned'
done
SIM_CORRUPT=4 run -u -s 1M -i 1 -w 0
err '--untouched: a mismatch is seen' 'D2H pageable: data mismatch'
run -m register -s 64K 1M
exits 'register' 0
run -m write-combined -s 64K 1M
exits 'write-combined' 0
SIM_CORRUPT=4 SIM_STALL=4 run -s 1M -i 1 -w 0
is 'each failure is told' "$(wc -l <"$tmp/err")" 2
run -s 1M 2M -i 1 -w 0
no_err 'no failure'
done_testing
