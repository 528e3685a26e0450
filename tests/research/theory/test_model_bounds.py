"""The bounds of a model whose quantities are known."""

import json
from math import log, sqrt

import pytest

from metaxc.research.theory import BoundAssumptions, compute_bounds


def test_the_bounds_of_a_known_model(model, world):
    found = compute_bounds(model, world.dataset, BoundAssumptions(delta=0.1), draws=2)
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


def test_vacuous_bounds_are_marked(model, world):
    found = compute_bounds(model, world.dataset, draws=0)
    words = {(term.name, term.form): term.vacuous for term in found.deviations}
    assert words["Cartesian (one-vs-all)", "stated"] is False
    assert words["paired", "stated"] is False
    assert words["Cartesian (one-vs-all)", "derived"] is True
    assert all(term.vacuous for term in found.totals), "160 items are too few to say anything"
    assert all(term.vacuous is None for term in found.complexities)
    assert any("κ = 0" in note and "1.000" in note for note in found.notes)
    assert found.estimates == ()


def test_estimates_stay_under_the_bounds(model, world):
    for one in compute_bounds(model, world.dataset, draws=3).estimates:
        assert one.ratio >= 1.0, one.name
        assert one.estimate.draws == 3


def test_bounds_are_plain_json(model, world):
    found = compute_bounds(model, world.dataset, BoundAssumptions(delta=0.05, kappa=128_000), draws=2)
    made = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert made["quantities"]["pairs"] == 128_000
    stated = made["deviations"][0]
    assert stated["value"] is None, "with κ = M every sample is bad as stated: infinite"
    assert stated["vacuous"] is True
    assert {one["name"] for one in made["empirical"]} >= {"frozen, attention", "plain classifiers"}
