#!/bin/sh
# Wrong data and wrong times fail exactly the cells whose copies went wrong, at the lowest offset that shows it.
. "$(dirname "$0")/lib.sh"

# dashes: the cells of the last run that have no figure, as "1MB H2D pageable" lines. In text, a figure is two words.
dashes() {
  awk '$2 ~ /^(H2D|D2H|BiD)$/ {
    i = 3
    for (k = 1; k <= 2; k++) {
      if ($i == "-") print $1, $2, k == 1 ? "pageable" : "pinned"
      i += $i == "-" ? 1 : 2
    }
  }' "$tmp/out"
}

# faulty RULE ARGS [CELL@OFFSET...]: with these faulty copies, exactly these cells fail, and each is told with its offset.
faulty() {
  rule=$1
  arguments=$2
  shift 2
  # shellcheck disable=SC2086
  SIM_COPY=$rule run $arguments
  : >"$tmp/cells"
  : >"$tmp/told"
  for failed; do
    echo "${failed%@*}" >>"$tmp/cells"
    echo "dma_bandwidth: GPU 0: ${failed%@*}: data mismatch at offset ${failed#*@}" >>"$tmp/told"
  done
  is "$rule, $arguments: the cells that fail" "$(dashes | sort)" "$(sort "$tmp/cells")"
  is "$rule, $arguments: what is told" "$(sort "$tmp/err")" "$(sort "$tmp/told")"
  exits "$rule, $arguments" $(($# > 0))
}
once='-i 1 -w 0'

# Copies that move nothing: what another copy left in the buffer is no excuse. The link is woken by one pinned H2D.
faulty pageable.h2d:none "-s 1M $once" '1MB H2D pageable@0'
faulty pinned.h2d:none "-s 1M $once" '1MB H2D pinned@0'
faulty pageable.d2h:none "-s 1M $once" '1MB D2H pageable@0'
faulty pinned.d2h:none "-s 1M $once" '1MB D2H pinned@0'
faulty pinned.h2d:none '-s 64K 1M 3M -i 3 -w 2' '64KB H2D pinned@0' '1MB H2D pinned@0' '3MB H2D pinned@0'
faulty 'h2d#2-:none' "-s 1M $once -b" '1MB H2D pageable@0' '1MB H2D pinned@0' '1MB BiD pageable@0' '1MB BiD pinned@0'
faulty d2h:none "-s 1M $once -b" '1MB D2H pageable@0' '1MB D2H pinned@0' '1MB BiD pageable@524288' \
  '1MB BiD pinned@524288'
# BiD goes in as whole pages, from two pages on; a small one is cut at a word.
for case in 4K:2048 5000B:2504 8191B:4096 8K:4096 10000B:4096 12288B:4096 17B:8 9B:8 8B:4 2B:1; do
  rm -f "$tmp/order"
  SIM_ORDER=$tmp/order run -s "${case%:*}" -b -i 1 -w 0
  is "BiD of ${case%:*}" "$(sed -n 's/.*copy-begin h2d pageable //p' "$tmp/order" | tail -n 1)" "${case#*:}"
done
rm -f "$tmp/order"
# Of BiD's two halves either one, and in one row only.
faulty 'pageable.h2d#2:none' "-s 1M $once -b" '1MB BiD pageable@0'
faulty 'pinned.d2h#2:none' "-s 1M $once -b" '1MB BiD pinned@524288'

# Half, a page late, all but the last byte, two pages in each other's place, one bit.
faulty h2d:half "-s 1M $once" '1MB H2D pageable@524288' '1MB H2D pinned@524288'
faulty d2h:half "-s 8M $once" '8MB D2H pageable@4194304' '8MB D2H pinned@4194304'
for way in h2d d2h; do
  case $way in h2d) row=H2D ;; d2h) row=D2H ;; esac
  for kind in pageable pinned; do
    faulty $kind.$way:shift "-s 1M $once" "1MB $row $kind@0"
    faulty $kind.$way:swap "-s 1M $once" "1MB $row $kind@0"
    faulty $kind.$way:short "-s 1M $once" "1MB $row $kind@1048568"
    faulty $kind.$way:flip@0 "-s 1M $once" "1MB $row $kind@0"
    faulty $kind.$way:flip@8199 "-s 1M $once" "1MB $row $kind@8192"
    faulty $kind.$way:flip@524288 "-s 1M $once" "1MB $row $kind@524288"
    faulty $kind.$way:flip@7340032 "-s 8M $once" "8MB $row $kind@7340032"
    faulty $kind.$way:short "-s 1048583B $once" "1048583B $row $kind@1048576"
  done
done
# Sizes that are no multiple of a page or a word: the last word, or what there is of it.
for case in 1B@0 7B@0 8B@0 9B@8 100B@96 4095B@4088 4096B@4088 4097B@4096 5000B@4992; do
  case $case in 4096B*) label=4KB ;; *) label=${case%@*} ;; esac
  faulty pageable.h2d:short "-s ${case%@*} $once" "$label H2D pageable@${case#*@}"
  faulty pinned.d2h:short "-s ${case%@*} $once" "$label D2H pinned@${case#*@}"
  [ $case = 1B@0 ] || faulty "" "-s ${case%@*} $once -b"
done

# Several faults in one run: each in its own cell, and what comes after starts from good data.
faulty '2:flip@0;5:flip@4096' "-s 1M $once" '1MB H2D pageable@0' '1MB D2H pinned@4096'
faulty '2-3:none' "-s 1M 2M $once" '1MB H2D pageable@0' '1MB H2D pinned@0'
faulty '4:none;7:half' "-s 1M 2M $once" '1MB D2H pageable@0' '2MB H2D pinned@1048576'
SIM_CORRUPT=2 run -s 1M -i 1 -w 0
is 'one bit on the way in: one cell' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: 1MB H2D pageable: data mismatch at offset 1048568'
SIM_CORRUPT=3 run -s 1M -b -i 1 -w 0
is 'one bit on the way in: one cell with BiD too' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: 1MB H2D pinned: data mismatch at offset 1048568'
# The last copy of a cell counts; the one that wakes the link is not measured.
faulty 'pageable.h2d#4:none;1:none' '-s 1M -i 3 -w 1'
faulty 'pageable.h2d:none' '-s 1M -i 3 -w 1' '1MB H2D pageable@0'

# Every way to pin is checked both ways.
for method in register huge write-combined; do
  faulty pinned.h2d:none "-s 1M $once -m $method" '1MB H2D pinned@0'
  faulty pinned.d2h:flip@4096 "-s 1M $once -m $method" '1MB D2H pinned@4096'
  run -s 64K 1M -m $method -b
  exits "good data with --pin $method" 0
done
SIM_COPY=2-:none SIM_ORDER=$tmp/order run -s 1M -i 1 -w 0 -n
exits 'no check with --no-verify' 0
is '--no-verify spoils and checks nothing' "$(grep -cE 'spoil|check|put' "$tmp/order")" 0
rm -f "$tmp/order"
SIM_ORDER=$tmp/order run -s 1M -i 1 -w 0
[ "$(grep -c spoil "$tmp/order")" -gt 0 ] && [ "$(grep -c check "$tmp/order")" -gt 0 ]
ok 'otherwise it does both'

# Two GPUs: the one whose copies failed.
SIM_GPUS=2 SIM_COPY=gpu1.pinned.d2h:none run -s 1M -d all -p -i 1 -w 0
is 'the GPU is named' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 1: 1MB D2H pinned: data mismatch at offset 0'
is 'one cell of eight, and its total' "$(dashes)" '1MB D2H pinned
1MB D2H pinned'

# Times that read zero, and what is left of a cell with one: nothing.
n=0
for cell in 'H2D pageable' 'H2D pinned' 'D2H pageable' 'D2H pinned'; do
  n=$((n + 1))
  SIM_STALL=$n run -s 1M -i 1 -w 0
  exits "elapsed time $n reads zero" 1
  is 'and says where' "$(cat "$tmp/err")" "dma_bandwidth: GPU 0: 1MB $cell: the elapsed time of a copy reads 0 ms"
  is 'one cell without a figure' "$(dashes)" "1MB $cell"
done
SIM_STALL=3 run -s 1M -w 5 -i 1
exits 'a stalled warm-up copy counts too' 1
lacks 'no figure of a failed cell' 'inf|nan'
SIM_STALL=3 run -s 1M -i 3 -w 0
is 'two good samples before it are not kept' "$(dashes)" '1MB H2D pageable'
SIM_STALL=3 run -s 1M -i 3 -w 0 -f json
out 'nor in JSON' '"bytes":1048576,"direction":"H2D","pageable":null,"pinned":\{"median":54.72'
SIM_COPY=pageable.h2d:none run -s 1M -i 3 -w 0 -f json
out 'nor after a mismatch' '"bytes":1048576,"direction":"H2D","pageable":null,"pinned":\{"median":54.72'
SIM_CORRUPT=4 SIM_STALL=4 run -s 1M -i 1 -w 0
is 'each failure is told' "$(cat "$tmp/err")" 'dma_bandwidth: GPU 0: 1MB D2H pageable: data mismatch at offset 1048568
dma_bandwidth: GPU 0: 1MB D2H pinned: the elapsed time of a copy reads 0 ms'

# --untouched: the source's whole pages are absent when it is copied, but only the pageable one, and only then.
# absent ARGS: what the H2D copies of 1 MB found absent: "pageable 256", one line each, the one that wakes the link first.
absent() {
  rm -f "$tmp/sources"
  # shellcheck disable=SC2086
  SIM_SOURCES=$tmp/sources run $1
  sed -n 's/^\(.*\) 1048576 absent=/\1 /p' "$tmp/sources" | tr '\n' ','
}
# malloc's buffer begins behind a header: its first and last page are shared with what lies beside it.
if [ -z "$asan" ]; then
  is '--untouched: all whole pages are absent' "$(absent "-u -s 1M $once" | sed 's/25[56]/all/')" 'pinned 0,pageable all,pinned 0,'
  is '--untouched: the first copy maps the zero page, the others find it' "$(absent '-u -s 1M -i 2 -w 1' | sed 's/25[56]/all/g')" \
    'pinned 0,pageable all,pageable 0,pageable 0,pinned 0,pinned 0,pinned 0,'
else
  skip '--untouched: absent pages' 'AddressSanitizer has a malloc of its own'
fi
is 'otherwise every page has been written' "$(absent "-s 1M $once")" 'pinned 0,pageable 0,pinned 0,'
is '--no-verify: written all the same' "$(absent "-s 1M $once -n")" 'pinned 0,pageable 0,pinned 0,'
for sizes in 64K '1M 64K' '64K 1M 3M'; do
  # shellcheck disable=SC2086
  run -u -s $sizes -i 2 -w 1 -b
  exits "--untouched $sizes: the check still works" 0
  # shellcheck disable=SC2086
  SIM_PIN_LIMIT=0 run -u -s $sizes -i 2 -w 1
  ! grep -q mismatch "$tmp/err"
  ok "--untouched $sizes without pinned memory: no mismatch" 'no mismatch'
  err 'only pinned fails' 'pinned'
done
faulty pageable.h2d:none "-u -s 1M $once" '1MB H2D pageable@0'
faulty pageable.d2h:none "-u -s 1M $once" '1MB D2H pageable@0'
libc=$tmp/fail_libc.so # LD_PRELOAD takes no blank in a path
cp "$(dirname "$SIM")/sim/fail_libc.so" "$libc" 2>/dev/null
if [ -f "$libc" ] && [ -z "$asan" ]; then
  FAIL_LIBC=madvise:1 LD_PRELOAD=$libc run -u -s 1M -i 1 -w 0
  exits '--untouched where the kernel keeps the pages' 1
  is 'the cell fails and says so' "$(cat "$tmp/err")" \
    'dma_bandwidth: GPU 0: 1MB H2D pageable: --untouched: the kernel does not take the pages back: Invalid argument'
  is 'that cell alone' "$(dashes)" '1MB H2D pageable'
  run -u -s 64B 1M -i 1 -w 0
  exits '--untouched of less than a page' 1
  is 'which has no page of its own' "$(cat "$tmp/err")" \
    'dma_bandwidth: GPU 0: 64B H2D pageable: --untouched: a buffer this small has no page of its own'
else
  skip 'pages that are kept' 'not with AddressSanitizer, or not built'
fi
# An error that sticks, before a copy: its cell tells it, and no other.
SIM_FAIL=cudaMemset2D:1:cudaErrorIllegalAddress run -s 64K 1M -i 1 -w 0
is 'the data check can not be prepared' "$(cat "$tmp/err")" \
  'dma_bandwidth: GPU 0: 64KB H2D pageable: preparing the data check: cudaErrorIllegalAddress (an illegal memory access was encountered)'
run -s 1M 2M -i 1 -w 0 -b
exits 'no fault' 0
no_err 'no failure'
done_testing
