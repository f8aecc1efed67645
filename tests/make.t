#!/bin/sh
# The Makefile: targets, install, what happens where no CUDA is found.
. "$(dirname "$0")/lib.sh"
unset MAKEFLAGS MFLAGS MAKELEVEL
# A copy, so that nothing here is rebuilt or removed.
mkdir "$tmp/copy" && cp -R "$top/Makefile" "$top/dma_bandwidth.c" "$top/tests" "$tmp/copy/"
[ -d "$top/.cuda" ] && ln -s "$top/.cuda" "$tmp/copy/.cuda"
cd "$tmp/copy" || exit 1

# made ARG...: runs make; leaves $tmp/out, $tmp/err, $status.
made() {
  make --no-print-directory "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
  status=$?
}
made help
for target in all run check check-gpu sim bench toolkit install uninstall clean help; do
  out "make help lists $target" "^  $target  "
done
made
exits 'make' 0
no_err 'make warns of nothing'
made
lacks 'a second make compiles nothing' '-o dma_bandwidth'
made install DESTDIR="$tmp/root" PREFIX=/opt/x
exits 'make install' 0
[ -x "$tmp/root/opt/x/bin/dma_bandwidth" ]
ok 'DESTDIR and PREFIX'
"$tmp/root/opt/x/bin/dma_bandwidth" -V >"$tmp/out"
out 'the installed program runs' '^dma_bandwidth [0-9]'
made uninstall DESTDIR="$tmp/root" PREFIX=/opt/x
[ ! -e "$tmp/root/opt/x/bin/dma_bandwidth" ]
ok 'make uninstall'

# No toolkit anywhere: the usual folders, the compiler's own paths, PATH and environment hidden.
rm -rf .cuda build dma_bandwidth
mkdir "$tmp/path"
for tool in make sh cut tr find sed cc gcc as ld uname mkdir rm cat dirname; do
  found=$(command -v $tool) && ln -s "$found" "$tmp/path/$tool"
done
(unset CUDA_HOME CUDA_PATH; PATH=$tmp/path make CUDA_FOLDERS= CC='cc -nostdinc' >"$tmp/out" 2>"$tmp/err")
status=$?
exits 'no CUDA' 2
err 'no CUDA: it says so' 'no CUDA runtime found'
err 'and how to get one' 'make toolkit'
err 'and how to name one' 'CUDA_HOME='
made CUDA_HOME=/nowhere
exits 'CUDA_HOME without CUDA' 2
err 'CUDA_HOME without CUDA: it is named' 'no CUDA runtime found in CUDA_HOME=/nowhere'
(unset CUDA_HOME CUDA_PATH; PATH=$tmp/path make -n run CUDA_FOLDERS= CC='cc -nostdinc' >"$tmp/out" 2>"$tmp/err")
out 'make run fetches one' 'toolkit CUDA=13'
(unset CUDA_HOME CUDA_PATH; PATH=$tmp/path make -n check CUDA_FOLDERS= CC='cc -nostdinc' >"$tmp/out" 2>"$tmp/err")
out 'make check fetches one' 'toolkit CUDA=13'
made toolkit CUDA=9
exits 'a series that is not there' 2
err 'and says so' 'there are series 13, 12 and 11'

if ! [ -e /dev/nvidiactl ] && ! [ -e /dev/dxg ]; then
  [ -d "$top/.cuda" ] && ln -s "$top/.cuda" .cuda
  made run ARGS='-s 64K'
  exits 'make run without a GPU' 0
  is 'the first line says so' "$(head -n 1 "$tmp/out" | cut -c1-33)" 'No usable NVIDIA GPU or driver he'
  out 'then the simulated table' '^GPU:  NVIDIA H100 80GB HBM3 \(simulated\)$'
else
  skip 'make run without a GPU' 'there may be one'
fi
done_testing
