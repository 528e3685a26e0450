"""The token bag of an adapter with bigrams as a module of a sentence-transformers model.

sentence-transformers has modules for bags of word pieces, but none that knows bigrams. Like
`metaxc.emmett.expansion_module` it is imported from the installed package metaxc; no code is in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules.module import Module
from torch import Tensor
from torch.nn import functional

from metaxc.array_checks import take_array
from metaxc.arrays import Floats, Rows
from metaxc.artifacts import load_arrays, load_json, save_arrays, save_json
from metaxc.encoders.tokens import TokenBags, find_bigrams

ARRAYS, CONFIG = "token_bag.safetensors", "config.json"


class AddTokenBag(Module):
    """Adds to an embedding the mean of the vectors of a text's word pieces and bigrams.

    Args:
        table: (tokens, dim) float32: the vectors of the word pieces, then those of the bigrams.
        bigrams: (n,) int64 the bigrams, as `metaxc.encoders.tokens.count_bigrams` returns them.
        before: Tokens at the beginning of every text that do not count: special tokens and those of a prompt.
        after: Special tokens at the end of every text.
        embedding: The feature that the mean is added to.
    """

    def __init__(self, table: Floats, bigrams: Rows, before: int, after: int, embedding: str):
        super().__init__()  # type: ignore[no-untyped-call]
        self.table, self.bigrams = torch.from_numpy(table), bigrams
        self.before, self.after, self.embedding = before, after, embedding

    def __repr__(self) -> str:
        return f"AddTokenBag({len(self.table):,} vectors, {len(self.bigrams):,} of them of bigrams)"

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """(texts, dim) `features["sentence_embedding"]` from the embedding and `features["input_ids"]`; the bag is
        computed on the CPU in float32."""
        given = features[self.embedding]
        ids = features["input_ids"].detach().cpu().numpy()
        lengths = features["attention_mask"].detach().cpu().numpy().sum(axis=1) - self.before - self.after
        columns = np.arange(ids.shape[1])[None, :] - self.before
        counts = (columns >= 0) & (columns < lengths[:, None])
        starts = np.concatenate([[0], np.cumsum(counts.sum(axis=1))])
        pieces = TokenBags(ids[counts].astype(np.int32), starts)
        bags = find_bigrams(pieces, self.bigrams, len(self.table) - len(self.bigrams))
        tokens, offsets = bags.batch(np.arange(len(bags)))
        mean = functional.embedding_bag(tokens, self.table, offsets, mode="mean")
        features["sentence_embedding"] = given + mean.to(given.device, given.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """Numbers per embedding."""
        return int(self.table.shape[1])

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Write the vectors and the configuration into a folder."""
        arrays = {"table": self.table.numpy(), "bigrams": self.bigrams}
        save_arrays(Path(output_path) / ARRAYS, arrays)
        config = {"before": self.before, "after": self.after, "embedding": self.embedding}
        save_json(Path(output_path) / CONFIG, config)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **options: Any) -> AddTokenBag:
        """Read what `save` wrote; the arrays are checked first."""
        folder = Path(model_name_or_path) / subfolder
        arrays, config = load_arrays(folder / ARRAYS), load_json(folder / CONFIG)
        table = take_array(arrays, "table", folder / ARRAYS, (None, None))
        bigrams = take_array(arrays, "bigrams", folder / ARRAYS, (None,), ("int64",))
        return cls(table, bigrams, int(config["before"]), int(config["after"]), str(config["embedding"]))
