"""What does it cost in overall accuracy to find more novel items? The best that the folds have to offer at each price.

    python benchmarks/exposure_price.py DATA... --encoders FOLDER --cache FOLDER --out FILE

For each price in points of the overall mean of P@1 and R@10 the calibration is searched for twice: by the rule of
`metaxc train`, under which items with a few clicks do not pay for novel ones, and without that rule, so that novel
items alone count: about the most that this family of item vectors has to offer at that price. No test query is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, merge_results

import metaxc as package
from metaxc.research.code_version import git_commit
from metaxc.tuning import MixedQuality, Setting, Shortlist, choose_calibration
from metaxc.tuning.qualities import mean_mixed_quality

PRICES = (0.5, 1.0, 2.0, 4.0)


def measure_prices(
    shortlists: Sequence[Shortlist], alone: MixedQuality, start: Setting
) -> dict[str, list[dict[str, Any]]]:
    """The quality at each price, by rule."""
    no_slices = replace(alone, by_clicks=np.zeros_like(alone.by_clicks), unfamiliar=None)
    found: dict[str, list[dict[str, Any]]] = {}
    for rule, wanted in (("as in training", alone), ("novel items alone", no_slices)):
        for price in PRICES:
            choice = choose_calibration(shortlists, wanted, start=start, cost=price, gain_share=0.0)
            row = {
                "price": price,
                "best mean": choice.best_mean,
                "mean": choice.quality.mean,
                "below the encoder alone": choice.quality.shortfall(alone),
                **choice.quality.to_dict(),
            }
            found.setdefault(rule, []).append(row)
    return found


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="data set folders")
    parser.add_argument("--encoders", type=Path, required=True, help="folder that keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/exposure_price.json"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for folder in options.data:
        lab = FoldLab(folder, options.encoders, options.cache)
        shortlists, by_fold, start = lab.shortlists()
        alone = mean_mixed_quality(by_fold)
        rules = measure_prices(shortlists, alone, start)
        for rule, rows in rules.items():
            for row in rows:
                print(
                    f"{folder.name:15} {rule:18} price {row['price']:.1f}: mean {row['mean']:.1f} of "
                    f"{row['best mean']:.1f}, "
                    f"novel R@10 {row['novel R@10']:.1f} (encoder alone {alone.novel:.1f}), "
                    f"slices below it {row['below the encoder alone']:.1f}",
                    flush=True,
                )
        merge_results(
            options.out,
            folder.name,
            {
                "commit": git_commit(Path(package.__file__).parent),
                "command": f"python benchmarks/exposure_price.py {folder.name}",
                "data": lab.dataset.fingerprint,
                "seed": 0,
                "threads": options.threads,
                "encoder alone": alone.to_dict(),
                "rules": rules,
            },
        )


if __name__ == "__main__":
    main()
