"""Word matches inside an embedding: what BM25 sees and a transformer forgets, without a second index.

Each word piece has a random direction, the same for queries and items, as long as the piece is rare. Added to the token
tables of both towers, texts that share rare pieces (names, codes, numbers) become similar, also where no click has ever
shown the piece: in a few hundred dimensions random directions hardly disturb each other or what is there. It is the
inner product of TF-IDF, to within the noise of a random projection. How much it counts is chosen on folds: it helps
where queries repeat the words of items, and harms where the clicks have taught what words mean.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import torch

from metaxc.arrays import Doubles, Floats
from metaxc.encoders.adapted import Tower, TwoTowers
from metaxc.encoders.tokens import TokenBags

WEIGHTS = (0.0, 0.5, 1.0)
"""How much word matches may count: the length of what they add, as a share of the length of what is there."""

SAMPLE = 2_048
"""Texts of each side on which lengths are measured."""

SEED = 20_240


def word_directions(bags: list[TokenBags], vocabulary: int, dim: int, bigrams: int = 0) -> Floats:
    """(vocabulary + bigrams, dim) float32: a random direction for each word piece, as long as the piece is rare: from 0
    for one that is in every text to 1 for one that is in none. Bigrams have none: their pieces match already.

    Args:
        bags: The tokens of all texts, of queries and items.
        vocabulary: The number of word pieces.
        dim: The size of an embedding.
        bigrams: The number of bigrams, which come after the word pieces.
    """
    directions = np.random.default_rng(SEED).standard_normal((vocabulary, dim), np.float32)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    texts = sum(len(one) for one in bags)
    contained = sum((_count_texts(one, vocabulary) for one in bags), np.zeros(vocabulary))
    rarity = np.log((1 + texts) / (1 + contained)) / np.log(1 + texts) if texts else np.ones(vocabulary)
    directions *= rarity[:, None].astype(np.float32)
    return np.concatenate([directions, np.zeros((bigrams, dim), np.float32)])


def _count_texts(bags: TokenBags, vocabulary: int) -> Doubles:
    """(vocabulary,) how many of the texts contain each word piece."""
    owner = np.repeat(np.arange(len(bags)), np.diff(bags.starts))
    pieces = bags.tokens < vocabulary
    once = np.unique(owner[pieces] * vocabulary + bags.tokens[pieces])
    return np.bincount(once % vocabulary, minlength=vocabulary).astype(np.float64)


def with_word_matches(
    towers: TwoTowers,
    directions: Floats,
    weight: float,
    queries: tuple[Floats, TokenBags],
    items: tuple[Floats, TokenBags],
) -> TwoTowers:
    """A copy of the towers in which word matches count.

    Args:
        towers: Towers on a frozen encoder.
        directions: From `word_directions`.
        weight: How much they count, as in `WEIGHTS`.
        queries: Frozen embeddings and word pieces of some queries, on which lengths are measured.
        items: The same of some items.
    """
    copy = deepcopy(towers)
    for tower, (frozen, bags) in ((copy.query, queries), (copy.item, items)):
        words = Tower(len(directions), directions.shape[1], base=False)
        with torch.no_grad():
            words.table.copy_(torch.from_numpy(directions))
            added = _mean_length(words, None, bags)
            if added > 0:
                tower.table.add_(words.table, alpha=weight * _mean_length(tower, frozen, bags) / added)
    return copy


def _mean_length(tower: Tower, frozen: Floats | None, bags: TokenBags) -> float:
    """The mean length of what a tower adds up, before it is scaled to one."""
    rows = np.arange(0, len(bags), max(1, len(bags) // SAMPLE))
    x = None if frozen is None else torch.from_numpy(np.array(frozen[rows]))
    return float(tower.add_up(x, *bags.batch(rows)).norm(dim=1).mean()) if len(rows) else 0.0
