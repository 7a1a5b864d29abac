"""Reads a file with the programs of others: the Tika client, and the loader of
Open WebUI as its requests look. Arguments: address, key, wrong key, a PDF file."""
import json
import os
import sys
from urllib.parse import quote

import requests
from tika import parser, tika

base, key, wrong, path = sys.argv[1:5]
auth = {"Authorization": "Bearer " + key}
assert tika.TikaClientOnly, "TIKA_CLIENT_ONLY is not set"

# Tika: text and metadata, from a file and from bytes.
for headers in (auth, {"X-Api-Key": key}):
    got = parser.from_file(path, serverEndpoint=base, headers=dict(headers))
    assert got["status"] == 200, got
    assert "page ledger" in got["content"], got["content"][:200]
    assert got["metadata"]["Content-Type"] == "application/pdf", got["metadata"]
    assert int(got["metadata"]["xmpTPg:NPages"]) > 1, got["metadata"]
with open(path, "rb") as f:
    got = parser.from_buffer(f.read(), serverEndpoint=base, headers=dict(auth))
assert "page ledger" in got["content"], got
got = parser.from_file(path, serverEndpoint=base, service="meta", headers=dict(auth))
assert got["metadata"]["Content-Type"] == "application/pdf" and got["content"] is None, got
got = parser.from_file(path, serverEndpoint=base, service="text", headers=dict(auth))
assert "page ledger" in got["content"], got
got = parser.from_file(path, serverEndpoint=base, headers={"Authorization": "Bearer " + wrong})
assert got["status"] == 401, got

# Tika's other ways to ask, as curl and Open WebUI's TikaLoader use them.
with open(path, "rb") as f:
    data = f.read()
r = requests.put(base + "/tika/text", data=data, headers={**auth, "Accept": "application/json", "Content-Type": "application/pdf", "X-Tika-PDFextractInlineImages": "true"})
assert r.ok and "page ledger" in r.json()["X-TIKA:content"] and r.json()["Content-Type"] == "application/pdf", r.text[:200]
r = requests.put(base + "/tika", data=data, headers={**auth, "Accept": "text/html"})
assert r.ok and r.headers["Content-Type"].startswith("text/html") and "<p>" in r.text, r.text[:200]
r = requests.put(base + "/meta", data=data, headers=auth)
assert r.ok and '"Content-Type"' in r.text.replace("Content-Type,", '"Content-Type",'), r.text
assert "Sheaf" in requests.get(base + "/version").text
r = requests.put(base + "/tika", data=b"%PDF-1.7 and nothing more", headers={**auth, "Content-Type": "application/pdf"})
assert r.status_code == 422, (r.status_code, r.text)

# Open WebUI: the request of its external document loader.
def load(token, name=os.path.basename(path), mime="application/pdf", body=data):
    headers = {"Content-Type": mime, "Authorization": "Bearer " + token, "X-Filename": quote(name)}
    return requests.put(base.rstrip("/") + "/process", data=body, headers=headers)

r = load(key, "Händbuch 1.pdf")
assert r.ok, r.text
pages = r.json()
assert isinstance(pages, list) and all(p["page_content"] and isinstance(p["metadata"], dict) for p in pages), pages[:1]
numbers = [p["metadata"]["page"] for p in pages]
assert numbers == sorted(set(numbers)) and len(numbers) == pages[0]["metadata"]["total_pages"], numbers
assert pages[0]["metadata"]["source"] == "Händbuch 1.pdf", pages[0]["metadata"]
assert any("page ledger" in p["page_content"] for p in pages)
r = load(key, "notes.md", "text/markdown", "# Herons\n\nThey wait in the shallow water.\n".encode())
assert r.ok and r.json()[0]["page_content"].startswith("# Herons"), r.text
r = load(wrong)
assert r.status_code == 401 and r.json()["detail"], r.text
r = load(key, "x.pdf", "application/pdf", b"no PDF at all")
assert r.status_code in (415, 422) and r.json()["detail"], r.text
print(json.dumps({"pages": len(numbers)}))
