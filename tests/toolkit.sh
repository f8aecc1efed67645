#!/bin/sh
# Fetches CUDA's runtime library and headers, and nothing else of CUDA, from PyPI into .cuda/.
# Usage: tests/toolkit.sh [13|12|11] [FOLDER]. 13 is the default series; 11 is 11.8, shared only.
set -eu
series=${1:-13}
target=${2:-.cuda}
case $series in
13) runtime='nvidia-cuda-runtime==13.*' crt='nvidia-cuda-crt==13.*' ;;
12) runtime='nvidia-cuda-runtime-cu12' crt='nvidia-cuda-nvcc-cu12' ;; # the compiler's package carries crt/
11) runtime='nvidia-cuda-runtime-cu11==11.8.*' crt='nvidia-cuda-nvcc-cu11==11.8.*' ;;
*)
  echo "toolkit: CUDA=$series: there are series 13, 12 and 11" >&2
  exit 2
  ;;
esac
python=${PYTHON:-python3}
if ! "$python" -m pip --version >/dev/null 2>&1; then
  echo "toolkit: '$python -m pip' is needed: install python3 and python3-pip, or set PYTHON" >&2
  exit 1
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
echo "fetching $runtime and the headers of $crt from PyPI into $target/"
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$tmp" "$runtime" "$crt"
"$python" - "$tmp" "$target" <<'P'
import glob, os, shutil, sys, zipfile
source, target = sys.argv[1:]
shutil.rmtree(target, ignore_errors=True)
for wheel in glob.glob(os.path.join(source, "*.whl")):
    runtime = "runtime" in os.path.basename(wheel)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            parts = name.split("/")  # nvidia/cu13/include/..., nvidia/cuda_runtime/lib/...
            wanted = parts[2:3] in (["include"], ["lib"]) if runtime else parts[2:4] == ["include", "crt"]
            if not wanted or name.endswith("/"):
                continue
            path = os.path.join(target, *parts[2:])
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with archive.open(name) as a, open(path, "wb") as b:
                shutil.copyfileobj(a, b)
P
test -f "$target/include/cuda_runtime_api.h"
