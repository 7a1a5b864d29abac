#!/usr/bin/env bash
# Runs every test on every engine: installs what is missing, starts private services, runs `go test` over all packages,
# and stops the services whatever happens. Arguments go to `go test`. Each phase says what it does and how long the last
# one took. Fuzzing is a job of its own (scripts/fuzz.sh); its seeds and findings are tests, and run here.
set -euo pipefail
cd "$(dirname "$0")/.."

begun=$SECONDS last=$SECONDS doing=
phase() {
  [ -z "$doing" ] || echo "test: $doing took $((SECONDS - last)) s" >&2
  doing=${1:-} last=$SECONDS
  if [ "$doing" ]; then echo "test: [$(date +%T)] $doing ..." >&2; else echo "test: all took $((SECONDS - begun)) s" >&2; fi
}

dir=$(mktemp -d /tmp/sheaf-test.XXXXXX); chmod 755 "$dir"
build= helper=
cleanup() {
  [ -z "$build" ] || kill "$build" 2>/dev/null || true
  [ -z "$helper" ] || kill "$helper" 2>/dev/null || true
  scripts/services.sh down "$dir/services" || true
  rm -rf "$dir"
}
trap cleanup EXIT

# The page's tests drive a browser, the benchmarks compare with pdftotext, old office files are read by LibreOffice, pictures by tesseract,
# rclone backs a bucket up, and pip fetches an embedding library.
need=()
command -v chromium >/dev/null || need+=(chromium)
command -v pdftotext >/dev/null || need+=(poppler-utils)
command -v soffice >/dev/null || need+=(libreoffice-writer-nogui libreoffice-calc-nogui libreoffice-impress-nogui)
command -v rclone >/dev/null || need+=(rclone)
command -v pip >/dev/null || need+=(python3-pip)
command -v tesseract >/dev/null || need+=(tesseract-ocr tesseract-ocr-eng)
# sheaf-pdfium is PDFium translated to C and compiled with a C library of its own. Both have packages for Debian's Linux alone.
command -v wasm2c >/dev/null || need+=(wabt)
command -v musl-gcc >/dev/null || need+=(musl-tools)
if [ ${#need[@]} -gt 0 ]; then
  phase "installing ${need[*]}"
  if [ "$(id -u)" = 0 ]; then
    apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "${need[@]}" >/dev/null
  else
    echo "test: these Debian packages are missing, and only root can install them: ${need[*]}" >&2
    exit 1
  fi
fi

race=(-race)
if ! command -v "$(go env CC)" >/dev/null; then
  echo "test: no C compiler is installed, so the race detector is off" >&2
  race=()
fi
# SQLite, its C library and its allocator are translated from C, and work in memory that the detector does not see:
# instrumented they take four times the CPU and show nothing, nor do the checks of pointers that -race adds. The model
# of a fleet is one goroutine, and takes eight times.
[ ${#race[@]} -eq 0 ] || race+=(-gcflags={modernc.org/sqlite/lib,modernc.org/libc/...,modernc.org/memory/...}="-race=false -d=checkptr=0" -gcflags=sheaf/internal/capacity=-race=false)
# No test builds anything while its clock runs: what starts the product as processes of its own finds it here. There are
# two modes of building, with the race detector and as released, which lint and fuzzing share.
phase "building the product and all packages, and starting the services"
# The services' starts have bounds, so that they go before what is built.
nice -n 10 bash -ec 'CGO_ENABLED=0 go test -c -trimpath -o "$1/sheaf.test" ./e2e; CGO_ENABLED=0 go build -trimpath -o "$1/sheaf-embed" ./cmd/sheaf-embed; go build "${@:2}" ./...' build "$dir" "${race[@]}" >"$dir/build.log" 2>&1 &
build=$!
# What it is compiled of stays in the cache folder: the first time it takes three minutes of CPU, later a second.
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
nice -n 10 go run parser/pdf/pdfiumhelper/host/build.go -o "$dir/sheaf-pdfium" -cache "$cache/helper" >"$dir/helper.log" 2>&1 &
helper=$!
scripts/web-tools.sh >/dev/null # axe-core, which looks at the page's accessibility
scripts/client-tools.sh >/dev/null # what others reach Sheaf with
scripts/services.sh up "$dir/services" >"$dir/env"
wait "$build" || { cat "$dir/build.log" >&2; exit 1; }
wait "$helper" || { cat "$dir/helper.log" >&2; exit 1; }
# The product finds it, since it lies beside $SHEAF_TEST_BINARY; what tests start otherwise reads PDFs by WebAssembly.
export SHEAF_TEST_PDFIUM=$dir/sheaf-pdfium
export SHEAF_TEST_BINARY=$dir/sheaf.test SHEAF_TEST_EMBED_PROGRAM=$dir/sheaf-embed
# Embedding models stay in the cache folder, some 160 MB. What is there and whole is not fetched again.
phase "installing embedding models"
export SHEAF_TEST_MODELS=$cache/models
for m in bge-small-en-v1.5 all-minilm-l6-v2 multilingual-e5-small; do
  SHEAF_TEST_MAIN=1 "$SHEAF_TEST_BINARY" models install "$m" --set "models.dir=$SHEAF_TEST_MODELS" >/dev/null
done
set -a; . "$dir/env"; set +a
export SHEAF_TEST_REQUIRE=1 # a test whose engine is missing fails instead of being skipped

# Two packages at a time: the suites share the engines and two cores. Those that drive whole fleets and a browser come
# after them, one at a time: their waits have bounds, which a machine that does three things at once would test instead.
# The store's suite takes longer than any other, so it begins.
fleets='^sheaf/(e2e|chaos)$' longest='^sheaf/taskstore/sqlstore$'
# These send hundreds or thousands of documents through one process, and look at what is cut, counted or searched. The race
# detector makes their parsers eight times as slow and finds nothing that the other tests of a whole process do not show it.
many='^Test(EverySettingChangesWhatItSays|EveryMethodCutsEachOfItsTypes|InsertedParagraphEmbedsOnlyWhatIsNew|EveryPartCanBeMixed|OpenAIFilesAreAttachedOnceAndManyAtOnce|PythonClient|RAGFlowTenThousand|RAGFlowUploadsWaitOutsideTheQueue)$'
packages=$(go list ./...)
failed= apart=
[ $# -gt 0 ] || apart=1 # who chooses tests gets them as they are chosen
phase "testing packages"
go test "${race[@]}" -p "${PACKAGES:-2}" -timeout 25m "$@" $(grep -E "$longest" <<<"$packages") $(grep -Ev "$fleets|$longest" <<<"$packages") || failed=1
for p in $(grep -E "$fleets" <<<"$packages"); do
  phase "testing ${p#sheaf/}"
  go test "${race[@]}" -timeout 55m ${apart:+-skip "$many"} "$@" "$p" || failed=1
done
if [ $apart ]; then
  phase "testing many documents without the race detector"
  (cd e2e && "$SHEAF_TEST_BINARY" -test.timeout 25m -test.run "$many") || failed=1
fi
phase
[ ! $failed ] || exit 1
