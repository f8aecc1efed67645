#!/bin/sh
# make install: makes the man page from --help. Usage: tests/man.sh PROGRAM FOLDER
set -eu
if ! command -v help2man >/dev/null; then
  echo 'no man page: help2man is not installed'
  exit
fi
PROGRAM=$(readlink -f "$1")
export PROGRAM
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# help2man runs this. It knows no lists within an option: "  METHOD  text" becomes "; METHOD: text".
cat >"$tmp/dma_bandwidth" <<'P'
#!/bin/sh
"$PROGRAM" "$@" | sed ':a;$!{N;ba};s/\n\( \{20,\}\)\([a-z][a-z-]*\)   *\([^ ]\)/;\n\1\2: \3/g'
P
chmod +x "$tmp/dma_bandwidth"
version=$("$PROGRAM" --version 2>/dev/null | sed -n '1s/.* //p')
if help2man --no-info --name='measure how fast the host and an NVIDIA GPU copy memory' \
  --version-string="$version" --output="$tmp/page" "$tmp/dma_bandwidth"; then
  install -d "$2"
  install -m 644 "$tmp/page" "$2/dma_bandwidth.1"
  echo "man page: $2/dma_bandwidth.1"
else
  echo 'no man page: help2man could not make it'
fi
