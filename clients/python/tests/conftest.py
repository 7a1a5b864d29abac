"""The tests run against a real server: SHEAF_URL, and keys of one tenant that may
write (SHEAF_KEY) and read (SHEAF_READ_KEY), and of another (SHEAF_OTHER_KEY)."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sheaf_client import Dataset, Sheaf

HANDBOOK = Path(os.environ.get("SHEAF_SAMPLES", Path(__file__).parents[3] / "samples")) / "handbook.pdf"


@pytest.fixture(scope="session")
def sheaf() -> Iterator[Sheaf]:
    with Sheaf() as client:
        yield client


@pytest.fixture
def dataset(sheaf: Sheaf) -> Dataset:
    return sheaf.create_dataset(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture(scope="session")
def handbook(sheaf: Sheaf) -> Dataset:
    """A dataset with the sample handbook, searchable."""
    ds = sheaf.create_dataset(f"handbook-{uuid.uuid4().hex[:12]}")
    job = ds.ingest(HANDBOOK)
    assert job.info.succeeded, job.info
    return ds


class Line:
    """A line to the server that breaks: the first ``cuts`` connections after ``after`` bytes in a direction."""

    def __init__(self, *, cuts: int, up: int | None = None, down: int | None = None) -> None:
        self.cuts, self.up, self.down = cuts, up, down
        self.sent_up = 0  # bytes that went to the server
        self.broken = 0
        host, port = os.environ["SHEAF_URL"].rsplit("/", 1)[1].split(":")
        self.server = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.server)
            threading.Thread(target=self._pump, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self._pump, args=(far, near, False), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, up: bool) -> None:
        passed, most = 0, self.up if up else self.down
        try:
            while data := source.recv(65536):
                passed += len(data)
                if up:
                    self.sent_up += len(data)
                target.sendall(data)
                if most is not None and passed >= most and self.broken < self.cuts:
                    self.broken += 1
                    break
        except OSError:
            pass
        for s in (source, target):
            try:
                s.shutdown(socket.SHUT_RDWR)  # wakes the other direction
            except OSError:
                pass
            s.close()  # what still comes is refused, else the sender would wait for its bound

    def close(self) -> None:
        self.listener.close()
