"""What fine-tuning an encoder, training one-vs-all classifiers and transformer generators take, as an estimate for
`metaxc plan`."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from metaxc.classifiers import OneVsAllConfig
from metaxc.irene import IreneConfig
from metaxc.irene.config import TRANSFORMERS
from metaxc.training_loop import plan_steps

if TYPE_CHECKING:
    from metaxc.scale.planning import Workload

LOGIT_SECONDS = 6e-8
"""Of a query and an item in a step of one-vs-all classifiers, 384 dimensions: steps of 512 queries and 2,707 items took
some 0.08 s."""

GENERATED_SECONDS = 6e-4
"""Of an item in a training step of a transformer generator with three neighbours, 384 dimensions and 768 feed-forward
units: steps of some 550 items took 0.33 s."""


FINE_TUNED_PAIR_SECONDS = {"bfloat16": 0.01, "float32": 0.03}
"""Of a query and a clicked item in a step of fine-tuning a transformer of six layers and 384 dimensions, by what the
processor multiplies: pairs of wordnet took 0.006 s and 0.022 s, the longer ones of debian_related four times as long as
those of wordnet (seen while developing)."""

FINE_TUNING_MEMORY = 3e9
"""Bytes of a transformer of 23 million weights while it is trained: weights, moments of AdamW, the graph of a batch."""


def fine_tuning_seconds(workload: Workload, config: IreneConfig) -> float:
    """To fine-tune the pretrained encoder twice, without a fold and on everything; 0 where it stays as it is."""
    how = config.planned_fine_tuning(workload.queries)
    if how is None:
        return 0.0
    return 2 * how.planned_steps(workload.queries) * how.batch * FINE_TUNED_PAIR_SECONDS[_number_type()]


@cache
def _number_type() -> str:
    """What this processor, or its GPU, multiplies while it fine-tunes."""
    from metaxc.devices import current_device
    from metaxc.encoders.training.transformer_training import has_bfloat16

    return "bfloat16" if has_bfloat16(current_device().type) else "float32"


def one_vs_all_seconds(workload: Workload, config: IreneConfig) -> float:
    """To train one-vs-all classifiers for all their steps; 0 where they are fitted in closed form."""
    if config.classifiers in ("ridge", "centroid"):
        return 0.0
    how = config.classifiers if isinstance(config.classifiers, OneVsAllConfig) else OneVsAllConfig()
    batch, items = min(how.batch, max(workload.queries, 1)), workload.observed
    steps = plan_steps(-(-workload.queries // batch), how.epochs, how.most_steps, how.early_stopping)
    if items > how.all_items:
        clicked = batch * workload.clicks / max(workload.queries, 1)
        items = min(items, int(clicked) + batch * how.mined + (how.sampled or batch))
    return steps * batch * items * LOGIT_SECONDS


def transformer_seconds(workload: Workload, config: IreneConfig) -> float:
    """To train a transformer generator on the observed items for all its steps; 0 for other generators."""
    how = config.training
    if config.generator not in TRANSFORMERS:
        return 0.0
    batch = min(how.batch, max(workload.queries, 1))
    steps = plan_steps(workload.queries // batch, how.epochs, how.most_steps, how.early_stopping)
    items = min(workload.observed, batch * (1 + how.near) + how.candidates)
    return steps * items * GENERATED_SECONDS
