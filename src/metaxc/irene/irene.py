"""The algorithm: an Emmett trained from a click log.

Where it differs from the paper, and why (docs/decisions.md):
- The encoder is fine-tuned for a few steps, then adapted to the clicks by two token-bag towers: most of the accuracy
  for minutes.
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
from metaxc.encoders import Adapted, EmbeddingCache, Encoder, Pretrained
from metaxc.encoders.onnx import onnx_versions
from metaxc.irene.config import IreneConfig, with_options
from metaxc.irene.model_assembly import assemble_model
from metaxc.irene.training_run import TrainingRun, pretrained_encoder

PAPER: dict[str, Any] = {
    "encoder": "pretrained",
    "fine_tuning": "paper",
    "classifiers": {
        "epochs": 40,
        "most_steps": 4_000,
        "learning_rate": 1e-3,
        "scale": 1.0,
        "query_layer": "transformer",
        "keep_length": True,
        "mined": 0,
        "sampled": 4_096,
        "all_items": 8_192,
        "cluster": 32,
        "adamw": {},
        "early_stopping": {"share": 0.05},
    },
    "generator": "post_norm",
    "neighbours": 3,
    "expansion_queries": 0,
    "folds": 0,
    "observed_items": "generator",
    "meta_training": {"items": "observed"},
    "training": {
        "loss": "cross_entropy",
        "epochs": 40,
        "most_steps": 1_500,
        "batch": 256,
        "candidates": 128,
        "near": 1,
        "learning_rate": 5e-4,
        "scale": None,
        "transformer": {"hidden": 768, "zero_start": True},
        "adamw": {},
        "early_stopping": {},
    },
}
"""The fields of `IreneConfig` that are the paper's, with what bounds the work; docs/paper.md has the reasons."""


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
        """The paper's own choices, and what is sensible where it is silent (docs/paper.md); the arguments are those of
        `Irene`.

        The work is bounded: at most 300 steps for the encoder, 4,000 for the classifiers and 1,500 for the generator,
        fewer where few passes over the data are enough or where held-out data no longer gain.
        """
        return cls(IreneConfig.model_validate(PAPER), **kwargs)

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
        if stages is not None:
            return self._fit(dataset, Stages(Path(stages), report))
        folder = tempfile.TemporaryDirectory(prefix="metaxc-")
        try:
            model = self._fit(dataset, Stages(Path(folder.name), report))
        except BaseException:
            folder.cleanup()
            raise
        base = model.encoder.base if isinstance(model.encoder, Adapted) else model.encoder
        if isinstance(base, Pretrained) and base.folder.is_relative_to(folder.name):
            base.temporary_folder = (
                folder  # the fine-tuned weights are there, and are read when they are needed
            )
        else:
            folder.cleanup()
        return model

    def _fit(self, dataset: Dataset, stages: Stages) -> Emmett:
        run = TrainingRun(
            self.config, dataset, stages, self.encoder, self.cache, self.encoder_cache, self.inputs(dataset)
        )
        constants, generator = run.choose_constants()
        encoder = run.learn_encoder(constants.adaptation, constants.word_matches)
        queries, items = run.embed(encoder)
        classifiers = run.fit_classifiers(queries)
        trained = run.train_generator(constants, generator, classifiers, queries, items)
        model = assemble_model(run, constants, encoder, classifiers, queries, items, trained)
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
