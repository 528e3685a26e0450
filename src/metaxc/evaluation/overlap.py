"""Whether a test part is new to a model: figures on queries, clicks or items that it was trained on mean nothing.

The usual mistake is to train on a folder that was split and to evaluate on the folder before the split: a new split is
made there, most of whose test queries were training queries, and most of whose novel items have trained classifiers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.data.dataset import Dataset
from metaxc.emmett import Emmett
from metaxc.emmett.training_record import TrainingRecord, hash_pairs, hash_queries, hash_texts
from metaxc.errors import DataError

MOST_REPEATED = 0.5
"""Share of the test clicks that may also be training clicks of the same data set, where no times tell which came first.
A few queries are asked twice in every log; a test part that is mostly a copy of the training part is a mistake."""


class OverlapError(DataError):
    """A model was trained on what it is to be evaluated on."""


@dataclass(frozen=True)
class Overlap:
    """How much of a test part a model was trained on.

    Args:
        queries: Test queries whose text was a training query, although the data set does not train on it.
        clicks: Test clicks that were training clicks, alike.
        novel_items: Items that the data set counts as novel and that the model was trained on as observed ones.
        repeated_clicks: Test clicks that are in the data set's own training part too, and no times tell that the
            model saw only earlier ones.
        test_queries, test_clicks, test_novel_items: How many there are of each.
        is_recorded: Whether the model has a record of its training queries and clicks; without one, only the items
            can be compared.
    """

    queries: int
    clicks: int
    novel_items: int
    repeated_clicks: int
    test_queries: int
    test_clicks: int
    test_novel_items: int
    is_recorded: bool

    @property
    def is_fair(self) -> bool:
        """Whether figures on this test part mean what they say."""
        copied = self.repeated_clicks > MOST_REPEATED * self.test_clicks
        return not (self.queries or self.clicks or self.novel_items or copied)

    def describe(self) -> str:
        """What overlaps, in one sentence; what could not be checked, or is repeated, where nothing overlaps."""
        found = [
            f"{count:,} of {total:,} {what}"
            for count, total, what in (
                (self.queries, self.test_queries, "test queries"),
                (self.clicks, self.test_clicks, "test clicks"),
                (self.novel_items, self.test_novel_items, "novel items"),
                (self.repeated_clicks, self.test_clicks, "test clicks that the training part repeats"),
            )
            if count
        ]
        if self.is_fair:
            if self.repeated_clicks:
                return f"{found[0]}: the figures are a little too high"
            if not self.is_recorded:
                return (
                    "The model has no record of its training queries and clicks: only its items were compared"
                )
            return "The model was trained on nothing of the test part"
        return f"The model was trained on {', '.join(found)}"

    def to_dict(self) -> dict[str, object]:
        """The counts as JSON, with "fair" and a sentence under "note"."""
        return {
            "fair": self.is_fair,
            "note": self.describe(),
            "queries": self.queries,
            "clicks": self.clicks,
            "novel_items": self.novel_items,
            "repeated_clicks": self.repeated_clicks,
            "is_recorded": self.is_recorded,
        }


def find_overlap(model: Emmett, dataset: Dataset) -> Overlap:
    """Compare what a model was trained on with the test part and the novel items of a data set.

    Queries and clicks from after the model's last training event are new, whatever was asked before: people ask again.
    Where times are unknown, what the data set itself has in both parts counts as repeated.

    Args:
        model: The model.
        dataset: A data set with a test log and novel items.
    """
    trained = {model.items.ids[row] for row in model.observed.tolist()}
    novel = [dataset.items.ids[row] for row in dataset.novel_rows.tolist()]
    seen = sum(name in trained for name in novel)
    test, record = dataset.test, model.trained_on
    if test is None:
        return Overlap(0, 0, seen, 0, 0, 0, len(novel), record is not None)
    rows = np.flatnonzero(np.diff(test.clicks.indptr) > 0)
    counts = (len(rows), int(test.clicks.nnz), len(novel))
    if record is None or _is_later(dataset, record):
        return Overlap(0, 0, seen, 0, *counts, record is not None)
    queries = hash_queries(test.queries, rows)
    clicks = hash_pairs(queries, hash_texts(dataset.items.ids), csr_array(test.clicks[rows]))
    own = TrainingRecord.of(dataset)
    own_queries, own_clicks = own.knows_queries(queries), own.knows_clicks(clicks)
    known_queries, known_clicks = record.knows_queries(queries), record.knows_clicks(clicks)
    return Overlap(
        int((known_queries & ~own_queries).sum()),
        int((known_clicks & ~own_clicks).sum()),
        seen,
        int((known_clicks & own_clicks).sum()),
        *counts,
        is_recorded=True,
    )


def check_overlap(model: Emmett, dataset: Dataset, *, allow_overlap: bool = False) -> Overlap:
    """Raise an `OverlapError` if the model was trained on a part of what it is to be evaluated on.

    Args:
        model: The model.
        dataset: What it is to be evaluated on.
        allow_overlap: Returns the overlap instead, so that the result can be marked.
    """
    overlap = find_overlap(model, dataset)
    if overlap.is_fair or allow_overlap:
        return overlap
    raise OverlapError(
        "The model cannot be evaluated on what it was trained on: the figures would be too high",
        got=f"{dataset.name}: {overlap.describe()}",
        expected="test queries, test clicks and novel items that training has not seen",
        fix="evaluate on the folder that was given to train, with its own test part and novel items; or train on "
        "this one. --allow-overlap (allow_overlap=True) evaluates anyway and marks the result",
    )


def _is_later(dataset: Dataset, record: TrainingRecord) -> bool:
    """Whether all test events are later than all that the model was trained on."""
    times = None if dataset.test is None else dataset.test.times
    if times is None or not len(times) or record.until is None:
        return False
    return bool(times.min() > record.until)
