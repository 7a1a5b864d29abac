#!/usr/bin/env bash
# Builds the images of deploy/Dockerfile and tries each: it starts, finds a document that it is sent, ends when it is told
# to, and finds the document again after a second start. No Docker daemon is needed, and no registry; root on Debian is.
#
#   scripts/images.sh [TARGET...]
#
# TARGET is small, models or office; none means all. The base images come from their registry. If it does not answer,
# others are made in their place: Debian by debootstrap, and the same with this machine's Go. They are made anew each week.
# SHEAF_CACHE (default /var/cache/sheaf-test) keeps them and what is compiled, some 4 GB.
set -euo pipefail
cd "$(dirname "$0")/.."

bases=(docker.io/library/debian:bookworm-slim docker.io/library/golang:1.26-bookworm)
targets=("$@"); [ ${#targets[@]} -gt 0 ] || targets=(small models office)
for t in "${targets[@]}"; do case $t in small|models|office) ;; *) sed -n '2,9p' scripts/images.sh | sed 's/^# \{0,1\}//' >&2; exit 2;; esac; done
cache=${SHEAF_CACHE:-/var/cache/sheaf-test}/images

log() { echo "images: $*" >&2; }
die() { log "$*"; exit 1; }
# quietly WHAT CMD... shows what the command says only if it fails.
quietly() {
  local what=$1; shift
  "$@" >"$work/log" 2>&1 </dev/null || { tail -n 30 "$work/log" >&2; die "$what failed"; }
}

# ---- everything happens in namespaces of its own, so that no process and no mount is left, however it ends ----
if [ -z "${IMAGES_WORK:-}" ]; then
  [ "$(id -u)" = 0 ] || die "only root can build and run images here"
  work=$(mktemp -d /tmp/sheaf-images.XXXXXX)
  inside=
  cleanup() {
    [ -z "$inside" ] || kill -KILL "$inside" 2>/dev/null && wait "$inside" 2>/dev/null || true
    # Of containers that were killed only their control groups are left.
    for c in $(runc --root "$work/runc" list -q 2>/dev/null); do runc --root "$work/runc" delete --force "$c" 2>/dev/null || true; done
    rm -rf "$work"
  }
  trap cleanup EXIT
  trap 'exit 130' INT TERM
  mkdir -p "$cache/tmp"
  exec 9>"$cache/lock"; flock 9
  need=()
  command -v buildah >/dev/null || need+=(buildah)
  command -v runc >/dev/null || need+=(runc)
  command -v debootstrap >/dev/null || need+=(debootstrap)
  command -v curl >/dev/null || need+=(curl)
  command -v ip >/dev/null || need+=(iproute2)
  if [ ${#need[@]} -gt 0 ]; then
    log "installing ${need[*]}"
    quietly "apt-get update" apt-get update -q
    DEBIAN_FRONTEND=noninteractive quietly "apt-get install" apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "${need[@]}"
  fi
  # Its own signals do not reach the first process of a namespace: killing unshare ends all of it.
  IMAGES_WORK=$work unshare --mount --pid --fork --kill-child --mount-proc scripts/images.sh "${targets[@]}" </dev/null & inside=$!
  code=0; wait "$inside" || code=$?
  inside=
  exit $code
fi
work=$IMAGES_WORK

export TMPDIR=$cache/tmp # buildah keeps the folders of RUN --mount=type=cache there
buildah=(buildah --root "$cache/storage" --runroot "$work/run")
b() { "${buildah[@]}" "$@"; }
# within CMD... has a network of its own: the image's ports are free there, and nothing else can be reached.
within() { nsenter --net="$work/net" "$@"; }

# ---- base images ----
get_bases() {
  local made; made="$(go env GOVERSION) of $(date +%G-W%V)"
  if [ "$(cat "$cache/made" 2>/dev/null)" = "$made" ] && b inspect --type image "${bases[0]}" >/dev/null 2>&1 && b inspect --type image "${bases[1]}" >/dev/null 2>&1; then return; fi
  if timeout 300 "${buildah[@]}" pull -q --policy always "${bases[0]}" >"$work/log" 2>&1; then
    quietly "pulling ${bases[1]}" b pull -q --policy always "${bases[1]}"
  else
    log "no registry answers; base images are made of Debian's packages and $(go env GOVERSION)"
    make_bases
  fi
  echo "$made" >"$cache/made"
}
make_bases() {
  local root=$work/debian c
  quietly debootstrap debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian
  # As the registry's image is: it gets security updates, and keeps no packages, manuals or translations.
  printf 'deb http://deb.debian.org/%s main\n' 'debian bookworm' 'debian bookworm-updates' 'debian-security bookworm-security' >"$root/etc/apt/sources.list"
  printf '%s\n' 'DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin"; };' 'Dir::Cache::pkgcache "";' 'Dir::Cache::srcpkgcache "";' >"$root/etc/apt/apt.conf.d/docker-clean"
  printf 'path-exclude=/usr/share/%s/*\n' doc info locale man >"$root/etc/dpkg/dpkg.cfg.d/docker"
  rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/* "$root"/usr/share/{doc,info,locale,man}/*
  c=$(b from scratch)
  quietly "copying Debian" b add -q "$c" "$root" /
  b config --cmd bash "$c"
  quietly "making ${bases[0]}" b commit -q --format docker "$c" "${bases[0]}"
  b rm "$c" >/dev/null
  # Modules come from this machine's cache, which build mounts at /srv.
  cat >"$work/golang" <<EOF
FROM ${bases[0]}
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates g++ gcc git libc6-dev make pkg-config && rm -rf /var/lib/apt/lists/*
COPY . /usr/local/go/
ENV GOTOOLCHAIN=local GOPATH=/go GOPROXY=file:///srv PATH=/go/bin:/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
WORKDIR /go
EOF
  quietly "making ${bases[1]}" b bud --isolation chroot --format docker --pull=never -f "$work/golang" -t "${bases[1]}" "$(go env GOROOT)"
}

# ---- building ----
build() { # TARGET
  local begun=$SECONDS stage=()
  [ "$1" = small ] || stage=(--target "$1")
  # BUILDPLATFORM is an argument that BuildKit sets, and buildah only from 1.29 on.
  quietly "building the image $1" b bud --layers --isolation chroot --format docker --pull=never --volume "$(go env GOMODCACHE)/cache/download:/srv:ro" \
    --build-arg BUILDPLATFORM="linux/$(dpkg --print-architecture)" --build-arg VERSION="$(git describe --tags 2>/dev/null)" --build-arg COMMIT="$(git rev-parse HEAD 2>/dev/null)" \
    -f deploy/Dockerfile "${stage[@]}" -t "localhost/sheaf-$1" .
  log "$1: built in $((SECONDS - begun)) s, $(b images --format '{{.Size}}' "localhost/sheaf-$1")"
}

# ---- trying ----
api=http://127.0.0.1:8080/v1/datasets/default
server=
call() { within curl -sS -m 90 "$@"; }
# run CMD... runs in the container as `docker run` does: as the image's user, with its environment, volume and the usual
# system call filter.
run=("${buildah[@]}" run --isolation oci --network host --runtime "$(command -v runc)" --runtime-flag "root=$work/runc")
# words TEMPLATE IMAGE prints a list of its configuration, an item per line.
words() { b inspect --type image --format "{{range $1}}{{println .}}{{end}}" "$2" | sed '/^$/d'; }

# look TARGET FOLDER checks what the image holds.
look() {
  local f
  f=$(stat -c '%a %u:%g' "$2/data"); [ "$f" = '700 65532:65532' ] || die "$1: /data is $f; it must be its user's alone"
  f=$(stat -c '%a %u:%g' "$2/tmp"); [ "$f" = '1777 0:0' ] || die "$1: /tmp is $f; it must be everybody's"
  grep -q 'BEGIN CERTIFICATE' "$2/etc/ssl/certs/ca-certificates.crt" || die "$1: the certificates of the authorities are missing"
  f=$(find "$2" -xdev \( -uid 65532 -o -gid 65532 -o -type f -perm -2 \) ! -path "$2/data" -printf '/%P ')
  [ -z "$f" ] || die "$1: its user may change $f"
  f=$(find "$2" -xdev \( -name go -o -name make -o -name git -o -name '*gcc' -o -name cc1 -o -name wasm2c -o -name '*.go' \) ! -type d -printf '/%P ')
  [ -z "$f" ] || die "$1: what it was built with is left in it: $f"
}
# start TARGET runs the image's command, until its HEALTHCHECK succeeds and it is ready.
start() {
  local command health end=$((SECONDS + 60))
  mapfile -t command < <(words .Docker.Config.Entrypoint "localhost/sheaf-$1"; words .Docker.Config.Cmd "localhost/sheaf-$1")
  mapfile -t health < <(words .Docker.Config.Healthcheck.Test "localhost/sheaf-$1")
  within "${run[@]}" "${options[@]}" "$container" -- "${command[@]}" >"$work/server" 2>&1 & server=$!
  until within "${run[@]}" "$container" -- "${health[@]:1}" >"$work/log" 2>&1 && call -f -o /dev/null http://127.0.0.1:8080/readyz 2>>"$work/log"; do
    kill -0 "$server" 2>/dev/null || { tail -n 20 "$work/server" >&2; die "$1: it ended instead of starting"; }
    [ $SECONDS -lt $end ] || { cat "$work/server" "$work/log" >&2; die "$1: it does not start within a minute"; }
    sleep 0.2
  done
}
# stop TARGET ends it as `docker stop` does.
stop() {
  local code=0
  runc --root "$work/runc" kill "$(runc --root "$work/runc" list -q)" TERM
  timeout 30 tail --pid="$server" -s 0.1 -f /dev/null || { cat "$work/server" >&2; die "$1: it did not end within 30 s of SIGTERM"; }
  wait "$server" || code=$?
  [ $code = 0 ] || { tail -n 20 "$work/server" >&2; die "$1: it ended with $code after SIGTERM"; }
}
# send TARGET FILE WORDS uploads a file, and finds it by words in it.
send() {
  local answer
  answer=$(call -F "file=@$2" "$api/documents?wait=60s") || die "$1: the upload of ${2##*/} failed"
  case $answer in *'"state":"succeeded"'*) ;; *) die "$1: ${2##*/} did not become searchable: $answer";; esac
  found "$1" "${2##*/}" "$3"
}
# found TARGET NAME WORDS leaves the answer of the search in $hits.
found() {
  hits=$(call -H 'Content-Type: application/json' -d "{\"query\": \"$3\", \"limit\": 20}" "$api/search") || die "$1: the search failed"
  case $hits in *"\"name\":\"$2\""*) ;; *) die "$1: \"$3\" does not find $2: $hits";; esac
}
try() { # TARGET
  local begun=$SECONDS root page said options=()
  container=$(b from --pull=never "localhost/sheaf-$1")
  root=$(b mount "$container")
  look "$1" "$root"
  said=$(within "${run[@]}" "$container" -- /usr/local/bin/sheaf doctor --parsers 2>&1) || die "$1: sheaf doctor --parsers failed: $said"
  case $said in *'PDFium ahead of time'*) ;; *) die "$1: sheaf-pdfium does not read PDFs: $said";; esac
  if grep -E '^[a-z_]+ +no ' <<<"$said" >&2; then die "$1: parsers lack these protections"; fi
  if [ "$1" = models ]; then
    # This machine may know more authorities than the image, such as that of its proxy.
    quietly "models: sheaf models install" "${run[@]}" --volume /etc/ssl/certs/ca-certificates.crt:/etc/ssl/certs/ca-certificates.crt:ro "$container" -- /usr/local/bin/sheaf models install all-minilm-l6-v2
    options=(--env SHEAF_EMBED_DRIVER=local --env SHEAF_EMBED_MODEL=all-minilm-l6-v2)
  fi

  start "$1"
  send "$1" samples/handbook.pdf "exact citations"
  if [ "$1" = models ]; then
    case $hits in *'"model":"all-minilm-l6-v2@'*) ;; *) die "models: the search did not use the model: $hits";; esac
  fi
  if [ "$1" = office ]; then
    page=$(sed 's/.*"document":{"id":"\([0-9a-f]*\)".*/\1/' <<<"$hits")
    call -f -o "$work/scan.jpg" "$api/documents/$page/pages/1/image?dpi=200" || die "office: there is no picture of a page"
    send office "$work/scan.jpg" "exact citations"
    send office parser/office/testdata/sample.doc "quince orchard"
    send office parser/office/testdata/sample.ppt "quince trees"
  fi
  said=$(within "${run[@]}" "$container" -- /usr/local/bin/sheaf doctor 2>&1) || die "$1: sheaf doctor disagrees: $said"
  stop "$1"
  if said=$(grep -E '"level":"(WARN|ERROR)"' "$work/server"); then log "$1 warns: $said"; fi
  start "$1"
  found "$1" handbook.pdf "exact citations"
  stop "$1"
  b rm "$container" >/dev/null
  log "$1: works, tried in $((SECONDS - begun)) s"
}

touch "$work/net"; unshare --net="$work/net" true
within ip link set lo up
b rm --all >/dev/null # of an earlier run that failed
go mod download
get_bases
for t in "${targets[@]}"; do build "$t"; done
for t in "${targets[@]}"; do try "$t"; done
# Only the base images stay. The rest is soon made anew of what the mounts of the builds keep.
b rmi "${targets[@]/#/localhost/sheaf-}" >/dev/null
b rmi --prune --force >/dev/null
log "all of ${targets[*]} work"
