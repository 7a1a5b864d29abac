#!/usr/bin/env bash
# Fetches what the page is checked with into the cache folder, once: axe-core, which the browser tests load, and the
# TypeScript compiler, which reads the types in the comments. Neither is part of the product. Prints the folder.
set -euo pipefail

AXE=4.14.1
TYPESCRIPT=5.9.3
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
dir=$cache/web-$AXE-$TYPESCRIPT
if [ ! -d "$dir" ]; then
  if ! command -v npm >/dev/null; then
    [ "$(id -u)" = 0 ] || { echo "web-tools: npm is missing, and only root can install it" >&2; exit 1; }
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends npm; } >/dev/null
  fi
  mkdir -p "$cache"; tmp=$(mktemp -d "$cache/web.XXXX"); chmod 755 "$tmp"
  npm install --loglevel=error --no-audit --no-fund --ignore-scripts --prefix "$tmp" "axe-core@$AXE" "typescript@$TYPESCRIPT" >&2
  mv -T "$tmp" "$dir" 2>/dev/null || rm -rf "$tmp" # another process was first
fi
echo "$dir"
