"""The queries that a catalog knows, with the embeddings that it has stored: known ones, and those of its clicks.

Stored embeddings need no encoder, so that they are there for queries that were given by their vectors too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.schema import decode_vector
from metaxc.catalog.store import Store


@dataclass(frozen=True)
class KnownQuery:
    """A query that a catalog knows.

    Args:
        text: Its text, or the name under which it was clicked.
        table: Where its embedding is.
        number: The number of its row there, the same in all generations of a catalog.
    """

    text: str
    table: Literal["queries", "clicks"]
    number: int


def list_known(store: Store) -> list[KnownQuery]:
    """The known queries."""
    rows = store.fetch_all("SELECT text, number FROM queries ORDER BY number")
    return [KnownQuery(text, "queries", number) for text, number in rows]


def list_clicked(store: Store, most: int = -1) -> list[KnownQuery]:
    """The clicked queries with their newest clicks, the newest first; at most `most`, or all."""
    rows = store.fetch_all(
        "SELECT query, max(number) FROM clicks GROUP BY query ORDER BY max(number) DESC LIMIT ?", (most,)
    )
    return [KnownQuery(text, "clicks", number) for text, number in rows]


def read_embeddings(store: Store, queries: Sequence[KnownQuery]) -> list[Floats | None]:
    """The (dim,) float32 embedding of each query; None where its click was taken back meanwhile."""
    found: list[Floats | None] = []
    for query in queries:
        rows = store.fetch_all(f"SELECT embedding FROM {query.table} WHERE number = ?", (query.number,))
        found.append(decode_vector(rows[0][0]) if rows else None)
    return found


def stack_embeddings(store: Store, queries: Sequence[KnownQuery]) -> Floats:
    """(n, dim) float32 embeddings of the queries that are still there."""
    found = [one for one in read_embeddings(store, queries) if one is not None]
    return np.stack(found) if found else np.empty((0, store.dim), np.float32)
