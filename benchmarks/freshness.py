"""May the exposure follow an item's freshness? What it brings on windows of time that the constants were not chosen on.

    python benchmarks/freshness.py DATA... --encoders FOLDER --cache FOLDER --out FILE

The calibration is chosen on the earlier windows of `metaxc train` and judged on the latest, for an exposure that
follows the number of clicks and for one that follows freshness, with several values of `FRESHNESS_PRIOR`, the clicks at
which the time since the last of them counts half. Beside them the encoder alone, and the encoder alone with freshness:
what of the gain needs no classifiers. No test query is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from pseudo_novel import FoldLab, merge_results

import metaxc as package
from metaxc.emmett import scoring
from metaxc.errors import DataError
from metaxc.metrics import CLICK_SLICES
from metaxc.research.code_version import git_commit
from metaxc.tuning import ENCODER_ALONE, MixedQuality, Setting, Shortlist, choose_calibration
from metaxc.tuning.qualities import mean_mixed_quality

PRIORS = (0.0, 1.0, 3.0, 10.0)
EXPOSURES = tuple(0.05 * step for step in range(13))
DAYS = tuple(7.0 * 2**step for step in range(10))


def judge(shortlists: list[Shortlist], alone: list[MixedQuality], start: Setting) -> dict[str, Any]:
    """The quality on the latest window of the better of both ways of exposure, chosen on the earlier windows."""
    latest, *earlier = shortlists
    base = mean_mixed_quality(alone[1:])
    follows = choose_calibration(earlier, base, start=start)
    same = choose_calibration([one.with_constant_exposure() for one in earlier], base, start=start)
    constant = same.is_clearly_better_than(follows)
    chosen = same if constant else follows
    found = (latest.with_constant_exposure() if constant else latest).quality(chosen.setting)
    return {
        "freshness days": chosen.setting.calibration.freshness_days,
        "exposure": chosen.setting.calibration.exposure,
        "mean": found.mean,
        **describe(found),
    }


def judge_encoder(shortlists: list[Shortlist]) -> dict[str, Any]:
    """The encoder alone with the exposure and the days that are best on the earlier windows, on the latest."""
    latest, *earlier = (one.with_constant_exposure() for one in shortlists)
    settings = [
        Setting(
            ENCODER_ALONE.calibration.model_copy(update={"exposure": exposure, "freshness_days": days}), 0.0
        )
        for exposure in EXPOSURES
        for days in DAYS
    ]
    best = max(settings, key=lambda one: mean_mixed_quality([part.quality(one) for part in earlier]).mean)
    found = latest.quality(best)
    chosen = {"freshness days": best.calibration.freshness_days, "exposure": best.calibration.exposure}
    return {**chosen, "mean": found.mean, **describe(found)}


def describe(found: MixedQuality) -> dict[str, Any]:
    """The figures by name, with the recall by clicks."""
    return {**found.to_dict(), "by clicks": dict(zip(CLICK_SLICES, found.by_clicks.tolist(), strict=True))}


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="data set folders whose clicks have times")
    parser.add_argument("--encoders", type=Path, required=True, help="folder that keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/freshness.json"))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for folder in options.data:
        lab = FoldLab(folder, options.encoders, options.cache)
        shortlists, alone, start = lab.shortlists()
        if any(one.ages is None for one in shortlists) or len(shortlists) < 2:
            raise DataError(
                "This needs two windows of time",
                got=folder.name,
                expected="clicks with times",
                fix="take another data set",
            )
        rows = {"encoder alone": describe(alone[0])}
        rows["encoder alone, freshness"] = judge_encoder(shortlists)
        rows["number of clicks"] = judge([one.without_ages() for one in shortlists], alone, start)
        usual = scoring.FRESHNESS_PRIOR
        for prior in PRIORS:
            scoring.FRESHNESS_PRIOR = prior
            rows[f"freshness, prior {prior:g}"] = judge(shortlists, alone, start)
        scoring.FRESHNESS_PRIOR = usual
        for name, row in rows.items():
            slices = " ".join(f"{value:.1f}" for value in row["by clicks"].values())
            print(
                f"{folder.name:15} {name:20} P@1 {row['P@1']:.1f} R@10 {row['R@10']:.1f} novel {row['novel R@10']:.1f} "
                f"by clicks {slices}",
                flush=True,
            )
        merge_results(
            options.out,
            folder.name,
            {
                "commit": git_commit(Path(package.__file__).parent),
                "command": f"python benchmarks/freshness.py {folder.name}",
                "data": lab.dataset.fingerprint,
                "seed": 0,
                "threads": options.threads,
                "rows": rows,
            },
        )


if __name__ == "__main__":
    main()
