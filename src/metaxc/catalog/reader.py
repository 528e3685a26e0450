"""What is asked of a catalog: search, look up, explain, preview. Nothing here changes it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np
from filelock import BaseFileLock

from metaxc.arrays import Floats, Keys
from metaxc.catalog.catalog_errors import CatalogError
from metaxc.catalog.catalog_settings import CatalogSettings
from metaxc.catalog.generations import CatalogFolder
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.item_rules import validate_query, validate_text
from metaxc.catalog.lookups import Lookups
from metaxc.catalog.preview import Previewer
from metaxc.catalog.records import (
    CatalogHit,
    CatalogSummary,
    Click,
    Item,
    ItemExplanation,
    Page,
    Preview,
    State,
)
from metaxc.catalog.rows import stacked
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.export import Format


SHOWN_CLICKS = 50
ATTEMPTS = 5
ROUNDING = 0.01
"""Share of its length by which a vector may differ from one made again: embeddings may come from a cache in half
precision, or from a batch of another size."""


class Reader:
    """A catalog as far as it is read. All methods may be called from several threads.

    Args:
        folder: Where it stands.
        store: Its record.
        model: The model that its vectors are of.
        lock: The right to write; None where it is read only.
    """

    def __init__(self, folder: CatalogFolder, store: Store, model: Emmett, lock: BaseFileLock | None):
        self.folder, self.store, self.trained = folder, store, model
        self.read_only = lock is None
        self.settings = CatalogSettings.model_validate_json(store.facts["settings"])
        self._lock = lock
        self._writing = threading.RLock()
        self._lookups = Lookups(store)
        self._followed = IndexFollower(store, model, self.settings.observe_after)
        self._previewer = Previewer(store, self._followed)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __len__(self) -> int:
        self._follow(base=False)
        return len(self._followed.index)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._lookups.maybe(name) is not None

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.folder.path.name!r}, {len(self):,} items, {self._followed.index!r})"
        )

    def close(self) -> None:
        """Save the index and leave; what was acknowledged is on the disk already."""
        with self._writing:
            if self._closed:
                return
            self._closed = True
            self._previewer.close()
            self._followed.close(save=not self.read_only)
            self.store.close()
            if self._lock is not None:
                self._lock.release()

    def encode(self, queries: Sequence[str]) -> Floats:
        """(n, dim) float32: queries as they are searched with."""
        for query in queries:
            validate_query(query)
        return self.trained.encode_queries(queries)

    def search(
        self,
        queries: Sequence[str] | Floats,
        k: int = 10,
        *,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
    ) -> list[list[CatalogHit]]:
        """The k best items of each query, best first; fewer where there are fewer.

        Args:
            queries: Texts, or vectors by `encode`.
            k: How many.
            tags: Only items that have all of them.
            states: Only items in one of them; all when empty.
        """
        if k < 1:
            raise DataError("k must be positive", got=k, expected="1 or more")
        vectors = queries if isinstance(queries, np.ndarray) else self.encode(queries)
        found: list[list[CatalogHit]] = []
        for _ in range(ATTEMPTS):
            self._follow(base=False)
            keys, scores = self._followed.index.search(vectors, k, self._lookups.allowed(tags, states))
            found = self._lookups.found(keys, scores)
            if sum(map(len, found)) == int((keys >= 0).sum()):
                break  # else an item went between index and record: what follows it has moved up by now
        return found

    def exact_search(self, vectors: Floats, k: int = 10) -> tuple[Keys, Floats]:
        """Keys and scores of the k best by every vector: what an approximate index is held against."""
        return self._followed.index.search_exactly(vectors, k)

    def index_search(self, vectors: Floats, k: int = 10) -> tuple[Keys, Floats]:
        """Keys and scores by the index alone."""
        return self._followed.index.search(vectors, k)

    def get(self, name: str) -> Item:
        """An item; an unknown one is a `NotFoundError`."""
        return self._lookups.get(name)

    def list(
        self,
        *,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """Items in the order they came, a part at a time; `after` is the `next` of the part before."""
        return self._lookups.listed(tags, states, after, limit)

    def explain(self, name: str) -> ItemExplanation:
        """Why an item is where it is."""
        self._follow()
        row = self._lookups.row(name)
        life, clicks = self._followed.life, self._lookups.clicks_of(row.key)
        subject = row.subject(stacked([click[3] for click in clicks], len(row.embedding)))
        told = tuple(
            Click(number, row.id, query, at, life.state(row.trained, place))
            for place, (number, query, at, _) in enumerate(clicks, 1)
        )
        explanation, vector = life.explain(subject, [click[1] for click in clicks])
        apart = np.linalg.norm(vector - row.vector)
        return ItemExplanation(
            row.item(),
            explanation,
            told[::-1][:SHOWN_CLICKS],
            self.settings.observe_after,
            bool(apart <= ROUNDING * np.linalg.norm(row.vector)),
        )

    def preview(self, text: str, *, without: Sequence[str] = (), revealed: Sequence[str] = ()) -> Preview:
        """What would become of a new item, which nothing is written of.

        Args:
            text: Its text.
            without: Ids of neighbours to leave out; what is no neighbour is left out anyway.
            revealed: Its first clicks.
        """
        self._follow()
        return self._previewer.preview(
            validate_text(text), frozenset(without), [validate_query(query) for query in revealed]
        )

    def warm(self) -> None:
        """Make what the first preview would have to wait for."""
        self._previewer.pool()

    def represent(self, texts: Sequence[str]) -> Floats:
        """(n, dim) float32: the meta-classifiers of new items, which nothing is written of."""
        self._follow()
        texts = [validate_text(text) for text in texts]
        embeddings = self.trained.encoder.encode_items(texts)
        return self._followed.life.pipeline.vectors(embeddings, texts=texts)

    def about(self) -> CatalogSummary:
        """The catalog in figures."""
        self._follow()
        counted = self._lookups.counted()
        index = self._followed.index
        return CatalogSummary(
            self.store.facts["model"],
            repr(self.trained.encoder),
            self.trained.encoder.dim,
            index.kind,
            self._followed.reason,
            counted,
            self._lookups.click_count(),
            self._followed.life.base,
            self.settings.observe_after,
            self._followed.sequence,
            self.read_only,
        )

    def snapshot(self, folder: str | Path) -> None:
        """Write a copy of the last committed state, with checksums, while writes go on."""
        from metaxc.catalog.snapshots import write_snapshot

        write_snapshot(self.store, Path(folder))

    def export(self, folder: str | Path, format: Format) -> int:
        """Write ids and vectors for another vector database; returns how many."""
        from metaxc.catalog.export import export

        return export(self.store, Path(folder), format)

    @property
    def sequence(self) -> int:
        """The number of the last commit that a search sees."""
        self._follow(base=False)
        return self._followed.sequence

    def _follow(self, base: bool = True) -> None:
        if self._closed:
            raise CatalogError("The catalog is closed", fix="open it again")
        if self.read_only and self.folder.current() != self.store.folder:
            raise CatalogError("The catalog was moved to another model or restored", fix="open it again")
        if base:
            self._followed.follow()
        else:
            self._followed.follow_index()
