from __future__ import annotations

from typing import Any

import pytest
from conftest import HANDBOOK
from langchain_tests.integration_tests import RetrieversIntegrationTests

from sheaf_client import Dataset, IngestError, Sheaf
from sheaf_client.langchain import SheafLoader, SheafRetriever


class TestSheafRetriever(RetrieversIntegrationTests):
    """The suite that langchain-tests ships."""

    @pytest.fixture(autouse=True)
    def _server(self, sheaf: Sheaf, handbook: Dataset) -> None:
        self._params = {"client": sheaf, "dataset": handbook.name}

    @property
    def retriever_constructor(self) -> type[SheafRetriever]:
        return SheafRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return self._params

    @property
    def retriever_query_example(self) -> str:
        return "page ledger"


def test_retrieved_documents_are_citations(sheaf: Sheaf, handbook: Dataset) -> None:
    (doc,) = SheafRetriever(client=sheaf, dataset=handbook.name, k=1).invoke("page ledger")
    m = doc.metadata
    assert m["source"] == "handbook.pdf" and m["page"] == m["pages"][0] == m["boxes"][0]["page"] and m["chunk_id"] == doc.id
    everywhere = SheafRetriever(client=sheaf, dataset=None, k=3).invoke("page ledger")
    assert len(everywhere) == 3


@pytest.mark.parametrize("mode", ["chunks", "pages"])
def test_loader(sheaf: Sheaf, handbook: Dataset, dataset: Dataset, mode: Any) -> None:
    docs = SheafLoader(sheaf, handbook.name, mode=mode).load()
    pages = [d.metadata["page"] for d in docs]
    assert all(d.page_content and d.metadata["source"] == "handbook.pdf" and d.metadata["boxes"] for d in docs)
    assert pages == sorted(pages) and (len(set(pages)) == len(pages)) == (mode == "pages")
    loaded = SheafLoader(sheaf, dataset.name, paths=[HANDBOOK], mode=mode).load()
    assert [d.page_content for d in loaded] == [d.page_content for d in docs]


def test_loader_tells_what_it_could_not_read(sheaf: Sheaf, dataset: Dataset) -> None:
    files = [("a.txt", b"Herons wait."), ("broken.pdf", b"%PDF-1.7 and nothing more")]
    with pytest.raises(IngestError, match="broken.pdf"):
        SheafLoader(sheaf, dataset.name, paths=files).load()
    assert [d.page_content for d in SheafLoader(sheaf, dataset.name, paths=files, skip_failed=True).load()] == ["Herons wait."]
    with pytest.raises(ValueError, match="chunks or pages"):
        SheafLoader(sheaf, dataset.name, mode="words").load()  # type: ignore[arg-type]


async def test_loader_on_asyncio(sheaf: Sheaf, handbook: Dataset) -> None:
    docs = await SheafLoader(sheaf, handbook.name).aload()
    assert [d.id for d in docs] == [d.id for d in SheafLoader(sheaf, handbook.name).lazy_load()]
