#!/usr/bin/env bash
# What to run before each commit: format, vet, staticcheck, and the tests that need nothing but this folder, on SQLite
# and the engines in memory. Nothing is installed but staticcheck, once. Each phase says how long it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS=-trimpath # as the product is released
# Engines that happen to run are left alone.
for v in $(compgen -e SHEAF_ || true); do case $v in SHEAF_CACHE) ;; *) unset "$v";; esac; done

begun=$SECONDS
scripts/lint.sh quick
echo "check: linting took $((SECONDS - begun)) s" >&2; last=$SECONDS
go test -short ./... 2>&1 | { grep -Ev '^ok|no test files' || true; }
echo "check: testing took $((SECONDS - last)) s, all $((SECONDS - begun)) s" >&2
