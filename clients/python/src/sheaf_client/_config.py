"""What both clients are made with."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Union

import httpx

from ._models import Progress

ProgressOption = Union[bool, Callable[[Progress], None]]

CHUNK = 256 << 10  # bytes of a file that are in memory at once, for each file on its way


@dataclass(frozen=True)
class Config:
    url: str
    key: str | None
    timeout: float
    retries: int

    @classmethod
    def of(cls, url: str | None, key: str | None, timeout: float, retries: int) -> Config:
        url = url or os.environ.get("SHEAF_URL") or "http://127.0.0.1:8080"
        if "://" not in url:
            url = "http://" + url
        if not httpx.URL(url).host or httpx.URL(url).scheme not in ("http", "https"):
            raise ValueError(f"{url} is no address of a server; write it as http://127.0.0.1:8080 or https://sheaf.example.org")
        if retries < 0 or timeout <= 0:
            raise ValueError("retries must be 0 or more, and timeout more than 0 seconds")
        return cls(url.rstrip("/"), key or os.environ.get("SHEAF_KEY") or None, timeout, retries)

    def headers(self) -> dict[str, str]:
        head = {"User-Agent": "sheaf-client-python", "Accept": "application/json"}
        if self.key:
            head["Authorization"] = f"Bearer {self.key}"
        return head

    def limits(self) -> httpx.Timeout:
        return httpx.Timeout(self.timeout, connect=min(self.timeout, 10.0), pool=None)


def shower(progress: ProgressOption) -> Callable[[Progress], None]:
    """What is called with each progress."""
    if callable(progress):
        return progress
    if not progress:
        return lambda _: None
    return _Line().show


class _Line:
    """Progress on the terminal: a line that is drawn anew, or one per tenth where there is no terminal."""

    def __init__(self) -> None:
        self.was = ""

    def show(self, p: Progress) -> None:
        state = f", {p.job.state}" if p.job else ""
        line = f"{p.stage}: {p.share:4.0%} of {p.files:,} file{'s' if p.files != 1 else ''}{state}"
        if not sys.stderr.isatty():
            line = f"{p.stage}: {int(p.share * 10) * 10}% of {p.files:,} file{'s' if p.files != 1 else ''}{state}"
        if line == self.was:
            return
        ended = p.job is not None and p.job.ended
        if sys.stderr.isatty():
            print(f"\r{line:<{len(self.was)}}", end="\n" if ended else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
        self.was = line
