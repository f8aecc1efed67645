#!/usr/bin/env python3
"""Prints README's table of JSON keys from tests/schema.json. What says the same of two keys is printed for the first:
`pinned` has the members of `pageable`, `D2H` and `BiD` those of `H2D`, `totals` those of a GPU."""
import json
import os
import re

SCHEMA = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "schema.json"), encoding="utf-8"))
REPEATED = re.compile(r"\.(pinned|D2H|BiD)\.|^totals\.")


def resolved(node):
    """Returns a node of the schema with what it refers to; what it says itself goes first."""
    node = dict(node)
    while "$ref" in node:
        node = {**SCHEMA["$defs"][node.pop("$ref").split("/")[-1]], **node}
    return node


def walk(node, path, rows):
    """Adds the described keys below a node to `rows`: path to (description, unit)."""
    node = resolved(node)
    for part in node.get("anyOf", []) + node.get("oneOf", []) + node.get("allOf", []):
        walk(part, path, rows)
    if "items" in node:
        walk(node["items"], path + "[]", rows)
    for key, value in node.get("properties", {}).items():
        below = f"{path}.{key}".lstrip(".")
        whole = resolved(value)
        if "description" in whole and not REPEATED.search(below):
            rows.setdefault(below, (whole["description"], whole.get("unit")))
        walk(value, below, rows)


ROWS = {}
walk(SCHEMA, "", ROWS)
print("| key | meaning |\n|---|---|")
for path, (description, unit) in ROWS.items():
    print(f"| `{path}` | {description}{f' ({unit})' if unit and unit not in description else ''} |")
