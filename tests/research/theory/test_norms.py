"""Quantities measured on models whose norms are known, and the account made of them."""

import json
from math import log, sqrt

import numpy as np
import pytest
import torch
from metaxc.research.theory.norms import Mixed, longest, mixed, parts_of

from metaxc.classifiers import ridge
from metaxc.emmett import Calibration, Emmett
from metaxc.errors import ConfigError
from metaxc.generators import (
    Combine,
    Gated,
    PostNormTransformer,
    ResidualTransformer,
    Sum,
    TorchGenerator,
    WeightedSum,
)
from metaxc.research.theory import Assumed, account


@pytest.fixture
def items():
    random = np.random.default_rng(0)
    rows = np.array([[0, 1], [1, -1]])
    scores = np.array([[0.9, 0.5], [0.7, -np.inf]], dtype=np.float32)
    selected = random.normal(size=(2, 2, 16)).astype(np.float32)
    selected[1, 1] = 0
    return Mixed(random.normal(size=(2, 16)).astype(np.float32), rows, selected, scores)


def test_a_combine_is_a_multiple_of_a_mixture(items):
    (part,) = parts_of(Combine(strength=0.5), items, vectors=1.0, scale=2.0)
    assert part.spectral == pytest.approx(3.0), "2 · (1 + 0.5)"
    assert part.frobenius == pytest.approx(12.0), "√16 times that"
    assert part.vectors == 1.0


def test_sums_count_what_they_sum(items):
    assert parts_of(Sum(), items, 1.0)[0].spectral == pytest.approx(3.0), "z and two neighbours"
    weighted = WeightedSum(2)
    with torch.no_grad():
        weighted.c.copy_(torch.tensor([1.0, -0.5, 0.25]))
    assert parts_of(weighted, items, 1.0)[0].spectral == pytest.approx(1.75)


def test_an_untrained_gate_is_the_combine(items):
    (gated,) = parts_of(Gated(strength=0.5), items, 1.0)
    assert gated.spectral == pytest.approx(1.5, rel=1e-5)
    assert "free for each item" in gated.covered


def test_a_transformer_is_its_combine_and_its_last_layer(items):
    generator = ResidualTransformer(16, strength=0.5)
    start, correction = parts_of(generator, items, 1.0)
    assert start.spectral == pytest.approx(1.5)
    assert correction.spectral == 0.0, "zero at the start"
    with torch.no_grad():
        generator.out.weight.copy_(torch.diag(torch.arange(16.0)))
        generator.norm.weight.fill_(2.0)
        generator.norm.bias.fill_(0.5)
    correction = parts_of(generator, items, 1.0)[1]
    assert correction.spectral == pytest.approx(15.0)
    assert correction.frobenius == pytest.approx(sqrt(sum(i * i for i in range(16))))
    assert correction.vectors == pytest.approx(2 * 4 + 0.5 * 4), "gain · √d + ‖bias‖"


def test_what_enters_the_last_layer_is_never_longer_than_said(items):
    generator = ResidualTransformer(16)
    with torch.no_grad():
        generator.norm.weight.normal_()
        generator.norm.bias.normal_()
        normed = generator.norm(100 * torch.randn(500, 16))
    assert float(normed.norm(dim=1).max()) <= parts_of(generator, items, 1.0)[1].vectors


def test_the_literal_transformer_ends_in_a_layer_norm(items):
    (part,) = parts_of(PostNormTransformer(16), items, 1.0)
    assert (part.spectral, part.frobenius, part.vectors) == (1.0, pytest.approx(4.0), 4.0)


def test_an_unknown_generator_is_an_error(items):
    class Other(Sum):
        kind = "other"

    class Alien(TorchGenerator):
        kind = "alien"

        def weigh(self, embeddings, selected, scores):
            return torch.ones(len(scores), scores.shape[1] + 1)

    assert parts_of(Other(), items, 1.0)[0].spectral == pytest.approx(3.0)
    with pytest.raises(ConfigError, match="alien"):
        parts_of(Alien(), items, 1.0)


def test_no_rows_have_no_norm():
    assert longest(np.empty((0, 3), np.float32)) == 0.0


@pytest.fixture(scope="module")
def model(world):
    data, encoder = world.dataset, world.encoder
    log = data.observed_log()
    seen = encoder.encode_items([data.items.texts[row] for row in data.observed_rows])
    classifiers = ridge(encoder.encode_queries(log.queries.texts), log.clicks)
    return Emmett(
        encoder,
        classifiers,
        seen,
        Combine(0.5, 0.1),
        data.items,
        data.observed_rows,
        neighbours=3,
        calibration=Calibration(neighbour_prior=0.0, novel_scale=2.0),
    )


def test_an_item_is_not_among_its_own_neighbours(model):
    found = mixed(model)
    assert len(found.rows) == 160
    assert not (found.rows == np.arange(160)[:, None]).any()
    assert (found.rows // 4 == np.arange(160)[:, None] // 4).all(), "but its group is"


def test_the_account_of_a_known_model(model, world):
    found = account(model, world.dataset, Assumed(delta=0.1), draws=2)
    q = found.quantities
    assert (q.queries, q.items, q.neighbours, q.dim) == (800, 160, 3, 96)
    assert found.pairs == 128_000
    assert q.p == pytest.approx(4 / 160), "a query clicks the four observed items of its group"
    assert found.kappa == 3_200
    assert q.query_norm == pytest.approx(1.0, rel=1e-5)
    assert q.classifier_norm == pytest.approx(1.0, rel=1e-5)
    assert q.spectral == pytest.approx(3.0)
    assert q.meta_norm <= 3.0 + 1e-5
    by_name = {(term.name, term.form, term.formula): term.value for term in found.complexities}
    frozen = next(
        value for (name, form, _), value in by_name.items() if "frozen" in name and form == "stated"
    )
    assert frozen == pytest.approx(3 * sqrt(96 * log(4)), rel=1e-4)
    plain = next(value for (name, form, _), value in by_name.items() if "plain" in name and form == "derived")
    assert plain == pytest.approx(1 / sqrt(800), rel=1e-4)


def test_the_account_says_what_is_vacuous(model, world):
    found = account(model, world.dataset, draws=0)
    words = {(term.name, term.form): term.vacuous for term in found.deviations}
    assert words["Cartesian (one-vs-all)", "stated"] is False
    assert words["paired", "stated"] is False
    assert words["Cartesian (one-vs-all)", "derived"] is True
    assert all(term.vacuous for term in found.totals), "160 items are too few to say anything"
    assert all(term.vacuous is None for term in found.complexities)
    assert any("κ = 0" in note and "1.000" in note for note in found.notes)
    assert found.loose == ()


def test_estimates_stay_under_the_bounds(model, world):
    for one in account(model, world.dataset, draws=3).loose:
        assert one.ratio >= 1.0, one.name
        assert one.estimate.draws == 3


def test_an_account_is_plain_json(model, world):
    found = account(model, world.dataset, Assumed(delta=0.05, kappa=128_000), draws=2)
    made = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert made["quantities"]["pairs"] == 128_000
    stated = made["deviations"][0]
    assert stated["value"] is None, "with κ = M every sample is bad as stated: infinite"
    assert stated["vacuous"] is True
    assert {one["name"] for one in made["empirical"]} >= {"frozen, attention", "plain classifiers"}
