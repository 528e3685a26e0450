"""Export of a catalog as a data set folder, so that a model can be trained on what has happened since the last one.

A catalog knows its items, and the clicks that it has recorded itself: each with its query and its time. The clicks that
its model was trained on are in the model's data set, not in the catalog; the export takes them from there.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from metaxc.arrays import Doubles, Rows
from metaxc.artifacts import atomic_folder, save_json
from metaxc.catalog.exported_vectors import collect_vectors
from metaxc.catalog.generation_record import ENCODER_KIND
from metaxc.catalog.schema import fields_column
from metaxc.catalog.store import Store, read_sequence
from metaxc.data.click_log import ClickLog, Texts
from metaxc.data.dataset import Dataset
from metaxc.data.dataset_folder import read_folder, write_folder
from metaxc.data.item_fields import any_fields, load_fields
from metaxc.data.same_texts import normalise_text
from metaxc.encoders import Vectors
from metaxc.errors import DataError
from metaxc.output_claims import DATA_KIND, claim_folder

FACTS = "export.json"
"""In an exported folder: which catalog it comes from, and what of it."""


@dataclass(frozen=True)
class DatasetExport:
    """What an export has written.

    Args:
        dataset: The data set.
        live_clicks: Clicks that the catalog has recorded.
        training_clicks: Click events that were taken from the training data.
        undated: Whether the times of the catalog's clicks were left out, because those of the training data have none:
            a data set has times for all clicks or for none.
        trained_without_clicks: Items that the model was trained on and that have no click in the data set. Where there
            are many, the training data are not those of the model.
        vectors: Whether the vectors of items and queries were written; None where the model encodes texts, False where
            the training data have no vectors of their queries.
    """

    dataset: Dataset
    live_clicks: int
    training_clicks: int
    undated: bool
    trained_without_clicks: int
    vectors: bool | None = None


def export_dataset(
    store: Store, folder: Path, *, training_data: Path | None = None, overwrite: bool = False
) -> DatasetExport:
    """Write one committed state of the catalog as a data set folder, which `metaxc train` reads.

    It holds the catalog's items in the order in which they were added, with their present texts, tags and fields and
    the time at which they were first seen, and every recorded click with its time; clicks of the same query and item
    add up. Clicks that were taken back, and deleted items with theirs, are not in it. Where the catalog's model was
    trained on your own vectors, those of the items and queries are written too, so that the next one can be.

    Args:
        store: The catalog's store.
        folder: A new or empty folder outside the catalog; written completely or not at all.
        training_data: A data set folder whose training clicks are added, those on items of the catalog: the one that
            the catalog's first model was trained on. The catalog keeps its clicks when it is migrated to another model,
            so this folder stays the same however often the catalog is exported. A query with the same text, ignoring
            case and white space, is the same query.
        overwrite: Whether an earlier data set in that folder is replaced.
    """
    sources = [store.folder.parent, *([] if training_data is None else [training_data])]
    claim_folder(folder, DATA_KIND, overwrite=overwrite, sources=sources)
    if training_data is not None:
        _check_not_from(training_data, store)
    training = None if training_data is None else read_folder(training_data)
    with store.read_snapshot(own_connection=True) as connection:
        sequence = read_sequence(connection)
        items = connection.execute(
            f"SELECT key, id, text, tags, trained, {fields_column(connection)}, created FROM items ORDER BY key"
        ).fetchall()
        clicks = connection.execute("SELECT number, key, query, at FROM clicks ORDER BY number").fetchall()
        export = merge_clicks(items, clicks, training, folder.name)
        vectors = None
        if store.metadata.get(ENCODER_KIND) == Vectors.kind:
            vectors = collect_vectors(connection, export.dataset, training, training_data)
            export = replace(export, vectors=vectors is not None)
    facts = {
        "catalog": store.uuid,
        "sequence": sequence,
        "clicks of the catalog": export.live_clicks,
        "clicks of the training data": export.training_clicks,
        "training data": None if training is None else training.fingerprint,
    }
    with atomic_folder(folder, DATA_KIND, overwrite=overwrite, sources=sources) as new:
        write_folder(export.dataset, new)
        if vectors is not None:
            for name, array in zip(("items", "queries"), vectors, strict=True):
                np.save(new / f"vectors.{name}.npy", array)
        save_json(new / FACTS, facts)
    return export


def merge_clicks(
    items: list[tuple[Any, ...]], clicks: list[tuple[Any, ...]], training: Dataset | None, name: str
) -> DatasetExport:
    """The data set of a catalog's rows and of its training data.

    Args:
        items: Rows of key, id, text, tags (JSON), trained, fields (JSON) and created.
        clicks: Rows of number, key, query and at.
        training: The training data.
        name: The name of the data set.
    """
    column_of_id = {row[1]: column for column, row in enumerate(items)}
    column_of_key = {row[0]: column for column, row in enumerate(items)}
    queries = _Queries(training)
    query_rows = [queries.row(query, number) for number, _, query, _ in clicks]
    live = _Events(
        np.asarray(query_rows, np.int64),
        np.asarray([column_of_key[key] for _, key, _, _ in clicks], np.int64),
        np.asarray([at for *_, at in clicks], np.float64),
        np.ones(len(clicks), np.int64),
    )
    old = _training_events(training, column_of_id)
    if not len(live.queries) + len(old.queries):
        raise DataError(
            "The catalog has no clicks to train on",
            got=f"{len(items):,} items, no recorded click",
            expected="at least one click",
            fix="record clicks, or add those of the training data: --with-training-data DATA",
        )
    dated = old.times is not None or not len(old.queries)
    times = np.concatenate([_known_times(old), _known_times(live)]) if dated else None
    log = ClickLog.of_events(
        Texts(queries.ids, queries.texts),
        len(items),
        np.concatenate([old.queries, live.queries]),
        np.concatenate([old.items, live.items]),
        times,
        np.concatenate([old.counts, live.counts]),
    )
    clicked = np.diff(log.clicks.tocsc().indptr) > 0
    trained = np.asarray([bool(row[4]) for row in items], dtype=np.bool_)
    dataset = Dataset(
        _item_texts(items, training, log.item_times),
        log.take(np.flatnonzero(np.diff(log.clicks.indptr))),
        name=name,
        exclude_self=training is not None and training.exclude_self,
    )
    return DatasetExport(
        dataset,
        live_clicks=len(clicks),
        training_clicks=int(old.counts.sum()),
        undated=not dated and bool(len(clicks)),
        trained_without_clicks=int((trained & ~clicked).sum()),
    )


@dataclass(frozen=True)
class _Events:
    """Click events: (n,) rows of queries, columns of items, times if known, and how many events each stands for."""

    queries: Rows
    items: Rows
    times: Doubles | None
    counts: Rows


class _Queries:
    """The queries of the training data, and those of the catalog's clicks that are none of them."""

    def __init__(self, training: Dataset | None):
        known = Texts([], []) if training is None else training.train.queries
        self.ids, self.texts = list(known.ids), list(known.texts)
        self._used = set(self.ids)
        self._row_of: dict[str, int] = {}
        for row, text in enumerate(self.texts):
            self._row_of.setdefault(normalise_text(text), row)

    def row(self, text: str, number: int) -> int:
        """The row of a query. A new one is named by the number of its first click, so that it has the same id in each
        export."""
        key = normalise_text(text)
        row = self._row_of.get(key)
        if row is None:
            row = self._row_of[key] = len(self.ids)
            id = f"live-{number}"
            while id in self._used:
                id += "-"
            self._used.add(id)
            self.ids.append(id)
            self.texts.append(text)
        return row


def _training_events(training: Dataset | None, column_of_id: dict[str, int]) -> _Events:
    """The events of the training part on items that the catalog has."""
    if training is None:
        none = np.empty(0, np.int64)
        return _Events(none, none, None, none)
    log = training.train
    columns = np.asarray([column_of_id.get(id, -1) for id in training.items.ids], np.int64)
    clicked = columns[log.clicks.indices[log.groups.pairs]]
    kept = clicked >= 0
    return _Events(
        log.pair_rows[log.groups.pairs][kept],
        clicked[kept],
        None if log.times is None else log.times[kept],
        log.groups.counts[kept],
    )


def _known_times(events: _Events) -> Doubles:
    return np.empty(0) if events.times is None else events.times


def _item_texts(
    items: list[tuple[Any, ...]], training: Dataset | None, first_clicks: Doubles | None
) -> Texts:
    """The items with the earliest time at which each is known to have been there."""
    first_seen = np.floor([created for *_, created in items])
    if first_clicks is not None:
        first_seen = np.minimum(first_seen, np.floor(first_clicks))
    if training is not None and training.items.first_seen is not None:
        row_of, known = training.items.row_of, training.items.first_seen
        earlier = [known[row_of[row[1]]] if row[1] in row_of else np.inf for row in items]
        first_seen = np.minimum(first_seen, earlier)
    tags = [tuple(json.loads(row[3])) for row in items]
    return Texts(
        [row[1] for row in items],
        [row[2] for row in items],
        first_seen.astype(np.int64),
        tags if any(tags) else None,
        any_fields(load_fields(row[5]) for row in items),
    )


def _check_not_from(training_data: Path, store: Store) -> None:
    """Refuse training data that were exported from this catalog: its clicks would count twice."""
    try:
        origin = json.loads((training_data / FACTS).read_text(encoding="utf-8"))["catalog"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if origin == store.uuid:
        raise DataError(
            "The training data were exported from this catalog, so that its clicks would count twice",
            got=training_data,
            expected="the data set that the catalog's first model was trained on",
            fix="give that one, with every export; the catalog has all later clicks",
        )
