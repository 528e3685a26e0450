"""Does a generator that learns help, and is it the neighbours that help it? On pseudo-novel items, several seeds.

    python benchmarks/learned_generator.py DATA... --encoders FOLDER --out benchmarks/results/learned_generator.json
    python benchmarks/learned_generator.py --table

A transformer with the fair trainer (early stopping on held-out items, AdamW, nearest items as negatives, similarity and
clicks of the neighbours as inputs) starts at the training-free combine, with the paper's K = 3 neighbours and, as the
control, with none (K = 0): what the control gains is an item-side map, not the neighbours. Beside it the gate, which
sees lengths and angles only. On a frozen and on an adapted encoder, trained on items that the encoder has seen (leaky,
as in the paper) or not (leak-free: on the other folds). No row expands queries, no test query is used. Each seed draws
its own folds and trains its own encoders; a row is compared with the combine of the same seed, and the table has the
mean difference and its standard error over the seeds. Rows that are in the result file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, merge_results

import metaxc as package
from metaxc.irene import IreneConfig
from metaxc.irene.model_parts import ConfiguredParts
from metaxc.research.code_version import git_commit
from metaxc.tuning import FittedFold
from metaxc.tuning.choices import starting_combine, validate_generator

FAIR: dict[str, Any] = {
    "epochs": 20,
    "most_steps": 400,
    "near": 1,
    "scale": None,
    "adamw": {},
    "early_stopping": {},
    "transformer": {"neighbour_features": True},
}
LEAKY = {"items": "observed"}


def settings() -> dict[str, dict[str, Any]]:
    """The rows by name."""
    rows: dict[str, dict[str, Any]] = {"combine": {"generator": "combine"}}
    transformer = {"generator": "transformer", "training": FAIR}
    rows["transformer, K = 3"] = {**transformer, "neighbours": 3}
    rows["transformer, K = 0"] = {**transformer, "meta_training": {"neighbour_input": "none"}}
    rows["gated"] = {"generator": "gated"}
    rows["gated, leaky"] = {"generator": "gated", "meta_training": LEAKY}
    rows["transformer, K = 3, leaky"] = {**transformer, "neighbours": 3, "meta_training": LEAKY}
    rows["transformer, K = 0, leaky"] = {
        **transformer,
        "meta_training": {**LEAKY, "neighbour_input": "none"},
    }
    return rows


def validate(folds: list[FittedFold], config: IreneConfig) -> dict[str, float]:
    """The quality of a generator on pseudo-novel items; the transformer starts at the combine that was chosen."""
    parts, kind = ConfiguredParts(config), config.generator
    found = validate_generator(parts, kind, starting_combine(parts, kind, folds), folds)
    mixed = found.choice.quality
    return {
        "zero-shot P@1": found.zero_shot.precision,
        "zero-shot R@10": found.zero_shot.recall,
        "all items mean": mixed.mean,
        "novel R@10": mixed.novel,
    }


def run(
    lab: FoldLab, name: str, encoder: str, seed: int, out: Path, chosen: list[str], origin: dict[str, Any]
) -> None:
    """The chosen rows of one data set, encoder and seed."""
    shared = {"encoder": encoder, "seed": seed, "expansion_queries": 0}
    folds: list[FittedFold] = []
    for row, changes in settings().items():
        if row not in chosen:
            continue
        results = json.loads(out.read_text()) if out.exists() else {}
        key = f"{encoder}, {row}, seed {seed}"
        if results.get(name, {}).get(key, {}).get("settings") == changes:
            continue
        folds = folds or lab.fit(IreneConfig.model_validate(shared))
        started = time.perf_counter()
        found = validate(folds, IreneConfig.model_validate({**shared, **changes}))
        seconds = round(time.perf_counter() - started, 1)
        print(name, key, {metric: round(value, 1) for metric, value in found.items()}, seconds, flush=True)
        entry = {"settings": changes, "found": found, "seconds": seconds, "seed": seed, **origin}
        merge_results(out, name, {key: entry})


def render_table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: the combine, and the differences of the other rows to it, with standard errors over the seeds."""
    lines: list[str] = []
    for name, rows in sorted(results.items()):
        seeds = sorted({row["seed"] for row in rows.values()})
        for encoder in ("pretrained", "adapted"):
            for row in settings():
                found = [rows.get(f"{encoder}, {row}, seed {seed}") for seed in seeds]
                base = [rows.get(f"{encoder}, combine, seed {seed}") for seed in seeds]
                pairs = [
                    (one["found"], two["found"]) for one, two in zip(found, base, strict=True) if one and two
                ]
                if not pairs:
                    continue
                if not lines:
                    metrics = list(pairs[0][0])
                    lines = [f"| data set, encoder | generator | {' | '.join(metrics)} |", "|---" * 6 + "|"]
                cells = [_cell(pairs, metric, row == "combine") for metric in pairs[0][0]]
                first = (
                    f"{name}, {'frozen' if encoder == 'pretrained' else encoder}" if row == "combine" else ""
                )
                lines.append(f"| {first} | {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(pairs: list[tuple[dict[str, float], dict[str, float]]], metric: str, is_base: bool) -> str:
    if is_base:
        return f"{np.mean([one[metric] for one, _ in pairs]):.1f}"
    differences = [one[metric] - two[metric] for one, two in pairs]
    if len(differences) < 2:
        return f"{differences[0]:+.1f}"
    return f"{np.mean(differences):+.1f} ± {np.std(differences, ddof=1) / len(differences) ** 0.5:.1f}"


def main() -> None:
    """Run the data sets, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", type=Path, help="data set folders")
    parser.add_argument("--encoders", type=Path, help="folder that keeps adapted encoders")
    parser.add_argument("--rows", nargs="+", default=list(settings()), help="only these")
    parser.add_argument("--kinds", nargs="+", default=["pretrained", "adapted"], help="of encoders")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/learned_generator.json"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the result file as a Markdown table")
    options = parser.parse_args()
    if options.table:
        print(render_table(json.loads(options.out.read_text())))
        return
    if options.encoders is None:
        sys.exit("--encoders FOLDER is needed: adapted encoders are kept there, so that each is trained once")
    torch.set_num_threads(options.threads)
    for seed in options.seeds:
        for folder in options.data:
            lab = FoldLab(folder, options.encoders, options.cache)
            origin = {
                "commit": git_commit(Path(package.__file__).parent),
                "command": f"python benchmarks/learned_generator.py {folder.name} --seeds {seed}",
                "data": lab.dataset.fingerprint,
                "threads": options.threads,
            }
            for encoder in options.kinds:
                run(lab, folder.name, encoder, seed, options.out, options.rows, origin)


if __name__ == "__main__":
    main()
