"""Resumable uploads (tus 1.0.0), and the job that is made of them."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import httpx

from ._errors import APIError, ConnectionFailed, IngestError, error_of
from ._models import JSON, Failure, Rejected
from ._steps import Answer, Call, FilePart, Pause, Steps, ask, page, passing, pause_of, segment, unreachable

Item = Union[str, "os.PathLike[str]", tuple[str, bytes]]
"""What can be ingested: a path of a file or folder, or a name with its bytes."""

MOST_FILES = 10_000  # in one job
LOT = 1000  # uploads that one request submits
WHOLE = 8 << 20  # bytes; a smaller file goes with its announcement
PIECE = 32 << 20  # bytes that one request sends of a larger one
AT_ONCE = 4  # files on their way
_MEDIA = "application/offset+octet-stream"
_OF_THE_FILE = frozenset({400, 413, 415, 422})


@dataclass
class Source:
    """A file to send."""

    name: str
    path: str | None
    content: bytes | None
    size: int
    print: str  # tells this file from others, also in the next run


@dataclass
class Delivery:
    """How far the files of one call are."""

    dataset: str
    sources: list[Source]
    about: dict[str, str]
    retries: int
    known: dict[str, JSON] = field(default_factory=dict)  # what an earlier call brought and did not submit
    sent: dict[int, int] = field(default_factory=dict)  # bytes, by file
    ids: dict[int, str] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    report: Callable[[], None] = lambda: None

    @property
    def base(self) -> str:
        return f"/v1/datasets/{segment(self.dataset)}/uploads"


def gather(items: Item | Iterable[Item], about: Mapping[str, str]) -> list[Source]:
    """The files of paths, folders and bytes. A folder stands for the files below it, hidden ones left out."""
    if isinstance(items, (str, os.PathLike)):
        items = [items]
    elif isinstance(items, tuple) and len(items) == 2 and isinstance(items[1], bytes):
        items = [(str(items[0]), items[1])]
    sources: list[Source] = []
    seen: set[str] = set()
    for item in items:
        if isinstance(item, tuple):
            name, content = item
            digest = hashlib.sha256(content).hexdigest()
            sources.append(Source(name, None, bytes(content), len(content), _print(about, name, digest, str(len(sources)))))
        else:
            path = Path(item)
            if not path.exists():
                raise FileNotFoundError(f"{path} does not exist; nothing was sent")
            for file in sorted(_below(path)) if path.is_dir() else [path]:
                whole = str(file.resolve())
                if whole in seen:
                    continue
                seen.add(whole)
                stat = file.stat()
                name = file.relative_to(path).as_posix() if path.is_dir() else file.name
                sources.append(Source(name, whole, None, stat.st_size, _print(about, socket.gethostname(), whole, str(stat.st_size), str(stat.st_mtime_ns))))
        if len(sources) > MOST_FILES:
            raise ValueError(f"there are more than {MOST_FILES:,} files, which one job takes; nothing was sent. Call ingest once for each {MOST_FILES:,}")
    if not sources:
        raise ValueError("there is no file to ingest; nothing was sent")
    return sources


def _below(folder: Path) -> Iterable[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith(".")]
        for name in files:
            if not name.startswith(".") and (Path(root) / name).is_file():
                yield Path(root) / name


def _print(about: Mapping[str, str], *parts: str) -> str:
    return hashlib.sha256("\0".join((*parts, json.dumps(dict(about), sort_keys=True))).encode()).hexdigest()


def about(parser_config: Mapping[str, Any] | None, metadata: Mapping[str, Any] | None, lane: str | None) -> dict[str, str]:
    """What is said of each file, as the keys of Upload-Metadata."""
    out: dict[str, str] = {}
    if parser_config:
        out["parser_config"] = json.dumps(dict(parser_config))
    if metadata:
        out["metadata"] = json.dumps(dict(metadata))
    if lane:
        out["lane"] = lane
    return out


def recall(d: Delivery) -> Steps[None]:
    """Finds what an earlier call has brought and not submitted."""
    cursor: str | None = None
    for _ in range(MOST_FILES // LOT):
        items, cursor = yield from page(d.base, {"limit": LOT}, cursor, d.retries)
        for up in items:
            if up.get("hold") and not up.get("job_id") and up.get("fingerprint"):
                d.known[up["fingerprint"]] = up
        if not cursor:
            return


def bring(d: Delivery, index: int) -> Steps[None]:
    """Brings one file. One that the server does not take, or that cannot be read, does not stop the others."""
    source = d.sources[index]
    try:
        d.ids[index] = yield from _send(d, index)
    except APIError as e:
        if e.status not in _OF_THE_FILE:
            raise
        d.rejected.append(Rejected(source.name, Failure(e.code, e.detail)))
    except OSError as e:
        d.rejected.append(Rejected(source.name, Failure("unreadable", f"the file cannot be read: {e.strerror or e}")))
    d.sent[index] = source.size
    d.report()


def _send(d: Delivery, index: int) -> Steps[str]:
    source, broken = d.sources[index], 0
    up = d.known.get(source.print)
    if up and up["size"] != source.size:
        up = None
    while True:
        before = up["offset"] if up else 0
        err: Exception
        headers: Mapping[str, str] = {}
        try:
            if up is None:
                up = yield from _announce(d, source)
            while up["offset"] < up["size"]:
                up = yield from _piece(d, source, up)
                d.sent[index] = up["offset"]
                d.report()
            return str(up["id"])
        except httpx.TransportError as e:
            err = ConnectionFailed(unreachable(Call("PATCH" if up else "POST", d.base), e))
        except _Later as e:
            err, headers = e.problem, e.headers
        if broken >= d.retries:
            raise err
        yield Pause(pause_of(headers, broken))
        # Where it stands is what the server says: of what broke off it may have kept some.
        items, _ = yield from page(d.base, {"fingerprint": source.print}, None, d.retries)
        found = [u for u in items if u.get("hold") and not u.get("job_id") and u["size"] == source.size]
        up = found[0] if found else None
        broken = 0 if up and up["offset"] > before else broken + 1


class _Later(Exception):
    """An answer after which the upload may go on."""

    def __init__(self, problem: APIError, headers: Mapping[str, str]) -> None:
        super().__init__(problem)
        self.problem = problem
        self.headers = headers


def _checked(answer: Answer) -> Answer:
    if answer.status < 400:
        return answer
    err = error_of(answer.status, answer.body, answer.headers.get("x-request-id", ""))
    if passing(err) or err.code in ("upload_broke_off", "checksum_mismatch") or err.status == 409:
        raise _Later(err, answer.headers)
    raise err


def _announce(d: Delivery, source: Source) -> Steps[JSON]:
    pairs = {"filename": source.name, "hold": "true", "fingerprint": source.print, **d.about}
    headers = {
        "Tus-Resumable": "1.0.0",
        "Upload-Length": str(source.size),
        "Upload-Metadata": ",".join(f"{k} {base64.b64encode(v.encode()).decode()}" for k, v in pairs.items()),
    }
    part = None
    if source.size < WHOLE:
        headers["Content-Type"] = _MEDIA
        part = FilePart(source.path, source.content, 0, source.size)
    answer: Answer = yield Call("POST", d.base, part=part, headers=headers)
    up: JSON = _checked(answer).json()
    return up


def _piece(d: Delivery, source: Source, up: JSON) -> Steps[JSON]:
    offset = int(up["offset"])
    part = FilePart(source.path, source.content, offset, min(PIECE, source.size - offset))
    headers = {"Tus-Resumable": "1.0.0", "Upload-Offset": str(offset), "Content-Type": _MEDIA}
    answer: Answer = yield Call("PATCH", f"{d.base}/{up['id']}", part=part, headers=headers)
    stored = int(_checked(answer).headers.get("upload-offset", offset + part.length))
    return {**up, "offset": stored}


def submit(d: Delivery, name: str | None) -> Steps[JSON]:
    """Makes one job of what was brought, and answers it."""
    ids = [d.ids[i] for i in sorted(d.ids)]
    if not ids:
        raise _refused(d)
    base = f"/v1/datasets/{segment(d.dataset)}"
    if len(ids) <= LOT and not name:
        answer = yield from ask("POST", base + "/uploads:submit", d.retries, body={"ids": ids})
        return _taken(d, answer, answer.get("job"))
    job = yield from ask("POST", base + "/jobs", d.retries, body={"name": name} if name else {})
    try:
        for i in range(0, len(ids), LOT):
            answer = yield from ask("POST", base + "/uploads:submit", d.retries, body={"ids": ids[i : i + LOT], "job": job["id"]})
            _taken(d, answer, job)
    finally:  # also after an error: it ends with what it has
        job = yield from ask("POST", f"/v1/jobs/{job['id']}:close", d.retries)
    return dict(job)


def _taken(d: Delivery, answer: JSON, job: JSON | None) -> JSON:
    d.rejected += [Rejected.of(r) for r in answer.get("rejected") or ()]
    if job is None:
        raise _refused(d)
    return job


def _refused(d: Delivery) -> IngestError:
    first = "; ".join(f"{r.name}: {r.failure.message}" for r in d.rejected[:3])
    return IngestError(f"none of the files was taken ({len(d.sources)}). {first}", d.rejected)


def read_part(part: FilePart, at: int, size: int) -> bytes:
    """Bytes of a part, from ``at`` within it."""
    size = min(size, part.length - at)
    if part.content is not None:
        return part.content[part.offset + at : part.offset + at + size]
    assert part.path is not None
    with open(part.path, "rb") as f:
        f.seek(part.offset + at)
        got = f.read(size)
    if len(got) < size:
        raise OSError("it became shorter while it was sent")
    return got

