"""Few-shot selection: an item's first clicked queries vote, together with its own text, for its neighbours.

This is the paper's one-shot form, for any number of queries. The item's text votes for the observed items with similar
texts, and each revealed query for the classifiers that score it highest. An observed item counts by the best vote that
it gets, and the K best are selected.

A text and a query score on different scales. A query's scores are therefore moved to the text's scale: its mean over
*all* observed items becomes the text's mean, and its best score the text's best. Every voter's first choice then counts
the same. Of four ways compared on pseudo-novel items (`benchmarks/votes.py`) none is clearly better. Equal spread
instead of equal best gains a little on one data set, but where only some items have first clicks it costs points on
another: classifiers' scores have longer tails than similarities of texts, so the queries take nearly all places. Ranks
are close. Raw scores change almost nothing: they are too low beside similarities of texts to win a place.

Neighbours that the text votes for keep their similarity to the last bit: an item without revealed queries has the
neighbours that it had. Only each voter's K best are considered, which is exact: a row that is not among the K best of
any voter cannot be among the K best of all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metaxc.arrays import Floats, Rows
from metaxc.index.topk import top_k
from metaxc.selectors.nearest import drop_one

OWN_TEXT = -1
"""The voter of a neighbour that the item's own text brought."""


@dataclass(frozen=True)
class Voters:
    """Elects neighbours among the vectors that can inform an item.

    Args:
        search: (n, dim) queries and k to the rows and scores, (n, k), of the vectors that score highest.
        mean_embedding: (dim,) mean of the embeddings that the items' texts were compared with.
        mean_vector: (dim,) mean of the vectors that the queries are compared with.
    """

    search: Callable[[Floats, int], tuple[Rows, Floats]]
    mean_embedding: Floats
    mean_vector: Floats

    @classmethod
    def over(cls, embeddings: Floats, vectors: Floats) -> Voters:
        """Voters for (m, dim) vectors whose items have these (m, dim) embeddings."""
        means = [rows.mean(axis=0, dtype=np.float64).astype(np.float32) for rows in (embeddings, vectors)]
        return cls(lambda queries, k: top_k(queries, vectors, k), *means)

    def elect(
        self,
        items: Floats,
        rows: Rows,
        scores: Floats,
        queries: Floats,
        owner: Rows,
        exclude_self: Rows | None = None,
    ) -> tuple[Rows, Floats, Rows]:
        """The neighbours of n items, after the votes; as `max_votes` returns them.

        Args:
            items: (n, dim) their embeddings.
            rows: (n, K) what their texts chose.
            scores: (n, K) how similar.
            queries: (voters, dim) the revealed queries.
            owner: (voters,) the item that each was revealed for.
            exclude_self: (n,) the row that each item is itself, −1 for none.
        """
        k = rows.shape[1]
        if exclude_self is None:
            voted, votes = self.search(queries, k)
        else:
            voted, votes = self.search(queries, k + 1)
            voted, votes = drop_one(voted, votes, exclude_self[owner])
        best = scores.max(axis=1, initial=-np.inf)
        votes = on_scale(votes, queries @ self.mean_vector, (items @ self.mean_embedding)[owner], best[owner])
        return max_votes(rows, scores, owner, voted, votes)


def on_scale(votes: Floats, mean: Floats, new_mean: Floats, new_best: Floats) -> Floats:
    """(voters, K): each voter's scores stretched so that its mean becomes `new_mean` and its best `new_best`.

    Args:
        votes: (voters, K) best first; −inf pads and stays.
        mean: (voters,) over all that could be voted for, not only these K.
        new_mean: (voters,).
        new_best: (voters,).
    """
    above = np.maximum(votes[:, :1] - mean[:, None], 1e-6)
    part = (votes - mean[:, None]) / above
    scaled = new_mean[:, None] + (new_best - new_mean)[:, None] * part
    return np.where(np.isneginf(votes), -np.inf, scaled).astype(np.float32)


def max_votes(
    rows: Rows, scores: Floats, owner: Rows, voted: Rows, votes: Floats
) -> tuple[Rows, Floats, Rows]:
    """The K rows of each item that got the best vote from any voter, best first.

    Args:
        rows: (n, K) what each item's own text chose, −1 pads.
        scores: (n, K) its similarities, −inf where padded.
        owner: (voters,) the item that each other voter votes for.
        voted: (voters, K) what they chose.
        votes: (voters, K) their scores, comparable with `scores`.

    Returns:
        rows and scores (n, K), and (n, K) the voter of each: `OWN_TEXT`, or the place of another voter. An
        item without other voters keeps its rows as they are. Ties go to the own text, then to the first voter.
    """
    rows, scores = rows.copy(), scores.copy()
    voter = np.full(rows.shape, OWN_TEXT, dtype=np.int64)
    k = rows.shape[1]
    places_of = np.split(np.argsort(owner, kind="stable"), np.cumsum(np.bincount(owner, minlength=len(rows))))
    for item in np.unique(owner):
        places = places_of[item]
        chosen = np.concatenate([rows[item], voted[places].ravel()])
        given = np.concatenate([scores[item], votes[places].ravel()])
        by = np.concatenate([voter[item], np.repeat(places, k)])
        best_first = np.lexsort((chosen, by, -given))
        first_places = np.sort(np.unique(chosen[best_first], return_index=True)[1])
        best = best_first[first_places]
        best = best[chosen[best] >= 0][:k]
        count = len(best)
        rows[item, :count], scores[item, :count], voter[item, :count] = chosen[best], given[best], by[best]
        rows[item, count:], scores[item, count:], voter[item, count:] = -1, -np.inf, OWN_TEXT
    return rows, scores, voter
