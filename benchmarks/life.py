"""What its first clicks do to a new item in the ranking of all items, compared on pseudo-novel items.

    python benchmarks/life.py DATA... --encoders-folder FOLDER --out benchmarks/results/life.json

Of each pseudo-novel item at most n hidden training clicks are revealed, as they arrive in a live catalog: they vote for
neighbours, and give the item a small classifier of its own. Held-out queries validate; no test query is used. The
figure is novel R@10: over validation queries that clicked a pseudo-novel item, the share of these among the first ten
of all items, beside that of the encoder alone, and the difference to the same items without clicks (paired by query,
with its 95 % interval). The vector is always that of `metaxc.emmett.scoring`; what is compared is the novelty of the
items with first clicks, r = prior / (n + prior):

    as chosen     the prior that training chooses
    stays novel   prior → ∞: as exposed, and as much of its neighbours, as without clicks
    ends at once  prior = 0: from the first click on the item's text and its own classifier alone
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, merge_results
from votes import BEST, Case, build_cases, calibrate

import metaxc as package
from metaxc.arrays import Doubles, Floats
from metaxc.emmett import Calibration
from metaxc.emmett.scoring import item_vectors, query_vectors
from metaxc.evaluation.intervals import paired_interval
from metaxc.index.topk import top_k
from metaxc.metrics import hits, pairs_within, recall, relevant_counts
from metaxc.research.report.page import git_commit
from metaxc.tuning import ENCODER_ALONE, CombineChoice, tune_combine

REVEALED = (0, 1, 2, 3, 5, 10, 20, 50)
STAYS_NOVEL = 1e6
"""Clicks after which an item that stays novel would be half as novel: more than any item has."""


def observed_vectors(case: Case, choice: CombineChoice, calibration: Calibration) -> Floats:
    """(observed, dim + 1) the items that the pseudo-novel ones compete with."""
    count = len(case.fold.observed_embeddings)
    generated = case.items(choice).generated(choice.strength)[:count]
    return item_vectors(case.fold.observed_embeddings, generated, case.fold.classifiers, calibration)


def novel_recall(case: Case, observed: Floats, novel: Floats, exposure: float) -> Doubles:
    """(queries that clicked a pseudo-novel item,) percent of these items among the first ten of all items."""
    data = case.fold.data
    validation = data.generalized.with_columns(data.item_order)
    vectors = np.concatenate([observed, novel])
    relevant = pairs_within(validation.clicks, np.arange(len(vectors)) >= len(observed))
    asked = np.flatnonzero(relevant_counts(relevant))
    relevant = relevant[asked]
    ranked, _ = top_k(query_vectors(validation.queries[asked], exposure), vectors, 10)
    return 100 * recall(hits(ranked, relevant), relevant_counts(relevant), 10)


def recall_alone(case: Case) -> Doubles:
    """The same for the encoder alone."""
    fold, calibration = case.fold, ENCODER_ALONE.calibration
    observed = item_vectors(fold.observed_embeddings, fold.observed_embeddings, fold.classifiers, calibration)
    novel = item_vectors(fold.novel_embeddings, fold.novel_embeddings, None, calibration)
    return novel_recall(case, observed, novel, calibration.exposure)


def compare(lab: FoldLab, folds: int) -> dict[str, Any]:
    """Every form on one data set, over the queries of all folds."""
    cases = build_cases(lab, folds)
    choice = tune_combine([case.fold for case in cases])
    calibration = calibrate(cases, choice)
    priors = {"as chosen": calibration.novelty_prior, "stays novel": STAYS_NOVEL, "ends at once": 0.0}
    alone = np.concatenate([recall_alone(case) for case in cases])
    observed = [observed_vectors(case, choice, calibration) for case in cases]
    rows: list[dict[str, Any]] = []
    without_clicks: Doubles | None = None
    for most in REVEALED:
        for form, prior in priors.items() if most else [("as chosen", calibration.novelty_prior)]:
            constants = calibration.model_copy(update={"novelty_prior": prior})
            found, enough = [], []
            for case, others in zip(cases, observed, strict=True):
                revealed = case.reveal(most, 1.0) if most else None
                clicked = case.fitters["item Gram"].fit(revealed) if revealed else None
                enough += [] if clicked is None else [float((clicked.clicks >= most).mean())]
                generated = case.generate(choice, revealed, BEST)
                novel = item_vectors(case.fold.novel_embeddings, generated, clicked, constants)
                found.append(novel_recall(case, others, novel, calibration.exposure))
            values = np.concatenate(found)
            without_clicks = values if without_clicks is None else without_clicks
            difference = paired_interval(values, without_clicks)
            rows.append(
                {
                    "revealed": most,
                    "form": form,
                    "novel R@10": float(values.mean()),
                    "minus without clicks": difference._asdict(),
                    "items with so many": float(np.mean(enough)) if enough else 1.0,
                }
            )
            print(
                f"{lab.dataset.name:15} {most:4} {form:12} novel R@10 {values.mean():5.1f} "
                f"({difference.difference:+.1f}, {difference.low:+.1f} to {difference.high:+.1f}; "
                f"encoder alone {alone.mean():.1f})",
                flush=True,
            )
    return {
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/life.py {lab.dataset.name}",
        "data": lab.dataset.fingerprint,
        "seed": 0,
        "folds": folds,
        "queries": len(alone),
        "encoder alone": float(alone.mean()),
        "combine": vars(choice),
        "calibration": calibration.model_dump(),
        "rows": rows,
    }


def main() -> None:
    """Run, print and merge into the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/life.json"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    for folder in options.data:
        print(folder.name, file=sys.stderr)
        lab = FoldLab(folder, options.encoders_folder, options.cache)
        merge_results(options.out, folder.name, compare(lab, options.folds))


if __name__ == "__main__":
    main()
