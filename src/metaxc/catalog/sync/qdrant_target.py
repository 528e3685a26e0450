"""Qdrant: an alias over numbered collections; rows are written before the state, which is the collection's metadata.

`qdrant://HOST:PORT/NAME` is a server of version 1.16 or newer (older ones have no metadata), with `?secure=true` for
TLS; `METAXC_QDRANT_API_KEY` holds the key. `qdrant+local://FOLDER/NAME` is the local mode of the client library, a
folder for trials and tests: it answers exactly, and writes each point by itself.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from metaxc.arrays import Floats
from metaxc.catalog.records import CatalogHit
from metaxc.catalog.sync.sync_target import IndexKind, SyncRow, SyncState, SyncTarget
from metaxc.extras import import_extra

EXTRA = "sync-qdrant"
KEY = "METAXC_QDRANT_API_KEY"
METADATA = "metaxc"
PAGE = 10_000


class QdrantTarget(SyncTarget):
    """An alias with its collections, in a Qdrant server or in a folder."""

    batch_rows = 500

    def __init__(self, address: str, name: str, *, secure: bool = False, local: bool = False):
        self._library = import_extra("qdrant_client", EXTRA)
        self._models = self._library.models
        super().__init__(name, f"qdrant{'+local' if local else ''}://{address}/{name}")
        errors = import_extra("qdrant_client.http.exceptions", EXTRA)
        httpx = import_extra("httpx", EXTRA)
        # The local mode raises plain errors for a folder in use and for collections that are not there.
        local_errors = (RuntimeError, ValueError) if local else ()
        self.errors = (errors.ApiException, httpx.HTTPError, OSError, *local_errors)
        self._where: dict[str, Any] = (
            {"path": str(Path(address))}
            if local
            else {
                "url": f"{'https' if secure else 'http'}://{address}",
                "api_key": os.environ.get(KEY) or None,
            }
        )
        self._opened: Any = None

    @property
    def _client(self) -> Any:
        """The client, connected at the first use."""
        if self._opened is None:
            self._opened = self._library.QdrantClient(**self._where)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def tables(self) -> dict[str, SyncState]:
        states = {table: self._metadata(table).get(METADATA) for table in self._collections()}
        return {table: SyncState.parse(state) for table, state in states.items() if state is not None}

    def _collections(self) -> list[str]:
        return [one.name for one in self._client.get_collections().collections if self.is_table(one.name)]

    def _metadata(self, table: str) -> dict[str, Any]:
        return self._client.get_collection(table).config.metadata or {}

    def current(self) -> str | None:
        aliases = self._client.get_aliases().aliases
        found = [one.collection_name for one in aliases if one.alias_name == self.name]
        return found[0] if found else None

    def create(self, table: str, state: SyncState) -> None:
        self.drop(table)
        self._client.create_collection(
            table,
            vectors_config=self._models.VectorParams(size=state.dim, distance=self._models.Distance.DOT),
            metadata={METADATA: state.model_dump_json()},
        )

    def drop(self, table: str) -> None:
        if table in self._collections():
            self._client.delete_collection(table)

    def read_digests(self, table: str, keys: Sequence[int] | None = None) -> dict[int, str]:
        if keys is not None:
            found = self._client.retrieve(table, list(keys), with_payload=["digest"]) if keys else []
            return {point.id: point.payload["digest"] for point in found}
        digests: dict[int, str] = {}
        following: Any = None
        while True:
            page, following = self._client.scroll(
                table, limit=PAGE, offset=following, with_payload=["digest"], with_vectors=False
            )
            digests |= {point.id: point.payload["digest"] for point in page}
            if following is None:
                return digests

    def apply(self, table: str, rows: Sequence[SyncRow], deleted: Sequence[int], state: SyncState) -> None:
        if deleted:
            self._client.delete(table, self._models.PointIdsList(points=list(deleted)), wait=True)
        if rows:
            points = self._models.Batch(
                ids=[row.key for row in rows],
                vectors=[row.vector.tolist() for row in rows],
                payloads=[
                    {
                        "id": row.id,
                        "text": row.text,
                        "tags": list(row.tags),
                        "state": row.state,
                        "clicks": row.clicks,
                        "digest": row.digest,
                        **({"fields": row.fields} if state.fields else {}),
                    }
                    for row in rows
                ],
            )
            self._client.upsert(table, points, wait=True)
        self._client.update_collection(table, metadata={METADATA: state.model_dump_json()})

    def finish(self, table: str) -> None:
        """Qdrant builds its indexes by itself."""

    def switch(self, table: str) -> None:
        models, changes = self._models, []
        if self.current() is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.name)))
        new = models.CreateAlias(collection_name=table, alias_name=self.name)
        changes.append(models.CreateAliasOperation(create_alias=new))
        self._client.update_collection_aliases(changes)

    def search(self, table: str, vectors: Floats, k: int, index: IndexKind) -> list[list[CatalogHit]]:
        # The local mode compares every row, and warns of parameters.
        parameters = (
            None
            if "path" in self._where
            else self._models.SearchParams(exact=index == "exact", hnsw_ef=max(100, 4 * k))
        )
        found: list[list[CatalogHit]] = []
        for vector in vectors:
            hits = self._client.query_points(
                table, query=vector.tolist(), limit=k, with_payload=True, search_params=parameters
            ).points
            found.append(
                [
                    CatalogHit(
                        one["id"],
                        one["text"],
                        tuple(one["tags"]),
                        one["state"],
                        float(hit.score),
                        one.get("fields", {}),
                    )
                    for hit in hits
                    for one in (hit.payload,)
                ]
            )
        return found
