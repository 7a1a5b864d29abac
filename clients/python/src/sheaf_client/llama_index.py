"""LlamaIndex: a reader and a retriever. Needs ``pip install sheaf-client[llama-index]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.readers.base import BaseReader
from llama_index.core.schema import Document, NodeWithScore, QueryBundle, TextNode

from ._models import Hit
from ._passages import Mode, hit_metadata, passages
from ._sync import Sheaf
from ._upload import Item

# Places are for citations: neither a model nor an embedding is helped by them.
_PLACES = ["boxes", "chunk_id", "document_id", "dataset_id", "kind", "score", "media_type"]


class SheafReader(BaseReader):
    """Reads files or the documents of a dataset, as pages or as chunks.

    Metadata: source, document_id, dataset_id, page, pages, boxes, headings,
    and for chunks chunk_id and kind.
    """

    def __init__(self, client: Sheaf, dataset: str = "default") -> None:
        self._client = client
        self._dataset = dataset

    def lazy_load_data(
        self,
        paths: Item | Iterable[Item] | None = None,
        *,
        document_ids: Iterable[str] | None = None,
        mode: Mode = "chunks",
        parser_config: Mapping[str, Any] | None = None,
        skip_failed: bool = False,
    ) -> Iterable[Document]:
        """Ingests ``paths`` and reads them; without, the documents named, or all of the dataset.

        A document that could not be read is an IngestError, unless
        ``skip_failed`` is set.
        """
        for p in passages(self._client, self._dataset, paths, document_ids, mode, parser_config, skip_failed):
            yield Document(
                id_=p.id, text=p.text, metadata=p.metadata,
                excluded_embed_metadata_keys=list(_PLACES), excluded_llm_metadata_keys=list(_PLACES),
            )  # fmt: skip


class SheafRetriever(BaseRetriever):
    """Finds chunks of a dataset; ``dataset=None`` searches all."""

    def __init__(
        self,
        client: Sheaf,
        dataset: str | None = "default",
        *,
        similarity_top_k: int = 5,
        mode: Literal["hybrid", "text", "vector"] | None = None,
        filter: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self._client = client
        self._dataset = dataset
        self._how: dict[str, Any] = {"limit": similarity_top_k, "mode": mode, "filter": filter, "threshold": threshold}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        of = self._client if self._dataset is None else self._client.dataset(self._dataset)
        return [_node(h) for h in of.search(query_bundle.query_str, **self._how)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        async with self._client.asynchronous() as client:
            of = client if self._dataset is None else client.dataset(self._dataset)
            return [_node(h) for h in await of.search(query_bundle.query_str, **self._how)]


def _node(h: Hit) -> NodeWithScore:
    node = TextNode(
        id_=h.chunk.id, text=h.chunk.text, metadata=hit_metadata(h),
        excluded_embed_metadata_keys=list(_PLACES), excluded_llm_metadata_keys=list(_PLACES),
    )  # fmt: skip
    return NodeWithScore(node=node, score=h.score)
