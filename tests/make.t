#!/bin/sh
# The Makefile and its scripts: what is built and when, where CUDA is found, run, check, install, toolkit.
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES CFLAGS CONDA_PREFIX DESTDIR PREFIX FETCH RPATH
# A copy, so that nothing here is rebuilt or removed; all of it in a folder with blanks and a quote in its name.
copy="$tmp/a student's copy"
mkdir "$copy" && cp -R "$top/Makefile" "$top/dma_bandwidth.c" "$top/tests" "$copy/"
[ -d "$top/.cuda" ] && ln -s "$top/.cuda" "$copy/"
cd "$copy" || exit 1
fast='CFLAGS=-O0 -w' # where it does not matter what is built

# made ARG...: runs make, with $path as PATH if that is set; leaves $tmp/out, $tmp/err, $status.
made() {
  env ${path:+"PATH=$path"} make --no-print-directory "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}
# builds NAME ARG..., keeps NAME ARG...: make with these builds the program again, or leaves it as it is.
builds() {
  name=$1
  shift
  made "$@"
  exits "$name" 0
  out "$name: built again" '-o dma_bandwidth dma_bandwidth.c'
}
keeps() {
  name=$1
  shift
  made "$@"
  exits "$name" 0
  lacks "$name: nothing is built" '-o '
}
# runpath: the program's, a line.
runpath() { readelf -d dma_bandwidth | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p'; }

made help
for target in all sim run check check-gpu bench mutants toolkit install uninstall clean help; do
  out "make help lists $target" "^  $target  "
done
made -j3 all sim
exits 'make -j' 0
! grep -Eiq 'warning|jobserver' "$tmp/err"
ok 'make -j warns of nothing'
include=$(make --silent print-include)
[ -f "$include/cuda_runtime_api.h" ]
ok 'print-include' "$include/cuda_runtime_api.h"
include=$(readlink -f "$include")
library=$(sed -n '1s/^"\(.*\)"$/\1/p' build/runtime)
[ -n "$library" ] || library=$(cc -print-file-name=libcudart_static.a)
library=$(readlink -f "$library")
shared=$(find -L "$(dirname "$library")" -maxdepth 1 -name 'libcudart.so*' | sort | head -n 1)
case $library in *.so*) shared='' ;; esac # no static one: nothing to choose from

# toolkit FOLDER [LAYOUT]: a toolkit made of links to the one that is here.
toolkit() {
  mkdir -p "$1/${2:-.}/lib"
  ln -s "$include" "$1/${2:-.}/include"
  ln -s "$library" "$1/${2:-.}/lib/"
  [ ! -f "$shared" ] || ln -sf "$shared" "$1/${2:-.}/lib/"
}

# Built again when what it is built from changed, and only then.
keeps 'a second make' all sim
PROGRAM=other BUILD=out CUDA=9 CUDART=shared RPATH=/x QUIET=@ keeps 'variables of these names in the environment'
[ ! -e other ] && [ ! -e out ]
ok 'nor is anything built elsewhere' 'neither other nor out'
builds 'other flags' "$fast"
keeps 'the same flags' "$fast"
CFLAGS='-O0 -w -DX="a b"' builds 'flags from the environment, with a blank in quotes'
odd="$tmp/odd, \"home\" \\ of 1"
toolkit "$odd"
builds 'a toolkit with blanks, quotes and commas in its name' "$fast" CUDA_HOME="$odd"
keeps 'the same toolkit' "$fast" CUDA_HOME="$odd"
rm "$odd/include"
mkdir "$odd/include"
for file in "$include"/*; do ln -s "$file" "$odd/include/"; done
rm "$odd/include/cuda_runtime_api.h"
(cat "$include/cuda_runtime_api.h" && echo '/* another */') >"$odd/include/cuda_runtime_api.h"
builds 'another toolkit in the same place' "$fast" CUDA_HOME="$odd"
if [ -f "$shared" ] && command -v readelf >/dev/null; then
  builds 'CUDART=shared' "$fast" CUDA_HOME="$odd" CUDART=shared
  is 'RUNPATH is its folder' "$(runpath)" "$odd/lib"
  ./dma_bandwidth --version >"$tmp/out" 2>"$tmp/err"
  out 'and it is found' '^CUDA runtime [0-9]'
  builds 'RPATH=' "$fast" CUDA_HOME="$odd" CUDART=shared RPATH=
  is 'RPATH=: no RUNPATH' "$(runpath)" ''
  builds 'RPATH=DIR' "$fast" CUDA_HOME="$odd" CUDART=shared RPATH='$$ORIGIN/a b'
  is 'RPATH=DIR: RUNPATH' "$(runpath)" '$ORIGIN/a b'
  rm -f "$odd/lib/libcudart_static.a"
  builds 'no static library' "$fast" CUDA_HOME="$odd"
  err 'it says so' 'no static CUDA runtime: linking the shared one'
  is 'RUNPATH' "$(runpath)" "$odd/lib"
else
  skip 'CUDART=shared' 'no two CUDA runtimes or no readelf'
fi
made CUDART=statik
exits 'CUDART=statik' 2
err 'CUDART=statik: what there is' 'CUDART=statik: there are static and shared'

# Two folders, each with its toolkit: one program.
mkdir "$tmp/b" && cp -R Makefile dma_bandwidth.c tests "$tmp/b/"
for folder in "$copy" "$tmp/b"; do
  rm -rf "$folder/.cuda"
  toolkit "$folder/.cuda"
  made -C "$folder" all sim 'CFLAGS=-g -O0 -fno-canonical-system-headers -ffile-prefix-map="$$PWD"=.' CUDA_HOME=.cuda RPATH=
  exits '-ffile-prefix-map' 0
done
for file in dma_bandwidth build/dma_bandwidth_sim build/sim/libnvidia-ml.so.1; do
  cmp "$file" "$tmp/b/$file" >"$tmp/out" 2>&1
  ok "built in two folders: $file" 'no difference'
done
made -C "$tmp/b" sim CFLAGS=-Ofast
if [ $status = 0 ]; then
  "$tmp/b/build/dma_bandwidth_sim" -s 64K -i 1 -f json >"$tmp/out" 2>"$tmp/err"
  status=$?
  exits '-Ofast' 0
  lacks '-Ofast: no NaN is lost' '(:|,)-?(nan|inf)'
else
  err '-Ofast is refused' 'error.*(fast-math|Ofast|finite-math)'
fi

# Where a toolkit is looked for: fake uname and nvcc; libraries and headers only have to be there.
mkdir -p "$tmp/arm" "$tmp/nvcc/bin"
printf '#!/bin/sh\necho aarch64\n' >"$tmp/arm/uname"
printf '#!/bin/sh\n' >"$tmp/nvcc/bin/nvcc"
chmod +x "$tmp/arm/uname" "$tmp/nvcc/bin/nvcc"
ln -s "$tmp/nvcc/bin/nvcc" "$tmp/arm/nvcc"
# found NAME INCLUDE ARG...: that is where the headers are found.
found() {
  name=$1 want=$2
  shift 2
  made print-include "$@"
  is "$name" "$(cat "$tmp/out")" "$want"
}
for layout in "targets/$(uname -m)-linux" nvidia/cu13 nvidia/cuda_runtime; do
  home="$tmp/layouts/$layout/a home"
  toolkit "$home" "$layout"
  found "layout $layout" "$home/$layout/include" CUDA_HOME="$home"
done
path=$tmp/arm:$PATH
for layout in sbsa-linux aarch64-linux; do
  toolkit "$tmp/$layout" targets/$layout
  found "layout targets/$layout on Grace" "$tmp/$layout/targets/$layout/include" CUDA_HOME="$tmp/$layout"
done
toolkit "$tmp/foreign" targets/sparc-linux
found "another machine's is not taken" /usr/include CUDA_HOME="$tmp/foreign"

rm -rf .cuda
for folder in "$tmp/home" "$tmp/path" .cuda "$tmp/nvcc" "$tmp/folders"; do toolkit "$folder"; done
found 'CUDA_HOME first' "$tmp/home/include" CUDA_HOME="$tmp/home" CUDA_PATH="$tmp/path" CUDA_FOLDERS="$tmp/folders"
unset CUDA_HOME CUDA_PATH
found 'then CUDA_PATH' "$tmp/path/include" CUDA_PATH="$tmp/path" CUDA_FOLDERS="$tmp/folders"
found 'then .cuda' "$copy/.cuda/include" CUDA_PATH=/nowhere CUDA_FOLDERS="$tmp/folders"
rm -r .cuda
found 'then nvcc' "$tmp/nvcc/include" CUDA_FOLDERS="$tmp/folders"
rm "$tmp/nvcc/include"
found 'then the usual folders' "$tmp/folders/include" CUDA_FOLDERS="/nowhere $tmp/fold*"
path=

# No toolkit anywhere: the usual folders, the compiler's own paths, PATH and environment hidden.
mkdir "$tmp/bare"
for tool in make sh cut tr find sed gcc as ld uname mkdir mktemp mv rm cat dirname cksum cp ls ln grep head tail readlink install \
  nproc sort awk; do
  command -v $tool >"$tmp/out" && ln -s "$(cat "$tmp/out")" "$tmp/bare/$tool"
done
printf '#!/bin/sh\ncase "$*" in *cuda_runtime_api.h*) exit 1 ;; esac\nexec %s "$@"\n' "$(command -v cc)" >"$tmp/bare/cc"
chmod +x "$tmp/bare/cc"
# bare ARG...: make there.
bare() {
  path=$tmp/bare
  made CUDA_FOLDERS= PYTHON="$tmp/python" "$@"
  path=
}
# install: what is built, with no toolkit; into folders with blanks.
builds 'before install' "$fast" CUDA_HOME="$tmp/home"
root="$tmp/a root" prefix='/opt/an x'
bare install DESTDIR="$root" PREFIX="$prefix"
exits 'make install without CUDA' 0
lacks 'nothing is built' '-o '
"$root$prefix/bin/dma_bandwidth" -V >"$tmp/v"
cmp -s dma_bandwidth "$root$prefix/bin/dma_bandwidth"
ok 'DESTDIR and PREFIX with blanks' "the program in $root$prefix/bin"
out 'no man page without help2man, with a word' 'no man page: help2man is not installed'
: >"$root$prefix/bin/other"
: >a
bare uninstall DESTDIR="$root" PREFIX="$prefix"
exits 'make uninstall without CUDA' 0
[ ! -e "$root$prefix/bin/dma_bandwidth" ] && [ -e "$root$prefix/bin/other" ]
ok 'it removes what was installed, and that only'
made uninstall DESTDIR="$PWD/a dir"
[ -e a ]
ok 'nor anything that a name with blanks begins with'
made install DESTDIR="$root" bindir=/b/c mandir=/m
exits 'bindir, mandir' 0
[ -x "$root/b/c/dma_bandwidth" ]
ok 'bindir'
if command -v help2man >/dev/null; then
  grep -q '^\.TH DMA_BANDWIDTH "1"' "$root/m/man1/dma_bandwidth.1" && grep -q '^malloc.*host: ' "$root/m/man1/dma_bandwidth.1"
  ok 'the man page has the options, and their lists' 'a page with .TH and a line malloc-host: ...'
  made uninstall DESTDIR="$root" bindir=/b/c mandir=/m
  [ -z "$(find "$root/b" "$root/m" -type f)" ]
  ok 'uninstall removes both'
else
  skip 'the man page' 'no help2man'
fi
touch dma_bandwidth.c
bare install DESTDIR="$root"
exits 'install of a source that is newer builds, and so needs CUDA' 2
made -n install DESTDIR="$root" "$fast" CUDA_HOME="$tmp/home"
out 'it builds' '-o dma_bandwidth'

bare
exits 'no CUDA' 2
err 'no CUDA: it says so' 'no CUDA runtime found'
err 'and how to get one' 'make toolkit'
err 'and how to name one' 'CUDA_HOME='
[ ! -e .cuda ]
ok 'make alone does not fetch one'
bare run CUDA_HOME=/nowhere
exits 'CUDA_HOME without CUDA' 2
err 'CUDA_HOME without CUDA: it is named' 'no CUDA runtime found in CUDA_HOME=/nowhere'
bare CC=nocc
err 'no compiler: a sentence' '^no C compiler: there is no nocc; apt-get install build-essential'
bare CC='cc -nostdinc'
err 'no headers: a sentence' '^cc finds no C headers: apt-get install'

# The compiler's own paths, as with Debian's nvidia-cuda-toolkit.
CPATH=$include LIBRARY_PATH=$(dirname "$library") bare "$fast" CC="$(command -v cc)"
exits "the compiler's own paths" 0
grep -q '^-lcudart' build/runtime
ok "the compiler's own paths: nothing else is named" '-lcudart_static'

# make toolkit: the driver's series, and what is missing. This python knows pip, which fetches nothing.
printf '#!/bin/sh\n[ "$3" = --version ] || { echo "ERROR: pip has its reason"; exit 1; }\n' >"$tmp/python"
chmod +x "$tmp/python"
# series NAME WANT HEADER ARG...: with this line in nvidia-smi's header, that is fetched.
series() {
  name=$1 want=$2
  printf '#!/bin/sh\necho "| NVIDIA-SMI 1.2.3   Driver Version: 1.2.3   %s |"\n' "$3" >"$tmp/bare/nvidia-smi"
  chmod +x "$tmp/bare/nvidia-smi"
  shift 3
  bare toolkit "$@"
  out "$name" "^fetching $want"
}
bare toolkit
out 'no driver: series 13' '^fetching nvidia-cuda-runtime==13'
exits 'pip fails' 2
err 'its reason is shown' '^toolkit: pip: ERROR: pip has its reason$'
CUDA=12
export CUDA
bare toolkit
unset CUDA
out 'a variable CUDA in the environment changes nothing' '^fetching nvidia-cuda-runtime==13'
series 'a driver for 12.4' nvidia-cuda-runtime-cu12 'CUDA Version: 12.4'
series 'a driver for 11.4' nvidia-cuda-runtime-cu11 'CUDA Version: 11.4'
series 'a driver for 13.0' 'nvidia-cuda-runtime==13' 'CUDA Version: 13.0'
series 'a driver for 14.1, newer words' 'nvidia-cuda-runtime==13' 'CUDA UMD Version: 14.1'
series 'a driver that does not tell' 'nvidia-cuda-runtime==13' 'CUDA Version: N/A'
series 'CUDA=12 overrides' nvidia-cuda-runtime-cu12 'CUDA Version: 13.0' CUDA=12
printf '#!/bin/sh\necho "CUDA Version: 10.2"\n' >"$tmp/bare/nvidia-smi"
bare toolkit
exits 'a driver for 10.2' 2
err 'a driver for 10.2: what to do' 'the driver runs CUDA 10.2 at most.*update the driver'
rm "$tmp/bare/nvidia-smi"
bare toolkit CUDA=9
exits 'a series that is not there' 2
err 'and says so' 'there are series 13, 12 and 11'
bare toolkit PYTHON=nopython
exits 'no pip' 2
err 'no pip: a sentence' "^toolkit: 'nopython -m pip' is needed: apt-get install python3-pip"
if python3 -m pip --version >/dev/null 2>&1; then
  mkdir .cuda && : >.cuda/mine
  PIP_CONFIG_FILE=/dev/null PIP_FIND_LINKS='' PIP_INDEX_URL=http://127.0.0.1:9/simple no_proxy='*' made toolkit CUDA=13 PYTHON=python3
  exits 'no network' 2
  is 'no network: one sentence' "$(grep -vc '^make:' "$tmp/err")" 1
  err 'no network: which' '^toolkit: no network: PyPI cannot be reached'
  [ -e .cuda/mine ]
  ok 'no network: .cuda is kept'
  rm -r .cuda
else
  skip 'no network' 'no pip'
fi

# make run and make check fetch one; this one is "fetched" from where it lies.
printf 'echo "fetched ${1:-the driver series}"\nmkdir -p .cuda/lib\nln -s "%s" .cuda/include\nln -s "%s" .cuda/lib/\n' \
  "$include" "$library" >tests/toolkit.sh
find tests -name '*.t' -exec rm {} +
printf '. tests/lib.sh\necho came >"$tmp/out"\nout "a failing test" wanted\nis name got want\ndone_testing\n' >tests/fails.t
bare check "$fast"
exits 'make check without prove' 2
err 'make check fetches a toolkit' '^fetched the driver series$'
err 'no prove: a sentence' '^check: the tests need prove: apt-get install perl$'
made check "$fast" CUDA_HOME="$tmp/home" BUILD=build
exits 'a failing test' 2
out 'its file is told' 'fails\.t.*Failed'
err 'its name' '^# fails\.t, test 1: a failing test$'
err 'what was expected' '^#   expected: a line of out that matches wanted$'
err 'what came' '^#   out: came$'
err 'what was expected of a value' '^#   expected: want$'
err 'what value came' '^#   came:     got$'

# make run
"$SIM" -s 64K >"$tmp/table"
runtime=$("$SIM" -V | sed -n 's/^CUDA runtime \(.*\)\..*/\1/p')
if ! [ -e /dev/nvidiactl ] && ! [ -e /dev/dxg ] && ! [ -e /dev/nvhost-ctrl ]; then
  rm -rf .cuda build dma_bandwidth
  file=-o
  "$SIM" --help | grep -q -e --output || file=-c
  bare -j3 run ARGS="-s 64K $file 'a b.svg'" "$fast"
  exits 'make run without a device' 0
  is 'the first line says so' "$(head -n 1 "$tmp/out")" 'No NVIDIA device here: what follows is simulated, not measured.'
  sed 1d "$tmp/out" | head -n "$(wc -l <"$tmp/table")" | cmp -s - "$tmp/table"
  ok 'then the simulated table' "$(cat "$tmp/table")"
  out 'and that they are not real figures' '^Simulated: the table has the course.s figures, measured from a source buffer that was never written'
  err "the program's own reason is there" '^dma_bandwidth: no NVIDIA driver'
  ! grep -iq 'warning\|jobserver' "$tmp/err"
  ok 'make -j run warns of nothing'
  [ -e 'a b.svg' ]
  ok 'ARGS keeps its quotes' 'a file a b.svg'
  made run "$fast" CUDA_HOME="$tmp/home" DEVICES="/nowhere $tmp/home"
  exits 'make run with a device' 2
  err 'make run with a device: the status is kept' 'Error 3$'
  err "make run with a device: the program's reason" '^dma_bandwidth: no NVIDIA driver'
  no_out 'make run with a device simulates nothing'
else
  skip 'make run without a GPU' 'there may be one'
fi
# ran ARG...: tests/run.sh with these.
ran() {
  sh tests/run.sh "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}
if [ "$runtime" -ge 12 ]; then
  old=$((runtime - 1))
  export SIM_DRIVER=${old}040
  ran "$SIM" '' -s 64K
  exits 'a driver that is too old' 3
  err "a driver that is too old: the program's reason" "the NVIDIA driver supports CUDA $old\\.4"
  err 'and the cure' "make toolkit CUDA=$old && make\$"
  no_out 'a driver that is too old'
  CUDA_HOME=/x ran "$SIM" '' -s 64K
  err 'the cure where CUDA_HOME is set' "make toolkit CUDA=$old && make CUDA_HOME=\\.cuda\$"
  unset SIM_DRIVER CUDA_HOME
else
  skip 'a driver that is too old' 'there is no older series than this one'
fi
ran "$SIM" '' -s 64K
exits 'a GPU that can be used' 0
cmp -s "$tmp/out" "$tmp/table"
ok 'a GPU that can be used: nothing is added' "$(cat "$tmp/table")"
SIM_FAIL=cudaMemcpy:9 ran "$SIM" '' -s 64K
exits 'a failure is passed on' 1
ran "$SIM" /nowhere -s 64K
exits 'a GPU that works without the known files is used' 0
cmp -s "$tmp/out" "$tmp/table"
ok 'a GPU that works without the known files: nothing is added' "$(cat "$tmp/table")"
done_testing
