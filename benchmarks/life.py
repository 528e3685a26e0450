"""How fast an item should cease to be novel while its clicks grow in number, compared on pseudo-novel items.

    python benchmarks/life.py DATA... --encoders-folder FOLDER --out benchmarks/results/life.json

Of each pseudo-novel item at most n hidden training clicks are revealed; held-out queries validate, as in
`benchmarks/votes.py`. The vector is always that of `metaxc.emmett.scoring`; what is compared is the novelty of the
pseudo-novel items, r = prior / (n + prior), which weighs what their neighbours tell:

    stays novel   prior → ∞: neighbours count as without clicks, however many there are
    as chosen     the prior that training chooses
    ends at once  prior = 0: from the first click on the item's text and its own classifier alone

No test query is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, format_quality, merge_results
from votes import BEST, SETTINGS, build_cases, calibrate

from metaxc import __version__
from metaxc.emmett.scoring import item_vectors
from metaxc.tuning import tune_combine
from metaxc.tuning.qualities import mean_quality

REVEALED = (1, 3, 5, 10, 20, 50, 100)
STAYS_NOVEL = 1e6
"""Clicks after which an item that stays novel would be half as novel: more than any item has."""


def compare(lab: FoldLab, folds: int) -> dict[str, Any]:
    """Every form on one data set, in the mean over the folds."""
    cases = build_cases(lab, folds)
    fitted = [case.fold for case in cases]
    choice = tune_combine(fitted)
    calibration = calibrate(cases, choice)
    priors = {
        "stays novel": STAYS_NOVEL,
        "as chosen": calibration.novelty_prior,
        "ends at once": 0.0,
    }
    forms = {name: calibration.model_copy(update={"novelty_prior": prior}) for name, prior in priors.items()}
    rows = []
    for most in REVEALED:
        found: dict[str, list[Any]] = {form: [] for form in forms}
        enough = []
        for case in cases:
            revealed = case.reveal(most, 1.0)
            generated = case.generate(choice, revealed, BEST)
            clicked = case.fitters["item Gram"].fit(revealed)
            enough.append(float((clicked.clicks >= most).mean()))
            for form, constants in forms.items():
                vectors = item_vectors(case.fold.novel_embeddings, generated, clicked, constants)
                found[form].append(case.quality(vectors, choice, calibration))
        for form in forms:
            row: dict[str, Any] = {
                "revealed": most,
                "with so many": round(float(np.mean(enough)), 3),
                "form": form,
            }
            for setting in SETTINGS:
                row[setting] = mean_quality([one[setting] for one in found[form]]).to_dict()
            print(f"{lab.dataset.name:15} {most:4} {form:12} {format_quality(row)}", flush=True)
            rows.append(row)
    about = {"combine": vars(choice), "calibration": calibration.model_dump(), "folds": folds}
    return {"version": __version__, **about, "rows": rows}


def main() -> None:
    """Run, print and merge into the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/life.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for folder in options.data:
        lab = FoldLab(folder, options.encoders_folder, options.cache)
        merge_results(options.out, folder.name, compare(lab, options.folds))


if __name__ == "__main__":
    main()
