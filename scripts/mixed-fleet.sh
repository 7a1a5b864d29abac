#!/bin/bash
# Runs a fleet of two versions over MySQL, Redis, MinIO and Elasticsearch, in the
# order of a rolling upgrade, and sends documents at each step:
#   scripts/mixed-fleet.sh OLD NEW   (two sheaf binaries; `make services` prints the variables it needs)
# It takes a minute, or some more. It is no part of CI, which has no binary of the release before.
set -euo pipefail
old=$(realpath "$1") new=$(realpath "$2")
: "${SHEAF_TEST_MYSQL_DSN:?run: set -a; . <(make services); set +a}" "${SHEAF_TEST_REDIS_ADDR:?}" "${SHEAF_TEST_S3_ENDPOINT:?}" "${SHEAF_TEST_ES_URL:?}"
name=mixed$$ dir=$(mktemp -d) port=$((20000 + RANDOM % 20000))
declare -A pid
cleanup() {
	for p in "${pid[@]}"; do kill "$p" 2>/dev/null || true; done
	wait || true
	curl -sS -XDELETE "$SHEAF_TEST_ES_URL/$name*?expand_wildcards=all" >/dev/null || true
	mysql_do "DROP DATABASE IF EXISTS $name"
	if [ -n "${ok:-}" ]; then rm -rf "$dir"; else echo "logs are in $dir" >&2; fi
}
address=${SHEAF_TEST_MYSQL_DSN#*tcp(} address=${address%%)*}
mysql_do() { mysql -u root -h "${address%:*}" -P "${address#*:}" -N -e "$1"; }
trap cleanup EXIT
mysql_do "CREATE DATABASE $name"
export SHEAF_STORE_DRIVER=mysql SHEAF_STORE_DSN="root@tcp($address)/$name?charset=utf8mb4&parseTime=true&loc=UTC" SHEAF_QUEUE_DRIVER=redis SHEAF_QUEUE_ADDRS=$SHEAF_TEST_REDIS_ADDR SHEAF_QUEUE_PREFIX=$name
export SHEAF_BLOB_DRIVER=s3 SHEAF_BLOB_ENDPOINT=$SHEAF_TEST_S3_ENDPOINT SHEAF_BLOB_ACCESS_KEY=$SHEAF_TEST_S3_ACCESS_KEY SHEAF_BLOB_SECRET_KEY=$SHEAF_TEST_S3_SECRET_KEY SHEAF_BLOB_BUCKET=$name
export SHEAF_INDEX_DRIVER=elasticsearch SHEAF_INDEX_ADDRS=$SHEAF_TEST_ES_URL SHEAF_INDEX_PREFIX=$name
key=$("$new" secrets generate)

# run NAME BINARY ARGS… starts a process of the fleet; halt NAME ends it by SIGTERM.
run() {
	local id=$1 exe=$2
	shift 2
	local secret=()
	[ "$exe" = "$old" ] || secret=("SHEAF_STORE_SECRETS_KEY=$key") # which the old one does not know
	env "${secret[@]}" SHEAF_DATA_DIR="$dir/$id" "$exe" "$@" >"$dir/$id.log" 2>&1 &
	pid[$id]=$!
}
halt() {
	kill -TERM "${pid[$1]}"
	wait "${pid[$1]}" || { echo "$1 ended with $?" >&2; tail -5 "$dir/$1.log" >&2; exit 1; }
	unset "pid[$1]"
}
serve() { # serve NAME BINARY PORT
	run "$1" "$2" serve --listen "127.0.0.1:$3"
	for _ in $(seq 150); do curl -fsS "http://127.0.0.1:$3/healthz" >/dev/null 2>&1 && return; sleep 0.2; done
	echo "$1 does not answer" >&2; tail -5 "$dir/$1.log" >&2; exit 1
}
n=0
# sends STEP PORT sends documents to an API, and waits until they are found by all.
sends() {
	local word="heron$((++n))x" job
	local files=()
	for i in $(seq 20); do
		printf '# %s %s\n\nPage of step %s.\n' "$word" "$i" "$n" >"$dir/$word-$i.md"
		files+=(-F "file=@$dir/$word-$i.md")
	done
	job=$(curl -fsS "${files[@]}" "http://127.0.0.1:$2/v1/datasets/default/documents" | sed -E 's/.*"job":\{"id":"([0-9a-f]+)".*/\1/')
	local state=""
	# A tenant that an executor of the other version let go is picked from again
	# within seconds, far sooner than a lost hint is published again (five minutes).
	for _ in $(seq 120); do
		state=$(curl -fsS "http://127.0.0.1:$2/v1/jobs/$job?wait=1s" | sed -E 's/.*"state":"([a-z_]+)".*/\1/')
		case $state in succeeded | failed | partially_succeeded | canceled) break ;; esac
	done
	[ "$state" = succeeded ] || {
		echo "$1: job $job is $state" >&2
		mysql_do "SELECT kind, state, attempts, worker_id, enqueued_at, COUNT(*) FROM $name.tasks WHERE job_id='$job' AND state<>'done' GROUP BY 1,2,3,4,5" >&2
		exit 1
	}
	local dead
	dead=$(mysql_do "SELECT COUNT(*) FROM $name.tasks WHERE state='dead' OR fail_count>0")
	[ "$dead" = 0 ] || { echo "$1: $dead tasks failed" >&2; mysql_do "SELECT kind,state,fail_count,failure_code,failure FROM $name.tasks WHERE state='dead' OR fail_count>0 LIMIT 3" >&2; exit 1; }
	for at in "${@:2}"; do
		local found
		found=$(curl -fsS -H 'Content-Type: application/json' -d "{\"query\":\"$word\",\"mode\":\"text\",\"limit\":100}" "http://127.0.0.1:$at/v1/search" | grep -o '"rank"\|"score"' | wc -l)
		[ "$found" -ge 20 ] || { echo "$1: $found of 20 documents are found at $at" >&2; exit 1; }
	done
	echo "ok: $1"
}

"$old" migrate >/dev/null
run keeper-old "$old" keeper
run executor-old "$old" executor
serve serve-old "$old" "$port"
sends "the release before alone" "$port"
SHEAF_STORE_SECRETS_KEY=$key "$new" migrate >/dev/null
sends "the release before on the new schema" "$port"
run keeper-new "$new" keeper
halt keeper-old
sends "a new keeper" "$port"
run executor-new "$new" executor
sends "executors of both" "$port"
halt executor-old
sends "new executors, and the API of the release before" "$port"
serve serve-new "$new" $((port + 1))
sends "APIs of both, sent to the old one" "$port" $((port + 1))
sends "APIs of both, sent to the new one" $((port + 1)) "$port"
halt serve-old
sends "the new release alone" $((port + 1))
ok=1
