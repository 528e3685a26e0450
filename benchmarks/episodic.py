"""Does it help to train the adapter for what it is used for: items without clicks, beside neighbours that have some?

    python benchmarks/episodic.py DATA... --out benchmarks/results/episodic.json
    python benchmarks/episodic.py --table

Joint episodic training. Every few steps an episode begins: a fifth of the items and a third of the queries are masked,
the other items' ridge classifiers are computed from the other queries by the towers as they are, and each masked item
gets its ten nearest items among these. A step then has two losses in equal parts: the ordinary one, in-batch softmax
over queries and clicked items; and the same over masked queries and masked items, each of these in the form in which it
is served, z plus the neighbours' classifiers, weighted by a softmax. Towers, strength and temperature are trained
together, and every item plays novel in turn. Two controls: the towers as they are trained by default, and the same
two losses with the masked items' own embedding alone (K = 0), for a second batch per step is more training.

All encoders are then served alike: ridge classifiers and the combine, whose constants are chosen on the fold. Measured
on pseudo-novel items that no training has seen, one fold per seed, no query expansion, no test query. Rows that are in
the result file already are not run again.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from learned_generator import validate
from pseudo_novel import FoldLab, merge_results
from scipy.sparse import csr_array
from torch import Tensor, nn

import metaxc as package
from metaxc.arrays import Floats, Rows
from metaxc.artifacts import Stages
from metaxc.classifiers import ridge
from metaxc.data.clicks import click_mask
from metaxc.encoders import Encoder
from metaxc.encoders.adapted import Adapted, TwoTowers
from metaxc.encoders.learning import TowerDualEncoder, TowerEncoding
from metaxc.encoders.training.batches import RandomBatches
from metaxc.encoders.training.losses import compute_logq, contrastive_loss
from metaxc.encoders.training.trainer import embed_all
from metaxc.generators.generator import combine_weights, gather
from metaxc.index.topk import top_k
from metaxc.irene import Irene, IreneConfig
from metaxc.irene.training_run import TrainingRun, pretrained_encoder
from metaxc.research.code_version import git_commit
from metaxc.training_loop import run_training
from metaxc.tuning import FittedFold

MASKED_ITEMS, MASKED_QUERIES = 1 / 5, 1 / 3
EPISODES = 20
"""Episodes of a training run."""
NEIGHBOURS = 10
ROWS: dict[str, dict[str, Any]] = {
    "default": {},
    "episodic, K = 0": {"neighbours": 0},
    "episodic": {"neighbours": NEIGHBOURS},
    "episodic, twice the passes": {"neighbours": NEIGHBOURS, "passes": 2},
}


class Episodes:
    """Draws episodes: which items and queries are masked, and what the other items know.

    Args:
        encoder: The towers and the texts that they are trained on.
        clicks: (queries, items).
        neighbours: K, 0 for none.
        seed: Decides what is masked.
    """

    def __init__(self, encoder: TowerDualEncoder, clicks: csr_array, neighbours: int, seed: int):
        self.encoder, self.clicks, self.neighbours = encoder, clicks, neighbours
        self.random = np.random.default_rng([seed, 3])
        self.begin()

    def begin(self) -> None:
        """Begin a new episode."""
        queries, items = self.clicks.shape
        masked_items = self.random.random(items) < MASKED_ITEMS
        masked_queries = self.random.random(queries) < MASKED_QUERIES
        row = np.repeat(np.arange(queries), np.diff(self.clicks.indptr))
        column = self.clicks.indices
        inside = masked_queries[row] & masked_items[column]
        self.pairs = np.stack([row[inside], column[inside]], axis=1)
        if not self.neighbours:
            return
        known = np.flatnonzero(~masked_items)
        teaching = np.flatnonzero(~masked_queries)
        embedded = embed_all(self.encoder, "item", items)
        self.known = embedded[known]
        learnt = csr_array(self.clicks[teaching][:, known])
        self.classifiers: Floats = ridge(embed_all(self.encoder, "query", queries)[teaching], learnt).weights
        self.near: Rows = np.full((items, self.neighbours), -1, dtype=np.int64)
        masked = np.flatnonzero(masked_items)
        self.near[masked] = top_k(embedded[masked], self.known, self.neighbours)[0]

    def draw(self, size: int) -> tuple[Rows, Rows]:
        """Masked queries, and for each a masked item that it clicked; no query twice."""
        order = self.random.permutation(len(self.pairs))
        _, first = np.unique(self.pairs[order, 0], return_index=True)
        taken = self.pairs[order[self.random.permutation(first)[:size]]]
        return taken[:, 0], taken[:, 1]


class CombineInTraining(nn.Module):
    """The combine with a strength and a temperature that are trained."""

    def __init__(self) -> None:
        super().__init__()
        self.log_strength = nn.Parameter(torch.tensor(0.5).log())
        self.log_temperature = nn.Parameter(torch.tensor(0.1).log())

    def forward(self, items: Tensor, episodes: Episodes, rows: Rows) -> Tensor:
        """(rows, dim) the masked items at `rows` as they are served."""
        near = episodes.near[rows]
        selected = torch.from_numpy(gather(episodes.classifiers, near))
        beside = torch.from_numpy(gather(episodes.known, near))
        scores = torch.einsum("nd,nkd->nk", items, beside)
        weights = combine_weights(scores, self.log_strength.exp(), self.log_temperature.exp())
        return weights[:, :1] * items + torch.einsum("nk,nkd->nd", weights[:, 1:], selected)


class EpisodicEncoding(TowerEncoding):
    """Towers that are trained in episodes."""

    neighbours, passes = NEIGHBOURS, 1

    def learn(self, query_rows: Rows, item_rows: Rows, clicks: csr_array, seed: int) -> Encoder:
        assert self.queries is not None
        assert self.items is not None
        torch.manual_seed(seed)
        towers = TwoTowers(self.tokenizer.vocabulary, self.base.dim, scale=self.config.scale)
        encoder = TowerDualEncoder(
            towers,
            self.queries[query_rows],
            self.items[item_rows],
            self.query_bags.take(query_rows),
            self.item_bags.take(item_rows),
            self.config.token_dropout,
        )
        self._train(encoder, clicks, seed)
        return Adapted(self.base, towers, self.tokenizer)

    def _train(self, encoder: TowerDualEncoder, clicks: csr_array, seed: int) -> None:
        config, steps = self.config, self.passes * self.config.steps(clicks.shape[0])
        batches = RandomBatches(clicks.shape[0], config.batch, seed)
        episodes = Episodes(encoder, clicks, self.neighbours, seed)
        combine = CombineInTraining()
        logq = torch.from_numpy(compute_logq(clicks, config.logq_correction))
        random = np.random.default_rng([seed, 4])
        every = max(1, steps // EPISODES)

        def loss_of(query_rows: Rows, item_rows: Rows, masked: bool) -> Tensor:
            queries, items = encoder.embed("query", query_rows), encoder.embed("item", item_rows)
            if masked and self.neighbours:
                items = combine(items, episodes, item_rows)
            clicked = torch.from_numpy(click_mask(clicks, query_rows, item_rows))
            return contrastive_loss(
                queries, items, encoder.log_scale.exp(), clicked, logq[torch.from_numpy(item_rows)]
            )

        def compute_loss(step: int) -> Tensor:
            if step and step % every == 0:
                episodes.begin()
            rows = batches.draw(step)
            starts, counts = clicks.indptr[rows], np.diff(clicks.indptr)[rows]
            clicked = clicks.indices[starts + (random.random(len(rows)) * counts).astype(np.int64)]
            masked = episodes.draw(config.batch)
            return (loss_of(rows, clicked.astype(np.int64), False) + loss_of(*masked, True)) / 2

        encoder.towers.train()
        optimizers = [
            *encoder.optimizers(config.learning_rate),
            torch.optim.Adam(combine.parameters(), lr=config.learning_rate),
        ]
        run_training(compute_loss, optimizers, steps, label="train in episodes")
        encoder.towers.eval()
        print(
            f"  strength {combine.log_strength.exp():.2f}, temperature {combine.log_temperature.exp():.3f}",
            flush=True,
        )


def fit(lab: FoldLab, config: IreneConfig, row: str) -> list[FittedFold]:
    """The fold, everything but the generator fitted, with the encoder of a row."""
    irene = Irene(config, cache=lab.cache)
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(Path(folder), lambda line: None)
        run = TrainingRun(config, lab.dataset, stages, None, lab.cache, None, irene.inputs(lab.dataset))
        if ROWS[row]:
            base_config = config.model_copy(update={"base": run.bases.fold})
            base = pretrained_encoder(base_config, lab.dataset, lab.cache, lambda line: None)
            run.fold_encoding = encoding = EpisodicEncoding(base, lab.dataset, config.adapter)
            encoding.neighbours = ROWS[row]["neighbours"]
            encoding.passes = ROWS[row].get("passes", 1)
        choice = run.constant_choice()
        return choice.fit_folds(choice.learn_encoders())


def render_table(results: dict[str, dict[str, Any]]) -> str:
    """Markdown: the default, and the differences of the other rows to it, for each seed."""
    lines: list[str] = []
    for name, rows in sorted(results.items()):
        seeds = sorted({entry["seed"] for entry in rows.values()})
        for row in ROWS:
            pairs = [
                (rows[f"{row}, seed {seed}"]["found"], rows[f"default, seed {seed}"]["found"])
                for seed in seeds
                if f"{row}, seed {seed}" in rows
            ]
            if not pairs:
                continue
            metrics = list(pairs[0][0])
            if not lines:
                lines = [f"| data set | adapter | {' | '.join(metrics)} |", "|---" * (len(metrics) + 2) + "|"]
            cells = [
                ", ".join(
                    f"{one[metric]:.1f}" if row == "default" else f"{one[metric] - base[metric]:+.1f}"
                    for one, base in pairs
                )
                for metric in metrics
            ]
            lines.append(f"| {name if row == 'default' else ''} | {row} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the data sets, or print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="*", type=Path, help="data set folders")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), help="only these")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--cache", type=Path, help="folder for embeddings")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/episodic.json"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--table", action="store_true", help="print the result file as a Markdown table")
    options = parser.parse_args()
    if options.table:
        print(render_table(json.loads(options.out.read_text())))
        return
    torch.set_num_threads(options.threads)
    for folder in options.data:
        lab = FoldLab(folder, Path("unused"), options.cache)
        for seed in options.seeds:
            for row in options.rows:
                results = json.loads(options.out.read_text()) if options.out.exists() else {}
                key = f"{row}, seed {seed}"
                if key in results.get(folder.name, {}):
                    continue
                config = IreneConfig.model_validate({"seed": seed, "folds": 1, "expansion_queries": 0})
                started = time.perf_counter()
                found = validate(fit(lab, config, row), config)
                seconds = round(time.perf_counter() - started, 1)
                print(
                    folder.name,
                    key,
                    {one: round(value, 1) for one, value in found.items()},
                    seconds,
                    flush=True,
                )
                entry = {
                    "settings": ROWS[row],
                    "found": found,
                    "seconds": seconds,
                    "seed": seed,
                    "commit": git_commit(Path(package.__file__).parent),
                    "command": f"python benchmarks/episodic.py {folder.name} --seeds {seed}",
                    "data": lab.dataset.fingerprint,
                    "threads": options.threads,
                }
                merge_results(options.out, folder.name, {key: entry})


if __name__ == "__main__":
    main()
