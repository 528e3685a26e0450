"""From phrases and the headings they belong to, to a `Dataset`: the rules every source shares.

Phrases of equal text (but for case and white space) become one query, headings of equal text one item, each
spelt as it was first met. A phrase never clicks an item of its own text, which would be a free answer. Items
that fewer than two queries click leave nothing to test, and items that a large share of all queries click
say nothing; both are dropped, and queries left without a click with them. Whole concepts go to one
side of the split, so that a synonym in the test part is not known from training; concepts that share a phrase
count as one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.errors import DataError

SEED = 7
"""Seed of the split into train and test queries."""

TEST_FRACTION = 0.15
"""Share of the queries set apart to test on."""

FEWEST_QUERIES = 2
"""An item needs one query to learn from and one to be judged by."""


@dataclass(frozen=True)
class Phrase:
    """One wording of a concept.

    Args:
        concept: Key of the concept; phrases of one concept stay on one side of the split.
        text: The wording, a query in the making.
        headings: Texts of the items it belongs to.
    """

    concept: str
    text: str
    headings: Sequence[str]


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())


def assemble(
    phrases: Iterable[Phrase],
    *,
    name: str,
    largest_share: float = 0.02,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """Merge, drop and split phrases into a data set with a train and a test log.

    Args:
        phrases: All wordings of all concepts, in the source's order.
        name: What reports call the data set.
        largest_share: Items clicked by more than this share of the queries are dropped.
        test_fraction: Share of the queries set apart, reached by whole concepts.
        seed: Of the shuffle of the concepts before the split.

    Returns:
        Items "i0"… in the order of their lower-cased text; queries "q0"…, the test queries first.
    """
    if not 0 < test_fraction < 1:
        raise DataError("The test fraction is out of range", got=test_fraction, expected="between 0 and 1")
    queries: dict[str, str] = {}
    headings: dict[str, str] = {}
    clicks: dict[str, set[str]] = {}
    concepts = _Groups()
    for phrase in phrases:
        text = one_line(phrase.text)
        key = text.lower()
        queries.setdefault(key, text)
        clicked = clicks.setdefault(key, set())
        concepts.join(key, phrase.concept)
        for heading in map(one_line, phrase.headings):
            if heading.lower() != key:
                clicked.add(heading.lower())
                headings.setdefault(heading.lower(), heading)
    clicks = _drop(clicks, largest_share)
    if not clicks:
        raise DataError(
            f"The source {name} left no click",
            got=f"{len(concepts):,} concepts",
            expected=f"items that at least {FEWEST_QUERIES} queries click",
            fix="check that the source's files are complete",
        )
    items = sorted(set().union(*clicks.values()))
    row_of = {key: row for row, key in enumerate(items)}
    test, train = _split(clicks, concepts, test_fraction, seed)

    def log(keys: Sequence[str], first: int) -> ClickLog:
        ids = [f"q{number}" for number in range(first, first + len(keys))]
        pairs = [(row, row_of[item]) for row, key in enumerate(keys) for item in clicks[key]]
        rows = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
        matrix = click_matrix(rows[:, 0], rows[:, 1], (len(keys), len(items)))
        return ClickLog(Texts(ids, [queries[key] for key in keys]), matrix)

    texts = Texts([f"i{row}" for row in range(len(items))], [headings[key] for key in items])
    return Dataset(texts, log(train, len(test)), log(test, 0), name=name)


def _drop(clicks: dict[str, set[str]], largest_share: float) -> dict[str, set[str]]:
    """The clicks on items that are neither too rare nor too common, and the queries that keep one.

    A dropped query changes both measures, hence the rounds.
    """
    clicks = {query: clicked for query, clicked in clicks.items() if clicked}
    while True:
        count = Counter(item for clicked in clicks.values() for item in clicked)
        most = largest_share * len(clicks)
        kept = {item for item, queries in count.items() if FEWEST_QUERIES <= queries <= most}
        if len(kept) == len(count):
            return clicks
        clicks = {query: clicked & kept for query, clicked in clicks.items() if not clicked.isdisjoint(kept)}


def _split(
    clicks: dict[str, set[str]], concepts: _Groups, test_fraction: float, seed: int
) -> tuple[list[str], list[str]]:
    """Test and train queries: shuffled concepts fill the test part until it has its share."""
    members: dict[str, list[str]] = {}
    # In the order of their texts, so that the split does not hang on the order of the source's files.
    for query in sorted(clicks):
        members.setdefault(concepts.of(query), []).append(query)
    groups = list(members.values())
    random.Random(seed).shuffle(groups)
    test: list[str] = []
    train: list[str] = []
    for group in groups:
        side = test if len(test) < int(test_fraction * len(clicks)) else train
        side.extend(group)
    return test, train


class _Groups:
    """Sets of queries joined by the concepts they share (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._first: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._first)

    def of(self, query: str) -> str:
        """The query that stands for the group of `query`."""
        root = query
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[query] != root:
            self._parent[query], query = root, self._parent[query]
        return root

    def join(self, query: str, concept: str) -> None:
        """Put `query` in the group of the other queries of `concept`."""
        self._parent.setdefault(query, query)
        other = self._first.setdefault(concept, query)
        self._parent[self.of(query)] = self.of(other)
