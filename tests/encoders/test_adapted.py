import torch
from torch.nn import functional

from metaxc.encoders.adapted import Tower


def test_an_untrained_tower_is_the_frozen_encoder():
    x = functional.normalize(torch.randn(3, 8), dim=1)
    tower = Tower(10, 8).eval()
    out = tower(x, torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]))
    torch.testing.assert_close(out, x)


def test_the_bag_is_the_mean_of_the_tokens_and_empty_bags_add_nothing():
    tower = Tower(3, 2, base=False).eval()
    with torch.no_grad():
        tower.table.copy_(torch.tensor([[1.0, 0], [0, 1], [3, 4]]))
    out = tower(None, torch.tensor([0, 1, 2]), torch.tensor([0, 2, 3]))
    torch.testing.assert_close(out, torch.tensor([[0.5**0.5, 0.5**0.5], [0.6, 0.8], [0.0, 0.0]]))
