"""Vectors from outside: made unit vectors, or refused with what to do."""

import json

import numpy as np
import pytest

from metaxc.catalog.vector_rules import read_numbers, same_vector, shorten_numbers, validate_embedding
from metaxc.errors import DataError


def test_the_direction_of_a_vector_counts():
    found = validate_embedding([3, 4.0], 2)
    assert found.dtype == np.float32
    assert found.tolist() == pytest.approx([0.6, 0.8])
    unit = np.array([0.6, 0.8], np.float32)
    assert np.array_equal(validate_embedding(unit, 2), unit), "a unit vector stays as it is"


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0], "wrong length"),
        ([1.0, 2.0, 3.0], "wrong length"),
        ([0.0, 0.0], "no direction"),
        ([1e-30, 0.0], "no direction"),
        ([1e30, 1e30], "no direction"),
        ([1e39, 0.0], "float32 cannot hold"),
        ([float("nan"), 1.0], "NaN"),
        ([float("-inf"), 1.0], "infinity"),
        (["a", "b"], "list of numbers"),
        ("12", "list of numbers"),
        (7.0, "list of numbers"),
        (None, "NaN|list of numbers"),
        ([[1.0, 2.0]], "list of numbers"),
        ([10**400, 1], "list of numbers"),
    ],
)
def test_what_is_no_embedding_is_refused(vector, message):
    with pytest.raises(DataError, match=message) as error:
        validate_embedding(vector, 2, "item vector")
    assert "item vector" in str(error.value)


def test_rounding_makes_no_other_vector():
    one = validate_embedding(np.random.default_rng(0).normal(size=384), 384)
    assert same_vector(one, np.round(one, 5))
    assert not same_vector(one, validate_embedding(one + np.eye(384)[0] * 0.01, 384))


def test_numbers_are_sent_with_the_digits_that_float32_needs():
    vector = np.random.default_rng(0).normal(size=384).astype(np.float32)
    sent = json.dumps(shorten_numbers(vector))
    assert np.array_equal(np.asarray(json.loads(sent), np.float32), vector)
    assert len(sent) < 0.7 * len(json.dumps(vector.tolist()))
    assert read_numbers(shorten_numbers(vector), "vector").tolist() == vector.tolist()
