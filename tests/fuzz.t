#!/bin/sh
# Command lines by the hundred: each ends with 0 or 2, with 1 where something can't be had, with 4 below a minimum; never with
# a signal and never hanging; 2 prints a message on stderr, and nothing on stdout but JSON.
. "$(dirname "$0")/lib.sh"
lines=${FUZZ_LINES:-600}
SIM_MEM=3000000 # larger sizes are refused at once
export SIM_MEM
mkdir "$tmp/d" && cd "$tmp/d" || exit 1 # --output writes here

awk -v lines="$lines" -v seed="${FUZZ_SEED:-1}" '
function pick(list, parts, n) { n = split(list, parts, "~"); return parts[1 + int(rand() * n)] }
function long_text(n, text) { while (n-- > 0) text = text "9"; return text }
function value() {
  return pick("0~1~2~3~10~-1~+1~00~01~1.~.1~.~1.5~100000~100001~2147483647~2147483648~4294967296~" \
    "9223372036854775807~18446744073709551616~1e3~0x10~inf~nan~~ ~x~½~٣~显卡~64K~64KB~64KiB~1M~2MB~0.001~0.0001~1T~1024T~1025T~" \
    "1K:8K~8K:1K~1K:~:1K~1:2:3~1K,2K~1K,,2K~,~all~0,0~0,1~1~malloc-host~register~huge~write-combined~staged~text~markdown~csv~json~svg~x.txt~x.md~x.csv~x.json~x.svg~none/x.txt~/dev/null~.~257~256~" \
    "100~100.0~99.9~0.1~101~--~-~--sizes~-s~%s%n~$(x)~a b~\"~`~" long_text(400) "~K~B~1B~7B~1,5")
}
function option() {
  return pick("-s~-i~-w~-d~-p~-b~-m~-T~-o~-u~-x~-f~-t~-a~-n~-q~-l~-h~-V~-z~-1~-sK~-s1K~-i2~-pb~-uxb~-qs~-T2~-ox.svg~-fjson~-mstaged~" \
    "--sizes~--size~--s~--iters~--iter~--warmup~--device~--dev~--parallel~--p~--bidir~--pin~--threads~--output~--out~--untouched~--explain~" \
    "--format~--min-efficiency~--min~--no-affinity~--no-verify~--no~--quiet~--list~--help~--version~--sizes=1K~--sizes=~" \
    "--iters=2~--iters=~--quiet=1~--nonsense~--~---~-~--format=json~--format=x~--pin=register~--pin=staged~--output=x.md~--threads=2")
}
function right() {
  return pick("-s 2K~-s 1K,3B~-s 1K:4K~--sizes 1K 2K~--sizes=5B~-i 2~--iters 3~-w 0~--warmup=2~-d 0~-d all~--device=all~-p~" \
    "--parallel~-b~--bid~-m register~--pin write-combined~-m huge~--pin staged~-m staged -T 2~-x -T 3~-o x.txt~-o x.md~--output x.json~-o y.csv -o x.svg~-f svg~-u~-x~-f json~-f csv~--format=markdown~-t 0.5~-t 100~-a~-n~-q~-l~-h~-V")
}
function quoted(text) { gsub(/\047/, "\047\\\047\047", text); return "\047" text "\047" }
BEGIN {
  srand(seed)
  for (i = 0; i < lines; i++) {
    line = "set --"
    if (i % 5) line = line " -s 1K -i 1 -w 0" # otherwise few lines would be right
    n = 1 + int(rand() * 4)
    for (k = 0; k < n; k++) {
      if (i % 2) { line = line " " right(); continue }
      line = line " " quoted(option())
      if (rand() < 0.6) line = line " " quoted(value())
    }
    if (i == 7) { line = "set -- -i 1 -w 0 -s"; for (k = 1; k <= 200; k++) line = line " " k "B" }
    print line
  }
}' >"$tmp/lines"
is 'command lines' "$(wc -l <"$tmp/lines")" "$lines"

append_json_of_run() { [ -z "${JSON_LOG:-}" ] || append_json "$tmp/out"; }
tried=0
for expected in 0 1 2 4; do eval "ended_$expected=0"; done
bad=
while IFS= read -r line; do
  eval "$line"
  tried=$((tried + 1))
  timeout -s KILL 60 "$SIM" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
  case $status in
  0) ;;
  1) grep -Eq "allocating|min-efficiency|--untouched|can't be written|memory|untouched" "$tmp/err" ;;
  2) [ -s "$tmp/err" ] && ! grep -v '^{"tool".*"exit_status":2,"error":".*}$' "$tmp/out" >/dev/null ;;
  4) grep -q 'min-efficiency' "$tmp/err" ;;
  *) false ;;
  esac || { bad="status $status: $line"; break; }
  ! grep -Eq 'Sanitizer|runtime error' "$tmp/err" || { bad="sanitizer: $line"; break; }
  eval "ended_$status=\$((ended_$status + 1))"
  ! grep -q '^{' "$tmp/out" || grep -q "\"exit_status\":$status,.*}\$" "$tmp/out" || { bad="JSON has another status than $status: $line"; break; }
  append_json_of_run
done <"$tmp/lines"
[ -z "$bad" ]
ok "$tried command lines end as they should ${bad:+(not: $bad)}"
# shellcheck disable=SC2154
[ "$ended_0" -gt $((lines / 20)) ] && [ "$ended_2" -gt $((lines / 5)) ]
ok "right and wrong ones among them: $ended_0 with 0, $ended_2 with 2, $ended_1 with 1, $ended_4 with 4"
for file in x.txt x.json x.svg x.md y.csv; do
  [ -s $file ]
  ok "some wrote $file"
done
is 'nothing else was left' "$(find . -type f ! -name 'x.*' ! -name y.csv)" ''
cd / || exit 1
done_testing
