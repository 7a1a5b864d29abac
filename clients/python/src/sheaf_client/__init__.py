"""Client of Sheaf, a document-ingestion service.

>>> from sheaf_client import Sheaf
>>> with Sheaf("http://127.0.0.1:8080") as sheaf:
...     job = sheaf.dataset("default").ingest(["report.pdf"], progress=True)
...     for hit in sheaf.dataset("default").search("notice period").hits:
...         print(hit.document.name, hit.chunk.pages, hit.chunk.text)

``AsyncSheaf`` has the same methods as coroutines. ``sheaf_client.langchain``
and ``sheaf_client.llama_index`` need the extras of those names.
"""

from ._async import AsyncDataset, AsyncJob, AsyncSheaf
from ._errors import (
    APIError,
    AuthenticationError,
    ConflictError,
    ConnectionFailed,
    IngestError,
    InvalidRequestError,
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    ServerError,
    SheafError,
    WaitTimeout,
)
from ._models import Box, Chunk, DatasetInfo, Document, Event, Failure, Hit, HitDocument, JobInfo, Page, Progress, Rejected, SearchResult
from ._sync import Dataset, Job, Sheaf
from ._upload import Item

__all__ = [
    "APIError", "AsyncDataset", "AsyncJob", "AsyncSheaf", "AuthenticationError", "Box", "Chunk", "ConflictError",
    "ConnectionFailed", "Dataset", "DatasetInfo", "Document", "Event", "Failure", "Hit", "HitDocument", "IngestError",
    "InvalidRequestError", "Item", "Job", "JobInfo", "NotFoundError", "Page", "PermissionDeniedError", "Progress", "RateLimitedError",
    "Rejected", "SearchResult", "ServerError", "Sheaf", "SheafError", "WaitTimeout",
]  # fmt: skip
