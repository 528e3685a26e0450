"""How the first clicks of an item should count, judged on pseudo-novel items.

    python benchmarks/votes.py DATA... --kept FOLDER --folds 3 --out benchmarks/results/votes.json

Of each pseudo-novel item 1, 2 or 5 queries are revealed, drawn from its hidden training clicks; in one case only of
half of the items, because items with first clicks compete with items without. Held-out queries judge, as in
`metaxc.tuning`. Compared are the scales on which a query's vote meets the text's (`metaxc.selectors.voting`), and the
Gram matrix of the small classifier that it adds (`metaxc.selectors.revealed`). No test query is looked at.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.sparse import csc_array, csr_array

from metaxc import EmbeddingCache, Pretrained, __version__, read_folder, tuning
from metaxc.classifiers import ridge
from metaxc.data.clicks import training_clicks
from metaxc.data.folds import Fold
from metaxc.emmett import Calibration
from metaxc.encoders import AdapterConfig
from metaxc.encoders.learning import CachedEncoding, TowerEncoding
from metaxc.errors import DataError
from metaxc.generators import Combine, gather
from metaxc.index.topk import top_k
from metaxc.selectors import NearestSelector, Voters, max_votes
from metaxc.selectors.revealed import FewClicks, gram, inverted
from metaxc.tuning import CombineChoice, Judges, Quality, Trial

REVEALED = ((1, 1.0), (2, 1.0), (5, 1.0), (5, 0.5))  # queries per item at most, of a share of the items
LEAST_STRENGTH = 0.5  # of the combine: with less, whom the queries vote for would hardly matter
SEED = 0
SETTINGS = ("zero_shot", "generalized")
GRAMS = ("item Gram", "query Gram", "centroid")
BEST = "best to best"
CatalogHit = dict[str, Quality]
Array = np.ndarray
ROWS: list[tuple[str, str | None, str | None]] = [
    ("nothing revealed", None, None),
    *((f"votes, {scale}", scale, None) for scale in (BEST, "z-scores", "ranks", "raw")),
    *((f"evidence, {kind}", None, kind) for kind in GRAMS),
    *((f"votes, {BEST}, and evidence, {kind}", BEST, kind) for kind in ("item Gram", "centroid")),
]


@dataclass(frozen=True)
class Case:
    """A fold with what may be revealed of its pseudo-novel items.

    Args:
        trial: Everything fitted without them.
        queries: (queries, dim) all training queries.
        grams: By kind, (dim, dim), inverted.
        hidden: Per pseudo-novel item, rows of the queries that clicked it and do not judge, in random order.
    """

    trial: Trial
    queries: Array
    grams: dict[str, Array]
    hidden: list[Array]

    def reveal(self, most: int, share: float) -> FewClicks:
        """At most so many queries for a share of the items; fewer queries are among more."""
        chosen = np.random.default_rng(SEED).random(len(self.hidden)) < share
        shown = [rows[: most * int(one)] for one, rows in zip(chosen, self.hidden, strict=True)]
        owner = np.repeat(np.arange(len(shown)), [len(rows) for rows in shown])
        rows = np.concatenate(shown)
        return FewClicks(np.asarray(self.queries[rows]), owner, [str(row) for row in rows], len(shown))

    def made(self, choice: CombineChoice, few: FewClicks | None = None, scale: str | None = None) -> Array:
        """(pseudo-novel, dim) meta-classifiers, after votes on a scale if there is one; not scaled."""
        trial, bank = self.trial, self.trial.classifiers.trusted(choice.neighbour_prior)
        rows, scores = trial.near[:, : choice.neighbours], trial.scores[:, : choice.neighbours]
        if few and scale:
            rows, scores = elected(trial, bank, rows, scores, few, scale)
        return Combine(choice.strength, choice.temperature).generate(trial.new, gather(bank, rows), scores)

    def judge(
        self, made: Array, calibration: Calibration, few: FewClicks | None, kind: str | None
    ) -> CatalogHit:
        """Quality among the pseudo-novel items and among all, with evidence by a kind of Gram if there is one."""
        trial, novel = self.trial, calibration.novel_scale * made
        if few and kind:
            small = few.classifiers(self.grams[kind])
            novel = novel + calibration.own * small.trusted(calibration.prior_clicks)
        own = calibration.own * trial.classifiers.trusted(calibration.prior_clicks)
        vectors = np.empty((len(trial.novel), novel.shape[1]), dtype=np.float32)
        vectors[~trial.novel], vectors[trial.novel] = trial.seen + own, novel
        judges = ((trial.zero_shot, novel), (trial.generalized, vectors))
        found = (tuning.quality(torch.from_numpy(by.queries @ ranked.T), by.clicks) for by, ranked in judges)
        return dict(zip(SETTINGS, found, strict=True))


def elected(trial: Trial, bank, rows, scores, few: FewClicks, scale: str) -> tuple[Array, Array]:
    """Neighbours after the votes, each voter's scores first brought to a scale."""
    if scale == BEST:
        return Voters(trial.seen, bank).elect(trial.new, rows, scores, few.queries, few.owner)[:2]
    voted, votes = top_k(few.queries, bank, rows.shape[1])
    if scale == "ranks":  # a query's third choice counts as the text's third
        votes = scores[few.owner]
    elif scale == "z-scores":
        mean, spread = moments(few.queries, bank)
        new_mean, new_spread = (of[few.owner] for of in moments(trial.new, trial.seen))
        votes = (new_mean + (votes.T - mean) / spread * new_spread).T.astype(np.float32)
    return max_votes(rows, scores, few.owner, voted, votes)[:2]


def moments(vectors: Array, rows: Array) -> tuple[Array, Array]:
    """(vectors,) each: mean and spread of a vector's scores with all rows."""
    mean = rows.mean(axis=0)
    covariance = (rows - mean).T @ (rows - mean) / len(rows)
    return vectors @ mean, np.sqrt(np.einsum("nd,nd->n", vectors @ covariance, vectors))


def cases(folder: Path, kept: Path, folds: int, base: Pretrained | None = None) -> Iterator[Case]:
    """The folds, each with an encoder that saw neither its pseudo-novel items nor its judges."""
    dataset = read_folder(folder)
    observed, query_rows, clicks = training_clicks(dataset)
    frozen = base or Pretrained(cache=EmbeddingCache())
    encoding = CachedEncoding(TowerEncoding(frozen, dataset, AdapterConfig()), kept)
    for number in range(folds):
        fold = Fold.draw(clicks, seed=number)
        if fold is None:
            raise DataError("Too few data for pseudo-novel items", got=folder.name)
        rows, fold_clicks = fold.training(clicks)
        seen, new = np.flatnonzero(~fold.pseudo_novel), np.flatnonzero(fold.pseudo_novel)
        encoder = encoding.learn(query_rows[rows], observed[seen], fold_clicks, SEED)
        queries, items = encoding.embed(encoder, query_rows)
        items = items[observed]
        held, shown = np.flatnonzero(fold.held), np.flatnonzero(~fold.held)
        trial = Trial(
            ridge(queries[rows], fold_clicks),
            items[seen],
            items[new],
            *NearestSelector(items[seen]).select(items[new], max(tuning.NEIGHBOURS)),
            Judges.draw(queries[held], csr_array(clicks[held][:, new]), SEED),
            Judges.draw(queries[held], csr_array(clicks[held]), SEED),
            fold.pseudo_novel,
        )
        columns = csc_array(clicks[shown][:, new])
        random = np.random.default_rng(number)
        hidden = [random.permutation(shown[of]) for of in np.split(columns.indices, columns.indptr[1:-1])]
        grams = (gram(items[seen]), gram(queries[rows]), np.eye(queries.shape[1], dtype=np.float32))
        yield Case(trial, queries, dict(zip(GRAMS, map(inverted, grams), strict=True)), hidden)


def compare(folder: Path, kept: Path, folds: int) -> dict[str, Any]:
    """Every row on one data set: the mean over the folds, and each fold."""
    tried = list(cases(folder, kept, folds))
    trials = [case.trial for case in tried]
    choice = tuning.choose_combine(trials)
    if choice.strength < LEAST_STRENGTH:
        choice = replace(choice if choice.strength else tuning.DEFAULT_COMBINE, strength=LEAST_STRENGTH)
    chosen, _ = tuning.choose_calibration(trials, [case.made(choice) for case in tried])
    calibrations = {"default": Calibration(), "chosen": chosen}
    found: list[dict[str, Any]] = []
    for (n, share), (name, scale, kind) in [((0, 0.0), ROWS[0]), *product(REVEALED, ROWS[1:])]:
        few = [case.reveal(n, share) if n else None for case in tried]
        made = [case.made(choice, shown, scale) for case, shown in zip(tried, few, strict=True)]
        for named, calibration in calibrations.items():
            parts = zip(tried, made, few, strict=True)
            judged = [case.judge(vectors, calibration, shown, kind) for case, vectors, shown in parts]
            row: dict[str, Any] = {"calibration": named, "revealed": n, "share": share, "row": name}
            for setting in SETTINGS:
                of = [one[setting] for one in judged]
                row[setting] = {**tuning.mean_quality(of).to_dict(), "folds": [one.to_dict() for one in of]}
            cells = "   ".join(f"{row[s]['P@1']:5.1f} / {row[s]['R@10']:5.1f}" for s in SETTINGS)
            print(f"{folder.name:15} {named:8} {n} of {share:4.0%}  {name:45} {cells}", flush=True)
            found.append(row)
    constants = {named: calibration.model_dump() for named, calibration in calibrations.items()}
    about = {"fingerprint": read_folder(folder).fingerprint, "combine": asdict(choice)}
    return {**about, "calibrations": constants, "rows": found}


def main() -> None:
    """Run, print and merge into the result file; a data set's earlier results are replaced."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", nargs="+", type=Path)
    parser.add_argument("--kept", type=Path, required=True, help="folder for learnt encoders")
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/votes.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)  # another number would learn other encoders
    for folder in options.data:
        found = compare(folder, options.kept, options.folds)
        settings = {"folds": options.folds, "seed": SEED, "least strength": LEAST_STRENGTH}
        settings |= {"adapter": AdapterConfig().model_dump(), "classifiers": "ridge"}
        results = json.loads(options.out.read_text()) if options.out.exists() else {}
        results[folder.name] = {"version": __version__, "settings": settings, **found}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
