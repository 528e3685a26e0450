"""Memory of mapped arrays is given back, and their content stays."""

from pathlib import Path

import numpy as np
import pytest

from metaxc.arrays import release_pages

COUNT = 2_000_000


def resident() -> int:
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux's /proc")
def test_what_was_read_of_a_file_is_given_back(tmp_path):
    np.save(tmp_path / "array.npy", np.arange(COUNT))
    array = np.load(tmp_path / "array.npy", mmap_mode="r")
    before = resident()
    total = array.sum()
    read = resident() - before
    release_pages(array)
    assert read > 0.8 * array.nbytes
    assert resident() - before < 0.2 * array.nbytes
    assert array.sum() == total == COUNT * (COUNT - 1) // 2


def test_an_array_in_memory_or_one_that_is_written_is_left_alone(tmp_path):
    array = np.arange(3)
    release_pages(array)
    assert array.tolist() == [0, 1, 2]
    np.save(tmp_path / "array.npy", array)
    copied = np.load(tmp_path / "array.npy", mmap_mode="c")
    copied[0] = 7
    release_pages(copied)
    assert copied.tolist() == [7, 1, 2]
