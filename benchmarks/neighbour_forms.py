"""What of its neighbours should an item take over: their classifiers, or how these differ from what their texts say?

    python benchmarks/neighbour_forms.py DATA... --encoders FOLDER --out benchmarks/results/neighbour_forms.json

An observed item's classifier w is close to the embedding z of its text, so that a mean of neighbours' classifiers
mostly says that the neighbours' texts are alike. What clicks have taught beyond the texts would be the difference:
w − c·z with the one c that fits best, or w − M·z with the ridge regression M of classifiers on embeddings. An item
takes over the weighted mean of these (as in `metaxc.generators.Combine`), in the last row beside its own M·z.
Pseudo-novel items are ranked among themselves: two folds, no fine-tuning, no query expansion, no test query. All forms
have the same grid; a setting is chosen on one fold and judged on the other, and the mean of both ways is reported.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from pseudo_novel import FoldLab, merge_results

import metaxc as package
from metaxc.arrays import Floats
from metaxc.emmett.scoring import scale_by_trust
from metaxc.generators import Combine, gather
from metaxc.irene import IreneConfig
from metaxc.research.code_version import git_commit
from metaxc.tuning import FittedFold

PRIORS, COUNTS, TEMPERATURES = (0.0, 10.0), (3, 5, 10, 20), (0.05, 0.1, 0.3)
STRENGTHS = (0.25, 0.5, 1.0, 2.0, 4.0)
RIDGE = 10.0
"""Of the regression of classifiers on embeddings; its rows have unit length, there are thousands of them."""


class Form(NamedTuple):
    """What neighbours hand on, and what is added to every item besides.

    Args:
        neighbour_vectors: (observed, dim).
        own: (novel, dim); None for nothing.
    """

    neighbour_vectors: Floats
    own: Floats | None = None


def build_forms(fold: FittedFold, prior: float) -> dict[str, Form]:
    """The forms by name; classifiers are scaled to a mean length of 1, so that all have one grid of strengths."""
    embeddings = fold.observed_embeddings
    weights = scale_by_trust(fold.classifiers, prior)
    weights = weights / np.linalg.norm(weights, axis=1).mean()
    share = float((weights * embeddings).sum() / (embeddings * embeddings).sum())
    gram = embeddings.T @ embeddings + RIDGE * np.eye(embeddings.shape[1], dtype=np.float32)
    mapping = np.linalg.solve(gram, embeddings.T @ weights)
    beyond = weights - embeddings @ mapping
    return {
        "classifiers": Form(weights),
        "classifiers − c·text": Form(weights - share * embeddings),
        "classifiers − M·text": Form(beyond),
        "classifiers − M·text, and its own M·text": Form(beyond, fold.novel_embeddings @ mapping),
    }


Quality = tuple[float, float]
"""P@1 and R@10, percent."""


def measure(fold: FittedFold) -> Iterator[tuple[str, tuple[float, ...], Quality]]:
    """Each form under each setting of the grid."""
    embeddings = fold.novel_embeddings
    found = fold.data.zero_shot.quality(embeddings)
    yield "text alone", (), (found.precision, found.recall)
    nothing = np.zeros_like(embeddings)
    for prior in PRIORS:
        for name, form in build_forms(fold, prior).items():
            for k, temperature in product(COUNTS, TEMPERATURES):
                selected = gather(form.neighbour_vectors, fold.neighbours[:, :k])
                mean = Combine(1.0, temperature).generate(nothing, selected, fold.similarities[:, :k])
                added = mean if form.own is None else mean + form.own
                for strength in STRENGTHS:
                    found = fold.data.zero_shot.quality((embeddings + strength * added).astype(np.float32))
                    yield name, (prior, k, temperature, strength), (found.precision, found.recall)


def judge(folds: list[dict[tuple[float, ...], Quality]]) -> dict[str, Any]:
    """Chosen on one fold by the mean of both figures, judged on the other; the mean of both ways."""
    chosen = [max(found, key=lambda setting: sum(found[setting])) for found in folds]
    judged = np.mean([folds[1 - number][setting] for number, setting in enumerate(chosen)], axis=0)
    return {"zero-shot P@1": judged[0], "zero-shot R@10": judged[1], "chosen": chosen}


def main() -> None:
    """Run the data sets and write the result file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="+", type=Path, help="data set folders")
    parser.add_argument("--encoders", type=Path, required=True, help="folder that keeps adapted encoders")
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/neighbour_forms.json"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = IreneConfig(folds=2, fine_tuning=None, expansion_queries=0)
    for folder in options.data:
        lab = FoldLab(folder, options.encoders, options.cache)
        tables: dict[str, list[dict[tuple[float, ...], Quality]]] = {}
        folds = lab.fit(config)
        for number, fold in enumerate(folds):
            for name, setting, found in measure(fold):
                tables.setdefault(name, [{}, {}])[number][setting] = found
        forms = {name: judge(table) for name, table in tables.items()}
        for name, one in forms.items():
            print(f"{folder.name:15} {name:42} {one['zero-shot P@1']:5.1f} / {one['zero-shot R@10']:5.1f}")
        origin = {
            "commit": git_commit(Path(package.__file__).parent),
            "command": f"python benchmarks/neighbour_forms.py {folder.name}",
            "data": lab.dataset.fingerprint,
            "seed": config.seed,
            "queries": [len(fold.data.zero_shot.queries) for fold in folds],
        }
        merge_results(options.out, folder.name, json.loads(json.dumps({**origin, "forms": forms})))


if __name__ == "__main__":
    main()
