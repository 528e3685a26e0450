"""How the first clicks of an item should count, compared on pseudo-novel items.

    python benchmarks/votes.py DATA... --encoders-folder FOLDER --folds 3 --out benchmarks/results/votes.json

Of each pseudo-novel item 1, 2 or 5 queries are revealed, drawn from its hidden training clicks; in one case of half
of the items only, because items with first clicks compete with items without. Held-out queries validate, as in
`metaxc.tuning`. Compared are the scales on which a query's vote meets the text's (`metaxc.selectors.voting`), and the
Gram matrix of the few-shot classifier (`metaxc.classifiers.few_shot`). No test query is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pseudo_novel import FoldLab, format_quality, merge_results
from scipy.sparse import csc_array

from metaxc import __version__
from metaxc.arrays import Floats, Rows
from metaxc.classifiers import FewShotFitter, RevealedQueries
from metaxc.emmett import Calibration
from metaxc.emmett.scoring import item_vectors, query_vectors, scale_by_trust
from metaxc.generators import Combine, gather
from metaxc.index.topk import top_k
from metaxc.irene import IreneConfig
from metaxc.selectors import Voters, max_votes
from metaxc.tuning import (
    ENCODER_ALONE,
    CombineChoice,
    FittedFold,
    FoldItems,
    Quality,
    Setting,
    ValidationQueries,
    choose_calibration,
    tune_combine,
)
from metaxc.tuning.grids import DEFAULT_COMBINE
from metaxc.tuning.qualities import mean_mixed_quality, mean_quality

REVEALED = ((1, 1.0), (2, 1.0), (5, 1.0), (5, 0.5))
"""At most so many queries per item, of a share of the items."""

LEAST_STRENGTH = 0.5
"""Of the combine: with less, it would hardly matter for whom the queries vote."""

SEED = 0
SETTINGS = ("zero_shot", "generalized")
BEST = "best to best"
GRAMS = ("item Gram", "query Gram", "centroid")
ROWS: list[tuple[str, str | None, str | None]] = [
    ("nothing revealed", None, None),
    *((f"votes, {scale}", scale, None) for scale in (BEST, "z-scores", "ranks", "raw")),
    *((f"evidence, {kind}", None, kind) for kind in GRAMS),
    *((f"votes, {BEST}, and evidence, {kind}", BEST, kind) for kind in ("item Gram", "centroid")),
]


@dataclass(frozen=True)
class Case:
    """A fitted fold, and what may be revealed of its pseudo-novel items.

    Args:
        fold: Everything fitted without them.
        fitters: Few-shot classifiers, by the kind of Gram matrix.
        hidden: Per pseudo-novel item, rows of the queries that clicked it and do not validate, in random order.
    """

    fold: FittedFold
    fitters: dict[str, FewShotFitter]
    hidden: list[Rows]

    def reveal(self, most: int, share: float) -> RevealedQueries:
        """At most `most` queries for a share of the items; fewer queries are among more."""
        chosen = np.random.default_rng(SEED).random(len(self.hidden)) < share
        shown = [rows[: most * int(one)] for one, rows in zip(chosen, self.hidden, strict=True)]
        owner = np.repeat(np.arange(len(shown)), [len(rows) for rows in shown])
        rows = np.concatenate(shown)
        return RevealedQueries(
            np.asarray(self.fold.queries[rows]), owner, [str(row) for row in rows], len(shown)
        )

    def generate(
        self, choice: CombineChoice, revealed: RevealedQueries | None = None, scale: str | None = None
    ) -> Floats:
        """(pseudo-novel, dim) what the combine makes of their neighbours, after votes on a scale if there is one."""
        fold, vectors = self.fold, scale_by_trust(self.fold.classifiers, choice.neighbour_prior)
        rows = fold.neighbours[:, : choice.neighbours]
        scores = fold.similarities[:, : choice.neighbours]
        if revealed and scale:
            rows, scores = elect(fold, vectors, rows, scores, revealed, scale)
        combine = Combine(choice.strength, choice.temperature)
        return combine.generate(fold.novel_embeddings, gather(vectors, rows), scores)

    def items(self, choice: CombineChoice) -> FoldItems:
        """The fold's items by the parts of their vectors, without revealed queries."""
        vectors = scale_by_trust(self.fold.classifiers, choice.neighbour_prior)
        return self.fold.items(Combine(1.0, choice.temperature), vectors, choice.neighbours)

    def quality(self, novel: Floats, choice: CombineChoice, calibration: Calibration) -> dict[str, Quality]:
        """Quality of the pseudo-novel items' vectors, (pseudo-novel, dim + 1), among themselves and among all items."""
        fold, data, items = self.fold, self.fold.data, self.items(choice)
        count = len(fold.observed_embeddings)
        generated = items.generated(choice.strength)[:count]
        observed = item_vectors(fold.observed_embeddings, generated, fold.classifiers, calibration)
        vectors = np.empty((count + len(novel), novel.shape[1]), dtype=np.float32)
        vectors[data.fold.observed], vectors[data.fold.novel] = observed, novel

        def exposed(validation: ValidationQueries) -> ValidationQueries:
            return replace(validation, queries=query_vectors(validation.queries, calibration.exposure))

        return {
            "zero_shot": exposed(data.zero_shot).quality(novel),
            "generalized": exposed(data.generalized).quality(vectors),
        }


def elect(
    fold: FittedFold, vectors: Floats, rows: Rows, scores: Floats, revealed: RevealedQueries, scale: str
) -> tuple[Rows, Floats]:
    """Neighbours after the votes, each query's scores first brought to a scale."""
    new, seen, owner = fold.novel_embeddings, fold.observed_embeddings, revealed.owner
    if scale == BEST:
        return Voters.over(seen, vectors).elect(new, rows, scores, revealed.queries, owner)[:2]
    voted, votes = top_k(revealed.queries, vectors, rows.shape[1])
    if scale == "ranks":  # a query's third choice counts as the text's third
        votes = scores[owner]
    elif scale == "z-scores":
        mean, spread = moments(revealed.queries, vectors)
        new_mean, new_spread = (moment[owner] for moment in moments(new, seen))
        votes = (new_mean + (votes.T - mean) / spread * new_spread).T.astype(np.float32)
    return max_votes(rows, scores, owner, voted, votes)[:2]


def moments(vectors: Floats, rows: Floats) -> tuple[Floats, Floats]:
    """(vectors,) each: mean and standard deviation of a vector's scores with all rows."""
    mean = rows.mean(axis=0)
    covariance = (rows - mean).T @ (rows - mean) / len(rows)
    return vectors @ mean, np.sqrt(np.einsum("nd,nd->n", vectors @ covariance, vectors))


def build_cases(lab: FoldLab, folds: int) -> list[Case]:
    """The folds, each with an encoder that saw neither its pseudo-novel items nor its validation queries."""
    cases = []
    for number, fold in enumerate(lab.fit(IreneConfig(folds=folds, expansion_queries=0))):
        shown = np.flatnonzero(~fold.data.fold.held)
        columns = csc_array(lab.clicks[shown][:, fold.data.fold.novel])
        random = np.random.default_rng(number)
        hidden = [random.permutation(shown[rows]) for rows in np.split(columns.indices, columns.indptr[1:-1])]
        nothing = np.empty((0, fold.queries.shape[1]), np.float32)
        inputs = (fold.observed_embeddings, fold.queries[fold.data.training_rows], nothing)
        fitters = {kind: FewShotFitter(rows) for kind, rows in zip(GRAMS, inputs, strict=True)}
        cases.append(Case(fold, fitters, hidden))
    return cases


def calibrate(cases: Sequence[Case], choice: CombineChoice) -> Calibration:
    """The calibration that training would choose for this combine, without revealed queries."""
    shortlists = [case.fold.shortlist(case.items(choice)) for case in cases]
    alone = mean_mixed_quality([one.quality(ENCODER_ALONE) for one in shortlists])
    start = Setting(Calibration(), choice.strength)
    chosen = choose_calibration(shortlists, alone, start=start, strength=choice.strength)
    return chosen.setting.calibration


def compare(lab: FoldLab, folds: int) -> dict[str, Any]:
    """Every row on one data set: the mean over the folds, and each fold."""
    cases = build_cases(lab, folds)
    fitted = [case.fold for case in cases]
    choice = tune_combine(fitted)
    if choice.strength < LEAST_STRENGTH:
        choice = replace(choice if choice.strength else DEFAULT_COMBINE, strength=LEAST_STRENGTH)
    calibrations = {"default": Calibration(), "chosen": calibrate(cases, choice)}
    found: list[dict[str, Any]] = []
    for (n, share), (name, scale, kind) in [((0, 0.0), ROWS[0]), *product(REVEALED, ROWS[1:])]:
        for named, calibration in calibrations.items():
            qualities = []
            for case in cases:
                revealed = case.reveal(n, share) if n else None
                own = case.fitters[kind].fit(revealed) if revealed and kind else None
                generated = case.generate(choice, revealed, scale)
                novel = item_vectors(case.fold.novel_embeddings, generated, own, calibration)
                qualities.append(case.quality(novel, choice, calibration))
            row: dict[str, Any] = {"calibration": named, "revealed": n, "share": share, "row": name}
            for setting in SETTINGS:
                each = [one[setting] for one in qualities]
                row[setting] = {**mean_quality(each).to_dict(), "folds": [one.to_dict() for one in each]}
            print(f"{lab.dataset.name:15} {named:8} {n} of {share:4.0%}  {name:45} {format_quality(row)}")
            found.append(row)
    return {
        "fingerprint": lab.dataset.fingerprint,
        "combine": asdict(choice),
        "calibrations": {named: calibration.model_dump() for named, calibration in calibrations.items()},
        "rows": found,
    }


def main() -> None:
    """Run, print and merge into the result file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--encoders-folder", type=Path, required=True, help="keeps adapted encoders")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/votes.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # with another number, other encoders are trained
    for folder in options.data:
        found = compare(FoldLab(folder, options.encoders_folder), options.folds)
        settings = {"folds": options.folds, "seed": SEED, "least strength": LEAST_STRENGTH}
        merge_results(options.out, folder.name, {"version": __version__, "settings": settings, **found})


if __name__ == "__main__":
    main()
