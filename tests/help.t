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
for option in sizes iters warmup device parallel bidir pin threads untouched explain format output min-efficiency no-affinity \
  no-verify quiet list help version; do
  out "--$option is in it" "^  -., --$option( |\$)"
done
for name in malloc-host register huge write-combined staged text markdown csv json svg; do
  out "$name is in it" "^ +$name "
done
is 'no line is wider than 80 columns' "$(awk 'length > 80' "$tmp/help" | wc -l)" 0
! grep -q '[^ -~]' "$tmp/help"
ok 'only ASCII, no TAB'
! grep -q ' $' "$tmp/help"
ok 'no blank at the end of a line'
for suffix in .txt .md .csv .json .svg; do
  grep -Fq -- "$suffix" "$tmp/help"
  ok "$suffix is in it"
done
out 'the default sizes' '\(default 0\.5 1 2\)'
out 'the default of --iters' 'timed copies per cell \(default 10\)'
out 'the default of --warmup' 'untimed copies first \(default 3\)'
out 'what the sizes are' 'units of 1024'
for exit in '0 all measured' '1 something failed' '2 usage' '3 no usable driver' '4 below --min-efficiency' '130 interrupted'; do
  tr '\n' ' ' <"$tmp/help" | grep -Fq "$exit"
  ok "exit status: $exit"
done

# Its examples are right: each is run here, on small buffers.
sed -n '/^Examples:/,/^$/s/^  dma_bandwidth \(.*[^ ]\)   *[^ ].*/\1/p' "$tmp/help" >"$tmp/examples"
[ "$(wc -l <"$tmp/examples")" -ge 2 ] && [ "$(wc -l <"$tmp/examples")" -le 3 ]
ok 'two or three examples'
while IFS= read -r example; do
  case $example in *-s\ *) sizes= ;; *) sizes='-s 16M' ;; esac
  # shellcheck disable=SC2046,SC2086
  (cd "$tmp" && "$SIM" $(echo "$example" | sed 's/:1G/:64M/') $sizes >"$tmp/out" 2>"$tmp/err")
  status=$?
  # -t 80 asks for more than the simulated D2H can do.
  [ $status = 0 ] || { [ $status = 4 ] && [ "${example#* -t }" != "$example" ]; }
  ok "example: $example" 'status 0, or 4 with -t'
done <"$tmp/examples"
run -h
cmp -s "$tmp/out" "$tmp/help"
ok '-h is --help'
for arguments in '--help' '-h -q' '-q --help'; do
  # shellcheck disable=SC2086
  SIM_DRIVER=0 run $arguments
  cmp -s "$tmp/out" "$tmp/help"
  ok "without a driver: $arguments"
done
run -V
exits '--version' 0
is 'program: the version is the source'"'"'s' "$(head -n 1 "$tmp/out")" \
  "dma_bandwidth $(sed -n 's/^#define VERSION  *"\([0-9.]*\)"$/\1/p' "$top/dma_bandwidth.c")"
out 'runtime' '^CUDA runtime [0-9]+\.[0-9]+$'
out 'driver' '^CUDA driver  [0-9]+\.[0-9]+$'
done_testing
