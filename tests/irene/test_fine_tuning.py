"""An encoder that is fine-tuned before a model is trained on it: twice, for as long as held-out items gain."""

import gc
import shutil

import numpy as np
import pytest

from metaxc.emmett import Emmett
from metaxc.encoders import Pretrained
from metaxc.encoders.adapted import Adapted, frozen_base
from metaxc.encoders.training import EncoderTraining
from metaxc.encoders.training.encoder_record import EncoderRecord
from metaxc.encoders.training.recipes import train_encoder
from metaxc.errors import ConfigError
from metaxc.evaluation.searches import BARE_ENCODER, FINE_TUNED_ENCODER, encoder_baselines
from metaxc.irene import SIZES, Irene, IreneConfig
from metaxc.irene.fine_tuning import Bases, fine_tune_base
from metaxc.tuning import learn_fold_encoder

QUICK = {"steps": 12, "batch": 16, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def dataset(shop):
    return shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])


@pytest.fixture(scope="module")
def trained(dataset, tiny, tmp_path_factory):
    """A model on a fine-tuned encoder, the lines that its training reported, and the folder of its stages."""
    lines, stages = [], tmp_path_factory.mktemp("stages")
    irene = Irene(base=str(tiny), fine_tuning=QUICK, adapter={"epochs": 2})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)  # the shop is small
        return irene.fit(dataset, stages=stages, report=lines.append), lines, stages


def test_the_fold_is_held_out_first_and_nothing_afterwards(dataset, trained):
    model, lines, stages = trained
    first, last = (EncoderRecord.load(stages / name / "encoder") for name in ("fine-tune-fold", "fine-tune"))
    observed = {dataset.items.ids[row] for row in dataset.observed_rows}
    assert 0 < len(first.held_items) < len(observed)
    assert set(first.held_items) < observed
    assert last.held_items == last.held_queries == []
    assert [step for step, _ in first.validation] == [0, 3, 6, 9, 12]
    assert model.about["fine_tuning"] == [list(one) for one in first.validation]
    assert any("while fine-tuning: step 0: " in line for line in lines)


def test_what_any_fold_holds_out_is_held_out_of_the_fine_tuning(dataset, tiny, monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 3)
    monkeypatch.setattr("metaxc.data.folds.FEWEST_ITEMS", 2)
    drawn, known = [], []
    monkeypatch.setattr(
        "metaxc.irene.constant_choice.learn_fold_encoder",
        lambda parts, encoding, fold, *data: (
            drawn.append(fold) or learn_fold_encoder(parts, encoding, fold, *data)
        ),
    )
    monkeypatch.setattr(
        "metaxc.irene.training_run.fine_tune_base",
        lambda base, data, fold, *rest: known.append(fold) or Bases(base, base),
    )
    Irene(base=str(tiny), fine_tuning=QUICK, folds=2, adapter={"epochs": 1}).fit(dataset)
    assert len(drawn) == 2
    for fold in drawn:
        assert not (fold.pseudo_novel & ~known[0].pseudo_novel).any()
        assert not (fold.held & ~known[0].held).any()
    assert known[0].pseudo_novel.sum() == sum(fold.pseudo_novel.sum() for fold in drawn)


def test_constants_are_chosen_with_the_encoder_that_has_not_seen_the_fold(trained):
    model, _, stages = trained
    assert isinstance(model.encoder, Adapted)
    assert model.encoder.base.weights == Pretrained(stages / "fine-tune" / "encoder").weights
    assert model.encoder.base.weights != Pretrained(stages / "fine-tune-fold" / "encoder").weights
    assert "skipped" not in model.about["pseudo_novel"]


def test_the_model_folder_carries_the_weights(dataset, trained, tmp_path, tiny):
    model, _, stages = trained
    model.save(tmp_path / "model")
    texts = ["wild goose", "sweet pear"]
    expected = model.represent(texts)
    moved = shutil.move(tmp_path / "model", tmp_path / "moved")
    shutil.rmtree(stages / "fine-tune")
    loaded = Emmett.load(moved, base=tiny)  # a base is asked for only where the model has none
    np.testing.assert_array_equal(loaded.represent(texts), expected)
    assert set(encoder_baselines(loaded.encoder)) == {"adapted encoder alone", FINE_TUNED_ENCODER}
    bare = frozen_base(loaded.encoder, tiny, None, texts)
    assert bare.weights == Pretrained(tiny).weights
    assert set(encoder_baselines(bare)) == {BARE_ENCODER}


def test_without_a_folder_for_stages_the_weights_live_as_long_as_the_encoder(dataset, tiny, monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)
    irene = Irene(base=str(tiny), encoder="pretrained", fine_tuning=QUICK, backend="torch")
    model = irene.fit(dataset)
    folder = model.encoder.folder
    assert folder != tiny
    assert model.represent(["a text that was not embedded before"]).shape == (1, 65)
    assert folder.is_dir()
    del model
    gc.collect()
    assert not folder.exists()


@pytest.mark.parametrize(("scores", "expected"), [((3.0, 9.0, 5.0), 5), ((9.0, 3.0, 5.0), None)])
def test_it_trains_as_long_as_held_out_items_gain(scores, expected, dataset, tiny, tmp_path, monkeypatch):
    calls = []

    def train_encoder(dataset, config, out, *, fold, stop_after, **rest):
        calls.append((fold, stop_after, config.holdout))
        out.mkdir(parents=True)
        validation = [(0, scores[0]), (5, scores[1]), (10, scores[2])]
        record = EncoderRecord(
            recipe={}, base="", data="", learnt_from_clicks=True, held_items=[], held_queries=[],
            steps=10, losses=[], validation=validation,
        )  # fmt: skip
        record.write(out)

    monkeypatch.setattr("metaxc.irene.fine_tuning.train_encoder", train_encoder)
    from metaxc.artifacts import Stages

    config, fold = EncoderTraining(steps=10), object()
    found = fine_tune_base(str(tiny), dataset, fold, 64, config, Stages(tmp_path), None, "inputs")
    assert calls[0] == (fold, None, 0.1)
    if expected is None:
        assert (found.fold, found.model, len(calls)) == (str(tiny), str(tiny), 1)
    else:
        assert calls[1:] == [(None, expected, 0.0)]
        assert (found.fold, found.model) == tuple(
            str(tmp_path / name / "encoder") for name in ("fine-tune-fold", "fine-tune")
        )


def test_steps_are_passes_within_a_limit():
    config = EncoderTraining(steps=100, passes=2.0, batch=10)
    assert [config.planned_steps(queries) for queries in (1, 50, 1_000)] == [1, 10, 100]
    assert EncoderTraining(steps=100).planned_steps(5) == 100


def test_how_long_the_sizes_fine_tune():
    steps = {}
    for size, settings in SIZES.items():
        config = IreneConfig.model_validate(settings)
        plans = [config.planned_fine_tuning(queries) for queries in (999, 1_000, 100_000, 100_001)]
        steps[size] = [plan and plan.planned_steps(12_800) for plan in plans]
    assert steps == {"fast": [None] * 4, "default": [None, 100, 100, None], "best": [300] * 4}


@pytest.mark.parametrize(
    "change", [{"encoder": "static"}, {"encoder": "pretrained"}, {"folds": 0}, {"fine_tuning": None}]
)
def test_auto_leaves_the_encoder_where_nothing_can_be_held_out_or_it_is_to_stay(change):
    assert IreneConfig(**change).planned_fine_tuning(50_000) is None


def test_auto_leaves_an_encoder_that_has_learnt_from_clicks(dataset, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.irene.config.FINE_TUNED_QUERIES", (10, 1_000))
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)
    monkeypatch.setattr("metaxc.irene.config.BRIEFLY", EncoderTraining(**QUICK))
    folder = tmp_path / "encoder"
    train_encoder(dataset, EncoderTraining(**{**QUICK, "steps": 2, "holdout": 0.3}), folder, base=tiny)
    plain = Irene(base=str(tiny), adapter={"epochs": 1}).fit(dataset)
    assert [step for step, _ in plain.about["fine_tuning"]] == [0, 3, 6, 9, 12]
    assert Irene(base=str(folder), adapter={"epochs": 1}).fit(dataset).about["fine_tuning"] == []


def test_fine_tuned_encoders_are_kept_for_other_models(dataset, tiny, tmp_path, monkeypatch):
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 10)
    options = {"base": str(tiny), "fine_tuning": QUICK, "adapter": {"epochs": 1}, "encoder_cache": tmp_path}
    first = Irene(**options).fit(dataset)
    kept = sorted(tmp_path.glob("fine-tuned-*"))
    assert len(kept) == 2
    monkeypatch.setattr("metaxc.irene.fine_tuning.train_encoder", None)
    second = Irene(**options, neighbours=2).fit(dataset)
    assert second.encoder.base.weights == first.encoder.base.weights
    assert sorted(tmp_path.glob("fine-tuned-*")) == kept


@pytest.mark.parametrize("change", [{"encoder": "static"}, {"folds": 0}])
def test_what_cannot_be_fine_tuned_is_refused(change):
    with pytest.raises(ConfigError, match="fine_tuning needs a transformer"):
        Irene(fine_tuning={}, **change)
