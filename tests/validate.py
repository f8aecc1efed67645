"""validate.py SCHEMA FILE...: holds every line of the files against the JSON Schema, and against what a schema cannot
say. Prints what is wrong; ends with 1 if anything is, or if there is nothing to look at."""
import json
import statistics
import sys

import jsonschema


def close(a, b):
    return abs(a - b) <= 2e-5 * max(abs(a), abs(b))


def contradictions(run):
    """Yields what does not fit together in a run that the schema allows."""
    settings = run["settings"]
    directions = ["H2D", "D2H"] + ["BiD"] * settings["bidir"]
    rows = [(size, direction) for size in settings["sizes"] for direction in directions]
    parts = list(run["gpus"]) + ([run["totals"]] if run["totals"] else [])
    for part in parts:
        measured = [(row["bytes"], row["direction"]) for row in part["results"]]
        if measured != rows[: len(measured)]:
            yield "results are not the sizes asked for, in their order"
        if sorted(part["summary"]) != sorted(directions):
            yield "summaries are not those of the directions"
        for row in part["results"]:
            if row["pageable"] and row["pinned"]:
                if not close(row["ratio"], row["pinned"]["median"] / row["pageable"]["median"]):
                    yield "ratio does not follow from the medians"
            elif row["ratio"] is not None or row["delta"] is not None:
                yield "a ratio or delta of one kind of memory"
        for row in part["results"] if part is not run["totals"] else []:
            for cell in filter(None, (row["pageable"], row["pinned"])):
                samples = cell["samples"]
                if len(samples) > settings["iters"] or row["status"] == "ok" and len(samples) < settings["iters"]:
                    yield "the number of samples"
                if not (close(cell["median"], statistics.median(samples)) and close(cell["mean"], statistics.mean(samples))
                        and cell["min"] == min(samples) and cell["max"] == max(samples)):
                    yield "statistics do not follow from the samples"
                if (cell["stddev"] is None) != (len(samples) == 1):
                    yield "stddev of %d samples" % len(samples)
    if run["exit_status"] == 0 and any(row["status"] != "ok" for part in parts for row in part["results"]):
        yield "exit status 0 with a row that is not ok"


def main(schema, *files):
    with open(schema, encoding="utf-8") as file:
        schema = json.load(file)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    seen = wrong = 0
    for name in files:
        with open(name, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                seen += 1
                try:
                    run = json.loads(line, parse_constant=lambda word: sys.exit("%s:%d: %s" % (name, number, word)))
                except ValueError as error:
                    problems = ["no JSON: %s" % error]
                else:
                    problems = ["%s: %s" % (error.json_path, error.message[:300]) for error in validator.iter_errors(run)]
                    problems = problems or sorted(set(contradictions(run)))
                wrong += bool(problems)
                for problem in problems:
                    print("%s:%d: %s" % (name, number, problem))
    print("%d objects, %d of them wrong" % (seen, wrong))
    return 1 if wrong or not seen else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
