"""The live catalog: items come, are found at once, get their first clicks, change, go, and are never lost.

The record (`metaxc.catalog.store`) is the truth; the index and the base set of observed items are made from it and
follow it by the number of the last commit. A writer follows its own commits, a reader those of another process, an
index that was saved those it has missed: it is the same step, `_follow`.

Vectors are computed before the transaction begins, under one lock for all writes, so that searches go on meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from filelock import BaseFileLock
from numpy.typing import NDArray

from metaxc.catalog.beginning import embed_items, embed_queries, take_in
from metaxc.catalog.errors import CatalogError, ConflictError
from metaxc.catalog.folder import CatalogFolder
from metaxc.catalog.followed import Followed
from metaxc.catalog.inputs import checked_items, checked_query, checked_tags, checked_text
from metaxc.catalog.life import Subject
from metaxc.catalog.lookups import Lookups
from metaxc.catalog.preview import Previewer
from metaxc.catalog.records import About, Added, Click, Explained, Found, Item, NewItem, Page, Preview, State
from metaxc.catalog.rows import ItemRow, blob, informs_since, stacked
from metaxc.catalog.schema import CLICKS, DELETED, ITEMS
from metaxc.catalog.settings import CatalogSettings
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett
from metaxc.errors import DataError

if TYPE_CHECKING:
    from metaxc.catalog.export import Format

Floats = NDArray[np.float32]
Keys = NDArray[np.int64]

SHOWN_CLICKS = 50
ATTEMPTS = 5
ROUNDING = 0.01
"""Share of its length by which a vector may differ from one made again: embeddings may come from a cache in half
precision, or from a batch of another size."""


class Catalog:
    """An open catalog; made by `create` and `open`. All methods may be called from several threads.

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
        self._followed = Followed(store, model, self.settings.observe_after)
        self._previewer = Previewer(store, self._followed)
        self._closed = False

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: Emmett,
        *,
        settings: CatalogSettings | None = None,
        queries: Sequence[str] = (),
    ) -> Catalog:
        """A new catalog that starts with the model's items.

        Args:
            folder: Where; there must be none yet.
            model: Its items come in with the vectors that they have.
            settings: How items live.
            queries: Known queries: a preview shows which of them would find a new item.
        """
        place = CatalogFolder(folder)
        lock = place.lock()
        try:
            if place.exists:
                raise CatalogError(
                    "A catalog is already there", got=place.path.name, fix="open it, or use another folder"
                )
            facts = {
                "model": model.fingerprint,
                "dim": str(model.encoder.dim),
                "settings": (settings or CatalogSettings()).model_dump_json(),
            }
            generation = place.next()
            store = Store.create(generation, facts)
            take_in(store, model, queries)
            place.switch(generation)
            return cls(place, store, model, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: str | Path, model: Emmett, *, read_only: bool = False) -> Catalog:
        """Open a catalog.

        Args:
            folder: As `create` made it.
            model: The model that it was made with; another one is refused.
            read_only: One process writes, any number may read.
        """
        place = CatalogFolder(folder)
        generation = place.current()
        lock = None if read_only else place.lock()
        try:
            store = Store(generation, read_only)
            if store.facts["model"] != model.fingerprint:
                store.close()
                raise CatalogError(
                    "The catalog was made with another model",
                    got=f"model {model.fingerprint[:16]}",
                    expected=f"model {store.facts['model'][:16]}",
                    fix="open it with that model, or move it: `metaxc catalog migrate CATALOG MODEL`",
                )
            return cls(place, store, model, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    def __enter__(self) -> Catalog:
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
        return f"Catalog({self.folder.path.name!r}, {len(self):,} items, {self._followed.index!r})"

    def close(self) -> None:
        """Save the index and leave; what was acknowledged is on the disk already."""
        with self._writing:
            if self._closed:
                return
            self._closed = True
            self._followed.close(save=not self.read_only)
            self.store.close()
            if self._lock is not None:
                self._lock.release()

    def add(self, items: Sequence[NewItem]) -> Added:
        """Take novel items in: from the next search on they are found. All of them, or none.

        An item that is there with the same text and tags stays as it is; one with others is a `ConflictError`.
        """
        asked = checked_items(items)
        with self._writing:
            new = [item for item in asked if not self._is_there(item)]
            embeddings = embed_items(self.trained.encoder, [item.text for item in new])
            nothing = np.empty((0, embeddings.shape[1]), np.float32)
            subjects = [
                Subject(item.id, item.text, embedding, nothing, trained=False)
                for item, embedding in zip(new, embeddings, strict=True)
            ]
            stages = self._followed.life.stages(subjects)
            if new:
                now = time.time()
                with self.store.writing() as change:
                    for item, subject, stage in zip(new, subjects, stages, strict=True):
                        key, sequence = change.new_key(ITEMS), change.sequence
                        row = ItemRow.born(
                            key, item.id, item.text, item.tags, now, sequence, subject.embedding, stage.vector
                        )
                        change.put(ITEMS, row.values())
                        change.tag(row.key, (), row.tags)
                self._follow()
        return Added(len(new), len(items) - len(new))

    def _is_there(self, item: NewItem) -> bool:
        there = self._lookups.maybe(item.id)
        if there is not None and (there.text, there.tags) != (item.text, item.tags):
            raise ConflictError(
                "An item of that id is there, with other content",
                got=repr(item.id),
                expected="the same text and tags, or a new id",
                fix="update it, or use another id",
            )
        return there is not None

    def update(self, name: str, text: str | None = None, tags: Sequence[str] | None = None) -> Item:
        """Change an item's text or tags; what is None stays."""
        with self._writing:
            row = self._lookups.row(name)
            changed = row
            if tags is not None:
                changed = replace(changed, tags=checked_tags(tags))
            if text is not None and checked_text(text) != row.text:
                changed = replace(changed, text=text, embedding=embed_items(self.trained.encoder, [text])[0])
            if changed is row or (changed.text, changed.tags) == (row.text, row.tags):
                return row.item()
            made = (
                changed
                if changed.text == row.text
                else self._staged(changed, self._lookups.queries_of(row.key))
            )
            return self._write(made, row).item()

    def delete(self, names: Sequence[str]) -> int:
        """Withdraw items with their clicks; all of them, or none where one is unknown. A trained item goes on to inform
        others until the model is trained again."""
        with self._writing:
            rows = [self._lookups.row(name) for name in dict.fromkeys(names)]
            if rows:
                with self.store.writing() as change:
                    for row in rows:
                        change.drop(ITEMS, row.key)
                        change.tag(row.key, row.tags, ())
                        for (number,) in change.run(
                            "SELECT number FROM clicks WHERE key = ?", (row.key,)
                        ).fetchall():
                            change.drop(CLICKS, number)
                        change.put(DELETED, (row.key, change.sequence))
                self._follow()
            return len(rows)

    def click(self, item: str, query: str) -> Click:
        """A query has clicked an item: from the next search on its neighbours are those that the query votes for, too;
        after enough clicks it has a classifier of its own."""
        return self.clicks([(item, query)])[0]

    def clicks(self, pairs: Sequence[tuple[str, str]]) -> list[Click]:
        """Several clicks, (item, query) each; all of them, or none."""
        for _, query in pairs:
            checked_query(query)
        if not pairs:
            return []
        with self._writing:
            rows = {name: self._lookups.row(name) for name in dict.fromkeys(name for name, _ in pairs)}
            embeddings = embed_queries(self.trained.encoder, [query for _, query in pairs])
            queries = {
                name: np.concatenate(
                    [
                        self._lookups.queries_of(row.key),
                        embeddings[[place for place, (of, _) in enumerate(pairs) if of == name]],
                    ]
                )
                for name, row in rows.items()
            }
            subjects = [row.subject(queries[name]) for name, row in rows.items()]
            stages = self._followed.life.stages(subjects)
            made, now, counts = [], time.time(), {name: row.clicks for name, row in rows.items()}
            with self.store.writing() as change:
                for (name, query), embedding in zip(pairs, embeddings, strict=True):
                    number, counts[name] = change.new_key(CLICKS), counts[name] + 1
                    change.put(CLICKS, (number, rows[name].key, query, now, blob(embedding)))
                    state = self._followed.life.state(rows[name].trained, counts[name])
                    made.append(Click(number, name, query, now, state))
                for (name, row), stage in zip(rows.items(), stages, strict=True):
                    since = informs_since(stage, row.since, change.sequence)
                    staged = replace(
                        row,
                        clicks=counts[name],
                        state=stage.state,
                        vector=stage.vector,
                        classifier=stage.classifier,
                        updated=now,
                        since=since,
                        sequence=change.sequence,
                    )
                    change.put(ITEMS, staged.values())
            self._follow()
            return made

    def undo(self, number: int) -> Item:
        """Take a click back: the item is where it was without it."""
        with self._writing:
            row = self._lookups.clicked_row(number)
            left = self._lookups.queries_of(row.key, without=number)
            if row.since is not None and self._followed.life.state(row.trained, len(left)) != "observed":
                self._followed.dismiss(row.key)  # it must not inform itself
            staged = replace(self._staged(row, left), clicks=len(left))
            return self._write(staged, row, dropped_click=number).item()

    def _staged(self, row: ItemRow, queries: Floats) -> ItemRow:
        """The row with the state and the vector that these queries give it."""
        stage = self._followed.life.stages([row.subject(queries)])[0]
        since = row.since if stage.classifier is not None else None
        return replace(row, state=stage.state, vector=stage.vector, classifier=stage.classifier, since=since)

    def _write(self, row: ItemRow, before: ItemRow, dropped_click: int | None = None) -> ItemRow:
        with self.store.writing() as change:
            written = replace(row, updated=time.time(), sequence=change.sequence)
            change.put(ITEMS, written.values())
            change.tag(row.key, before.tags, row.tags)
            if dropped_click is not None:
                change.drop(CLICKS, dropped_click)
        self._follow()
        return written

    def encode(self, queries: Sequence[str]) -> Floats:
        """(n, dim) float32: queries as they are searched with."""
        for query in queries:
            checked_query(query)
        return self.trained.encode_queries(queries)

    def search(
        self,
        queries: Sequence[str] | Floats,
        k: int = 10,
        *,
        tags: Sequence[str] = (),
        states: Sequence[State] = (),
    ) -> list[list[Found]]:
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
        found: list[list[Found]] = []
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

    def explain(self, name: str) -> Explained:
        """Why an item is where it is."""
        self._follow()
        row = self._lookups.row(name)
        life, clicks = self._followed.life, self._lookups.clicks_of(row.key)
        subject = row.subject(stacked([click[3] for click in clicks], len(row.embedding)))
        told = tuple(
            Click(number, row.id, query, at, life.state(row.trained, place))
            for place, (number, query, at, _) in enumerate(clicks, 1)
        )
        apart = np.linalg.norm(life.stages([subject])[0].vector - row.vector)
        explanation = life.explain(subject, [click[1] for click in clicks])
        return Explained(
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
            checked_text(text), frozenset(without), [checked_query(query) for query in revealed]
        )

    def represent(self, texts: Sequence[str]) -> Floats:
        """(n, dim) float32: the meta-classifiers of new items, which nothing is written of."""
        self._follow()
        return self._followed.life.model.represent([checked_text(text) for text in texts])

    def about(self) -> About:
        """The catalog in figures."""
        self._follow()
        counted = self._lookups.counted()
        index = self._followed.index
        return About(
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

    @staticmethod
    def restore(snapshot: str | Path, folder: str | Path) -> None:
        """Let a catalog be what it was; a catalog that is there is replaced at once, a new one is made."""
        from metaxc.catalog.snapshots import restore_snapshot

        restore_snapshot(Path(snapshot), CatalogFolder(folder))

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
