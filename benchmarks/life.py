"""What its first clicks do to a new item in the ranking of all items, compared on pseudo-novel items.

    python benchmarks/life.py DATA... --encoders-folder FOLDER --out benchmarks/results/life.json

Of each pseudo-novel item at most n hidden training clicks are revealed, as they arrive in a live catalog: they vote for
neighbours, and give the item a small classifier of its own. Held-out queries validate; no test query is used. The
figure is novel R@10: over validation queries that clicked a pseudo-novel item, the share of these among the first ten
of all items, beside that of the encoder alone, and the difference to the same items without clicks (paired by query,
with its 95 % interval). The vector is always that of `metaxc.emmett.scoring`; what is compared is how much a click that
the encoder has not learnt from counts against the item's novelty:

    as served            a third of a training click (`UNLEARNT_SHARE`)
    as a training click  it exposes the item less, and takes as much from its neighbours, as one that was learnt from
    a tenth, not at all  the item stays nearly, or wholly, as exposed as one without clicks
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pseudo_novel import FoldLab, merge_results
from votes import BEST, Case, build_cases, calibrate

import metaxc as package
from metaxc.arrays import Doubles, Floats
from metaxc.emmett import Calibration
from metaxc.emmett.scoring import UNLEARNT_SHARE, item_vectors, query_vectors
from metaxc.evaluation.intervals import paired_interval
from metaxc.index.topk import top_k
from metaxc.metrics import hits, pairs_within, precision, recall, relevant_counts, without_pairs
from metaxc.research.code_version import git_commit
from metaxc.tuning import ENCODER_ALONE, CombineChoice, tune_combine

REVEALED = (0, 1, 2, 5, 10)
NOT_AT_ALL = 1e-5
"""A share so small that the novelty stays as it is."""

SHARES = {"as served": UNLEARNT_SHARE, "as a training click": 1.0, "a tenth": 0.1, "not at all": NOT_AT_ALL}


def observed_vectors(case: Case, choice: CombineChoice, calibration: Calibration) -> Floats:
    """(observed, dim + 1) the items that the pseudo-novel ones compete with."""
    count = len(case.fold.observed_embeddings)
    generated = case.items(choice).generated(choice.strength)[:count]
    return item_vectors(case.fold.observed_embeddings, generated, case.fold.classifiers, calibration)


class Found(NamedTuple):
    """What the queries of a fold find: (queries,) percent each.

    Args:
        novel: Of the queries that clicked a pseudo-novel item, R@10 of these items among all items.
        overall: The mean of P@1 and R@10, of all queries.
    """

    novel: Doubles
    overall: Doubles


def rank_all(case: Case, observed: Floats, novel: Floats, exposure: float) -> Found:
    """Rank all items for the validation queries of a fold."""
    data = case.fold.data
    validation = data.generalized.with_columns(data.item_order)
    vectors = np.concatenate([observed, novel])
    relevant = pairs_within(validation.clicks, None)
    own = validation.excluded
    extra = 0 if own is None else int(np.diff(own.indptr).max(initial=0))
    ranked, _ = top_k(query_vectors(validation.queries, exposure), vectors, 10 + extra)
    ranked = ranked if own is None else without_pairs(ranked, own)[:, :10]
    hit = hits(ranked, relevant)
    overall = (precision(hit, 1) + recall(hit, relevant_counts(relevant), 10)) / 2
    of_novel = pairs_within(relevant, np.arange(len(vectors)) >= len(observed))
    asked = np.flatnonzero(relevant_counts(of_novel))
    of_novel = of_novel[asked]
    found = recall(hits(ranked[asked], of_novel), relevant_counts(of_novel), 10)
    return Found(100 * found, 100 * overall)


def rank_alone(case: Case) -> Found:
    """The same for the encoder alone."""
    fold, calibration = case.fold, ENCODER_ALONE.calibration
    observed = item_vectors(fold.observed_embeddings, fold.observed_embeddings, fold.classifiers, calibration)
    novel = item_vectors(fold.novel_embeddings, fold.novel_embeddings, None, calibration)
    return rank_all(case, observed, novel, calibration.exposure)


def compare(lab: FoldLab, folds: int) -> dict[str, Any]:
    """Every form on one data set, over the queries of all folds."""
    cases = build_cases(lab, folds)
    choice = tune_combine([case.fold for case in cases])
    calibration = calibrate(cases, choice)
    alone = [rank_alone(case) for case in cases]
    observed = [observed_vectors(case, choice, calibration) for case in cases]
    rows: list[dict[str, Any]] = []
    without_clicks: Doubles | None = None
    for most in REVEALED:
        for form, share in SHARES.items() if most else [("as served", UNLEARNT_SHARE)]:
            # p / (share · n + p) by the formula's p' / (UNLEARNT_SHARE · n + p').
            prior = calibration.novelty_prior * UNLEARNT_SHARE / share
            constants = calibration.model_copy(update={"novelty_prior": prior})
            found, enough = [], []
            for case, others in zip(cases, observed, strict=True):
                revealed = case.reveal(most, 1.0) if most else None
                clicked = case.fitters["item Gram"].fit(revealed) if revealed else None
                enough += [] if clicked is None else [float((clicked.clicks >= most).mean())]
                generated = case.generate(choice, revealed, BEST)
                novel = item_vectors(case.fold.novel_embeddings, generated, clicked, constants)
                found.append(rank_all(case, others, novel, calibration.exposure))
            values = np.concatenate([one.novel for one in found])
            overall = float(np.concatenate([one.overall for one in found]).mean())
            without_clicks = values if without_clicks is None else without_clicks
            difference = paired_interval(values, without_clicks)
            rows.append(
                {
                    "revealed": most,
                    "form": form,
                    "novel R@10": float(values.mean()),
                    "minus without clicks": difference._asdict(),
                    "overall mean": overall,
                    "items with so many": float(np.mean(enough)) if enough else 1.0,
                }
            )
            print(
                f"{lab.dataset.name:15} {most:4} {form:19} novel R@10 {values.mean():5.1f} "
                f"({difference.difference:+.1f}, {difference.low:+.1f} to {difference.high:+.1f}), "
                f"overall {overall:.2f}",
                flush=True,
            )
    return {
        "commit": git_commit(Path(package.__file__).parent),
        "command": f"python benchmarks/life.py {lab.dataset.name}",
        "data": lab.dataset.fingerprint,
        "seed": 0,
        "folds": folds,
        "queries": sum(len(one.novel) for one in alone),
        "encoder alone": float(np.concatenate([one.novel for one in alone]).mean()),
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
