"""Load tests of a real service in its own process: short versions of `benchmarks/reliability`.

Speed is measured there; these tests check what must hold on any machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "reliability"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    """Import the benchmarks as if they were run from their folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in (
        "overload",
        "fairness",
        "streaming",
        "soak",
        "strangers",
        "schema",
        "live",
        "world",
        "proof_run",
    ):
        sys.modules.pop(name, None)


def test_an_overloaded_service_answers_or_rejects_and_loses_no_write():
    from overload import run

    found = run(seconds=2.0, queries=32, queue=16)
    assert set(found["statuses"]) == {"200", "429"}
    assert found["refused without Retry-After"] == 0
    assert found["acknowledged adds"] > 0
    assert found["of these lost"] == found["refused adds that are there"] == 0
    assert found["answers as before"]
    assert found["exit code"] == 0


def test_streamed_items_are_found_by_the_next_search_and_changed_by_their_first_click():
    from streaming import run

    found = run(rounds=1, seconds=1.0)
    assert set(found["statuses"]) == {"200"}
    assert found["first steps looked at"] >= 1
    assert found["first steps that were not seen"] == []
    assert found["acknowledged adds"] >= 40
    assert found["of these lost"] == 0
    assert found["exit code"] == 0


def test_after_many_deletes_the_catalog_equals_a_dict():
    from soak import run

    found = run(operations=300, most_seconds=60.0, items=5_200)
    assert found["index"] == "scan"
    assert found["other than the dict"] == found["other than the dict when opened again"] == 0
    assert found["deleted"] > 80
    assert found["items at the end"] == 5_200
    assert found["recall@10 at the end"] >= found["recall@10 of a fresh index"] - 0.005
    assert found["record against a fresh copy"]["second half"] < 3


def test_large_requests_and_overload_keep_nobody_waiting():
    from fairness import Size, run

    found = run(Size(seconds=1.5, texts=24, clicks=300))["after"]
    reads, adds, load = found["large reads"], found["single adds"], found["overload"]
    beside = reads["searches beside large reads, ms"], reads["lists beside large reads, ms"]
    for answered in (*beside, adds["single adds beside bulk adds, ms"]):
        assert set(answered["statuses"]) == {"200"}
    # Three large reads take turns, each of 24 slices: many searches are answered before one of them is.
    assert beside[0]["count"] > sum(reads["large reads answered"].values())
    assert adds["single adds beside bulk adds, ms"]["count"] > sum(adds["bulk adds answered"].values())
    assert set(load["statuses"]) <= {"200", "429"}
    assert load["refused without Retry-After"] == 0
    assert load["accepted, ms"]["count"] > 0
    assert found["clicks"].keys() == {
        "on an item with 13 clicks, ms",
        "on an item with 300 clicks, ms",
        "ratio",
    }


def test_strangers_cannot_stop_the_service_or_make_it_grow():
    from strangers import SHORT, run

    found = run(SHORT, judge_times=False)
    assert found["problems"] == []
    assert found["after"].keys() == {"idle", "bodies", "pipelines", "all", "elsewhere", "methods"}
    assert found["after"]["idle"]["strangers"] > found["files that the service may open"]
    metrics = found["after"]["methods"]["/metrics, bytes"]
    assert abs(metrics["after"] - metrics["before"]) < 500
