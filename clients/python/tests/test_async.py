from __future__ import annotations

import asyncio
import os

import pytest
from conftest import HANDBOOK, Line

from sheaf_client import AsyncSheaf, Dataset, NotFoundError, PermissionDeniedError, WaitTimeout

KEY = os.environ["SHEAF_KEY"]


async def test_all_of_it_without_waiting_threads(dataset: Dataset) -> None:
    async with AsyncSheaf() as sheaf:
        ds = sheaf.dataset(dataset.name)
        job = await ds.ingest([HANDBOOK, *((f"{i}.txt", b"Herons wait.") for i in range(9))], name="Ten")
        assert job.info.succeeded and job.info.name == "Ten"
        assert len([d async for d in job.documents()]) == 10
        found, info = await asyncio.gather(ds.search("page ledger", limit=2), ds.info())
        assert found.hits[0].document.name == "handbook.pdf" and info.documents == 10
        chunks = [c async for c in ds.chunks(found.hits[0].document.id)]
        assert [c async for p in ds.pages(found.hits[0].document.id) for c in p.chunks] == chunks
        assert await ds.content(found.hits[0].document.id) == HANDBOOK.read_bytes()
        kinds = [e.kind async for e in job.events()]
        assert kinds[0] == "status" and kinds[-1] == "end"
        with pytest.raises(NotFoundError):
            await sheaf.job("01a20a15c96e70009778f913b1690c7a")
        await ds.pause()
        late = await ds.ingest(("late.txt", b"x"), wait=False)
        with pytest.raises(WaitTimeout):
            await late.wait(0.1)
        await late.cancel()
    async with AsyncSheaf(key=os.environ["SHEAF_READ_KEY"]) as reader:
        with pytest.raises(PermissionDeniedError):
            await reader.dataset(dataset.name).ingest([(f"{i}.txt", b"x") for i in range(20)])


async def test_broken_lines(dataset: Dataset) -> None:
    dataset.pause()
    content = b"A heron stands still for an hour. \n" * 300_000
    line = Line(cuts=1, up=4_000_000)
    async with AsyncSheaf(line.url, KEY) as shaky:
        job = await shaky.dataset(dataset.name).ingest(("large.txt", content), wait=False)
        assert line.broken == 1 and line.sent_up < len(content) * 1.5
        (document,) = [d async for d in job.documents()]
        assert await shaky.dataset(dataset.name).content(document.id) == content
        await job.cancel()
    line.close()
    line = Line(cuts=3, down=1200)
    async with AsyncSheaf(line.url, KEY) as shaky:
        got = [e async for e in (await shaky.job(job.id)).events()]
    line.close()
    ids = [e.id for e in got if e.id]
    assert got[-1].kind == "end" and len(ids) == len(set(ids)) and line.broken
