"""Arrays from a file are what the caller needs, or a clear error."""

from pathlib import Path

import numpy as np
import pytest

from metaxc import array_checks
from metaxc.array_checks import all_finite, check_rows, take_array
from metaxc.errors import ModelError

FILE = Path("folder/w.safetensors")
ARRAYS = {"w": np.ones((2, 3), np.float32)}


def test_an_array_that_fits_is_returned():
    assert take_array(ARRAYS, "w", FILE, (None, 3)) is ARRAYS["w"]


@pytest.mark.parametrize(
    ("name", "shape", "types", "message"),
    [
        ("v", (2, 3), ("float32",), "without 'v'"),
        ("w", (2, 4), ("float32",), r"\(2, 3\) float32(.|\n)*\(2, 4\) float32"),
        ("w", (None,), ("float32",), r"expected: \(any\) float32"),
        ("w", (2, 3), ("int64", "float64"), "int64 or float64"),
    ],
)
def test_an_array_that_does_not_fit_is_named(name, shape, types, message):
    with pytest.raises(ModelError, match=message):
        take_array(ARRAYS, name, FILE, shape, types)


@pytest.mark.parametrize("rows", [[-1, 0], [0, 5]])
def test_rows_out_of_range_are_refused(rows):
    check_rows(np.array([0, 4]), 5, "rows")
    with pytest.raises(ModelError, match="0 to 4"):
        check_rows(np.array(rows), 5, "rows")


def test_every_block_of_an_array_is_looked_at(monkeypatch):
    monkeypatch.setattr(array_checks, "BLOCK", 4)
    for place in range(10):
        array = np.zeros((5, 2), np.float32)
        assert all_finite(array)
        array.reshape(-1)[place] = np.nan
        assert not all_finite(array)
    assert all_finite(np.arange(9))
