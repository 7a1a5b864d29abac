from __future__ import annotations

import os
import time
from pathlib import Path

import httpx
import pytest
from conftest import HANDBOOK, Line

from sheaf_client import (
    AuthenticationError,
    ConnectionFailed,
    Dataset,
    IngestError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    Progress,
    ServerError,
    Sheaf,
    WaitTimeout,
)

KEY = os.environ["SHEAF_KEY"]


def test_ingested_files_are_found_with_page_and_box(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "herons.md").write_text("# Herons\n\nThey wait in the shallow water.\n")
    (tmp_path / "notes" / ".hidden").write_text("no")
    told: list[Progress] = []
    job = dataset.ingest([HANDBOOK, tmp_path / "notes", HANDBOOK, ("zeile\u0085bruch.txt", b"Bitterns boom at dusk.")], progress=told.append, name="Birds")
    assert job.info.succeeded and job.info.name == "Birds" and not job.rejected
    assert [d.name for d in dataset.documents(q="herons")] == ["herons.md"]
    assert len(list(job.documents())) == 3, "a file that is named twice is sent once"
    assert {p.stage for p in told} == {"uploading", "reading"} and told[-1].share == 1
    hit = dataset.search("page ledger", limit=3).hits[0]
    assert hit.document.name == "handbook.pdf" and hit.chunk.boxes[0].page == hit.chunk.pages[0] >= 1 and 0 <= hit.score <= 1
    assert dataset.search("herons", filter={"document_ids": [hit.document.id]}, mode="text").hits == []
    assert dataset.content(hit.document.id) == HANDBOOK.read_bytes()
    box = hit.chunk.boxes[0]
    assert dataset.page_image(hit.document.id, box.page, box=(box.x0, box.y0, box.x1, box.y1)).startswith(b"\xff\xd8\xff")
    chunks = list(dataset.chunks(hit.document.id))
    pages = list(dataset.pages(hit.document.id))
    assert [c for p in pages for c in p.chunks] == chunks and [p.number for p in pages] == sorted({p.number for p in pages})
    events = list(job.events())
    assert events[-1].kind == "end" and events[-1].job and events[-1].job.succeeded

    dataset.ingest([("late.txt", b"Storks clatter.")], progress=True)
    assert "reading: 100% of 1 file, succeeded" in capsys.readouterr().err
    dataset.delete_document(hit.document.id)
    with pytest.raises(NotFoundError):
        dataset.document(hit.document.id)


def test_events_resume_without_a_gap_or_a_repeat(dataset: Dataset) -> None:
    dataset.pause()
    job = dataset.ingest([(f"{i}.txt", b"Herons wait.") for i in range(12)], wait=False)
    line = Line(cuts=4, down=1500)
    with Sheaf(line.url, KEY) as shaky:
        events = shaky.job(job.id).events()
        got = [next(events)]
        assert got[0].kind == "status"
        dataset.resume()
        got += list(events)
    line.close()
    assert line.broken >= 2, "the connection did not break"
    ids = [e.id for e in got if e.id]
    assert ids == [e.id for e in job.events() if e.id] and len(ids) == len(set(ids)) > 12
    assert got[-1].kind == "end"
    after = ids[len(ids) // 2]
    assert [e.id for e in job.events(after=after) if e.id] == [i for i in ids if i > after]


def test_broken_uploads_resume(sheaf: Sheaf, dataset: Dataset, tmp_path: Path) -> None:
    file = tmp_path / "large.txt"
    file.write_bytes(b"A heron stands still for an hour. \n" * 300_000)
    dataset.pause()
    size = file.stat().st_size
    assert size > 10_000_000
    line = Line(cuts=2, up=4_000_000)
    with Sheaf(line.url, KEY) as shaky:
        job = shaky.dataset(dataset.name).ingest(file, wait=False)
    line.close()
    assert line.broken == 2 and line.sent_up < size * 1.5, (line.broken, line.sent_up, size)
    (document,) = sheaf.job(job.id).documents()
    assert dataset.content(document.id) == file.read_bytes()

    # Another run of the program goes on where the first one ended.
    file.write_bytes(b"A bittern booms for an hour. \n" * 400_000)
    size = file.stat().st_size
    line = Line(cuts=1, up=8_000_000)
    with Sheaf(line.url, KEY, retries=0) as shaky, pytest.raises(ConnectionFailed):
        shaky.dataset(dataset.name).ingest(file, wait=False)
    first = line.sent_up
    for _ in range(300):  # until the server knows that the line broke
        if any(u["offset"] > 0 for u in sheaf._list(f"/v1/datasets/{dataset.name}/uploads") if u["size"] == size):
            break
        time.sleep(0.1)
    with Sheaf(line.url, KEY) as shaky:
        job = shaky.dataset(dataset.name).ingest(file, wait=False)
    line.close()
    assert line.sent_up < size * 1.3, (first, line.sent_up, size)
    job = sheaf.job(job.id)
    (document,) = job.documents()
    assert document.size == size
    with pytest.raises(WaitTimeout, match="goes on"):
        job.wait(0.2)
    job.cancel()


class Lossy(httpx.HTTPTransport):
    """Loses the answers of the first requests; the server has done them."""

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost, self.asked = lost, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        response = super().handle_request(request)
        if self.asked <= self.lost:
            response.read()
            raise httpx.ReadError("the connection was reset", request=request)
        return response


def test_a_repeated_request_does_nothing_twice(sheaf: Sheaf, dataset: Dataset) -> None:
    transport = Lossy(2)
    with Sheaf(sheaf.url, KEY, transport=transport) as lossy:
        lossy.create_dataset(dataset.name + "-again")  # without a key of idempotency the name would be taken
    assert transport.asked == 3
    transport = Lossy(1)
    with Sheaf(sheaf.url, KEY, transport=transport) as lossy:
        lossy.dataset(dataset.name + "-again").delete()
    transport = Lossy(99)
    with Sheaf(sheaf.url, KEY, retries=1, transport=transport) as lossy, pytest.raises(ConnectionFailed, match="/v1/info"):
        lossy.info()
    assert transport.asked == 2


def test_retry_after_is_kept_and_attempts_are_bounded(sheaf: Sheaf, monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr("sheaf_client._sync.time.sleep", paused.append)

    class Busy(httpx.HTTPTransport):
        busy = 2

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if self.busy > 0:
                self.busy -= 1
                return httpx.Response(503, headers={"Retry-After": "7"}, text="busy")
            return super().handle_request(request)

    with Sheaf(sheaf.url, KEY, transport=Busy()) as busy:
        assert busy.info()
    assert paused == [7, 7]
    transport = Busy()
    transport.busy = 99
    with Sheaf(sheaf.url, KEY, transport=transport, retries=3) as busy, pytest.raises(ServerError) as e:
        busy.info()
    assert transport.busy == 95 and e.value.detail == "busy" and paused == [7] * 5


def test_errors_carry_code_detail_and_request_id(sheaf: Sheaf, dataset: Dataset) -> None:
    with Sheaf(sheaf.url, "wrong") as wrong, pytest.raises(AuthenticationError) as e:
        list(wrong.datasets())
    assert e.value.status == 401 and e.value.code and e.value.detail and e.value.request_id and e.value.request_id in str(e.value)
    with Sheaf(sheaf.url, os.environ["SHEAF_READ_KEY"]) as reader:
        assert reader.dataset(dataset.name).info().documents == 0
        with pytest.raises(PermissionDeniedError, match="write"):
            reader.dataset(dataset.name).ingest(("a.txt", b"x"))
    dataset.ingest(("a.txt", b"Herons wait."))
    (document,) = dataset.documents()
    with Sheaf(sheaf.url, os.environ["SHEAF_OTHER_KEY"]) as other:
        with pytest.raises(NotFoundError):
            other.dataset(dataset.info().id).document(document.id)
        with pytest.raises(NotFoundError):
            other.job(document.raw["job_id"])
    with pytest.raises(NotFoundError, match="nope"):
        sheaf.dataset("nope").search("herons")
    with pytest.raises(InvalidRequestError) as bad:
        dataset.search("herons", limit=-1)
    assert bad.value.errors or bad.value.detail
    with pytest.raises(IngestError, match="did you mean chunk_method"):
        dataset.ingest(("b.txt", b"x"), parser_config={"chunk_metod": "general"})
    with pytest.raises(ConnectionFailed, match="check that the server runs"):
        Sheaf("http://127.0.0.1:9", retries=0).info()
    for url in ("ftp://x", "http://"):
        with pytest.raises(ValueError, match="no address"):
            Sheaf(url)


def test_what_is_not_taken_is_told(dataset: Dataset, tmp_path: Path) -> None:
    job = dataset.ingest([("a.txt", b"Herons wait."), ("b.bin", bytes(range(256)) * 64), ("c.txt", b"Bitterns boom.")])
    assert [(r.name, bool(r.failure.message)) for r in job.rejected] == [("b.bin", True)]
    assert job.info.succeeded and {d.name for d in job.documents()} == {"a.txt", "c.txt"}
    with pytest.raises(IngestError, match="b.bin") as e:
        dataset.ingest(("b.bin", bytes(range(256)) * 64))
    assert e.value.rejected
    broken = dataset.ingest(("broken.pdf", b"%PDF-1.7 and nothing more"))
    assert broken.info.state == "failed" and {n for n, _ in broken.errors()} == {"broken.pdf"}
    with pytest.raises(FileNotFoundError, match="nothing was sent"):
        dataset.ingest([HANDBOOK, tmp_path / "missing.pdf"])
    with pytest.raises(ValueError, match="no file"):
        dataset.ingest([])
    with pytest.raises(ValueError, match="10,000"):
        dataset.ingest([("x.txt", b"x")] * 10_001)
    with pytest.raises(ValueError, match="empty"):
        dataset.document("")


def test_more_files_than_one_request_submits_are_one_job(dataset: Dataset) -> None:
    dataset.pause()
    job = dataset.ingest([(f"{i}.txt", b"%d herons" % i) for i in range(1030)], wait=False)
    assert len({d.id for d in job.documents()}) == 1030
    job.cancel()


def test_kinds_of_nodes_are_described(sheaf: Sheaf) -> None:
    kinds = sheaf.node_kinds()
    by_name = {kind["name"]: kind for kind in kinds["items"]}
    assert by_name["filter"]["doc"] and by_name["filter"]["config"][0]["name"] == "keep" and by_name["filter"]["config"][0]["doc"]
    assert {setting["name"] for setting in kinds["common"]} >= {"when", "pool", "timeout"}
