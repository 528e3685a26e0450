"""Training pairs from texts alone, without clicks: what MACLR pre-trains on.

Xiong et al., *Extreme Zero-Shot Learning for Extreme Text Classification* (NAACL 2022). There are four kinds of
pseudo-clicks, in one click matrix over pseudo-queries and pseudo-items, so that the trainer and its mask of clicked
pairs apply unchanged:

- inverse cloze: a span of a text, and the text without it;
- span pairs: two spans of one text;
- clusters of several sizes in the latent space of TF-IDF: texts of one cluster click one another;
- the nearest item of a query by TF-IDF, where they have enough in common.

Simplified for a CPU: clusters are built once, by random halving, and those of all sizes are used together; the paper
builds them again with the encoder, and goes from coarse to fine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data import click_matrix
from metaxc.encoders.training.batches import build_clusters
from metaxc.encoders.training.negatives import hardest
from metaxc.errors import DataError
from metaxc.extras import import_extra

MIN_WORDS = 4
CLUSTER_SIZES = (4, 16)
NEAR_ITEMS, MIN_SIMILARITY = 2, 0.2
LATENT_DIM = 64
CLUSTER_PAIRS = 3
"""The number of members of its cluster that a text is paired with, for each cluster size."""


@dataclass(frozen=True)
class TextPairs:
    """Pseudo-queries, pseudo-items and the pseudo-clicks between them."""

    queries: list[str]
    items: list[str]
    clicks: csr_array


def build_text_pairs(queries: Sequence[str], items: Sequence[str], *, most: int, seed: int = 0) -> TextPairs:
    """Pairs of all four kinds, at most about `most` of each.

    Args:
        queries: The texts of the training queries.
        items: The texts of the observed items.
        most: The number of pairs of each kind, approximately; their texts are drawn at random.
        seed: Decides all draws.
    """
    random = np.random.default_rng(seed)
    texts = list(dict.fromkeys([*items, *queries]))
    row_by_text = {text: row for row, text in enumerate(texts)}
    left: list[str] = []
    right: list[str] = list(texts)  # every text is an item; the spans follow
    pairs: list[tuple[int, int]] = []
    for first, second in _span_pairs(texts, most, random):
        pairs.append((len(left), len(right)))
        left.append(first)
        right.append(second)
    sampled, terms, item_terms = _tfidf(queries, items, texts, most, random)
    near = _nearest_items(sampled, item_terms)
    found = [
        *((queries[row], row_by_text[items[column]]) for row, column in near),
        *((texts[row], column) for row, column in _cluster_pairs(terms, most, random)),
    ]
    row_by_query: dict[str, int] = {}
    for text, column in found:
        if text not in row_by_query:
            row_by_query[text] = len(left)
            left.append(text)
        pairs.append((row_by_query[text], column))
    if not pairs:
        raise DataError(
            "The texts give no pairs to pre-train on",
            got=f"{len(texts):,} texts",
            expected=f"texts of {MIN_WORDS} words or more, or words in common",
        )
    rows, columns = np.asarray(pairs, dtype=np.int64).T
    return TextPairs(left, right, click_matrix(rows, columns, (len(left), len(right))))


def _span_pairs(texts: Sequence[str], most: int, random: np.random.Generator) -> list[tuple[str, str]]:
    """A span of a text with the rest of the text, or with another span of it, in turn."""
    found: list[tuple[str, str]] = []
    for row in random.permutation(len(texts)).tolist():
        words = texts[row].split()
        if len(words) < MIN_WORDS:
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
    """Rows and TF-IDF vectors of `most` sampled queries, the vectors of all texts, and those of the items."""
    vectorizer = import_extra("sklearn.feature_extraction.text", "research").TfidfVectorizer(
        dtype=np.float32, min_df=1
    )
    try:
        terms = csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        raise DataError("The texts have no words", got=str(error), expected="words of two letters") from error
    rows = random.permutation(len(queries))[:most]
    query_terms = csr_array(vectorizer.transform([queries[row] for row in rows]))
    return (rows, query_terms), terms, csr_array(vectorizer.transform(items))


def _nearest_items(sampled: tuple[Rows, csr_array], items: csr_array) -> list[tuple[int, int]]:
    """(query row, item row) of the nearest items that are similar enough, except for items with the same text."""
    rows, queries = sampled
    empty = np.empty(0, np.int64)
    no_clicks = click_matrix(empty, empty, (queries.shape[0], items.shape[0]))
    best = hardest(lambda some: (queries[some] @ items.T).toarray(), no_clicks, NEAR_ITEMS)
    place, rank = np.nonzero(best >= 0)
    column = best[place, rank]
    similarity = np.asarray(queries[place].multiply(items[column]).sum(axis=1)).ravel()
    kept = (similarity >= MIN_SIMILARITY) & (similarity < 0.999)
    return list(zip(rows[place[kept]].tolist(), column[kept].tolist(), strict=True))


def _cluster_pairs(terms: csr_array, most: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """(text row, text row) of texts in one cluster, for every cluster size."""
    texts = terms.shape[0]
    dim = min(LATENT_DIM, terms.shape[1] - 1, texts - 1)
    if dim < 1:
        return []
    svd = import_extra("sklearn.decomposition", "research").TruncatedSVD(
        dim, random_state=int(random.integers(2**31))
    )
    latent = np.asarray(svd.fit_transform(terms), dtype=np.float32)
    wanted = np.zeros(texts, dtype=bool)
    wanted[random.permutation(texts)[: most // CLUSTER_PAIRS // len(CLUSTER_SIZES) + 1]] = True
    found = []
    for size in CLUSTER_SIZES:
        for cluster in build_clusters(latent, size, random):
            for row in cluster[wanted[cluster]].tolist():
                others = cluster[cluster != row]
                for column in random.permutation(others)[:CLUSTER_PAIRS].tolist():
                    found.append((row, column))
    return found
