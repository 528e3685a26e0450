"""Fine-tuning of the pretrained encoder, before a model is trained on it (`IreneConfig.fine_tuning`).

The encoder is fine-tuned twice. First without what any of the folds holds out, the newest items where there are times:
that tells after how many steps held-out items are found best, and this encoder, which has seen nothing of the folds, is
the one that the constants are chosen with. Then on all observed items, for as long.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import torch

from metaxc.artifacts import Stages, json_digest, reuse_or_build
from metaxc.data import Dataset
from metaxc.data.folds import Fold
from metaxc.encoders import EmbeddingCache, Pretrained
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.encoders.training.recipes import train_encoder

FOLDER = "encoder"
"""Of the encoder, in the folder of a stage."""
KIND = "fine-tuned encoder"
"""Of a folder that keeps one between runs."""


class Bases(NamedTuple):
    """The pretrained encoders of one training run.

    Args:
        fold: Of the folds; it has not seen what they hold out.
        model: Of the model.
        validation: Step and mean of zero-shot P@1 and R@10 on the held-out items, percent; empty without fine-tuning.
    """

    fold: str
    model: str
    validation: tuple[tuple[int, float], ...] = ()


def fine_tune_base(
    base: str,
    dataset: Dataset,
    fold: Fold,
    queries: int,
    config: EncoderTraining,
    stages: Stages,
    cache: EmbeddingCache | None,
    inputs: str,
    encoder_cache: Path | None = None,
) -> Bases:
    """The encoder fine-tuned without the fold, and on everything; where held-out items are found best without any
    fine-tuning, the encoder as it is.

    Args:
        base: The pretrained encoder to start from.
        dataset: Its observed clicks are learnt from.
        fold: The items and queries that are held out first.
        queries: The number of all training queries.
        config: How the encoder is trained.
        stages: Runs and keeps the two trainings.
        cache: Keeps the embeddings by the pretrained encoder.
        inputs: Digest of everything that decides the model.
        encoder_cache: A folder that keeps fine-tuned encoders for other models; it grows until it is deleted.
    """

    def train(
        name: str, config: EncoderTraining, fold: Fold | None = None, stop_after: int | None = None
    ) -> Path:
        def build(out: Path) -> None:
            train_encoder(
                dataset,
                config,
                out / FOLDER,
                base=base,
                cache=cache,
                fold=fold,
                stop_after=stop_after,
                checkpoints=stages.folder / f"{name}.checkpoint",
                report=stages.report,
            )

        if encoder_cache is None:
            return stages.run(name, {"inputs": inputs}, build) / FOLDER
        masks = [] if fold is None else [fold.pseudo_novel, fold.held, fold.later_items, fold.past]
        without = [None if mask is None else sha256(mask.tobytes()).hexdigest() for mask in masks]
        determines = [Pretrained(base).weights, dataset.fingerprint, config.model_dump(), stop_after]
        key = json_digest([*determines, *without, torch.get_num_threads()])
        return reuse_or_build(encoder_cache / f"fine-tuned-{key[:32]}", KIND, build)[0] / FOLDER

    held_out = train("fine-tune-fold", config, fold)
    record = EncoderRecord.load(held_out)
    assert record is not None
    curve = ", ".join(f"step {step}: {score:.1f}" for step, score in record.validation)
    stages.report(f"mean of zero-shot P@1 and R@10 on held-out items while fine-tuning: {curve}")
    if record.best_step == 0:
        stages.report("the encoder is left as it is: fine-tuning does not help to find held-out items")
        return Bases(base, base, tuple(record.validation))
    stop_after = max(1, round(config.planned_steps(queries) * record.best_step / record.steps))
    model = train("fine-tune", config.model_copy(update={"holdout": 0.0}), stop_after=stop_after)
    return Bases(str(held_out), str(model), tuple(record.validation))
