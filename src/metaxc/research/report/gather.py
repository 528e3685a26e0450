"""All numbers of a report, as plain dataclasses."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaxc.data import Dataset
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder, Pretrained
from metaxc.evaluation.protocol import Search
from metaxc.evaluation.searches import encoder_search, model_search
from metaxc.research.report.bench_section import BenchRow, BenchTable, bench_tables
from metaxc.research.report.gains import Gains, item_gains
from metaxc.research.report.headline import Headline, headlines, sentence
from metaxc.research.report.report_latency import Latency, measure
from metaxc.research.report.slices import Slices, all_slices
from metaxc.research.report.systems import ADAPTED, BARE, MODEL, judge

POINTS = 200


@dataclass(frozen=True)
class Curve:
    """A learning curve, thinned to at most 200 points."""

    stage: str
    step: Sequence[float]
    loss: Sequence[float]


@dataclass(frozen=True)
class Report:
    """Everything the page says of a model on a data set, but for where it comes from (`Provenance`).

    Args:
        data: The data set's name.
        systems: Name by key ("model", "adapted", "bare") in the order of the rows.
        sentence: The result in plain words.
        headlines: The table of each setting.
        gains: Novel items one by one.
        slices: R@10 by kind of item and of query.
        curves: Of training, where the model has kept them.
        latency: Milliseconds per stage.
        training_seconds: By stage, where the model has kept them.
        bench: Comparison tables from result files.
        neighbours_weigh: Whether the neighbours' classifiers have a part in the novel items' meta-classifiers.
        warnings: What a reader must know before believing the numbers.
        conventions: What the numbers mean.
    """

    data: str
    systems: Mapping[str, str]
    sentence: str
    headlines: Mapping[str, Headline]
    gains: Gains
    slices: Sequence[Slices]
    curves: Sequence[Curve]
    latency: Latency
    training_seconds: Mapping[str, float]
    bench: Sequence[BenchTable]
    neighbours_weigh: bool
    warnings: Sequence[str]
    conventions: str


def gather(
    model: Emmett,
    bare: Encoder,
    dataset: Dataset,
    *,
    bench: Sequence[BenchRow] = (),
    print_status: Callable[[str], None] = lambda line: None,
) -> Report:
    """Evaluate and measure.

    Args:
        model: The trained model.
        bare: What it is compared with: the pretrained encoder, without any training on clicks.
        dataset: With novel items and a test log.
        bench: Rows to show beside.
        say: Called with a line before each part that takes long.
    """
    asked: list[tuple[str, str, Callable[[], Search]]] = [
        (MODEL, "metaxc, this model", lambda: model_search(model, dataset))
    ]
    if model.encoder.fingerprint != bare.fingerprint:
        name = f"its {model.encoder.kind} encoder alone"
        asked.append((ADAPTED, name, lambda: encoder_search(model.encoder, dataset)))
    asked.append((BARE, _name_of(bare), lambda: encoder_search(bare, dataset)))
    systems = []
    for key, name, search in asked:
        print_status(f"evaluate {name}")
        systems.append(judge(key, name, search(), dataset))
    print_status("compare")
    tables = headlines(systems)
    gains = item_gains(model, systems[0], systems[-1], dataset)
    slices = all_slices(systems, dataset)
    print_status("measure latency")
    queries = dataset.test.queries.texts if dataset.test else []
    novel = [dataset.items.texts[row] for row in dataset.novel_rows]
    return Report(
        dataset.name,
        {system.key: system.name for system in systems},
        sentence(tables),
        tables,
        gains,
        slices,
        curves_of(model.about),
        measure(model, queries, novel),
        seconds_of(model.about),
        bench_tables(bench),
        any(n.weight for item in (*gains.gained, *gains.lost) for n in item.neighbours),
        warnings_of(model, dataset),
        systems[0].evaluation.conventions,
    )


def curves_of(about: Mapping[str, Any]) -> list[Curve]:
    """The learning curves under `about["curves"]`: {stage: {"loss": […], "step": […]}}; steps count from 1 where
    none are given, and losses that are not numbers are left out."""
    curves = []
    for stage, kept in (about.get("curves") or {}).items():
        loss = kept.get("loss") or []
        step = kept.get("step") or range(1, len(loss) + 1)
        points = [(float(s), float(v)) for s, v in zip(step, loss, strict=False) if math.isfinite(v)]
        if points:
            thin = np.unique(np.linspace(0, len(points) - 1, min(len(points), POINTS)).astype(int)).tolist()
            curves.append(Curve(stage, [points[at][0] for at in thin], [points[at][1] for at in thin]))
    return curves


def seconds_of(about: Mapping[str, Any]) -> dict[str, float]:
    """Training seconds by stage, where the model has kept them."""
    return {str(stage): float(seconds) for stage, seconds in (about.get("seconds") or {}).items()}


def warnings_of(model: Emmett, dataset: Dataset) -> list[str]:
    """Why the numbers might not mean what they seem to."""
    warnings = []
    trained = (model.about.get("data") or {}).get("fingerprint")
    if trained not in (None, dataset.fingerprint):
        warnings.append("The model was trained on other data than it is evaluated on here.")
    learnt = {model.items.ids[row] for row in model.observed.tolist()}
    known = sum(dataset.items.ids[row] in learnt for row in dataset.novel_rows)
    if known:
        warnings.append(
            f"{known:,} of the {len(dataset.novel_rows):,} novel items were observed in training: "
            "for them the zero-shot numbers are not zero-shot."
        )
    return warnings


def _name_of(bare: Encoder) -> str:
    if isinstance(bare, Pretrained):
        return f"the bare encoder ({bare.source.rstrip('/').rsplit('/', 1)[-1]})"
    return "the given vectors" if bare.kind == "vectors" else f"the {bare.kind} encoder"
