import numpy as np
import pytest

from metaxc.encoders import cache as cache_module
from metaxc.encoders.cache import EmbeddingCache


class Counting:
    """Encodes a text as its length, and counts; stops after so many calls."""

    def __init__(self, stop_after=None):
        self.calls, self.stop_after = 0, stop_after

    def __call__(self, texts):
        if self.calls == self.stop_after:
            raise RuntimeError("killed")
        self.calls += 1
        return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(cache_module, "CHUNK", 3)
    return EmbeddingCache(tmp_path)


TEXTS = ["a" * n for n in range(1, 11)]


def test_encoded_once_and_read_from_disk_after(cache):
    encode = Counting()
    first = cache.get("f", TEXTS, 2, encode)
    assert first[:, 0].tolist() == list(range(1, 11))
    assert encode.calls == 4
    assert isinstance(cache.get("f", TEXTS, 2, Counting(0)), np.memmap)
    cache.get("another encoder", TEXTS, 2, encode)
    assert encode.calls == 8


def test_a_killed_run_goes_on_with_the_chunk_it_was_at(cache):
    with pytest.raises(RuntimeError, match="killed"):
        cache.get("f", TEXTS, 2, Counting(stop_after=2))
    encode = Counting()
    vectors = cache.get("f", TEXTS, 2, encode)
    assert encode.calls == 2
    assert vectors[:, 0].tolist() == list(range(1, 11))


def test_a_damaged_file_is_encoded_again(cache, tmp_path):
    cache.get("f", TEXTS, 2, Counting())
    file = next(tmp_path.rglob("*.npy"))
    data = bytearray(file.read_bytes())
    data[-3] ^= 0xFF
    file.write_bytes(bytes(data))
    encode = Counting()
    assert cache.get("f", TEXTS, 2, encode)[-1].tolist() == [10, 1]
    assert encode.calls == 4
