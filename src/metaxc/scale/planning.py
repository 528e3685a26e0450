"""An estimate of the memory, disk space and time of training and serving, before the work begins.

Memory is counted, not guessed: for each stage of `metaxc.irene.training_run.TrainingRun`, the arrays that are alive at
its peak, plus a part that does not depend on the data. An array of n embeddings takes n × dim × 4 bytes; the formulas
below count such arrays of queries, items and observed items. Time is the number of operations of the parts that grow,
times what one took on one thread. All measured constants stand at the top, with where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metaxc.data import Dataset
from metaxc.data.folds import NOVEL_SHARES, SHARE
from metaxc.errors import ConfigError
from metaxc.index.array_search import INDEX_FROM
from metaxc.irene import SIZES, IreneConfig
from metaxc.irene.constant_choice import LARGE_FOLD
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.scale.learning_costs import (
    FINE_TUNING_MEMORY,
    fine_tuning_seconds,
    one_vs_all_seconds,
    transformer_seconds,
)
from metaxc.tuning.fitted_folds import BLOCK, MOST_QUERIES
from metaxc.tuning.grids import NEIGHBOURS
from metaxc.tuning.shortlists import queries_at_once

GIGABYTE = 1e9

FIXED = {
    "read": 0.28,
    "fine-tune": 0.29,
    "encode": 0.29,
    "tune": 0.69,
    "encoder": 0.83,
    "embeddings": 0.71,
    "classifiers": 0.66,
    "generator": 0.66,
    "index": 0.63,
    "save": 0.97,
}
"""GB of resident memory of each stage that do not depend on the data: libraries (0.28), token tables of 30,522 × 384
for queries and items (0.09), twice that for Adam's moments, and copies while they are read and written. What remains of
the measured peaks at 3,000 and 10,000 items, --size fast, after the arrays that are counted here
(benchmarks/results/scale.json)."""

BIGRAM_TABLES = {"tune": 6, "encoder": 3, "save": 2}
"""How often the vectors of bigrams of both towers are in memory where that is more than once: encoders of three folds,
Adam's moments and a copy while words are weighed; with moments; while they are written. Counted, not measured."""

BIGRAM_STEP = 1.35
"""Times the seconds of a step of training with bigrams: on folds of icd10cm, wordnet and camel_commits 1.3 to 1.5."""

TRANSFORMER = 0.6
"""GB more where a transformer encodes the texts: its weights, ONNX Runtime and activations. Assumed, not measured."""

TEXT_BYTES = 460
"""Of an item or query: two Python strings with some 45 characters together, their places in two lists and a dictionary,
and what reading them leaves behind. From the stage `read` at 100,000 and 1,000,000 items."""

CLICK_BYTES = 40
"""Of a click: a row and a column with 8 bytes each while a file is read, and the sparse matrices of training."""

TOKEN_BYTES = 60
"""Of a text as a bag of tokens: a dozen of 4 bytes and a start of 8."""

SCORE_ARRAYS = 4.4
"""Arrays of the scores of a block of queries while shortlists are made: three parts, their sum, and what the search
for the best holds. From the growth of the stage `tune` from 3,000 to 10,000 items."""

STARTUP_SECONDS = 3.0
TEXT_SECONDS = 5e-5
CLICK_SECONDS = 1e-5
"""To start the libraries, and to read, tokenise and write a text and a click."""

ENCODE_SECONDS = 1 / 550
"""To encode a text by MiniLM on one thread: 3.4 million texts take 50 minutes on two cores (a short title each)."""

STEP_SECONDS = 0.127
"""Of a step of the adapter's training, batches of 1,024: 15 steps took 1.9 s and 50 took 6.3 s."""

PAIR_SECONDS = 24e-9
"""To compare two items when neighbours are searched exactly, 384 dimensions: 8.1 million pairs took 0.19 s, 90 million
took 2.2 s."""

INDEXED_SECONDS = 1.3e-3
"""To find the neighbours of one item through the index, building it included: a million took 1,280 s of processor
time."""

VALIDATION_SECONDS = 0.03
"""Of the search for constants, per validation query of all folds: 1,584 took 47 s."""

SCORE_SECONDS = 1.1e-6
"""Of a validation query and an item, in all comparisons of shortlists and expansions together: 2,000 queries × 863,000
items took about 1,700 s of processor time."""

INDEX_SHARE = 0.27
"""Memory of an index, relative to that of its vectors: 4-bit codes, lists, positions."""

ENOUGH = 0.95
"""Share of the machine's memory that may be planned: the operating system needs some."""


@dataclass(frozen=True)
class Workload:
    """What is trained on.

    Args:
        items: All items.
        observed: Items with a training click that are not novel.
        queries: Training queries.
        clicks: Training clicks, distinct pairs.
        dim: Of the embeddings.
    """

    items: int
    observed: int
    queries: int
    clicks: int
    dim: int = 384

    @staticmethod
    def of(dataset: Dataset, dim: int = 384) -> Workload:
        """That of a data set; without a novel.txt every clicked item counts as observed."""
        log = dataset.train
        counts = np.bincount(log.clicks.indices, minlength=len(dataset.items))
        observed = counts > 0 if dataset.novel is None else (counts > 0) & ~dataset.novel
        return Workload(len(dataset.items), int(observed.sum()), len(log), int(log.clicks.nnz), dim)


@dataclass(frozen=True)
class StageCost:
    """A stage: its peak of resident memory in bytes, and its seconds on one thread."""

    name: str
    memory: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What training and serving need.

    Args:
        workload: What is trained on.
        config: How it is trained.
        stages: In their order.
        disk: Bytes, at the most, while training: results of the stages, the embedding cache and the model.
        model: Bytes of the model folder.
        serving: Bytes of memory to serve the model.
    """

    workload: Workload
    config: IreneConfig
    stages: tuple[StageCost, ...]
    disk: float
    model: float
    serving: float

    @property
    def peak(self) -> StageCost:
        """The stage that needs the most memory."""
        return max(self.stages, key=lambda stage: stage.memory)

    @property
    def seconds(self) -> float:
        """Of all stages, on one thread."""
        return sum(stage.seconds for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Plain Python for JSON."""
        return {
            "workload": vars(self.workload),
            "stages": {one.name: {"memory": one.memory, "seconds": one.seconds} for one in self.stages},
            "peak_memory": self.peak.memory,
            "peak_stage": self.peak.name,
            "seconds": self.seconds,
            "disk": self.disk,
            "model": self.model,
            "serving_memory": self.serving,
        }

    def __str__(self) -> str:
        return (
            f"about {self.peak.memory / GIGABYTE:.1f} GB of memory (in the stage {self.peak.name}), "
            f"{format_seconds(self.seconds)} on one thread, {self.disk / GIGABYTE:.1f} GB of disk space"
        )


def make_plan(workload: Workload, config: IreneConfig) -> Plan:
    """Estimate what training with this configuration and serving the result need."""
    row = 4.0 * workload.dim
    queries, items, observed = (
        count * row for count in (workload.queries, workload.items, workload.observed)
    )
    kept_queries = min(config.expansion_queries, workload.queries) * row
    transformer = config.encoder != "static"
    texts = TEXT_BYTES * (workload.items + workload.queries) + CLICK_BYTES * workload.clicks
    bags = TOKEN_BYTES * (workload.items + workload.queries)
    frozen = (
        queries + items if transformer else 0.0
    )  # the transformer's embeddings, or the user's own vectors
    gather = min(workload.observed, BLOCK) * max(NEIGHBOURS) * row
    arrays = {
        "read": 0.0,
        "encode": bags + frozen,
        "tune": bags + frozen + _tuning_memory(workload, config),
        "encoder": bags + frozen + (queries + observed if config.encoder == "adapted" else 0.0),
        "embeddings": bags + frozen + queries + items,
        "classifiers": bags + frozen + queries + 2 * observed + CLICK_BYTES * workload.clicks,
        "generator": bags + frozen + queries + 4 * observed,
        # The vectors, and a copy while they are written; of observed items embeddings, classifiers, neighbour vectors
        # and the index; and what is read again of the mapped embeddings.
        "index": bags + frozen + kept_queries + 2.4 * items + (3 + INDEX_SHARE) * observed + gather,
        # The model with its indexes, and a copy of the largest file while it is written.
        "save": bags + frozen + kept_queries + (2 + INDEX_SHARE) * items + (2 + INDEX_SHARE) * observed,
    }
    bigrams = 2 * _count_bigrams(workload, config) * row
    arrays = {
        name: size + (0.0 if name == "read" else BIGRAM_TABLES.get(name, 1) * bigrams)
        for name, size in arrays.items()
    }
    if config.planned_fine_tuning(workload.queries):
        arrays = {"read": 0.0, "fine-tune": bags + FINE_TUNING_MEMORY, **arrays}
    seconds = _stage_seconds(workload, config)
    extra = TRANSFORMER * GIGABYTE if transformer else 0.0
    stages = tuple(
        StageCost(
            name, FIXED[name] * GIGABYTE + (extra if name != "read" else 0.0) + texts + size, seconds[name]
        )
        for name, size in arrays.items()
    )
    towers = 0.0 if config.encoder == "pretrained" else 2 * 30_522 * row + bigrams
    model = towers + items + 2 * observed + kept_queries / 2 + texts / 2
    results = 2 * towers + queries + items + 2 * observed + items
    serving = (
        (FIXED["encode"] * GIGABYTE + extra) + towers + items + 3 * observed + 1.5 * kept_queries + texts
    )
    return Plan(workload, config, stages, model + results + frozen, model, serving)


def _tuning_memory(workload: Workload, config: IreneConfig) -> float:
    """Bytes of the arrays of the folds at their peak.

    A fold keeps the embeddings and classifiers of its items, what the generator adds to them, the kept queries and the
    neighbours (`FittedFold`), and all queries where a generator learns from them. The peak is where the last fold is
    fitted. Where several extents are compared, the best one's folds are held meanwhile. Large folds wait in files.
    """
    if not config.folds:
        return 0.0
    row = 4.0 * workload.dim
    queries, observed = workload.queries * row, workload.observed * row
    kept_queries = min(config.expansion_queries, (1 - SHARE) * workload.queries) * row
    neighbours = workload.observed * max(NEIGHBOURS) * 12
    learning = ConfiguredParts(config).learns(config.generator)
    fold = 3 * observed + kept_queries + neighbours + (queries if learning else 0.0)
    several = config.encoder == "adapted" and config.adapter.extent is None
    waiting = config.folds * (2 if several else 1) - 1
    large = waiting > 0 and 3 * observed >= LARGE_FOLD
    fitting = (2 - SHARE) * queries + (3 + INDEX_SHARE) * observed + 2.5 * kept_queries + 2 * neighbours
    at_once = min(queries_at_once(workload.observed), validation_queries(workload))
    scores = at_once * workload.observed * 4 * SCORE_ARRAYS
    comparing = fold + 2 * observed + scores
    return waiting * (kept_queries if large else fold) + max(fitting, comparing)


def _count_bigrams(workload: Workload, config: IreneConfig) -> float:
    """Bigrams with a vector of their own, at most: short texts have about one for every second text."""
    return min(config.adapter.bigrams, workload.items + workload.queries) * (config.encoder == "adapted")


def validation_queries(workload: Workload) -> int:
    """Validation queries of a fold."""
    return min(MOST_QUERIES, int(SHARE * workload.queries))


def _stage_seconds(workload: Workload, config: IreneConfig) -> dict[str, float]:
    """Seconds of each stage on one thread."""
    texts = workload.items + workload.queries
    wide, adapter = workload.dim / 384, config.adapter
    encodings = 2 if config.folds and config.planned_fine_tuning(workload.queries) else 1
    steps = adapter.steps(workload.queries)
    slower = BIGRAM_STEP if config.encoder == "adapted" and adapter.bigrams else 1.0
    learn = 0.0 if config.encoder == "pretrained" else steps * STEP_SECONDS * wide * slower
    several = config.encoder == "adapted" and adapter.extent is None
    share = 1 - NOVEL_SHARES[0]
    fit = neighbour_seconds(share * workload.observed, workload.observed, workload.dim)
    queries = validation_queries(workload)
    validate = queries * (VALIDATION_SECONDS + workload.observed * SCORE_SECONDS * wide)
    return {
        "read": STARTUP_SECONDS + TEXT_SECONDS * texts + CLICK_SECONDS * workload.clicks,
        "fine-tune": fine_tuning_seconds(workload, config) * wide**2,
        "encode": encodings * texts * _encoding_seconds(workload, config),
        "tune": config.folds * (learn + (3 if several else 1) * fit + validate),
        "encoder": learn,
        "embeddings": texts * TEXT_SECONDS,
        "classifiers": workload.clicks * CLICK_SECONDS + one_vs_all_seconds(workload, config) * wide,
        "generator": workload.clicks * CLICK_SECONDS + transformer_seconds(workload, config) * wide,
        "index": neighbour_seconds(workload.observed, workload.items, workload.dim),
        "save": STARTUP_SECONDS / 3 + texts * 2 * TEXT_SECONDS,
    }


def neighbour_seconds(items: float, asked: float, dim: int) -> float:
    """To find the neighbours of so many items, among so many."""
    return asked * (INDEXED_SECONDS if items >= INDEX_FROM else items * PAIR_SECONDS) * dim / 384


def encoding_seconds(texts: float, plan: Plan) -> float:
    """To embed so many texts with the encoder of a plan, after it was trained."""
    return texts * (_encoding_seconds(plan.workload, plan.config) + TEXT_SECONDS)


def _encoding_seconds(workload: Workload, config: IreneConfig) -> float:
    """Of a text, by the pretrained encoder."""
    return TEXT_SECONDS if config.encoder == "static" else ENCODE_SECONDS * workload.dim / 384


def smaller_plans(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Options of `metaxc train` that need less memory, those that cost the least accuracy first, with their plans."""
    config, fast, options = plan.config, {**SIZES["fast"], "fine_tuning": None}, []
    if plan.peak.name == "fine-tune":
        config, options = config.model_copy(update={"fine_tuning": None}), ["--fine-tuning 0"]
        yield " ".join(options), make_plan(plan.workload, config)
    for folds in range(config.folds - 1, 0, -1):
        fewer = config.model_copy(update={"folds": folds})
        yield " ".join([*options, f"--folds {folds}"]), make_plan(plan.workload, fewer)
    if config.encoder != "static":
        yield "--size fast", make_plan(plan.workload, config.model_copy(update=fast))
    smallest = config.model_copy(update={**fast, "folds": 0, "expansion_queries": 0})
    yield "--size fast --folds 0 --expansion-queries 0", make_plan(plan.workload, smallest)


def describe_what_fits(plan: Plan, memory: float) -> str:
    """What would fit into so many bytes of memory: options, or else how many items; and which machine would do."""
    limit = ENOUGH * memory
    needed = math.ceil(plan.peak.memory / ENOUGH / GIGABYTE)
    bigger = f"or a machine with {needed:,} GB"
    for options, smaller in smaller_plans(plan):
        if smaller.peak.memory <= limit:
            return f"{options} fits: about {smaller.peak.memory / GIGABYTE:.1f} GB; {bigger}"
    part = largest_part(plan, limit)
    if part is None:
        return f"nothing fits: even an empty data set needs more; {bigger}"
    fitting = part.workload.items
    return f"with these options about {fitting:,} items fit, with queries and clicks in proportion; {bigger}"


def largest_part(plan: Plan, limit: float, most: int | None = None) -> Plan | None:
    """The plan of the largest part of the data that fits into so many bytes; None where none does.

    Args:
        plan: Of everything.
        limit: Bytes.
        most: Items at the most.
    """
    top = 1.0 if most is None else min(1.0, most / max(plan.workload.items, 1))
    if _part(plan, top).peak.memory <= limit:
        return _part(plan, top)
    share = next((top / 2**n for n in range(1, 40) if _part(plan, top / 2**n).peak.memory <= limit), 0.0)
    if not share:
        return None
    low, high = share, 2 * share
    for _ in range(10):
        middle = (low + high) / 2
        low, high = (middle, high) if _part(plan, middle).peak.memory <= limit else (low, middle)
    return _part(plan, low)


def _part(plan: Plan, share: float) -> Plan:
    """The plan of a share of the data."""
    old = plan.workload
    counts = {name: round(share * getattr(old, name)) for name in ("items", "observed", "queries", "clicks")}
    return make_plan(replace(old, **counts), plan.config)


def check_memory(plan: Plan, memory: float) -> None:
    """Raise a `ConfigError` that says what would fit, if the plan needs more than so many bytes of memory."""
    if plan.peak.memory > ENOUGH * memory:
        raise ConfigError(
            "This machine has too little memory for the training",
            got=f"{memory / GIGABYTE:.1f} GB",
            expected=str(plan),
            fix=f"{describe_what_fits(plan, memory)}, or several machines (`metaxc plan` lists the ways); to try all "
            "the same, give --ignore-memory",
        )


def format_seconds(seconds: float) -> str:
    """A length of time in the unit that people would use."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
