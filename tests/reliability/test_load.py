"""Under load, and for a long time: short forms of `benchmarks/reliability`, on a real service in a process of its own.

How fast it is, is measured there; here is what must hold on any machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "reliability"


@pytest.fixture(autouse=True)
def _benchmarks(monkeypatch):
    """Their folder on the path, as when they run."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in ("overload", "streaming", "soak", "live", "world"):
        sys.modules.pop(name, None)


def test_an_overloaded_service_answers_or_refuses_and_loses_nothing():
    from overload import run

    found = run(seconds=2.0, queries=32, queue=16)
    assert set(found["statuses"]) == {"200", "429"}
    assert found["refused without Retry-After"] == 0
    assert found["acknowledged adds"] > 0
    assert found["of these lost"] == found["refused adds that are there"] == 0
    assert found["answers as before"]
    assert found["exit code"] == 0


def test_what_streams_in_is_found_by_the_next_search_and_moved_by_its_first_click():
    from streaming import run

    found = run(rounds=1, seconds=1.0)
    assert set(found["statuses"]) == {"200"}
    assert found["first steps looked at"] >= 1
    assert found["first steps that were not seen"] == []
    assert found["acknowledged adds"] >= 40
    assert found["of these lost"] == 0
    assert found["exit code"] == 0


def test_after_many_deletes_the_catalog_is_what_a_dict_says():
    from soak import run

    found = run(operations=300, most_seconds=60.0, items=5_200)
    assert found["index"] == "scan"
    assert found["other than the dict"] == found["other than the dict when opened again"] == 0
    assert found["deleted"] > 80
    assert found["items at the end"] == 5_200
    assert found["recall@10 at the end"] >= found["recall@10 of a fresh index"] - 0.005
    assert found["record against a fresh copy"]["second half"] < 3
