import pytest
import torch
from torch.nn import functional

from metaxc.encoders.adapted import Tower, TwoTowers


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


def test_an_empty_bag_changes_nothing_for_the_texts_after_it():
    tower = Tower(3, 2, base=False).eval()
    with torch.no_grad():
        tower.table.copy_(torch.tensor([[1.0, 0], [0, 1], [3, 4]]))
    out = tower(None, torch.tensor([0, 1, 2]), torch.tensor([0, 0, 2]))
    torch.testing.assert_close(out, torch.tensor([[0.0, 0.0], [0.5**0.5, 0.5**0.5], [0.6, 0.8]]))


class TestExtent:
    """How far what was trained is applied to the frozen embedding."""

    @pytest.fixture
    def towers(self):
        torch.manual_seed(0)
        towers = TwoTowers(10, 8).eval()
        with torch.no_grad():
            for tower in (towers.query, towers.item):
                for weights in (tower.table, tower.out.weight, tower.out.bias):
                    weights.normal_(0.0, 0.3)
        towers.losses = [1.0, 0.5]
        return towers

    def embed(self, tower):
        base = functional.normalize(torch.randn(3, 8, generator=torch.Generator().manual_seed(1)), dim=1)
        return base, tower(base, torch.tensor([1, 2, 3]), torch.tensor([0, 1, 1]))

    @pytest.mark.parametrize("side", ["query", "item"])
    def test_nothing_of_it_is_the_frozen_encoder_and_all_of_it_the_trained_one(self, towers, side):
        base, trained = self.embed(getattr(towers, side))
        assert (trained - base).abs().max() > 0.1
        torch.testing.assert_close(self.embed(getattr(towers.scaled(0.0), side))[1], base)
        torch.testing.assert_close(
            self.embed(getattr(towers.scaled(1.0), side))[1], trained, rtol=0.0, atol=0.0
        )

    @pytest.mark.parametrize("side", ["query", "item"])
    def test_half_of_it_adds_half_before_the_length_is_set_to_one(self, towers, side):
        tower = getattr(towers, side)
        base, _ = self.embed(tower)
        bag = torch.stack([tower.table[1], torch.zeros(8), tower.table[[2, 3]].mean(dim=0)])
        added = bag + tower.out(functional.gelu(tower.hidden(base)))
        _, half = self.embed(getattr(towers.scaled(0.5), side))
        torch.testing.assert_close(half, functional.normalize(base + 0.5 * added, dim=1))

    def test_what_was_trained_stays_as_it_is(self, towers):
        before = {name: tensor.clone() for name, tensor in towers.state_dict().items()}
        scaled = towers.scaled(0.0)
        assert scaled.losses == [1.0, 0.5]
        for name, tensor in towers.state_dict().items():
            torch.testing.assert_close(tensor, before[name], rtol=0.0, atol=0.0)
