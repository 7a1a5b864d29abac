#!/usr/bin/env bash
# Runs the fuzz targets beside each other, one worker each, JOBS at a time (default: one per CPU). A target of a format
# runs for a minute, any other for 300 executions; FUZZTIME, such as 1h, is the time of all. FUZZ, a regular expression
# over "package target", chooses among them. TURNS=4 runs a fourth of those, another one with each commit: CI comes round
# to all of them. What a run finds is written below the package's testdata: commit it, and it
# is a test from then on. What it learns stays in Go's build cache, so that the next run begins where it ended.
set -euo pipefail
cd "$(dirname "$0")/.."
export CGO_ENABLED=0 GOFLAGS=-trimpath # as the product is released

turns=${TURNS:-1}
# The number of the commit, or in a clone without history its hash.
if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = false ]; then turn=$(git rev-list --count HEAD); else turn=0x$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0); fi
turn=$((turn % turns))

one() {
  local pkg=$1 target=$2 time=${FUZZTIME:-} log status=0
  if [ -z "$time" ]; then
    # By count, where nothing asks for a time. The folders below parser are formats, but for the child process and their list.
    time=300x
    if [[ $pkg =~ ^sheaf/parser/[a-z]+$ && ! $pkg =~ ^sheaf/parser/(child|formats)$ ]]; then time=1m; fi
  fi
  log=$(mktemp)
  # Every input that reaches new code is made smaller first. A second for each, of which an office file needs hundreds,
  # leaves nothing of a minute: with 20 tries at most docx ran 9 and pdf 17 times as many inputs in the same time.
  go test "$pkg" -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x -parallel 1 </dev/null >"$log" 2>&1 || status=$?
  # A run that ends by its clock may fail with the deadline of its last input, which is no finding: findings are written
  # down. An input that takes too long is one, since the worker that reads it stops itself (parser/internal/formattest).
  if [ $status != 0 ] && grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input written' "$log"; then status=0; fi
  if [ $status = 0 ]; then
    echo "fuzz $pkg $target $time: $(grep -o 'execs: [0-9]*' "$log" | tail -n 1)"
  else
    cat "$log"
  fi
  rm -f "$log"
  return $status
}
export -f one

go list -f '{{range .TestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$.ImportPath}} {{$.Dir}}/{{.}}{{"\n"}}{{end}}' ./... | grep . |
  while read -r pkg file; do
    { grep -ho '^func Fuzz[A-Za-z0-9_]*' "$file" || true; } | sed "s|^func |$pkg |"
  done | grep -E -- "${FUZZ:-.}" | awk -v turn=$turn -v turns="$turns" 'NR % turns == turn' | xargs -P "${JOBS:-$(nproc)}" -L 1 bash -c 'one "$@"' one
