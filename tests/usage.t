#!/bin/sh
# Bad command lines: status 2, nothing on stdout, a message that names option and value and what would be right.
. "$(dirname "$0")/lib.sh"

# bad REGEX ARG...: the first line of stderr matches as a whole, behind the program's name.
bad() {
  want=$1
  shift
  run "$@"
  [ "$status" = 2 ] && [ ! -s "$tmp/out" ] && head -n 1 "$tmp/err" | grep -Eqx -- "([^ ]*|/.*/)dma_bandwidth[_a-z]*: $want"
  ok "bad: $(printf '<%s> ' "$@" | cut -c1-60)" "$want"
}
# value TEXT: the text, for a regular expression.
value() { printf %s "$1" | sed 's/[][\.*^$+?(){}|]/\\&/g'; }

# Every value is named as it was given, with what would have been right behind it.
size='is not a size such as 0\.5, 64K or 2GiB'
range='must be from 1B to 1024T'
for value in x 1x 1KK 1Ki 1iB 1Q 0x10 1e3 inf nan -1 +1 1.2.3 . .K K -0.5 1:2:3 1: :1 1K-2K '1;2' 1_000 ½ 1٣ 1G2 B KiB 1BiB; do
  bad "--sizes: '$(value "$value")' $size" --sizes "$value"
done
for value in 0 0B 0.4B 1025T 2000T 99999999999999999999 1B:0B 0:1 1024.001T 1:1025T; do
  bad "--sizes: '$(value "$value")' $range" --sizes "$value"
done
for value in '' '1,,2' ',1' '1,' ' 1' '1 ' ',' ' '; do
  bad "--sizes: '$value' has an empty item" --sizes "$value"
done
for value in 2:1 2K:1K 1K,2:1 1.1K:1K; do
  bad "--sizes: '$(value "$value")' is a sweep that runs backwards" -s "$value"
done
bad "--sizes: 'x' $size" --sizes 1 x
bad "--sizes: 'x' $size" --sizes 1K,2K x
bad "--sizes: '--iters' $size" --sizes --iters 3
bad "--sizes: '' has an empty item" -s ''
for value in '' 0 -1 x 1.5 1e3 100001 99999999999 ' 1' 0x1 1. 01x; do
  bad "--iters: '$(value "$value")' must be a whole number from 1 to 100000" --iters "$value"
done
for value in '' -1 x 1.5 100001 1,2 1.0; do
  bad "--warmup: '$(value "$value")' must be a whole number from 0 to 100000" -w "$value"
done
for value in '' 0 257 -1 x 2.0; do
  bad "--threads: '$(value "$value")' must be a whole number from 1 to 256" -m staged -T "$value"
done
for value in '' x -1 '0,' ',0' 0,,1 ALL all,0 0-1 1.0 128 99999999999 0x0 '0 1'; do
  bad "--device: '$(value "$value")' must be \"all\" or indices from 0 to 127 such as 0,2" --device "$value"
done
bad "--device: '0,0' names GPU 0 twice" -d 0,0
bad "--device: '0,1,0' names GPU 0 twice" -d 0,1,0
bad "--device: '0,1,1' names GPU 1 twice" -d 0,1,1
bad '--device: GPU 1 is not there, 1 visible, counted from 0 \(--list shows them\)' -d 1
SIM_GPUS=2 bad '--device: GPU 5 is not there, 2 visible, counted from 0 \(--list shows them\)' -d 0,5
bad '--device: GPU 1 is not there, .*' -d 1 -l
for value in '' x malloc pinned Register malloc-host,register; do
  bad "--pin: '$value' is none of malloc-host, register, huge, write-combined, staged" --pin "$value"
done
for value in '' x JSON txt html; do
  bad "--format: '$value' is none of text, markdown, csv, json, svg" --format "$value"
done
for value in '' 0 -5 100.1 101 x 5% 1e1 nan inf 1,5 .; do
  bad "--min-efficiency: '$(value "$value")' must be a percentage above 0, up to 100" -t "$value"
done
for value in '' x x.html .json x.JSON; do
  bad "--output: '$(value "$value")' must end in one of \\.txt, \\.md, \\.csv, \\.json, \\.svg" -o "$value"
done
for arguments in 5 '-i 3 5' '-- 5' '-s 1K -- 5' '-s 1K -q 5' '-l 5' '-b 5 -s 1K' '-x 5'; do
  # shellcheck disable=SC2086
  bad "'5': stray operand; sizes follow --sizes" $arguments
done
bad ".*option '--nonsense'" --nonsense
bad ".*invalid option -- 'z'" -z
bad ".*invalid option -- '1'" -1
bad ".*invalid option -- 'c'" -c chart.svg
bad ".*option '--chart'" --chart chart.svg
bad ".*'--p' is ambiguous.*--parallel.*--pin.*" --p
bad ".*option requires an argument -- 's'" -s
bad ".*option '--iters' requires an argument" --iters
bad ".*option '--quiet' doesn't allow an argument" --quiet=1
run -i x
is 'the last line says where help is' "$(tail -n 1 "$tmp/err")" "Try 'dma_bandwidth --help'."
is 'there are two lines' "$(wc -l <"$tmp/err")" 2

# Options that another one makes meaningless.
for arguments in '-T 3' '-T 3 -m register' '-m huge --threads=3 -u'; do
  # shellcheck disable=SC2086
  bad "--threads: '3' is for staged copies, add --pin staged or --explain" $arguments
done
bad '--untouched: --pin staged copies data that has been written, choose another --pin' -u -m staged
bad '--untouched: --pin staged .*' -m staged -u -x
bad '--bidir: a size of 1B has no halves, choose larger --sizes' -b -s 64K 1B
for arguments in 'sizes -s 1K' 'iters -i 1' 'warmup -w 0' 'parallel -p' 'bidir -b' 'pin -m huge' 'untouched -u' 'explain -x' \
  'output -o x.json' 'min-efficiency -t 5' 'no-verify -n' 'iters -i 10'; do
  # shellcheck disable=SC2086
  bad "--${arguments%% *}: --list measures nothing, leave one of the two out" -l ${arguments#* }
  # shellcheck disable=SC2086
  bad "--${arguments%% *}: --list measures nothing, leave one of the two out" ${arguments#* } -q --list
done
for value in csv markdown svg; do
  bad "--format: '$value' can't list GPUs, text and json can" -l -f $value
done
[ ! -e x.json ]
ok 'no file was made'

# What is right: the other side of each border.
# good ARG...: the command line is taken.
good() {
  run "$@"
  exits "good: $(printf '%s ' "$@" | cut -c1-60)" 0
}
good -s 64K -i 1 -w 0
good -s 64K -i 1 -w 0 -T 3 -x
good -s 64K -i 1 -w 0 -T 256 -m staged
good -s 64K -i 1 -w 0 -m staged -T 1 -b -n
good -s 64K -i 1 -w 0 -u -m register
good -s 1B -i 100000 -w 0
good -l -f json
good -l -a -q -d 0 -f text
good -h -T 3 -l -s 1K
good -V -u -m staged
good -s 64K -i 1 -w 0 -t 0.001
SIM_RATES='pinned.h2d=63.9,pinned.d2h=63.9' run -s 16M -i 1 -w 0 -t 100
exits '-t 100 is taken' 4
many=$(i=0; while [ $i -lt 1000 ]; do i=$((i + 1)); printf '%dB ' $i; done)
# shellcheck disable=SC2086
good -f csv -i 1 -w 0 -n -s $many
is '1000 sizes, two rows each' "$(wc -l <"$tmp/out")" 2001
# shellcheck disable=SC2086
bad "--sizes: '1001B' makes more than 1000 sizes" -f csv -i 1 -w 0 -s $many 1001B
bad "--sizes: '(1B:1024T,)*1' makes more than 1000 sizes" -s "$(i=0; while [ $i -lt 25 ]; do printf 1B:1024T,; i=$((i + 1)); done)1"
done_testing
