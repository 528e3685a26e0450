"""Latency: every stage is measured, in turn with the others and without the cache."""

import pytest

from metaxc.encoders import Pretrained
from metaxc.irene import Irene, IreneConfig
from metaxc.research import latency
from metaxc.research.latency import measure_latency, seconds_per_text, timed, without_cache


def test_every_stage_of_a_model_is_measured(world):
    model = Irene(IreneConfig(encoder="pretrained", folds=0), encoder=world.encoder).fit(world.dataset)
    found = measure_latency(model, ["t0", "t1", "t2"], ["i4", "i9"], batch=8)
    assert [stage.name for stage in found.stages] == [
        "encode a query",
        "search, first 10",
        "encode an item",
        "select neighbours",
        "generate",
    ]
    assert all(stage.single > 0 and stage.batch > 0 for stage in found.stages)
    assert found.items == 200


def test_the_cache_is_restored():
    base = Pretrained.__new__(Pretrained)
    base.cache = "a cache"
    with without_cache(base):
        assert base.cache is None
    assert base.cache == "a cache"


def test_medians_per_text_without_the_first_call(monkeypatch):
    clock, calls = [0.0], []
    monkeypatch.setattr(latency.time, "perf_counter", lambda: clock[0])

    def work(at):
        calls.append((at.start, at.stop))
        clock[0] += 100.0 if len(calls) == 1 else 0.5 * (at.stop - at.start)

    assert seconds_per_text([timed(work)], 5, 2, 3) == pytest.approx([0.5])
    assert calls == [(0, 2), (2, 4), (0, 2), (2, 4)]
