"""The live catalog: items come, are found at once, get their first clicks, change, go, and are never lost.

The record (`metaxc.catalog.store`) is the truth; the index and the base set of observed items are made from it and
follow it by the number of the last commit. A writer follows its own commits, a reader those of another process, an
index that was saved those it has missed: it is the same step, `_follow`.

Vectors are computed before the transaction begins, under one lock for all writes, so that searches go on meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.beginning import embed_items, embed_queries, take_in
from metaxc.catalog.catalog_errors import CatalogError, ConflictError
from metaxc.catalog.catalog_settings import CatalogSettings
from metaxc.catalog.generations import CatalogFolder
from metaxc.catalog.item_rules import validate_items, validate_query, validate_tags, validate_text
from metaxc.catalog.lifecycle import ItemInputs
from metaxc.catalog.reader import Reader
from metaxc.catalog.records import AddResult, Click, Item, NewItem
from metaxc.catalog.rows import ItemRow, blob, informs_since
from metaxc.catalog.schema import CLICKS, DELETED, ITEMS
from metaxc.catalog.snapshots import restore_snapshot
from metaxc.catalog.store import Store
from metaxc.emmett import Emmett


class Catalog(Reader):
    """An open catalog, made by `create` and `open`: what `Reader` reads, and all that changes it."""

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

    @staticmethod
    def restore(snapshot: str | Path, folder: str | Path) -> None:
        """Let a catalog be what it was; a catalog that is there is replaced at once, a new one is made."""
        restore_snapshot(Path(snapshot), CatalogFolder(folder))

    def add(self, items: Sequence[NewItem]) -> AddResult:
        """Take novel items in: from the next search on they are found. All of them, or none.

        An item that is there with the same text and tags stays as it is; one with others is a `ConflictError`.
        """
        asked = validate_items(items)
        with self._writing:
            new = [item for item in asked if not self._is_there(item)]
            embeddings = embed_items(self.trained.encoder, [item.text for item in new])
            nothing = np.empty((0, embeddings.shape[1]), np.float32)
            subjects = [
                ItemInputs(item.id, item.text, embedding, nothing, trained=False)
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
        return AddResult(len(new), len(items) - len(new))

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
                changed = replace(changed, tags=validate_tags(tags))
            if text is not None and validate_text(text) != row.text:
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
            validate_query(query)
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
