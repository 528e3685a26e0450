"""Constants chosen on the folds of one training run, for the extent of the encoder's adaptation that serves best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from scipy.sparse import csr_array

from metaxc.arrays import Rows
from metaxc.data.folds import Fold
from metaxc.encoders import Encoder
from metaxc.encoders.learning import Encoding
from metaxc.generators.generator_training import TrainedGenerator
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.tuning import (
    Candidate,
    Constants,
    FittedFold,
    choose_constants,
    compare_generators,
    encoder_quality,
    fit_fold,
    learn_fold_encoder,
)

LARGE_FOLD = 1_000_000_000
"""Bytes of a fold's arrays from which several folds are kept in files: about 220,000 items of 384 dimensions."""
WORTH_WORDS = 0.5
"""Points of accuracy by which word matches must help the encoder by itself on the folds: about the standard error."""
HOPELESS = 5.0
"""Points by which the encoder alone may be below its best extent for that extent to be compared in full."""


class ConstantChoice:
    """Fits everything but the generator on each fold, and chooses the constants on what the folds hold out.

    Args:
        parts: How the parts of the model are made.
        encoding: Learns and applies the encoders of the folds.
        folds: Which items and queries are held out.
        training: The observed items and the training queries as rows of the data set, and the clicks between them.
        excluded: (queries, observed) pairs that are no answers whatever their score; None for none.
        report: Called with one line per result.
    """

    def __init__(
        self,
        parts: ConfiguredParts,
        encoding: Encoding,
        folds: list[Fold],
        training: tuple[Rows, Rows, csr_array],
        excluded: csr_array | None,
        report: Callable[[str], None],
    ):
        self.parts, self.encoding, self.folds = parts, encoding, folds
        self.training, self.excluded, self.report = training, excluded, report

    def choose(self, scratch: Path) -> tuple[Constants, TrainedGenerator | None]:
        """The constants, for the extent of the adaptation with the best mean of P@1 and R@10, zero-shot and of all;
        with the generator where it is trained on the folds. `scratch` is a folder for large folds."""
        encoders = self.learn_encoders()
        words = self.choose_word_matches(encoders)
        learning = any(map(self.parts.learns, self.parts.generator_kinds(len(self.folds))))
        best: tuple[list[FittedFold], list[Candidate]] = ([], [])
        compared, chosen, reached = {}, 1.0, -1.0
        for extent in self.promising_extents(encoders, words):
            fitted = self.fit_folds(encoders, extent, words, keep_queries=learning, scratch=scratch)
            candidates = compare_generators(self.parts, fitted)
            quality = (candidates[0].zero_shot.mean + candidates[0].choice.quality.mean) / 2
            compared[f"{extent:g}"] = candidates[0].to_dict()
            self.report(f"adaptation {extent:g}: {quality:.1f} on pseudo-novel items")
            if quality > reached:
                best, chosen, reached = (fitted, candidates), extent, quality
        constants, trained = choose_constants(self.parts, *best)
        constants = replace(constants, adaptation=chosen, adaptations=compared, word_matches=words)
        return constants, trained

    def learn_encoders(self) -> list[Encoder]:
        """Per fold, an encoder that has not seen its pseudo-novel items and held-out queries."""
        return [learn_fold_encoder(self.parts, self.encoding, fold, *self.training) for fold in self.folds]

    def choose_word_matches(self, encoders: list[Encoder]) -> float:
        """How much word matches count: what the encoder alone finds best with, where clearly better than none."""
        weights = self.encoding.word_weights
        if len(weights) == 1:
            return weights[0]
        extent = self.encoding.extents[0]
        found = {weight: self._encoder_alone(encoders, extent, weight) for weight in weights}
        best = max(found, key=lambda weight: found[weight])
        chosen = best if found[best] >= found[0.0] + WORTH_WORDS else 0.0
        listed = ", ".join(f"{weight:g}: {quality:.1f}" for weight, quality in found.items())
        self.report(f"word matches by weight, encoder alone on pseudo-novel items: {listed}")
        return chosen

    def promising_extents(self, encoders: list[Encoder], words: float) -> list[float]:
        """The extents of the adaptation to compare in full: those at which the encoder alone is not hopeless."""
        extents = self.encoding.extents
        if len(extents) == 1:
            return list(extents)
        found = {extent: self._encoder_alone(encoders, extent, words) for extent in extents}
        listed = ", ".join(f"{extent:g}: {quality:.1f}" for extent, quality in found.items())
        self.report(f"adaptation by extent, encoder alone on pseudo-novel items: {listed}")
        return [extent for extent in extents if found[extent] >= max(found.values()) - HOPELESS]

    def fit_folds(
        self,
        encoders: list[Encoder],
        extent: float = 1.0,
        words: float = 0.0,
        *,
        keep_queries: bool = True,
        scratch: Path | None = None,
    ) -> list[FittedFold]:
        """Everything but the generator, fitted for each fold with its encoder, adapted as far as `extent` says. Queries
        are kept for a generator to learn from; `scratch` is a folder for large folds, None keeps all in memory."""
        fitted, several = [], len(self.folds) * len(self.encoding.extents) > 1
        for fold, encoder in zip(self.folds, encoders, strict=True):
            adapted = self.encoding.adapt(encoder, extent, words)
            one = fit_fold(
                self.parts,
                self.encoding,
                adapted,
                fold,
                *self.training,
                self.excluded,
                keep_queries=keep_queries,
            )
            if scratch is not None and several and one.nbytes >= LARGE_FOLD:
                one = one.on_disk(Path(mkdtemp(dir=scratch)))
            fitted.append(one)
        return fitted

    def _encoder_alone(self, encoders: list[Encoder], extent: float, words: float) -> float:
        """How well the encoder by itself ranks the items of the folds, in the mean, percent."""
        found = [
            encoder_quality(
                self.encoding,
                self.encoding.adapt(encoder, extent, words),
                fold,
                *self.training,
                self.parts.seed,
                self.excluded,
            )
            for encoder, fold in zip(encoders, self.folds, strict=True)
        ]
        return float(np.mean(found))
