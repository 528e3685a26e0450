"""The study on a world that is known, and its verdicts on rows that are made up."""

import json
from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch
from metaxc.research.theory.experiment import balanced_risk, recall_at_10, train_and_measure, world_of
from metaxc.research.theory.pairs import Cartesian, Clicked, Drawn
from metaxc.research.theory.plan import Row, Setting
from metaxc.research.theory.study_files import read_study, write_study
from metaxc.research.theory.study_plots import plots
from metaxc.research.theory.terms import agreement, derived, measured, published
from metaxc.research.theory.verdicts import Difference, enough, word_of
from scipy.sparse import csr_array

from metaxc.errors import DataError
from metaxc.research.theory import Study, run_study, verdicts

TINY = Study(
    dim=80, items=120, fewer=(60,), neighbours=(6,), depths=(2,), held_out=60, queries=500,
    held_out_queries=200, steps=4, seeds=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def arrays(world):
    data, encoder = world.dataset, world.encoder
    queries = encoder.encode_queries(data.train.queries.texts)
    return queries, encoder.encode_items(data.items.texts), data.train.clicks


@pytest.fixture(scope="module")
def rows(arrays):
    return run_study(*arrays, TINY)


def test_one_thing_changes_at_a_time():
    base, *others = TINY.settings()
    for setting in others:
        fields = vars(base)
        assert sum(vars(setting)[name] != value for name, value in fields.items()) == 1
    assert len(set(TINY.settings())) == len(TINY.settings())


def test_every_setting_with_every_seed(rows):
    assert [(row.setting, row.seed) for row in rows] == [
        (setting, seed) for seed in (0, 1) for setting in TINY.settings()
    ]


def test_nothing_held_out_is_trained_on(arrays):
    world = world_of(*arrays, TINY, 0)
    shapes = [world.queries, world.new_queries, world.items, world.new_items]
    assert [len(one) for one in shapes] == [500, 200, 120, 60]
    assert world.clicks.shape == (500, 120)
    assert world.new_clicks.shape == (200, 60)
    assert not (world.items @ world.new_items.T > 0.99999).any()
    assert not (world.queries @ world.new_queries.T > 0.99999).any()
    assert np.linalg.norm(world.items, axis=1) == pytest.approx(1.0)


def test_the_world_is_learnt_and_classifiers_carry_to_novel_items(arrays):
    study = replace(TINY, steps=40)
    row = train_and_measure(world_of(*arrays, study, 0), study.settings()[0], study, 0)
    assert row.recall > 80, "embeddings alone know nothing: 10 of 60 would be 17"
    assert row.new_risk < log(2) / 2
    assert row.gap == row.new_risk - row.train_risk


def test_frozen_classifiers_stay_and_trainable_ones_move(rows):
    frozen = next(row for row in rows if row.setting == TINY.settings()[0])
    trained = next(row for row in rows if not row.setting.frozen)
    assert frozen.norms["W"] == pytest.approx(1.0, rel=1e-5)
    assert trained.norms["W"] != pytest.approx(1.0, rel=1e-5)


def test_the_same_again(arrays, rows):
    again = train_and_measure(world_of(*arrays, TINY, 1), TINY.settings()[0], TINY, 1)
    assert again == next(row for row in rows if row.seed == 1)


def test_a_study_too_large_for_the_data_says_so(arrays):
    with pytest.raises(DataError, match="too small"):
        world_of(*arrays, Study(), 0)


def test_balanced_risk_by_hand():
    logits = torch.tensor([0.0, 0.0, 0.0, 2.0])
    clicked = torch.tensor([True, False, False, False])
    rest = (2 * log(2) + float(np.log1p(np.exp(2)))) / 3
    assert float(balanced_risk(logits, clicked)) == pytest.approx((log(2) + rest) / 2)
    assert float(balanced_risk(logits[1:3], clicked[1:3])) == pytest.approx(log(2))


def test_recall_by_hand():
    made = np.eye(12, dtype=np.float32)
    queries = np.stack([np.arange(12, 0, -1), np.arange(12, 0, -1), np.ones(12)]).astype(np.float32)
    clicks = np.zeros((3, 12), dtype=np.float32)
    clicks[0, [0, 11]] = 1  # the best and the last: half found
    clicks[1, 3] = 1
    assert recall_at_10(queries, made, csr_array(clicks)) == pytest.approx(75.0)


def test_samples_of_pairs():
    dense = np.zeros((50, 20), dtype=np.float32)
    dense[np.arange(40), np.arange(40) % 20] = 1
    clicks = csr_array(dense)
    whole = Cartesian(clicks, np.random.default_rng(0)).whole()
    assert (whole.clicked == (dense > 0)).all()
    drawn = Drawn(clicks, np.random.default_rng(0)).whole()
    assert (drawn.queries == np.arange(50)).all()
    assert (drawn.clicked == (dense[drawn.queries, drawn.items] > 0)).all()
    both = Clicked(clicks, np.random.default_rng(0))
    assert len(both.whole().queries) == 90, "40 clicks and 50 others"
    assert both.whole().clicked[:40].all()
    part = both.draw()
    assert (part.clicked == (dense[part.queries, part.items] > 0)).all()
    x, u = torch.randn(2, 3), torch.randn(2, 3)
    assert torch.allclose(part.scored(x, u), (x @ u.T).diagonal(), atol=1e-6)


def made_up(gaps, risks=None, setting=None, recall=50.0):
    """Rows of one setting with these gaps, seed by seed."""
    risks = risks or [0.5 + 0.1 * seed for seed in range(len(gaps))]
    return [
        Row(setting or Setting(), seed, risk - gap, risk, recall, {})
        for seed, (gap, risk) in enumerate(zip(gaps, risks, strict=True))
    ]


BASE = Setting()
OTHERS = {
    "sample": replace(BASE, sample="paired"),
    "frozen": replace(BASE, frozen=False),
    "k": replace(BASE, neighbours=20),
    "items": replace(BASE, items=250),
}


def judged(**gaps):
    rows = made_up([0.1, 0.2, 0.3])
    for name, setting in OTHERS.items():
        rows += made_up(gaps.get(name, [0.1, 0.2, 0.3]), setting=setting)
    return {verdict.conclusion: verdict for verdict in verdicts(rows)}


def test_no_difference_where_there_is_none():
    words = [verdict.word for verdict in judged().values()]
    assert words == ["no difference", "no difference", "supported", "no difference"]


def test_a_difference_that_all_seeds_share_is_seen_whatever_the_seeds_differ_by():
    found = judged(frozen=[0.15, 0.251, 0.349])
    verdict = found["Freezing the classifiers helps"]
    assert verdict.word == "supported"
    assert verdict.gap.mean == pytest.approx(-0.05)
    assert verdict.gap.high < 0
    assert judged(frozen=[0.05, 0.151, 0.249])["Freezing the classifiers helps"].word == "not supported"
    assert judged(frozen=[0.0, 0.5, 0.3])["Freezing the classifiers helps"].word == "no difference"


def test_a_measure_against_outweighs_one_for():
    assert word_of(Difference(-1, -2, -0.5), Difference(1, 0.5, 2)) == "not supported"
    assert word_of(Difference(-1, -2, -0.5), Difference(0, -1, 1)) == "supported"


def test_enough_means_that_no_more_than_the_margin_is_lost():
    assert enough(Difference(0.0, -0.01, 0.01), 0.02) == "supported"
    assert enough(Difference(0.01, -0.01, 0.03), 0.02) == "no difference"
    assert enough(Difference(0.05, 0.03, 0.07), 0.02) == "not supported"


def test_an_interval_by_hand():
    # differences 1, 2, 3: mean 2, sd 1, t(0.975; 2) = 4.3027, half = 4.3027 / √3
    found = judged(items=[1.1, 2.2, 3.3])["More observed items help"].gap
    assert found.mean == pytest.approx(-2.0)
    assert found.low == pytest.approx(-2 - 4.30265 / 3**0.5, rel=1e-4)


def test_terms_of_rows(rows):
    base = next(row for row in rows if row.setting == TINY.settings()[0])
    few = next(row for row in rows if row.setting.items == 60)
    more = next(row for row in rows if row.setting.neighbours == 6)
    same = {"norms": base.norms}
    assert derived(few._replace(**same), TINY) == pytest.approx(derived(base, TINY) * 2**0.5)
    assert published(more._replace(**same), TINY) > published(base, TINY)
    assert published(few._replace(**same), TINY) == published(base, TINY), "the lemma knows no items"


def test_a_study_is_written_read_and_gone_on_with(arrays, rows, tmp_path):
    file, about = tmp_path / "world.json", {"data": "world"}
    write_study(file, about, TINY, rows[:3])
    assert "verdicts" not in json.loads(file.read_text())
    done = read_study(file, about, TINY)
    assert done == rows[:3]
    seen = []
    assert run_study(*arrays, TINY, done=rows[:-1], each=lambda all_: seen.append(len(all_))) == rows
    assert seen == [len(rows)], "one was missing"
    write_study(file, about, TINY, rows)
    assert len(json.loads(file.read_text())["verdicts"]) == 4
    one = [row for row in rows if row.seed == 0]
    assert read_study(file, about, replace(TINY, seeds=1)) == one, "seeds may be added or left out"
    assert read_study(file, about, replace(TINY, seeds=3)) == rows
    with pytest.raises(DataError, match="another study"):
        read_study(file, about, replace(TINY, steps=5))
    with pytest.raises(DataError, match="another study"):
        read_study(file, {"data": "other"}, TINY)
    file.write_text("{")
    with pytest.raises(DataError, match="cannot be read"):
        read_study(file, about, TINY)


def test_plots_show_every_setting(rows):
    settings = measured(rows, TINY)
    drawn = plots(settings, "world")
    assert set(drawn) == {"theory-risks-world.svg", "theory-terms-world.svg"}
    for name in ("K = 6", "60 items", "trained classifiers", "depth 2"):
        assert name in drawn["theory-risks-world.svg"]
    assert -1 <= agreement(settings, "published") <= 1
