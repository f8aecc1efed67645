#!/bin/sh
# Finds CUDA's runtime for the Makefile, which passes its variables. Usage: tests/find-cuda.sh [FOLDER]
# Without FOLDER, prints where the headers are. With it, writes there what a build depends on (flags) and the
# options for the compiler (headers, runtime; quoted as gcc and clang read @FILE); nothing, where flags has not changed.
set -eu
machine=$(uname -m)
CC=${CC:-cc}
include='' library='' own=''

stop() {
  printf '%s\n' "$@" >&2
  exit 1
}

# look FOLDER: sets include and library from a toolkit as NVIDIA's installer, conda or PyPI (13, then 12 and 11) lays it out.
look() {
  case $machine in
  aarch64) targets='targets/sbsa-linux targets/aarch64-linux' ;;
  *) targets=targets/$machine-linux ;;
  esac
  for name in $names; do
    for layout in . $targets nvidia/cu13 nvidia/cuda_runtime; do
      [ -f "$1/$layout/include/cuda_runtime_api.h" ] || continue
      root=$(CDPATH='' cd -- "$1/$layout" && pwd)
      for library in "$root/lib64/$name"* "$root/lib/$name"* "$root/lib/$machine-linux-gnu/$name"*; do
        [ -f "$library" ] && include=$root/include && return
      done
    done
  done
  library=''
  return 1
}

# The compiler's own paths, as Debian's nvidia-cuda-toolkit has it: sets own to the option that links.
look_own() {
  eval "$CC ${CPPFLAGS:-} -E -include cuda_runtime_api.h -x c /dev/null" >/dev/null 2>&1 || return 1
  for own in $names; do
    own=${own#lib}
    own=-l${own%.*}
    echo 'int main(void) { return 0; }' | eval "$CC -x c - -o /dev/null ${LDFLAGS:-} $own" 2>/dev/null && return
  done
  own=''
  return 1
}

find_cuda() {
  if [ -n "${CUDA_HOME:-}" ]; then
    look "$CUDA_HOME"
    return
  fi
  [ -n "${CUDA_PATH:-}" ] && look "$CUDA_PATH" && return
  look .cuda && return
  nvcc=$(readlink -f "$(command -v nvcc || echo /none)") && look "${nvcc%/bin/*}" && return
  [ -n "${CONDA_PREFIX:-}" ] && look "$CONDA_PREFIX" && return
  for folder in ${CUDA_FOLDERS:-}; do
    look "$folder" && return
  done
  look_own
}

# Static unless asked otherwise, or unless the toolkit (PyPI's for CUDA 11) has no static library.
case ${CUDART:=static} in
static) names='libcudart_static.a libcudart.so' ;;
shared) names=libcudart.so ;;
*) stop "CUDART=$CUDART: there are static and shared" ;;
esac

if [ $# = 0 ]; then
  find_cuda || true
  printf '%s\n' "${include:-/usr/include}"
  exit
fi

compiler=$(eval "set -- $CC" && printf '%s' "$1")
command -v "$compiler" >/dev/null ||
  stop "no C compiler: there is no $compiler; apt-get install build-essential, or name one with CC="
echo '#include <stdio.h>' | eval "$CC ${CFLAGS:-} ${CPPFLAGS:-} -E -" >/dev/null 2>&1 ||
  stop "$compiler finds no C headers: apt-get install build-essential"
if ! find_cuda; then
  [ -z "${CUDA_HOME:-}" ] || stop "no CUDA runtime found in CUDA_HOME=$CUDA_HOME"
  [ -n "${FETCH:-}" ] || stop 'no CUDA runtime found. Ways to get one:' \
    '  make toolkit                           fetches the runtime alone from PyPI into .cuda/ (a few MB)' \
    '  apt-get install nvidia-cuda-toolkit    on Debian and Ubuntu' \
    '  make CUDA_HOME=/path/to/cuda           if there is one that was not found'
  sh tests/toolkit.sh "${CUDA:-}" >&2
  look .cuda || stop 'no CUDA runtime in .cuda/, though it was fetched'
fi

# argument WORD...: each on a line, quoted for the compiler's @FILE.
argument() {
  for word; do
    printf '"%s"\n' "$(printf '%s\n' "$word" | sed 's/[\\"]/\\&/g')"
  done
}
headers=''
if [ -n "$own" ]; then
  runtime=$own
  sums=$(eval "$CC ${CPPFLAGS:-} -E -dM -include cuda_runtime_api.h -x c /dev/null" | grep 'define CUDART_VERSION')
else
  [ "$include" = /usr/include ] || headers=$(argument -isystem "$include")
  crt=$include/../../cuda_nvcc/include # PyPI's 12 keeps a part of the headers there
  [ ! -d "$crt" ] || headers=$(argument -isystem "$include" -isystem "$crt")
  runtime=$(argument "$library")
  sums=$(cksum "$include/cuda_runtime_api.h" "$library")
  case $library in
  *.so*)
    [ "${RPATH=toolkit}" != toolkit ] || RPATH=$(dirname "$library")
    [ -z "$RPATH" ] || runtime="$runtime
$(argument -Xlinker -rpath -Xlinker "$RPATH")"
    ;;
  esac
fi
flags=$(printf '%s\n' "CC=$CC" "CFLAGS=${CFLAGS:-}" "CPPFLAGS=${CPPFLAGS:-}" "LDFLAGS=${LDFLAGS:-}" "$headers" "$runtime" "$sums")
if [ "$flags" != "$(cat "$1/flags" 2>/dev/null)" ]; then
  case $CUDART,$own$library in
  static,*.so* | static,-lcudart) echo 'this toolkit has no static CUDA runtime: linking the shared one' >&2 ;;
  esac
  mkdir -p "$1"
  printf '%s\n' "$headers" >"$1/headers"
  printf '%s\n' "$runtime" >"$1/runtime"
  printf '%s\n' "$flags" >"$1/flags" # the last: what was cut short is done again
fi
