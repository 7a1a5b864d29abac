#!/usr/bin/env bash
# Builds the released binary and fails when it is larger than MOST bytes. With "parts" it prints its largest parts too:
# code and data of each module, and the tables that the Go runtime needs of them all.
set -euo pipefail
cd "$(dirname "$0")/.."
MOST=70000000

tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
export CGO_ENABLED=0
scripts/build.sh "$tmp/sheaf"
size=$(stat -c %s "$tmp/sheaf")
if [ "${1:-}" = parts ]; then
  go build -trimpath -o "$tmp/full" ./cmd/sheaf
  {
    go list -deps -f '{{if .Module}}{{.ImportPath}} {{if .Module.Main}}{{.ImportPath}}{{else}}{{.Module.Path}}{{end}}{{else}}{{.ImportPath}} standard library{{end}}' ./cmd/sheaf
    echo -- symbols
    go tool nm -size "$tmp/full"
  } | awk '
    /^-- symbols/ { symbols = 1; next }
    !symbols { p = $1; $1 = ""; part[p] = substr($0, 2); next }
    $3 ~ /[Bb]/ || $4 == "crypto/internal/fips140/drbg.memory" { next } # zeros, which no file holds
    {
      name = $4; gsub(/%2e/, ".", name); sub(/\[.*/, "", name); sub(/^type:\.eq\.|^type:|^go:itab\.\*?/, "", name)
      at = match(name, /\(/); head = at ? substr(name, 1, at - 1) : name
      dir = ""; if (match(head, /.*\//)) { dir = substr(head, 1, RLENGTH); head = substr(head, RLENGTH + 1) }
      sub(/\..*/, "", head)
      p = dir head; if (p in part) sum[part[p]] += $2
    }
    END { for (p in sum) printf "%8.2f MB  %s\n", sum[p] / 1e6, p }' | sort -rn | sed -n 1,14p
  # What is not one module's: line tables of all functions, and types and constants.
  readelf -SW "$tmp/sheaf" | sed 's/\[ *[0-9]*\]//' | while read -r name _ _ _ bytes _; do
    case $name in .gopclntab|.rodata) echo "$((16#$bytes)) $name";; esac
  done | awk '{ printf "%8.2f MB  section %s\n", $1 / 1e6, $2 }'
fi
awk -v s="$size" -v m=$MOST 'BEGIN { printf "size: %.1f MB, at most %.0f MB\n", s / 1e6, m / 1e6 }'
[ "$size" -le $MOST ] || { echo "size: the binary is too large; scripts/size.sh parts shows of what. A fifth comes with a single call by a name that the linker does not know: go build -ldflags=-dumpdep ./cmd/sheaf 2>&1 | grep 'ReflectMethod>\$'" >&2; exit 1; }
