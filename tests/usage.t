#!/bin/sh
# Bad command lines: status 2, nothing on stdout, a message that names the option and the value.
. "$(dirname "$0")/lib.sh"

# bad REGEX ARG...: the message matches.
bad() {
  want=$1
  shift
  run "$@"
  [ "$status" = 2 ] && [ ! -s "$tmp/out" ] && head -n 1 "$tmp/err" | grep -Eq -- "$want"
  ok "bad: $(printf '<%s> ' "$@" | cut -c1-60)"
}

for value in '' x 1x 1,,2 ',1' '1,' ' 1' '1 ' 1KK 1Ki 1iB 1Q 0x10 1e3 inf nan -1 +1 1.2.3 . .K K -0.5 1:2:3 1: :1 2:1 2K:1K 0 0B 0.4B \
  1025T 2000T 99999999999999999999 1K-2K '1;2' 1_000 ½ 1٣ 1G2 'B' 'KiB' 1BiB 1B:0B; do
  bad "--sizes: '.*'" --sizes "$value"
done
bad "--sizes: '2:1'.*backwards" --sizes 2:1
bad "--sizes: '1,,2'.*empty" --sizes 1,,2
bad "--sizes: 'x'" --sizes 1 x
bad "makes more than 1000 sizes" --sizes "$(i=0; while [ $i -lt 25 ]; do printf 1B:1024T,; i=$((i + 1)); done)1"
for value in '' 0 -1 x 1.5 1e3 100001 99999999999 ' 1' 0x1; do
  bad "--iters: '.*'" --iters "$value"
done
for value in '' -1 x 1.5 100001 1,2; do
  bad "--warmup: '.*'" --warmup "$value"
done
for value in '' x -1 0,0 0,1,0 '0,' ',0' 0,,1 ALL all,0 0-1 1.0 128 99999999999 0x0; do
  bad "--device: '?.*" --device "$value"
done
bad '--device: GPU 1 is not there' -d 1
bad '--device: GPU 1 is not there' -d 0,1
bad "--device: '0,0' names GPU 0 twice" -d 0,0
for value in '' x malloc pinned Register malloc-host,register; do
  bad "--pin: '.*' is none of malloc-host, register, write-combined" --pin "$value"
done
for value in '' x JSON txt html; do
  bad "--format: '.*' is none of text, markdown, csv, json" --format "$value"
done
for value in '' 0 -5 100.1 101 x 5% 1e1 nan inf; do
  bad "--min-efficiency: '.*'" --min-efficiency "$value"
done
bad "--chart: ''" --chart ''
bad "'5': stray operand" 5
bad "'5': stray operand" -i 3 5
bad "'5': stray operand" -- 5
bad "'5': stray operand" -s 1K -- 5
bad "'5': stray operand" -s 1K -q 5
bad "'x': stray operand" -l x
bad "--nonsense" --nonsense
bad "unrecognized|invalid" -z
bad "ambiguous" --p
bad "argument" -s
bad "argument" --iters
bad "argument" --quiet=1
bad "--sizes: '--iters'" --sizes --iters 3
bad "invalid option" -1
bad "--sizes: ''" -s ''
done_testing
