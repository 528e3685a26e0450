"""A real service in a process of its own, and a client light enough to load it.

    python benchmarks/reliability/live.py --catalog FOLDER

runs the service alone: on the small world, or on a model with `--model`. The client speaks plain HTTP/1.1 over
connections that stay open; a general client would itself need most of a core at a thousand requests per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np
from world import model, text_of

from metaxc.catalog import Catalog, NewItem
from metaxc.cli.serve_command import default_threads, open_or_create_catalog, run_server
from metaxc.cli.shared import THREADS, set_threads
from metaxc.data import read_folder
from metaxc.serve.model_switcher import ModelFolders
from metaxc.serve.serve_settings import ServeSettings

IDLE = 3.0
"""Seconds after which a connection is not used again: the service closes it after five."""

PATIENCE = 120.0
"""Seconds to wait for the service to open, and for one answer."""


class Server:
    """The service as a child process.

    Args:
        folder: Where the catalog is made.
        model: A model folder; the small world when None.
        data: Its data set; known queries come from it.
        queue: Requests that may wait in a lane.
        source: A folder with the package `metaxc` of another version.
        options: Of the command line below.
    """

    def __init__(
        self,
        folder: Path,
        model: Path | None = None,
        data: Path | None = None,
        queue: int = 256,
        source: Path | None = None,
        options: Sequence[str] = (),
    ):
        command = [sys.executable, str(Path(__file__)), "--catalog", str(folder), "--queue", str(queue)]
        command += ["--model", str(model)] if model else []
        command += ["--data", str(data)] if data else []
        pipe = subprocess.PIPE
        environment = dict.fromkeys(THREADS, str(default_threads()))  # as `metaxc serve` sets them
        environment |= os.environ | ({} if source is None else {"PYTHONPATH": str(source)})
        self.process = subprocess.Popen(
            [*command, *options], stdin=pipe, stdout=pipe, text=True, env=environment
        )
        assert self.process.stdout is not None
        told = self.process.stdout.readline()
        if not told.startswith("ready: "):
            raise RuntimeError(f"the service did not open: {told!r}, code {self.process.wait()}")
        self.url = told.removeprefix("ready: ").strip()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self.process.pid

    def stop(self) -> int:
        """End it as a signal does; its exit code."""
        self.process.send_signal(signal.SIGINT)
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


@contextmanager
def served(folder: Path, **how: Any) -> Iterator[Server]:
    """A server that is gone when the block ends."""
    server = Server(folder, **how)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.stop()


@dataclass(frozen=True)
class Reply:
    """An answer; status 0 where the connection broke.

    Args:
        status: Of HTTP.
        head: The headers, lower case.
        body: As sent.
        seconds: From the request to the whole answer.
    """

    status: int
    head: bytes
    body: bytes
    seconds: float

    def json(self) -> Any:
        """The body's content."""
        return json.loads(self.body)


class Wire(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.open, self.used = False, time.perf_counter()
        self._buffer = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes, bytes]] | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport, self.open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((0, b"", b""))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._buffer[:end]).lower()
        length = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        if len(self._buffer) >= end + 4 + length and self._answer is not None:
            body = bytes(self._buffer[end + 4 : end + 4 + length])
            self._buffer.clear()
            if not self._answer.done():
                self._answer.set_result((int(head[9:12]), head, body))

    async def ask(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, headers and body."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        answer = await asyncio.wait_for(self._answer, PATIENCE)
        self.used = time.perf_counter()
        return answer

    def close(self) -> None:
        """Let go."""
        self._transport.close()


class Wires:
    """Connections to a service; a new one is opened when all are busy.

    Args:
        url: Of the service.
        most: Connections at once; who asks then, waits for one.
    """

    def __init__(self, url: str, most: int = 1000):
        where = urlsplit(url)
        self.host, self.port = where.hostname, where.port
        self._free: deque[Wire] = deque()
        self._room = asyncio.Semaphore(most)

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """The answer to a request, its time counted from here: waiting for a connection counts, too."""
        started = time.perf_counter()
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n"
            + "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
            + "\r\n"
        )
        async with self._room:
            while self._free and not (self._free[-1].open and self._free[-1].used > started - IDLE):
                self._free.pop().close()
            wire = self._free.pop() if self._free else await self._connect()
            try:
                status, answered, answer = await wire.ask(head.encode() + content)
            except BaseException:
                wire.close()  # a client that leaves
                raise
            if wire.open:
                self._free.append(wire)
        return Reply(status, answered, answer, time.perf_counter() - started)

    async def search(self, queries: Sequence[str], k: int = 10, **more: Any) -> Reply:
        """Search."""
        return await self.ask("POST", "/v1/search", {"queries": list(queries), "k": k, **more})

    async def add(self, name: str, text: str, *tags: str) -> Reply:
        """Add one item."""
        return await self.ask(
            "POST", "/v1/items", {"items": [{"id": name, "text": text, "tags": list(tags)}]}
        )

    async def click(self, name: str, query: str) -> Reply:
        """Tell of a click."""
        return await self.ask("POST", "/v1/clicks", {"item": name, "query": query})

    async def explain(self, name: str) -> Reply:
        """Why an item is where it is."""
        return await self.ask("GET", f"/v1/explain?item={quote(name, safe='')}")

    async def everything(self) -> dict[str, str]:
        """The text of every item, by id."""
        found: dict[str, str] = {}
        after = ""
        while True:
            page = (await self.ask("GET", f"/v1/items?limit=500{after}")).json()
            found |= {item["id"]: item["text"] for item in page["items"]}
            if page["next"] is None:
                return found
            after = f"&after={page['next']}"

    def close(self) -> None:
        """Let all connections go."""
        while self._free:
            self._free.pop().close()

    async def _connect(self) -> Wire:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, self.host, self.port)
        return wire


class Language:
    """Texts to ask and to add: of a data set, or of the small world.

    Args:
        data: A data set folder.
        seed: Of what is drawn.
    """

    def __init__(self, data: Path | None = None, seed: int = 0):
        self._drawn = random.Random(seed)
        dataset = read_folder(data) if data else None
        self._queries = dataset.train.queries.texts if dataset else None
        self._items = dataset.items.texts if dataset else None

    def query(self) -> str:
        """A query."""
        return self._drawn.choice(self._queries) if self._queries else text_of(self._drawn)

    def item(self) -> str:
        """The text of an item that is not there yet."""
        if not self._items:
            return text_of(self._drawn)
        return f"{self._drawn.choice(self._items)}, {self._drawn.choice(self._items)}"


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """In milliseconds, with how many there are."""
    if not seconds:
        return {"count": 0}
    spread = {f"p{share}": float(np.percentile(seconds, share)) for share in (50, 90, 99)}
    return {
        "count": len(seconds),
        **{name: round(1000 * value, 3) for name, value in {**spread, "most": max(seconds)}.items()},
    }


def end_with_parent() -> None:
    """A parent that was killed closes our input."""
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)


def main() -> None:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--catalog", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--queue", type=int, default=256)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--token-seconds", type=float, default=0.0, help="of the small world's encoder")
    parser.add_argument("--clicked", type=int, nargs="*", default=[], help="add items with so many clicks")
    parser.add_argument("--models", type=Path, help="folder of folders named after a number of neighbours")
    options = parser.parse_args()
    threading.Thread(target=end_with_parent, daemon=True).start()
    settings = ServeSettings(network={"port": 0}, queues={"max_waiting": options.queue})
    set_threads(options.threads or default_threads())

    def opened() -> Catalog:
        if options.model is None:
            catalog = Catalog.create(options.catalog, model())
        else:
            catalog = open_or_create_catalog(options.catalog, options.model, options.data, False, None, None)
        for count in options.clicked:
            add_clicked(catalog, count, Language(options.data))
        if options.token_seconds:
            catalog.model.encoder.token_seconds = options.token_seconds
        return catalog

    run_server(opened, settings, models=None if options.models is None else small_models(options))


def small_models(options: argparse.Namespace) -> ModelFolders:
    """Models of the small world, which are computed before the service is open and not read from their folders."""
    folders = sorted(options.models.iterdir())
    for folder in folders:
        model(int(folder.name)).encoder.token_seconds = options.token_seconds
    return ModelFolders(options.models, folders[0], lambda folder: model(int(folder.name)))


def add_clicked(catalog: Catalog, count: int, language: Language) -> None:
    """A new item `clicked-COUNT` with so many clicks."""
    name = f"clicked-{count}"
    catalog.add([NewItem(name, language.item())])
    queries = [language.query() for _ in range(200)]
    for start in range(0, count, 1000):
        catalog.clicks([(name, queries[number % 200]) for number in range(start, min(start + 1000, count))])


if __name__ == "__main__":
    main()
