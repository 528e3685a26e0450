"""Texts as bags of word pieces: the input of the token-bag towers and of the transformer.

The tokenizer is the pretrained encoder's own, so one vocabulary serves both. It takes about 25,000 short texts a second
on two cores. For the towers it can have bigrams too: pairs of word pieces that often follow each other ("type 2", "new
york") and mean something that the pieces by themselves do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from metaxc.array_checks import AGAIN
from metaxc.arrays import Rows
from metaxc.errors import ModelError

CHUNK = 16_384

FEWEST_TEXTS = 3
"""Texts that a bigram must be in: what is in fewer teaches nothing about others."""


@dataclass(frozen=True)
class TokenBags:
    """The tokens of many texts, concatenated.

    Args:
        tokens: (sum of lengths,) int32 token ids.
        starts: (texts + 1,) int64; text i has tokens[starts[i]:starts[i + 1]].
    """

    tokens: NDArray[np.int32]
    starts: Rows

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Rows) -> TokenBags:
        """The bags at `rows`, in that order."""
        places, starts = self._places(rows)
        return TokenBags(self.tokens[places], starts)

    def with_special_tokens(self, before: Sequence[int], after: Sequence[int], max_tokens: int) -> TokenBags:
        """The bags with special tokens before and after each text, cut to `max_tokens` tokens in total."""
        old = np.minimum(np.diff(self.starts), max_tokens - len(before) - len(after))
        starts = np.concatenate([[0], np.cumsum(old + len(before) + len(after))])
        tokens = np.empty(starts[-1], dtype=np.int32)
        for place, token in enumerate(before):
            tokens[starts[:-1] + place] = token
        for place, token in enumerate(reversed(after), start=1):
            tokens[starts[1:] - place] = token
        ends = np.cumsum(old)
        within = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - old, old)
        tokens[np.repeat(starts[:-1] + len(before), old) + within] = self.tokens[
            np.repeat(self.starts[:-1], old) + within
        ]
        return TokenBags(tokens, starts)

    def batch(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Tokens and offsets of the texts at `rows`, as `torch.nn.functional.embedding_bag` expects them."""
        places, starts = self._places(rows)
        return torch.from_numpy(self.tokens[places].astype(np.int64)), torch.from_numpy(starts[:-1])

    def _places(self, rows: Rows) -> tuple[Rows, Rows]:
        lengths = self.starts[rows + 1] - self.starts[rows]
        starts = np.concatenate([[0], np.cumsum(lengths)])
        return np.arange(starts[-1]) - np.repeat(starts[:-1] - self.starts[rows], lengths), starts

    def bigrams(self, vocabulary: int) -> tuple[Rows, Rows]:
        """Every two tokens that follow each other in a text: (n,) int64 first · vocabulary + second, and (n,) the
        texts."""
        text = np.repeat(np.arange(len(self)), np.diff(self.starts))
        together = np.flatnonzero(text[1:] == text[:-1])
        tokens = self.tokens.astype(np.int64)
        return tokens[together] * vocabulary + tokens[together + 1], text[together]

    def with_more(self, tokens: NDArray[np.int32], text: Rows) -> TokenBags:
        """The bags with more tokens at their ends.

        Args:
            tokens: (n,) the tokens.
            text: (n,) the text of each, ascending.
        """
        lengths = np.diff(self.starts)
        more = np.bincount(text, minlength=len(self))
        starts = np.concatenate([[0], np.cumsum(lengths + more)])
        joined = np.empty(starts[-1], np.int32)
        own = np.repeat(np.arange(len(self)), lengths)
        joined[np.arange(len(own)) - self.starts[own] + starts[own]] = self.tokens
        first = np.cumsum(more) - more
        joined[np.arange(len(text)) - first[text] + starts[text] + lengths[text]] = tokens
        return TokenBags(joined, starts)


def count_bigrams(bags: Sequence[TokenBags], vocabulary: int, most: int) -> Rows:
    """(n,) int64, ascending: the bigrams that are in the most texts, as `TokenBags.bigrams` numbers them.

    Args:
        bags: The word pieces of all texts, of queries and items.
        vocabulary: The number of word pieces.
        most: How many bigrams at most; one in fewer than `FEWEST_TEXTS` texts is never among them.
    """
    if not most:
        return np.empty(0, np.int64)
    in_texts = []
    for one in bags:
        pairs, text = one.bigrams(vocabulary)
        order = np.lexsort((pairs, text))
        pairs, text = pairs[order], text[order]
        repeated = np.zeros(len(pairs), dtype=bool)
        repeated[1:] = (pairs[1:] == pairs[:-1]) & (text[1:] == text[:-1])
        in_texts.append(pairs[~repeated])
    found, texts = np.unique(np.concatenate(in_texts), return_counts=True)
    often = np.flatnonzero(texts >= FEWEST_TEXTS)
    taken = often[np.argsort(-texts[often], kind="stable")[:most]]
    return np.sort(found[taken])


def find_bigrams(bags: TokenBags, known: Rows, vocabulary: int) -> TokenBags:
    """Bags of word pieces with their bigrams: token `vocabulary` + i stands for the bigram known[i].

    Args:
        bags: The word pieces of some texts.
        known: (n,) int64 the bigrams that are tokens, from `count_bigrams`.
        vocabulary: The number of word pieces.
    """
    if not len(known):
        return bags
    pairs, text = bags.bigrams(vocabulary)
    place = np.minimum(np.searchsorted(known, pairs), len(known) - 1)
    found = known[place] == pairs
    return bags.with_more((vocabulary + place[found]).astype(np.int32), text[found])


def batches_by_length(lengths: Rows, tokens: int) -> Iterator[Rows]:
    """Row numbers in batches of texts of similar length, so that little of a batch is padding.

    Shortest texts first; each batch has at most `tokens` tokens after padding, or is a single text.
    """
    order = np.argsort(lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > tokens:
            yield order[start:end]
            start = end


def pad_batch(bags: TokenBags, rows: Rows) -> tuple[Rows, Rows]:
    """Token ids and attention mask of the texts at `rows`, both (rows, longest) int64, as BERT expects them."""
    taken = bags.take(rows)
    lengths = np.diff(taken.starts)
    mask = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = np.zeros(mask.shape, dtype=np.int64)
    ids[mask] = taken.tokens
    return ids, mask.astype(np.int64)


class BagTokenizer:
    """Texts to token bags with a `tokenizer.json`.

    Args:
        path: A `tokenizer.json` file as the tokenizers library writes it.
        max_tokens: Longer texts are cut to this many tokens, as the transformer does.
        special_tokens: Whether to add the tokens that begin and end a text, as the transformer expects.
        bigrams: (n,) int64 the bigrams that are tokens too, from `count_bigrams`; None for none.
    """

    def __init__(
        self,
        path: str | Path,
        max_tokens: int = 256,
        special_tokens: bool = False,
        bigrams: Rows | None = None,
    ):
        if not Path(path).is_file():
            raise ModelError("The tokenizer is missing", got=path, expected="a tokenizer.json file")
        try:
            self.definition = Path(path).read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(self.definition)
        except Exception as error:  # the library raises no type of its own
            raise ModelError(
                "The tokenizer cannot be read",
                got=f"{path}: {error}",
                expected="a tokenizer.json file",
                fix=AGAIN,
            ) from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self.max_tokens, self.special_tokens = max_tokens, special_tokens
        self.pieces: int = self._tokenizer.get_vocab_size()
        self.bigrams: Rows = np.empty(0, np.int64) if bigrams is None else bigrams

    @property
    def vocabulary(self) -> int:
        """The number of token ids: word pieces, then bigrams."""
        return self.pieces + len(self.bigrams)

    def with_bigrams(self, bigrams: Rows) -> BagTokenizer:
        """The same tokenizer with these bigrams."""
        other = copy(self)
        other.bigrams = bigrams
        return other

    @cached_property
    def boundary_tokens(self) -> tuple[list[int], list[int]]:
        """The special tokens that begin and those that end a text, as the transformer expects them."""
        encoded = self._tokenizer.encode("a", add_special_tokens=True)
        inside = [place for place, special in enumerate(encoded.special_tokens_mask) if not special]
        if not inside:
            return [], []
        return encoded.ids[: inside[0]], encoded.ids[inside[-1] + 1 :]

    def __call__(self, texts: Sequence[str]) -> TokenBags:
        """The word pieces of `texts`, then their bigrams."""
        return self.add_bigrams(self.read_pieces(texts))

    def add_bigrams(self, bags: TokenBags) -> TokenBags:
        """Bags of word pieces with the bigrams that are tokens."""
        return find_bigrams(bags, self.bigrams, self.pieces)

    def read_pieces(self, texts: Sequence[str]) -> TokenBags:
        """The word pieces of `texts` alone."""
        pieces: list[NDArray[np.int32]] = []
        lengths: list[int] = []
        for start in range(0, len(texts), CHUNK):
            chunk = list(texts[start : start + CHUNK])
            for encoding in self._tokenizer.encode_batch_fast(chunk, add_special_tokens=self.special_tokens):
                pieces.append(np.asarray(encoding.ids, dtype=np.int32))
                lengths.append(len(encoding.ids))
        starts = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64)
        tokens = np.concatenate(pieces) if pieces else np.empty(0, np.int32)
        return TokenBags(tokens, starts)
