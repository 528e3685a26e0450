"""Do novel items, and items with a few clicks, keep on a fold that was not seen what the constants promise them?

    python benchmarks/few_clicks.py DATA... --encoders FOLDER --cache FOLDER --out FILE

The constants of the calibration are chosen on all folds but one and judged on that one, in turn, under several rules
(`metaxc.tuning.calibration`): what may be paid for novel items, what a slice of items by clicks that is below the
encoder alone counts, and what may be paid for it. The figures are the means over the folds that judge, minus those of
the encoder alone. No test query is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pseudo_novel import FoldLab, merge_results

import metaxc as package
from metaxc.metrics import CLICK_SLICES
from metaxc.research.code_version import git_commit
from metaxc.tuning import MixedQuality, Setting, Shortlist, calibration, choose_calibration
from metaxc.tuning.qualities import mean_mixed_quality

RULES: dict[str, dict[str, float]] = {
    "as chosen": {},
    "half a point, whatever is gained": {"GAIN_SHARE": 0.0},
    "a fifth of the gain": {"GAIN_SHARE": 0.4},
    "weight 1, half a point": {"GAIN_SHARE": 0.0, "SLICE_WEIGHT": 1.0, "SLICE_COST": 0.5},
}
"""Constants of `metaxc.tuning.calibration` that differ from the present ones; these were the rule before, or tried."""


def subtract(found: MixedQuality, alone: MixedQuality) -> dict[str, Any]:
    """Points above the encoder alone: overall, of novel items, and of items by clicks."""
    return {
        "mean of P@1 and R@10": found.mean - alone.mean,
        "novel R@10": found.novel - alone.novel,
        "by_clicks": dict(zip(CLICK_SLICES, (found.by_clicks - alone.by_clicks).tolist(), strict=True)),
    }


def judge(shortlists: Sequence[Shortlist], alone: Sequence[MixedQuality], start: Setting) -> dict[str, Any]:
    """The constants of the other folds on each fold, in the mean."""
    judged = []
    for held in range(len(shortlists)):
        others = [fold for fold in range(len(shortlists)) if fold != held]
        known = mean_mixed_quality([alone[fold] for fold in others])
        choice = choose_calibration([shortlists[fold] for fold in others], known, start=start)
        judged.append(shortlists[held].quality(choice.setting))
    return subtract(mean_mixed_quality(judged), mean_mixed_quality(alone))


def compare(lab: FoldLab) -> dict[str, dict[str, Any]]:
    """Every rule on the folds of a data set; with an exposure that follows the query."""
    shortlists, alone, start = lab.shortlists()
    found = {}
    for name, rule in RULES.items():
        before = {constant: getattr(calibration, constant) for constant in rule}
        try:
            for constant, value in rule.items():
                setattr(calibration, constant, value)
            found[name] = judge(shortlists, alone, start)
        finally:
            for constant, value in before.items():
                setattr(calibration, constant, value)
    return found


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="data set folders")
    parser.add_argument("--encoders", type=Path, required=True, help="folder that keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/few_clicks_folds.json"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for folder in options.data:
        lab = FoldLab(folder, options.encoders, options.cache)
        row: dict[str, Any] = {
            "commit": git_commit(Path(package.__file__).parent),
            "command": f"python benchmarks/few_clicks.py {folder.name}",
            "data": lab.dataset.fingerprint,
            "seed": 0,
            "rules": compare(lab),
        }
        for name, found in row["rules"].items():
            slices = "  ".join(f"{one} {value:+.1f}" for one, value in found["by_clicks"].items())
            mean, novel = found["mean of P@1 and R@10"], found["novel R@10"]
            print(
                f"{folder.name:15} {name:32} mean {mean:+.2f}  novel {novel:+.1f}  by clicks: {slices}",
                flush=True,
            )
        merge_results(options.out, folder.name, row)


if __name__ == "__main__":
    main()
