import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from metaxc.encoders import Pretrained
from metaxc.encoders.pretrained import batches_by_length


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 120))
def test_batches_hold_every_row_once_and_not_too_many_tokens(lengths, tokens):
    batches = list(batches_by_length(np.array(lengths, dtype=np.int64), tokens))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= tokens


def test_equal_to_sentence_transformers():
    encoder = Pretrained()
    texts = ["red apple", "a long text about the price of fish in the market " * 40, "", "café – naïve", "x"]
    expected = encoder._model.encode(texts, normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode_items(texts), expected, atol=1e-6)
