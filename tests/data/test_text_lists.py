"""Texts from lists, columns and data frames."""

import numpy as np
import pyarrow as pa
import pytest

from metaxc.data.text_lists import as_texts, list_texts
from metaxc.errors import DataError


@pytest.mark.parametrize(
    "given",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        np.array(["a", "b"], dtype=object),
        pa.array(["a", "b"]),
        pa.chunked_array([["a"], ["b"]]),
        pa.table({"title": ["a", "b"]}),
        pa.table({"n": [1, 2], "text": ["a", "b"]}),
        {"a": 1, "b": 2}.keys(),
    ],
    ids=["list", "tuple", "numpy", "objects", "arrow", "chunks", "one column", "text column", "keys"],
)
def test_one_list(given):
    assert list(as_texts(given)) == ["a", "b"]


def test_series_and_frames_of_other_libraries():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"title": ["a", "b"]}, index=[5, 3])
    assert as_texts(frame) == as_texts(frame["title"]) == ["a", "b"]
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"title": ["a", "b"]})
    assert as_texts(frame) == as_texts(frame["title"]) == ["a", "b"]


def test_vectors_stay_vectors():
    vectors = np.ones((2, 3), np.float32)
    assert as_texts(vectors) is vectors
    with pytest.raises(DataError, match="not vectors"):
        list_texts(vectors)


def test_what_is_no_list_of_texts():
    with pytest.raises(DataError, match=r"Expected a list of texts, got one query(.|\n)*pass \['x'\]"):
        as_texts("x", "query")
    with pytest.raises(DataError, match=r"Which column has the text of each item\?(.|\n)*got: title, body"):
        as_texts(pa.table({"title": ["a"], "body": ["b"]}), "item")
    with pytest.raises(DataError, match="position 1: None"):
        as_texts(["a", None])
