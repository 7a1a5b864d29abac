#!/usr/bin/env bash
# Runs every test on every engine: starts private services, runs `go test` over all packages, then the fuzz
# targets (scripts/fuzz.sh), and stops the services whatever happens. Arguments go to `go test`.
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d /tmp/sheaf-test.XXXXXX); chmod 755 "$dir"
cleanup() {
  scripts/services.sh down "$dir/services" || true
  rm -rf "$dir"
}
trap cleanup EXIT

# The page's tests drive a browser, the benchmarks compare with pdftotext, old office files are read by LibreOffice, pictures by tesseract,
# and rclone backs a bucket up.
need=()
command -v chromium >/dev/null || need+=(chromium)
command -v pdftotext >/dev/null || need+=(poppler-utils)
command -v soffice >/dev/null || need+=(libreoffice-writer-nogui libreoffice-calc-nogui libreoffice-impress-nogui)
command -v rclone >/dev/null || need+=(rclone)
command -v tesseract >/dev/null || need+=(tesseract-ocr tesseract-ocr-eng)
if [ ${#need[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    apt-get update -q >/dev/null && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends "${need[@]}" >/dev/null
  else
    echo "test: these Debian packages are missing, and only root can install them: ${need[*]}" >&2
    exit 1
  fi
fi

scripts/web-tools.sh >/dev/null # axe-core, which looks at the page's accessibility
scripts/services.sh up "$dir/services" >"$dir/env"
set -a; . "$dir/env"; set +a
export SHEAF_TEST_REQUIRE=1 # a test whose engine is missing fails instead of being skipped

race=-race
if ! command -v "$(go env CC)" >/dev/null; then
  echo "test: no C compiler is installed, so the race detector is off" >&2
  race=
fi
# Two packages at a time: the suites share the engines and two cores. Those that drive whole fleets and a browser come
# after them, one at a time: their waits have bounds, which a machine that does three things at once would test instead.
# The store's suite takes longer than any other, so it begins.
fleets='^sheaf/(cmd/sheaf|chaos)$' longest='^sheaf/taskstore$'
# These send some hundred documents through one process, one after the other, and look at what is cut. The race detector
# makes their parsers eight times as slow and finds nothing that the other tests of a whole process do not show it.
serial='^Test(EverySettingChangesWhatItSays|EveryMethodCutsEachOfItsTypes|InsertedParagraphEmbedsOnlyWhatIsNew)$'
packages=$(go list ./...)
failed= apart=
[ $# -gt 0 ] || apart=1 # who chooses tests gets them as they are chosen
go test $race -p "${PACKAGES:-2}" -timeout 25m "$@" $(grep -E "$longest" <<<"$packages") $(grep -Ev "$fleets|$longest" <<<"$packages") || failed=1
go test $race -p 1 -timeout 25m ${apart:+-skip "$serial"} "$@" $(grep -E "$fleets" <<<"$packages") || failed=1
[ ! $apart ] || go test -timeout 25m -run "$serial" ./cmd/sheaf || failed=1
[ ! $failed ] || exit 1

scripts/fuzz.sh
