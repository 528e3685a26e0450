"""Neighbour kernel: a novel item is what its nearest observed items are.

Kernel regression (Nadaraya, 1964; Watson, 1964) of classifiers; ConSE (Norouzi et al., 2014) is its kin.

Learns ridge classifiers of the observed items, which score them. A novel item's vector is the mean of its K nearest
observed items' classifiers, weighted by softmax(similarity / temperature), at unit length, with nothing of its own
text: what `metaxc`'s combine would be without z. score(q, i) = ⟨x, w_i⟩. K and the temperature are chosen on one fold
of pseudo-novel items. Seconds, given the embeddings.
"""

from __future__ import annotations

from itertools import product
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.classifiers import ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.data import Dataset
from metaxc.encoders import Encoder
from metaxc.generators import Combine, gather
from metaxc.research.baselines.baseline import Dense, embed_training_data, encode_once
from metaxc.selectors import NearestSelector
from metaxc.tuning import TuningFold

NEIGHBOURS = (1, 3, 5, 10, 20)
TEMPERATURES = (0.03, 0.1, 0.3)
DEFAULT = (5, 0.1)
"""K and temperature where the data are too few to choose by."""


class NeighbourKernel:
    """Novel items by their neighbours' classifiers alone.

    Args:
        encoder: Any encoder.
        seed: Of the fold.
    """

    name: ClassVar[str] = "Neighbour kernel"

    def __init__(self, encoder: Encoder, seed: int = 0):
        self.encoder, self.seed = encoder, seed

    def fit(self, dataset: Dataset) -> Dense:
        observed, clicks, queries, items = embed_training_data(self.encoder, dataset)
        k, temperature = choose_kernel(queries, items[observed], clicks, self.seed)
        classifiers = ridge(queries, clicks).weights
        others = np.setdiff1d(np.arange(len(items)), observed)
        vectors = np.empty((len(items), classifiers.shape[1]), np.float32)
        vectors[observed] = classifiers
        vectors[others] = from_neighbours(items[others], items[observed], classifiers, k, temperature)
        return Dense(encode_once(self.encoder, dataset), vectors)


def from_neighbours(new: Floats, seen: Floats, classifiers: Floats, k: int, temperature: float) -> Floats:
    """(new, dim) unit rows: the softmax-weighted mean of the classifiers of each one's K nearest."""
    rows, similarities = NearestSelector(seen).select(new, k)
    mean = Combine(1.0, temperature).generate(np.zeros_like(new), gather(classifiers, rows), similarities)
    return normalize_rows(mean)


def choose_kernel(queries: Floats, items: Floats, clicks: csr_array, seed: int) -> tuple[int, float]:
    """K and temperature that rank the held-out queries of one fold best; the first where settings tie."""
    fold = TuningFold.draw(queries, clicks, seed)
    if fold is None:
        return DEFAULT
    classifiers = ridge(queries[fold.training_rows], fold.training_clicks).weights
    vectors = np.empty_like(items)
    observed, novel = fold.fold.observed, fold.fold.novel
    vectors[observed] = classifiers
    judged = {}
    for k, temperature in product(NEIGHBOURS, TEMPERATURES):
        vectors[novel] = from_neighbours(items[novel], items[observed], classifiers, k, temperature)
        judged[k, temperature] = fold.quality(vectors)
    return max(judged, key=lambda pair: judged[pair])
