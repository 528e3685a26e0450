"""Requests cut into slices of bounded work, so that one large request delays others by no more than a slice.

The work of an encoder is the number of tokens that it reads, padding included. Tokens are estimated from the bytes of a
text: counting them exactly would itself be work that nobody has admitted yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from metaxc.arrays import Rows
from metaxc.encoders import Encoder
from metaxc.encoders.tokens import batches_by_length

BYTES_PER_TOKEN = 3
"""English has 4 to 5 bytes per word piece, product codes 3, Chinese 3 (one character). Too many tokens make slices
smaller than they could be, too few make them larger."""

SPECIAL_TOKENS = 2
MOST_TOKENS = 512
"""That an encoder reads of a text, where it does not say."""


@dataclass(frozen=True)
class Slice:
    """A part of a request that is handled in one go.

    Args:
        weight: Its work, in estimated tokens.
        rows: Places of its texts in the request; empty for a request that is not cut by texts.
    """

    weight: int = 1
    rows: tuple[int, ...] = ()


@dataclass(frozen=True)
class EncodedPart:
    """What a slice of a large request has encoded.

    Args:
        model: The fingerprint of the model that has encoded it: a switch between two slices makes it useless.
        value: Embeddings or vectors.
    """

    model: str
    value: Any


def estimate_tokens(texts: Sequence[str], most: int = MOST_TOKENS) -> Rows:
    """(texts,) how many tokens an encoder reads of each text, at most `most`."""
    sizes = np.array([len(text) if text.isascii() else len(text.encode()) for text in texts], dtype=np.int64)
    return np.minimum(SPECIAL_TOKENS + -(-sizes // BYTES_PER_TOKEN), most)


def most_tokens(encoder: Encoder) -> int:
    """How many tokens of a text an encoder reads."""
    return int(getattr(encoder, "max_tokens", MOST_TOKENS))


@dataclass(frozen=True)
class Cutter:
    """Cuts requests for one service.

    Args:
        slice_tokens: Tokens per slice, padding included; a longer text is a slice of its own.
        slice_texts: Texts per slice.
        text_tokens: Tokens that the encoder reads of one text.
    """

    slice_tokens: int
    slice_texts: int
    text_tokens: int = MOST_TOKENS

    def cut(self, texts: Sequence[str]) -> list[Slice]:
        """Slices of texts of similar length, the shortest first, each with the rows of its texts."""
        lengths = estimate_tokens(texts, self.text_tokens)
        slices = []
        for batch in batches_by_length(lengths, self.slice_tokens):
            for start in range(0, len(batch), self.slice_texts):
                rows = batch[start : start + self.slice_texts]
                slices.append(Slice(int(len(rows) * lengths[rows].max()), tuple(rows.tolist())))
        return slices

    def cut_before(
        self, texts: Sequence[str], last_texts: Sequence[str] = (), last_weight: int = 1
    ) -> list[Slice]:
        """Slices that encode texts, and a last one without rows for what needs all of them; that one alone where all of
        it fits into a slice.

        Args:
            texts: (n,) the texts.
            last_texts: Texts that the last slice encodes.
            last_weight: Work of the last slice beside encoding, in tokens.
        """
        slices, tokens = self.cut(texts), int(estimate_tokens(last_texts, self.text_tokens).sum())
        together = sum(one.weight for one in slices) + tokens
        if len(slices) <= 1 and (not tokens or together <= self.slice_tokens):
            return [Slice(max(together, 1))]
        return [*slices, Slice(tokens + last_weight)]
