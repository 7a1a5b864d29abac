"""What the loaders and retrievers of other frameworks have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ._errors import IngestError
from ._models import Box, Chunk, Document, Hit, Rejected
from ._sync import Sheaf
from ._upload import Item

Mode = Literal["chunks", "pages"]


@dataclass(frozen=True)
class Passage:
    id: str
    text: str
    metadata: dict[str, Any]


def _boxes(boxes: Iterable[Box]) -> list[dict[str, float]]:
    return [{"page": b.page, "x0": b.x0, "y0": b.y0, "x1": b.x1, "y1": b.y1} for b in boxes]


def _chunk_metadata(c: Chunk) -> dict[str, Any]:
    return {
        "page": min(c.pages, default=None), "pages": list(c.pages), "boxes": _boxes(c.boxes), "headings": list(c.heading_path),
        "chunk_id": c.id, "kind": c.kind,
    }  # fmt: skip


def hit_metadata(h: Hit) -> dict[str, Any]:
    about = {"source": h.document.name, "document_id": h.document.id, "dataset_id": h.document.dataset_id, "media_type": h.document.media_type}
    return {**about, **_chunk_metadata(h.chunk), "score": h.score}


def passages(
    client: Sheaf,
    dataset: str,
    paths: Item | Iterable[Item] | None,
    document_ids: Iterable[str] | None,
    mode: Mode,
    parser_config: Mapping[str, Any] | None,
    skip_failed: bool,
) -> Iterator[Passage]:
    """The pages or chunks of documents, in reading order."""
    if mode not in ("chunks", "pages"):
        raise ValueError(f"mode is chunks or pages, not {mode!r}")
    if paths is not None and document_ids is not None:
        raise ValueError("give paths or document_ids, not both")
    ds = client.dataset(dataset)
    documents: Iterable[Document]
    if paths is not None:
        job = ds.ingest(paths, parser_config=parser_config)
        documents = list(job.documents())
        failed = job.rejected + [Rejected(d.name, d.failure) for d in documents if d.failure and not d.live_generation]
        if failed and not skip_failed:
            first = "; ".join(f"{r.name}: {r.failure.message}" for r in failed[:3])
            raise IngestError(f"{len(failed)} of the files could not be read. {first}", failed)
    elif document_ids is not None:
        documents = (ds.document(i) for i in document_ids)
    else:
        documents = ds.documents()
    for d in documents:
        if not d.live_generation:
            if d.failure and not skip_failed:
                raise IngestError(f"{d.name} could not be read: {d.failure.message}", [Rejected(d.name, d.failure)])
            continue  # not published yet
        about = {"source": d.name, "document_id": d.id, "dataset_id": d.dataset_id, "media_type": d.media_type}
        if mode == "pages":
            for number, p in enumerate(ds.pages(d.id)):
                yield Passage(f"{d.id}-{number}", p.text, {**about, "page": p.number or None, "pages": [p.number] if p.number else [], "boxes": _boxes(p.boxes), "headings": list(p.chunks[0].heading_path)})
        else:
            for c in ds.chunks(d.id):
                yield Passage(c.id, c.text, {**about, **_chunk_metadata(c)})
