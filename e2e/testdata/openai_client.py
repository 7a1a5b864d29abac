"""Takes files through the whole cycle with OpenAI's client. Arguments: address,
key, wrong key, a PDF file."""
import io
import sys
import time

import openai

base, key, wrong, path = sys.argv[1:5]
client = openai.OpenAI(base_url=base + "/openai/v1", api_key=key, max_retries=0)


def refused(kind, says, f, *args, **options):
    try:
        f(*args, **options)
    except kind as e:
        assert says in str(e) or says == e.code, (e, e.code)
        return
    raise AssertionError(f"not refused with {kind.__name__}: {says}")


# Files.
assert list(client.files.list()) == []
pdf = client.files.create(file=open(path, "rb"), purpose="assistants")
assert pdf.id.startswith("file-") and pdf.filename == "handbook.pdf" and pdf.purpose == "assistants" and pdf.bytes > 1000, pdf
assert client.files.retrieve(pdf.id) == pdf
assert client.files.content(pdf.id).read() == open(path, "rb").read()
kept = client.files.create(file=("a.txt", b"kept for an hour"), purpose="user_data", expires_after={"anchor": "created_at", "seconds": 3600})
assert kept.expires_at and kept.expires_at > time.time(), kept
refused(openai.BadRequestError, "purpose", client.files.create, file=("a.txt", b"x"), purpose="nothing")
refused(openai.BadRequestError, "no bytes", client.files.create, file=("a.txt", b""), purpose="assistants")
refused(openai.BadRequestError, "unsupported_file", client.files.create, file=("a.bin", bytes(range(256)) * 20), purpose="assistants")
assert {f.id for f in client.files.list()} == {pdf.id, kept.id}
assert [f.id for f in client.files.list(purpose="user_data")] == [kept.id]

# A store with a file, cut in chunks of a chosen size.
store = client.vector_stores.create(name="Manuals / 2026", metadata={"team": "docs"}, expires_after={"anchor": "last_active_at", "days": 7})
assert store.id.startswith("vs_") and store.name == "Manuals / 2026" and store.metadata == {"team": "docs"} and store.status == "completed", store
assert store.expires_at > time.time() + 6 * 86400 and store.file_counts.total == 0, store
twin = client.vector_stores.create(name="Manuals / 2026")
assert twin.id != store.id and twin.name == store.name
f = client.vector_stores.files.create_and_poll(pdf.id, vector_store_id=store.id, attributes={"year": 2026, "kind": "manual", "public": True}, chunking_strategy={"type": "static", "static": {"max_chunk_size_tokens": 200, "chunk_overlap_tokens": 50}})
assert f.status == "completed" and f.id == pdf.id and f.vector_store_id == store.id and f.attributes == {"year": 2026, "kind": "manual", "public": True}, f
assert f.chunking_strategy.static.max_chunk_size_tokens == 200, f
again = client.vector_stores.files.create(vector_store_id=store.id, file_id=pdf.id)
assert again.created_at == f.created_at and again.attributes == f.attributes
text = "\n".join(c.text for c in client.vector_stores.files.content(pdf.id, vector_store_id=store.id))
assert "Quick start" in text, text[:300]

# upload_and_poll, and a batch of files.
heron = client.vector_stores.files.upload_and_poll(vector_store_id=store.id, file=("heron.md", b"# Herons\n\nThe heron waits in the shallow water.\n"))
assert heron.status == "completed", heron
heron = client.vector_stores.files.update(heron.id, vector_store_id=store.id, attributes={"year": 1843})
assert heron.attributes == {"year": 1843}
batch = client.vector_stores.file_batches.upload_and_poll(store.id, files=[(f"bird{i}.md", f"# Bird {i}\n\nThe heron number {i} stands in the reed.\n".encode()) for i in range(25)])
assert batch.status == "completed" and batch.file_counts.completed == 25 == batch.file_counts.total, batch
assert client.vector_stores.file_batches.retrieve(batch.id, vector_store_id=store.id).file_counts.completed == 25
assert client.vector_stores.file_batches.cancel(batch.id, vector_store_id=store.id).status == "completed"
assert len(list(client.vector_stores.file_batches.list_files(batch.id, vector_store_id=store.id, limit=10))) == 25
more = client.vector_stores.file_batches.create_and_poll(store.id, files=[{"file_id": pdf.id, "attributes": {"year": 2026}}, {"file_id": heron.id}])
assert more.file_counts.completed == 2, more

store = client.vector_stores.retrieve(store.id)
assert store.file_counts.completed == store.file_counts.total == 27 and store.usage_bytes > pdf.bytes, store

# Pages: all of them by iteration in both orders, and back from the middle.
down = [x.id for x in client.vector_stores.files.list(store.id, limit=10)]
up = [x.id for x in client.vector_stores.files.list(store.id, limit=10, order="asc")]
assert len(set(down)) == 27 and up == down[::-1], (down, up)
page = client.vector_stores.files.list(store.id, limit=10)
assert page.has_more and page.first_id == down[0] and page.last_id == down[9], page
back = client.vector_stores.files.list(store.id, limit=5, before=down[9])
assert [x.id for x in back.data] == down[4:9], back
assert len(list(client.vector_stores.files.list(store.id, filter="completed"))) == 27
assert list(client.vector_stores.files.list(store.id, filter="failed")) == []
assert {s.id for s in client.vector_stores.list(limit=1)} >= {store.id, twin.id}
assert len(list(client.files.list(limit=7))) == 28

# Search: with page and boxes, several questions, filters.
hits = client.vector_stores.search(store.id, query="Where does the heron wait?", max_num_results=3, rewrite_query=True, ranking_options={"ranker": "auto", "score_threshold": 0.0}).data
assert hits[0].file_id == heron.id and hits[0].filename == "heron.md" and hits[0].attributes.get("headings") == "Herons" and 0 < hits[0].score <= 1, hits
assert "shallow" in hits[0].content[0].text and len(hits) == 3, hits
hits = client.vector_stores.search(store.id, query=["page ledger", "heron"], max_num_results=50).data
assert {pdf.id, heron.id} <= {h.file_id for h in hits}, hits
both = {"type": "and", "filters": [{"type": "gte", "key": "year", "value": 2000}, {"type": "in", "key": "year", "value": [2026, 2027]}]}
hits = client.vector_stores.search(store.id, query="heron", filters=both, max_num_results=50).data
assert hits and {h.file_id for h in hits} == {pdf.id} and hits[0].attributes["page"] >= 1 and "x0" in hits[0].attributes["boxes"], hits
hits = client.vector_stores.search(store.id, query="heron", filters={"type": "lt", "key": "year", "value": 1900}).data
assert {h.file_id for h in hits} <= {pdf.id, heron.id}
assert client.vector_stores.search(store.id, query="heron", filters={"type": "eq", "key": "year", "value": "2026"}).data == []
refused(openai.BadRequestError, "max_num_results", client.vector_stores.search, store.id, query="x", max_num_results=51)
refused(openai.BadRequestError, "filter", client.vector_stores.search, store.id, query="x", filters={"type": "like", "key": "a", "value": "b"})

# One file in two stores; what leaves one stays in the other, and a deleted file leaves both.
client.vector_stores.files.create_and_poll(heron.id, vector_store_id=twin.id)
gone = client.vector_stores.files.delete(heron.id, vector_store_id=store.id)
assert gone.deleted and gone.id == heron.id
refused(openai.NotFoundError, heron.id, client.vector_stores.files.retrieve, heron.id, vector_store_id=store.id)
assert client.vector_stores.search(twin.id, query="heron").data[0].file_id == heron.id
back = client.vector_stores.files.create_and_poll(heron.id, vector_store_id=store.id)
assert back.status == "completed", back
assert client.files.delete(heron.id).deleted
refused(openai.NotFoundError, heron.id, client.files.retrieve, heron.id)
assert client.vector_stores.search(twin.id, query="heron").data == []
refused(openai.NotFoundError, heron.id, client.vector_stores.files.retrieve, heron.id, vector_store_id=store.id)

# A file that cannot be read says why.
bad = client.vector_stores.files.upload_and_poll(vector_store_id=twin.id, file=("broken.pdf", b"%PDF-1.7 and nothing more"))
assert bad.status == "failed" and bad.last_error.code == "invalid_file" and bad.last_error.message, bad
assert client.vector_stores.retrieve(twin.id).file_counts.failed == 1

# Change and delete.
store = client.vector_stores.update(store.id, name="Archive", metadata={"team": "old"}, expires_after=None)
assert store.name == "Archive" and store.metadata == {"team": "old"} and store.expires_at is None, store
assert client.vector_stores.delete(twin.id).deleted
refused(openai.NotFoundError, twin.id, client.vector_stores.retrieve, twin.id)
assert client.files.retrieve(pdf.id) == pdf

# Vectors, and the wrong key.
vectors = client.embeddings.create(model="any", input=["heron", "bittern"]).data
assert len(vectors) == 2 and len(vectors[0].embedding) > 10
[model] = client.models.list().data
assert client.embeddings.create(model=model.id, input="heron").model == model.id == client.models.retrieve(model.id).id, model
refused(openai.NotFoundError, "gpt-4", client.models.retrieve, "gpt-4")
stranger = openai.OpenAI(base_url=base + "/openai/v1", api_key=wrong, max_retries=0)
refused(openai.AuthenticationError, "key", stranger.files.list)
refused(openai.AuthenticationError, "key", stranger.vector_stores.search, store.id, query="")
refused(openai.AuthenticationError, "key", stranger.files.create, file=("a.txt", b"x"), purpose="assistants")
