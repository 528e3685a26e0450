"""R@10 by kind of item and by kind of query.

Items are sliced over (query, relevant item) pairs: the share of pairs whose item is among the first 10 results, with
intervals from a bootstrap over queries, because the pairs of one query are not independent. Queries are sliced over
queries, by their own R@10.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.dataset import Dataset
from metaxc.evaluation.by_kind import training_counts
from metaxc.evaluation.intervals import bootstrap
from metaxc.research.report.comparison import (
    BARE,
    MODEL,
    TOP,
    ConfidenceInterval,
    RelevantPairs,
    System,
    in_top,
    relevant_pairs,
)


@dataclass(frozen=True)
class SliceGroup:
    """One slice: its size, each system's R@10, and the model's gain over the bare encoder."""

    name: str
    count: int
    numbers: Mapping[str, ConfidenceInterval]
    gain: ConfidenceInterval


@dataclass(frozen=True)
class Slices:
    """One way to slice a setting.

    Args:
        title: The property that the slices are made by.
        setting: "zero_shot" or "generalized".
        unit: What is counted, "pairs" or "queries".
        how: The rule in words.
        groups: The slices that are not empty.
    """

    title: str
    setting: str
    unit: str
    how: str
    groups: Sequence[SliceGroup]


def compute_slices(systems: Sequence[System], dataset: Dataset) -> list[Slices]:
    """Items by clicks and text length; queries by text length and by how many of their items are novel."""
    first = systems[0].evaluation
    pairs = {setting: relevant_pairs(dataset, setting, first.queries[setting]) for setting in first.queries}
    return [
        _by_clicks(systems, dataset, pairs["generalized"]),
        _by_novel_share(systems, dataset, pairs["generalized"]),
        *(_by_item_length(systems, dataset, setting, pairs[setting]) for setting in pairs),
        *(_by_query_length(systems, dataset, setting) for setting in pairs),
    ]


def click_bounds(counts: Rows) -> tuple[int, int]:
    """The smallest number of clicks of a head item and of a torso item.

    The head is the most clicked items that together have a third of all clicks; the torso is the next third. Items
    with equally many clicks stay together.
    """
    ordered = np.sort(counts[counts > 0])[::-1]
    if not len(ordered):
        return 1, 1
    share = np.cumsum(ordered) / ordered.sum()
    head, torso = np.minimum(np.searchsorted(share, [1 / 3 - 1e-12, 2 / 3 - 1e-12]), len(ordered) - 1)
    return int(ordered[head]), int(ordered[torso])


def _by_clicks(systems: Sequence[System], dataset: Dataset, pairs: RelevantPairs) -> Slices:
    counts = training_counts(dataset)
    head, torso = click_bounds(counts)
    clicks = counts[pairs.item]
    masks = {
        f"head: {head:,} clicks or more": clicks >= head,
        f"torso: {_format_range(torso, head - 1)} clicks": (clicks >= torso) & (clicks < head),
        f"tail: {_format_range(1, torso - 1)} clicks": (clicks >= 1) & (clicks < torso),
        "no clicks": clicks == 0,
    }
    how = (
        "Head: the most clicked items that together have a third of the training clicks; torso: the next third; "
        "tail: the rest. Items with equally many clicks stay together; novel items have none."
    )
    groups = _pair_groups(systems, pairs, masks, "generalized")
    return Slices("items by training clicks", "generalized", "pairs", how, groups)


def _by_item_length(
    systems: Sequence[System], dataset: Dataset, setting: str, pairs: RelevantPairs
) -> Slices:
    words = _count_words(dataset.items.texts)[pairs.item]
    how = "Thirds of the pairs by the number of words in the item's text; equal lengths stay together."
    groups = _pair_groups(systems, pairs, _thirds(words), setting)
    return Slices("items by text length", setting, "pairs", how, groups)


def _by_query_length(systems: Sequence[System], dataset: Dataset, setting: str) -> Slices:
    rows = systems[0].evaluation.queries[setting]
    words = _count_words(dataset.test.queries.texts if dataset.test else [])[rows]
    how = "Thirds of the queries by the number of words in their text; equal lengths stay together."
    groups = _query_groups(systems, _thirds(words), setting)
    return Slices("queries by text length", setting, "queries", how, groups)


def _by_novel_share(systems: Sequence[System], dataset: Dataset, pairs: RelevantPairs) -> Slices:
    novel = np.bincount(pairs.query, weights=dataset.novel_mask[pairs.item], minlength=pairs.queries)
    share = novel / np.maximum(np.bincount(pairs.query, minlength=pairs.queries), 1)
    masks = {"all novel": share == 1, "some novel": (share > 0) & (share < 1), "none novel": share == 0}
    groups = _query_groups(systems, masks, "generalized")
    how = "By how many of the query's relevant items are novel."
    return Slices("queries by novel items", "generalized", "queries", how, groups)


def _pair_groups(
    systems: Sequence[System], pairs: RelevantPairs, masks: Mapping[str, Mask], setting: str
) -> list[SliceGroup]:
    groups = []
    for name, mask in masks.items():
        if not mask.any():
            continue
        query = pairs.query[mask]
        possible = np.bincount(query, minlength=pairs.queries).astype(np.float64)
        found = np.zeros((pairs.queries, len(systems)))
        for column, system in enumerate(systems):
            in_first = in_top(system.ranks[setting][mask])
            found[:, column] = np.bincount(query, weights=in_first, minlength=pairs.queries)
        with_pair = possible > 0
        groups.append(_group(name, int(mask.sum()), systems, found[with_pair], possible[with_pair]))
    return groups


def _query_groups(systems: Sequence[System], masks: Mapping[str, Mask], setting: str) -> list[SliceGroup]:
    values = np.stack([s.evaluation.per_query[setting][f"R@{TOP}"] / 100 for s in systems], axis=1)
    return [
        _group(name, int(mask.sum()), systems, values[mask], np.ones(int(mask.sum())))
        for name, mask in masks.items()
        if mask.any()
    ]


def _group(
    name: str, count: int, systems: Sequence[System], values: Doubles, possible: Doubles
) -> SliceGroup:
    keys = [system.key for system in systems]
    gain = values[:, keys.index(MODEL)] - values[:, keys.index(BARE)]
    columns = 100 * np.column_stack([values, gain])
    low, high = bootstrap(columns, possible=np.repeat(possible[:, None], columns.shape[1], axis=1))
    mean = columns.sum(axis=0) / possible.sum()
    numbers = [ConfidenceInterval(*map(float, column)) for column in zip(mean, low, high, strict=True)]
    return SliceGroup(name, count, dict(zip(keys, numbers[:-1], strict=True)), numbers[-1])


def _thirds(words: Rows) -> dict[str, Mask]:
    """Masks over texts by their number of words, about a third each, named by their bounds."""
    low, high = (int(bound) for bound in np.quantile(words, [1 / 3, 2 / 3], method="inverted_cdf"))
    least, most = int(words.min()), int(words.max())
    ranges = [(least, low), (low + 1, high), (high + 1, most)]
    return {
        f"{_format_range(start, end)} word{'' if start == end == 1 else 's'}": (words >= start)
        & (words <= end)
        for start, end in ranges
        if start <= end
    }


def _format_range(start: int, end: int) -> str:
    return f"{start:,}" if start >= end else f"{start:,} to {end:,}"


def _count_words(texts: Sequence[str]) -> Rows:
    return np.asarray([len(text.split()) for text in texts], dtype=np.int64)
