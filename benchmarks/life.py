"""What an item should be made of while its clicks grow in number, judged on pseudo-novel items.

    python benchmarks/life.py DATA... --kept FOLDER --out benchmarks/results/life.json

Of each pseudo-novel item at most n hidden training clicks are revealed; held-out queries judge, as in
`benchmarks/votes.py`. With t = n / (n + prior) the trust in n clicks, G the meta-classifier after the votes, z the text
and w the ridge classifier of the clicks, three forms are compared:

    clicked   novel_scale · G + own · t · w                    neighbours count as before
    own       z + own · t · w                                  what an item has that the model was trained on
    blend     (1 − t) · novel_scale · G + t · z + own · t · w  from the one to the other

No test query is looked at.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from votes import BEST, SETTINGS, Case, cases

from metaxc import EmbeddingCache, Pretrained, __version__, read_folder, tuning
from metaxc.emmett import Calibration

REVEALED = (1, 3, 5, 10, 20, 50, 100)
FORMS = ("clicked", "own", "blend")


def vectors(
    case: Case, made: np.ndarray, n: np.ndarray, w: np.ndarray, calibration: Calibration, form: str
) -> np.ndarray:
    """(pseudo-novel, dim) in one of the forms; an item without clicks is what it is without."""
    t = (n / (n + calibration.prior_clicks))[:, None].astype(np.float32)
    evidence, meta = calibration.own * t * w, calibration.novel_scale * made
    if form == "clicked":
        return meta + evidence
    if form == "own":
        return np.where(n[:, None] > 0, case.trial.new + evidence, meta)
    return (1 - t) * meta + t * case.trial.new + evidence


def compare(folder: Path, kept: Path, folds: int, cache: Path | None) -> dict:
    """Every form on one data set, in the mean over the folds."""
    dataset = read_folder(folder)
    texts = [*dataset.items.texts, *dataset.train.queries.texts]
    base = Pretrained(cache=EmbeddingCache(cache), backend="auto", texts=texts)
    tried = list(cases(folder, kept, folds, base))
    trials = [case.trial for case in tried]
    choice = tuning.choose_combine(trials)
    calibration, _ = tuning.choose_calibration(trials, [case.made(choice) for case in tried])
    rows = []
    for most in REVEALED:
        found: dict[str, list] = {form: [] for form in FORMS}
        enough = []
        for case in tried:
            few = case.reveal(most, 1.0)
            made, fitted = case.made(choice, few, BEST), few.classifiers(case.grams["item Gram"])
            enough.append(float((fitted.clicks >= most).mean()))
            for form in FORMS:
                novel = vectors(case, made, fitted.clicks, fitted.weights, calibration, form)
                found[form].append(case.judge(novel / calibration.novel_scale, calibration, None, None))
        for form in FORMS:
            row = {"revealed": most, "with so many": round(float(np.mean(enough)), 3), "form": form}
            for setting in SETTINGS:
                row[setting] = tuning.mean_quality([one[setting] for one in found[form]]).to_dict()
            cells = "   ".join(f"{row[s]['P@1']:5.1f} / {row[s]['R@10']:5.1f}" for s in SETTINGS)
            print(f"{folder.name:15} {most:4} {form:8} {cells}", flush=True)
            rows.append(row)
    about = {"combine": vars(choice), "calibration": calibration.model_dump(), "folds": folds}
    return {"version": __version__, **about, "rows": rows}


def main() -> None:
    """Run, print and merge into the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--kept", type=Path, required=True, help="folder for learnt encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/life.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for folder in options.data:
        found = compare(folder, options.kept, options.folds, options.cache)
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results[folder.name] = found
        options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
