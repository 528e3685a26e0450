"""The theory study: train generators while one setting at a time changes, and measure the generalization gap.

The gap is the risk on pairs that were excluded from training (held-out queries with held-out items) minus the risk on
the training sample. The risk is the paper's weighted cross-entropy with the weight that balances clicks and other
pairs: ½ (mean over clicks + mean over the rest). It does not depend on how rare clicks are, and a model that scores
every pair 0 has a risk of ln 2.

Everything is a function of arrays. Embeddings are reduced to a few dimensions (their principal axes), and items and
queries are sampled, so that many training runs fit into minutes. The settings of one seed share their items, queries
and held-out pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional

from metaxc.arrays import Floats, Rows
from metaxc.classifiers import ridge
from metaxc.classifiers.classifiers import normalize_rows
from metaxc.errors import DataError
from metaxc.generators import PostNormTransformer, ResidualTransformer, TorchGenerator, gather
from metaxc.index.topk import top_k
from metaxc.research.theory.model_norms import GeneratorInputs, decompose_generator, largest_norm
from metaxc.research.theory.study import SAMPLERS, PairSampler, Setting, Study, StudyRow
from metaxc.selectors import NearestSelector
from metaxc.training_loop import run_training


@dataclass(frozen=True)
class StudyData:
    """The data of one seed.

    Args:
        queries: (queries, dim) unit rows, to train on.
        new_queries: (held-out queries, dim).
        items: (items, dim) unit rows, the observed items.
        new_items: (held-out items, dim).
        clicks: (queries, items).
        new_clicks: (held-out queries, held-out items).
    """

    queries: Floats
    new_queries: Floats
    items: Floats
    new_items: Floats
    clicks: csr_array
    new_clicks: csr_array


def run_study(
    queries: Floats,
    items: Floats,
    clicks: csr_array,
    study: Study,
    *,
    done: Sequence[StudyRow] = (),
    after_row: Callable[[list[StudyRow]], None] = lambda rows: None,
) -> list[StudyRow]:
    """Train and measure every setting with every seed.

    Args:
        queries: (queries, dim) embeddings.
        items: (items, dim) embeddings.
        clicks: (queries, items).
        study: The parameters of the study.
        done: Rows of an earlier run of the same study, which are not repeated.
        after_row: Called with all rows after each training run.
    """
    rows = list(done)
    known = {(row.setting, row.seed) for row in rows}
    for seed in range(study.seeds):
        missing = [setting for setting in study.settings() if (setting, seed) not in known]
        data = sample_study_data(queries, items, clicks, study, seed) if missing else None
        for setting in missing:
            assert data is not None
            rows.append(train_and_measure(data, setting, study, seed))
            after_row(rows)
    return rows


def sample_study_data(
    queries: Floats, items: Floats, clicks: csr_array, study: Study, seed: int
) -> StudyData:
    """Sample the items and queries of one seed, and reduce the embeddings to their principal axes."""
    random = np.random.default_rng(seed)
    wanted_items, wanted_queries = study.items + study.held_out, study.queries + study.held_out_queries
    item_rows = random.permutation(len(items))[:wanted_items]
    sampled_clicks = csr_array(clicks[:, item_rows])
    query_rows = random.permutation(np.flatnonzero(np.diff(sampled_clicks.indptr) > 0))[:wanted_queries]
    if len(item_rows) < wanted_items or len(query_rows) < wanted_queries:
        raise DataError(
            "The data set is too small for this study",
            got=f"{len(item_rows):,} items, {len(query_rows):,} queries that clicked one of them",
            expected=f"{wanted_items:,} items, {wanted_queries:,} queries",
            fix="use --quick, or a larger data set",
        )
    axes = _principal_axes(items[item_rows[: study.items]], queries[query_rows[: study.queries]], study.dim)
    x, z = normalize_rows(queries[query_rows] @ axes), normalize_rows(items[item_rows] @ axes)
    sampled_clicks = csr_array(sampled_clicks[query_rows])
    n, count = study.queries, study.items
    return StudyData(
        x[:n],
        x[n:],
        z[:count],
        z[count:],
        csr_array(sampled_clicks[:n, :count]),
        csr_array(sampled_clicks[n:, count:]),
    )


def _principal_axes(items: Floats, queries: Floats, dim: int) -> Floats:
    """(full dim, dim) principal axes of items and queries, weighted equally; not centred, which preserves inner
    products best."""
    gram = items.T @ items / len(items) + queries.T @ queries / len(queries)
    return np.asarray(np.linalg.eigh(gram)[1][:, ::-1][:, :dim], dtype=np.float32)


class LogitHead(nn.Module):
    """Turns inner products into logits by a scale and a bias, which are trained with the generator."""

    def __init__(self, scale: float = 10.0) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.bias = nn.Parameter(torch.tensor(-4.0))

    def forward(self, scores: Tensor) -> Tensor:
        logits: Tensor = self.log_scale.exp() * scores + self.bias
        return logits


def build_generator(study: Study, depth: int) -> tuple[TorchGenerator, LogitHead]:
    """A generator that is not trained yet, and the head that makes logits of its scores."""
    if study.generator == "post_norm":
        # Its output has the length that the layer norm gives it, √dim, which the scale makes up for.
        return PostNormTransformer(study.dim, depth, zero_start=True), LogitHead(10.0 / study.dim**0.5)
    return ResidualTransformer(study.dim, depth), LogitHead()


def train_and_measure(data: StudyData, setting: Setting, study: Study, seed: int) -> StudyRow:
    """One row of the study."""
    torch.manual_seed(seed)
    random = np.random.default_rng([seed, 1])
    items, clicks = data.items[: setting.items], csr_array(data.clicks[:, : setting.items])
    classifiers = nn.Parameter(
        torch.from_numpy(ridge(data.queries, clicks).weights), requires_grad=not setting.frozen
    )
    rows, scores = NearestSelector(items).select(
        items, setting.neighbours, exclude_self=np.arange(len(items))
    )
    observed = GeneratorInputs(items, rows, gather(classifiers.detach().numpy(), rows), scores)
    generator, head = build_generator(study, setting.depth)
    sampler = SAMPLERS[setting.sample](clicks, random)
    trainable = [
        parameter
        for parameter in (*generator.parameters(), *head.parameters(), classifiers)
        if parameter.requires_grad
    ]

    def compute_loss(step: int) -> Tensor:
        batch = sampler.draw()
        meta_classifiers = _generate(generator, classifiers, observed, batch.items)
        x = torch.from_numpy(data.queries[batch.queries])
        return balanced_risk(head(batch.scores(x, meta_classifiers)), torch.from_numpy(batch.clicked))

    generator.train()
    optimizer = torch.optim.Adam(trainable, lr=study.learning_rate)
    run_training(compute_loss, [optimizer], study.steps, label="theory study", progress=False)
    generator.eval()
    with torch.inference_mode():
        return _measure(data, setting, seed, generator, head, classifiers.detach(), observed, sampler)


def _generate(generator: TorchGenerator, classifiers: Tensor, inputs: GeneratorInputs, rows: Rows) -> Tensor:
    """(rows, dim) meta-classifiers, differentiable in the generator and the classifiers."""
    selected = torch.from_numpy(inputs.rows[rows])
    meta_classifiers: Tensor = generator(
        torch.from_numpy(inputs.embeddings[rows]),
        classifiers[selected.clamp(min=0)] * (selected >= 0).unsqueeze(2),
        torch.from_numpy(inputs.scores[rows]),
    )
    return meta_classifiers


def balanced_risk(logits: Tensor, clicked: Tensor) -> Tensor:
    """½ (mean cross-entropy of clicks + mean of the rest); one of them alone where the other is empty.

    Args:
        logits: Logits of pairs, any shape.
        clicked: bool, the same shape.
    """
    means = [
        functional.softplus(signed).mean()
        for signed in (-logits[clicked], logits[~clicked])
        if signed.numel()
    ]
    return torch.stack(means).mean()


def _measure(
    data: StudyData,
    setting: Setting,
    seed: int,
    generator: TorchGenerator,
    head: LogitHead,
    classifiers: Tensor,
    observed: GeneratorInputs,
    sampler: PairSampler,
) -> StudyRow:
    trained = _generate(generator, classifiers, observed, np.arange(len(observed.embeddings)))
    rows, scores = NearestSelector(observed.embeddings).select(data.new_items, setting.neighbours)
    held_out = GeneratorInputs(data.new_items, rows, gather(classifiers.numpy(), rows), scores)
    novel = _generate(generator, classifiers, held_out, np.arange(len(data.new_items)))
    pairs = sampler.all_pairs()
    train_logits = head(pairs.scores(torch.from_numpy(data.queries[pairs.queries]), trained[pairs.items]))
    new_logits = head(torch.from_numpy(data.new_queries) @ novel.T)
    new_clicked = torch.from_numpy(data.new_clicks.toarray() > 0)
    largest_classifier = largest_norm(classifiers.numpy())
    parts = decompose_generator(
        generator, held_out, max(largest_classifier, largest_norm(held_out.embeddings))
    )
    norms = {
        "B": largest_norm(data.queries),
        "W": largest_classifier,
        "U": largest_norm(novel.numpy()),
        "M": sum(part.spectral for part in parts),
        "MF·V": sum(part.frobenius * part.vectors for part in parts),
        "M·V": sum(part.spectral * part.vectors for part in parts),
        "scale": float(head.log_scale.exp()),
    }
    return StudyRow(
        setting,
        seed,
        float(balanced_risk(train_logits, torch.from_numpy(pairs.clicked))),
        float(balanced_risk(new_logits, new_clicked)),
        recall_at_10(data.new_queries, novel.numpy(), data.new_clicks),
        norms,
    )


def recall_at_10(queries: Floats, meta_classifiers: Floats, clicks: csr_array) -> float:
    """R@10 in percent among the held-out items, over the queries that clicked one."""
    with_click = np.flatnonzero(np.diff(clicks.indptr) > 0)
    best = top_k(queries[with_click], meta_classifiers, min(10, len(meta_classifiers)))[0]
    relevant = clicks[with_click].toarray() > 0
    hits = np.take_along_axis(relevant, best, axis=1).sum(axis=1)
    return float(100 * (hits / relevant.sum(axis=1)).mean())
