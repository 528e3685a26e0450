"""The live catalog: items are added, found by the next search, clicked, changed and deleted, and never lost.

The store (`metaxc.catalog.store`) is the source of truth. The index and the model that has grown by newly observed
items are derived from it, and follow it by the sequence number of the last commit. A writer applies its own commits, a
reader those of another process, and a saved index those that it has missed: all by the same step, `_catch_up`.

Vectors are computed before the transaction begins, under one lock for all writes, so that searches continue meanwhile.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.artifacts import make_folder
from metaxc.catalog.catalog_errors import CatalogError, ConflictError, NotFoundError
from metaxc.catalog.catalog_folder import CatalogFolder
from metaxc.catalog.file_positions import CLICK_FILES, ITEM_FILES
from metaxc.catalog.generation_record import model_metadata
from metaxc.catalog.generations import fill_from_model, restore_snapshot
from metaxc.catalog.given_vectors import embed_each
from metaxc.catalog.item_clicks import ItemClicks
from metaxc.catalog.item_rules import same_content, validate_clicks, validate_items, validate_model_items
from metaxc.catalog.lifecycle import Stage
from metaxc.catalog.reader import CatalogReader
from metaxc.catalog.records import AddResult, CatalogSettings, Click, Item, ItemRow, NewClick, NewItem
from metaxc.catalog.schema import ACKNOWLEDGED, CLICKS, ITEMS, encode_vector
from metaxc.catalog.store import Store
from metaxc.catalog.vector_rules import same_vector, validate_embedding
from metaxc.data.input_rules import validate_tags, validate_text
from metaxc.data.item_fields import FieldValue, change_fields, validate_fields
from metaxc.emmett import Emmett

log = logging.getLogger(__name__)


class Catalog(CatalogReader):
    """An open catalog, returned by `create` and `open`: all that `CatalogReader` reads, and all that changes it.

    Example:
        >>> with Catalog.create("catalog", Emmett.load("model")) as catalog:  # doctest: +SKIP
        ...     catalog.add([NewItem("new", "carbon racing shoes", ("shoes",))])
        ...     catalog.search(["marathon gear"], k=5, tags=["shoes"])
        ...     catalog.click("new", "marathon gear")
    """

    @classmethod
    def create(
        cls,
        folder: str | Path,
        model: Emmett,
        *,
        settings: CatalogSettings | None = None,
        queries: Sequence[str] = (),
    ) -> Catalog:
        """Create a catalog that starts with the model's items, and open it.

        Args:
            folder: Where to create it: a new or empty folder.
            model: Its items are added with the vectors that they have.
            settings: Fixed from now on.
            queries: Known queries; a preview shows which of them would find a new item.
        """
        validate_model_items(model.items)
        catalog = CatalogFolder(folder)
        catalog.claim()
        make_folder(catalog.path)
        lock = catalog.lock()
        try:
            catalog.claim()
            metadata = {
                **model_metadata(model),
                "settings": (settings or CatalogSettings()).model_dump_json(),
            }
            store = Store.create(catalog.next(), metadata)
            fill_from_model(store, model, queries)
            catalog.switch(store.folder)
            catalog.lock_record(lock)
            return cls(catalog, store, model, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def open(cls, folder: str | Path, model: Emmett, *, read_only: bool = False) -> Catalog:
        """Open a catalog.

        Args:
            folder: A folder that `create` has filled.
            model: The model that the catalog was created with or migrated to; another one is refused.
            read_only: One process may write to a catalog while any number of others read it.
        """
        catalog = CatalogFolder(folder)
        catalog.current()
        lock = None if read_only else catalog.lock()
        try:
            store = Store(catalog.current(), read_only)
            if store.metadata["model"] != model.fingerprint:
                store.close()
                raise CatalogError(
                    "The catalog was created with another model",
                    got=f"model {model.fingerprint[:16]}",
                    expected=f"model {store.metadata['model'][:16]}",
                    fix="open it with that model, or migrate it: `metaxc catalog migrate CATALOG MODEL`",
                )
            return cls(catalog, store, model, lock)
        except BaseException:
            if lock is not None:
                lock.release()
            raise

    @staticmethod
    def restore(snapshot: str | Path, folder: str | Path, *, overwrite: bool = False) -> None:
        """Restore a snapshot into a new folder; `overwrite` replaces the content of an existing catalog."""
        restore_snapshot(Path(snapshot), CatalogFolder(folder), overwrite=overwrite)

    @contextmanager
    def writes_held(self) -> Iterator[None]:
        """Let writes of other threads wait during a block."""
        with self._write_lock:
            yield

    def hand_over(self, new: Catalog) -> None:
        """Make the generation of `new` the one in use, and give `new` the right to write; this object can still be
        searched. An error leaves everything as it was."""
        with self._write_lock:
            lock = self._lock
            assert lock is not None
            record = new.store.folder / ACKNOWLEDGED
            lock.add(record, os.O_RDWR)
            try:
                self.folder.activate(new.store.folder)
            except OSError as error:
                if self.folder.current() != new.store.folder:
                    lock.remove(record)
                    raise
                log.warning("The switch may not survive a power cut: %s", error)
            self.store.retired = True
            lock.remove(self.store.folder / ACKNOWLEDGED)
            self._lock, new._lock = None, lock

    def add(
        self,
        items: Sequence[NewItem | Mapping[str, Any]],
        embeddings: Mapping[str, Floats] | None = None,
        *,
        file_position: tuple[str, int] | None = None,
    ) -> AddResult:
        """Add novel items, all or none; the next search finds them.

        An item that exists with the same text, tags, fields and vector stays unchanged; other content is a
        `ConflictError`.

        Args:
            items: The items: `NewItem`s, or mappings with "id", "text" and, if wanted, "tags", "fields" and "vector":
                the item's embedding, given by the caller beside its text or in its place.
            embeddings: Embeddings by text of items that the caller has encoded; others are encoded here.
            file_position: As of `clicks`, for a file of items.
        """
        valid = validate_items([NewItem.of(item) for item in items], self.store.dim)
        with self._write_lock:
            new = [item for item in valid if not self.exists(item)]
            if new or file_position is not None:
                now = time.time()
                given = [(item.text, item.vector) for item in new]
                embedded = embed_each(given, embeddings, self.model.encoder.encode_items)
                rows = [ItemRow.novel(item, one, now) for item, one in zip(new, embedded, strict=True)]
                no_clicks = ItemClicks.none(self.store.dim)
                stages = self.follower.lifecycle.stages(rows, [no_clicks] * len(rows)) if rows else []
                with self.store.transaction() as transaction:
                    if file_position is not None:
                        ITEM_FILES.note(transaction.metadata, *file_position)
                    for row, stage in zip(rows, stages, strict=True):
                        row = replace(row, key=transaction.new_key(ITEMS))
                        transaction.put(ITEMS, stage.apply_to(row, transaction.sequence).values())
                self._catch_up()
        return AddResult(len(new), len(items) - len(new))

    def exists(self, item: NewItem) -> bool:
        """Whether the catalog has this item, as `validate_item` returns it; one with the same id and other content is a
        `ConflictError`."""
        found = self._find(item.id)
        if found is None:
            return False
        same = same_content(found, item)
        if same and item.vector is not None:
            same = same_vector(self._row(item.id).embedding, np.asarray(item.vector))
        if not same:
            raise ConflictError(
                "An item with this id exists with other content",
                got=repr(item.id),
                expected="the same text, tags, fields and vector, or a new id",
                fix="update the item, or use another id",
            )
        return True

    def update(
        self,
        id: str,
        text: str | None = None,
        tags: Sequence[str] | None = None,
        *,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        fields: Mapping[str, FieldValue | None] | None = None,
        set_fields: Mapping[str, FieldValue | None] | None = None,
        vector: Sequence[float] | Floats | None = None,
    ) -> Item:
        """Change parts of an item.

        Args:
            id: The item's id.
            text: Its new text, which is encoded unless `vector` is given; None keeps the present one.
            tags: Its new tags; None keeps the present ones.
            add_tags: Tags to add to these.
            remove_tags: Tags to remove from all of these; those that it has not are ignored.
            fields: Its new fields; None keeps the present ones.
            set_fields: Single fields to change; a value of None removes the field.
            vector: (dim,) its new embedding; None keeps the present one where the text stays.
        """
        with self._write_lock:
            row = self._row(id)
            changed, stage = row, None
            if tags is not None or add_tags or remove_tags:
                kept = {*validate_tags(row.tags if tags is None else tags), *validate_tags(add_tags)}
                new_tags = validate_tags(sorted(kept - set(validate_tags(remove_tags))))
                changed = replace(changed, tags=new_tags)
            if fields is not None or set_fields:
                kept_fields = row.fields if fields is None else validate_fields(fields)
                changed = replace(changed, fields=change_fields(kept_fields, set_fields or {}))
            new_text = row.text if text is None else validate_text(text)
            if vector is not None or new_text != row.text:
                embedding = (
                    self.model.encoder.encode_items([new_text])[0]
                    if vector is None
                    else validate_embedding(vector, self.store.dim, "item's vector")
                )
                if new_text != row.text or not same_vector(embedding, row.embedding):
                    changed = replace(changed, text=new_text, embedding=embedding)
                    stage = self._stage(changed, self._item_clicks(row))
            if stage is None and same_content(changed, row):
                return row.item()
            return self._write_row(changed, stage)

    def delete(self, ids: Sequence[str], *, ignore_missing: bool = False) -> int:
        """Delete items with their clicks, all or none; returns how many.

        A deleted item that the model was trained on continues to inform others until the model is trained again.

        Args:
            ids: Their ids.
            ignore_missing: Whether ids of no item are ignored; otherwise one is a `NotFoundError`, and none is deleted.
        """
        with self._write_lock:
            rows = [self._row(id) for id in dict.fromkeys(ids) if not ignore_missing or id in self]
            if rows:
                with self.store.transaction() as transaction:
                    for row in rows:
                        transaction.remove_item(row.key)
                self._catch_up()
            return len(rows)

    def click(self, item: str, query: str, vector: Sequence[float] | Floats | None = None) -> Click:
        """Record that a query led to a click on an item.

        From the next search on, the query votes for the item's neighbours and counts in its own classifier; after
        `observe_after` clicks the item informs others.

        Args:
            item: The item's id.
            query: The query's text; with a vector, any name for it.
            vector: (dim,) the query's embedding, kept with the click; None to encode the text.
        """
        return self.clicks([NewClick(item, query, vector=vector)])[0]

    def clicks(
        self,
        clicks: Sequence[NewClick | tuple[str, str] | Mapping[str, Any]],
        embeddings: Mapping[str, Floats] | None = None,
        *,
        file_position: tuple[str, int] | None = None,
    ) -> list[Click]:
        """Record several clicks, all or none.

        Args:
            clicks: `NewClick`s, (item, query) pairs, or mappings with "item", "query" and, if wanted, "at" and
                "vector", the query's embedding.
            embeddings: Embeddings by text of queries that the caller has encoded; others are encoded here.
            file_position: Noted in the same transaction: the SHA-256 of the file that the clicks are from, and its line
                up to which it is now recorded (`metaxc.catalog.file_positions`).
        """
        new = validate_clicks([NewClick.of(click) for click in clicks], self.store.dim)
        if not new:
            return []
        with self._write_lock:
            rows = {id: self._row(id) for id in dict.fromkeys(click.item for click in new)}
            embedded = embed_each(
                [(click.query, click.vector) for click in new], embeddings, self.model.encoder.encode_queries
            )
            queries: dict[str, list[Floats]] = {id: [] for id in rows}
            for click, one in zip(new, embedded, strict=True):
                queries[click.item].append(one)
            clicked = [
                self._item_clicks(row).with_queries(np.stack(queries[id]), self.model.embed_queries)
                for id, row in rows.items()
            ]
            lifecycle = self.follower.lifecycle
            stages = lifecycle.stages(list(rows.values()), clicked)
            recorded, now, counts = [], time.time(), {id: row.clicks for id, row in rows.items()}
            with self.store.transaction() as transaction:
                if file_position is not None:
                    CLICK_FILES.note(transaction.metadata, *file_position)
                for click, one in zip(new, embedded, strict=True):
                    number, row = transaction.new_key(CLICKS), rows[click.item]
                    counts[click.item] += 1
                    at = now if click.at is None else click.at
                    transaction.put(CLICKS, (number, row.key, click.query, at, encode_vector(one)))
                    state = lifecycle.state(row.trained, counts[click.item])
                    recorded.append(Click(number, click.item, click.query, at, state))
                for row, its_clicks, stage in zip(rows.values(), clicked, stages, strict=True):
                    changed = replace(row, clicks=its_clicks.count, updated=now)
                    transaction.put(ITEMS, stage.apply_to(changed, transaction.sequence).values())
                    its_clicks.write(transaction, row)
            self._catch_up()
            return recorded

    def undo(self, number: int) -> Item:
        """Remove a click: the item's vector and state are again what they were without it."""
        with self._write_lock:
            row = self._clicked_row(number)
            remaining = self._item_clicks(row, without=number)
            if (
                row.since is not None
                and self.follower.lifecycle.state(row.trained, remaining.count) != "observed"
            ):
                self.follower.exclude(row.key)  # it informs others no more, as before the click
            changed, stage = replace(row, clicks=remaining.count), self._stage(row, remaining)
            return self._write_row(changed, stage, removed_click=number, clicks=remaining)

    def _clicked_row(self, number: int) -> ItemRow:
        found = self.store.fetch_all(
            "SELECT items.id FROM clicks JOIN items USING (key) WHERE number = ?", (number,)
        )
        if not found:
            raise NotFoundError(
                "No click with this number",
                got=number,
                expected="the number of a recorded click",
                fix="`explain` lists an item's clicks",
            )
        return self._row(found[0][0])

    def _stage(self, row: ItemRow, clicks: ItemClicks) -> Stage:
        """The state and vector that these clicks give an item."""
        return self.follower.lifecycle.stages([row], [clicks])[0]

    def _write_row(
        self,
        row: ItemRow,
        stage: Stage | None,
        *,
        removed_click: int | None = None,
        clicks: ItemClicks | None = None,
    ) -> Item:
        """Write a changed row in a transaction of its own; a stage of None keeps state and vector."""
        with self.store.transaction() as transaction:
            written = replace(row, updated=time.time(), sequence=transaction.sequence)
            if stage is not None:
                written = stage.apply_to(written, transaction.sequence)
            transaction.put(ITEMS, written.values())
            if removed_click is not None:
                transaction.delete(CLICKS, removed_click)
            if clicks is not None:
                clicks.write(transaction, row)
        self._catch_up()
        return written.item()
