"""Milvus: an alias over numbered collections; rows are written before the state.

`milvus://HOST:PORT/NAME`, with `?secure=true` for TLS; `METAXC_MILVUS_TOKEN` holds the token or USER:PASSWORD. The
collection NAME_sync holds the states. All reads ask for strong consistency, so that they see every acknowledged write.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from metaxc.arrays import Floats
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.sync_target import IndexKind, SyncRow, SyncState, SyncTarget
from metaxc.extras import import_extra

EXTRA = "sync-milvus"
TOKEN = "METAXC_MILVUS_TOKEN"
STRONG = "Strong"
MOST_BYTES = 65_535
"""Bytes of a text that a field of Milvus can hold; longer texts are cut, which no vector depends on."""

ID_BYTES, TAG_BYTES, MOST_TAGS = 2_000, 400, 50
"""Four bytes for each character that `metaxc.data.input_rules` permits."""

CONNECT_SECONDS = 60.0

SHOWN = ["id", "text", "tags", "state"]
PAGE = 5_000
"""Rows that one query returns at most; Milvus limits the result to 16,384."""


class MilvusTarget(SyncTarget):
    """An alias with its collections in a Milvus server."""

    batch_rows = 1_000

    def __init__(self, address: str, name: str, secure: bool):
        self._library = import_extra("pymilvus", EXTRA)
        super().__init__(name, f"milvus://{address}/{name}")
        grpc = import_extra("grpc", EXTRA)
        self.errors = (self._library.MilvusException, grpc.RpcError, OSError)
        self._uri = f"{'https' if secure else 'http'}://{address}"
        self._opened: Any = None

    @property
    def _client(self) -> Any:
        """The client, connected at the first use."""
        if self._opened is None:
            token = os.environ.get(TOKEN, "")
            self._opened = self._library.MilvusClient(self._uri, token=token, timeout=CONNECT_SECONDS)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    @property
    def _states(self) -> str:
        return f"{self.name}_sync"

    def tables(self) -> dict[str, SyncState]:
        there = set(self._client.list_collections())
        if self._states not in there:
            return {}
        found = self._client.query(
            self._states,
            filter='name != ""',
            output_fields=["name", "state"],
            consistency_level=STRONG,
            limit=PAGE,
        )
        return {row["name"]: SyncState.parse(row["state"]) for row in found if row["name"] in there}

    def current(self) -> str | None:
        for table in filter(self.is_table, self._client.list_collections()):
            if self.name in self._client.list_aliases(collection_name=table)["aliases"]:
                return str(table)
        return None

    def create(self, table: str, state: SyncState) -> None:
        self.drop(table)
        kind = self._library.DataType
        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", kind.INT64, is_primary=True)
        schema.add_field("id", kind.VARCHAR, max_length=ID_BYTES)
        schema.add_field("text", kind.VARCHAR, max_length=MOST_BYTES)
        schema.add_field(
            "tags",
            kind.ARRAY,
            element_type=kind.VARCHAR,
            max_capacity=MOST_TAGS,
            max_length=TAG_BYTES,
        )
        schema.add_field("state", kind.VARCHAR, max_length=20)
        schema.add_field("clicks", kind.INT64)
        schema.add_field("digest", kind.VARCHAR, max_length=64)
        if state.fields:
            schema.add_field("fields", kind.JSON)
        schema.add_field("vector", kind.FLOAT_VECTOR, dim=state.dim)
        index = (
            {"index_type": "HNSW", "params": {"M": 16, "efConstruction": 200}}
            if state.index == "hnsw"
            else {"index_type": "FLAT"}
        )
        self._create_collection(table, schema, {**index, "metric_type": "IP"})
        self._store(table, state)

    def _create_collection(self, name: str, schema: Any, index: dict[str, Any]) -> None:
        indexes = self._client.prepare_index_params()
        indexes.add_index("vector", **index)
        self._client.create_collection(name, schema=schema, index_params=indexes, consistency_level=STRONG)

    def drop(self, table: str) -> None:
        there = self._client.list_collections()
        if self._states in there:
            self._client.delete(self._states, ids=[table])
        if table in there:
            self._client.drop_collection(table)

    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        if keys is not None:
            if not keys:
                return {}
            found = self._client.query(
                table, ids=list(keys), output_fields=["key", "digest"], consistency_level=STRONG
            )
            return {row["key"]: row["digest"] for row in found}
        digests: dict[int, str] = {}
        pages = self._client.query_iterator(
            table, batch_size=PAGE, output_fields=["key", "digest"], consistency_level=STRONG
        )
        try:
            while found := pages.next():
                digests |= {row["key"]: row["digest"] for row in found}
        finally:
            pages.close()
        return digests

    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        if deleted:
            self._client.delete(table, ids=list(deleted))
        if rows:
            self._client.upsert(
                table,
                [
                    {
                        "key": row.key,
                        "id": row.id,
                        "text": _cut(row.text),
                        "tags": list(row.tags),
                        "state": row.state,
                        "clicks": row.clicks,
                        "digest": row.digest,
                        "vector": row.vector.tolist(),
                        **({"fields": row.fields} if state.fields else {}),
                    }
                    for row in rows
                ],
            )
        self._store(table, state)

    def _store(self, table: str, state: SyncState) -> None:
        if self._states not in self._client.list_collections():
            kind = self._library.DataType
            schema = self._client.create_schema(auto_id=False, enable_dynamic_field=False)
            schema.add_field("name", kind.VARCHAR, max_length=100, is_primary=True)
            schema.add_field("state", kind.VARCHAR, max_length=4_000)
            schema.add_field("vector", kind.FLOAT_VECTOR, dim=2)  # Milvus has no collections without vectors
            self._create_collection(self._states, schema, {"index_type": "FLAT", "metric_type": "IP"})
        row = {"name": table, "state": state.model_dump_json(), "vector": [0.0, 0.0]}
        self._client.upsert(self._states, [row])

    def finish(self, table: str) -> None:
        """Milvus builds its indexes by itself."""

    def switch(self, table: str) -> None:
        if self.current() is None:
            self._client.create_alias(collection_name=table, alias=self.name)
        else:
            self._client.alter_alias(collection_name=table, alias=self.name)

    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        found = self._client.search(
            table,
            data=vectors.tolist(),
            limit=k,
            output_fields=[*SHOWN, *(["fields"] if self.tables()[table].fields else [])],
            search_params={"params": {"ef": max(100, 4 * k)} if index == "hnsw" else {}},
            consistency_level=STRONG,
        )
        return [
            [
                CatalogHit(
                    one["id"],
                    one["text"],
                    tuple(one["tags"]),
                    one["state"],
                    float(hit["distance"]),
                    one.get("fields", {}),
                )
                for hit in hits
                for one in (hit["entity"],)
            ]
            for hits in found
        ]


def _cut(text: str) -> str:
    """The text, cut where Milvus cannot hold all of it."""
    return text if 4 * len(text) <= MOST_BYTES else text.encode()[:MOST_BYTES].decode(errors="ignore")
