#!/usr/bin/env bash
# Prints the licences and notices of all that the binaries contain: its Go modules, the Go library, and what lies in this
# repository under a licence of its own (the clients are packages of their own, with Sheaf's licence). `make notices` writes them to THIRD_PARTY_NOTICES; lint says when that is old.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C CGO_ENABLED=0 GOOS=linux GOARCH=amd64

declare -A who text # by the hash of a licence's text
add() { # NAME FILE...
  local name=$1 files=("${@:2}") sum
  [ ${#files[@]} -gt 0 ] || { echo "notices: $name has no licence file" >&2; exit 1; }
  sum=$(tr -d '\r' <<<"$(cat "${files[@]}")" | sha256sum)
  who[$sum]+="$name"$'\n'
  text[$sum]=$(cat "${files[@]}" | tr -d '\r')
}
licences() { find "$1" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) ! -name '*.go' ! -name '*.license' | sort; }

mapfile -t go < <(licences "$(go env GOROOT)")
add "The Go standard library" "${go[@]}"
while read -r name dir; do
  mapfile -t files < <(licences "$dir")
  add "$name" "${files[@]}"
done < <(go list -deps -f '{{with .Module}}{{if not .Main}}{{with .Replace}}{{.Path}} {{.Version}} {{else}}{{.Path}} {{.Version}} {{end}}{{.Dir}}{{end}}{{end}}' ./cmd/... |
  awk 'NF == 3 { print $1 "@" $2, $3 }' | sort -u)
while read -r dir; do
  mapfile -t files < <(licences "$dir")
  add "what lies in $dir" "${files[@]}"
done < <(git ls-files | grep -Ei '/(licen[cs]e|notice)[^/]*$' | grep -v '^clients/' | grep -Ev '[.](go|sh)$' | xargs -n 1 dirname | sort -u)

echo "Sheaf contains the work of others. Each is named here with its licence. scripts/notices.sh makes this file."
for sum in $(for s in "${!who[@]}"; do printf '%s %s\n' "${who[$s]%%$'\n'*}" "${s%% *}"; done | sort | awk '{ print $NF }'); do
  printf '\n%s\n%s\n%s\n' "$(printf '%.0s=' {1..80})" "$(sort <<<"${who["$sum  -"]%$'\n'}")" "$(printf '%.0s-' {1..80})"
  printf '%s\n' "${text["$sum  -"]}"
done
