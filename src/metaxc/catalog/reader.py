"""The reading half of a catalog: search, look up, list, explain, preview, snapshot, export."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np

from metaxc.arrays import Floats, Keys
from metaxc.catalog.catalog_errors import CatalogError, NotFoundError
from metaxc.catalog.catalog_folder import CatalogFolder, WriterLock
from metaxc.catalog.dataset_export import DatasetExport, export_dataset
from metaxc.catalog.export import Format, export_vectors
from metaxc.catalog.filter_follower import FilterFollower, keep_passing
from metaxc.catalog.generations import write_snapshot
from metaxc.catalog.given_vectors import embed_items, encode_queries
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.item_clicks import MOST_VOTERS, ItemClicks, read_item_clicks
from metaxc.catalog.item_filters import join_filters
from metaxc.catalog.item_pages import list_items
from metaxc.catalog.item_queries import (
    SAME_TEXTS,
    count_clicks,
    count_items,
    find_items,
    make_hits,
    read_items,
    without_own,
)
from metaxc.catalog.preview import Previewer
from metaxc.catalog.records import (
    CatalogHit,
    CatalogSettings,
    CatalogSummary,
    Click,
    Item,
    ItemExplanation,
    ItemRow,
    Page,
    Preview,
    State,
)
from metaxc.catalog.store import Store
from metaxc.data.input_rules import validate_query, validate_text
from metaxc.data.text_lists import as_texts
from metaxc.emmett import Emmett
from metaxc.encoders import Vectors
from metaxc.errors import DataError

SHOWN_CLICKS = 50
ATTEMPTS = 5
ROUNDING = 0.01
"""Relative difference up to which a vector counts as unchanged when it is computed again: embeddings may come from a
cache in half precision, or from a batch of another size."""


class CatalogReader:
    """An open catalog as far as it is read. All methods are thread-safe.

    Args:
        folder: The catalog's folder.
        store: Its durable store.
        model: The model that its vectors were computed with.
        lock: The right to write; None opens the catalog for reading only.
    """

    def __init__(self, folder: CatalogFolder, store: Store, model: Emmett, lock: WriterLock | None):
        self.folder, self.store, self.model = folder, store, model
        self.read_only = lock is None
        self.settings = CatalogSettings.model_validate_json(store.metadata["settings"])
        self._lock = lock
        self._write_lock = threading.RLock()
        self.follower = IndexFollower(store, model, self.settings.observe_after)
        self._filters = FilterFollower(store)
        self._previewer = Previewer(store, self.follower)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __len__(self) -> int:
        self._catch_up_index()
        return len(self.follower.index)

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and self._find(id) is not None

    def __repr__(self) -> str:
        index = self.follower.index
        return f"{type(self).__name__}({self.folder.path.name!r}, {len(self):,} items, {index!r})"

    def close(self) -> None:
        """Save the index and close the catalog; acknowledged writes are on disk already."""
        with self._write_lock:
            if self._closed:
                return
            self._closed = True
            self._previewer.close()
            self.follower.close(save=not self.read_only)
            self.store.close()
            if self._lock is not None:
                self._lock.release()

    def encode(
        self, queries: Sequence[str | Floats] | Floats, exposure: float | Sequence[float | None] | None = None
    ) -> Floats:
        """(n, dim + 1) float32: the vectors that these queries are searched with; the last coordinate is the exposure
        times the response of the classifiers to the query.

        Args:
            queries: Texts, (dim,) embeddings, or (dim + 1,) vectors that this has returned.
            exposure: What is added to the score of an item without clicks, and ever less of it with each click; None
                for the value chosen in training, a sequence for one value per query.
        """
        return encode_queries(list(queries), self.model, exposure)

    def search(
        self,
        queries: Sequence[str] | Floats,
        k: int = 10,
        *,
        offset: int = 0,
        filter: object = None,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        exposure: float | None = None,
        texts: Sequence[str] | None = None,
    ) -> list[list[CatalogHit]]:
        """The k best items of each query, best first; fewer only where fewer items pass the filters.

        Args:
            queries: Texts; (n, dim) embeddings of the model's encoder; or (n, dim + 1) vectors from `encode`.
            k: Number of items per query.
            offset: Number of best items to leave out: the next page begins where the last one has ended.
            filter: Return only items that pass this filter, such as `{"field": "price", "lt": 20}`
                (`metaxc.catalog.item_filters`).
            tags: Return only items that have all of these tags.
            states: Return only items in one of these states; empty returns all.
            exposure: What is added to the score of an item without clicks; None for the value chosen in training.
                `about` tells what each value costs and brings. Vectors from `encode` have theirs already.
            texts: The texts of queries that are given as vectors, for a model whose queries are items
                (`Emmett.exclude_self`): an item is then left out where its own text is searched.
        """
        if not isinstance(queries, np.ndarray):
            queries = texts = list(as_texts(queries, "query"))
        own_texts = texts if self.model.exclude_self else None
        if k < 1 or offset < 0:
            raise DataError(
                "k must be positive" if k < 1 else "The offset must not be negative",
                got=k if k < 1 else offset,
                expected="1 or more" if k < 1 else "0 or more",
                fix="ask for at least one item" if k < 1 else "leave it out for the first page",
            )
        vectors, wanted = self.encode(queries, exposure), join_filters(filter, tags, states)
        more = offset + k if own_texts is None else offset + k + SAME_TEXTS
        hits: list[list[CatalogHit]] = []
        for _ in range(ATTEMPTS):
            self._catch_up_index()
            allowed, sequence = (None, 0) if wanted is None else self._filters.select(wanted)
            keys, scores = self.follower.index.search(vectors, more, allowed)
            items = find_items(self.store, np.unique(keys[keys >= 0]).tolist())
            if wanted is not None and self.store.sequence != sequence:
                items = keep_passing(wanted, items)
            hits = make_hits(items, keys, scores)
            if sum(map(len, hits)) == int((keys >= 0).sum()):
                break  # otherwise an item was deleted or changed after it had been found: search again without it
        if own_texts is not None:
            hits = [without_own(*one) for one in zip(own_texts, hits, strict=True)]
        return [own[offset : offset + k] for own in hits]

    def exact_search(self, vectors: Floats, k: int = 10) -> tuple[Keys, Floats]:
        """Keys and scores of the k best items by exhaustive search: the reference for an approximate index."""
        return self.follower.index.search_exactly(vectors, k)

    def index_search(self, vectors: Floats, k: int = 10) -> tuple[Keys, Floats]:
        """Keys and scores that the index returns, without a look at the store."""
        return self.follower.index.search(vectors, k)

    def get(self, id: str) -> Item:
        """The item with this id; a missing one is a `NotFoundError`."""
        item = self._find(id)
        if item is None:
            raise _item_not_found(id)
        return item

    def list(
        self,
        *,
        filter: object = None,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """One page of the items that pass the filters, as in `search`, in the order in which they were added; pass
        `next` of a page as `after`."""
        self._check_open()
        return list_items(self._filters, filter=filter, tags=tags, states=states, after=after, limit=limit)

    def explain(self, id: str) -> ItemExplanation:
        """What an item's vector is computed from, and its clicks."""
        self._catch_up()
        lifecycle = self.follower.lifecycle
        with self.store.read_snapshot():
            row = self._row(id)
            stored = self.store.fetch_all(
                "SELECT number, query, at FROM clicks WHERE key = ? ORDER BY number DESC LIMIT ?",
                (row.key, max(SHOWN_CLICKS, MOST_VOTERS)),
            )
            item_clicks = self._item_clicks(row)
        clicks = tuple(
            Click(number, row.id, query, at, lifecycle.state(row.trained, row.clicks - newer))
            for newer, (number, query, at) in enumerate(stored)
        )
        voters = [click.query for click in clicks[:MOST_VOTERS]][::-1]
        explanation, vector = lifecycle.explain(row, item_clicks, voters)
        difference = np.linalg.norm(vector - row.vector)
        return ItemExplanation(
            row.item(),
            explanation,
            clicks[:SHOWN_CLICKS],
            self.settings.observe_after,
            bool(difference <= ROUNDING * np.linalg.norm(row.vector)),
        )

    def preview(
        self,
        text: str,
        *,
        without: Sequence[str] = (),
        revealed: Sequence[str] = (),
        revealed_embeddings: Floats | None = None,
    ) -> Preview:
        """What the catalog would do with a new item; nothing is written.

        Args:
            text: The item's text.
            without: Ids of neighbours to switch off; ids that are not neighbours are ignored.
            revealed: Queries of its first clicks.
            revealed_embeddings: (revealed, dim) their embeddings, where the caller has encoded them.
        """
        self._catch_up()
        queries = [validate_query(query) for query in revealed]
        return self._previewer.preview(validate_text(text), frozenset(without), queries, revealed_embeddings)

    def warm(self) -> None:
        """Compute what the first preview and the first filter would have to wait for."""
        self._previewer.known_queries()
        self._filters.load()

    def represent(self, items: Sequence[str | Floats] | Floats) -> Floats:
        """(n, dim + 1) float32: the meta-classifiers of new items and their novelty; nothing is written.

        Args:
            items: Their texts, or their (dim,) embeddings, as the model's encoder gives them.
        """
        self._catch_up()
        given = list(items)
        texts = [validate_text(one) if isinstance(one, str) else "" for one in given]
        return self.follower.lifecycle.pipeline.vectors(embed_items(given, self.model), texts=texts)

    def can_encode_item(self, text: str) -> bool:
        """Whether an item may be given by its text; one of a model with your own vectors needs its vector."""
        encoder = self.model.encoder
        return not isinstance(encoder, Vectors) or encoder.has_item(text)

    def can_encode_query(self, text: str) -> bool:
        """The same for a query."""
        encoder = self.model.encoder
        return not isinstance(encoder, Vectors) or encoder.has_query(text)

    def about(self) -> CatalogSummary:
        """The catalog in figures."""
        self._catch_up()
        follower = self.follower
        return CatalogSummary(
            self.store.metadata["model"],
            repr(self.model.encoder),
            self.model.encoder.dim,
            follower.index.kind,
            follower.reason,
            count_items(self.store),
            count_clicks(self.store),
            follower.lifecycle.observed_count,
            self.settings.observe_after,
            follower.sequence,
            self.read_only,
            self.model.calibration.exposure,
            tuple(
                {name: value for name, value in point.items() if np.isfinite(value)}  # JSON has no NaN
                for point in self.model.about.get("exposure_curve", ())
            ),
            dict(self.model.about.get("novel_items") or {}),
        )

    def snapshot(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a copy of the last committed state, with checksums, while writes continue.

        Args:
            folder: A new or empty folder outside the catalog.
            overwrite: Whether an earlier snapshot in that folder is replaced; anything else there never is.
        """
        self._check_open()
        write_snapshot(self.store, Path(folder), overwrite=overwrite)

    def export(self, folder: str | Path, format: Format, *, overwrite: bool = False) -> int:
        """Write ids and vectors for another vector database; returns the number of items. Folder: as of `snapshot`."""
        self._check_open()
        return export_vectors(self.store, Path(folder), format, overwrite=overwrite)

    def export_dataset(
        self, folder: str | Path, *, training_data: str | Path | None = None, overwrite: bool = False
    ) -> DatasetExport:
        """Write items and clicks as a data set folder for the next training (`dataset_export.export_dataset`)."""
        self._check_open()
        training = None if training_data is None else Path(training_data)
        return export_dataset(self.store, Path(folder), training_data=training, overwrite=overwrite)

    @property
    def sequence(self) -> int:
        """The sequence number of the last commit that a search sees."""
        self._catch_up_index()
        return self.follower.sequence

    def _catch_up(self) -> None:
        """Apply what was committed since the last call to the index and to the observed items."""
        self._check_open()
        self.follower.catch_up()

    def _catch_up_index(self) -> None:
        """Apply what was committed to the index alone, which is all that a search needs."""
        self._check_open()
        self.follower.catch_up_index()

    def _check_open(self) -> None:
        if self._closed:
            raise CatalogError("The catalog is closed", fix="open it again")
        if not self.is_current:
            raise CatalogError("The catalog was migrated or restored by another process", fix="open it again")

    @property
    def is_current(self) -> bool:
        """Whether this is still the catalog in its folder; another process may have migrated or restored it."""
        folder = self.folder
        return not self.read_only or (folder.current() == self.store.folder and not self.store.replaced)

    def _find(self, id: str) -> Item | None:
        self._check_open()
        return next(iter(read_items(self.store, "WHERE id = ?", (id,)).values()), None)

    def _row(self, id: str) -> ItemRow:
        """The complete row of an item; a missing one is a `NotFoundError`."""
        found = self.store.fetch_items("WHERE id = ?", (id,))
        if not found:
            raise _item_not_found(id)
        return ItemRow.from_values(found[0])

    def _item_clicks(self, row: ItemRow, without: int | None = None) -> ItemClicks:
        """The clicks of an item, but for the one with the number `without`."""
        return read_item_clicks(self.store, row, self.model.embed_queries, without)


def _item_not_found(id: str) -> NotFoundError:
    return NotFoundError(
        "No item with this id",
        got=repr(id),
        expected="the id of an item",
        fix="list the items to see all ids",
    )
