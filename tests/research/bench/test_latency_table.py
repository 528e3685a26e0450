"""The latency table."""

import pytest

from metaxc.research.bench.latency_table import compare_with_encoding


def test_the_ratio_to_encoding_is_of_medians_per_text():
    def spend(seconds):
        return lambda at: seconds * (at.stop - at.start)

    found = compare_with_encoding(spend(0.002), spend(0.004), texts=300)
    assert found["single"] == pytest.approx({"ms": 2.0, "encode ms": 4.0, "times encoding": 0.5})
    assert found["batch 256"] == pytest.approx({"ms": 2.0, "encode ms": 4.0, "times encoding": 0.5})
