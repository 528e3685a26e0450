"""Which backend `auto` chooses, and what it reports."""

import numpy as np
import pytest

from metaxc.encoders import EmbeddingCache, Pretrained
from metaxc.encoders.onnx import Parity, choose_backend, compute_parity, recall_or_choose, sample_texts
from metaxc.errors import ModelError

TEXTS = [f"text {number}" for number in range(40)]


def unit(array):
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


GOOD = unit(np.random.default_rng(0).normal(size=(40, 16)))


class World:
    """Encoders whose embeddings are GOOD plus noise, by backend."""

    def __init__(self, **noise):
        self.noise, self.tried, self.lines = noise, [], []

    def __call__(self, backend):
        self.tried.append(backend)
        noise = self.noise.get(backend.replace("onnx-int8", "int8"), 0.0)
        if noise is None:
            raise ModelError("The encoder cannot be exported to ONNX", got="no such operator")
        random = np.random.default_rng(1)
        return lambda texts: unit(GOOD[: len(texts)] + noise * random.normal(size=(len(texts), 16)))

    def choose(self, texts=TEXTS, exportable=True):
        return choose_backend(texts, exportable, self, self.lines.append)


def test_the_fastest_backend_that_agrees_is_chosen_and_no_other_is_tried():
    world = World(int8=0.001)
    assert world.choose() == "onnx-int8"
    assert world.tried == ["torch", "onnx-int8"]
    assert "encode with onnx-int8: cosine 1.0000" in world.lines[0]


def test_a_backend_that_does_not_agree_is_rejected_with_its_figures():
    world = World(int8=0.3)
    assert world.choose() == "onnx"
    found = compute_parity(GOOD, world("onnx-int8")(TEXTS))
    assert found.cosine < 0.99
    assert world.lines[0].startswith(f"onnx-int8 rejected: cosine {found.cosine:.4f}")
    assert "cosine 0.9900, neighbours 0.900 required" in world.lines[0]


def test_torch_is_the_last_resort():
    world = World(int8=0.3, onnx=0.1)
    assert world.choose() == "torch"
    assert [line.split()[0] for line in world.lines] == ["onnx-int8", "onnx", "encode"]


def test_a_backend_that_cannot_be_exported_is_rejected():
    world = World(int8=None, onnx=None)
    assert world.choose() == "torch"
    assert "cannot be exported to ONNX, no such operator" in world.lines[0]


def test_without_onnxruntime_torch_is_chosen_and_the_install_command_reported(monkeypatch):
    monkeypatch.setattr("metaxc.encoders.onnx.missing_packages", lambda: ["onnxruntime"])
    world = World()
    assert world.choose() == "torch"
    assert world.tried == []
    assert "onnxruntime not installed; pip install 'metaxc[fast]'" in world.lines[0]


def test_a_model_that_is_not_exportable_or_no_texts_choose_torch():
    assert World().choose(exportable=False) == "torch"
    assert World().choose(texts=[]) == "torch"


class TestParity:
    def test_equal_embeddings_agree_fully(self):
        assert compute_parity(GOOD, GOOD) == Parity(pytest.approx(1.0), 1.0)

    def test_counts_the_neighbours_that_are_the_same(self, monkeypatch):
        monkeypatch.setattr("metaxc.encoders.onnx.NEAREST", 1)
        pairs = unit(np.repeat(np.eye(4), 2, axis=0) + 0.01 * np.random.default_rng(0).random((8, 4)))
        swapped = pairs[[0, 2, 1, 3, 4, 5, 6, 7]]  # texts 0 to 3 change partners, 4 to 7 keep theirs
        assert compute_parity(pairs, swapped).neighbours == 0.5
        assert compute_parity(pairs, swapped).cosine == pytest.approx(0.75, abs=0.02)

    def test_nan_never_reaches_the_required_figures(self):
        broken = GOOD.copy()
        broken[3] = np.nan
        assert not compute_parity(GOOD, broken).reaches(Parity(0.0, 0.0))

    def test_a_single_text_has_only_a_cosine(self):
        assert compute_parity(GOOD[:1], GOOD[1:2]).cosine == pytest.approx(float(GOOD[0] @ GOOD[1]), abs=1e-6)


def test_a_sample_is_evenly_spaced_from_first_to_last():
    assert sample_texts(TEXTS, 3) == ["text 0", "text 19", "text 39"]
    assert sample_texts(TEXTS[:2], 5) == ["text 0", "text 1"]


def test_a_choice_is_made_once_and_stored(tmp_path):
    file, calls = tmp_path / "onnx" / "choice.json", []

    def decide():
        calls.append(1)
        return "onnx"

    assert [recall_or_choose(file, decide) for _ in range(2)] == ["onnx", "onnx"]
    assert len(calls) == 1
    file.write_text("{")
    assert recall_or_choose(file, decide) == "onnx"
    assert len(calls) == 2
    assert recall_or_choose(None, lambda: "torch") == "torch"


def test_auto_on_a_real_encoder_chooses_int8_and_stays_with_it(tiny, tmp_path):
    texts = [
        f"{how} {what}" for how in ("red", "old", "long", "a") for what in ("apple", "pear", "chair", "fish")
    ]
    lines = []
    cache = EmbeddingCache(tmp_path)
    chosen = Pretrained(tiny, cache, "auto", texts=texts, report=lines.append)
    assert repr(chosen) == f"Pretrained({str(tiny)!r}, dim=64, backend='auto')"
    assert chosen.backend == "onnx-int8"
    assert len(lines) == 1
    again = Pretrained(tiny, cache, "auto", texts=texts, report=lines.append)
    assert again.fingerprint == Pretrained(tiny, cache, "onnx-int8").fingerprint
    assert len(lines) == 1
