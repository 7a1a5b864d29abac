"""Converts and chunks with the official client of docling-serve, and asks what
it does not. Arguments: address, key, wrong key, a PDF file, the address of a
served copy of it, a file that cannot be read."""
import asyncio
import base64
import io
import json
import sys
import zipfile
from pathlib import Path

import httpx
from docling.datamodel.base_models import ConversionStatus, OutputFormat
from docling.datamodel.service.options import ConvertDocumentsOptions
from docling.datamodel.service.targets import InBodyTarget, PresignedUrlTarget, ZipTarget
from docling.service_client import (
    AsyncDoclingServiceClient,
    ChunkerKind,
    ConversionError,
    DoclingServiceClient,
    ServiceError,
    StatusWatcherKind,
    TaskNotFoundError,
)
from docling_core.types.doc import DoclingDocument
from docling_core.types.io import DocumentStream

base, key, wrong, path, served, broken = sys.argv[1:7]
url = base + "/docling"
pdf = Path(path)


def checked(document):
    """The document has headings, tables and boxes, and docling-core exports it."""
    again = DoclingDocument.model_validate(json.loads(document.model_dump_json(by_alias=True)))
    assert any("page ledger" in t.text for t in again.texts), [t.text for t in again.texts][:5]
    assert any(t.label == "section_header" and t.text == "Quick start" for t in again.texts)
    assert any("State" in c.text for t in again.tables for c in t.data.table_cells)
    boxes = [p for t in again.texts for p in t.prov]
    assert boxes and all(1 <= p.page_no <= 30 and p.bbox.l < p.bbox.r and p.bbox.t < p.bbox.b for p in boxes), boxes[:3]
    assert all(p.bbox.r <= again.pages[p.page_no].size.width for p in boxes)
    assert "## Quick start" in again.export_to_markdown()
    return again


with DoclingServiceClient(url, api_key=key) as client:
    assert client.health().status == "ok" and client.version()["sheaf"]

    # Convert: one file, followed over WebSocket; the presigned target is refused on the way.
    converted = client.convert(pdf)
    assert converted.status == ConversionStatus.SUCCESS, converted
    checked(converted.document)
    assert converted.input.file.name == pdf.name, converted.input.file

    # A range of pages, and options that do nothing here.
    options = ConvertDocumentsOptions(page_range=(1, 2), force_ocr=True, do_code_enrichment=True, to_formats=[OutputFormat.MARKDOWN, OutputFormat.HTML, OutputFormat.TEXT])
    converted = client.convert(pdf, options=options)
    assert {p.page_no for t in converted.document.texts for p in t.prov} == {1, 2}
    said = [e.error_message for e in converted.errors]
    assert any("force_ocr" in m for m in said) and any("do_code_enrichment" in m for m in said), said

    # A file that cannot be read says why; others in the same call are converted.
    notes = DocumentStream(name="notes.md", stream=io.BytesIO(b"# Herons\n\nThey wait.\n"))
    many = list(client.convert_all([Path(broken), notes], max_concurrency=2))
    assert sorted(r.status for r in many) == [ConversionStatus.FAILURE, ConversionStatus.SUCCESS], many
    assert all(r.errors and r.errors[0].error_message for r in many if r.status == ConversionStatus.FAILURE)
    try:
        client.convert(Path(broken))
        raise SystemExit("a broken file was converted")
    except ConversionError:
        pass

    # Async: poll and watch.
    job = client.submit(pdf, target=InBodyTarget())
    assert job.poll(wait=0.0).task_id == job.task_id
    seen = [s.task_status for s in job.watch()]
    assert seen[-1] == ConversionStatus.SUCCESS, seen
    checked(job.result().document)
    checked(job.result().document)  # it can be fetched again
    raw = client.submit(pdf, target=ZipTarget(), output_formats=[OutputFormat.MARKDOWN, OutputFormat.JSON]).result()
    names = zipfile.ZipFile(io.BytesIO(raw.content)).namelist()
    assert sorted(names) == ["handbook.json", "handbook.md"], names

    # A file that the server fetches.
    checked(client.convert(served).document)

    # A batch, of which one source cannot be read.
    done = client.submit_batch([{"kind": "http", "url": served}, {"kind": "http", "url": served.replace("handbook", "broken")}], target=PresignedUrlTarget(), output_formats=[OutputFormat.MARKDOWN, OutputFormat.JSON]).result()
    assert (done.num_converted, done.num_succeeded, done.num_failed) == (2, 1, 1), done
    assert [d.status for d in done.documents] == [ConversionStatus.SUCCESS, ConversionStatus.FAILURE] and done.documents[1].errors, done
    fetched = {a.artifact_type: httpx.get(str(a.uri), headers={"X-Api-Key": key}) for a in done.documents[0].artifacts}
    assert "page ledger" in fetched["markdown"].text and len(fetched) == 2, fetched
    checked(DoclingDocument.model_validate(fetched["json"].json()))
    assert httpx.get(str(done.documents[0].artifacts[0].uri)).status_code == 401

    # Chunk.
    for kind in ChunkerKind:
        chunked = client.chunk(pdf, kind)
        assert chunked.chunks and all(c.text and c.doc_items and c.page_numbers for c in chunked.chunks), kind
        assert any(c.headings and "Quick start" in c.headings for c in chunked.chunks)
        assert (chunked.chunks[0].num_tokens is None) == (kind == ChunkerKind.HIERARCHICAL)
    assert client.chunk(served, ChunkerKind.HYBRID).documents[0].status == ConversionStatus.SUCCESS

with DoclingServiceClient(url, api_key=key, status_watcher=StatusWatcherKind.POLLING, poll_server_wait=1) as client:
    checked(client.convert(pdf).document)

with DoclingServiceClient(url, api_key=wrong) as client:
    try:
        client.convert(pdf)
        raise SystemExit("a wrong key converts")
    except ServiceError as e:
        assert e.status_code == 401 and e.detail, e


async def together():
    async with AsyncDoclingServiceClient(url, api_key=key) as client:
        jobs = [await client.submit(DocumentStream(name=f"{i}.md", stream=io.BytesIO(f"# Heron {i}\n\nIt waits.\n".encode()))) for i in range(5)]
        return await asyncio.gather(*(j.result() for j in jobs))


assert [r.document.texts[0].text for r in asyncio.run(together())] == [f"Heron {i}" for i in range(5)]

# What other programs send: RAGFlow, and Open WebUI. The second needs no prefix.
auth = {"X-Api-Key": key}
encoded = base64.b64encode(pdf.read_bytes()).decode()
r = httpx.post(url + "/v1/convert/source", headers=auth, timeout=120, json={"options": {"from_formats": ["pdf", "docx"], "to_formats": ["json", "md", "text"]}, "sources": [{"kind": "file", "base64_string": encoded, "filename": "handbook.pdf"}]})
document = r.json()["document"]
assert r.status_code == 200 and "# Quick start" in document["md_content"] and "page ledger" in document["text_content"], r.text[:300]
checked(DoclingDocument.model_validate(document["json_content"]))
with pdf.open("rb") as f:
    r = httpx.post(base + "/v1/convert/file", headers=auth, timeout=120, files={"files": ("handbook.pdf", f, "application/pdf")}, data={"image_export_mode": "placeholder"})
assert r.status_code == 200 and "page ledger" in r.json()["document"]["md_content"] and r.json()["document"]["html_content"] is None, r.text[:300]
r = httpx.post(url + "/v1/convert/file", headers=auth, timeout=120, files=[("files", ("a.md", b"# A\n\n| x | y\\|z |\n|---|---|\n| 1 | 2 |\n")), ("files", ("a.html", b"<h1>B</h1><pre>code &lt;i&gt;</pre>"))], data={"to_formats": ["html"]})
pages = zipfile.ZipFile(io.BytesIO(r.content))
assert pages.namelist() == ["a.html", "a-2.html"], pages.namelist()
assert "<td>1</td>" in pages.read("a.html").decode() and "<th>y|z</th>" in pages.read("a.html").decode() and "&lt;i&gt;" in pages.read("a-2.html").decode()

# A task that is deleted is gone, for those who follow it too.
with DoclingServiceClient(url, api_key=key) as client:
    job = client.submit(pdf, target=InBodyTarget())
    assert httpx.delete(f"{url}/v1/task/{job.task_id}", headers=auth).status_code == 200
    for ask in (lambda: job.poll(), lambda: list(job.watch()), lambda: client.submit(notes) and job.result()):
        try:
            ask()
            raise SystemExit("a deleted task answers")
        except TaskNotFoundError:
            pass
    assert httpx.delete(f"{url}/v1/task/{job.task_id}", headers=auth).status_code == 404
