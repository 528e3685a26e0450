from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from metaxc.research.baselines.semsup import HybridModel, SemSupXC, batch_scores, rarity


@pytest.fixture(scope="module")
def fitted(market, hashed):
    return SemSupXC(hashed).fit(market)


def by_loops(model: HybridModel, x, s, query_tokens, item_tokens) -> float:
    """The score as the module's docstring writes it."""
    x, s = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(s))
    projected = [
        torch.nn.functional.normalize(v + layer(v), dim=0) for v, layer in ((x, model.query), (s, model.item))
    ]
    score = projected[0] @ projected[1]
    for token in sorted(set(query_tokens) & set(item_tokens)):
        u = model.table[token] + model.query_token(model.static[token]) + model.query_context(x)
        v = model.table[token] + model.item_token(model.static[token]) + model.item_context(s)
        score = score + u @ v
    return float(score)


@torch.inference_mode()
def test_scores_equal_a_loop_over_shared_tokens(fitted, market, hashed):
    queries, items = market.test.queries.texts[::11], market.items.texts
    scores = fitted.scores(queries)
    query_bags, item_bags = fitted.tokenizer(queries), fitted.tokenizer(items)
    x, s = hashed.encode_queries(queries), hashed.encode_items(items)
    shared = 0
    for q in range(len(queries)):
        for i in range(0, len(items), 3):
            mine = query_bags.tokens[query_bags.starts[q] : query_bags.starts[q + 1]].tolist()
            theirs = item_bags.tokens[item_bags.starts[i] : item_bags.starts[i + 1]].tolist()
            shared += len(set(mine) & set(theirs))
            assert scores[q, i] == pytest.approx(by_loops(fitted.model, x[q], s[i], mine, theirs), abs=1e-4)
    assert shared > 0


@torch.inference_mode()
def test_training_sees_the_scores_that_searching_uses(fitted, market, hashed):
    queries, items = market.test.queries.texts[:6], market.items.texts[:40]
    tokens = torch.arange(len(fitted.model.table))

    def incidence(texts):
        found = torch.zeros(len(texts), len(tokens))
        bags = fitted.tokenizer(texts)
        for row in range(len(texts)):
            found[row, bags.tokens[bags.starts[row] : bags.starts[row + 1]].astype(np.int64)] = 1
        return found

    in_batch = batch_scores(
        fitted.model.query_side(torch.from_numpy(hashed.encode_queries(queries)), tokens),
        fitted.model.item_side(torch.from_numpy(hashed.encode_items(items)), tokens),
        incidence(queries),
        incidence(items),
    )
    np.testing.assert_allclose(in_batch.numpy(), fitted.scores(queries)[:, :40], atol=1e-4)


def test_rarity_is_one_for_what_was_never_seen_and_falls_with_frequency():
    found = rarity(csr_array(np.array([[1, 1, 0], [1, 0, 0]])), csr_array(np.array([[1, 0, 0]])))
    np.testing.assert_allclose(found, [0, np.log(2) / np.log(4), 1], atol=1e-6)
