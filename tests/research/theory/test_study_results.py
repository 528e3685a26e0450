"""Verdicts and terms on made-up rows, and the result file of a study."""

import json
from dataclasses import replace

import pytest

from metaxc.errors import DataError
from metaxc.research.charts import draw_study
from metaxc.research.theory import reach_verdicts, run_study
from metaxc.research.theory.study import Setting, StudyRow
from metaxc.research.theory.study_results import (
    Difference,
    decide_improvement,
    decide_no_loss,
    derived_term,
    published_term,
    rank_correlation,
    read_study,
    summarise_settings,
    write_study,
)


def make_rows(gaps, risks=None, setting=None, recall=50.0):
    """Rows of one setting with these gaps, seed by seed."""
    risks = risks or [0.5 + 0.1 * seed for seed in range(len(gaps))]
    return [
        StudyRow(setting or Setting(), seed, risk - gap, risk, recall, {})
        for seed, (gap, risk) in enumerate(zip(gaps, risks, strict=True))
    ]


BASE = Setting()


OTHERS = {
    "sample": replace(BASE, sample="paired"),
    "frozen": replace(BASE, frozen=False),
    "k": replace(BASE, neighbours=20),
    "items": replace(BASE, items=250),
}


def verdicts_for(**gaps):
    rows = make_rows([0.1, 0.2, 0.3])
    for name, setting in OTHERS.items():
        rows += make_rows(gaps.get(name, [0.1, 0.2, 0.3]), setting=setting)
    return {verdict.conclusion: verdict for verdict in reach_verdicts(rows)}


def test_no_difference_where_there_is_none():
    words = [verdict.word for verdict in verdicts_for().values()]
    assert words == ["no difference", "no difference", "supported", "no difference"]


def test_differences_are_taken_seed_by_seed():
    found = verdicts_for(frozen=[0.15, 0.251, 0.349])
    verdict = found["Freezing the classifiers helps"]
    assert verdict.word == "supported"
    assert verdict.gap.mean == pytest.approx(-0.05)
    assert verdict.gap.high < 0
    assert verdicts_for(frozen=[0.05, 0.151, 0.249])["Freezing the classifiers helps"].word == "not supported"
    assert verdicts_for(frozen=[0.0, 0.5, 0.3])["Freezing the classifiers helps"].word == "no difference"


def test_a_contradicting_measure_outweighs_a_supporting_one():
    assert decide_improvement(Difference(-1, -2, -0.5), Difference(1, 0.5, 2)) == "not supported"
    assert decide_improvement(Difference(-1, -2, -0.5), Difference(0, -1, 1)) == "supported"


def test_no_loss_means_at_most_the_margin():
    assert decide_no_loss(Difference(0.0, -0.01, 0.01), 0.02) == "supported"
    assert decide_no_loss(Difference(0.01, -0.01, 0.03), 0.02) == "no difference"
    assert decide_no_loss(Difference(0.05, 0.03, 0.07), 0.02) == "not supported"


def test_an_interval_by_hand():
    # differences 1, 2, 3: mean 2, sd 1, t(0.975; 2) = 4.3027, half = 4.3027 / √3
    found = verdicts_for(items=[1.1, 2.2, 3.3])["More observed items help"].gap
    assert found.mean == pytest.approx(-2.0)
    assert found.low == pytest.approx(-2 - 4.30265 / 3**0.5, rel=1e-4)


def test_terms_of_rows(rows, tiny_study):
    base = next(row for row in rows if row.setting == tiny_study.settings()[0])
    few = next(row for row in rows if row.setting.items == 60)
    more = next(row for row in rows if row.setting.neighbours == 6)
    same = {"norms": base.norms}
    assert derived_term(few._replace(**same), tiny_study) == pytest.approx(
        derived_term(base, tiny_study) * 2**0.5
    )
    assert published_term(more._replace(**same), tiny_study) > published_term(base, tiny_study)
    assert published_term(few._replace(**same), tiny_study) == published_term(base, tiny_study), (
        "the lemma knows no items"
    )


def test_a_study_is_written_read_and_continued(arrays, rows, tmp_path, tiny_study):
    file, about = tmp_path / "world.json", {"data": "world"}
    write_study(file, about, tiny_study, rows[:3])
    assert "verdicts" not in json.loads(file.read_text())
    done = read_study(file, about, tiny_study)
    assert done == rows[:3]
    seen = []
    assert (
        run_study(*arrays, tiny_study, done=rows[:-1], after_row=lambda all_rows: seen.append(len(all_rows)))
        == rows
    )
    assert seen == [len(rows)], "one was missing"
    write_study(file, about, tiny_study, rows, {"commit": "abc"})
    assert json.loads(file.read_text())["commit"] == "abc"
    assert len(json.loads(file.read_text())["verdicts"]) == 4
    one = [row for row in rows if row.seed == 0]
    assert read_study(file, about, replace(tiny_study, seeds=1)) == one, "seeds may be added or left out"
    assert read_study(file, about, replace(tiny_study, seeds=3)) == rows
    with pytest.raises(DataError, match="another study"):
        read_study(file, about, replace(tiny_study, steps=5))
    with pytest.raises(DataError, match="another study"):
        read_study(file, {"data": "other"}, tiny_study)
    with pytest.raises(DataError, match="another study"):
        read_study(file, about, replace(tiny_study, generator="post_norm"))
    older = json.loads(file.read_text())
    del older["study"]["generator"]
    file.write_text(json.dumps(older))
    assert read_study(file, about, tiny_study) == rows, "files from before there was a choice"
    file.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_study(file, about, tiny_study)


def test_charts_show_every_setting(rows, tiny_study):
    settings = summarise_settings(rows, tiny_study)
    drawn = draw_study(settings, "world")
    assert set(drawn) == {"theory-risks-world.svg", "theory-terms-world.svg"}
    for name in ("K = 6", "60 items", "trained classifiers", "depth 2"):
        assert name in drawn["theory-risks-world.svg"]
    assert -1 <= rank_correlation(settings, "published") <= 1
