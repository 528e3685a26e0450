"""What a generator should learn from: items that its encoder has seen (leaky), or items of folds that it has not.

    python benchmarks/leak.py DATA... --out benchmarks/results/leak.json
    python benchmarks/leak.py DATA... --out benchmarks/results/leak.json --test

Without `--test` every row is judged on pseudo-novel items: trained on all folds but one (or, leaky, on the observed
items of that one), judged on the pseudo-novel items and held-out queries of the one left out, in the mean over the
folds; the calibration is chosen anew for each row. `--test` trains the models in earnest and evaluates them on test:
only after everything is chosen. No row uses the query memory, so that generators are compared and nothing else. Rows
that are in the result file already are not run again; `--kept` keeps the folds' encoders.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch

from metaxc import EmbeddingCache, Pretrained, read_folder
from metaxc.data import Dataset
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.encoders.learning import CachedEncoding, Encoding, TowerEncoding
from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.choosing import Tried, judged, start_of, try_fold
from metaxc.tuning import CombineChoice

GENTLY = {"learning_rate": 1e-4}
ROWS: dict[str, dict[str, Any]] = {
    "combine": {"generator": "combine"},
    "gated, leak-free": {"generator": "gated"},
    "gated, leaky": {"generator": "gated", "meta_training": "observed"},
    "transformer, leak-free": {"generator": "transformer", "training": GENTLY},
    "transformer, leaky": {"generator": "transformer", "meta_training": "observed", "training": GENTLY},
}
TESTED = ("combine", "gated, leak-free", "gated, leaky")


class Lab:
    """A data set with its folds, fitted once for all rows."""

    def __init__(self, folder: Path, options: argparse.Namespace):
        self.options = options
        self.dataset: Dataset = read_folder(folder)
        self.cache = EmbeddingCache(options.cache)
        self._tried: list[Tried] = []
        self._starts: dict[str, CombineChoice] = {}

    def config(self, settings: dict[str, Any]) -> IreneConfig:
        shared = {"encoder": self.options.encoder, "folds": self.options.folds, "memory": 0}
        return IreneConfig.model_validate({**shared, **settings})

    def tried(self) -> list[Tried]:
        if not self._tried:
            config = self.config({})
            base = Pretrained(config.base, self.cache)
            encoding: Encoding = TowerEncoding(
                base, self.dataset, config.adapter, static=config.encoder == "static"
            )
            if self.options.kept:
                encoding = CachedEncoding(encoding, self.options.kept)
            observed, query_rows, clicks = training_clicks(self.dataset)
            folds = Fold.partition(clicks, config.seed, config.folds)
            self._tried = [try_fold(config, encoding, fold, observed, query_rows, clicks) for fold in folds]
        return self._tried

    def judge(self, settings: dict[str, Any]) -> dict[str, Any]:
        """On pseudo-novel items."""
        config, tried = self.config(settings), self.tried()
        kind = config.generator
        start = "combine" if kind == "transformer" else kind  # it starts at the combine that was chosen
        if start not in self._starts:
            self._starts[start] = start_of(config, start, tried)
        found = judged(config, kind, self._starts[start], tried)
        return {"zero_shot": found.zero_shot.to_dict(), "generalized": found.generalized.to_dict()}

    def test(self, settings: dict[str, Any]) -> dict[str, Any]:
        """On test."""
        model = Irene(self.config(settings), cache=self.cache, kept=self.options.kept).fit(self.dataset)
        found = evaluate(model_search(model, self.dataset), self.dataset)
        names = ("zero_shot", "generalized")
        return {name: {metric: found[name][metric] for metric in ("P@1", "R@10")} for name in names}


def main() -> None:
    """Run and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/leak.json"))
    parser.add_argument("--rows", nargs="+", choices=list(ROWS), help="only these")
    parser.add_argument("--encoder", choices=["adapted", "static"], default="adapted")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="of embeddings")
    parser.add_argument("--kept", type=Path, help="folder for the folds' encoders")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--test", action="store_true", help="evaluate on test, after everything is chosen")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    part = "test" if options.test else "pseudo-novel"
    for folder in options.data:
        lab = Lab(folder, options)
        name = f"{folder.name}, {options.encoder} encoder"
        for row in options.rows or (TESTED if options.test else ROWS):
            results = json.loads(options.out.read_text()) if options.out.exists() else {}
            rows = results.setdefault(name, {}).setdefault(part, {})
            wanted = {"settings": ROWS[row], "folds": options.folds}
            if not all(rows.get(row, {}).get(key) == value for key, value in wanted.items()):
                started = time.perf_counter()
                found = (lab.test if options.test else lab.judge)(ROWS[row])
                rows[row] = {**wanted, **found, "seconds": round(time.perf_counter() - started, 1)}
                options.out.parent.mkdir(parents=True, exist_ok=True)
                options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            cells = [
                f"{s} {rows[row][s]['P@1']:5.1f} / {rows[row][s]['R@10']:5.1f}"
                for s in ("zero_shot", "generalized")
            ]
            print(f"{name:35} {part:13} {row:25} {'   '.join(cells)}", flush=True)


if __name__ == "__main__":
    main()
