from __future__ import annotations

import pytest
from conftest import HANDBOOK
from llama_index.core import SummaryIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from sheaf_client import Dataset, IngestError, Sheaf
from sheaf_client.llama_index import SheafReader, SheafRetriever


async def test_retriever(sheaf: Sheaf, handbook: Dataset) -> None:
    retriever = SheafRetriever(sheaf, handbook.name, similarity_top_k=3)
    nodes = retriever.retrieve("page ledger")
    assert len(nodes) == 3 and nodes[0].metadata["source"] == "handbook.pdf" and nodes[0].metadata["boxes"][0]["page"] == nodes[0].metadata["page"]
    assert [n.score for n in nodes] == sorted((n.score for n in nodes), reverse=True)
    assert [n.node_id for n in await retriever.aretrieve("page ledger")] == [n.node_id for n in nodes]
    assert "boxes" not in nodes[0].get_content(metadata_mode="llm") and "handbook.pdf" in nodes[0].get_content(metadata_mode="llm")
    answer = RetrieverQueryEngine.from_args(retriever, llm=MockLLM()).query("page ledger")
    assert [n.node_id for n in answer.source_nodes] == [n.node_id for n in nodes]


def test_reader(sheaf: Sheaf, handbook: Dataset, dataset: Dataset) -> None:
    chunks = SheafReader(sheaf, handbook.name).load_data()
    pages = SheafReader(sheaf, dataset.name).load_data([HANDBOOK], mode="pages")
    assert [d.metadata["page"] for d in pages] == sorted({d.metadata["page"] for d in chunks})
    assert all(d.metadata["source"] == "handbook.pdf" and d.metadata["boxes"] for d in chunks + pages)
    assert SummaryIndex.from_documents(pages).docstore.docs
    with pytest.raises(IngestError, match="broken.pdf"):
        SheafReader(sheaf, dataset.name).load_data([("broken.pdf", b"%PDF-1.7 and nothing more")])
