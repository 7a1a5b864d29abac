"""The client for programs on asyncio. Method by method as in _sync."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

import httpx

from . import _upload
from ._config import CHUNK, Config, ProgressOption, shower
from ._errors import ConnectionFailed, WaitTimeout, error_of
from ._models import Chunk, DatasetInfo, Document, Event, Failure, JobInfo, Page, Progress, Rejected, SearchResult
from ._steps import Answer, Call, EventParser, FilePart, Pause, Steps, ask, page, passing, pause_of, request, search_body, segment, unreachable
from ._upload import Item

T = TypeVar("T")


class AsyncSheaf:
    """A server of Sheaf.

    ``url`` and ``key`` fall back to the environment (``SHEAF_URL``,
    ``SHEAF_KEY``), and the address to ``http://127.0.0.1:8080``. A server
    without keys needs none. ``timeout`` is in seconds, for an answer to begin.
    A request that may succeed later is sent up to ``retries`` times more, with
    growing pauses or as long as the server's ``Retry-After`` says, at most a
    minute each. For one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._config = Config.of(url, key, timeout, retries)
        self._http = httpx.AsyncClient(base_url=self._config.url, headers=self._config.headers(), timeout=self._config.limits(), transport=transport)

    @property
    def url(self) -> str:
        return self._config.url

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> AsyncSheaf:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    def dataset(self, name: str) -> AsyncDataset:
        """The dataset of a name or an id. Nothing is sent."""
        return AsyncDataset(self, name)

    async def create_dataset(self, name: str, *, parser_config: Mapping[str, Any] | None = None) -> AsyncDataset:
        """Makes a dataset. A name that is taken is a ConflictError."""
        body: dict[str, Any] = {"name": name}
        if parser_config:
            body["parser_config"] = dict(parser_config)
        await self._ask("POST", "/v1/datasets", body=body)
        return AsyncDataset(self, name)

    def datasets(self) -> AsyncIterator[DatasetInfo]:
        return _each(DatasetInfo.of, self._list("/v1/datasets"))

    async def search(
        self,
        query: str,
        *,
        datasets: Iterable[str] | None = None,
        limit: int = 10,
        mode: str | None = None,
        filter: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        vector_weight: float | None = None,
        group_by: str | None = None,
        highlight: bool = False,
        explain: bool = False,
    ) -> SearchResult:
        """Searches several datasets, or all of the tenant."""
        body = search_body(query, limit, mode, filter, threshold, vector_weight, group_by, highlight, explain, datasets)
        return SearchResult.of(await self._ask("POST", "/v1/search", body=body))

    async def job(self, id: str) -> AsyncJob:
        """The job of an id."""
        return AsyncJob(self, JobInfo.of(await self._ask("GET", f"/v1/jobs/{segment(id)}")))

    async def info(self) -> dict[str, Any]:
        """Which build of Sheaf answers."""
        return dict(await self._ask("GET", "/v1/info"))

    async def node_kinds(self) -> dict[str, Any]:
        """What nodes of flows can be: items, each with its settings, and common, the settings of nodes of all kinds."""
        return dict(await self._ask("GET", "/v1/node-kinds"))

    # How steps are run.

    async def _run(self, steps: Steps[T]) -> T:
        try:
            step = next(steps)
            while True:
                try:
                    got = await self._step(step)
                except (httpx.TransportError, OSError) as e:
                    step = steps.throw(e)
                else:
                    step = steps.send(got)
        except StopIteration as stop:
            value: T = stop.value
            return value

    async def _step(self, step: Call | Pause) -> Answer | None:
        if isinstance(step, Pause):
            await asyncio.sleep(step.seconds)
            return None
        headers = dict(step.headers)
        content = None
        if step.part is not None:
            headers["Content-Length"] = str(step.part.length)
            content = _bytes(step.part)
        timeout = self._config.limits() if step.timeout is None else httpx.Timeout(step.timeout + self._config.timeout)
        r = await self._http.request(step.method, step.path, params=step.params, json=step.json, content=content, headers=headers, timeout=timeout)
        return Answer(r.status_code, r.headers, r.content)

    async def _ask(self, method: str, path: str, **more: Any) -> Any:
        return await self._run(ask(method, path, self._config.retries, **more))

    async def _list(self, path: str, **params: Any) -> AsyncIterator[dict[str, Any]]:
        cursor: str | None = None
        while True:
            items, cursor = await self._run(page(path, {"limit": 200, **params}, cursor, self._config.retries))
            for item in items:
                yield item
            if not cursor:
                return


async def _bytes(part: FilePart) -> AsyncIterator[bytes]:
    for at in range(0, part.length, CHUNK):
        yield await asyncio.to_thread(_upload.read_part, part, at, CHUNK)


async def _each(make: Callable[[dict[str, Any]], T], items: AsyncIterator[dict[str, Any]]) -> AsyncIterator[T]:
    async for item in items:
        yield make(item)


async def _events(parser: EventParser, r: httpx.Response) -> AsyncIterator[Event]:
    async for data in r.aiter_bytes():
        for e in parser.feed(data):
            yield Event(*e)


class AsyncDataset:
    """A dataset of a server: documents that are searched together."""

    def __init__(self, client: AsyncSheaf, name: str) -> None:
        self._client = client
        self.name = name
        self._base = f"/v1/datasets/{segment(name)}"

    async def info(self) -> DatasetInfo:
        return DatasetInfo.of(await self._client._ask("GET", self._base))

    async def pause(self) -> None:
        """Holds the dataset's queued work; uploads are still taken."""
        await self._client._ask("POST", self._base + ":pause")

    async def resume(self) -> None:
        await self._client._ask("POST", self._base + ":resume")

    async def delete(self) -> None:
        """Deletes the dataset with its documents."""
        await self._client._ask("DELETE", self._base)

    async def ingest(
        self,
        items: Item | Iterable[Item],
        *,
        wait: bool = True,
        progress: ProgressOption = False,
        name: str | None = None,
        parser_config: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        lane: str | None = None,
        timeout: float | None = None,
    ) -> AsyncJob:
        """Uploads files as one job, and waits until they are searchable.

        ``items`` are paths of files and folders, or pairs of a name and bytes;
        up to 10,000 files. An upload that breaks off resumes, also when the
        program is run anew: nothing that is stored is sent twice. Files that
        the server does not take are in the job's ``rejected``; where it takes
        none, that is an IngestError. ``progress`` is True for a line on
        standard error, or a function that is given each Progress. With
        ``wait=False`` it returns when the job is queued. How the job ended is
        in ``job.info``; ``timeout`` bounds the wait for that, in seconds.
        """
        said = _upload.about(parser_config, metadata, lane)
        sources = await asyncio.to_thread(_upload.gather, items, said)
        delivery = _upload.Delivery(self.name, sources, said, self._client._config.retries)
        show = shower(progress)
        total = sum(s.size for s in sources)

        def report() -> None:
            show(Progress("uploading", len(sources), len(delivery.ids), total, sum(delivery.sent.values())))

        delivery.report = report
        await self._client._run(_upload.recall(delivery))
        waiting = iter(range(len(sources)))

        async def bring() -> None:
            for i in waiting:
                await self._client._run(_upload.bring(delivery, i))

        running = [asyncio.ensure_future(bring()) for _ in range(_upload.AT_ONCE)]
        try:
            await asyncio.gather(*running)
        finally:
            for r in running:
                r.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        raw = await self._client._run(_upload.submit(delivery, name))
        job = AsyncJob(self._client, JobInfo.of(raw), delivery.rejected)
        if wait:
            await job.wait(timeout, progress=lambda j: show(Progress("reading", len(sources), len(delivery.ids), total, total, j)) if progress else None)
        return job

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        mode: str | None = None,
        filter: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        vector_weight: float | None = None,
        group_by: str | None = None,
        highlight: bool = False,
        explain: bool = False,
    ) -> SearchResult:
        """Searches the dataset.

        ``mode`` is hybrid, text or vector; ``filter`` has the keys of the API
        (document_ids, metadata, tags, pages ...).
        """
        body = search_body(query, limit, mode, filter, threshold, vector_weight, group_by, highlight, explain)
        return SearchResult.of(await self._client._ask("POST", self._base + "/search", body=body))

    def documents(self, *, state: str | None = None, q: str | None = None) -> AsyncIterator[Document]:
        """All documents, or those in a state or with ``q`` in their name."""
        return _each(Document.of, self._client._list(self._base + "/documents", state=state, q=q))

    async def document(self, id: str) -> Document:
        return Document.of(await self._client._ask("GET", f"{self._base}/documents/{segment(id)}"))

    def chunks(self, document_id: str, *, page: int | None = None) -> AsyncIterator[Chunk]:
        """The chunks of a document in reading order."""
        return _each(Chunk.of, self._client._list(f"{self._base}/documents/{segment(document_id)}/chunks", page=page))

    async def pages(self, document_id: str) -> AsyncIterator[Page]:
        """The pages of a document that hold text. A chunk over the end of a page belongs to the one it begins on."""
        number, held = 0, list[Chunk]()
        async for chunk in self.chunks(document_id):
            first = min(chunk.pages, default=number)
            if held and first != number:
                yield Page(number, tuple(held))
                held = []
            number = first
            held.append(chunk)
        if held:
            yield Page(number, tuple(held))

    async def content(self, document_id: str) -> bytes:
        """The original bytes."""
        path = f"{self._base}/documents/{segment(document_id)}/content"
        return (await self._client._run(request(Call("GET", path), self._client._config.retries))).body

    async def page_image(self, document_id: str, number: int, *, dpi: int | None = None, box: tuple[float, float, float, float] | None = None) -> bytes:
        """A page, or the part of it in a box, as JPEG."""
        params: dict[str, Any] = {} if dpi is None else {"dpi": dpi}
        if box is not None:
            params["box"] = ",".join(f"{v:g}" for v in box)
        path = f"{self._base}/documents/{segment(document_id)}/pages/{number}/image"
        return (await self._client._run(request(Call("GET", path, params=params, headers={"Accept": "*/*"}), self._client._config.retries))).body

    async def delete_document(self, id: str) -> None:
        await self._client._ask("DELETE", f"{self._base}/documents/{segment(id)}")

    async def reparse(self, document_ids: Iterable[str], *, parser_config: Mapping[str, Any] | None = None) -> AsyncJob:
        """Parses documents again. Search shows what is there until the new version is complete."""
        body: dict[str, Any] = {"document_ids": list(document_ids)}
        if parser_config:
            body["parser_config"] = dict(parser_config)
        answer = await self._client._ask("POST", self._base + "/documents:reparse", body=body)
        if not answer.get("job"):
            raise ValueError("no document was chosen")
        return AsyncJob(self._client, JobInfo.of(answer["job"]))


class AsyncJob:
    """A job: what one request asked for. ``info`` is how it was when it was last read."""

    def __init__(self, client: AsyncSheaf, info: JobInfo, rejected: list[Rejected] | None = None) -> None:
        self._client = client
        self.info = info
        self.rejected: list[Rejected] = rejected or []
        self._path = f"/v1/jobs/{segment(info.id)}"

    @property
    def id(self) -> str:
        return self.info.id

    async def refresh(self) -> JobInfo:
        self.info = JobInfo.of(await self._client._ask("GET", self._path))
        return self.info

    async def wait(self, timeout: float | None = None, *, progress: Any = None) -> JobInfo:
        """Waits for the end. After ``timeout`` seconds it is a WaitTimeout, and the job goes on."""
        until = None if timeout is None else time.monotonic() + timeout
        if not self.info.ended:
            await self.refresh()
        while not self.info.ended:
            left = (2.0 if progress else 30.0) if until is None else min(2.0 if progress else 30.0, until - time.monotonic())
            if left <= 0:
                raise WaitTimeout(f"job {self.id} is {self.info.state} ({self.info.progress:.0%}) after {timeout:g} seconds; it goes on")
            if progress:
                progress(self.info)
            self.info = JobInfo.of(await self._client._ask("GET", self._path, params={"wait": f"{max(left, 0.001):.3f}s"}, timeout=left))
        if progress:
            progress(self.info)
        return self.info

    async def events(self, *, after: int | str | None = None) -> AsyncIterator[Event]:
        """The events of the job as they come, the past ones first; the last one is ``end``.

        ``after`` is the id of an event, or "now". A connection that breaks is
        opened again behind the last event that came.
        """
        parser, broken = EventParser(), 0
        config = self._client._config
        while True:
            headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
            params: dict[str, Any] = {}
            if parser.last_id:
                headers["Last-Event-ID"] = parser.last_id
            elif after is not None:
                params["after"] = str(after)
            parser.reset()
            pause = parser.retry
            try:
                async with self._client._http.stream("GET", self._path, params=params, headers=headers) as r:
                    if r.status_code >= 400:
                        err = error_of(r.status_code, await r.aread(), r.headers.get("x-request-id", ""))
                        if not passing(err) or broken >= config.retries:
                            raise err
                        pause = pause_of(r.headers, broken)
                        broken += 1
                    else:
                        async for event in _events(parser, r):
                            if event.id:
                                broken = 0
                            if event.job is not None:
                                self.info = event.job
                            yield event
                            if event.kind == "end":
                                return
                        broken += 1  # closed by the server, which asks to connect again
            except httpx.TransportError as e:
                broken += 1
                if broken > config.retries:
                    raise ConnectionFailed(unreachable(Call("GET", self._path), e)) from e
            if broken > max(config.retries, 1) * 4:
                raise ConnectionFailed(f"the events of job {self.id} broke off {broken} times without an event between")
            await asyncio.sleep(pause)

    def documents(self) -> AsyncIterator[Document]:
        return _each(Document.of, self._client._list(self._path + "/documents"))

    def errors(self) -> AsyncIterator[tuple[str, Failure]]:
        """What failed: the name of each document, and why."""
        return _each(lambda e: (e["document"], Failure.of(e["failure"])), self._client._list(self._path + "/errors"))

    async def cancel(self) -> None:
        await self._client._ask("POST", self._path + ":cancel")

    async def retry(self) -> None:
        """Runs again what failed."""
        await self._client._ask("POST", self._path + ":retry")
