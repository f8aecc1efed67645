#!/bin/sh
# The chart: an SVG that needs nothing else.
. "$(dirname "$0")/lib.sh"
odd='Odd "name" \back|pipe, <b>&amp; *a* é 显卡'

for arguments in '-s 64K' '-s 1K:16M -i 2' '-s 64K 1M -b' '-s 64K -d all -p' '-s 64K -f json'; do
  # shellcheck disable=SC2086
  SIM_GPUS=2 SIM_NAME=$odd run -c "$tmp/chart.svg" $arguments
  exits "$arguments" 0
  if command -v xmllint >/dev/null; then
    xmllint --noout "$tmp/chart.svg" 2>"$tmp/err"
    ok 'well-formed'
  else
    skip 'well-formed' 'no xmllint'
  fi
  ! grep -Eq '<script|href|url\(|@import|inf|nan' "$tmp/chart.svg"
  ok 'no script, no outside resource, no odd number'
done
SIM_NAME=$odd run -c "$tmp/chart.svg" -s 64K 1M
grep -q '>Odd &#34;name&#34; \\back|pipe, &#60;b&#62;&#38;amp; \*a\* é 显卡 (simulated), PCIe Gen5 x16, 20[0-9-]*</text>' "$tmp/chart.svg"
ok 'the title has name, link and date'
is 'a bar for each kind, size and direction, and two in the legend' "$(grep -o '<rect class="p[a-z]*"' "$tmp/chart.svg" | wc -l)" 10
is 'the value on each' "$(grep -oE '>(16\.9|54\.7|14\.6|46\.8)<' "$tmp/chart.svg" | wc -l)" 8
is 'the limit in each panel' "$(grep -c '>limit 64 GB/s<' "$tmp/chart.svg")" 2
grep -q 'prefers-color-scheme:dark' "$tmp/chart.svg"
ok 'light and dark'
SIM_NVML_FAIL=nvmlInit_v2 run -c "$tmp/chart.svg" -s 64K
! grep -q '>limit' "$tmp/chart.svg"
ok 'no limit where none is known'
SIM_PIN_LIMIT=0 run -c "$tmp/chart.svg" -s 64K
exits 'a chart of what was measured' 1
is 'bars of pageable only' "$(grep -o '<rect class="p[a-z]*"' "$tmp/chart.svg" | wc -l)" 4
SIM_MEM=0 run -c "$tmp/chart.svg" -s 64K
exits 'a chart of nothing' 1
tail -n 1 "$tmp/chart.svg" | grep -q '</svg>'
ok 'is closed'
SIM_DRIVER=0 run -c "$tmp/never.svg"
[ ! -e "$tmp/never.svg" ]
ok 'without a GPU no file is made'
if [ "$(id -u)" != 0 ]; then
  mkdir "$tmp/closed" && chmod 500 "$tmp/closed"
  run -s 64K -c "$tmp/closed/x.svg"
  exits 'read-only folder' 1
  no_out 'read-only folder'
else
  skip 'read-only folder' 'root may write anywhere'
fi
done_testing
