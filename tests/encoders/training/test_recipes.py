"""Whole recipes on a tiny transformer: what they write, what they hold out, and that a killed run resumes exactly."""

import json
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from metaxc.artifacts import load_arrays
from metaxc.data import write_folder
from metaxc.data.clicks import training_clicks
from metaxc.encoders import Pretrained
from metaxc.encoders.training import EncoderTraining, RecipeOptions
from metaxc.encoders.training.encoder_record import EncoderRecord, known_folds
from metaxc.encoders.training.recipes import train_encoder
from metaxc.errors import ModelError
from metaxc.irene import Irene, IreneConfig

QUICK = {"steps": 8, "batch": 16, "learning_rate": 1e-3, "holdout": 0.5}


@pytest.fixture(scope="module")
def dataset(shop):
    return shop.with_novel([name for name in shop.items.ids if name.endswith("-wild")])


@pytest.mark.parametrize(
    ("recipe", "options"),
    [
        ("dpr", {}),
        ("dpr", {"bm25": True}),
        ("ance", {}),
        ("ngame", {}),
        ("maclr", {}),
        ("maclr", {"finetune": True}),
    ],
)
def test_every_recipe_writes_a_folder_that_sentence_transformers_loads(
    recipe, options, dataset, tiny, tmp_path
):
    config = EncoderTraining(recipe=recipe, options=RecipeOptions(**options), **QUICK)
    record = train_encoder(dataset, config, tmp_path / "encoder", base=tiny)
    model = SentenceTransformer(str(tmp_path / "encoder"), device="cpu")
    texts = ["small cat", "wild goose", "sweet pear"]
    encoder = Pretrained(tmp_path / "encoder")
    expected = model.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_items(texts), expected, atol=1e-5)
    assert not np.allclose(expected, Pretrained(tiny).encode_items(texts), atol=1e-3)
    assert encoder.fingerprint != Pretrained(tiny).fingerprint
    assert EncoderRecord.load(tmp_path / "encoder") == record
    assert record.learnt_from_clicks == (recipe != "maclr" or "finetune" in options)
    steps = 8 if not record.validation else record.validation[-1][0]  # held-out items may end it earlier
    assert len(record.losses) == steps


def test_held_out_and_novel_items_are_not_trained_on(dataset, tiny, tmp_path, monkeypatch):
    import metaxc.encoders.training.recipes as recipes

    seen = {}

    def spy(encoder, clicks, batches, config, **kwargs):
        seen["clicks"] = clicks
        return recipes.TrainingHistory([1.0])

    monkeypatch.setattr(recipes, "train", spy)
    record = train_encoder(dataset, EncoderTraining(**QUICK), tmp_path / "e", base=tiny)
    novel = {dataset.items.ids[row] for row in dataset.novel_rows}
    observed = set(dataset.items.ids) - novel
    assert len(record.held_items) == len(observed) // 2
    assert set(record.held_items) < observed
    assert len(record.held_queries) == 64
    learnt = [name for name in dataset.train.queries.ids if name not in record.held_queries]
    rows, columns = (
        dataset.train.queries.rows(learnt),
        dataset.items.rows(sorted(observed - set(record.held_items))),
    )
    expected = dataset.train.clicks[rows][:, np.sort(columns)].toarray()
    np.testing.assert_array_equal(seen["clicks"].toarray(), expected[expected.any(axis=1)])


@pytest.mark.parametrize(("place", "expected"), [(0, 100.0), (1, 50.0)])
def test_the_validation_score_is_the_mean_of_precision_and_recall(
    place, expected, dataset, tiny, tmp_path, monkeypatch
):
    """An answer in the second place is found among the first ten, but it is not the first."""
    import metaxc.encoders.training.recipes as recipes

    held = recipes._hold_out(dataset, EncoderTraining(**QUICK), None)
    queries, items = held.validation_clicks.shape
    order = np.ones((queries, items), np.float32)
    for query in range(queries):
        answers = held.validation_clicks[[query]].indices
        others = np.setdiff1d(np.arange(items), answers)
        order[query, answers], order[query, others[:place]] = 2, 3
    embeddings = {"query": np.eye(queries, dtype=np.float32), "item": np.ascontiguousarray(order.T)}
    monkeypatch.setattr(recipes, "embed_all", lambda encoder, side, rows: embeddings[side])
    scores = []

    def spy(encoder, clicks, batches, config, *, validate, **rest):
        scores.append(validate(encoder))
        return recipes.TrainingHistory([1.0])

    monkeypatch.setattr(recipes, "train", spy)
    train_encoder(dataset, EncoderTraining(**QUICK), tmp_path / "e", base=tiny)
    assert scores == [expected]


def test_constants_are_chosen_on_the_held_out_items(dataset, tiny, tmp_path, monkeypatch):
    lines = []
    record = train_encoder(dataset, EncoderTraining(**QUICK), tmp_path / "e", base=tiny)
    training = training_clicks(dataset)
    [fold] = known_folds(record, dataset, training, 1)
    assert [dataset.items.ids[row] for row in training[0][fold.pseudo_novel]] == record.held_items
    assert [dataset.train.queries.ids[row] for row in training[1][fold.held]] == record.held_queries
    monkeypatch.setattr("metaxc.data.folds.FEWEST_QUERIES", 20)
    two = known_folds(record, dataset, training, 2)
    assert len(two) == 2
    assert not (two[0].pseudo_novel & two[1].pseudo_novel).any()
    np.testing.assert_array_equal(two[0].pseudo_novel | two[1].pseudo_novel, fold.pseudo_novel)
    assert len(known_folds(record, dataset, training, 9)) == 1  # three items each are too few
    config = IreneConfig(encoder="pretrained", base=str(tmp_path / "e"), folds=3)
    model = Irene(config).fit(dataset, report=lines.append)
    assert any("chosen on items it held out" in line for line in lines)
    assert {"zero_shot", "generalized", "queries"} <= set(model.about["pseudo_novel"])


def test_without_held_out_items_the_constants_are_the_defaults(dataset, tiny, tmp_path):
    lines = []
    train_encoder(dataset, EncoderTraining(**{**QUICK, "holdout": 0}), tmp_path / "e", base=tiny)
    model = Irene(IreneConfig(encoder="pretrained", base=str(tmp_path / "e"))).fit(
        dataset, report=lines.append
    )
    assert any("the defaults, for it held too few items out" in line for line in lines)
    assert "skipped" in model.about["pseudo_novel"]


def test_an_encoder_trained_on_texts_alone_leaves_all_items_for_folds(dataset, tiny, tmp_path):
    lines = []
    train_encoder(dataset, EncoderTraining(recipe="maclr", **QUICK), tmp_path / "e", base=tiny)
    Irene(IreneConfig(encoder="pretrained", base=str(tmp_path / "e"))).fit(dataset, report=lines.append)
    assert not any("held" in line for line in lines)


def test_a_damaged_record_is_an_error(dataset, tiny, tmp_path):
    (tmp_path / "metaxc.json").write_text(json.dumps({"recipe": 3}))
    with pytest.raises(ModelError, match="record of a trained encoder"):
        EncoderRecord.load(tmp_path)


def test_the_older_name_of_the_validation_scores_is_read(dataset, tiny, tmp_path):
    record = train_encoder(dataset, EncoderTraining(**QUICK), tmp_path / "e", base=tiny)
    assert [step for step, _ in record.validation] == [0, 2, 4, 6, 8]
    facts = json.loads((tmp_path / "e" / "metaxc.json").read_text())
    facts["judged"] = facts.pop("validation")
    (tmp_path / "e" / "metaxc.json").write_text(json.dumps(facts))
    assert EncoderRecord.load(tmp_path / "e") == record


def command(data, out, tiny, *more):
    arguments = [
        data,
        "--out",
        out,
        "--base",
        tiny,
        "--steps",
        "30",
        "--batch",
        "16",
        "--learning-rate",
        "1e-3",
    ]
    words = ["encoder", "train", *arguments, "--holdout", "0.5", "--threads", "1", *more]
    return [sys.executable, "-c", SCRIPT, *map(str, words)]


SCRIPT = """
import time
from metaxc.encoders.training import TrainingConfig
TrainingConfig.model_fields["checkpoint_seconds"].default = 0.0
TrainingConfig.model_rebuild(force=True)
from metaxc.cli.main import run
run()
"""


def test_a_killed_run_that_is_started_again_ends_with_the_same_weights(dataset, tiny, tmp_path):
    write_folder(dataset, tmp_path / "data")
    for out in ("straight", "killed"):
        call = command(tmp_path / "data", tmp_path / out, tiny, "--recipe", "ance")
        if out == "killed":
            process = subprocess.Popen(call, stderr=subprocess.DEVNULL)
            progress = tmp_path / "killed.checkpoint" / "0-30" / "progress.json"
            deadline = time.monotonic() + 120
            while not progress.exists() and process.poll() is None and time.monotonic() < deadline:
                os.sched_yield()
            process.send_signal(signal.SIGKILL)
            assert process.wait() == -signal.SIGKILL
            assert not (tmp_path / "killed").exists()
        subprocess.run(call, check=True, stderr=subprocess.DEVNULL)
    first, second = (load_arrays(tmp_path / out / "model.safetensors") for out in ("straight", "killed"))
    assert set(first) == set(second)
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array, err_msg=name)
    assert not (tmp_path / "killed.checkpoint").exists()


SHARED_SCRIPT = """
import os
from pathlib import Path
from metaxc.encoders.training import transformer_training
transformer_training.CPU_TOKENS = 16  # a few texts: a batch has many chunks, and every process gets some
embed, counts = transformer_training.TransformerDualEncoder.embed, {"rows": 0}
def count(encoder, side, rows):
    counts["rows"] += len(rows)
    return embed(encoder, side, rows)
transformer_training.TransformerDualEncoder.embed = count
from metaxc.cli.main import app
app(standalone_mode=False)
Path(os.environ["COUNTS"], os.environ["RANK"]).write_text(str(counts["rows"]))
"""


def run_on_machines(machines, folder, arguments):
    """Run `metaxc` under one torchrun for each machine, as on several machines; rows that each process embedded."""
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SHARED_SCRIPT)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    launch = ["-m", "torch.distributed.run", "--nnodes", machines, "--nproc-per-node", 1]
    launch += ["--master-addr", "127.0.0.1", "--master-port", port]
    started = [
        subprocess.Popen(
            [sys.executable, *map(str, [*launch, "--node-rank", rank, script, *arguments])],
            env={**os.environ, "COUNTS": str(folder), "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(machines)
    ]
    try:
        for process in started:
            said, _ = process.communicate(timeout=300)
            assert process.returncode == 0, said
    finally:
        for process in started:
            process.kill()  # does nothing to one that has ended
    return [int((folder / str(rank)).read_text()) for rank in range(machines)]


@pytest.mark.slow
def test_two_machines_share_the_work_and_learn_the_same_as_one(dataset, tiny, tmp_path):
    """Two torchruns with gloo between them. Every chunk is computed as in one process, also its dropout; gradients are
    added up in another order, so weights differ by rounding, which Adam makes larger where gradients are near zero."""
    write_folder(dataset, tmp_path / "data")
    rows, weights, losses = {}, {}, {}
    for machines in (1, 2):
        out = tmp_path / f"with{machines}"
        arguments = ["encoder", "train", tmp_path / "data", "--out", out, "--base", tiny, "--steps", 4]
        arguments += [
            "--batch",
            16,
            "--learning-rate",
            1e-3,
            "--holdout",
            0,
            "--threads",
            1,
            "--device",
            "cpu",
        ]
        rows[machines] = run_on_machines(machines, tmp_path / f"run{machines}", arguments)
        weights[machines] = load_arrays(out / "model.safetensors")
        losses[machines] = EncoderRecord.load(out).losses
    # A step embeds 16 queries and 16 items: once with their graph in one process, and twice where gradients are cached.
    assert rows[1] == [4 * 32]
    assert sum(rows[2]) == 2 * 4 * 32
    assert min(rows[2]) > 0.3 * sum(rows[2])
    assert len(losses[1]) == 4
    assert losses[2] == pytest.approx(losses[1], abs=1e-3)
    assert abs(losses[1][0] - losses[1][-1]) > 0.05
    start = load_arrays(tiny / "model.safetensors")
    name = "encoder.layer.1.output.dense.weight"
    assert np.abs(weights[1][name] - start[name]).max() > 1e-3
    for name, array in weights[1].items():
        # The model does not use the pooler. A bias of all keys changes no attention: its gradient is rounding alone.
        if "pooler" not in name and not name.endswith("key.bias"):
            np.testing.assert_allclose(weights[2][name], array, atol=2e-4, err_msg=name)
    one, two = (Pretrained(tmp_path / f"with{n}").encode_items(dataset.items.texts) for n in (1, 2))
    np.testing.assert_allclose(two, one, atol=1e-4)
    assert np.abs(one - Pretrained(tiny).encode_items(dataset.items.texts)).max() > 1e-2
