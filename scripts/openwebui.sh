#!/usr/bin/env bash
# Runs Open WebUI itself against a Sheaf: it reads a PDF by PUT /process and embeds it by /openai/v1/embeddings, and what it
# stored and finds is compared with what Sheaf answers. Not a part of the tests: it installs about 5 GB into the cache folder,
# once. Needs Python 3.11 or 3.12 and bin/sheaf (`make build`), and no network after the first run.
set -euo pipefail
cd "$(dirname "$0")/.."

VERSION=0.12.4
if [ "$(id -u)" = 0 ]; then cache=${SHEAF_CACHE:-/var/cache/sheaf-test}; else cache=${SHEAF_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/sheaf-test}; fi
venv=${OPENWEBUI_VENV:-$cache/openwebui-$VERSION}
python=
for one in python3.12 python3.11 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[12].*/bin/python3; do
  if "$one" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then python=$one; break; fi
done
[ -n "$python" ] || { echo "openwebui: Python 3.11 or 3.12 is missing" >&2; exit 1; }
[ -x bin/sheaf ] || { echo "openwebui: bin/sheaf is missing; run make build" >&2; exit 1; }
if [ ! -f "$venv/installed" ]; then
  "$python" -m venv "$venv"
  "$venv/bin/pip" install -q --disable-pip-version-check "open-webui==$VERSION" # again where the last run was stopped
  touch "$venv/installed"
fi

tmp=$(mktemp -d); pids=()
trap 'for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done; wait; rm -rf "$tmp"' EXIT
fail() { echo "openwebui: $1" >&2; tail -n 40 "$tmp"/*.log >&2; exit 1; }

SHEAF_SERVER_AUTH=true SHEAF_SERVER_INTERFACES=openwebui,openai bin/sheaf up --data-dir "$tmp/sheaf" --listen 127.0.0.1:0 >"$tmp/sheaf.log" 2>&1 & pids+=($!)
for _ in $(seq 300); do [ -s "$tmp/sheaf/server.json" ] && break; kill -0 "${pids[0]}" 2>/dev/null || fail "Sheaf ended"; sleep 0.1; done
sheaf=$("$venv/bin/python" -c 'import json, sys; print(json.load(open(sys.argv[1]))["url"])' "$tmp/sheaf/server.json") || fail "Sheaf did not start"
bin/sheaf tenant create team --data-dir "$tmp/sheaf" >/dev/null
key=$(bin/sheaf key create team --scope write --data-dir "$tmp/sheaf" --json | "$venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["key"])')

port=$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$tmp/webui"
# No model is loaded and no hub is asked: vectors are Sheaf's, too.
(cd "$tmp/webui" && exec env DATA_DIR="$tmp/webui" WEBUI_SECRET_KEY=only-for-this-run-and-long-enough OFFLINE_MODE=true HF_HUB_OFFLINE=1 ENABLE_OLLAMA_API=false ENABLE_OPENAI_API=false \
  ANONYMIZED_TELEMETRY=false DO_NOT_TRACK=true WEBUI_ADMIN_EMAIL=admin@example.org WEBUI_ADMIN_PASSWORD=heron-waits-7 BYPASS_EMBEDDING_AND_RETRIEVAL=false \
  CONTENT_EXTRACTION_ENGINE=external EXTERNAL_DOCUMENT_LOADER_URL="$sheaf" EXTERNAL_DOCUMENT_LOADER_API_KEY="$key" \
  RAG_EMBEDDING_ENGINE=openai RAG_EMBEDDING_MODEL=static RAG_OPENAI_API_BASE_URL="$sheaf/openai/v1" RAG_OPENAI_API_KEY="$key" RAG_EMBEDDING_BATCH_SIZE=32 \
  "$venv/bin/open-webui" serve --host 127.0.0.1 --port "$port") >"$tmp/webui.log" 2>&1 & pids+=($!)
for _ in $(seq 1800); do
  curl -fs "http://127.0.0.1:$port/health" >/dev/null && break
  kill -0 "${pids[1]}" 2>/dev/null || fail "Open WebUI ended"
  sleep 0.1
done

"$venv/bin/python" - "$sheaf" "$key" "http://127.0.0.1:$port" samples/handbook.pdf <<'PY' || fail "Open WebUI and Sheaf do not agree"
import sys, time, requests
sheaf, key, webui, path = sys.argv[1:]
body = open(path, "rb").read()
answer = requests.put(sheaf + "/process", data=body, headers={"Authorization": "Bearer " + key, "Content-Type": "application/pdf", "X-Filename": "handbook.pdf"})
answer.raise_for_status()
pages = answer.json()
signed = requests.post(webui + "/api/v1/auths/signin", json={"email": "admin@example.org", "password": "heron-waits-7"})
signed.raise_for_status()
s = requests.Session()
s.headers["Authorization"] = "Bearer " + signed.json()["token"]
def ask(method, path, **options):
    r = s.request(method, webui + path, **options)
    assert r.ok, (path, r.status_code, r.text[:500])
    return r.json()
file = ask("POST", "/api/v1/files/", files={"file": ("handbook.pdf", body, "application/pdf")})
for _ in range(1500):
    status = ask("GET", f"/api/v1/files/{file['id']}/process/status")
    if status["status"] not in ("pending", "processing"):
        break
    time.sleep(0.2)
assert status["status"] == "completed", status
said = " ".join(ask("GET", f"/api/v1/files/{file['id']}/data/content")["content"].split())
want = " ".join(" ".join(p["page_content"] for p in pages).split())
assert len(pages) > 1 and want == said, (len(pages), want[:300], said[:300])
hits = ask("POST", "/api/v1/retrieval/query/collection", json={"collection_names": ["file-" + file["id"]], "query": "Which piece of text does a search return, with its pages and boxes?", "k": 3})
found, metadata = hits["documents"][0], hits["metadatas"][0]
assert any("piece of text that search returns" in text for text in found) and all(m["page"] >= 1 for m in metadata), hits
left = requests.get(sheaf + "/v1/datasets/conversions/documents", headers={"Authorization": "Bearer " + key}).json()["items"]
assert left == [], left
print(f"Open WebUI stored {len(said)} characters of {len(pages)} pages, all as Sheaf read them, and finds pages {[m['page'] for m in metadata]}")
PY
