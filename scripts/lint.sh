#!/usr/bin/env bash
# gofmt, go vet and staticcheck over everything, the size of the binary, the types of the page's scripts, and the schemas
# of what deploy/ holds. With "quick" only the first three. The tools are installed into the cache folder once.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS=-trimpath # as the product is released, without a C compiler: all builds but the race detector's share one cache

STATICCHECK=v0.8.2
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
bin=$cache/bin/staticcheck-$STATICCHECK
if [ ! -x "$bin" ]; then
  mkdir -p "$cache/bin"; tmp=$(mktemp -d)
  GOBIN=$tmp GOFLAGS= go install honnef.co/go/tools/cmd/staticcheck@$STATICCHECK
  mv "$tmp/staticcheck" "$bin"; rm -rf "$tmp"
fi

bad=$(gofmt -l .)
[ -z "$bad" ] || { echo "lint: gofmt -w is needed on:" >&2; echo "$bad" >&2; exit 1; }
go vet ./...
"$bin" ./...
if [ "${1:-}" = quick ]; then echo "lint: clean, as far as Go goes"; exit 0; fi
go build ./...
scripts/size.sh
tools=$(scripts/web-tools.sh)
"$tools/node_modules/.bin/tsc" -p internal/web/tsconfig.json

# deploy/ against the schemas of Kubernetes, Helm, Compose and Prometheus: a module of its own, built once for each version of it.
validate=$cache/bin/validate-$(cat deploy/validate/go.sum deploy/validate/*.go | sha256sum | cut -c1-16)
if [ ! -x "$validate" ]; then
  mkdir -p "$cache/bin"; rm -f "$cache"/bin/validate-*
  (cd deploy/validate && go vet . && go mod tidy -diff && CGO_ENABLED=0 go build -o "$validate" .)
fi
"$validate" deploy

# Each alert is tested by promtool, taken from Debian's package without installing the server.
promtool=$(command -v promtool || echo "$cache/prometheus/usr/bin/promtool")
if [ ! -x "$promtool" ]; then
  tmp=$(mktemp -d); mkdir -p "$cache"
  (cd "$tmp" && { apt-get download prometheus || { apt-get update -q && apt-get download prometheus; }; } >log 2>&1 && dpkg -x prometheus_*.deb x) ||
    { tail -n 5 "$tmp/log" >&2; echo "lint: promtool is not installed; install the package prometheus" >&2; exit 1; }
  rm -rf "$cache/prometheus"; mv "$tmp/x" "$cache/prometheus"; rm -rf "$tmp"
fi
"$promtool" test rules deploy/prometheus/alerts_test.yaml >/dev/null || { "$promtool" test rules deploy/prometheus/alerts_test.yaml >&2; exit 1; }

scripts/notices.sh | cmp -s - THIRD_PARTY_NOTICES || { echo "lint: THIRD_PARTY_NOTICES is not what the dependencies say: run make notices" >&2; exit 1; }
go mod verify >/dev/null
go mod tidy -diff
echo "lint: clean"
