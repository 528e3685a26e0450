"""Figures that tell whether a new generation of a catalog may take the place of the one in use.

Both generations hold the same items and clicks; their models differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Keys
from metaxc.catalog.item_clicks import ItemClicks
from metaxc.catalog.known_queries import KnownQuery, list_clicked, list_known, read_embeddings
from metaxc.catalog.reader import CatalogReader
from metaxc.catalog.records import ItemRow

FIRST = 10
"""Answers of a query that are compared."""

AT_ONCE = 16
"""Queries that are encoded and searched together; more would delay the searches of others."""


@dataclass(frozen=True)
class GenerationChecks:
    """What was found on samples.

    Args:
        queries: Number of sampled queries: known ones, then recently clicked ones. Without any, nothing is
            compared: the recall is 1 and the change 0.
        recall: Share of the ten exact answers of a query that the new index finds.
        changed: Share of the first ten answers that are others in the new generation.
        novel_clicks: Number of recent clicks on items that neither model was trained on.
        novel_recall_before: R@10 of these clicks, each item represented as if nobody had clicked it, by the old model;
            None without such clicks.
        novel_recall_after: The same by the new model.
    """

    queries: int
    recall: float
    changed: float
    novel_clicks: int
    novel_recall_before: float | None
    novel_recall_after: float | None


def compare_generations(old: CatalogReader, new: CatalogReader, sample: int = 200) -> GenerationChecks:
    """Compare a new generation with the one in use, with at most `sample` queries and `sample` clicks."""
    queries = sample_queries(old, sample)
    recalls: list[float] = []
    changes: list[float] = []
    for start in range(0, len(queries), AT_ONCE):
        block = queries[start : start + AT_ONCE]
        stored = zip(block, read_embeddings(old.store, block), read_embeddings(new.store, block), strict=True)
        there = [
            (query.text, one, other) for query, one, other in stored if one is not None and other is not None
        ]
        if not there:
            continue
        texts = [text for text, _, _ in there]
        encoded = new.encode([other for _, _, other in there])
        recalls += compute_recalls(new.index_search(encoded, FIRST)[0], new.exact_search(encoded, FIRST)[0])
        answers_before = old.search(old.encode([one for _, one, _ in there]), FIRST, texts=texts)
        for before, after in zip(answers_before, new.search(encoded, FIRST, texts=texts), strict=True):
            ids, new_ids = {hit.id for hit in before}, {hit.id for hit in after}
            most = max(len(ids), len(new_ids))
            changes.append(1 - len(ids & new_ids) / most if most else 0.0)
    clicks = recent_novel_clicks(old, new, sample)
    return GenerationChecks(
        len(queries),
        float(np.mean(recalls)) if recalls else 1.0,
        float(np.mean(changes)) if changes else 0.0,
        len(clicks),
        novel_recall(old, clicks),
        novel_recall(new, clicks),
    )


def sample_queries(catalog: CatalogReader, count: int) -> list[KnownQuery]:
    """At most so many queries that the catalog knows, always the same ones."""
    known = list_known(catalog.store)
    found: dict[str, KnownQuery] = {}
    for queries in (known, list_clicked(catalog.store, count)):
        left = count - len(found)
        step = max(len(queries) / left, 1.0) if left else 1.0
        for query in [queries[int(step * place)] for place in range(min(left, len(queries)))]:
            found.setdefault(query.text, query)
    return list(found.values())


def recent_novel_clicks(old: CatalogReader, new: CatalogReader, count: int) -> list[tuple[str, int]]:
    """At most so many of the newest clicks, as (item, number), on items that neither model was trained on."""
    trained = {new.model.items.ids[row] for row in new.model.observed.tolist()}
    rows = old.store.fetch_all(
        "SELECT items.id, number FROM clicks JOIN items USING (key) WHERE NOT trained ORDER BY number DESC LIMIT ?",
        (4 * count,),
    )
    there = [(item, number) for item, number in rows if item not in trained and item in new]
    return there[:count]


def novel_recall(catalog: CatalogReader, clicks: Sequence[tuple[str, int]]) -> float | None:
    """The share of clicks, given as (item, number), whose item is among the first ten when it is represented as if
    nobody had clicked it."""
    hits: list[bool] = []
    for start in range(0, len(clicks), AT_ONCE):
        block = clicks[start : start + AT_ONCE]
        embeddings = read_embeddings(catalog.store, [KnownQuery("", "clicks", number) for _, number in block])
        rows = [_read_row(catalog, id) for id, _ in block]
        # Items may have been deleted meanwhile, and clicks taken back.
        there = [
            (row, one)
            for row, one in zip(rows, embeddings, strict=True)
            if row is not None and one is not None
        ]
        if not there:
            continue
        novel = [row for row, _ in there]
        none = [ItemClicks.none(catalog.store.dim)] * len(novel)
        vectors = np.stack([stage.vector for stage in catalog.follower.lifecycle.stages(novel, none)])
        queries = catalog.encode([one for _, one in there])
        keys, scores = catalog.index_search(queries, FIRST + 1)
        own = (queries * vectors).sum(axis=1)
        others = keys != np.array([row.key for row in novel])[:, None]
        better = (others & (keys >= 0) & (scores > own[:, None])).sum(axis=1)
        hits += (better < FIRST).tolist()
    return float(np.mean(hits)) if hits else None


def compute_recalls(found: Keys, exact: Keys) -> list[float]:
    """The recall of each query with exact results: found and exact are (queries, k), padded with −1."""
    pairs = [
        (set(one.tolist()) - {-1}, set(other.tolist()) - {-1})
        for one, other in zip(found, exact, strict=True)
    ]
    return [len(keys & expected) / len(expected) for keys, expected in pairs if expected]


def _read_row(catalog: CatalogReader, id: str) -> ItemRow | None:
    found = catalog.store.fetch_items("WHERE id = ?", (id,))
    return ItemRow.from_values(found[0]) if found else None
