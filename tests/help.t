#!/bin/sh
# --help and --version; the help stands in README.md verbatim.
. "$(dirname "$0")/lib.sh"
run --help
exits '--help' 0
no_err '--help'
cp "$tmp/out" "$tmp/help"
awk '/^```/ { inside = !inside; if (!inside && hit) exit; text = ""; next } inside && /^Usage: dma_bandwidth/ { hit = 1 }
  hit { print }' "$top/README.md" >"$tmp/out"
cmp -s "$tmp/out" "$tmp/help"
ok 'README.md has it verbatim'
cp "$tmp/help" "$tmp/out"
for option in sizes iters warmup device parallel bidir pin untouched explain format chart min-efficiency no-affinity \
  no-verify quiet list help version; do
  out "--$option is in it" "^  -., --$option( |\$)"
done
for name in malloc-host register write-combined text markdown csv json; do
  out "$name is in it" "^ +$name "
done
is 'no line is wider than 100' "$(awk 'length > 100' "$tmp/help" | wc -l)" 0
run -h
cmp -s "$tmp/out" "$tmp/help"
ok '-h is --help'
run -V
exits '--version' 0
out 'program' '^dma_bandwidth [0-9]+\.[0-9]+\.[0-9]+$'
out 'runtime' '^CUDA runtime [0-9]+\.[0-9]+$'
out 'driver' '^CUDA driver  [0-9]+\.[0-9]+$'
done_testing
