#!/bin/sh
# Fetches CUDA's runtime library and headers, and nothing else of CUDA, from PyPI into .cuda/.
# Usage: tests/toolkit.sh [13|12|11] [FOLDER]. Without a series, or with an empty one, it is the one that the driver can run
# (nvidia-smi tells), 13 where there is no driver; 11 is 11.8, shared only.
set -eu
series=${1:-}
target=${2:-.cuda}

stop() {
  echo "toolkit: $1" >&2
  exit "${2:-1}"
}
if [ -z "$series" ]; then
  smi=$(command -v nvidia-smi || echo /usr/lib/wsl/lib/nvidia-smi)
  driver=$("$smi" 2>/dev/null | sed -n 's/.*CUDA[A-Z ]* Version: *\([0-9]*\.[0-9]*\).*/\1/p' | head -n 1)
  case ${driver%.*} in
  '') series=13 ;;
  [1-9] | 10) stop "the driver runs CUDA $driver at most, and the oldest runtime to be had is 11.8: update the driver" ;;
  11 | 12) series=${driver%.*} ;;
  *) series=13 ;;
  esac
  [ -z "$driver" ] || echo "the driver runs CUDA $driver: taking series $series (CUDA= chooses another)"
fi
case $series in
13) runtime='nvidia-cuda-runtime==13.*' crt='nvidia-cuda-crt==13.*' ;;
12) runtime='nvidia-cuda-runtime-cu12' crt='nvidia-cuda-nvcc-cu12' ;; # the compiler's package carries crt/
11) runtime='nvidia-cuda-runtime-cu11==11.8.*' crt='nvidia-cuda-nvcc-cu11==11.8.*' ;;
*) stop "CUDA=$series: there are series 13, 12 and 11" 2 ;;
esac
python=${PYTHON:-python3}
"$python" -m pip --version >/dev/null 2>&1 ||
  stop "'$python -m pip' is needed: apt-get install python3-pip, or set PYTHON"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp" "$target.new"' EXIT
trap 'exit 130' INT TERM HUP
echo "fetching $runtime and the headers of $crt from PyPI into $target/"
if ! "$python" -m pip download --quiet --disable-pip-version-check --retries 2 --no-deps --dest "$tmp" "$runtime" "$crt" \
  >"$tmp/log" 2>&1; then
  if grep -Eq 'NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|[Cc]onnection (broken|refused)|resolution' "$tmp/log"; then
    stop 'no network: PyPI cannot be reached, and nothing was changed; copy .cuda/ from a machine that ran make toolkit, or set CUDA_HOME'
  fi
  stop "pip: $(grep . "$tmp/log" | tail -n 1)"
fi
"$python" - "$tmp" "$target.new" <<'P'
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
[ -f "$target.new/include/cuda_runtime_api.h" ] || stop 'the packages hold no cuda_runtime_api.h: nothing was changed'
rm -rf "$target"
mv "$target.new" "$target"
if [ "$target" = .cuda ] && [ -n "${CUDA_HOME:-}" ]; then
  echo "CUDA_HOME=$CUDA_HOME goes before .cuda/: to use what was fetched, make CUDA_HOME=.cuda"
fi
