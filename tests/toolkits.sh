#!/bin/sh
# Builds against CUDA 11.8, 12.x and 13.x from PyPI, static and shared, with gcc and clang, as C11
# and C17, without a warning; runs each, and the quick tests on each. Usage: tests/toolkits.sh [13 12 11]
set -eu
cd "$(dirname "$0")/.."
unset CUDA_HOME CUDA_PATH CPATH LIBRARY_PATH 2>/dev/null || true
built=0
[ $# -gt 0 ] || set -- 13 12 11
for series; do
  home=$PWD/build/toolkits/$series
  [ -f "$home/include/cuda_runtime_api.h" ] || sh tests/toolkit.sh "$series" "$home"
  for cc in gcc clang; do
    command -v $cc >/dev/null || continue
    for cudart in static shared; do
      for std in gnu11 gnu17; do
        folder=build/toolkits/$series-$cc-$cudart-$std
        make --silent CC=$cc CUDA_HOME="$home" CUDART=$cudart BUILD="$folder" PROGRAM="$folder/dma_bandwidth" \
          CFLAGS="-O2 -Wall -Wextra -Werror -std=$std" all sim
        status=0
        "$folder/dma_bandwidth" >"$folder/out" 2>"$folder/err" || status=$?
        [ -e /dev/nvidiactl ] || { [ $status = 3 ] && [ ! -s "$folder/out" ]; } ||
          { echo "toolkits: $folder: status $status"; cat "$folder/err"; exit 1; }
        "$folder/dma_bandwidth" --version | sed -n "s|^CUDA runtime|$series $cc $cudart $std: CUDA runtime|p"
        built=$((built + 1))
      done
    done
  done
  SIM=$PWD/build/toolkits/$series-gcc-static-gnu11/dma_bandwidth_sim \
    prove --quiet --exec 'timeout -s KILL 1200 sh' tests/sizes.t tests/usage.t tests/data.t tests/link.t tests/driver.t tests/formats.t tests/explain.t
done
echo "toolkits: $built builds"
