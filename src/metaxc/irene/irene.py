"""The algorithm: an Emmett trained from a click log.

Where it differs from the paper, and why (docs/decisions.md):
- The encoder is adapted to the clicks by two token-bag towers: most of the accuracy for a minute or two.
- Classifiers are ridge regressions: as good to combine as trained ones, in seconds.
- The generator is the training-free combine, or a transformer that starts at it.
- An observed item trusts its own classifier by the number of its clicks.
- A query is expanded by the training queries nearest to it, where that helps.
- Every constant is chosen on pseudo-novel observed items.

`Irene.paper()` gives the paper's own choices.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaxc.arrays import Doubles, Rows
from metaxc.artifacts import Stages, json_digest
from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Encoder, Pretrained
from metaxc.encoders.onnx import onnx_versions
from metaxc.generators import GeneratorTraining
from metaxc.irene.config import IreneConfig, MetaTrainingConfig, with_options
from metaxc.irene.training_run import TrainingRun, pretrained_encoder


class Irene:
    """Trains an `Emmett`.

    Args:
        config: What to train; the defaults when None.
        encoder: An encoder of your own, used as it is; or the name of a kind, as in `IreneConfig.encoder`.
        cache: Keeps the pretrained encoder's embeddings on disk; None keeps none.
        encoder_cache: A folder that keeps adapted encoders, so that models that differ in everything else adapt each
            only once.
        options: Fields of `IreneConfig`, by name; those of nested settings as a dict.

    Example:
        >>> model = Irene().fit(dataset)  # doctest: +SKIP
        >>> Irene(neighbours=5, exposure=0.5, adapter={"epochs": 10}).config.neighbours
        5
        >>> model.search(["acute chest pain"], k=5)  # doctest: +SKIP
    """

    def __init__(
        self,
        config: IreneConfig | None = None,
        *,
        encoder: Encoder | str | None = None,
        cache: EmbeddingCache | None = None,
        encoder_cache: Path | None = None,
        **options: Any,
    ):
        if isinstance(encoder, str):
            options["encoder"], encoder = encoder, None
        self.config = with_options(config or IreneConfig(), options)
        self.encoder = encoder
        self.cache = cache
        self.encoder_cache = encoder_cache
        self.seconds: dict[str, float] = {}

    @classmethod
    def paper(cls, **kwargs: Any) -> Irene:
        """The paper's own choices: frozen base, one-vs-all classifiers, K = 3, one post-norm layer; the arguments are
        those of `Irene`."""
        config = IreneConfig(
            encoder="pretrained",
            classifiers="one_vs_all",
            generator="post_norm",
            neighbours=3,
            expansion_queries=0,
            meta_training=MetaTrainingConfig(items="observed"),
            training=GeneratorTraining(loss="cross_entropy", epochs=20, most_steps=100_000),
        )
        return cls(config, **kwargs)

    def __repr__(self) -> str:
        changed = self.config.model_dump(exclude_defaults=True)
        return f"Irene({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    def fit(
        self,
        dataset: Dataset,
        *,
        stages: str | Path | None = None,
        report: Callable[[str], None] = lambda line: None,
    ) -> Emmett:
        """Train on the observed items' clicks; of novel items only the texts are used.

        Args:
            dataset: With its novel items marked (`metaxc.data.split`, or a novel.txt).
            stages: A folder for the result of each stage, from which a killed run continues; temporary when None.
            report: Called with one line per stage.
        """
        if stages is None:
            with tempfile.TemporaryDirectory(prefix="metaxc-") as folder:
                return self._fit(dataset, Stages(Path(folder), report))
        return self._fit(dataset, Stages(Path(stages), report))

    def _fit(self, dataset: Dataset, stages: Stages) -> Emmett:
        run = TrainingRun(
            self.config, dataset, stages, self.encoder, self.cache, self.encoder_cache, self.inputs(dataset)
        )
        constants, generator = run.choose_constants()
        encoder = run.learn_encoder(constants.adaptation)
        queries, items = run.embed(encoder)
        classifiers = run.fit_classifiers(queries)
        trained = run.train_generator(constants, generator, classifiers, queries, items)
        model = run.assemble(constants, encoder, classifiers, queries, items, trained)
        self.seconds = stages.seconds
        return model

    def base_encoder(self, dataset: Dataset, report: Callable[[str], None] = lambda line: None) -> Pretrained:
        """The pretrained encoder, with the backend that suits the data set's texts.

        Args:
            dataset: Its texts are sampled to compare backends.
            report: Called with one line on the choice of the backend.
        """
        return pretrained_encoder(self.config, dataset, self.cache, report)

    def inputs(self, dataset: Dataset) -> str:
        """SHA-256 of everything that decides what is trained: the same inputs give the same model. Computes no
        embedding and does not choose a backend."""
        encoder = (
            [Pretrained(self.config.base).weights, *onnx_versions()]
            if self.encoder is None
            else [self.encoder.fingerprint]
        )
        times = [
            _digest(part) for part in (dataset.items.first_seen, dataset.train.times)
        ]  # decide the folds
        return json_digest(
            [dataset.fingerprint, times, self.config.model_dump(), *encoder, torch.get_num_threads()]
        )


def _digest(times: Rows | Doubles | None) -> str | None:
    return None if times is None else sha256(np.asarray(times, np.float64).tobytes()).hexdigest()
