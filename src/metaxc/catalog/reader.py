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
from metaxc.catalog.generations import write_snapshot
from metaxc.catalog.given_vectors import embed_items, encode_queries
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.item_clicks import MOST_VOTERS, ItemClicks, read_item_clicks
from metaxc.catalog.item_queries import (
    SELECT_ITEM,
    count_clicks,
    count_items,
    filter_items,
    load_hits,
    read_item,
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
from metaxc.catalog.schema import ITEMS
from metaxc.catalog.store import Store
from metaxc.data.input_rules import validate_query, validate_text
from metaxc.data.same_texts import normalise_text
from metaxc.data.text_lists import as_texts
from metaxc.emmett import Emmett
from metaxc.encoders import Vectors
from metaxc.errors import DataError

MOST_LISTED = 1_000
SHOWN_CLICKS = 50
ATTEMPTS = 5
ROUNDING = 0.01
"""Relative difference up to which a vector counts as unchanged when it is computed again: embeddings may come from a
cache in half precision, or from a batch of another size."""


SAME_TEXTS = 8
"""Items with the same text that a search by this text can leave out and still return as many items as asked for."""


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
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        exposure: float | None = None,
        texts: Sequence[str] | None = None,
    ) -> list[list[CatalogHit]]:
        """The k best items of each query, best first; fewer where fewer items pass the filters.

        Args:
            queries: Texts; (n, dim) embeddings of the model's encoder; or (n, dim + 1) vectors from `encode`.
            k: Number of items per query.
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
        if k < 1:
            raise DataError(
                "k must be positive", got=k, expected="1 or more", fix="ask for at least one item"
            )
        vectors = self.encode(queries, exposure)
        hits: list[list[CatalogHit]] = []
        for _ in range(ATTEMPTS):
            self._catch_up_index()
            more = k if own_texts is None else k + SAME_TEXTS
            keys, scores = self.follower.index.search(vectors, more, self._allowed_keys(tags, states))
            hits = load_hits(self.store, keys, scores)
            if sum(map(len, hits)) == int((keys >= 0).sum()):
                break  # otherwise an item was deleted after the index had found it: search again without it
        return (
            hits if own_texts is None else [without_own(*one, k) for one in zip(own_texts, hits, strict=True)]
        )

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
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> Page:
        """One page of the items in the order in which they were added; pass `next` of a page as `after`."""
        if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
            raise DataError(
                "Invalid page cursor",
                got=repr(after),
                expected="`next` of an earlier page",
                fix="leave `after` out to start with the first page",
            )
        limit = min(max(limit, 1), MOST_LISTED)
        self._check_open()
        where, parameters = filter_items(tags, states, after=int(after or 0))
        rows = self.store.fetch_all(f"{SELECT_ITEM}{where} ORDER BY key LIMIT ?", (*parameters, limit + 1))
        following = str(rows[limit - 1][0]) if len(rows) > limit else None
        return Page(tuple(map(read_item, rows[:limit])), following)

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
        """Compute what the first preview would have to wait for."""
        self._previewer.known_queries()

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
        found = self.store.fetch_all(f"{SELECT_ITEM} WHERE id = ?", (id,))
        return read_item(found[0]) if found else None

    def _row(self, id: str) -> ItemRow:
        """The complete row of an item; a missing one is a `NotFoundError`."""
        found = self.store.fetch_all(f"{ITEMS.select} WHERE id = ?", (id,))
        if not found:
            raise _item_not_found(id)
        return ItemRow.from_values(found[0])

    def _item_clicks(self, row: ItemRow, without: int | None = None) -> ItemClicks:
        """The clicks of an item, but for the one with the number `without`."""
        return read_item_clicks(self.store, row, self.model.embed_queries, without)

    def _allowed_keys(self, tags: Sequence[str], states: Sequence[State]) -> Keys | None:
        """Keys of the items that pass the filters; None without filters."""
        if not tags and not states:
            return None
        where, parameters = filter_items(tags, states)
        rows = self.store.fetch_all(f"SELECT key FROM items{where} ORDER BY key", parameters)
        return np.array([row[0] for row in rows], dtype=np.int64)


def _item_not_found(id: str) -> NotFoundError:
    return NotFoundError(
        "No item with this id",
        got=repr(id),
        expected="the id of an item",
        fix="list the items to see all ids",
    )


def without_own(query: str, hits: list[CatalogHit], k: int) -> list[CatalogHit]:
    """The first k hits whose text is not the query itself."""
    key = normalise_text(query)
    return [hit for hit in hits if normalise_text(hit.text) != key][:k]
