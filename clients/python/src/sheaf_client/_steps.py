"""The protocol, without a way to send.

A generator of this module yields what is to be sent (Call) or how long to
pause (Pause), and is given the Answer, or the exception of a connection that
broke. The clients of _sync and _async run it, so that retries, paging and
resumption are written once.
"""

from __future__ import annotations

import email.utils
import json
import random
import time
import uuid
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from ._errors import APIError, ConnectionFailed, error_of
from ._models import JSON

T = TypeVar("T")


@dataclass
class FilePart:
    """Bytes of a file to send: from ``offset``, ``length`` of them."""

    path: str | None
    content: bytes | None
    offset: int
    length: int


@dataclass
class Call:
    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    json: Any = None
    part: FilePart | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None  # seconds to wait for an answer; None: the client's own


@dataclass
class Pause:
    seconds: float


@dataclass
class Answer:
    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


Steps = Generator["Call | Pause", Any, T]

MAX_PAUSE = 60.0  # seconds; a server that asks for more is waited for this long
_AGAIN = frozenset({429, 502, 503, 504})


def passing(err: APIError) -> bool:
    """Whether the same request may succeed later."""
    return err.status in _AGAIN or err.retryable and (err.status >= 500 or err.status == 409)


def pause_of(headers: Mapping[str, str], attempt: int) -> float:
    """Seconds before the next attempt: what Retry-After says, else growing, with jitter."""
    said = headers.get("retry-after", "")
    wait = None
    if said.isdigit():
        wait = float(said)
    elif said:
        try:
            wait = email.utils.parsedate_to_datetime(said).timestamp() - time.time()
        except (TypeError, ValueError):
            wait = None
    if wait is None:
        wait = min(0.5 * 2**attempt, 15.0) * random.uniform(0.5, 1.0)
    return min(max(wait, 0.0), MAX_PAUSE)


def request(call: Call, retries: int) -> Steps[Answer]:
    """Sends until there is a success, at most ``retries`` times more.

    A POST carries one Idempotency-Key in all attempts, so that none is done
    twice. Searches change nothing and need none.
    """
    headers = dict(call.headers)
    if call.method in ("POST", "PUT") and not call.path.endswith("/search"):
        headers.setdefault("Idempotency-Key", uuid.uuid4().hex)
    call.headers = headers
    for attempt in range(retries + 1):
        try:
            answer: Answer = yield call
        except httpx.TransportError as e:
            if attempt == retries:
                raise ConnectionFailed(unreachable(call, e)) from e
            yield Pause(pause_of({}, attempt))
            continue
        if answer.status < 400:
            return answer
        if call.method == "DELETE" and answer.status == 404 and attempt > 0:
            return answer  # the attempt before has done it
        err = error_of(answer.status, answer.body, answer.headers.get("x-request-id", ""))
        if attempt == retries or not passing(err):
            raise err
        yield Pause(pause_of(answer.headers, attempt))
    raise AssertionError("unreachable")


def unreachable(call: Call, err: Exception) -> str:
    return f"{call.method} {call.path}: {err or type(err).__name__}; check that the server runs at this address"


def ask(method: str, path: str, retries: int, *, params: Mapping[str, Any] | None = None, body: Any = None, timeout: float | None = None) -> Steps[Any]:
    """One request, and its JSON answer."""
    answer = yield from request(Call(method, path, params=params or {}, json=body, timeout=timeout), retries)
    return answer.json()


def page(path: str, params: Mapping[str, Any], cursor: str | None, retries: int) -> Steps[tuple[list[JSON], str | None]]:
    """One page of a list, and where the next one begins."""
    query = {k: v for k, v in params.items() if v is not None}
    if cursor:
        query["cursor"] = cursor
    answer = yield from ask("GET", path, retries, params=query)
    return answer.get("items") or [], answer.get("next_cursor")


def segment(name: str) -> str:
    """A name as one segment of a path."""
    from urllib.parse import quote

    if not name:
        raise ValueError("a name or an id is empty")
    return quote(name, safe="")


def search_body(
    query: str,
    limit: int,
    mode: str | None,
    filter: Mapping[str, Any] | None,
    threshold: float | None,
    vector_weight: float | None,
    group_by: str | None,
    highlight: bool,
    explain: bool,
    datasets: Iterable[str] | None = None,
) -> JSON:
    body: JSON = {"query": query, "limit": limit}
    given = {
        "mode": mode, "filter": filter, "threshold": threshold, "vector_weight": vector_weight, "group_by": group_by,
        "highlight": highlight or None, "explain": explain or None, "datasets": None if datasets is None else list(datasets),
    }  # fmt: skip
    body.update({k: v for k, v in given.items() if v is not None})
    return body


class EventParser:
    """Turns the bytes of an event stream into events (id, kind, data).

    Lines end with a newline alone: other characters that Unicode calls line
    breaks may stand in a name.
    """

    MOST = 16 << 20  # characters of one event

    def __init__(self) -> None:
        self.last_id = ""
        self.retry = 2.0  # seconds before a reconnection, as the server says
        self._kind = ""
        self._id = ""
        self._data: list[str] = []
        self._size = 0
        self._rest = b""

    def reset(self) -> None:
        """Forgets what the connection that broke had begun."""
        self._rest = b""
        self._begin()

    def _begin(self) -> None:
        self._kind, self._id, self._data, self._size = "", "", [], 0

    def feed(self, data: bytes) -> list[tuple[int, str, JSON]]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self.MOST:
            raise ConnectionFailed("an event of the stream is larger than 16 MiB")
        got = (self._line(line.removesuffix(b"\r").decode(errors="replace")) for line in lines)
        return [event for event in got if event is not None]

    def _line(self, line: str) -> tuple[int, str, JSON] | None:
        if line == "":
            kind, data, number = self._kind or "message", "\n".join(self._data), self._id
            self._begin()
            if number:
                self.last_id = number
            if not data:
                return None
            return int(number) if number.isdigit() and kind not in ("status", "end") else 0, kind, json.loads(data)
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(value)
            if self._size > self.MOST:
                raise ConnectionFailed("an event of the stream is larger than 16 MiB")
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id":
            self._id = value
        elif name == "retry" and value.isdigit():
            self.retry = min(int(value) / 1000, MAX_PAUSE)
        return None
