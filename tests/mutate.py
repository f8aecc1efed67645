#!/usr/bin/env python3
"""make mutants: puts small faults into dma_bandwidth.c, one at a time, and counts those that something notices.

Usage: tests/mutate.py [COUNT [SEED]]

A fault changes an operator or a number, or deletes a statement; which ones is drawn by chance. Each is built on the
simulated runtime and goes the way of a change in .ci/run: the compiler's warnings, the tests, the quick ones once more
with the sanitizers; the first that complains has noticed it. A fault that nothing notices is printed as a diff: a test is
missing, or the change alters nothing that the program does. Where the compiler makes the same program of both, it
surely alters nothing, and is not counted. Works in build/mutants, on two faults for each CPU at a time, since tests
wait a lot.
"""
import concurrent.futures
import contextlib
import difflib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = open(os.path.join(TOP, "dma_bandwidth.c"), encoding="utf-8").read()
OPERATORS = {"==": "!=", "!=": "==", "<=": "<", ">=": ">", "<": "<=", ">": ">=", "&&": "||", "||": "&&", "+": "-",
             "-": "+", "*": "/", "/": "*", "++": "--", "+=": "-=", "true": "false", "false": "true", "!": ""}
# Quick ones first. The tests of the Makefile, of random command lines and under valgrind cost too much here.
TESTS = ("sizes usage whole link figures data formats memory staged gpus order explain driver chart schema help output "
         "surroundings ending faults table").split()
QUICK = TESTS[:TESTS.index("driver")]  # with the sanitizers, which slow a test down
# What nobody can notice is not drawn: a message of one character, an array that is a little longer, va_end().
POINTLESS = re.compile(r"\bwhy\[$|^\s+(?:(?:static|const|unsigned|struct) )*\w+ [^=;()]*\[$")
WARNINGS = "-O2 -Wall -Wextra -Werror"
SANITIZERS = "-O1 -g -w -fsanitize=address,undefined -fno-sanitize-recover=undefined"
SAME = "the same program"
ALONE = {"table": threading.Lock()}  # it takes 12 GB of memory


def masked(text):
    """Returns the source with comments, strings, characters and directives blanked out, at the same length."""
    pattern = r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#[^\n]*(?:\\\n[^\n]*)*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S | re.M)


def candidates():
    """Returns (begin, end, replacement) for every place where a fault can be put."""
    code, found = masked(SOURCE), []
    start = code.index("static bool size_in_unit") if "static bool size_in_unit" in code else 0
    for m in re.finditer(r"\+\+|\+=|==|!=|<=|>=|&&|\|\||(?<=\s)[<>+*/-](?=\s)|!(?=[\w(*])|\btrue\b|\bfalse\b", code):
        found.append((m.start(), m.end(), OPERATORS[m.group()]))
    for m in re.finditer(r"(?<![\w.])\d+(?![\w.])", code):
        if POINTLESS.search(code[code.rfind("\n", 0, m.start()) + 1:m.start()]): continue
        found.append((m.start(), m.end(), "1" if m.group() == "0" else str(int(m.group()) + 1)))
    for m in re.finditer(r"^ +(?!return\b|const\b|static\b|struct\b|char\b|int\b|double\b|bool\b|size_t\b|unsigned\b|case\b|va_end\b)"
                         r"[A-Za-z_*(][^;{}\n]*;$", code, flags=re.M):
        found.append((m.start(), m.end() - 1, ""))
    return [f for f in found if f[0] >= start]


def run(command, seconds, **more):
    """Runs a command in a process group of its own, killed after so many seconds. Returns its status."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                               start_new_session=True, **more)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return 124
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def unpack(number, source):
    """Puts such a source and all that builds and tests it into a folder of its own. Returns the folder."""
    folder = os.path.join(TOP, "build", "mutants", str(number))
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name in ("Makefile", "README.md", ".cuda"):
        if os.path.exists(os.path.join(TOP, name)):
            os.symlink(os.path.join(TOP, name), os.path.join(folder, name))
    shutil.copytree(os.path.join(TOP, "tests"), os.path.join(folder, "tests"))
    with open(os.path.join(folder, "dma_bandwidth.c"), "w", encoding="utf-8") as out:
        out.write(source)
    return folder


def build(folder, flags, name="build"):
    """Builds what is in that folder on the simulated runtime. Returns the program's path, None if it does not build."""
    if run(["make", "--silent", "sim", "CFLAGS=" + flags, "BUILD=" + name], 120, cwd=folder) != 0:
        return None
    return os.path.join(folder, name, "dma_bandwidth_sim")


def content(path):
    """Returns a file's bytes."""
    with open(path, "rb") as file:
        return file.read()


def failing(folder, program, tests):
    """Gives a program to such tests. Returns the first that fails, None where all pass."""
    for test in tests:
        with ALONE.get(test, contextlib.nullcontext()):
            if run(["prove", "-Q", "--exec", "sh", os.path.join(folder, "tests", test + ".t")], 300, cwd=folder,
                   env=dict(os.environ, SIM=program)) != 0:
                return test
    return None


def judge(number, fault, original):
    """Returns who noticed a fault, a test or another: "unbuilt", "the same program"; None where nobody did."""
    begin, end, replacement = fault
    folder = unpack(number, SOURCE[:begin] + replacement + SOURCE[end:])
    program = build(folder, WARNINGS)
    if not program:
        noticed = "compiler" if build(folder, "-O2 -w") else "unbuilt"
    elif content(program) == original:
        noticed = SAME
    else:
        noticed = failing(folder, program, TESTS)
    if noticed is None:
        program = build(folder, SANITIZERS, "asan")
        test = program and failing(folder, program, QUICK)
        noticed = test and "sanitizers, " + test
    shutil.rmtree(folder, ignore_errors=True)
    return noticed


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    faults = random.Random(seed).sample(candidates(), count)
    original = content(build(unpack("original", SOURCE), WARNINGS))
    noticed = unbuilt = same = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=2 * os.cpu_count()) as pool:
        for number, by in enumerate(pool.map(judge, range(count), faults, [original] * count)):
            begin, end, replacement = faults[number]
            unbuilt += by == "unbuilt"
            same += by == SAME
            noticed += by not in (None, "unbuilt", SAME)
            line = SOURCE.count("\n", 0, begin) + 1
            print(f"{number + 1}/{count}: line {line}: {by or 'NOT NOTICED'}", flush=True)
            if by is None:
                after = SOURCE[:begin] + replacement + SOURCE[end:]
                diff = difflib.unified_diff(SOURCE.splitlines(), after.splitlines(), lineterm="", n=0)
                print("\n".join(d for d in diff if d[:3] not in ("---", "+++")), flush=True)
    left = count - unbuilt - same
    print(f"{noticed} of {left} faults noticed; {left - noticed} not noticed, {same} change nothing, "
          f"{unbuilt} do not build")


main()
