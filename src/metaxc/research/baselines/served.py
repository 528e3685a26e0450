"""NGAME as it is served, as an Emmett: the selector returns a classifier for the observed items only.

An observed item is its embedding plus its own classifier, a novel one its embedding and nothing else. In the
framework's parts: a generator that ignores the neighbours. The encoder is any that is given, so what is compared is how
items are represented, not how encoders are trained. How much an observed item's classifier counts is chosen on
pseudo-novel items, as ours is; the embeddings of novel items stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Floats
from metaxc.classifiers import Classifiers, ridge
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder
from metaxc.generators import Combine
from metaxc.research.baselines.baseline import Dense, embed_training_data, encode_once
from metaxc.tuning import TuningFold, tune_own_classifiers


class NGAME:
    """Own classifiers for observed items, bare embeddings for novel ones.

    Args:
        encoder: Used as it is.
        classifiers: (queries, dim) embeddings and (queries, observed) clicks to classifiers: ridge, or
            `metaxc.classifiers.one_vs_all` as the method trains them.
        seed: Of the fold that the weight of the classifiers is chosen on.
    """

    name: ClassVar[str] = "NGAME"

    def __init__(
        self,
        encoder: Encoder,
        *,
        classifiers: Callable[[Floats, csr_array], Classifiers] = ridge,
        seed: int = 0,
    ):
        self.encoder, self.classifiers, self.seed = encoder, classifiers, seed

    def __repr__(self) -> str:
        return f"NGAME({self.encoder!r})"

    def fit(self, dataset: Dataset) -> Dense:
        return served(self.fit_emmett(dataset), dataset)

    def fit_emmett(self, dataset: Dataset) -> Emmett:
        """The model; its meta-classifiers are the embeddings themselves."""
        observed, clicks, queries, everything = embed_training_data(self.encoder, dataset)
        items = np.ascontiguousarray(everything[observed])
        calibration = None
        fold = TuningFold.draw(queries, clicks, self.seed)
        if fold is not None:
            fitted = self.classifiers(queries[fold.training_rows], fold.training_clicks)
            calibration = tune_own_classifiers(fold, items, fitted)
        return Emmett(
            self.encoder,
            self.classifiers(queries, clicks),
            items,
            Combine(strength=0.0),
            dataset.items,
            observed,
            neighbours=1,
            calibration=calibration,
            about={"method": self.name, "data": {"name": dataset.name, "fingerprint": dataset.fingerprint}},
            item_embeddings=everything,
        )


def served(model: Emmett, dataset: Dataset) -> Dense:
    """An Emmett as a fitted baseline."""
    encode = encode_once(model.encoder, dataset)
    return Dense(lambda queries: model.classifiers.transform_queries(encode(queries)), model.vectors)
