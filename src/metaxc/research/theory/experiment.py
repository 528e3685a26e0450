"""Does the theory hold? Generators are trained while one thing at a time is changed, and the gap is measured.

The gap is the risk on pairs that nothing was learnt from, held-out queries with held-out items, less the risk on the
sample that was trained on. The risk is the weighted cross-entropy of the paper with the weight that makes clicks and
other pairs count alike: ½ (mean over clicks + mean over the rest). So it does not depend on how rare clicks are, and
a model that knows nothing has ln 2.

Everything is a function of arrays: embeddings are reduced to a few dimensions (their principal axes) and items and
queries sampled, so that many trainings fit into minutes. Settings of one seed share items, queries and held-out pairs.
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
from metaxc.generators import ResidualTransformer, gather
from metaxc.index.topk import top_k
from metaxc.research.theory.norms import Mixed, longest, parts_of
from metaxc.research.theory.pairs import Batches, Cartesian, Clicked, Drawn
from metaxc.research.theory.plan import Row, Sample, Setting, Study
from metaxc.selectors import NearestSelector


@dataclass(frozen=True)
class World:
    """One seed's data.

    Args:
        queries: (queries, dim) unit rows, to train on.
        new_queries: (held-out queries, dim).
        items: (items, dim) unit rows, to be observed.
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
    done: Sequence[Row] = (),
    each: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Train and measure every setting with every seed.

    Args:
        queries: (queries, dim) embeddings.
        items: (items, dim) embeddings.
        clicks: (queries, items).
        study: How.
        done: Rows of an earlier run of the same study; not done again.
        each: Called with all rows after each training.
    """
    rows = list(done)
    known = {(row.setting, row.seed) for row in rows}
    for seed in range(study.seeds):
        missing = [setting for setting in study.settings() if (setting, seed) not in known]
        world = world_of(queries, items, clicks, study, seed) if missing else None
        for setting in missing:
            assert world is not None
            rows.append(train_and_measure(world, setting, study, seed))
            each(rows)
    return rows


def world_of(queries: Floats, items: Floats, clicks: csr_array, study: Study, seed: int) -> World:
    """Draw one seed's items and queries, and reduce the embeddings to their principal axes."""
    random = np.random.default_rng(seed)
    wanted = study.items + study.held_out
    order = random.permutation(len(items))[:wanted]
    kept = csr_array(clicks[:, order])
    asking = random.permutation(np.flatnonzero(np.diff(kept.indptr) > 0))
    asking = asking[: study.queries + study.held_out_queries]
    if len(order) < wanted or len(asking) < study.queries + study.held_out_queries:
        raise DataError(
            "The data set is too small for this study",
            got=f"{len(order):,} items, {len(asking):,} queries that clicked one of them",
            expected=f"{wanted:,} items, {study.queries + study.held_out_queries:,} queries",
            fix="use --quick, or a larger data set",
        )
    axes = _axes(items[order[: study.items]], queries[asking[: study.queries]], study.dim)
    x, z = normalize_rows(queries[asking] @ axes), normalize_rows(items[order] @ axes)
    kept = csr_array(kept[asking])
    n, count = study.queries, study.items
    return World(x[:n], x[n:], z[:count], z[count:], csr_array(kept[:n, :count]), csr_array(kept[n:, count:]))


def _axes(items: Floats, queries: Floats, dim: int) -> Floats:
    """(full dim, dim): the axes along which items and queries, both alike, lie most; not centred, so that inner
    products are kept as far as they can be."""
    gram = items.T @ items / len(items) + queries.T @ queries / len(queries)
    return np.asarray(np.linalg.eigh(gram)[1][:, ::-1][:, :dim], dtype=np.float32)


class Head(nn.Module):
    """What makes logits of inner products; learnt with the generator."""

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())
        self.bias = nn.Parameter(torch.tensor(-4.0))

    def forward(self, scores: Tensor) -> Tensor:
        logits: Tensor = self.log_scale.exp() * scores + self.bias
        return logits


def train_and_measure(world: World, setting: Setting, study: Study, seed: int) -> Row:
    """One row of the study."""
    torch.manual_seed(seed)
    random = np.random.default_rng([seed, 1])
    items, clicks = world.items[: setting.items], csr_array(world.clicks[:, : setting.items])
    bank = nn.Parameter(
        torch.from_numpy(ridge(world.queries, clicks).weights), requires_grad=not setting.frozen
    )
    near, scores = NearestSelector(items).select(
        items, setting.neighbours, exclude_self=np.arange(len(items))
    )
    seen = Mixed(items, near, gather(bank.detach().numpy(), near), scores)
    generator, head = ResidualTransformer(items.shape[1], setting.depth), Head()
    batches = _batches(setting.sample, clicks, random)
    learnt = [
        parameter
        for parameter in (*generator.parameters(), *head.parameters(), bank)
        if parameter.requires_grad
    ]
    optimizer = torch.optim.Adam(learnt, lr=study.learning_rate)
    generator.train()
    for step in range(study.steps):
        batch = batches.draw()
        made = _made(generator, bank, seen, batch.items)
        x = torch.from_numpy(world.queries[batch.queries])
        logits = head(batch.scored(x, made))
        loss = balanced_risk(logits, torch.from_numpy(batch.clicked))
        optimizer.param_groups[0]["lr"] = study.learning_rate * (1 - step / study.steps)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    generator.eval()
    with torch.inference_mode():
        return _measure(world, setting, seed, generator, head, bank.detach(), seen, batches)


def _batches(sample: Sample, clicks: csr_array, random: np.random.Generator) -> Batches:
    kinds: dict[Sample, type[Batches]] = {
        "one-vs-all": Cartesian,
        "paired": Clicked,
        "paired, drawn": Drawn,
    }
    return kinds[sample](clicks, random)


def _made(generator: ResidualTransformer, bank: Tensor, items: Mixed, rows: Rows) -> Tensor:
    """(rows, dim) meta-classifiers, through which gradients flow."""
    near = torch.from_numpy(items.rows[rows])
    made: Tensor = generator(
        torch.from_numpy(items.embeddings[rows]),
        bank[near.clamp(min=0)] * (near >= 0).unsqueeze(2),
        torch.from_numpy(items.scores[rows]),
    )
    return made


def balanced_risk(logits: Tensor, clicked: Tensor) -> Tensor:
    """½ (mean cross-entropy of clicks + mean of the rest); one of them alone where the other is empty.

    Args:
        logits: Of pairs, any shape.
        clicked: bool, the same shape.
    """
    means = [
        functional.softplus(signed).mean()
        for signed in (-logits[clicked], logits[~clicked])
        if signed.numel()
    ]
    return torch.stack(means).mean()


def _measure(
    world: World,
    setting: Setting,
    seed: int,
    generator: ResidualTransformer,
    head: Head,
    bank: Tensor,
    seen: Mixed,
    batches: Batches,
) -> Row:
    observed = _made(generator, bank, seen, np.arange(len(seen.embeddings)))
    near, scores = NearestSelector(seen.embeddings).select(world.new_items, setting.neighbours)
    new = Mixed(world.new_items, near, gather(bank.numpy(), near), scores)
    made = _made(generator, bank, new, np.arange(len(world.new_items)))
    whole = batches.whole()
    train = head(whole.scored(torch.from_numpy(world.queries[whole.queries]), observed[whole.items]))
    fresh = torch.from_numpy(world.new_queries) @ made.T
    clicked = torch.from_numpy(world.new_clicks.toarray() > 0)
    parts = parts_of(generator, new, max(longest(bank.numpy()), longest(new.embeddings)))
    norms = {
        "B": longest(world.queries),
        "W": longest(bank.numpy()),
        "U": longest(made.numpy()),
        "M": sum(part.spectral for part in parts),
        "MF·V": sum(part.frobenius * part.vectors for part in parts),
        "M·V": sum(part.spectral * part.vectors for part in parts),
        "scale": float(head.log_scale.exp()),
    }
    return Row(
        setting,
        seed,
        float(balanced_risk(train, torch.from_numpy(whole.clicked))),
        float(balanced_risk(head(fresh), clicked)),
        recall_at_10(world.new_queries, made.numpy(), world.new_clicks),
        norms,
    )


def recall_at_10(queries: Floats, made: Floats, clicks: csr_array) -> float:
    """Percent of a query's clicks among its ten best held-out items, over the queries that have one."""
    asking = np.flatnonzero(np.diff(clicks.indptr) > 0)
    best = top_k(queries[asking], made, min(10, len(made)))[0]
    relevant = clicks[asking].toarray() > 0
    found = np.take_along_axis(relevant, best, axis=1).sum(axis=1)
    return float(100 * (found / relevant.sum(axis=1)).mean())
