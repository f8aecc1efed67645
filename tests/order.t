#!/bin/sh
# The order and the number of copies, and of all that stands around them.
. "$(dirname "$0")/lib.sh"

# letters ARG...: runs, and prints a letter for each CUDA call: A alloc, F free, P pin, U unpin, s spoil, c check, w put
# (good data on the device), R record, y sync, b and e a copy's begin and end. cudaSetDevice is left out.
letters() {
  rm -f "$tmp/order"
  SIM_ORDER=$tmp/order run "$@"
  awk 'BEGIN { split("alloc A free F pin P unpin U spoil s check c put w record R sync y copy-begin b copy-end e", w)
      for (i = 1; i in w; i += 2) letter[w[i]] = w[i + 1] }
    $3 in letter { printf "%s", letter[$3] }' "$tmp/order"
}
# matches NAME REGEX GOT
matches() {
  printf '%s\n' "$3" | grep -Eq "^$2\$"
  ok "$1" "$2
came:     $3"
}

cell='(RbeRy){5}' # a copy between two events, the second of which is waited for
matches 'H2D: spoil, 2 + 3 copies, check; D2H: good data, 2 + 3 copies' \
  "AP(be)+(s+y${cell}c+){2}(w+y$cell){2}[UF]+" "$(letters -s 64K -i 3 -w 2)"
matches 'without warm-up' 'AP(be)+(s+yRbeRyc+){2}(w+yRbeRy){2}[UF]+' "$(letters -s 64K -i 1 -w 0)"
matches 'without a check' 'AP(be)+(RbeRy){20}[UF]+' "$(letters -s 64K -i 3 -w 2 -n)"
matches 'BiD: both halves between two events' \
  'AP(be)+(s+y(RbeRy){2}c+){2}(w+y(RbeRy){2}){2}([sw]+y(RbebeRy){2}c+){2}[UF]+' "$(letters -s 64K -i 1 -w 1 -b)"
matches 'buffers are got once, for all sizes' 'AP[^AP]+' "$(letters -s 64K 1M 128K -i 1 -w 0)"
matches 'staged copies: between two events too' 'AP(be)+s+yRbeRyc+s+yRy*beRy+Ryc+w+yRbeRyw+yRy*beRy+Ry[UF]+' "$(letters -s 64K -i 1 -w 0 -m staged -T 1)"
letters -s 64K 1M -i 3 -w 2 >/dev/null
is 'copies of each cell' "$(grep copy-end "$tmp/order" | sort | uniq -c | awk '{ print $1, $5, $6, $7 }' |
  grep -v 'h2d pinned 1048576')" '5 d2h pageable 1048576
5 d2h pageable 65536
5 d2h pinned 1048576
5 d2h pinned 65536
5 h2d pageable 1048576
5 h2d pageable 65536
5 h2d pinned 65536'
letters -s 64K 1M -i 7 -w 0 -n >/dev/null
is 'and with other numbers' "$(grep -c 'copy-end d2h pinned 65536' "$tmp/order")" 7
run -s 64K -i 7 -w 2 -f json
if command -v jq >/dev/null; then
  is 'warm-ups leave no samples' "$(jq -c '[.gpus[0].results[][] | objects | .samples | length]' "$tmp/out")" '[7,7,7,7]'
else
  skip 'warm-ups leave no samples' 'no jq'
fi

# Several GPUs at once, one five times as slow as the other.
# audit WARMUP ITERS GPUS: reads $tmp/order and prints what is wrong: anything but copies, events and their waiting while
# another GPU copies; a timed copy that begins before all GPUs of its cell have made their warm-ups; missing copies.
audit() {
  awk -v warmup="$1" -v iters="$2" -v gpus="$3" '
    $3 == "copy-begin" && !waking[$2] { waking[$2] = 1; skip[$2] = 1; busy[$2] = 1; next }
    $3 == "copy-end" && skip[$2] { skip[$2] = 0; busy[$2] = 0; next }
    $3 == "copy-begin" {
      class = $4 " " $5 " " $6
      n = ++begun[class, $2]
      if (n == warmup + 1)
        for (g = 0; g < gpus; g++) if (ended[class, g] + 0 < warmup) print "GPU " $2 " did not wait for GPU " g ": " class
      busy[$2] = 1
      for (g in busy) if (g != $2 && busy[g]) together = 1
      next
    }
    $3 == "copy-end" { ended[$4 " " $5 " " $6, $2]++; busy[$2] = 0; next }
    $3 ~ /^(alloc|free|pin|unpin|spoil|check|put)$/ { for (g in busy) if (g != $2 && busy[g]) print $0 " while GPU " g " copies" }
    END {
      for (c in ended) { cells++; if (ended[c] != warmup + iters) print c ": " ended[c] " copies" }
      if (cells != 4 * gpus) print cells " cells"
      print together ? "together" : "never together"
    }' "$tmp/order"
}
for try in 1 2 3; do # the copies are at the same moment, however busy this machine is
  rm -f "$tmp/order"
  SIM_GPUS=2 SIM_DELAY=10,50 SIM_ORDER=$tmp/order run -s 64K -i 3 -w 1 -d all -p
  result=$(audit 1 3 2)
  case $result in *never*) ;; *) break ;; esac
done
is "--parallel: copies together, nothing else (try $try)" "$result" together
rm -f "$tmp/order"
SIM_GPUS=3 SIM_DELAY=1,5,2 SIM_ORDER=$tmp/order run -s 64K -i 2 -w 2 -d all -p
is '--parallel, three GPUs' "$(audit 2 2 3 | grep -v together)" ''
rm -f "$tmp/order"
SIM_GPUS=2 SIM_DELAY=5,1 SIM_ORDER=$tmp/order run -s 64K -i 2 -w 1 -d all
is 'in turn: never together' "$(audit 1 2 2 | tail -n 1)" 'never together'
rm -f "$tmp/order"
SIM_GPUS=2 SIM_DELAY=1,5 SIM_ORDER=$tmp/order run -s 64K -i 1 -w 0 -d all -p -x -m register -T 1
is '--parallel with --explain and --pin register: nothing beside a copy' "$(
  awk '$3 == "copy-begin" { busy[$2] = 1 } $3 == "copy-end" { busy[$2] = 0 }
    $3 ~ /^(alloc|free|pin|unpin|spoil|check|put)$/ { for (g in busy) if (g != $2 && busy[g]) print }' "$tmp/order"
)" ''
# A GPU that fails in its warm-up does not hold up the others, nor let them begin early.
SIM_FAIL=cudaMemcpy:1:cudaErrorIllegalAddress run -s 64K 1M -i 1 -w 0
is 'a GPU that is lost while its link is woken: told once' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: waking the link: cudaErrorIllegalAddress (an illegal memory access was encountered)'
SIM_GPUS=2 SIM_FAIL=cudaMemcpy:2@1 timeout -s KILL 20 "$SIM" -s 64K -i 2 -w 2 -d all -p >"$tmp/out" 2>"$tmp/err"
status=$?
exits 'a warm-up that fails' 1
is 'costs that GPU alone' "$(grep -c 'GPU 0' "$tmp/err")" 0
done_testing
