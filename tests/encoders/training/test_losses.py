import numpy as np
import torch
from scipy.sparse import csr_array
from torch.nn import functional

from metaxc.encoders.training.losses import compute_logq, contrastive_loss


def test_clicked_pairs_are_not_negatives():
    queries = functional.normalize(torch.tensor([[1.0, 0.2], [0.9, 0.4]]), dim=1)
    items = functional.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1]]), dim=1)
    scale = torch.tensor(20.0)
    all_clicked = torch.ones(2, 2, dtype=torch.bool)
    assert contrastive_loss(queries, items, scale, all_clicked).item() == 0.0
    only_own = torch.eye(2, dtype=torch.bool)
    logits = 20 * queries @ items.T
    target = torch.arange(2)
    expected = (functional.cross_entropy(logits, target) + functional.cross_entropy(logits.T, target)) / 2
    torch.testing.assert_close(contrastive_loss(queries, items, scale, only_own), expected)


def test_the_logq_correction_applies_only_where_items_compete():
    queries = functional.normalize(torch.tensor([[1.0, 0.2], [0.1, 1.0]]), dim=1)
    items = functional.normalize(torch.tensor([[1.0, 0.0], [0.5, 1.0]]), dim=1)
    logq = torch.tensor([0.0, 3.0])
    logits = 5 * queries @ items.T
    target = torch.arange(2)
    expected = functional.cross_entropy(logits - logq, target) + functional.cross_entropy(logits.T, target)
    found = contrastive_loss(queries, items, torch.tensor(5.0), torch.eye(2, dtype=torch.bool), logq)
    torch.testing.assert_close(found, expected / 2)


def test_hard_negatives_compete_for_queries_only():
    torch.manual_seed(0)
    queries, items = torch.randn(3, 5), torch.randn(5, 5)
    clicked = torch.zeros(3, 5, dtype=torch.bool)
    clicked[torch.arange(3), torch.arange(3)] = True
    clicked[1, 4] = True  # a negative of others that query 1 did click
    scale = torch.tensor(2.0)
    logits = 2.0 * queries @ items.T
    rows = [
        torch.logsumexp(logits[row, [0, 1, 2, 3, 4] if row != 1 else [0, 1, 2, 3]], 0) for row in range(3)
    ]
    forward = torch.stack([rows[row] - logits[row, row] for row in range(3)]).mean()
    back = torch.stack([torch.logsumexp(logits[:, j], 0) - logits[j, j] for j in range(3)]).mean()
    torch.testing.assert_close(contrastive_loss(queries, items, scale, clicked), (forward + back) / 2)


def test_logq_is_a_share_of_the_logarithm_of_the_clicks():
    clicks = csr_array(np.array([[1, 1, 0], [1, 0, 0], [1, 0, 0]], np.float32))
    np.testing.assert_allclose(compute_logq(clicks, 0.75), [0.75 * np.log(3), 0, 0], rtol=1e-6)
