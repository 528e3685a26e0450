"""Latency, measured in one place for the report, the benchmark and the scripts.

Times are medians of warm repeats. Work that is compared takes turns on the same texts, so that the noise of a shared
machine affects all of it, and successive calls get different texts. Embeddings come from the encoder itself, never from
the cache.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from metaxc.arrays import Doubles
from metaxc.emmett import Emmett
from metaxc.encoders import Encoder, Pretrained

Timer = Callable[[slice], float]
"""Does work on a slice of the texts, and returns its seconds."""

BATCH = 256
SINGLE_REPEATS, BATCH_REPEATS = 21, 3
TOP = 10


@dataclass(frozen=True)
class StageLatency:
    """Milliseconds per text, one text at a time and in batches."""

    name: str
    single: float
    batch: float


@dataclass(frozen=True)
class ModelLatency:
    """The latency of all stages.

    Args:
        stages: Encode a query, search; encode an item, select neighbours, generate.
        batch: Texts per batch.
        items: Number of items that the search ranks.
        machine: Architecture, threads and versions, in words.
    """

    stages: Sequence[StageLatency]
    batch: int
    items: int
    machine: str


def measure_latency(
    model: Emmett, queries: Sequence[str], items: Sequence[str], batch: int = BATCH
) -> ModelLatency:
    """Time each stage of a model.

    Args:
        model: The model.
        queries: Texts to encode and search with, at least one.
        items: Texts of novel items, at least one.
        batch: Texts per batch; where fewer are given they are repeated.
    """
    queries, items = _cycle(queries, batch), _cycle(items, batch)
    encoder = model.encoder
    expansion = "" if model.expansion is None else ", query expansion included"
    with without_cache(encoder):
        query_vectors = encoder.encode_queries(queries)
        timers = {
            "encode a query": timed(lambda at: encoder.encode_queries(queries[at])),
            f"search, first {TOP}{expansion}": timed(lambda at: model.search_rows(query_vectors[at], TOP)),
            "encode an item": timed(lambda at: encoder.encode_items(items[at])),
            "select neighbours": pipeline_timer(model, items, "select"),
            "generate": pipeline_timer(model, items, "generate"),
        }
        single = seconds_per_text(list(timers.values()), batch, 1, SINGLE_REPEATS)
        batched = seconds_per_text(list(timers.values()), batch, batch, BATCH_REPEATS)
    threads = torch.get_num_threads()
    machine = (
        f"{platform.system()} {platform.machine()}, {threads} thread{'s' if threads > 1 else ''}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )
    rows = zip(timers, 1000 * single, 1000 * batched, strict=True)
    stages = [StageLatency(name, float(one), float(many)) for name, one, many in rows]
    return ModelLatency(stages, batch, len(model.items), machine)


def timed(work: Callable[[slice], object]) -> Timer:
    """The wall-clock time of work on a slice of the texts."""
    return lambda at: time_call(lambda: work(at))[0]


def pipeline_timer(model: Emmett, items: Sequence[str], stage: Literal["select", "generate"]) -> Timer:
    """The time of one stage of the model's pipeline, on items that are already encoded."""
    vectors = model.encoder.encode_items(items)

    def run(at: slice) -> float:
        seconds: dict[str, float] = {}
        model.pipeline.run(vectors[at], texts=items[at], seconds=seconds)
        return seconds[stage]

    return run


def seconds_per_text(timers: Sequence[Timer], texts: int, batch: int, repeats: int) -> Doubles:
    """(timers,) median seconds per text of work that takes turns.

    Args:
        timers: The work to time.
        texts: Number of texts that the work can process.
        batch: Texts per call, at most `texts`.
        repeats: Timed calls of each timer; one more before them warms up.
    """
    size = min(batch, texts)
    seconds = np.zeros((len(timers), repeats + 1))
    for repeat in range(repeats + 1):
        start = repeat * size % (texts - size + 1)
        for row, timer in enumerate(timers):
            seconds[row, repeat] = timer(slice(start, start + size))
    medians: Doubles = np.median(seconds[:, 1:], axis=1)
    return medians / size


def time_call(work: Callable[[], object]) -> tuple[float, float]:
    """How long a call takes, in seconds of wall-clock and of CPU time."""
    started = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - started[0], time.process_time() - started[1]


@contextmanager
def without_cache(encoder: Encoder) -> Iterator[None]:
    """Inside the block, the encoder's pretrained part encodes every text anew."""
    base = getattr(encoder, "base", encoder)
    if not isinstance(base, Pretrained):
        yield
        return
    cache, base.cache = base.cache, None
    try:
        yield
    finally:
        base.cache = cache


def _cycle(texts: Sequence[str], count: int) -> list[str]:
    return [texts[int(at)] for at in np.resize(np.arange(min(len(texts), count)), count)]
