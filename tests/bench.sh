#!/bin/sh
# make bench: measures the program on a GPU machine. It prints figures and judges nothing.
# Wall time against the copies' own time (timed copies are known, warm-up copies are counted at the same rate) and
# against what the driver alone costs (tests/bare.c: start, context, buffers of 2 GB got and given back, exit); peak
# memory, build time, size, spread; staged copies; side by side with nvbandwidth if it is on PATH.
set -u
program=${PROGRAM:-./dma_bandwidth}
runs=${RUNS:-5}
bare=${BARE:-build/bare}
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

now() { date +%s.%N; }
since() { awk "BEGIN { printf \"%.2f\", $(now) - $1 }"; }

# measure ARG...: runs the program with -f json; sets wall (s), peak (MB) and copies (s).
measure() {
  begin=$(now)
  "$program" -f json "$@" >"$tmp/json" 2>"$tmp/err" &
  pid=$!
  # VmHWM only grows, so the last look is the peak.
  while sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$pid/status" 2>/dev/null; do sleep 0.05; done >"$tmp/peak" &
  wait $pid || { cat "$tmp/err" >&2; exit 1; }
  wall=$(since "$begin")
  peak=$(awk 'NF { last = $1 } END { print int(last / 1024) }' "$tmp/peak")
  copies=$(awk 'BEGIN { RS = "\"bytes\":" }
    match($0, /"iters":[0-9]+,"warmup":[0-9]+/) { split(substr($0, RSTART, RLENGTH), s, /[:,]/); scale = (s[2] + s[4]) / s[2] }
    NR > 1 { bytes = $0 + 0
      while (match($0, /"samples":\[[^]]*\]/)) {
        n = split(substr($0, RSTART + 11, RLENGTH - 12), rate, ",")
        for (i = 1; i <= n; i++) total += bytes / 1e9 / rate[i]
        $0 = substr($0, RSTART + RLENGTH)
      } }
    END { printf "%.2f", total * scale }' "$tmp/json")
}

# summary DIRECTION KIND: from the last JSON.
summary() {
  sed -n "s/.*\"summary\":{.*\"$1\":{\"pageable\":\([^,]*\),\"pinned\":\([^,]*\),.*/\1 \2/p" "$tmp/json" |
    awk -v kind="$2" '{ print kind == "pageable" ? $1 : $2 }'
}

date -u '+%Y-%m-%d %H:%M UTC'
"$program" --list || exit 3
"$program" --version
begin=$(now)
make --silent --always-make all >/dev/null 2>&1
echo "build: $(since "$begin") s; binary: $(wc -c <"$program") bytes"

echo "default run, $runs times:"
i=0
while [ $i -lt "$runs" ]; do
  i=$((i + 1))
  begin=$(now)
  "$bare" 2147483648 || exit 1
  driver=$(since "$begin")
  measure
  echo "$wall $copies $peak $(summary H2D pageable) $(summary H2D pinned) $(summary D2H pageable) $(summary D2H pinned) $driver" |
    tee -a "$tmp/runs" | awk '{ printf "  wall %.2f s = copies %.2f + bare driver %.2f + %.2f (%.1f %% of the wall); peak %d MB; H2D %.2f %.2f, D2H %.2f %.2f GB/s\n",
      $1, $2, $8, $1 - $2 - $8, 100 * ($1 - $2 - $8) / $1, $3, $4, $5, $6, $7 }'
done
awk '{ for (k = 4; k <= 7; k++) { if (NR == 1 || $k < low[k]) low[k] = $k; if (NR == 1 || $k > high[k]) high[k] = $k } }
  END { printf "  spread (max - min) / max: pageable H2D %.1f %%, pinned H2D %.2f %%, pageable D2H %.1f %%, pinned D2H %.2f %%\n",
    100 * (1 - low[4] / high[4]), 100 * (1 - low[5] / high[5]), 100 * (1 - low[6] / high[6]), 100 * (1 - low[7] / high[7]) }' "$tmp/runs"

begin=$(now)
"$program" --list >/dev/null
echo "where the rest goes: driver and NVML started: $(since "$begin") s"
measure -s 1K -i 1 -w 0
echo "  with context, and its end: $wall s"
measure -s 2 -i 1 -w 0
awk "BEGIN { printf \"  with buffers of 2 GB, got, written and given back: %.2f s beside %.2f s of copies\\n\", $wall - $copies, $copies }"
measure -s 0.5 -i 3
echo "short run, --sizes 0.5 --iters 3: $wall s"

measure -s 1
pinned="$(summary H2D pinned) $(summary D2H pinned)"
measure -s 1 -m staged
echo "$(summary H2D pinned) $(summary D2H pinned) $pinned" | awk '{
  printf "staged, 1 GB: H2D %.1f GB/s, %.0f %% of pinned; D2H %.1f GB/s, %.0f %%\n", $1, 100 * $1 / $3, $2, 100 * $2 / $4 }'

if command -v nvbandwidth >/dev/null; then
  i=0
  while [ $i -lt 5 ]; do
    i=$((i + 1))
    begin=$(now)
    nvbandwidth -t host_to_device_memcpy_ce device_to_host_memcpy_ce >"$tmp/nv" 2>&1
    theirs=$(since "$begin")
    measure -s 0.5 -i 3
    echo "pair $i: nvbandwidth $(awk '$1 == "SUM" { printf "%s ", $NF }' "$tmp/nv")in $theirs s;" \
      "dma_bandwidth $(summary H2D pinned) $(summary D2H pinned) in $wall s"
  done
else
  echo 'nvbandwidth is not on PATH: no pairs'
fi
