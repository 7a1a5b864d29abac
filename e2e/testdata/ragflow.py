"""Takes RAGFlow's own client through a dataset's life: ragflow.py ADDRESS KEY FILE."""

import sys
import time

from ragflow_sdk import DataSet, RAGFlow

address, key, pdf = sys.argv[1:]


def refused(words, call, *args, **named):
    try:
        call(*args, **named)
    except Exception as e:
        assert words in str(e), f"{e!r} does not say {words!r}"
    else:
        raise AssertionError(f"nothing is refused with {words!r}")


refused("401: Unauthorized", RAGFlow("wrong", address).list_datasets)
rag = RAGFlow(key, address)

# Datasets.
ds = rag.create_dataset("herons / birds", description="long legs", parser_config=DataSet.ParserConfig(rag, {"chunk_token_num": 128}))
assert ds.name == "herons / birds" and ds.description == "long legs" and ds.avatar is None, vars(ds)
assert ds.parser_config.chunk_token_num == 128 and ds.parser_config.raptor.use_raptor is False, vars(ds.parser_config)
twin = rag.create_dataset("Herons / birds")
assert twin.name == "Herons / birds(1)" and twin.parser_config.raptor.use_raptor is True, vars(twin)
refused("already exists", twin.update, {"name": "HERONS / BIRDS"})
twin.update({"name": "storks", "chunk_method": "qa", "pagerank": 7})
assert (twin.name, twin.chunk_method, twin.pagerank) == ("storks", "qa", 7), vars(twin)
assert [d.id for d in rag.list_datasets(name="storks")] == [twin.id]
assert [d.id for d in rag.list_datasets(page=1, page_size=1, orderby="create_time", desc=False)] != [twin.id]
refused("lacks permission for dataset 'cranes'", rag.list_datasets, name="cranes")

# Upload, parse, poll.
herons = b"The heron waits in the shallow water.\n\nIt eats 7 fish a day.\n"
docs = ds.upload_documents([{"display_name": "heron.txt", "blob": herons}, {"display_name": "heron.txt", "blob": b"Storks nest on chimneys.\n"}, {"display_name": "handbook.pdf", "blob": open(pdf, "rb").read()}])
assert [d.name for d in docs] == ["heron.txt", "heron(1).txt", "handbook.pdf"], [d.name for d in docs]
assert {d.run for d in docs} == {"UNSTART"} and docs[0].size == len(herons), [vars(d) for d in docs]
refused("has not been supported yet", ds.upload_documents, [{"display_name": "x.nothing", "blob": b"x"}])
heron, stork, handbook = docs
heron.update({"meta_fields": {"bird": "heron", "year": 1843, "tags": ["a", "b"]}})
stork.update({"name": "stork.txt", "meta_fields": {"bird": "stork"}})
refused("The extension of file can't be changed", stork.update, {"name": "stork.pdf"})
ended = ds.parse_documents([d.id for d in docs])
assert {e[1] for e in ended} == {"DONE"} and all(e[2] > 0 for e in ended), ended
heron = ds.list_documents(id=heron.id)[0]
assert heron.progress == 1 and heron.process_begin_at and heron.process_duration > 0 and "Task done" in heron.progress_msg, vars(heron)
assert heron.meta_fields == {"bird": "heron", "year": 1843, "tags": ["a", "b"]} or vars(heron.meta_fields)["bird"] == "heron"
assert heron.download() == herons
assert len(ds.list_documents()) == 3 and [d.id for d in ds.list_documents(keywords="stork")] == [stork.id]
refused("you don't own the document", ds.list_documents, name="nothing.txt")

# Chunks of a document that was not parsed, and the picture of one that was.
note = ds.upload_documents([{"display_name": "note.txt", "blob": b"Bitterns boom."}])[0]
mine = note.add_chunk("Cranes dance at dawn.", tag_kwd=["crane", "dance"])
assert note.add_chunk("Cranes dance at dawn.").id == mine.id
note = ds.list_documents(id=note.id)[0]
assert (note.run, note.chunk_count) == ("UNSTART", 2) and [c.content for c in note.list_chunks()] == ["Cranes dance at dawn."], vars(note)
assert [c.id for c in rag.retrieve(dataset_ids=[ds.id], question="dawn")] == [mine.id]
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
note.add_chunk("A crane, drawn.", image_base64=PIXEL)
drawn = next(c["image_id"] for c in note.get(f"/datasets/{ds.id}/documents/{note.id}/chunks").json()["data"]["chunks"] if c["image_id"])
assert rag.get(f"/documents/images/{drawn}").content[:4] == b"\x89PNG", drawn
refused("is no PNG, JPEG, GIF or WebP", note.add_chunk, "x", image_base64="YQ==")
ds.delete_documents(ids=[note.id])
picture = next(c["image_id"] for c in handbook.get(f"/datasets/{ds.id}/documents/{handbook.id}/chunks").json()["data"]["chunks"] if c["image_id"])
assert rag.get(f"/documents/images/{picture}").content[:2] == b"\xff\xd8", picture

# Chunks.
first = heron.list_chunks()
assert first and "heron waits" in first[0].content, [c.content for c in first]
added = heron.add_chunk("Herons fly with their necks drawn in.", important_keywords=["flight"], questions=["How do herons fly?"], tag_kwd=["bird"])
again = heron.add_chunk("Herons fly with their necks drawn in.")
assert added.id == again.id and added.important_keywords == ["flight"] and added.tag_kwd == ["bird"], (vars(added), vars(again))
refused("`content` is required", heron.add_chunk, " ")
assert len(heron.list_chunks()) == len(first) + 1
assert "<em>7</em>" in heron.list_chunks(keywords="7")[0].content
added.update({"content": "Herons fly slowly, with their necks drawn in."})


def found(question, **more):
    return [c.content for c in rag.retrieve(dataset_ids=[ds.id], question=question, **more)]


assert "slowly" in found("slowly")[0], found("slowly")
added.update({"available": False})
assert found("slowly") == [] and heron.list_chunks(id=added.id)[0].available is False
added.update({"available": True})
heron.delete_chunks(ids=[added.id])
assert found("slowly") == [] and len(heron.list_chunks()) == len(first)
refused("rm_chunk deleted chunks 0, expect 1", heron.delete_chunks, ids=[added.id])

# Retrieval.
hit = rag.retrieve(dataset_ids=[ds.id], question="chimneys")[0]
assert hit.document_id == stork.id and hit.document_name == "stork.txt" and 0.2 <= hit.similarity <= 1 and hit.term_similarity == 1, vars(hit)
assert found("chimneys", document_ids=[heron.id]) == []
by_bird = {"logic": "and", "conditions": [{"name": "bird", "comparison_operator": "is", "value": "heron"}]}
assert found("heron chimneys", metadata_condition=by_bird) and not found("chimneys", metadata_condition=by_bird)
refused("You don't own the dataset", rag.retrieve, dataset_ids=["0" * 32], question="x")
refused("`dataset_ids` is required", rag.retrieve, dataset_ids=[], question="x")

# A new method drops the chunks, and the document is parsed anew.
stork.update({"chunk_method": "qa"})
assert ds.list_documents(id=stork.id)[0].run == "UNSTART" and found("chimneys") == []
ds.async_parse_documents([stork.id])
for _ in range(60):
    if ds.list_documents(id=stork.id)[0].run in ("DONE", "FAIL"):
        break
    time.sleep(0.5)
refused("has not started or already completed", ds.async_cancel_parse_documents, [stork.id])

# Metadata of the dataset, and the end.
assert ds.update_auto_metadata(metadata=[{"key": "bird", "type": "string"}])["metadata"][0]["description"] is None
ds.delete_documents(ids=[stork.id])
assert len(ds.list_documents()) == 2 and found("chimneys") == []
refused("These documents do not belong to dataset", ds.delete_documents, ids=[stork.id])
rag.delete_datasets(ids=[ds.id, twin.id])
refused("lacks permission for dataset", rag.list_datasets, id=ds.id)
