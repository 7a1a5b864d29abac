"""What the server answers, as plain objects.

Each keeps the whole answer in ``raw``, so that what a newer server adds is
there, too. Unknown states and kinds are strings like the known ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

JSON = dict[str, Any]

_ENDED = frozenset({"succeeded", "partially_succeeded", "failed", "canceled"})


@dataclass(frozen=True)
class Box:
    """A rectangle on a page, in points (72 to the inch) from the top left corner."""

    page: int
    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def of(cls, raw: JSON) -> Box:
        return cls(int(raw["page"]), float(raw["x0"]), float(raw["y0"]), float(raw["x1"]), float(raw["y1"]))


@dataclass(frozen=True)
class Failure:
    """Why something failed: a stable code, and a sentence that says what to do."""

    code: str
    message: str
    category: str = ""
    retryable: bool = False
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: JSON) -> Failure:
        return cls(raw.get("code", ""), raw.get("message", ""), raw.get("category", ""), bool(raw.get("retryable")), raw)


@dataclass(frozen=True)
class Rejected:
    """A file that was not taken."""

    name: str
    failure: Failure

    @classmethod
    def of(cls, raw: JSON) -> Rejected:
        return cls(raw.get("name", ""), Failure.of(raw.get("failure") or {}))


@dataclass(frozen=True)
class DatasetInfo:
    id: str
    name: str
    documents: int
    chunks: int
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: JSON) -> DatasetInfo:
        return cls(raw["id"], raw["name"], int(raw.get("documents", 0)), int(raw.get("chunks", 0)), raw)


@dataclass(frozen=True)
class Document:
    """A document. ``live_generation`` is 0 while search shows nothing of it."""

    id: str
    dataset_id: str
    name: str
    media_type: str
    state: str
    progress: float
    size: int
    units: int
    chunks: int
    live_generation: int
    metadata: JSON
    failure: Failure | None = None
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @classmethod
    def of(cls, raw: JSON) -> Document:
        failure = raw.get("failure")
        return cls(
            raw["id"], raw["dataset_id"], raw["name"], raw.get("media_type", ""), raw.get("state", ""), float(raw.get("progress", 0)),
            int(raw.get("size", 0)), int(raw.get("units", 0)), int(raw.get("chunks", 0)), int(raw.get("live_generation", 0)),
            raw.get("metadata") or {}, Failure.of(failure) if failure else None, raw,
        )  # fmt: skip


@dataclass(frozen=True)
class Chunk:
    """A piece of text with its place: pages from 1, boxes of its lines, headings above it."""

    id: str
    document_id: str
    ordinal: int
    text: str
    pages: tuple[int, ...]
    boxes: tuple[Box, ...]
    heading_path: tuple[str, ...]
    kind: str
    parent: str = ""
    metadata: JSON = field(default_factory=dict)
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: JSON) -> Chunk:
        return cls(
            raw["id"], raw.get("document_id", ""), int(raw.get("ordinal", 0)), raw.get("text", ""), tuple(raw.get("pages") or ()),
            tuple(Box.of(b) for b in raw.get("boxes") or ()), tuple(raw.get("heading_path") or ()), raw.get("kind", ""), raw.get("parent") or "",
            raw.get("metadata") or {}, raw,
        )  # fmt: skip


@dataclass(frozen=True)
class Page:
    """The chunks that begin on one page, in reading order. ``number`` is 0 for formats without pages."""

    number: int
    chunks: tuple[Chunk, ...]

    @property
    def text(self) -> str:
        return "\n\n".join(c.text for c in self.chunks)

    @property
    def boxes(self) -> tuple[Box, ...]:
        return tuple(b for c in self.chunks for b in c.boxes)


def pages_of(chunks: Iterator[Chunk]) -> Iterator[Page]:
    """Chunks in reading order as pages. A chunk over the end of a page belongs to the page it begins on."""
    number, held = 0, list[Chunk]()
    for chunk in chunks:
        first = min(chunk.pages, default=number)
        if held and first != number:
            yield Page(number, tuple(held))
            held = []
        number = first
        held.append(chunk)
    if held:
        yield Page(number, tuple(held))


@dataclass(frozen=True)
class HitDocument:
    id: str
    dataset_id: str
    name: str
    media_type: str


@dataclass(frozen=True)
class Hit:
    """A chunk that was found. ``score`` is from 0 to 1."""

    score: float
    chunk: Chunk
    document: HitDocument
    highlight: str = ""
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, raw: JSON) -> Hit:
        d = raw["document"]
        return cls(
            float(raw["score"]), Chunk.of(raw["chunk"]), HitDocument(d["id"], d["dataset_id"], d["name"], d.get("media_type", "")),
            raw.get("highlight") or "", raw,
        )  # fmt: skip


@dataclass(frozen=True)
class SearchResult:
    """Hits, the best first. ``warnings`` say what the search had to leave out."""

    hits: list[Hit]
    took_ms: float
    warnings: list[JSON]
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    @classmethod
    def of(cls, raw: JSON) -> SearchResult:
        return cls([Hit.of(h) for h in raw.get("hits") or ()], float(raw.get("took_ms", 0)), raw.get("warnings") or [], raw)


@dataclass(frozen=True)
class JobInfo:
    """A job as it was when it was read. ``progress`` is from 0 to 1 and weighted by pages."""

    id: str
    dataset_id: str
    name: str
    state: str
    progress: float
    documents: JSON
    raw: JSON = field(default_factory=dict, repr=False, compare=False)

    @property
    def ended(self) -> bool:
        return self.state in _ENDED

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"

    @classmethod
    def of(cls, raw: JSON) -> JobInfo:
        return cls(raw["id"], raw["dataset_id"], raw.get("name", ""), raw.get("state", ""), float(raw.get("progress", 0)), raw.get("documents") or {}, raw)


@dataclass(frozen=True)
class Event:
    """One event of a job.

    ``kind`` is ``status`` (``data`` is the job), ``end`` (the same, and the
    last one), or what happened to a task or document, such as ``claimed``,
    ``progress`` or ``state``. ``id`` is 0 for a status.
    """

    id: int
    kind: str
    data: JSON

    @property
    def job(self) -> JobInfo | None:
        return JobInfo.of(self.data) if self.kind in ("status", "end") else None


@dataclass(frozen=True)
class Progress:
    """How far ``ingest`` is, for a callback. Uploading comes first, then reading."""

    stage: str  # "uploading" or "reading"
    files: int
    files_stored: int
    bytes: int
    bytes_sent: int
    job: JobInfo | None = None

    @property
    def share(self) -> float:
        """From 0 to 1 within the stage."""
        if self.stage == "reading":
            return self.job.progress if self.job else 0.0
        return self.bytes_sent / self.bytes if self.bytes else self.files_stored / max(self.files, 1)
