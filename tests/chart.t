#!/bin/sh
# The chart: its geometry is computed from the picture and held against the same run's JSON.
. "$(dirname "$0")/lib.sh"
odd='Odd "name" \back|pipe, <b>&amp; *a* é 显卡'

# It needs nothing else: no script, no outside resource.
# plain NAME: the chart in $tmp/chart.svg is well-formed and stands alone.
plain() {
  if command -v xmllint >/dev/null; then
    xmllint --noout "$tmp/chart.svg" 2>"$tmp/err"
    ok "$1: well-formed"
  else
    skip "$1: well-formed" 'no xmllint'
  fi
  ! grep -Eq '<script|href|url\(|@import|="[^"]*(inf|nan)|>-?(inf|nan)' "$tmp/chart.svg"
  ok "$1: no script, no outside resource, no odd number"
  ! grep -Eq 'transform|rotate|writing-mode' "$tmp/chart.svg"
  ok "$1: upright"
}

cat >"$tmp/chart.py" <<'P'
"""chart.py SVG JSON: the picture shows what the JSON says."""
import json, re, sys
import xml.etree.ElementTree as xml

SIZES = {"title": 16, "tick": 13}
root = xml.parse(sys.argv[1]).getroot()
run = json.load(open(sys.argv[2], encoding="utf-8"))
number = lambda e, key: float(e.get(key))
near = lambda a, b: abs(a - b) < 0.11
width, height = (float(root.get(k)) for k in ("width", "height"))
assert root.get("viewBox") == "0 0 %d %d" % (width, height) and width <= 800

# What is drawn, in order: blocks (GPUs and totals) of columns of bars.
blocks, texts, bottom, bar = [], [], 0, None
for e in root:
    tag, kind = e.tag.split("}")[1], e.get("class", "")
    if tag == "text":
        classes = kind.split()
        size = SIZES.get(kind, 15)
        long = len(e.text) * size * 0.42  # no font is narrower
        x = number(e, "x")
        x -= long if "label" in classes or "in" in classes else long / 2 if kind in ("tick", "mark") else 0
        box = (x, x + long, number(e, "y") - size * 0.6, number(e, "y"))
        texts.append((box, e.text))
        bottom = max(bottom, box[3] + 4)
        if kind == "title":
            blocks.append({"title": e.text, "columns": [], "top": box[2], "bottom": box[3], "lines": [], "failed": 0, "labels": []})
        elif kind == "head" and ", GB/s" in e.text:
            blocks[-1]["columns"].append({"name": e.text.split(",")[0], "x": number(e, "x"), "ticks": [], "bars": [], "none": []})
        elif kind == "tick":
            blocks[-1]["columns"][-1]["ticks"].append((x + long / 2, float(e.text)))
        elif kind == "mark" and e.text.startswith("limit "):
            blocks[-1]["columns"][-1]["limit_text"] = float(e.text[6:])
        elif "failed" in e.text or e.text == "–":
            assert box[0] >= blocks[-1]["columns"][-1]["x"] - 0.1, ("outside its column", e.text, box)
            blocks[-1]["columns"][-1]["none"].append((number(e, "y"), e.text))
        elif blocks[-1]["columns"] and bar and "label" not in classes and kind != "head":
            bar["text"], bar["box"] = e.text, box
        elif "label" in classes:
            blocks[-1]["labels"].append((number(e, "y"), e.text))
        else:
            blocks[-1]["lines"].append(e.text)
        blocks[-1]["bottom"] = max(blocks[-1]["bottom"], box[3])
    elif tag == "rect" and kind in ("pageable", "pinned"):
        if not blocks[-1]["columns"]:
            blocks[-1].setdefault("legend", []).append(kind)
            continue
        bar = {"kind": kind, "x": number(e, "x"), "y": number(e, "y"), "width": number(e, "width"), "height": number(e, "height")}
        [c for c in blocks[-1]["columns"] if near(c["x"], bar["x"])][-1]["bars"].append(bar)
        blocks[-1]["bottom"] = max(blocks[-1]["bottom"], bar["y"] + bar["height"])
        bottom = max(bottom, bar["y"] + bar["height"])
    elif tag == "path":
        x, y, down = (float(v) for v in re.match(r"M([\d.]+) ([\d.]+)v([\d.]+)$", e.get("d")).groups())
        column = blocks[-1]["columns"][-1]
        column.setdefault(kind, []).append((x, y, y + down))
        bottom = max(bottom, y + down)
assert bottom <= height <= bottom + 60, (bottom, height)

# Texts lie on the page, and not on each other.
for box, text in texts:
    assert box[0] >= 0 and box[1] <= width and box[2] >= 0 and box[3] <= height, ("off the page", text, box)
for i, (a, one) in enumerate(texts):
    for b, two in texts[i + 1 :]:
        assert a[1] <= b[0] or b[1] <= a[0] or a[3] <= b[2] or b[3] <= a[2], ("texts on each other", one, two, a, b)

# Blocks one below the other, each with what the JSON has.
parts = run["gpus"] + ([run["totals"]] if run["totals"] else [])
assert len(blocks) == len(parts), (len(blocks), len(parts))
for one, two in zip(blocks, blocks[1:]):
    assert one["bottom"] < two["top"], "blocks overlap"
for block, part in zip(blocks, parts):
    assert any(run["time"][:10] in line for line in block["lines"]), "no date"
    if not part["results"] or all(r["pageable"] is r["pinned"] is None for r in part["results"]) and not block["columns"]:
        continue
    assert block["legend"] == ["pageable", "pinned"] and "pageable: malloc" in block["lines"] and any(l.startswith("pinned: ") for l in block["lines"])
    names = [c["name"] for c in block["columns"]]
    helps = names.index("D2H new") - 2 if "D2H new" in names else None
    tables = block["columns"][:helps]
    assert [c["name"] for c in tables] == list(part["summary"])
    assert [near(c["x"], 96 + i * 544 / len(tables)) for i, c in enumerate(tables)] == [True] * len(tables), [c["x"] for c in tables]
    for column in tables:
        (x0, first), _, (x1, end) = column["ticks"]
        assert first == 0 and near(x0, column["x"]) and near(column["ticks"][1][0], (x0 + x1) / 2), column["ticks"]
        assert near(column["ticks"][1][1], end / 2) and x1 <= width
        assert [near(g[0], t[0]) for g, t in zip(column["grid"], column["ticks"])] == [True] * 3
        column["end"], column["x1"] = end, x1
        limit = part["summary"][column["name"]]["limit"]
        if limit is None:
            assert "limit" not in column and "limit_text" not in column
        else:
            assert near(column["limit"][0][0], x0 + (x1 - x0) * limit / end) and near(column["limit_text"], limit)
            assert column["limit"][0][1:] == column["grid"][0][1:] and limit <= end
        cells = [row[k] for row in part["results"] if row["direction"] == column["name"] for k in ("pageable", "pinned")]
        wanted = [cell["median"] for cell in cells if cell]
        bars = column["bars"]
        assert len(bars) == len(wanted) and len(bars) + len(column["none"]) == 2 * len(run["settings"]["sizes"])
        failed = sum(text != "–" for _, text in column["none"])
        assert failed == sum(cell is None and row["status"].startswith("failed")
                             for row in part["results"] if row["direction"] == column["name"]
                             for cell in (row["pageable"], row["pinned"])), "failed cells are not marked"
        rows = sorted([(bar["y"] + 13, None) for bar in bars] + column["none"], key=lambda r: r[0])
        assert all(b[0] - a[0] > 12 for a, b in zip(rows, rows[1:])), "rows on each other"
        for bar, value in zip(bars, wanted):
            assert near(bar["x"], x0) and near(bar["width"], max(1, value / end * (x1 - x0))), (bar, value, end)
            assert bar["width"] >= 1 and bar["x"] + bar["width"] <= x1 + 0.11, bar
            assert column["grid"][0][1] <= bar["y"] and bar["y"] + bar["height"] <= column["grid"][0][2], bar
            digits = len(bar["text"].partition(".")[2])
            assert abs(float(bar["text"]) - value) <= max(0.51 * 10 ** -digits, value * 1e-5), (bar, value)
            if value >= 0.0001:
                assert float(bar["text"]) > 0
            inside = bar["box"][1] < bar["x"] + bar["width"]
            assert not inside or bar["box"][0] >= bar["x"], ("text wider than its bar", bar)
            assert bar["width"] < 100 or inside, bar
        assert [bar["kind"] for bar in bars] == [k for row in part["results"] if row["direction"] == column["name"]
                                                 for k in ("pageable", "pinned") if row[k]]
    assert tables[0]["end"] == tables[1]["end"], "H2D and D2H have different axes"
    most = max([b["median"] for row in part["results"] if row["direction"] != "BiD" for b in (row["pageable"], row["pinned"]) if b]
               + [part["summary"]["H2D"]["limit"] or 0])
    assert most <= tables[0]["end"] <= 2.6 * most, ("axis", most, tables[0]["end"])
    for one, two in zip(tables, tables[1:]):
        assert one["x1"] < two["x"], "columns overlap"
    names = block["labels"][: len(run["settings"]["sizes"])]
    assert len(names) == len(run["settings"]["sizes"]) and len(set(names)) == len(names)
    starts = [bar["y"] for bar in tables[0]["bars"]] + [y - 13 for y, _ in tables[0]["none"]]
    for (y, _), top in zip(names, sorted(starts)[::2]):
        assert top < y < top + 36, "a size's name is not beside its bars"
    if part.get("explain"):
        shown = block["columns"][helps:]
        helps_of = part["explain"]["helps"]
        assert [c["name"] for c in shown] == ["H2D", "D2H", "D2H new"]
        assert [near(c["x"], 272 + i * 368 / 3) for i, c in enumerate(shown)] == [True] * 3, [c["x"] for c in shown]
        assert [t for _, t in block["labels"][len(names):]] == [h["method"] for h in helps_of]
        for column, key in zip(shown, ("h2d_gbps", "d2h_gbps", "d2h_fresh_gbps")):
            (x0, _), _, (x1, end) = column["ticks"]
            assert end == shown[0]["ticks"][2][1]
            there = [h for h in helps_of if h[key] is not None]
            assert len(column["bars"]) == len(there)
            for bar, h in zip(column["bars"], there):
                assert near(bar["x"], x0) and near(bar["width"], max(1, h[key] / end * (x1 - x0))), (bar, h)
                assert bar["kind"] == ("pinned" if h["method"].startswith("pinned: ") else "pageable"), (bar, h)
P

# drawn NAME STATUS ARG...: a run with both; the chart is as it should be.
drawn() {
  name=$1 want=$2
  shift 2
  run "$@" -o "$tmp/chart.svg" -o "$tmp/chart.json"
  exits "$name" "$want"
  if command -v python3 >/dev/null; then
    python3 "$tmp/chart.py" "$tmp/chart.svg" "$tmp/chart.json" >"$tmp/err" 2>&1
    ok "$name: geometry"
  else
    skip "$name: geometry" 'no python3'
  fi
}
sizes_up_to() { i=0; while [ $i -lt "$1" ]; do i=$((i + 1)); printf '%dK ' $i; done; }
fast='-i 2 -w 0'
# shellcheck disable=SC2046,SC2086
{
  drawn 'one size' 0 -s 64K $fast
  plain 'one size'
  drawn 'three sizes' 0 -s 64K 1M 16M $fast
  drawn '15 sizes' 0 -s 1K:16M $fast
  drawn '40 sizes' 0 -s $(sizes_up_to 40) $fast
  plain '40 sizes'
  drawn 'BiD' 0 -s 64K 16M -b $fast
  SIM_GPUS=2 SIM_NAME=$odd drawn 'two GPUs and totals' 0 -s 64K 1M -d all -p -b $fast
  plain 'two GPUs'
  SIM_GPUS=3 SIM_RATES='pinned.h2d=10;pinned.h2d=100;pinned.h2d=1000' drawn 'GPUs of different speed' 0 -s 64K 1M -d all $fast
  drawn '--explain' 0 -s 4M -x -T 3 $fast
  plain '--explain'
  SIM_GPUS=2 drawn '--explain of two' 0 -s 4M -x -T 3 -d all $fast
  SIM_NVML_FAIL=nvmlInit_v2 drawn 'no limit' 0 -s 64K -b $fast
  SIM_LINK=1x1 SIM_RATES='pageable.h2d=0.11,pageable.d2h=0.2,pinned.h2d=0.21,pinned.d2h=0.24' drawn 'a narrow link' 0 -s 64K $fast
  SIM_RATES='pageable.h2d=0.0004,pinned.h2d=93,pageable.d2h=109,pinned.d2h=0.05' drawn 'rates far apart' 0 -s 64K 1M $fast
  SIM_RATES='pageable.h2d=100000,pinned.h2d=1000,pageable.d2h=999.96,pinned.d2h=10000' drawn 'large rates' 0 -s 64K 1M $fast
  SIM_RATES='pinned.h2d=64,pinned.d2h=63.99' drawn 'at the limit' 0 -s 64K $fast
  SIM_PIN_LIMIT=100000 drawn 'no pinned memory' 1 -s 64K 1M $fast
  SIM_PIN_LIMIT=0 drawn 'no pinned memory at all' 1 -s 64K 1M $fast
  SIM_COPY='pageable.d2h:none' drawn 'wrong data' 1 -s 64K 1M -b $fast
  SIM_MEM=0 drawn 'nothing' 1 -s 64K $fast
  SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable drawn 'no GPU to be had' 3 -s 64K $fast
  plain 'no GPU to be had'
  drawn 'wide labels' 0 -s 1000003B 1.5M 0.001 $fast
  SIM_NAME="$(printf 'NVIDIA %0139d' 0)" drawn 'a long name' 0 -s 64K $fast
}
grep -q '<text class="title"[^>]*>NVIDIA 0\{29\}…</text>' "$tmp/chart.svg"
ok 'a long name is cut, with an ellipsis'
SIM_GPUS=2 SIM_NAME="$(printf 'NVIDIA %0139d' 0)" run -s 64K -o "$tmp/chart.svg" -d 1
grep -q '<text class="title"[^>]*>NVIDIA 0\{29\}… (GPU 1, 00000000:28:00.0)</text>' "$tmp/chart.svg"
ok 'index and bus id behind it'
SIM_NAME=$odd run -o "$tmp/chart.svg" -s 64K
grep -q '>Odd &#34;name&#34; \\back|pipe, &#60;b&#62;&#38;amp; \*a\* …' "$tmp/chart.svg"
ok 'the title has the name'
grep -q ">PCIe Gen5 x16, $(date -u +%Y-%m-%d), median of 10 after 3</text>" "$tmp/chart.svg"
ok 'below it link, date and copies'

# Settings that change what a bar means.
# says NAME TEXT ARG...
says() {
  name=$1 text=$2
  shift 2
  run -s 4M -i 2 -w 0 -f svg "$@"
  grep -q "<text[^>]*>$text" "$tmp/out"
  ok "$name" "a text $text"
}
says '--untouched' '.*pageable source never written' -u
says '--iters and --warmup' '.*median of 7 after 2' -i 7 -w 2
SIM_GPUS=2 says '--parallel' '.*GPUs at once' -p -d all
says '--pin malloc-host' 'pinned: cudaMallocHost<'
says '--pin register' 'pinned: malloc, then cudaHostRegister<' -m register
says '--pin huge' 'pinned: 2 MB pages, then cudaHostRegister<' -m huge
says '--pin write-combined' 'pinned: cudaHostAllocWriteCombined<' -m write-combined
says '--pin staged' 'pinned: staged, 3 threads, 2 MB chunks<' -m staged -T 3

# Colours: bars differ in grey print, texts stand out, light and dark.
run -s 64K -f svg
if command -v python3 >/dev/null; then
  python3 - "$tmp/out" >"$tmp/err" 2>&1 <<'P'
import re, sys
style = re.search(r"<style>(.*?)</style>", open(sys.argv[1], encoding="utf-8").read(), re.S).group(1)
light, dark = style.split("@media(prefers-color-scheme:dark)")
def luminance(colour):
    colour = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    parts = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(p * w for p, w in zip(parts, (0.2126, 0.7152, 0.0722)))
def contrast(a, b):
    a, b = sorted((luminance(a), luminance(b)))
    return (b + 0.05) / (a + 0.05)
def fill(style, name):
    found = re.search(r"(?:^|[}{,])" + re.escape(name) + r"(?:,[^{}]*)?\{[^}]*?fill:(#[0-9a-f]+)", style)
    return found.group(1)
for style in (light, dark):
    pageable, pinned, back, text = (fill(style, n) for n in (".pageable", ".pinned", ".back", "text"))
    assert contrast(pageable, pinned) >= 2, (pageable, pinned, contrast(pageable, pinned))
    assert contrast(text, back) >= 7 and contrast(fill(style, ".mark"), back) >= 4.5
    assert contrast(text, pageable) >= 4.5, contrast(text, pageable)
    assert contrast(fill(style, ".in-pinned"), pinned) >= 4.5
assert luminance(fill(light, ".back")) > 0.9 and luminance(fill(dark, ".back")) < 0.05
P
  ok 'pageable and pinned differ in grey, texts stand out'
else
  skip 'colours' 'no python3'
fi
SIM_DRIVER=0 run -o "$tmp/never.svg"
[ ! -e "$tmp/never.svg" ]
ok 'without a GPU no file is made'
done_testing
