"""The section on the exposure of novel items."""

import re
from dataclasses import replace

import pytest
from fixed_searches import oracle, order

from metaxc.evaluation.exposure import PropensityComparison
from metaxc.research.report import collect_provenance, render_page
from metaxc.research.report.comparison import evaluate_system
from metaxc.research.report.exposure_section import describe_exposure


def section(report, model, world):
    page = render_page(report, collect_provenance(model, world.dataset, "metaxc report"))
    return page[page.index('<section id="exposure"') : page.index('<section id="similarity"')]


def words(html):
    return " ".join(re.sub(r"<svg.*?</svg>|<[^>]*>", " ", html, flags=re.DOTALL).split())


def test_the_curve_is_the_one_that_training_saved(report, model):
    found = report.exposure
    assert found.exposure == model.calibration.exposure
    assert (found.given, found.missing) == (False, "")
    saved = model.about["exposure_curve"]
    assert [point.exposure for point in found.points] == [one["exposure"] for one in saved]
    assert [point.overall for point in found.points] == [(one["P@1"] + one["R@10"]) / 2 for one in saved]
    assert [point.exposure for point in found.points if point.chosen] == [model.calibration.exposure]
    assert found.propensity.below is False, "the embeddings of this world know nothing"
    assert found.propensity.baseline == "given vectors"
    bare = report.headlines["generalized"].row("bare").numbers["PSP@1"].value
    assert found.propensity.encoder == bare


def test_the_section_has_the_curve_the_dial_and_the_propensity(report, model, world):
    first, *others = report.exposure.points
    curve = replace(report.exposure, points=[replace(first, exposure=-0.25), *others])
    html = section(replace(report, exposure=curve), model, world)
    shown = words(html)
    assert "Exposure of novel items: what it costs and brings" in shown
    exposure = f"{model.calibration.exposure:.3g}"
    assert f"This model's exposure is {exposure}, chosen on pseudo-novel items." in shown
    assert (
        "A request can use another value ( exposure= ) without training; metaxc train --exposure sets"
        in shown
    )
    assert 'aria-label="Novel R@10 by overall accuracy, by exposure"' in html
    own = next(point for point in report.exposure.points if point.chosen)
    assert f"★ {exposure} {own.overall:.1f} {own.figures['P@1']:.1f} {own.figures['R@10']:.1f}" in shown
    assert html.count("★ ") == 1 + 1, "the row and its explanation"
    assert "−0.25" in shown, "a typographic minus"
    assert report.exposure.propensity.describe() in shown
    assert 'class="warning"' not in html
    assert "The test queries at the curve's exposures" not in shown


def test_a_loss_is_a_warning_with_the_exposures_that_were_tried(report, model, world):
    used = {"exposure": 0.0, "P@1": 40.0, "R@10": 60.0, "novel R@10": None, "PSP@1": 30.0}
    tried = [used, {**used, "exposure": 0.25, "PSP@1": 46.4, "P@1": 38.8}]
    loss = PropensityComparison("bare encoder", 50.0, used, tried)
    html = section(replace(report, exposure=replace(report.exposure, propensity=loss)), model, world)
    assert f'<p class="warning">{loss.describe()}</p>' in html
    assert "The test queries at the curve's exposures" in html
    assert "0.25 38.8 60.0 – 46.4" in words(html)


@pytest.mark.parametrize("given", [False, True])
def test_without_a_curve_the_section_says_why(given, report, model, world):
    reason = "The model has no exposure curve: an older version of metaxc trained it."
    bare = replace(report.exposure, points=[], missing=reason, given=given)
    html = section(replace(report, exposure=bare), model, world)
    assert reason in words(html)
    assert "<svg" not in html
    assert ("as given in training" in words(html)) is given
    assert "chosen on pseudo-novel items" not in words(html)


def test_a_model_without_a_curve_and_with_a_given_exposure(model, world, monkeypatch):
    data = world.dataset
    systems = [
        evaluate_system("model", "metaxc", order(0, 1), data),
        evaluate_system("bare", "the bare encoder (x)", oracle(data), data),
    ]
    about = {"config": {"exposure": 0.5}, "pseudo_novel": {"skipped": "not asked for"}}
    monkeypatch.setattr(model, "about", about)
    found = describe_exposure(model, *systems, data)
    assert (found.given, found.points) == (True, [])
    assert found.missing.endswith("were not chosen on pseudo-novel items (not asked for).")
    assert found.propensity.describe().startswith("Generalized PSP@1 is")
    assert "below the bare encoder (x) (" in found.propensity.describe()
    assert found.propensity.tried == []


def test_a_loss_is_followed_up_at_the_exposures_of_the_curve(model, world):
    data = world.dataset
    systems = [
        evaluate_system("model", "metaxc", order(0, 1), data),
        evaluate_system("bare", "the bare encoder", oracle(data), data),
    ]
    lines = []
    found = describe_exposure(model, *systems, data, lines.append)
    assert lines == [f"PSP@1 is below the bare encoder: evaluating {len(found.points)} exposures"]
    assert len(found.points) > 5
    assert [one["exposure"] for one in found.propensity.tried] == [p.exposure for p in found.points]
    assert found.propensity.restored_by is not None
