"""Which generator wins on pseudo-novel items, each given a search of its own.

    python benchmarks/generators.py DATA... --out benchmarks/results/generators.json

A share of the observed items plays novel (`metaxc.tuning`); the encoder and the classifiers are fitted once
without them, and every generator is trained and judged on the same fold. No test query is looked at. The
default of `IreneConfig.generator` follows from this table.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from metaxc import EmbeddingCache, IreneConfig, Pretrained, read_folder
from metaxc.data import Dataset
from metaxc.encoders import AdapterConfig
from metaxc.encoders.learning import Encoding, FixedEncoding, TowerEncoding
from metaxc.irene import Irene, training_clicks

SEARCHES: dict[str, list[dict[str, Any]]] = {
    "combine": [{}],  # its own grid of 288 settings
    "sum": [{"neighbours": k} for k in (1, 3, 5, 10)],
    "weighted_sum": [
        {"neighbours": k, "training": {"epochs": 4, "learning_rate": rate}}
        for k in (3, 10)
        for rate in (5e-4, 5e-3)
    ],
    "transformer": [
        {"training": {"epochs": epochs, "learning_rate": rate}, "depth": depth}
        for epochs, rate, depth in ((4, 2e-5, 1), (4, 1e-4, 1), (4, 5e-4, 1), (8, 5e-4, 1), (4, 1e-4, 2))
    ],
    "post_norm": [
        {"neighbours": k, "training": {"epochs": epochs, "learning_rate": 5e-4}}
        for k, epochs in ((3, 8), (10, 8), (3, 24))
    ],
}


class Remembered:
    """An encoding that learns once: every generator gets the same encoder."""

    def __init__(self, encoding: Encoding):
        self.encoding = encoding
        self.encoder = None

    def learn(self, *arguments):
        self.encoder = self.encoder or self.encoding.learn(*arguments)
        return self.encoder

    def embed(self, *arguments):
        return self.encoding.embed(*arguments)


def rows_of(dataset: Dataset, kind: str, cache: EmbeddingCache) -> list[dict]:
    """One row per generator and setting."""
    base = Pretrained(cache=cache)
    inner = (
        FixedEncoding(base, dataset)
        if kind == "pretrained"
        else TowerEncoding(base, dataset, AdapterConfig())
    )
    encoding = Remembered(inner)
    observed, query_rows, clicks = training_clicks(dataset)
    rows = []
    for generator, settings in SEARCHES.items():
        for setting in settings:
            config = IreneConfig.model_validate({"generator": generator, **setting})
            started = time.perf_counter()
            found = Irene(config).tune(encoding, observed, query_rows, clicks)
            row = {
                "encoder": kind,
                "generator": generator,
                "setting": setting,
                **found,
                "seconds": time.perf_counter() - started,
            }
            scores = found["pseudo_novel"]
            row["mean"] = float(np.mean([scores[s][m] for s in scores for m in ("P@1", "R@10")]))
            rows.append(row)
            cells = "  ".join(f"{s} {v['P@1']:.1f}/{v['R@10']:.1f}" for s, v in scores.items())
            print(
                f"{dataset.name:15} {kind:10} {generator:13} {setting!s:70} {cells}  mean {row['mean']:.2f}",
                flush=True,
            )
    return rows


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--encoders", nargs="+", default=["adapted", "pretrained"])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/generators.json"))
    options = parser.parse_args()
    for folder in options.data:
        dataset = read_folder(folder)
        for kind in options.encoders:
            rows = rows_of(dataset, kind, EmbeddingCache())
            results = json.loads(options.out.read_text()) if options.out.exists() else {}
            results.setdefault(folder.name, {})[kind] = rows
            options.out.parent.mkdir(parents=True, exist_ok=True)
            options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
