import numpy as np
import pytest

from metaxc.emmett import Calibration, Emmett
from metaxc.errors import DataError, ModelError
from metaxc.evaluation import encoder_search, evaluate, model_search
from metaxc.irene import Irene, IreneConfig


@pytest.fixture(scope="module")
def model(world):
    return Irene(IreneConfig(encoder="pretrained"), encoder=world.encoder).fit(world.dataset)


def test_the_embedding_alone_knows_nothing_and_the_meta_classifier_everything(world, model):
    bare = evaluate(encoder_search(world.encoder, world.dataset), world.dataset, intervals=False)
    ours = evaluate(model_search(model, world.dataset), world.dataset, intervals=False)
    assert bare["zero_shot"]["P@1"] < 20
    assert ours["zero_shot"]["P@1"] == 100
    assert ours["generalized"]["P@1"] == 100
    assert ours["generalized"]["R@5"] > 99


def test_represent_by_text_and_by_vector_agree(world, model):
    texts = [world.dataset.items.texts[row] for row in world.dataset.novel_rows[:3]]
    np.testing.assert_allclose(
        model.represent(texts), model.represent(world.encoder.encode_items(texts)), atol=1e-6
    )
    np.testing.assert_allclose(model.represent(texts), model.vectors[world.dataset.novel_rows[:3]], atol=1e-6)


def test_observed_items_are_text_plus_trusted_own_classifier(model):
    c = model.calibration
    n = model.classifiers.clicks[0]
    expected = model.selector.embeddings[0] + c.own * n / (n + c.prior_clicks) * model.classifiers.weights[0]
    np.testing.assert_allclose(model.vectors[model.observed[0]], expected, atol=1e-6)


def test_search_marks_novel_items_and_never_answers_more_than_there_are(world, model):
    hits = model.search(["t0"], k=5)[0]
    assert {hit.id for hit in hits} == {"i0", "i1", "i2", "i3", "i4"}
    assert [hit.id for hit in hits if hit.novel] == ["i4"]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(model.search(["t0"], k=10_000)[0]) == len(world.dataset.items)
    assert [hit.id for hit in model.search(["t0"], k=1, among=model.novel)[0]] == ["i4"]


def test_explain_names_the_group_and_shares_add_up(model):
    explanation = model.explain("i4")
    assert {n.id for n in explanation.neighbours[:3]} <= {"i0", "i1", "i2", "i3"}
    total = explanation.text_share + explanation.neighbour_share + explanation.learnt_share
    assert total == pytest.approx(100)
    assert sum(n.share for n in explanation.neighbours) == pytest.approx(explanation.neighbour_share)
    assert explanation.learnt_share == pytest.approx(0, abs=1e-3)


def test_more_neighbours_than_observed_items(world):
    config = IreneConfig(encoder="pretrained", neighbours=500, folds=0)
    model = Irene(config, encoder=world.encoder).fit(world.dataset)
    assert len(model.explain("i4").neighbours) == len(model.observed)
    assert np.isfinite(model.vectors).all()


def test_an_added_item_is_in_the_next_search(world, model, tmp_path):
    model.save(tmp_path / "m")
    mine = Emmett.load(tmp_path / "m")
    mine.encoder._item_row["new"] = mine.encoder._item_row["i4"]
    mine.add(["fresh"], ["new"])
    assert "fresh" in {hit.id for hit in mine.search(["t0"], k=6)[0]}
    assert mine.novel[-1]
    with pytest.raises(DataError, match="already there"):
        mine.add(["fresh"], ["new"])


def test_bad_queries_are_named(model):
    with pytest.raises(DataError, match="wrong shape"):
        model.search(np.ones((1, 7), np.float32))
    with pytest.raises(DataError, match="NaN"):
        model.represent(np.full((1, model.encoder.dim), np.nan, np.float32))
    with pytest.raises(DataError, match="empty query"):
        model.search(["  "])
    with pytest.raises(DataError, match="in place of a list"):
        model.search("t0")
    with pytest.raises(DataError, match="positive"):
        model.search(["t0"], k=0)


class TestFolder:
    def test_loaded_it_answers_the_same(self, world, model, tmp_path):
        model.save(tmp_path / "m")
        again = Emmett.load(tmp_path / "m")
        assert again.fingerprint == model.fingerprint
        assert again.search(["t0", "t9"], k=7) == model.search(["t0", "t9"], k=7)
        assert again.explain("i4") == model.explain("i4")

    def test_every_damaged_file_is_refused(self, model, tmp_path):
        place = tmp_path / "m"
        model.save(place)
        files = [file for file in place.rglob("*") if file.is_file()]
        assert len(files) >= 7
        for file in files:
            whole = file.read_bytes()
            for damaged in (b"", whole[: len(whole) // 2], whole[:-1] + bytes([whole[-1] ^ 1]), whole + b"x"):
                file.write_bytes(damaged)
                with pytest.raises(ModelError):
                    Emmett.load(place)
            file.unlink()
            with pytest.raises(ModelError):
                Emmett.load(place)
            file.write_bytes(whole)
        Emmett.load(place)

    def test_a_folder_that_is_no_model(self, tmp_path):
        with pytest.raises(ModelError, match="Not a metaxc folder"):
            Emmett.load(tmp_path)


def test_unknown_settings_are_errors():
    with pytest.raises(ValueError, match="bogus"):
        Calibration(bogus=1)
