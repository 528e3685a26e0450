"""How fast texts are encoded and novel items represented, as ratios measured in one run.

    python benchmarks/speed.py [DATA] --out benchmarks/results/speed.json

Encoding: 20,000 short texts (queries and items of DATA, by default ICD-10-CM) by `SentenceTransformer.encode` with its
own defaults and by each backend. The systems take turns on blocks of 2,000 texts, so that noise affects all of them;
the best round of each block counts. CPU time is reported too: with --threads 1 it is the fairer measure on a busy
machine (threads that wait for each other consume CPU time).
Representing: batches of 256 item texts are turned into meta-classifiers by a default model, in turn with encoding the
same texts by the same base encoder; the median over the batches counts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

import metaxc as package
from metaxc import __version__, read_folder
from metaxc.data import Dataset
from metaxc.data.sources import build
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache, Pretrained
from metaxc.irene import Irene, IreneConfig
from metaxc.research.code_version import git_commit
from metaxc.research.latency import time_call

BACKENDS = ("torch", "onnx", "onnx-int8")
BLOCK = 2_000
BATCH = 256


def measure_encoding(texts: Sequence[str], rounds: int, cache: Path) -> dict:
    """Seconds and texts per second of each system, and its speed relative to sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    plain = SentenceTransformer(str(Pretrained().folder), device="cpu")
    encoders = {name: Pretrained(cache=EmbeddingCache(cache), backend=name) for name in BACKENDS}
    systems: dict[str, Callable[[Sequence[str]], object]] = {
        "SentenceTransformer.encode": lambda given: plain.encode(list(given), show_progress_bar=False),
        **{name: encoder._encode_now for name, encoder in encoders.items()},
    }
    for encode in systems.values():
        encode(texts[:200])
    blocks = [texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK)]
    taken = np.full((len(systems), 2, len(blocks), rounds), np.inf)
    for number in range(rounds):
        for place, block in enumerate(blocks):
            for row, encode in enumerate(systems.values()):
                taken[row, :, place, number] = time_call(lambda encode=encode, block=block: encode(block))
            so_far = " ".join(f"{one:.1f}" for one in taken[:, 0, place, number])
            print(f"round {number + 1}, block {place + 1} of {len(blocks)}: {so_far} s", flush=True)
    best, cpu = taken.min(axis=3).sum(axis=2).T
    auto = Pretrained(cache=EmbeddingCache(cache), backend="auto", texts=texts).backend
    return {
        "texts": len(texts),
        "default": auto,
        "systems": {
            name: {
                "seconds": round(float(best[row]), 2),
                "texts per second": round(len(texts) / float(best[row])),
                "times SentenceTransformer.encode": round(float(best[0] / best[row]), 2),
                "CPU seconds": round(float(cpu[row]), 2),
                "times SentenceTransformer.encode, CPU": round(float(cpu[0] / cpu[row]), 2),
            }
            for row, name in enumerate(systems)
        },
    }


def measure_representing(dataset: Dataset, rounds: int, cache: Path) -> dict:
    """Milliseconds per batch of 256 item texts, encoded alone and represented, and the ratio."""
    # None of these changes the cost of representing.
    config = IreneConfig(folds=0, fine_tuning=None, adapter={"epochs": 1})
    with tempfile.TemporaryDirectory() as temporary:
        Irene(config, cache=EmbeddingCache(cache)).fit(dataset, report=print).save(Path(temporary) / "model")
        model = Emmett.load(Path(temporary) / "model")  # without a cache
    base = model.encoder.base  # type: ignore[attr-defined]
    texts = [dataset.items.texts[row] for row in np.random.default_rng(0).permutation(len(dataset.items))]
    batches = [texts[start : start + BATCH] for start in range(0, BATCH * (len(texts) // BATCH), BATCH)]
    model.represent(batches[0])
    pairs = [
        (time_call(lambda b=batch: base.encode_items(b)), time_call(lambda b=batch: model.represent(b)))
        for _ in range(rounds)
        for batch in batches[:20]
    ]
    taken = np.array(pairs)  # (batches, alone or represented, clock or CPU)
    encoded, represented = np.median(taken[:, :, 0], axis=0) * 1000
    ratio, cpu = np.median(taken[:, 1] / taken[:, 0], axis=0)
    return {
        "backend": base.backend,
        "observed items": len(model.observed),
        "neighbours": model.neighbours,
        "batches": len(pairs),
        "encoding alone, ms": round(float(encoded), 1),
        "text to meta-classifier, ms": round(float(represented), 1),
        "times encoding": round(float(ratio), 3),
        "times encoding, CPU": round(float(cpu), 3),
    }


def main() -> None:
    """Measure and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, nargs="?", help="a data set folder; ICD-10-CM when not given")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cache", type=Path, help="folder for embeddings; temporary when not given")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as temporary:
        cache = options.cache or Path(temporary) / "cache"
        dataset = read_folder(options.data) if options.data else build("icd10cm")
        everything = [*dataset.items.texts, *dataset.train.queries.texts]
        chosen = np.random.default_rng(0).permutation(len(everything))[: options.texts]
        texts = [everything[row] for row in chosen.tolist()]
        found = {
            "commit": git_commit(Path(package.__file__).parent),
            "command": f"python benchmarks/speed.py --texts {options.texts} --rounds {options.rounds}",
            "data": dataset.name,
            "encode": measure_encoding(texts, options.rounds, cache),
            "represent": measure_representing(dataset, options.rounds, cache),
            "threads": options.threads,
            "machine": f"{platform.machine()}, {os.cpu_count()} CPUs",
            "versions": {
                "metaxc": __version__,
                **{name: version(name) for name in ("torch", "sentence-transformers", "onnxruntime")},
            },
        }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
