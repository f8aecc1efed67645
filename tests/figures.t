#!/bin/sh
# Statistics, summaries and the thresholds of notes: every figure here is computed by hand.
. "$(dirname "$0")/lib.sh"

# SIM_JITTER=j makes the samples' times 1/(1+j), 1/(1-j), 1/(1+j/2), 1/(1-j/2), 1 as long, over and over: rates of 10 GB/s
# become 10(1+j), 10(1-j), 10(1+j/2), 10(1-j/2), 10. Copies count from 0, and the link is woken by copy 1, so without
# warm-up the first sample is 10(1+j/2).
# column NAME: a column of the last run's CSV, by its name, in one line.
column() {
  awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { printf "%s ", $at[name] }' "$tmp/out"
}
rates='pageable.h2d=10,pinned.h2d=10,pageable.d2h=10,pinned.d2h=10'
# near NAME GOT WANT: within 0.1 %, since CUDA's times are floats.
near() {
  awk -v got="$2" -v want="$3" 'BEGIN { exit !(got != "" && got > want * 0.999 - 1e-9 && got < want * 1.001 + 1e-9) }'
  ok "$1" "$3
came:     $2"
}
# With j = 0.4, the first five samples: 12, 8, 10, 14, 6. Deviations from 10: 2, -2, 0, 4, -4: 40 / 4 = 10.
SIM_JITTER=0.4 SIM_RATES=$rates run -s 64K -i 5 -w 0 -f csv
set -- "$(column pageable_gbps)" "$(column pageable_mean_gbps)" "$(column pageable_min_gbps)" "$(column pageable_max_gbps)" "$(column pageable_stddev_gbps)"
near 'five samples: median' "${1%% *}" 10
near 'five samples: mean' "${2%% *}" 10
near 'five samples: min' "${3%% *}" 6
near 'five samples: max' "${4%% *}" 14
near 'five samples: the deviation of samples, by n - 1' "${5%% *}" 3.162278
# Four of them, 12, 8, 10, 14: the middle two are 10 and 12. The next cell: 6, 12, 8, 10.
SIM_JITTER=0.4 SIM_RATES=$rates run -s 64K -i 4 -w 0 -f csv
set -- "$(column pageable_gbps)" "$(column pinned_gbps)" "$(column pageable_mean_gbps)" "$(column ratio)" "$(column delta_gbps)"
near 'four samples: mean of the middle two' "${1%% *}" 11
near 'four samples: in the next cell too' "${2%% *}" 9
near 'four samples: mean' "${3%% *}" 11
near 'ratio is of the medians' "${4%% *}" 0.818182
is 'delta is of the medians' "$(printf '%.2f' "${5%% *}")" -2.00
# Two: 12 and 8, then 10 and 14.
SIM_JITTER=0.4 SIM_RATES=$rates run -s 64K -i 2 -w 0 -f csv
set -- "$(column pageable_gbps)" "$(column pinned_gbps)"
near 'two samples: their mean' "${1%% *}" 10
near 'two samples: their mean, again' "${2%% *}" 12
SIM_JITTER=0.4 SIM_RATES=$rates run -s 64K -i 1 -w 0 -f csv
set -- "$(column pageable_stddev_gbps | tr -d ' ')" "$(column pageable_gbps)" "$(column pageable_min_gbps)"
is 'one sample has no deviation' "$1" ''
near 'one sample is its median' "${2%% *}" 12
near 'one sample is its minimum' "${3%% *}" 12
SIM_RATES=$rates run -s 64K -i 1 -w 0 -f json
is 'nor in JSON' "$(grep -o '"stddev":[^,]*' "$tmp/out" | sort -u)" '"stddev":null'
SIM_JITTER=0.4 SIM_RATES=$rates run -s 64K -i 5 -w 0 -f json
if command -v jq >/dev/null; then
  is 'samples are in the order of the copies' \
    "$(jq -c '[.gpus[0].results[0].pageable.samples[] | . * 10 | round / 10]' "$tmp/out")" '[12,8,10,14,6]'
else
  skip 'samples are in the order of the copies' 'no jq'
fi

# summary DIRECTION: the first block of a summary, in one line.
summary() { sed -n "/^--- Summary ($1/,/^\$/p" "$tmp/out" | sed 's/  */ /g' | tr '\n' '|'; }
# Means are over the rows, of 16 MB and more where there are such.
rates='pageable.h2d=1,pinned.h2d=2,pageable.h2d@16777216=10,pinned.h2d@16777216=40,pageable.h2d@33554432=20,pinned.h2d@33554432=50'
SIM_RATES=$rates run -s 8M 16M 32M -i 1 -w 0
is 'large sizes: 16 MB is one' "$(summary H2D)" '--- Summary (H2D, sizes of 16 MB and more) ---|Pageable: 15.0 GB/s|Pinned: 45.0 GB/s|Ratio: 3.0x||'
SIM_RATES='pageable.h2d=1,pinned.h2d=2,pageable.h2d@16777215=10,pinned.h2d@16777215=40,pageable.h2d@1048576=20,pinned.h2d@1048576=50' \
  run -s 1M 16777215B -i 1 -w 0
is 'a byte less is none: all count' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: 15.0 GB/s|Pinned: 45.0 GB/s|Ratio: 3.0x||'
SIM_RATES=$rates run -s 16M 32M -i 1 -w 0
is 'only large sizes: nothing is left out' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: 15.0 GB/s|Pinned: 45.0 GB/s|Ratio: 3.0x||'
# The ratio is of the means, 30 / 15, not the mean of the ratios 2 / 0.5.
SIM_RATES='pageable.h2d@16777216=10,pinned.h2d@16777216=50,pageable.h2d@33554432=20,pinned.h2d@33554432=10' run -s 16M 32M -i 1 -w 0
is 'ratio of the means' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: 15.0 GB/s|Pinned: 30.0 GB/s|Ratio: 2.0x||'
# One set of rows.
SIM_PIN_LIMIT=67108864 SIM_RATES='pageable.h2d=10,pageable.h2d@134217728=40,pinned.h2d=50' run -s 64M 128M -i 3 -w 1
exits 'pinned memory for the smaller size only' 1
is 'means and ratio over the row that has both' "$(summary H2D)" '--- Summary (H2D, rows with both) ---|Pageable: 10.0 GB/s|Pinned: 50.0 GB/s|Ratio: 5.0x||'
SIM_PIN_LIMIT=1048576 SIM_RATES='pageable.h2d=10,pinned.h2d=50' run -s 1M 32M -i 1 -w 0
is 'a large size that failed does not hide the small one' "$(summary H2D)" '--- Summary (H2D, rows with both) ---|Pageable: 10.0 GB/s|Pinned: 50.0 GB/s|Ratio: 5.0x||'
SIM_MEM=2097152 SIM_RATES='pageable.h2d=10,pinned.h2d=50' run -s 1M 32M -i 1 -w 0
is 'nor one without any cell' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: 10.0 GB/s|Pinned: 50.0 GB/s|Ratio: 5.0x||'
SIM_PIN_LIMIT=0 SIM_RATES='pageable.h2d=10' run -s 1M 2M -i 1 -w 0
is 'without pinned memory: pageable alone' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: 10.0 GB/s|Pinned: -|Ratio: -||'
SIM_COPY='pageable.h2d:none' SIM_RATES='pinned.h2d=50' run -s 1M 2M -i 1 -w 0
is 'without pageable figures: pinned alone' "$(summary H2D)" '--- Summary (H2D) ---|Pageable: -|Pinned: 50.0 GB/s|Ratio: -||'
# Digits that mean something.
SIM_RATES='pinned.h2d=0.004,pageable.h2d=0.002' run -s 1B -i 1 -w 0
out 'small rates' '^ 1B     H2D .*0\.0020 GB/s .*0\.0040 GB/s +2\.0x +\+0\.0020 GB/s$'

# Notes. Spread: stddev / mean, above 10 %. Of two samples a and b it is 1.41421 |a - b| / (a + b). With -i 2 -w 0 the third
# cell, D2H pageable, has 10(1-j) and 10(1+j/2), most of all: 1.06066 j / (1 - j/4). j = 0.092: 9.99 %; 0.0925: 10.04 %.
SIM_JITTER=0.092 run -s 64K -i 2 -w 0
lacks 'a spread of 9.99 %' '^note: '
SIM_JITTER=0.0925 run -s 64K -i 2 -w 0
is 'a spread of 10.04 %, one cell' "$(grep '^note:' "$tmp/out")" \
  'note: 1 cell spread over 10 % of the mean, 64KB D2H pageable most (10 %): quiet the host or raise --iters above 2'
# j = 0.2. 11, 9: 14 %; 10, 12: 13 %; 8, 11: 22 %; 9, 10: 7 %.
SIM_JITTER=0.2 run -s 64K -i 2 -w 0
is 'which cell spreads most' "$(grep '^note:' "$tmp/out")" \
  'note: 3 cells spread over 10 % of the mean, 64KB D2H pageable most (22 %): quiet the host or raise --iters above 2'
SIM_JITTER=0.2 run -s 64K -i 2 -w 0 -f csv
is 'csv: notes on stderr' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: note: 3 cells spread over 10 % of the mean, 64KB D2H pageable most (22 %): quiet the host or raise --iters above 2'
SIM_JITTER=0.3 run -s 64K -i 1
lacks 'one sample does not spread' '^note:'

for case in 35,2 10,0 100,0 0,1 9,1; do
  SIM_BUSY=$case run -s 64K -i 1 -w 0
  others=${case#*,}
  is "busy $case" "$(grep '^note:' "$tmp/out")" \
    "note: the GPU was in use before the run (utilisation ${case%,*} %, $others other process$([ "$others" = 1 ] || echo es)): repeat when it is idle"
done
for case in 9,0 0,0 101,0; do
  SIM_BUSY=$case run -s 64K -i 1 -w 0
  lacks "not busy: $case" '^note:'
done
SIM_BUSY=35,2 SIM_NVML_FAIL=nvmlDeviceGetUtilizationRates run -s 64K -i 1 -w 0
out 'utilisation that is not told' '\(utilisation 0 %, 2 other processes\)'

# BiD: pageable copies that do not overlap get a word.
SIM_RATES='pageable.h2d=10,pageable.d2h=10' run -s 1M -b -i 1 -w 0
out 'BiD pageable at 10 GB/s' '^note: BiD pageable is hardly faster than one direction, as if the driver copied one call after the other$'
run -s 1M -i 1 -w 0
lacks 'not without BiD' '^note:'

# After Ctrl-C: how many rows there are. The signal comes in the second of two.
SIM_DELAY=10 SIM_ORDER=$tmp/order launch -s 64K -i 30 -w 0
i=0
until grep -q 'd2h pageable' "$tmp/order" 2>/dev/null || [ $i -gt 1000 ]; do
  sleep 0.005
  i=$((i + 1))
done
kill -INT "$pid"
wait "$pid"
status=$?
if [ "$(grep -c 'copy-end d2h' "$tmp/order")" -lt 60 ]; then
  exits 'Ctrl-C in the second of two rows' 130
  out 'one of them is whole' '^note: interrupted: 1 of 2 rows are whole, one holds fewer copies$'
else
  skip 'Ctrl-C in the second of two rows' 'it came too late'
  skip 'one of them is whole' 'it came too late'
fi
done_testing
