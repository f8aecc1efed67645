#!/bin/sh
# README.md says what is so: its commands run, its tables name every key and variable, its links lead somewhere.
. "$(dirname "$0")/lib.sh"
readme=$top/README.md

# blocks LANGUAGE: the lines of README's code blocks of that kind.
blocks() { awk -v mark="\`\`\`$1" '/^```/ { inside = !inside && $0 == mark; next } inside' "$readme"; }

# Commands. Without a driver a right command line ends with 3, a wrong one with 2.
blocks sh | sed -n 's/^\.\/dma_bandwidth \(.*\)/\1/p' | sed 's/ *#.*//' >"$tmp/commands"
[ "$(wc -l <"$tmp/commands")" -ge 4 ]
ok 'README has commands'
mkdir "$tmp/here" && cd "$tmp/here" || exit 1
while IFS= read -r arguments; do
  eval "set -- $arguments"
  SIM_DRIVER=0 run "$@"
  exits "dma_bandwidth $arguments, without a driver" 3
done <"$tmp/commands"
for target in $(blocks sh | sed -n 's/^make \([a-z-][a-z-]*\).*/\1/p' | sort -u); do
  make --no-print-directory -C "$top" help 2>/dev/null | grep -q "^  $target "
  ok "make help lists $target"
done

# The cluster: the recipe as it stands, on four nodes of which three are bad, gives the table as it stands.
SIM_GPUS=2
export SIM_GPUS
run -s 64M -d all -f json && cp "$tmp/out" dma-node1.json
SIM_DRIVER=0 run -s 64M -d all -f json
cp "$tmp/out" dma-node2.json
SIM_FAIL=cudaMemcpy:9:cudaErrorECCUncorrectable@1 run -s 64M -d all -f json
cp "$tmp/out" dma-node3.json
: >dma-node4.json
awk '/^for file in dma-/ { inside = 1 } inside { print } inside && /^done/ { exit }' "$readme" >recipe
if command -v jq >/dev/null && command -v column >/dev/null; then
  sh recipe | sed 's/ *$//' >"$tmp/out"
  awk '/^node +GPU/ { inside = 1 } /^```/ { inside = 0 } inside' "$readme" | sed 's/ *$//' >"$tmp/want"
  [ -s "$tmp/want" ] && cmp -s "$tmp/out" "$tmp/want"
  ok "the cluster's recipe prints the cluster's table" "$(cat "$tmp/want")"
else
  skip "the cluster's recipe" 'no jq or no column'
fi
unset SIM_GPUS

# Tables.
if command -v python3 >/dev/null; then
  python3 "$here/keys.py" >"$tmp/want"
  awk '/^\| key \| meaning \|/ { inside = 1 } inside && !/^\|/ { exit } inside' "$readme" >"$tmp/out"
  cmp -s "$tmp/out" "$tmp/want"
  ok 'the table of JSON keys is that of the schema' "$(diff "$tmp/out" "$tmp/want" | head -n 5)"
else
  skip 'the table of JSON keys' 'no python3'
fi
grep -oh '"SIM_[A-Z0-9]*"' "$here/sim_cudart.c" "$here/sim_nvml.c" | tr -d '"' | sort -u >"$tmp/want"
grep -oh '^| `SIM_.*' "$readme" | grep -oE 'SIM_[A-Z0-9]+=' | tr -d = | sort -u >"$tmp/out"
cmp -s "$tmp/out" "$tmp/want"
ok "the table of the simulator's variables is complete" "$(diff "$tmp/out" "$tmp/want")"
awk '
  function row() { if (name != "") print "| " name " | " text " |"; name = "" }
  /^#define/ { row(); exit }
  /^ \*   SIM_/ {
    row()
    sub(/^ \*   /, "")
    gap = match($0, /   *[^ ]/) ? RSTART : match($0, / [^S]/) ? RSTART : length($0) + 1
    name = substr($0, 1, gap - 1)
    text = substr($0, gap)
    sub(/^ */, "", text)
    next
  }
  /^ \*                     / { sub(/^ \* */, ""); text = text (text == "" ? "" : " ") $0; next }
  { row() }' "$here/sim_cudart.c" >"$tmp/want"
grep '^| `SIM_' "$readme" | sed 's/[`\\]//g' >"$tmp/out"
cmp -s "$tmp/out" "$tmp/want"
ok "the table of the simulator's variables says what the simulator says" "$(diff "$tmp/out" "$tmp/want")"

# Links: to headings as GitHub names them, and to files.
sed -n 's/^##* //p' "$readme" | tr '[:upper:]' '[:lower:]' | sed "s/[?,.():\`']//g; s/ /-/g" >"$tmp/anchors"
grep -oE '\]\([#a-zA-Z][^):]*\)' "$readme" | sed 's/](//; s/)//' | sort -u >"$tmp/links"
while IFS= read -r link; do
  case $link in
  '#'*) grep -qxF -- "${link#?}" "$tmp/anchors" ;;
  *) [ -f "$top/$link" ] ;;
  esac
  ok "link $link"
done <"$tmp/links"
done_testing
