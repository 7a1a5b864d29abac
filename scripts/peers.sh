#!/usr/bin/env bash
# Finds the programs that `bench -only peers` measures beside Sheaf: kreuzberg, PyMuPDF and pypdfium2 from PyPI, put into
# the cache folder once, and poppler's pdftotext from the system. None of them is part of the product. Prints lines for the
# environment:
#
#   set -a; eval "$(scripts/peers.sh)"; set +a
#   go run ./bench -only peers
set -euo pipefail

KREUZBERG=4.10.4
PYMUPDF=2.0
PYPDFIUM2=5.15.2
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi

need=()
command -v pdftotext >/dev/null || need+=(poppler-utils)
python3 -c 'import ensurepip, venv' 2>/dev/null || need+=(python3-venv)
if [ ${#need[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "peers: ${need[*]} is missing, and only root can install it" >&2; exit 1; }
  { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "${need[@]}"; } >/dev/null
fi

# A venv cannot be moved, so that it is made where it stays, and `ready` says that it is whole. One per Python: its packages
# are of that version.
dir=$cache/peers-$KREUZBERG-$PYMUPDF-$PYPDFIUM2-py$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
mkdir -p "$cache"
exec 9>"$cache/peers.lock"
flock 9
if [ ! -e "$dir/ready" ]; then
  rm -rf "$cache"/peers-* # of other versions, or half made
  python3 -m venv "$dir"
  "$dir/bin/pip" install -q --disable-pip-version-check "kreuzberg==$KREUZBERG" "pymupdf==$PYMUPDF" "pypdfium2==$PYPDFIUM2" >&2
  touch "$dir/ready"
fi
echo "SHEAF_PEERS_PYTHON='$dir/bin/python'"
echo "SHEAF_PEERS_PDFTOTEXT='$(command -v pdftotext)'"
