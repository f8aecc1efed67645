#!/bin/sh
# Every form of --sizes, seen through the csv column size_bytes.
. "$(dirname "$0")/lib.sh"

# sizes WANT ARG...: the sizes measured, in order, are WANT.
sizes() {
  want=$1
  shift
  run -f csv -i 1 -w 0 -n -q "$@"
  is "$*" "$(fields size_bytes direction | awk '$2 == "H2D" { printf "%s%s", n++ ? " " : "", $1 }')" "$want"
}

sizes '104857 10485 1048' --sizes 104857B 10485B 1048B
sizes '107374 1074' --sizes 0.0001 0.000001
sizes '107374 1074' --sizes 0.0001,0.000001
sizes '107374 1074 2048' --sizes 0.0001,0.000001 2K
sizes '107374 1074' --sizes '0.0001 0.000001'
sizes '107374' --sizes=0.0001
sizes '107374 2048' --sizes=0.0001 2K
sizes '65536' -s 64K
sizes '65536' -s64K
sizes '65536' -s 64k
sizes '65536' -s 64KB
sizes '65536' -s 64KiB
sizes '65536' -s 64kib
sizes '1048576' -s 1M
sizes '1048576' -s 1MB
sizes '1048576' -s 1MiB
sizes '1572864' -s 1.5M
sizes '512' -s .5K
sizes '5120' -s 5.K
sizes '1' -s 1B
sizes '7' -s 7b
sizes '1048576' -s 0.0009765625G
sizes '1048576' -s 0.0009765625GB
sizes '1048576' -s 0.0009765625GiB
sizes '1099512' -s 0.000001T
sizes '1024 1024' -s 1K,1K
sizes '1024 2048 4096 8192' -s 1K:8K
sizes '1024 2048 4096 5120' -s 1K:5K
sizes '1024' -s 1K:1K
sizes '1024 2048 65536' -s 1K:2K,64K
sizes '1024 2048 65536 131072' -s 1K:2K 64K:128K
sizes '2048' -s 1K -s 2K
sizes '4096 1024' -s 4K 1K
sizes '1024' --size 1K
sizes '3 5' -s 3B 5B -b
sizes '1024 2048' -s 1K -i 1 -s 1K 2K
sizes '2048 4096' --sizes=2K 4K -q
sizes '7 9' -f csv -s 7B 9B -i 2
# Numbers that a double holds are exact, others are rounded to the nearest byte.
sizes '3' -s 2.5001B
sizes '1025' -s 1.001K
sizes '1024 2048 4096 8191' -s 1K:8191B
sizes '1 2 3' -s 1B:3B
# Defaults, without measuring gigabytes: the GPU has no room for them, and each size says so.
SIM_MEM=1000 run -f csv -q
is 'defaults' "$(fields size_bytes direction | tr '\n' ' ')" \
  '536870912 H2D 536870912 D2H 1073741824 H2D 1073741824 D2H 2147483648 H2D 2147483648 D2H '
many=$(i=0; while [ $i -lt 200 ]; do i=$((i + 1)); printf '%dB ' $i; done)
# shellcheck disable=SC2086
run -f csv -i 1 -w 0 -s $many
is '200 sizes' "$(wc -l <"$tmp/out")" 401
run -f json -s 1K -i 7 -w 2
grep -q '"iters":7,"warmup":2' "$tmp/out"
ok 'iters and warmup'
done_testing
