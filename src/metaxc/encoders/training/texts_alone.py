"""Training pairs from texts alone, without a click: what MACLR pre-trains on.

Xiong et al., *Extreme Zero-Shot Learning for Extreme Text Classification* (NAACL 2022). Four kinds of pseudo-clicks, in
one click matrix over pseudo-queries and pseudo-items, so that the one trainer and its multi-positive mask serve:

- inverse cloze: a span of a text, and the text without it;
- span pairs: two spans of one text;
- clusters at several scales of TF-IDF's latent space: texts of one cluster click one another;
- TF-IDF's nearest item of a query, where they have enough in common.

Simplified for a CPU: clusters are made once, by random halving, and all scales stand in one pool; the paper makes them
anew with the encoder, coarse before fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data import click_matrix
from metaxc.encoders.training.batches import near_groups
from metaxc.encoders.training.negatives import hardest
from metaxc.errors import DataError
from metaxc.extras import import_extra

FEWEST_WORDS = 4
SCALES = (4, 16)
NEAR_ITEMS, COMMON = 2, 0.2
LATENT = 64
CLUSTER_PAIRS = 3
"""Members of its cluster that a text is paired with, at each scale."""


@dataclass(frozen=True)
class Pairs:
    """Pseudo-queries, pseudo-items and what would be clicked."""

    queries: list[str]
    items: list[str]
    clicks: csr_array


def pairs_from_texts(queries: Sequence[str], items: Sequence[str], *, most: int, seed: int = 0) -> Pairs:
    """Pairs of all four kinds, at most `most` of each.

    Args:
        queries: Texts of the training queries.
        items: Texts of the observed items.
        most: Pairs of each kind, about; the texts they start from are drawn at random.
        seed: Of all draws.
    """
    random = np.random.default_rng(seed)
    texts = list(dict.fromkeys([*items, *queries]))
    row_of = {text: row for row, text in enumerate(texts)}
    left: list[str] = []
    right: list[str] = list(texts)  # a text is an item of itself; halves of texts come behind
    pairs: list[tuple[int, int]] = []
    for first, second in _spans(texts, most, random):
        pairs.append((len(left), len(right)))
        left.append(first)
        right.append(second)
    asked, terms, item_terms = _tfidf(queries, items, texts, most, random)
    near = _nearest_items(asked, item_terms)
    found = [
        *((queries[row], row_of[items[column]]) for row, column in near),
        *((texts[row], column) for row, column in _clusters(terms, most, random)),
    ]
    place_of: dict[str, int] = {}
    for text, column in found:
        if text not in place_of:
            place_of[text] = len(left)
            left.append(text)
        pairs.append((place_of[text], column))
    if not pairs:
        raise DataError(
            "The texts give no pairs to pre-train on",
            got=f"{len(texts):,} texts",
            expected=f"texts of {FEWEST_WORDS} words or more, or words in common",
        )
    rows, columns = np.asarray(pairs, dtype=np.int64).T
    return Pairs(left, right, click_matrix(rows, columns, (len(left), len(right))))


def _spans(texts: Sequence[str], most: int, random: np.random.Generator) -> list[tuple[str, str]]:
    """A span of a text with the rest of it, or with another span of it, by turns."""
    found: list[tuple[str, str]] = []
    for row in random.permutation(len(texts)).tolist():
        words = texts[row].split()
        if len(words) < FEWEST_WORDS:
            continue
        length = int(random.integers(len(words) // 3 + 1, len(words) // 2 + 1))
        start = int(random.integers(0, len(words) - length + 1))
        rest = [*words[:start], *words[start + length :]]
        if len(found) % 2:
            again = int(random.integers(0, len(words) - length + 1))
            rest = words[again : again + length]
        found.append((" ".join(words[start : start + length]), " ".join(rest)))
        if len(found) == most:
            break
    return found


def _tfidf(
    queries: Sequence[str], items: Sequence[str], texts: Sequence[str], most: int, random: np.random.Generator
) -> tuple[tuple[Rows, csr_array], csr_array, csr_array]:
    """Rows and terms of `most` queries, the terms of all texts, those of the items."""
    vectorizer = import_extra("sklearn.feature_extraction.text", "research").TfidfVectorizer(
        dtype=np.float32, min_df=1
    )
    try:
        terms = csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        raise DataError("The texts have no words", got=str(error), expected="words of two letters") from error
    asked = random.permutation(len(queries))[:most]
    of_asked = csr_array(vectorizer.transform([queries[row] for row in asked]))
    return (asked, of_asked), terms, csr_array(vectorizer.transform(items))


def _nearest_items(asked: tuple[Rows, csr_array], items: csr_array) -> list[tuple[int, int]]:
    """(query row, item row) of the nearest items that have enough in common; an item of the same text is no news."""
    rows, queries = asked
    none = np.empty(0, np.int64)
    nothing = click_matrix(none, none, (queries.shape[0], items.shape[0]))
    best = hardest(lambda some: (queries[some] @ items.T).toarray(), nothing, NEAR_ITEMS)
    place, rank = np.nonzero(best >= 0)
    column = best[place, rank]
    common = np.asarray(queries[place].multiply(items[column]).sum(axis=1)).ravel()
    kept = (common >= COMMON) & (common < 0.999)
    return list(zip(rows[place[kept]].tolist(), column[kept].tolist(), strict=True))


def _clusters(terms: csr_array, most: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """(text, text) rows of one cluster, at every scale."""
    texts = terms.shape[0]
    dim = min(LATENT, terms.shape[1] - 1, texts - 1)
    if dim < 1:
        return []
    svd = import_extra("sklearn.decomposition", "research").TruncatedSVD(
        dim, random_state=int(random.integers(2**31))
    )
    latent = np.asarray(svd.fit_transform(terms), dtype=np.float32)
    wanted = np.zeros(texts, dtype=bool)
    wanted[random.permutation(texts)[: most // CLUSTER_PAIRS // len(SCALES) + 1]] = True
    found = []
    for size in SCALES:
        for group in near_groups(latent, size, random):
            for row in group[wanted[group]].tolist():
                others = group[group != row]
                for column in random.permutation(others)[:CLUSTER_PAIRS].tolist():
                    found.append((row, column))
    return found
