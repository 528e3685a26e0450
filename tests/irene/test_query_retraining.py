"""The query side is trained on newer clicks, and no item vector changes."""

import numpy as np
import pytest
from scipy.sparse import vstack
from shifted_world import (
    CONFIG,
    ITEMS,
    QUERIES,
    TOPICS,
    build_dataset,
    build_old_model,
    first_topics,
)
from world_model import build_model

from metaxc.data import ClickLog, Dataset, Texts
from metaxc.data.clicks import training_clicks
from metaxc.emmett import Calibration, Emmett, ExpansionConfig, QueryExpansion
from metaxc.emmett.model_identity import item_fingerprint
from metaxc.emmett.training_record import hash_texts
from metaxc.irene import IreneConfig, query_retraining
from metaxc.irene.query_retraining import retrain_queries, retraining_inputs

SHIFTED = range(QUERIES - 5)


@pytest.fixture(scope="module")
def old(tmp_path_factory):
    return build_old_model(tmp_path_factory.mktemp("old"))


@pytest.fixture(scope="module")
def retrained(old):
    return retrain_queries(old, build_dataset("new", SHIFTED, begin=1000.0), CONFIG)


def test_queries_that_have_shifted_find_the_right_items_again(old, retrained):
    assert first_topics(old, "new") == 0.0
    assert first_topics(retrained, "new") == 1.0
    assert retrained.about["keeps_items"]["chosen"]["extent"] > 0


def test_the_item_side_is_kept_to_the_last_bit(old, retrained):
    count = len(old.items)
    np.testing.assert_array_equal(retrained.vectors[:count], old.vectors)
    assert retrained.items.ids[:count] == list(old.items.ids)
    texts = ["item2 more1", "item5"]
    np.testing.assert_array_equal(retrained.represent(texts), old.represent(texts))
    np.testing.assert_array_equal(retrained.vectors[count:], old.represent(["more5"]))
    assert item_fingerprint(retrained) == item_fingerprint(old)
    assert retrained.fingerprint != old.fingerprint
    assert np.abs(retrained.encode_queries(["new0"]) - old.encode_queries(["new0"])).max() > 0.1


def test_the_model_that_was_given_does_not_change(old, retrained, tmp_path):
    assert old.fingerprint == build_old_model(tmp_path).fingerprint


def test_the_record_says_which_items_are_kept_and_survives_saving(old, retrained, tmp_path):
    retrained.save(tmp_path / "new")
    loaded = Emmett.load(tmp_path / "new")
    assert loaded.fingerprint == retrained.fingerprint
    assert item_fingerprint(loaded) == item_fingerprint(old)
    kept = loaded.about["keeps_items"]
    assert (kept["item_side"], kept["models"]) == (item_fingerprint(old), [old.fingerprint])
    again = retrain_queries(loaded, build_dataset("new", SHIFTED, begin=1000.0), CONFIG)
    assert again.about["keeps_items"]["models"] == [old.fingerprint, retrained.fingerprint]
    assert again.about["keeps_items"]["new_queries"] == 0


def test_the_new_model_knows_the_queries_of_both_trainings(old, retrained):
    known = retrained.trained_on.knows_queries(
        hash_texts(["old0 more0", "new0 more0", f"new0 more{QUERIES - 1}"])
    )
    assert known.tolist() == [True, True, False]
    assert retrained.trained_on.until == 1000.0 + len(SHIFTED) * TOPICS - 1 + 0.1 * (ITEMS - 1)


def test_where_nothing_helps_the_query_tower_stays(old):
    """The old words find everything already."""
    kept = retrain_queries(old, build_dataset("old", range(20, QUERIES), begin=1000.0), CONFIG)
    assert kept.encoder.fingerprint == old.encoder.fingerprint
    chosen = kept.about["keeps_items"]["chosen"]
    assert (chosen["extent"], chosen["expansion"]) == (0.0, None)
    assert {one["extent"] for one in kept.about["keeps_items"]["compared"]} == {0.0, 0.25, 0.5, 1.0}


def test_with_too_few_new_queries_nothing_is_chosen_or_trained(old):
    kept = retrain_queries(old, build_dataset("new", range(10)), CONFIG)
    assert kept.encoder is old.encoder
    assert kept.about["keeps_items"]["compared"] == []


def test_the_latest_queries_decide(old):
    shifted, back = build_dataset("new", range(40)), build_dataset("old", range(45, 62), begin=5000.0)
    run = query_retraining._QueryRetraining(old, _join(shifted, back), CONFIG, lambda line: None)
    held = run._hold_out()
    assert len(held) == int(0.15 * 57 * TOPICS)
    assert run.times[held].min() >= np.sort(run.times)[-len(held)]
    assert {run.texts[row][:3] for row in held} == {"old"}


def _join(first, second):
    logs = (first.train, second.train)
    texts = [*logs[0].queries.texts, *logs[1].queries.texts]
    clicks = vstack([log.clicks for log in logs]).tocsr()
    rows = np.repeat(np.arange(len(texts)), np.diff(clicks.indptr))
    times = np.concatenate([log.times for log in logs])
    log = ClickLog.of_events(Texts(texts, texts), clicks.shape[1], rows, clicks.indices, times=times)
    return Dataset(first.items, log, novel=first.novel, name="both")


def test_items_that_the_query_tower_has_learnt_from_do_not_play_novel(tmp_path):
    """The model knows neither of the last two topics; queries that are learnt from clicked one of them."""
    old = build_old_model(tmp_path, topics=TOPICS - 2)
    dataset = build_dataset("new", SHIFTED, begin=1000.0)
    run = query_retraining._QueryRetraining(old, dataset, CONFIG, lambda line: None)
    last = np.array([text.startswith(f"new{TOPICS - 1}") for text in run.texts])
    rows, validation = run._validation(np.flatnonzero(last), np.flatnonzero(~last))
    assert rows.tolist() == np.flatnonzero(last).tolist()
    novel = [run.items.ids[row] for row in np.flatnonzero(validation.relevance.novel)]
    assert novel == [*(f"{TOPICS - 1}-{number}" for number in range(ITEMS)), "unclicked"]


def test_more_exposure_is_tried_where_the_tower_moves_and_none_was_given(old, retrained):
    def tried(model):
        return {
            (one["extent"] > 0, round(one["exposure"], 2))
            for one in model.about["keeps_items"]["compared"]
            if one["expansion"] is None
        }

    moved = {(True, 0.1 + step) for step in (0.0, 0.05, 0.1, 0.2)}
    assert {(one, round(exposure, 2)) for one, exposure in moved} | {(False, 0.1)} == tried(retrained)
    chosen = retrained.about["keeps_items"]["chosen"]["exposure"]
    assert retrained.calibration.exposure == retrained.about["constants"]["exposure"] == chosen
    given = CONFIG.model_copy(update={"exposure": 0.3})
    assert {
        exposure for _, exposure in tried(retrain_queries(old, build_dataset("new", SHIFTED), given))
    } == {0.3}


def test_an_exposure_that_is_given_is_the_new_models(old):
    config = CONFIG.model_copy(update={"exposure": 0.7})
    kept = retrain_queries(old, build_dataset("new", range(10)), config)
    assert kept.encode_queries(["old0"])[0, -1] == np.float32(0.7)
    assert item_fingerprint(kept) == item_fingerprint(old)
    assert kept.about["constants"]["exposure"] == 0.7


def test_other_data_models_and_settings_are_other_inputs(old, retrained):
    data = build_dataset("new", range(10))
    later = build_dataset("new", range(10), begin=9.0)
    found = {
        retraining_inputs(*given)
        for given in (
            (old, data, CONFIG),
            (retrained, data, CONFIG),
            (old, later, CONFIG),
            (old, data, CONFIG.model_copy(update={"seed": 1})),
        )
    }
    assert len(found) == 4


def test_new_items_and_their_clicks_expand_queries(tmp_path):
    """The model does not know the last topic. Its queries are expanded by what similar queries clicked since, also when
    the model was saved and loaded."""
    old = build_old_model(tmp_path, topics=TOPICS - 1)
    dataset = build_dataset("old", range(20, QUERIES - 5), begin=1000.0)
    observed, _, clicks = training_clicks(build_dataset("old", range(20)))
    known = observed[observed < len(old.items)]
    queries = old.embed_queries([f"old{row} more0" for row in range(5)])
    kept_clicks = clicks[: len(queries), : len(known)]
    old.expansion = QueryExpansion(
        queries, kept_clicks, old.embeddings, ExpansionConfig(neighbours=3, temperature=0.1, strength=0.5)
    )
    new = retrain_queries(old, dataset, IreneConfig(expansion_queries=10_000))
    assert new.expansion is not None
    assert new.expansion.later == ITEMS
    assert len(new.expansion) == len(queries) + len(dataset.train)
    np.testing.assert_array_equal(new.expansion.queries[: len(queries)], old.expansion.queries)
    new.save(tmp_path / "new")
    loaded = Emmett.load(tmp_path / "new")
    texts = [f"old{TOPICS - 1} more{QUERIES - 1}"]
    np.testing.assert_array_equal(loaded.encode_queries(texts), new.encode_queries(texts))
    assert loaded.fingerprint == new.fingerprint


def test_data_with_all_training_queries_replaces_those_that_were_kept(tmp_path):
    old = build_old_model(tmp_path)
    dataset = _join(build_dataset("old", range(20)), build_dataset("new", range(30), begin=1000.0))
    queries = old.embed_queries(["old0 more0"])
    _, _, clicks = training_clicks(dataset)
    old.expansion = QueryExpansion(queries, clicks[:1], old.embeddings, ExpansionConfig(strength=0.5))
    new = retrain_queries(old, dataset, CONFIG.model_copy(update={"expansion_queries": 10_000}))
    assert new.expansion is not None
    assert len(new.expansion) == len(dataset.train)


def test_an_encoder_without_a_query_tower_gets_newer_training_queries_alone(world):
    model = build_model(world, neighbours=4)
    model.trained_on = None
    new = retrain_queries(model, world.dataset, IreneConfig())
    assert new.encoder is model.encoder
    assert {one["extent"] for one in new.about["keeps_items"]["compared"]} == {0.0}
    np.testing.assert_array_equal(new.vectors, model.vectors)


def test_a_model_with_other_items_or_constants_has_another_item_side(world):
    model = build_model(world, neighbours=4)
    assert item_fingerprint(build_model(world, neighbours=4)) == item_fingerprint(model)
    assert item_fingerprint(build_model(world, neighbours=5)) != item_fingerprint(model)
    other = build_model(world, neighbours=4, calibration=Calibration(own=1.0))
    assert item_fingerprint(other) != item_fingerprint(model)
    exposed = build_model(world, neighbours=4, calibration=Calibration(exposure=1.0))
    assert item_fingerprint(exposed) == item_fingerprint(model)
    assert exposed.fingerprint != model.fingerprint
