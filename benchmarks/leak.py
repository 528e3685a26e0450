"""What a generator should learn from: items that its encoder has seen (leaky), or items of folds that it has not.

    python benchmarks/leak.py DATA... --encoders-folder FOLDER --out benchmarks/results/leak.json
    python benchmarks/leak.py DATA... --encoders-folder FOLDER --out benchmarks/results/leak.json --test

Without `--test` every row is validated on pseudo-novel items: trained on all folds but one (or, leaky, on the observed
items of that one), validated on the pseudo-novel items and held-out queries of the one left out, in the mean over the
folds; each row has its own calibration. `--test` trains whole models and evaluates them on test: only after everything
is chosen. No row uses query expansion, so that only generators differ. Rows that are in the result file already are
not run again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from pseudo_novel import FoldLab, format_quality, merge_results

from metaxc import EmbeddingCache
from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.tuning import FittedFold
from metaxc.tuning.choices import starting_combine, validate_generator

LOW_RATE = {"learning_rate": 1e-4}
OBSERVED = {"items": "observed"}
ROWS: dict[str, dict[str, Any]] = {
    "combine": {"generator": "combine"},
    "gated, leak-free": {"generator": "gated"},
    "gated, leaky": {"generator": "gated", "meta_training": OBSERVED},
    "transformer, leak-free": {"generator": "transformer", "training": LOW_RATE},
    "transformer, leaky": {"generator": "transformer", "meta_training": OBSERVED, "training": LOW_RATE},
}
TESTED = ("combine", "gated, leak-free", "gated, leaky")


def validate(folds: list[FittedFold], config: IreneConfig) -> dict[str, Any]:
    """The quality of a generator on pseudo-novel items."""
    parts, kind = ConfiguredParts(config), config.generator
    start = "combine" if kind == "transformer" else kind  # it starts at the combine that was chosen
    found = validate_generator(parts, kind, starting_combine(parts, start, folds), folds)
    return {"zero_shot": found.zero_shot.to_dict(), "generalized": found.generalized.to_dict()}


def test(lab: FoldLab, config: IreneConfig, cache: Path | None) -> dict[str, Any]:
    """The quality of a whole model on test."""
    irene = Irene(config, cache=EmbeddingCache(cache), encoder_cache=lab.encoders)
    found = evaluate(model_search(irene.fit(lab.dataset), lab.dataset), lab.dataset)
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
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--test", action="store_true", help="evaluate on test, after everything is chosen")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    part = "test" if options.test else "pseudo-novel"
    for folder in options.data:
        lab = FoldLab(folder, options.encoders_folder, options.cache)
        shared = {"encoder": options.encoder, "folds": options.folds, "expansion_queries": 0}
        folds = [] if options.test else lab.fit(IreneConfig.model_validate(shared))
        name = f"{folder.name}, {options.encoder} encoder"
        for row in options.rows or (TESTED if options.test else ROWS):
            results = json.loads(options.out.read_text()) if options.out.exists() else {}
            rows = results.get(name, {}).get(part, {})
            wanted = {"settings": ROWS[row], "folds": options.folds}
            if not all(rows.get(row, {}).get(key) == value for key, value in wanted.items()):
                started = time.perf_counter()
                config = IreneConfig.model_validate({**shared, **ROWS[row]})
                found = test(lab, config, options.cache) if options.test else validate(folds, config)
                rows[row] = {**wanted, **found, "seconds": round(time.perf_counter() - started, 1)}
                merge_results(options.out, name, {part: rows})
            print(f"{name:35} {part:13} {row:25} {format_quality(rows[row])}", flush=True)


if __name__ == "__main__":
    main()
