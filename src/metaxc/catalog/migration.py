"""Building a generation of another model from the one in use, which may be written to meanwhile.

A build writes every item that the generation in use holds, then, in rounds, what has changed there since: each change
carries a sequence number, and the new generation notes up to which one it has them all. Who holds the writes back
during a last round has a generation that lacks nothing. Keys and click numbers stay, and are not given out again.

Everything that a killed build has written is used by the next one.

Where both models have the same item side (`metaxc.emmett.model_identity.item_fingerprint`), no item is computed: the
new generation begins as a copy of the database, and later changes are copied as they stand. Clicks keep the embeddings
with which they became a part of their item's vector; known queries, which belong to no item, are encoded again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from metaxc.arrays import Floats
from metaxc.catalog.embedding_space import has_same_space, vectors_required
from metaxc.catalog.file_positions import CLICK_FILES, ITEM_FILES
from metaxc.catalog.generation_record import (
    EARLIER_MODELS,
    FOLLOWS,
    IN_STEP,
    MOST_EARLIER,
    PREVIOUS,
    STALE,
    Previous,
    earlier_models,
    has_item_vectors,
)
from metaxc.catalog.index_follower import IndexFollower
from metaxc.catalog.item_clicks import ItemClicks, read_item_clicks
from metaxc.catalog.lifecycle import Lifecycle, Stage
from metaxc.catalog.records import CatalogSettings, ItemRow
from metaxc.catalog.schema import (
    CLICK_SUMS,
    CLICKS,
    ITEMS,
    QUERIES,
    decode_vector,
    decode_vectors,
    encode_vector,
    placeholders,
    read_metadata,
    select_items,
    tables_of,
)
from metaxc.catalog.store import Store, Transaction, read_sequence
from metaxc.emmett import Emmett

MIGRATION_BLOCK = 256
"""Items that a migration writes in one transaction."""

FILES = (CLICK_FILES, ITEM_FILES)
ITEM_ORDER = "ORDER BY ifnull(since, 9e18), key"
Progress = Callable[[int, int], None]
"""Called with the number of items done and their total; an exception stops the build, and the next one resumes it."""


def embed_texts(encode: Callable[[Sequence[str]], Floats], texts: Sequence[str], dim: int) -> Floats:
    """(n, dim) float32; an encoder need not accept an empty list."""
    return encode(texts) if texts else np.empty((0, dim), np.float32)


class Migration:
    """Builds a generation from the one in use.

    Args:
        old: The store of the generation in use.
        new: What `resume_or_create` returned for it.
        model: The model of the new generation.
        progress: See `Progress`.
        block: Items per transaction; None for `MIGRATION_BLOCK`. Smaller ones leave more room for searches.
    """

    def __init__(self, old: Store, new: Store, model: Emmett, progress: Progress, block: int | None = None):
        self.old, self.new, self.model, self.progress = old, new, model, progress
        self.block = block or MIGRATION_BLOCK
        settings = CatalogSettings.model_validate_json(old.metadata["settings"])
        self.lifecycle = Lifecycle(model, settings.observe_after)
        self.follower: IndexFollower | None = None
        self.trained = {model.items.ids[row] for row in model.observed.tolist()}
        self.keeps_embeddings = has_same_space(old, model)
        metadata = self._new_metadata()
        self.sequence = int(metadata[FOLLOWS].split()[1])
        self.in_step = metadata.get(IN_STEP) == "yes"
        self.copies = has_item_vectors(old.metadata, model)
        self.done = {row[0] for row in new.fetch_all("SELECT key FROM items")}

    def use_follower(self, follower: IndexFollower) -> None:
        """From now on take the observed items from what follows the new store already."""
        self.follower, self.lifecycle = follower, follower.lifecycle

    def write_all(self) -> None:
        """Write what the new generation lacks: known queries and items."""
        self._write_queries()
        rows = self._read(f"SELECT key, id, clicks FROM items {ITEM_ORDER}")
        if self.in_step:
            self._reload_observed()
        else:
            self._write_items(rows, first=True)

    def catch_up(self) -> int:
        """Write what has changed since the last call; returns the number of changed and deleted items."""
        with self.old.read_snapshot(own_connection=True) as connection:
            sequence = read_sequence(connection)
            since = (self.sequence,)
            changed = connection.execute(
                "SELECT key, id, clicks FROM items INDEXED BY items_by_sequence WHERE sequence > ? "
                f"{ITEM_ORDER}",
                since,
            ).fetchall()
            deleted = connection.execute("SELECT key FROM deleted WHERE sequence > ?", since).fetchall()
        if sequence == self.sequence:
            return 0
        for block in _blocks([key for (key,) in deleted], self.block):
            self._remove(block)
        self._write_items(changed, first=False)
        with self.new.transaction() as transaction:
            transaction.metadata[FOLLOWS] = f"{self.old.folder.name} {sequence}"
        self.sequence = sequence
        return len(changed) + len(deleted)

    def refresh_vectors(self) -> None:
        """Compute all vectors again where the observed items that inform them have changed during the build."""
        if self._new_metadata().get(STALE) != "yes":
            return
        keys = [key for (key,) in self.new.fetch_all("SELECT key FROM items ORDER BY key")]
        for number, block in enumerate(_blocks(keys, self.block)):
            self._update_vectors(block)
            self.progress(min((number + 1) * self.block, len(keys)), len(keys))
        with self.new.transaction() as transaction:
            transaction.metadata[STALE] = ""

    def complete(self, previous_model_folder: str | None) -> None:
        """Note that the new generation has everything; nothing may be written to the old one from the last `catch_up`
        on.

        Args:
            previous_model_folder: The folder of the old generation's model, by which it can be used again.
        """
        with self.old.read_snapshot() as connection:
            last = dict(connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall())
            metadata = read_metadata(connection)
        with self.new.transaction() as transaction:
            _keep_keys(transaction, last)
            previous = Previous(
                self.old.folder.name, transaction.sequence, self.old.metadata["model"], previous_model_folder
            )
            earlier = [*earlier_models(metadata), metadata["model"]] if self.copies else []
            transaction.metadata |= dict.fromkeys((FOLLOWS, STALE, IN_STEP), "") | {
                PREVIOUS: json.dumps(asdict(previous)),
                EARLIER_MODELS: " ".join(list(dict.fromkeys(earlier))[-MOST_EARLIER:]),
                **{kind.name: metadata[kind.name] for kind in FILES if kind.name in metadata},
            }

    def _new_metadata(self) -> dict[str, str]:
        with self.new.read_snapshot() as connection:
            return read_metadata(connection)

    def _read(self, statement: str) -> list[Any]:
        """All rows of a SELECT on the old generation; readers of its store do not wait."""
        with self.old.read_snapshot(own_connection=True) as connection:
            return connection.execute(statement).fetchall()

    def _write_queries(self) -> None:
        done = {row[0] for row in self.new.fetch_all("SELECT number FROM queries")}
        stored = self._read("SELECT number, text, embedding FROM queries ORDER BY number")
        for block in _blocks([row for row in stored if row[0] not in done], self.block):
            embeddings = self._embed_queries([(text, embedding) for _, text, embedding in block])
            with self.new.transaction() as transaction:
                for (number, text, _), embedding in zip(block, embeddings, strict=True):
                    transaction.put(QUERIES, (number, text, encode_vector(embedding)))

    def _embed_queries(self, stored: Sequence[tuple[str, bytes]]) -> Floats:
        """(n, dim) embeddings of queries, given as their texts and stored embeddings."""
        encoder = self.model.encoder
        if self.keeps_embeddings:
            return decode_vectors((embedding for _, embedding in stored), encoder.dim)
        with vectors_required():
            return embed_texts(encoder.encode_queries, [text for text, _ in stored], encoder.dim)

    def _write_items(self, rows: Sequence[tuple[int, str, int]], *, first: bool) -> None:
        """Write the items that inform others, then all other items, informed by those. The first ones inform each other
        too, so their vectors are computed once more when all of them are known.

        Args:
            rows: (n,) key, id and clicks of each item.
            first: Whether items that the new generation has already are left out.
        """
        informing = [
            key
            for key, id, clicks in rows
            if clicks >= self.lifecycle.observe_after and id not in self.trained and self.lifecycle.can_grow
        ]
        total = len(rows) if first else 0
        if self.copies:
            self._write_blocks([key for key, _, _ in rows], total)
            self._reload_observed()
            return
        self._write_blocks(informing, total)
        self._reload_observed()
        for block in _blocks(informing, self.block):
            self._update_vectors(block)
        written = set(informing)
        self._write_blocks([key for key, _, _ in rows if key not in written], total)
        self._reload_observed()

    def _write_blocks(self, keys: Sequence[int], total: int) -> None:
        for block in _blocks([key for key in keys if not (total and key in self.done)], self.block):
            if self.copies:
                self._copy_block(block)
            else:
                self._write_block(block, during_changes=not total)
            self.done |= set(block)
            if total:
                self.progress(len(self.done), total)

    def _write_block(self, keys: Sequence[int], *, during_changes: bool) -> None:
        with self.old.read_snapshot(own_connection=True) as connection:
            stored, clicks = _read_items(connection, keys)
        before = _Known(self.new, [row.key for row in stored], [row.id for row in stored])
        encoder, embed = self.model.encoder, self.model.embed_queries
        rows = [
            replace(row, trained=row.id in self.trained, embedding=embedding)
            for row, embedding in zip(stored, self._embed_items(stored, before), strict=True)
        ]
        new_clicks = [click for click in clicks if click[0] not in before.clicks]
        encoded = self._embed_queries([(click[2], click[4]) for click in new_clicks])
        by_number = before.clicks | {click[0]: one for click, one in zip(new_clicks, encoded, strict=True)}
        queries: dict[int, list[Floats]] = {row.key: [] for row in rows}
        for number, key, *_ in clicks:
            queries[key].append(by_number[number])
        none = np.empty((0, encoder.dim), np.float32)
        item_clicks = [
            ItemClicks.of(np.stack(queries[row.key]) if queries[row.key] else none, embed) for row in rows
        ]
        stages = self.lifecycle.stages(rows, item_clicks) if rows else []
        gone = set(before.clicks) - {click[0] for click in clicks}
        with self.new.transaction() as transaction:
            for key in before.others:  # deleted since, and added again with another key
                transaction.remove_item(key)
            for row, its_clicks, stage in zip(rows, item_clicks, stages, strict=True):
                transaction.put(ITEMS, stage.apply_to(row, transaction.sequence).values())
                its_clicks.write(transaction, row)
            for number in gone:
                transaction.delete(CLICKS, number)
            for number, key, query, at, _ in new_clicks:
                transaction.put(CLICKS, (number, key, query, at, encode_vector(by_number[number])))
            if during_changes:
                self._note_stale(transaction, [*before.rows.values()], stages)

    def _embed_items(self, stored: Sequence[ItemRow], before: _Known) -> list[Floats]:
        """The embedding of each item: its stored one where the space is the same, else the encoder's."""
        if self.keeps_embeddings:
            return [row.embedding for row in stored]
        encoder = self.model.encoder
        texts = list(dict.fromkeys(row.text for row in stored if not before.has_text(row)))
        with vectors_required():
            by_text = dict(zip(texts, embed_texts(encoder.encode_items, texts, encoder.dim), strict=True))
        return [
            by_text[row.text] if row.text in by_text else before.rows[row.key].embedding for row in stored
        ]

    def _copy_block(self, keys: Sequence[int]) -> None:
        """Write items as they stand in the old generation, with their vectors and clicks."""
        where = f"WHERE key IN ({placeholders(len(keys))})"
        with self.old.read_snapshot(own_connection=True) as connection:
            found = connection.execute(f"{select_items(connection)} {where}", keys)
            rows = [ItemRow.from_values(row) for row in found]
            clicks = connection.execute(f"{CLICKS.select} {where} ORDER BY number", keys).fetchall()
            sums: list[Any] = []
            if CLICK_SUMS in tables_of(read_metadata(connection)):
                sums = connection.execute(f"{CLICK_SUMS.select} {where}", keys).fetchall()
        before = _Known(self.new, [row.key for row in rows], [row.id for row in rows])
        with self.new.transaction() as transaction:
            for key in before.others:
                transaction.remove_item(key)
            for row in rows:
                known = before.rows.get(row.key)
                since = None if known is None else known.since
                if row.since is not None:
                    row = replace(row, since=since or transaction.sequence)
                transaction.put(ITEMS, replace(row, sequence=transaction.sequence).values())
                transaction.delete(CLICK_SUMS, row.key)
            for number in set(before.clicks) - {click[0] for click in clicks}:
                transaction.delete(CLICKS, number)
            for click in clicks:
                transaction.put(CLICKS, click)
            for total in sums:
                transaction.put(CLICK_SUMS, total)

    def _note_stale(
        self, transaction: Transaction, before: Sequence[ItemRow], after: Sequence[Stage]
    ) -> None:
        """Note a change of items that inform others, in the transaction that makes it."""
        if any(row.classifier is not None for row in before) or any(
            stage.classifier is not None for stage in after
        ):
            transaction.metadata[STALE] = "yes"

    def _remove(self, keys: Sequence[int]) -> None:
        rows = [*_Known(self.new, keys).rows.values()]
        if rows:
            with self.new.transaction() as transaction:
                for row in rows:
                    transaction.remove_item(row.key)
                self._note_stale(transaction, rows, ())
        self.done -= set(keys)

    def _reload_observed(self) -> None:
        if self.follower is not None:
            self.follower.catch_up()
            return
        observed = self.new.fetch_items("WHERE since IS NOT NULL ORDER BY since, key")
        self.lifecycle.use_observed(list(map(ItemRow.from_values, observed)))

    def _update_vectors(self, keys: Sequence[int]) -> None:
        """Compute the vectors of items that the new generation has again, from what it has of them."""
        rows = [*_Known(self.new, keys).rows.values()]
        clicks = [read_item_clicks(self.new, row, self.model.embed_queries) for row in rows]
        stages = self.lifecycle.stages(rows, clicks) if rows else []
        with self.new.transaction() as transaction:
            for row, stage in zip(rows, stages, strict=True):
                transaction.put(ITEMS, stage.apply_to(row, transaction.sequence).values())


class _Known:
    """What a generation has of some items already.

    Args:
        store: Its store.
        keys: Keys of the items.
        ids: Their ids; items that have one of them and another key are `others`.
    """

    def __init__(self, store: Store, keys: Sequence[int], ids: Sequence[str] = ()):
        where = f"WHERE key IN ({placeholders(len(keys))}) OR id IN ({placeholders(len(ids))})"
        found = map(ItemRow.from_values, store.fetch_items(where, [*keys, *ids]))
        rows, wanted = list(found), set(keys)
        self.rows = {row.key: row for row in rows if row.key in wanted}
        self.others = [row.key for row in rows if row.key not in wanted]
        clicks = store.fetch_all(
            f"SELECT number, embedding FROM clicks WHERE key IN ({placeholders(len(keys))})", keys
        )
        self.clicks = {number: decode_vector(embedding) for number, embedding in clicks}

    def has_text(self, row: ItemRow) -> bool:
        """Whether it has this item with this text."""
        return row.key in self.rows and self.rows[row.key].text == row.text


def _read_items(
    connection: sqlite3.Connection, keys: Sequence[int]
) -> tuple[list[ItemRow], list[tuple[int, int, str, float, bytes]]]:
    """Items of one committed state, and number, key, query, time and embedding of their clicks; deleted ones are left
    out."""
    where = f"WHERE key IN ({placeholders(len(keys))})"
    found = connection.execute(f"{select_items(connection)} {where}", keys)
    rows = [ItemRow.from_values(row) for row in found]
    clicks = connection.execute(
        f"SELECT number, key, query, at, embedding FROM clicks {where} ORDER BY number", keys
    ).fetchall()
    return rows, clicks


def _keep_keys(transaction: Transaction, used: Mapping[str, int]) -> None:
    """Do not give out primary keys that another generation has given out: the last of each table, by name."""
    for name, last in used.items():
        statement = "UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?"
        if not transaction.connection.execute(statement, (last, name)).rowcount:
            insert = "INSERT INTO sqlite_sequence (seq, name) VALUES (?, ?)"
            transaction.connection.execute(insert, (last, name))


def _blocks(values: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [values[start : start + size] for start in range(0, len(values), size)]
