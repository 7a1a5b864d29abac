#!/usr/bin/env bash
# Fetches the clients that the interfaces of other programs are tested with into the cache folder, once: the command line
# of the MCP inspector and OpenAI's client from npm, and Python packages. None of them is part of the product. Prints the folder.
set -euo pipefail

INSPECTOR=1.0.3
TIKA=3.3.2
DOCLING=2.143.0
RAGFLOW=0.27.1
OPENAI_PYTHON=3.54.0
OPENAI_NODE=7.57.0
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
dir=$cache/clients-$INSPECTOR-$TIKA-$DOCLING-$RAGFLOW-$OPENAI_PYTHON-$OPENAI_NODE

# A Python 3.13, which alone the client of RAGFlow runs under: one that is installed, or one that uv fetches to $1.
python313() {
  local found
  for found in python3.13 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.13.*/bin/python3; do
    if "$found" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 13))' 2>/dev/null; then
      "$found" -c 'import sys; print(sys.executable)'
      return
    fi
  done
  "$1/venv/bin/pip" install -q --disable-pip-version-check uv >&2
  UV_PYTHON_INSTALL_DIR=$cache/python "$1/venv/bin/uv" python install -q 3.13 >&2
  UV_PYTHON_INSTALL_DIR=$cache/python "$1/venv/bin/uv" python find 3.13
}

if [ ! -d "$dir" ]; then
  need=()
  command -v npm >/dev/null || need+=(npm)
  python3 -c 'import ensurepip, venv' 2>/dev/null || need+=(python3-venv)
  if [ ${#need[@]} -gt 0 ]; then
    [ "$(id -u)" = 0 ] || { echo "client-tools: ${need[*]} is missing, and only root can install it" >&2; exit 1; }
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "${need[@]}"; } >/dev/null
  fi
  mkdir -p "$cache"; tmp=$(mktemp -d "$cache/clients.XXXX"); chmod 755 "$tmp"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$tmp" "@modelcontextprotocol/inspector@$INSPECTOR" "openai@$OPENAI_NODE" >&2
  # The packages lie in folders of their own, which PYTHONPATH names: a venv could not be moved.
  python3 -m venv "$tmp/venv" && "$tmp/venv/bin/pip" install -q --disable-pip-version-check --target "$tmp/python" "tika==$TIKA" "docling-slim[service-client]==$DOCLING" "openai==$OPENAI_PYTHON" >&2
  "$tmp/venv/bin/pip" install -q --disable-pip-version-check --python-version 3.13 --ignore-requires-python --only-binary=:all: --target "$tmp/ragflow" "ragflow-sdk==$RAGFLOW" >&2
  ln -s "$(python313 "$tmp")" "$tmp/python3.13"
  rm -rf "$tmp/venv" "$cache"/clients-* # of other versions
  mv -T "$tmp" "$dir" 2>/dev/null || rm -rf "$tmp" # another process was first
fi

# What the tests and the build of clients/python need.
requirements=$(dirname "$0")/../clients/python/tests/requirements.txt
tools=$cache/python-client-$({ python3 -c 'import sys; print(sys.version_info[:2])'; cat "$requirements"; } | sha256sum | cut -c1-12)
if [ ! -d "$tools" ]; then
  tmp=$(mktemp -d "$cache/tools.XXXX"); chmod 755 "$tmp"
  python3 -m venv "$tmp/venv" && "$tmp/venv/bin/pip" install -q --disable-pip-version-check --target "$tmp/python" -r "$requirements" >&2
  rm -rf "$cache"/python-client-* # of other versions
  mv -T "$tmp/python" "$tools" 2>/dev/null || true
  rm -rf "$tmp"
fi
echo "$dir"
