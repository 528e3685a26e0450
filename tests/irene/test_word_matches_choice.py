"""Whether word matches count is chosen on folds: where queries repeat rare words of the items that they click."""

import numpy as np
import pytest

from metaxc.artifacts import Stages
from metaxc.data import Dataset, split
from metaxc.emmett import Emmett
from metaxc.encoders import EmbeddingCache
from metaxc.evaluation import evaluate, model_search
from metaxc.irene import Irene
from metaxc.irene.training_run import TrainingRun

LETTERS = "abcdefghijklmnopqrst"
WORDS = [
    "the",
    "house",
    "river",
    "runs",
    "green",
    "early",
    "music",
    "under",
    "letter",
    "seven",
    "cold",
    "table",
]


def build(answer):
    """240 items with a code each, between words that say nothing; three queries name a code in the same way and click
    the item `answer(place of the code)`."""
    random = np.random.default_rng(0)
    codes = sorted({"".join(random.choice(list(LETTERS), 5)) for _ in range(240)})

    def hide(code):
        return " ".join([*random.choice(WORDS, 12), code, *random.choice(WORDS, 12)])

    items = {code: hide(code) for code in codes}
    queries, clicks = {}, []
    for place, code in enumerate(codes):
        for number in range(3):
            queries[f"{code}{number}"] = hide(code)
            clicks.append((f"{code}{number}", codes[answer(place) % len(codes)]))
    return split(Dataset.of(items, queries, clicks), novel=0.1, test=0.2)[0]


@pytest.fixture(scope="module")
def named():
    """A query names the item that it clicks."""
    return build(lambda place: place)


@pytest.fixture(autouse=True)
def _few_queries_are_enough(monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """The texts are embedded once for all tests."""
    return EmbeddingCache(tmp_path_factory.mktemp("cache"))


def train(cache, **adapter):
    return Irene(folds=2, adapter={"epochs": 2, **adapter}, backend="torch", cache=cache)


def choose(dataset, tmp_path, cache, **adapter):
    config, lines = train(cache, **adapter).config, []
    run = TrainingRun(config, dataset, Stages(tmp_path, lines.append), None, cache, None, "inputs")
    choice = run.constant_choice()
    return choice.choose_word_matches(choice.learn_encoders()), lines


def test_names_are_matched_where_queries_repeat_them(named, tmp_path, cache):
    weight, lines = choose(named, tmp_path, cache)
    assert weight > 0
    assert any("word matches by weight, encoder alone on pseudo-novel items: 0: " in line for line in lines)


def test_nothing_is_matched_where_it_misleads(tmp_path, cache):
    assert choose(build(lambda place: place + 7), tmp_path, cache)[0] == 0


def test_a_given_weight_is_taken_as_it_is(named, tmp_path, cache):
    assert choose(named, tmp_path, cache, word_matches=0.25)[0] == 0.25


def test_the_model_has_the_chosen_weight_and_is_saved_with_it(named, tmp_path, cache):
    model = train(cache).fit(named)
    assert model.about["constants"]["word_matches"] > 0
    model.save(tmp_path / "model")
    loaded = Emmett.load(tmp_path / "model")
    new = ["module zzxqy"]
    np.testing.assert_array_equal(loaded.represent(new), model.represent(new))
    plain = train(cache, word_matches=0.0).fit(named)
    ours, without = (
        evaluate(model_search(one, named), named, intervals=False)["zero_shot"]["P@1"]
        for one in (model, plain)
    )
    assert ours > without + 10
