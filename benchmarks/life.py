"""What an item should be made of while its clicks grow in number, compared on pseudo-novel items.

    python benchmarks/life.py DATA... --encoders-folder FOLDER --out benchmarks/results/life.json

Of each pseudo-novel item at most n hidden training clicks are revealed; held-out queries validate, as in
`benchmarks/votes.py`. With t = n / (n + prior) the trust in n clicks, G the meta-classifier after the votes, z the text
and w the ridge classifier of the clicks, three forms are compared:

    clicked   novel_scale · G + own · t · w                    neighbours count as before
    own       z + own · t · w                                  an item that the model was trained on
    blend     (1 − t) · novel_scale · G + t · z + own · t · w  from the one to the other

No test query is used.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, format_quality, merge_results
from votes import BEST, SETTINGS, build_cases

from metaxc import __version__
from metaxc.arrays import Floats
from metaxc.classifiers import Classifiers
from metaxc.emmett import Calibration
from metaxc.emmett.scoring import click_trust, novel_vectors, observed_vectors
from metaxc.tuning import tune_calibration, tune_combine
from metaxc.tuning.fitted_folds import mean_quality

REVEALED = (1, 3, 5, 10, 20, 50, 100)
FORMS = ("clicked", "own", "blend")


def item_vectors(
    form: str, embeddings: Floats, generated: Floats, clicked: Classifiers, calibration: Calibration
) -> Floats:
    """(pseudo-novel, dim) in one of the forms; an item without clicks is what it is without."""
    own = observed_vectors(embeddings, clicked, calibration)
    evidence = own - embeddings
    if form == "clicked":
        return novel_vectors(generated, evidence, calibration)
    meta = novel_vectors(generated, None, calibration)
    if form == "own":
        return np.where(clicked.clicks[:, None] > 0, own, meta)
    t = click_trust(clicked.clicks, calibration.prior_clicks)[:, None]
    return (1 - t) * meta + t * embeddings + evidence


def compare(lab: FoldLab, folds: int) -> dict[str, Any]:
    """Every form on one data set, in the mean over the folds."""
    cases = build_cases(lab, folds)
    fitted = [case.fold for case in cases]
    choice = tune_combine(fitted)
    calibration, _ = tune_calibration(fitted, [case.generate(choice) for case in cases])
    rows = []
    for most in REVEALED:
        found: dict[str, list[Any]] = {form: [] for form in FORMS}
        enough = []
        for case in cases:
            revealed = case.reveal(most, 1.0)
            generated = case.generate(choice, revealed, BEST)
            clicked = case.fitters["item Gram"].fit(revealed)
            enough.append(float((clicked.clicks >= most).mean()))
            for form in FORMS:
                vectors = item_vectors(form, case.fold.novel_embeddings, generated, clicked, calibration)
                found[form].append(case.quality(vectors, calibration))
        for form in FORMS:
            row: dict[str, Any] = {
                "revealed": most,
                "with so many": round(float(np.mean(enough)), 3),
                "form": form,
            }
            for setting in SETTINGS:
                row[setting] = mean_quality([one[setting] for one in found[form]]).to_dict()
            print(f"{lab.dataset.name:15} {most:4} {form:8} {format_quality(row)}", flush=True)
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
