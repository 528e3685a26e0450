"""Models of the small world in groups, built without training, so that the tests know their constants."""

from __future__ import annotations

from typing import Any

import numpy as np

from metaxc.classifiers import Classifiers, ridge
from metaxc.emmett import Emmett
from metaxc.generators import Combine


def build_model(world: Any, classifiers: Classifiers | None = None, **constants: Any) -> Emmett:
    """A model of the world with these arguments of `Emmett`; the classifiers are fitted if None."""
    dataset, encoder = world.dataset, world.encoder
    observed = np.flatnonzero(~dataset.novel)
    if classifiers is None:
        queries = encoder.encode_queries(dataset.train.queries.texts)
        classifiers = ridge(queries, dataset.train.clicks[:, observed])
    embeddings = encoder.encode_items([dataset.items.texts[row] for row in observed.tolist()])
    return Emmett(encoder, classifiers, embeddings, Combine(0.5, 0.1), dataset.items, observed, **constants)
