"""LangChain: a loader and a retriever. Needs ``pip install sheaf-client[langchain]``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Union

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import ConfigDict, Field

from ._passages import Mode, hit_metadata, passages
from ._sync import Sheaf
from ._upload import Item


class SheafLoader(BaseLoader):
    """Loads documents of a dataset, as pages or as chunks.

    With ``paths`` these files are ingested first and they alone are loaded;
    with ``document_ids`` these documents; else all of the dataset. A document
    that could not be read is an IngestError, unless ``skip_failed`` is set.
    Metadata: source, document_id, dataset, page, pages, boxes, headings, and
    for chunks chunk_id and kind.
    """

    def __init__(
        self,
        client: Sheaf,
        dataset: str = "default",
        *,
        paths: Union[Item, Iterable[Item], None] = None,
        document_ids: Iterable[str] | None = None,
        mode: Mode = "chunks",
        parser_config: Mapping[str, Any] | None = None,
        skip_failed: bool = False,
    ) -> None:
        self._client = client
        self._dataset = dataset
        self._paths = paths
        self._ids = document_ids if document_ids is None else list(document_ids)
        self._mode: Mode = mode
        self._config = parser_config
        self._skip = skip_failed

    def lazy_load(self) -> Iterator[Document]:
        for p in passages(self._client, self._dataset, self._paths, self._ids, self._mode, self._config, self._skip):
            yield Document(id=p.id, page_content=p.text, metadata=p.metadata)


class SheafRetriever(BaseRetriever):
    """Finds chunks of a dataset; ``dataset=None`` searches all.

    ``k`` is the number of documents, also as an argument of ``invoke``. With
    ``parents`` a hit whose chunk was cut into children brings the whole chunk.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: Sheaf
    dataset: Union[str, None] = "default"
    k: int = Field(default=5, ge=1)
    mode: Union[Literal["hybrid", "text", "vector"], None] = None
    filter: Union[dict[str, Any], None] = None
    threshold: Union[float, None] = None
    parents: bool = False

    def _ask(self, k: int | None) -> dict[str, Any]:
        return {"limit": self.k if k is None else k, "mode": self.mode, "filter": self.filter, "threshold": self.threshold}

    def _documents(self, hits: Iterable[Any]) -> list[Document]:
        return [Document(id=h.chunk.id, page_content=h.chunk.parent if self.parents and h.chunk.parent else h.chunk.text, metadata=hit_metadata(h)) for h in hits]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None) -> list[Document]:
        of = self.client if self.dataset is None else self.client.dataset(self.dataset)
        return self._documents(of.search(query, **self._ask(k)))

    async def _aget_relevant_documents(self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None) -> list[Document]:
        async with self.client.asynchronous() as client:
            of = client if self.dataset is None else client.dataset(self.dataset)
            return self._documents(await of.search(query, **self._ask(k)))
