"""Synthetic click logs of any size, to measure how time and memory grow where no real log is large enough.

Every item belongs to a topic. The popularity of items follows Zipf's law: the item of rank r gets clicks in proportion
to r to the power of −`zipf`, and one more where there are enough. Queries belong to topics too, and click items of
their own topic, apart from a share of off-topic clicks. Texts are made-up words: an item has a name of its own, words
of its topic, words that several topics share, and common English words; a query has words of its topic, common words,
and sometimes the name of an item that it clicks. So encoders can learn topics, neighbours inform each other, and word
overlap alone does not find everything. No two items and no two queries have the same text.

Everything is a function of the seed, computed in blocks of topics with numpy and written as it is computed: besides the
counts per item and per query, nothing is held in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from metaxc.arrays import Doubles, Mask, Rows
from metaxc.data.synthetic_words import COMMON, common_words, make_words, scramble

ITEMS_PER_TOPIC = 50
"""Enough that neighbours exist, few enough that a topic's words tell something about the items."""

TOPIC_WORDS, SHARED_WORDS = 6, 3
"""Words that only one topic has, and words that it has in common with others."""

MOST_POPULAR = 0.01
"""Share of the queries that click the most popular item, at most: sources of real data drop items above 1 or 2 %."""

NAMED = 0.3
"""Share of the queries that contain the name of an item that they click."""

CLICKS_PER_QUERY_SPREAD = 0.5
"""Standard deviation of the logarithm of a topic's clicks per query, so that these differ between topics."""

BLOCK_CLICKS = 1_000_000
"""Clicks computed at once: the arrays and lines of a block take some 300 MB."""

DAY = 86_400
START = 1_704_067_200
"""2024-01-01, when the first items appear in logs with times."""


class SyntheticConfig(BaseModel):
    """What a synthetic click log looks like."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    items: int = Field(10_000, ge=20, description="number of items, such as 1e6")
    queries: int = Field(
        12_500, ge=20, description="number of queries in the training and test part together"
    )
    clicks: int = Field(
        50_000,
        ge=20,
        description="number of distinct pairs of a query and an item; those of training queries and novel items are "
        "then left out",
    )
    zipf: float = Field(1.0, ge=0, le=3, description="exponent of the popularity of items; 0 for none")
    topics: int | None = Field(
        None, ge=1, description=f"number of topics; one for {ITEMS_PER_TOPIC} items if not given"
    )
    off_topic: float = Field(0.05, ge=0, le=0.9, description="share of the clicks on items of other topics")
    novel: float = Field(0.1, gt=0, lt=1, description="share of the items that are novel")
    test: float = Field(0.15, gt=0, lt=1, description="share of the queries that are the test part")
    days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="days over which items appear and are clicked; then the log has times and no split "
        "(metaxc data split --by time); 0 for no times",
    )
    seed: int = Field(0, ge=0, description="seed of everything random")

    @model_validator(mode="after")
    def _fit_together(self) -> SyntheticConfig:
        if not self.queries <= self.clicks <= self.queries * self.items // 4:
            raise ValueError(
                "clicks: every query has at least one, and at most a quarter of all pairs are clicked: from "
                f"{self.queries:,} to {self.queries * self.items // 4:,}"
            )
        if self.topics is not None and self.topics > self.items:
            raise ValueError(f"topics: at most one for each of the {self.items:,} items")
        return self


@dataclass(frozen=True)
class _Block:
    """A run of topics: its items in order of topic, its queries, and the clicks on its items.

    Args:
        items: First and last + 1 position of its items.
        queries: First and last + 1 of its queries.
        clicked: (clicks,) positions of clicked items.
        clickers: (clicks,) the queries that clicked them, some of them of other blocks.
        named: (queries,) position of the item whose name each query would contain.
    """

    items: tuple[int, int]
    queries: tuple[int, int]
    clicked: Rows
    clickers: Rows
    named: Rows


class SyntheticLog:
    """A synthetic click log, computed block by block.

    Args:
        config: What it looks like.

    Example:
        >>> log = SyntheticLog(SyntheticConfig(items=1000, queries=2000, clicks=8000))
        >>> sum(len(block.clicked) for block in log.blocks())
        8000
    """

    def __init__(self, config: SyntheticConfig):
        self.config = config
        items = config.items
        self.topics = config.topics or max(1, items // ITEMS_PER_TOPIC)
        random = np.random.default_rng([config.seed, 0])
        # Row of the item at a position, and back: positions are in the order of topics, which rows must not show.
        self.row_of: Rows = random.permutation(items)
        self.topic_of: Rows = np.arange(items) * self.topics // items
        self.topic_items = np.searchsorted(self.topic_of, np.arange(self.topics + 1))
        self.item_clicks = round_to_sum(self._expected_clicks(random.permutation(items)))
        # Every query has a click on an item of its own topic: so many clicks stay inside, whatever else is asked for.
        off_topic = min(config.off_topic, 1 - config.queries / config.clicks) if self.topics > 1 else 0.0
        off = round_to_sum(self.item_clicks.astype(np.float64) * off_topic)
        inside = np.add.reduceat(self.item_clicks - off, self.topic_items[:-1])
        spread = random.lognormal(0, CLICKS_PER_QUERY_SPREAD, self.topics)
        counts = share_out(config.queries, inside * spread, inside)
        self.topic_queries = np.concatenate([[0], np.cumsum(counts)])
        # An item has at most one click of each query, of its own topic and of the others.
        inside_most = counts[self.topic_of]
        least = self.item_clicks - (config.queries - inside_most)
        self.inside_clicks = np.maximum(np.minimum(self.item_clicks - off, inside_most), least)
        starts = random.integers(0, self._shared_pool, self.topics)
        self.shared_words = (starts[:, None] + np.arange(SHARED_WORDS)) % self._shared_pool

    @property
    def _shared_pool(self) -> int:
        """Number of words that topics share: each is in three of them, on average."""
        return max(SHARED_WORDS * 2, self.topics)

    def _expected_clicks(self, rank: Rows) -> Doubles:
        """(items,) clicks by popularity; the sum is `config.clicks`."""
        config = self.config
        # One click for each item where that leaves at least as many for the popular ones.
        base = min(1.0, config.clicks / (2 * config.items))
        weights: Doubles = np.power(rank + 1.0, -config.zipf, dtype=np.float64)
        most = max(MOST_POPULAR * config.queries, 2.0 * config.clicks / config.items)
        extra = spread_below(config.clicks - base * config.items, weights, most - base)
        return base + extra

    @cached_property
    def novel(self) -> Mask:
        """(items,) bool by row: which items are novel; none in a log with times."""
        mask = np.zeros(self.config.items, dtype=bool)
        if not self.config.days:
            count = max(1, round(self.config.novel * self.config.items))
            random = np.random.default_rng([self.config.seed, 1])
            mask[random.choice(self.config.items, count, replace=False)] = True
        return mask

    @cached_property
    def test(self) -> Mask:
        """(queries,) bool: the queries of the test part. Those that click only novel items are in it: there is nothing
        to learn from them."""
        config = self.config
        if config.days:
            return np.zeros(config.queries, dtype=bool)
        random = np.random.default_rng([config.seed, 2])
        learnable = np.zeros(config.queries, dtype=bool)
        for block in self.blocks():
            learnable[block.clickers[~self.novel[self.row_of[block.clicked]]]] = True
        drawn: Mask = random.random(config.queries) < config.test
        return drawn | ~learnable

    @cached_property
    def first_seen(self) -> Rows:
        """(items,) by row: when each item appears, in seconds since 1970; in the first nine tenths of the days."""
        random = np.random.default_rng([self.config.seed, 3])
        return START + (random.random(self.config.items) * 0.9 * self.config.days * DAY).astype(np.int64)

    def blocks(self) -> Iterator[_Block]:
        """The log in runs of topics, each time the same."""
        sums = np.concatenate([[0], np.cumsum(np.add.reduceat(self.item_clicks, self.topic_items[:-1]))])
        first = 0
        while first < self.topics:
            last = max(first + 1, int(np.searchsorted(sums, sums[first] + BLOCK_CLICKS, side="right")) - 1)
            yield self._block(first, last)
            first = last

    def _block(self, first: int, last: int) -> _Block:
        """The topics from `first` to `last` − 1. Within a topic the clicks are dealt out like cards, item after item:
        an item never has more of them than the topic has queries, so no pair comes twice."""
        low, high = int(self.topic_items[first]), int(self.topic_items[last])
        positions, inside = np.arange(low, high), self.inside_clicks[low:high]
        clicked = np.repeat(positions, inside)
        topics = self.topic_of[clicked]
        start = np.concatenate([[0], np.cumsum(np.add.reduceat(inside, self.topic_items[first:last] - low))])
        begins, ends = self.topic_queries[topics], self.topic_queries[topics + 1]
        dealt = np.arange(len(clicked)) - start[topics - first]
        clickers = begins + dealt % (ends - begins)
        named = clicked[dealt < ends - begins]

        outside = self.item_clicks[low:high] - inside
        again = np.repeat(positions, outside)
        topics = self.topic_of[again]
        begins, ends = self.topic_queries[topics], self.topic_queries[topics + 1]
        others = self.config.queries - (ends - begins)
        number = np.arange(len(again)) - np.repeat(np.cumsum(outside) - outside, outside)
        # Evenly spread over the queries of all other topics, from a random start: no pair comes twice here either.
        offset = scramble(again, self.config.seed) / 2**31
        step = others / np.maximum(np.repeat(outside, outside), 1)
        places = np.minimum(((number + offset) * step).astype(np.int64), others - 1)
        off_topic = places + np.where(places >= begins, ends - begins, 0)
        queries = int(self.topic_queries[first]), int(self.topic_queries[last])
        return _Block(
            (low, high),
            queries,
            np.concatenate([clicked, again]),
            np.concatenate([clickers, off_topic]),
            named,
        )

    def item_texts(self, positions: Rows) -> list[str]:
        """The name of each item, two words of its topic, one that topics share, and a common one."""
        topics, draws = self.topic_of[positions], scramble(positions, self.config.seed)
        first = draws % TOPIC_WORDS
        second = (first + 1 + draws // 7 % (TOPIC_WORDS - 1)) % TOPIC_WORDS
        shared = self.shared_words[topics, draws // 64 % SHARED_WORDS]
        parts = [
            self._names(positions),
            make_words(self._shared_pool + topics * TOPIC_WORDS + first),
            make_words(self._shared_pool + topics * TOPIC_WORDS + second),
            make_words(shared),
            [COMMON[one] for one in (draws // 1024 % len(COMMON)).tolist()],
        ]
        return [" ".join(words) for words in zip(*parts, strict=True)]

    def query_texts(self, block: _Block) -> list[str]:
        """Two words of the query's topic, as many common words as tell the topic's queries apart, and for some the name
        of an item that the query clicks."""
        rows = np.arange(*block.queries)
        topics = np.searchsorted(self.topic_queries, rows, side="right") - 1
        number = rows - self.topic_queries[topics]
        own, rest = number % TOPIC_WORDS, number // TOPIC_WORDS
        second = rest % (TOPIC_WORDS - 1 + SHARED_WORDS)
        rest //= TOPIC_WORDS - 1 + SHARED_WORDS
        other = (own + 1 + second) % TOPIC_WORDS
        words = np.where(
            second < TOPIC_WORDS - 1,
            self._shared_pool + topics * TOPIC_WORDS + other,
            self.shared_words[topics, (second - TOPIC_WORDS + 1).clip(min=0)],
        )
        first = make_words(self._shared_pool + topics * TOPIC_WORDS + own)
        named = scramble(rows, self.config.seed + 1) % 1000 < 1000 * NAMED
        names = [
            f" {name}" if use else ""
            for name, use in zip(self._names(block.named), named.tolist(), strict=True)
        ]
        tails = [common_words(one) for one in rest.tolist()]
        return [
            f"{tail} {one} {two}{name}"
            for tail, one, two, name in zip(tails, first, make_words(words), names, strict=True)
        ]

    def _names(self, positions: Rows) -> list[str]:
        return make_words(self._shared_pool + self.topics * TOPIC_WORDS + positions)


def write_synthetic(folder: Path, config: SyntheticConfig) -> dict[str, int]:
    """Write a synthetic click log as a data set folder; with a test part and a novel.txt, or with times.

    Args:
        folder: An empty folder.
        config: What the log looks like.

    Returns:
        The numbers of items, novel items, training and test queries, and clicks of the two that were written.
    """
    log = SyntheticLog(config)
    counts = dict.fromkeys(
        ("items", "novel", "train queries", "test queries", "train clicks", "test clicks"), 0
    )
    counts |= {"items": config.items, "novel": int(log.novel.sum())}
    parts = {False: ".train", True: ".test"} if not config.days else {False: ""}
    with ExitStack() as files:

        def create(name: str) -> IO[str]:
            return files.enter_context((folder / name).open("w", encoding="utf-8", newline="\n"))

        _write_items(log, create("items.jsonl"))
        if not config.days:
            novel = create("novel.txt")
            novel.writelines(f"i{row}\n" for row in np.flatnonzero(log.novel).tolist())
        queries = {test: create(f"queries{part}.jsonl") for test, part in parts.items()}
        clicks = {test: create(f"clicks{part}.tsv") for test, part in parts.items()}
        for number, block in enumerate(log.blocks()):
            rows = np.arange(*block.queries)
            for row, text, test in zip(
                rows.tolist(), log.query_texts(block), log.test[rows].tolist(), strict=True
            ):
                queries[test].write(f'{{"id": "q{row}", "text": "{text}"}}\n')
            items, test_clicks = log.row_of[block.clicked], log.test[block.clickers]
            for test in parts:
                name = "test" if test else "train"
                kept = test_clicks if test else ~test_clicks & ~log.novel[items]
                counts[f"{name} queries"] += int((log.test[rows] == test).sum())
                counts[f"{name} clicks"] += int(kept.sum())
                clicks[test].writelines(_click_lines(log, block.clickers[kept], items[kept], number))
    return counts


def _write_items(log: SyntheticLog, file: IO[str]) -> None:
    position_of = np.empty_like(log.row_of)
    position_of[log.row_of] = np.arange(len(log.row_of))
    seen = log.first_seen if log.config.days else None
    for start in range(0, len(position_of), BLOCK_CLICKS // 4):
        positions = position_of[start : start + BLOCK_CLICKS // 4]
        for row, text in enumerate(log.item_texts(positions), start):
            time = "" if seen is None else f', "first_seen": {seen[row]}'
            file.write(f'{{"id": "i{row}", "text": "{text}"{time}}}\n')


def _click_lines(log: SyntheticLog, queries: Rows, items: Rows, block: int) -> Iterator[str]:
    pairs = zip(queries.tolist(), items.tolist(), strict=True)
    if not log.config.days:
        return (f"q{query}\ti{item}\n" for query, item in pairs)
    random = np.random.default_rng([log.config.seed, 4, block])
    seen, end = log.first_seen[items], START + log.config.days * DAY
    times = seen + (random.random(len(items)) * (end - seen)).astype(np.int64)
    return (f"q{query}\ti{item}\t{time}\n" for (query, item), time in zip(pairs, times.tolist(), strict=True))


def round_to_sum(values: Doubles) -> Rows:
    """Whole numbers with the rounded sum of `values`, each less than 1 away from its value."""
    rounded: Rows = np.diff(np.floor(np.cumsum(values) + 0.5), prepend=0.0).astype(np.int64)
    return rounded


def spread_below(total: float, weights: Doubles, most: float) -> Doubles:
    """A total spread in proportion to weights, with at most `most` for each; what is above goes to the others."""
    shares = np.zeros_like(weights)
    free = np.ones(len(weights), dtype=bool)
    while free.any() and total > 0:
        shares[free] = total * weights[free] / weights[free].sum()
        above = free & (shares > most)
        if not above.any():
            break
        shares[above] = most
        total -= most * int(above.sum())
        free &= ~above
    return shares


def share_out(total: int, weights: Doubles, most: Rows) -> Rows:
    """Whole numbers from 0 to `most` that sum up to `total`, about in proportion to weights."""
    if most.sum() < total:
        raise ValueError(f"{total:,} cannot be shared out with at most {most.sum():,}")
    values = np.minimum(weights * (total / weights.sum()), most)
    for _ in range(100):
        missing = total - values.sum()
        room = most - values if missing > 0 else values
        if abs(missing) < 0.5 or not room.any():
            break
        values = np.clip(values + missing * room / room.sum(), 0, most)
    counts = np.clip(round_to_sum(values), 0, most)
    while missing_count := total - int(counts.sum()):
        step = 1 if missing_count > 0 else -1
        movable = np.flatnonzero(counts < most) if step > 0 else np.flatnonzero(counts > 0)
        counts[movable[: abs(missing_count)]] += step
    return counts
