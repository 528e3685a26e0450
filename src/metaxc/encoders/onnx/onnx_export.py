"""From a sentence-transformers folder to an ONNX graph, kept on disk: token ids in, pooled embeddings out.

The graph is written once per encoder and backend, whole or not at all, and verified before every use; a damaged one
is written again. Everything behind the transformer (pooling, dense layers) is in the graph, so that a loaded encoder
needs neither torch modules nor their imports.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock
from torch import Tensor, nn

from metaxc.artifacts import atomic_folder, save_json, verify_folder, write_manifest
from metaxc.encoders.onnx.norms import spell_out_norms
from metaxc.encoders.onnx.quantise import quantise
from metaxc.errors import MetaxcError, ModelError

KIND = "onnx encoder"
OPSET = 17
NAMES = ("input_ids", "attention_mask")


def exported(fingerprint: str, backend: str, keep: Path | None, load: Callable[[], Any]) -> Path:
    """The folder with `model.onnx` and `facts.json` of an encoder, found whole or made now.

    Args:
        fingerprint: Of the encoder with this backend.
        backend: `onnx` or `onnx-int8`.
        keep: Where such folders stand; None for one that goes with the process.
        load: Gives a `SentenceTransformer` of its own (it is changed), called only where there is something to make.
    """
    place = (keep or _temporary()) / fingerprint[:32]
    place.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(place.with_name(f"{place.name}.lock")):
        try:
            verify_folder(place, KIND)
        except MetaxcError:  # absent, unfinished or damaged
            with atomic_folder(place) as new:
                _make(load(), new, backend)
                write_manifest(new, KIND)
    return place


def _make(model: Any, folder: Path, backend: str) -> None:
    file = folder / "model.onnx"
    try:
        _write(model, file)
        spell_out_norms(file)
        if backend == "onnx-int8":
            quantise(file)
    except Exception as error:  # a model that cannot be traced fails in ways of its own
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            "The encoder cannot be exported to ONNX", got=reason[0], fix="use the backend torch"
        ) from error
    save_json(folder / "facts.json", {"max_tokens": model.max_seq_length or 512})


@cache
def _temporary() -> Path:
    folder = tempfile.mkdtemp(prefix="metaxc-onnx-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class _Whole(nn.Module):
    """All modules of a sentence-transformers model as one function of two tensors."""

    def __init__(self, model: Any):
        super().__init__()
        self.modules_in_turn = nn.ModuleList(list(model))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        features["token_type_ids"] = torch.zeros_like(input_ids)
        for module in self.modules_in_turn:
            features = module(features)
        return features["sentence_embedding"]


def _write(model: Any, file: Path) -> None:
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    # The optimizer knows attention by the plain operations it is made of.
    model[0].auto_model.set_attn_implementation("eager")
    ids = torch.full((3, 9), 2)
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    axes = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings(), torch.inference_mode():
        # Tracing warns of shapes that become constants; what comes out is compared with torch (`choice`).
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Whole(model).eval(),
            (ids, mask),
            str(file),
            input_names=list(NAMES),
            output_names=["embedding"],
            dynamic_axes={**dict.fromkeys(NAMES, axes), "embedding": {0: "texts"}},
            opset_version=OPSET,
            # The newer exporter took four times as long here and needs another package.
            dynamo=False,
        )
    options = FusionOptions("bert")
    options.use_multi_head_attention = (
        True  # leaves the products with the weights outside, where they can be int8
    )
    config = model[0].auto_model.config
    fused = optimizer.optimize_model(
        str(file),
        model_type="bert",
        num_heads=int(getattr(config, "num_attention_heads", 0)),
        hidden_size=int(getattr(config, "hidden_size", 0)),
        optimization_options=options,
        opt_level=0,
    )
    fused.save_model_to_file(str(file))
