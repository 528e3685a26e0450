"""The rules that all sources share: from phrases and their headings to a `Dataset`.

Phrases with the same text (ignoring case and white space) become one query, headings with the same text become one
item; the first spelling is used. A phrase never clicks an item with its own text, which would be trivial to find. Items
that fewer than two queries click leave nothing to test, and items that a large share of all queries click carry no
information; both are dropped, together with queries that have no click left. All phrases of a concept are on one side
of the split, so that a test query is not a synonym of a training query; concepts that share a phrase count as one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.errors import DataError

SEED = 7
"""Seed of the split into train and test queries."""

TEST_FRACTION = 0.15
"""Share of the queries that are held out for testing."""

MIN_QUERIES = 2
"""An item needs one query to learn from and one to test with."""


@dataclass(frozen=True)
class Phrase:
    """One wording of a concept.

    Args:
        concept: Key of the concept; phrases of one concept are on the same side of the split.
        text: The wording, which becomes a query.
        headings: Texts of the items that it clicks.
    """

    concept: str
    text: str
    headings: Sequence[str]


def one_line(text: str) -> str:
    """The text with each run of white space replaced by one space."""
    return " ".join(text.split())


def collect_reachable(start: str, next_keys: Callable[[str], Iterable[str]]) -> dict[str, None]:
    """Keys that can be reached from `start` by repeated calls of `next_keys`, nearest first."""
    reached: dict[str, None] = {}
    frontier = [start]
    while frontier:
        found = dict.fromkeys(key for at in frontier for key in next_keys(at))
        frontier = [key for key in found if key not in reached]
        reached.update(dict.fromkeys(frontier))
    return reached


def assemble(
    phrases: Iterable[Phrase],
    *,
    name: str,
    largest_share: float = 0.02,
    test_fraction: float = TEST_FRACTION,
    seed: int = SEED,
) -> Dataset:
    """Merge phrases, drop rare and common items, and split the queries into a training and a test log.

    Args:
        phrases: All wordings of all concepts, in the order of the source.
        name: Name of the data set in reports.
        largest_share: Items clicked by more than this share of the queries are dropped.
        test_fraction: Share of the queries that are held out for testing, by whole concepts.
        seed: Seed of the shuffle of the concepts before the split.

    Returns:
        The data set, with items "i0", … in the order of their lower-cased text and queries "q0", …, test queries first.
    """
    if not 0 < test_fraction < 1:
        raise DataError("The test fraction is out of range", got=test_fraction, expected="between 0 and 1")
    queries: dict[str, str] = {}
    headings: dict[str, str] = {}
    clicks: dict[str, set[str]] = {}
    concepts = _ConceptGroups()
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
    clicks = _drop_items(clicks, largest_share)
    if not clicks:
        raise DataError(
            f"The source {name} has no usable click",
            got=f"{len(concepts):,} concepts",
            expected=f"items that at least {MIN_QUERIES} queries click",
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


def _drop_items(clicks: dict[str, set[str]], largest_share: float) -> dict[str, set[str]]:
    """The clicks on items that are neither too rare nor too common; queries without such a click are dropped.

    Dropping a query changes the click counts, so this is repeated until nothing changes.
    """
    clicks = {query: clicked for query, clicked in clicks.items() if clicked}
    while True:
        count = Counter(item for clicked in clicks.values() for item in clicked)
        most = largest_share * len(clicks)
        kept = {item for item, queries in count.items() if MIN_QUERIES <= queries <= most}
        if len(kept) == len(count):
            return clicks
        clicks = {query: clicked & kept for query, clicked in clicks.items() if not clicked.isdisjoint(kept)}


def _split(
    clicks: dict[str, set[str]], concepts: _ConceptGroups, test_fraction: float, seed: int
) -> tuple[list[str], list[str]]:
    """Test and training queries: shuffled concepts fill the test part until it has its share."""
    members: dict[str, list[str]] = {}
    # Sorted by text, so that the split does not depend on the order of the source's files.
    for query in sorted(clicks):
        members.setdefault(concepts.find(query), []).append(query)
    groups = list(members.values())
    random.Random(seed).shuffle(groups)
    test: list[str] = []
    train: list[str] = []
    for group in groups:
        side = test if len(test) < int(test_fraction * len(clicks)) else train
        side.extend(group)
    return test, train


class _ConceptGroups:
    """Sets of queries that share concepts (union-find)."""

    def __init__(self) -> None:
        self._parent: dict[str, str] = {}
        self._first: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._first)

    def find(self, query: str) -> str:
        """The query that represents the group of `query`."""
        root = query
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[query] != root:
            self._parent[query], query = root, self._parent[query]
        return root

    def join(self, query: str, concept: str) -> None:
        """Add `query` to the group of the other queries of `concept`."""
        self._parent.setdefault(query, query)
        other = self._first.setdefault(concept, query)
        self._parent[self.find(query)] = self.find(other)
