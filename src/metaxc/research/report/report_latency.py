"""What an answer costs, stage by stage, measured here and now.

Medians of warm repeats, texts taken in turn so that no call sees the text of the one before; embeddings come from
the encoder itself, never from the cache.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

import numpy as np
import torch

from metaxc.emmett import Emmett
from metaxc.encoders import Encoder, Pretrained
from metaxc.generators import gather

Given = TypeVar("Given")

BATCH = 256
SINGLE_REPEATS = 21
BATCH_REPEATS = 3
K = 10


@dataclass(frozen=True)
class Stage:
    """Milliseconds per text, one text at a time and in batches."""

    name: str
    single: float
    batch: float


@dataclass(frozen=True)
class Latency:
    """All stages.

    Args:
        stages: Encode a query, search; encode an item, select neighbours, generate.
        batch: Texts per batch.
        items: How many items the search ranks.
        machine: Architecture, threads and versions, in words.
    """

    stages: Sequence[Stage]
    batch: int
    items: int
    machine: str


def measure(model: Emmett, queries: Sequence[str], items: Sequence[str], batch: int = BATCH) -> Latency:
    """Time each stage of a model.

    Args:
        model: The model.
        queries: Texts to encode and search with, at least one.
        items: Texts of novel items, at least one.
        batch: Texts per batch; where fewer are given they are taken again.
    """
    asked, given = _cycle(queries, batch), _cycle(items, batch)
    encoder = model.encoder
    search = f"search, first {K}" + ("" if model.expansion is None else ", query expansion included")
    with uncached(encoder):
        query_vectors, item_vectors = encoder.encode_queries(asked), encoder.encode_items(given)
        near, scores = model.selector.select(item_vectors, model.neighbours, texts=given)
        selected = gather(model.neighbour_vectors, near)
        stages = [
            _stage("encode a query", lambda at: encoder.encode_queries(asked[at]), batch),
            _stage(search, lambda at: model.search_rows(query_vectors[at], K), batch),
            _stage("encode an item", lambda at: encoder.encode_items(given[at]), batch),
            _stage(
                "select neighbours",
                lambda at: model.selector.select(item_vectors[at], model.neighbours, texts=given[at]),
                batch,
            ),
            _stage(
                "generate",
                lambda at: model.generator.generate(item_vectors[at], selected[at], scores[at]),
                batch,
            ),
        ]
    threads = torch.get_num_threads()
    machine = (
        f"{platform.system()} {platform.machine()}, {threads} thread{'s' if threads > 1 else ''}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )
    return Latency(stages, batch, len(model.items), machine)


@contextmanager
def uncached(encoder: Encoder) -> Iterator[None]:
    """While it lasts, the encoder's pretrained part encodes every text anew."""
    base = getattr(encoder, "base", encoder)
    if not isinstance(base, Pretrained):
        yield
        return
    cache, base.cache = base.cache, None
    try:
        yield
    finally:
        base.cache = cache


def _stage(name: str, run: Callable[[slice], object], batch: int) -> Stage:
    single = _median([slice(at % batch, at % batch + 1) for at in range(SINGLE_REPEATS)], run)
    whole = _median([slice(0, batch)] * BATCH_REPEATS, run)
    return Stage(name, 1000 * single, 1000 * whole / batch)


def _median(calls: Sequence[slice], run: Callable[[slice], object]) -> float:
    """Median seconds of a call; the first warms up and is not counted."""
    run(calls[0])
    seconds = []
    for call in calls:
        started = time.perf_counter()
        run(call)
        seconds.append(time.perf_counter() - started)
    return median(seconds)


def _cycle(texts: Sequence[Given], count: int) -> list[Given]:
    return [texts[int(at)] for at in np.resize(np.arange(min(len(texts), count)), count)]
