#!/bin/sh
# The program's JSON against tests/schema.json, and that wrong documents are told from right ones.
. "$(dirname "$0")/lib.sh"

if ! python3 -c 'from jsonschema import Draft202012Validator' 2>/dev/null; then
  skip 'JSON against its schema' 'no python3 with jsonschema 4'
  done_testing
  exit
fi
validate() { python3 "$here/validate.py" "$here/schema.json" "$@" >"$tmp/err" 2>&1; }
# keep STATUS ARG...: a run that ends so; its object is checked at the end.
: >"$tmp/all"
kept=0
keep() {
  want=$1
  shift
  run -f json "$@"
  [ "$status" = "$want" ] && [ "$(wc -l <"$tmp/out")" = 1 ] &&
    [ "$(sed -n 's/.*"exit_status":\([0-9]*\),.*/\1/p' "$tmp/out")" = "$want" ]
  ok "one object, status $want in it: $*" "status $want"
  kept=$((kept + 1))
  cat "$tmp/out" >>"$tmp/all"
}
small='-s 64K -i 2 -w 1'
# shellcheck disable=SC2086
{
  keep 0 $small
  keep 0 -s 64K -i 1 -w 0 -a -n -q
  keep 0 -s 64K 16M -i 3 -b -u
  SIM_GPUS=2 keep 0 $small -d all -p -b
  SIM_GPUS=3 keep 0 $small -d 2,0
  for pin in register huge write-combined staged; do keep 0 -s 4M -i 2 -m $pin; done
  keep 0 -s 4M -i 2 -x -T 3
  SIM_GPUS=2 keep 0 -s 4M -i 2 -x -m staged -d all -p
  SIM_PIN_LIMIT=0 keep 1 -s 4M -i 2 -x
  keep 0 -l
  SIM_GPUS=2 keep 0 -l -d 1
  keep 4 -s 16M -i 2 -t 100
  SIM_NVML_FAIL=nvmlInit_v2 keep 1 $small -t 50
  SIM_NVML_FAIL=nvmlInit_v2 keep 0 $small
  SIM_C2C=1 keep 0 $small
  SIM_INTEGRATED=1 keep 0 $small
  SIM_LINK=5x16/4x8 keep 0 $small
  SIM_LINK=1x1 keep 0 $small
  SIM_PIN_LIMIT=100000 keep 1 -s 64K 1M -i 2
  SIM_MEM=0 keep 1 $small
  SIM_COPY='pinned.d2h:none' keep 1 $small
  SIM_GPUS=2 SIM_COPY='gpu1.pageable:none' keep 1 $small -d all -p
  SIM_STALL=3 keep 1 $small
  SIM_DRIVER=0 keep 3
  SIM_DRIVER=10020 keep 3
  SIM_GPUS=0 keep 3
  SIM_GPUS=0 keep 3 -l
  SIM_FAIL=cudaSetDevice:1:cudaErrorDevicesUnavailable keep 3 $small
  SIM_FAIL=cudaGetDeviceProperties:1 keep 3 $small
  SIM_FAIL=cudaMemcpy:9 keep 1 -s 1M 2M -i 2 -w 1
  keep 2 -d 5
  keep 1 -s 64K -o "$tmp/none/x.txt"
  SIM_NAME="$(printf '\001"\\\377\302\205')" keep 0 $small
}
for signal in INT TERM HUP; do
  for options in '' '-x -d all' '-p -d all -b -m staged'; do
    # shellcheck disable=SC2086
    SIM_GPUS=2 SIM_DELAY=30 launch -f json -s 64K 128K -i 1000 $options
    armed "$pid"
    sleep 0.2
    kill -s "$signal" "$pid"
    reap
    exits "$signal, $options" 130
    kept=$((kept + 1))
    cat "$tmp/out" >>"$tmp/all"
  done
done
is 'an object of every run' "$(wc -l <"$tmp/all")" $kept
validate "$tmp/all"
ok "all of them fit the schema"

# One change makes a right document wrong.
keep 0 -s 4M -i 2 -x
cp "$tmp/out" "$tmp/good"
validate "$tmp/good"
ok 'a right document'
python3 - "$tmp/good" "$tmp/wrong" <<'P'
import copy, json, sys
good = json.load(open(sys.argv[1]))
def changed(path, value=None, drop=False):
    run = copy.deepcopy(good)
    *way, last = path
    at = run
    for key in way:
        at = at[key]
    if drop:
        del at[last]
    else:
        at[last] = value
    return json.dumps(run)
def paths(at, way=()):
    if isinstance(at, dict):
        for key, value in at.items():
            yield way + (key,)
            yield from paths(value, way + (key,))
    elif isinstance(at, list) and at:
        yield from paths(at[0], way + (0,))
row = ("gpus", 0, "results", 0)
wrong = [changed(path, drop=True) for path in paths(good)]
wrong += [changed(path, []) for path in paths(good) if path[-1] not in ("notes", "helps", "results")]
wrong += [changed(path[:-1] + ("more",), 1) for path in paths(good)]
wrong += [changed(*change) for change in [
    (("exit_status",), 1), (("exit_status",), 5), (("status",), "failed"), (("error",), "why"), (("version",), "1.1"),
    (("time",), "2026-01-01 00:00:00"), (("host",), ""), (("schema",), 2), (("settings", "pin"), "malloc"),
    (("settings", "sizes"), []), (("settings", "sizes"), [0]), (("settings", "iters"), 3), (("settings", "bidir"), True),
    (row + ("pageable",), None), (row + ("ratio",), None), (row + ("ratio",), 1), (row + ("status",), "incomplete"),
    (row + ("status",), "failed: "), (row + ("bytes",), 1), (row + ("direction",), "D2H"), (row + ("pinned", "median"), 1),
    (row + ("pinned", "samples"), []), (row + ("pinned", "min"), -1), (row + ("pinned", "stddev"), None),
    (("gpus", 0, "link", "kind"), "unknown"), (("gpus", 0, "link", "gen"), 7), (("gpus", 0, "link", "gen"), None),
    (("gpus", 0, "uuid"), "GPU-1"), (("totals",), {}), (("gpus", 0, "notes"), [""])]]
open(sys.argv[2], "w").write("".join(line + "\n" for line in wrong))
P
lines=$(wc -l <"$tmp/wrong")
! validate "$tmp/wrong"
ok 'wrong documents fail'
is 'every one of them' "$(tail -n 1 "$tmp/err")" "$lines objects, $lines of them wrong"
: >"$tmp/empty"
! validate "$tmp/empty"
ok 'nothing at all fails'
head -c 500 "$tmp/good" >"$tmp/half"
! validate "$tmp/half"
ok 'half a document fails'

# Every key has a description, and a unit where it is a number.
python3 - "$here/schema.json" >"$tmp/out" 2>"$tmp/err" <<'P'
import json, sys
schema = json.load(open(sys.argv[1]))
def target(s):
    s = s.get("anyOf", [s])[0]
    return schema["$defs"][s["$ref"].split("/")[-1]] if "$ref" in s else s
def numeric(s):
    s = target(s)
    kind = s.get("type", [])
    values = s.get("enum", [s.get("const")])
    return bool({"number", "integer"} & set([kind] if isinstance(kind, str) else kind)) or type(values[0]) is int or \
        (kind == "array" and "items" in s and numeric(s["items"]))
keys = 0
for name, s in [("", schema)] + list(schema["$defs"].items()):
    assert s.get("type") != "object" or s["additionalProperties"] is False, name
    for key, value in s.get("properties", {}).items():
        keys += 1
        assert value.get("description"), (name, key)
        assert "unit" in value or not numeric(value), (name, key, "no unit")
assert keys > 60, keys
P
ok 'every key has a description, every number a unit'
done_testing
