"""A sentence-transformers model as an ONNX graph: exported, quantised to int8, and run by ONNX Runtime.

The graph takes token ids and returns pooled embeddings. Everything behind the transformer (pooling, dense layers) is
in the graph, so that a loaded encoder needs no torch modules.

Why int8 products are written here and not by ONNX Runtime's quantisers (benchmarks/quantisers.py compares them):
`quantize_dynamic` gives all tokens of a batch one scale, so that a text's embedding depends on the other texts of the
batch and one outlier costs all of them precision; `MatMulNBits` scales every token but is slower. Here each row of
activations is divided by its largest magnitude m before quantisation, and its products are multiplied by m again:

    x · W  ≈  m · (round(127 · x / m) · Wq) · s / 127,    Wq int8, s per output channel

The integer product is ONNX Runtime's own. A text gets the same embedding alone and in any batch.
"""

from __future__ import annotations

import atexit
import platform
import shutil
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metaxc.arrays import Floats
from metaxc.artifacts import load_json, reuse_or_build, save_json
from metaxc.encoders.tokens import TokenBags, batches_by_length, pad_batch
from metaxc.errors import ModelError

KIND = "onnx encoder"
OPSET = 17
INPUTS = ("input_ids", "attention_mask")
FEATURE_AXIS = 2
"""Activations are (texts, tokens, features)."""

LEVELS = 127
ZERO_POINT = 128
MIN_SCALE = 1e-12
"""Replaces the largest magnitude of a row of zeros."""

TOKENS_PER_BATCH = 256
"""Tokens per batch and thread. From 128 to 512 made no difference on one thread; 1,024 was slower."""


def export_or_reuse(fingerprint: str, backend: str, folder: Path | None, load: Callable[[], Any]) -> Path:
    """The folder with `model.onnx` and `facts.json` of an encoder: verified and reused, or exported now.

    The manifest names the encoder, so that the graph of other weights is not taken for it.

    Args:
        fingerprint: The fingerprint of the encoder with this backend; names its folder.
        backend: `onnx` or `onnx-int8`.
        folder: Holds one folder per exported graph; None for a temporary folder that is deleted with the process.
        load: Returns a `SentenceTransformer` that may be changed; called only when there is something to export.
    """
    place = (folder or _temporary_folder()) / fingerprint[:32]
    return reuse_or_build(place, f"{KIND} {fingerprint}", lambda new: _export(load(), new, backend))[0]


def _export(model: Any, folder: Path, backend: str) -> None:
    file = folder / "model.onnx"
    try:
        write_graph(model, file)
        decompose_layer_norms(file)
        if backend == "onnx-int8":
            quantise(file)
    except Exception as error:  # tracing an unsupported model raises many kinds of errors
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            "The encoder cannot be exported to ONNX", got=reason[0], fix="use the backend torch"
        ) from error
    save_json(folder / "facts.json", {"max_tokens": model.max_seq_length or 512})


@cache
def _temporary_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="metaxc-onnx-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


class _Pipeline(nn.Module):
    """All modules of a sentence-transformers model as one function of two tensors."""

    def __init__(self, model: Any):
        super().__init__()
        self.stages = nn.ModuleList(list(model))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        features = {"input_ids": input_ids, "attention_mask": attention_mask}
        features["token_type_ids"] = torch.zeros_like(input_ids)
        for stage in self.stages:
            features = stage(features)
        return features["sentence_embedding"]


def write_graph(model: Any, file: Path) -> None:
    """Export a `SentenceTransformer` to `file` in float32 with fused attention; the model's attention is changed."""
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    # The optimizer recognises attention by the plain operations of the eager implementation.
    model[0].auto_model.set_attn_implementation("eager")
    ids = torch.full((3, 9), 2)
    mask = torch.ones_like(ids)
    mask[0, 6:] = 0
    axes = {0: "texts", 1: "tokens"}
    with warnings.catch_warnings(), torch.inference_mode():
        # Tracing warns of shapes that become constants; `choose_backend` compares the result with torch.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            _Pipeline(model).eval(),
            (ids, mask),
            str(file),
            input_names=list(INPUTS),
            output_names=["embedding"],
            dynamic_axes={**dict.fromkeys(INPUTS, axes), "embedding": {0: "texts"}},
            opset_version=OPSET,
            # The newer exporter took four times as long here and needs another package.
            dynamo=False,
        )
    options = FusionOptions("bert")
    # Leaves the products with the weights outside the fused attention, where they can become int8.
    options.use_multi_head_attention = True
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


def decompose_layer_norms(file: Path) -> None:
    """Replace each layer norm of a graph, alone or fused with a sum, by MeanVarianceNormalization, Mul and Add.

    ONNX Runtime's own layer-norm kernels are slow on a CPU, which matters once the products are int8
    (benchmarks/results/quantisers.json has both).
    """
    import onnx

    model = onnx.load(str(file))
    nodes: list[Any] = []
    for node in model.graph.node:
        is_norm = node.op_type in ("SkipLayerNormalization", "LayerNormalization")
        nodes += _decompose(node) if is_norm and not any(node.output[1:]) else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(file))


def _decompose(node: Any) -> list[Any]:
    from onnx import helper

    out = node.output[0]
    if node.op_type == "SkipLayerNormalization":
        x, skip, gamma, beta, *bias = node.input
        terms = [skip, *bias]
    else:
        x, gamma, beta = node.input
        terms = []
    sums = []
    for place, term in enumerate(terms):
        sums.append(helper.make_node("Add", [x, term], [f"{out}.sum{place}"]))
        x = f"{out}.sum{place}"
    return [
        *sums,
        helper.make_node("MeanVarianceNormalization", [x], [f"{out}.normal"], axes=[FEATURE_AXIS]),
        helper.make_node("Mul", [f"{out}.normal", gamma], [f"{out}.times"]),
        helper.make_node("Add", [f"{out}.times", beta], [out]),
    ]


def quantise(file: Path) -> None:
    """Replace every product with constant weights in the graph at `file` by an int8 product."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(file))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    constants: dict[str, NDArray[Any]] = {
        "int8.step": np.array(1 / LEVELS, np.float32),
        "int8.middle": np.array(ZERO_POINT, np.uint8),
        "int8.smallest": np.array(MIN_SCALE, np.float32),
    }
    nodes: list[Any] = []
    replaced: set[str] = set()
    scaled: set[str] = set()
    for node in graph.node:
        if node.op_type != "MatMul" or node.input[1] not in weights:
            nodes.append(node)
            continue
        x, w = node.input
        out = node.output[0]
        if x not in scaled:
            nodes += [
                helper.make_node("Abs", [x], [f"{x}.abs"]),
                helper.make_node("ReduceMax", [f"{x}.abs"], [f"{x}.max"], axes=[-1], keepdims=1),
                helper.make_node("Max", [f"{x}.max", "int8.smallest"], [f"{x}.scale"]),
                helper.make_node("Div", [x, f"{x}.scale"], [f"{x}.unit"]),
                helper.make_node("QuantizeLinear", [f"{x}.unit", "int8.step", "int8.middle"], [f"{x}.uint8"]),
            ]
            scaled.add(x)
        if w not in replaced:
            constants |= _quantise_weights(w, numpy_helper.to_array(weights[w]))
            replaced.add(w)
        product = [f"{x}.uint8", f"{w}.int8", "int8.step", f"{w}.step", "int8.middle", f"{w}.zero"]
        nodes += [
            helper.make_node("MatMulIntegerToFloat", product, [f"{out}.unit"], domain="com.microsoft"),
            helper.make_node("Mul", [f"{out}.unit", f"{x}.scale"], [out]),
        ]
    initializers = [tensor for tensor in graph.initializer if tensor.name not in replaced]
    initializers += [numpy_helper.from_array(array, name) for name, array in constants.items()]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(initializers)
    graph.node.extend(nodes)
    onnx.save(model, str(file))


def _quantise_weights(name: str, weights: Floats) -> dict[str, NDArray[Any]]:
    """(in, out) weights as int8, with a step per output channel."""
    step = np.maximum(np.abs(weights).max(axis=0) / LEVELS, MIN_SCALE).astype(np.float32)
    rounded = np.clip(np.rint(weights / step), -LEVELS, LEVELS).astype(np.int8)
    return {f"{name}.int8": rounded, f"{name}.step": step, f"{name}.zero": np.zeros(len(step), np.int8)}


class OnnxModel:
    """Runs an exported graph: token bags to unit embeddings.

    Args:
        folder: A folder that `export_or_reuse` returned.
        dim: The size of an embedding.
    """

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        facts = load_json(folder / "facts.json")
        if not isinstance(facts, dict) or not isinstance(facts.get("max_tokens"), int):
            raise ModelError(
                "The exported encoder is damaged", got=folder / "facts.json", fix="delete the folder"
            )
        self.max_tokens: int = facts["max_tokens"]
        self._threads, self._session = 0, None

    def __repr__(self) -> str:
        return f"OnnxModel({self.folder.name!r}, dim={self.dim})"

    def embed(self, bags: TokenBags) -> Floats:
        """(texts, dim) float32, unit rows; the bags include the special tokens that begin and end a text."""
        out = np.empty((len(bags), self.dim), np.float32)
        session = self._session_for_current_threads()
        for rows in batches_by_length(np.diff(bags.starts), TOKENS_PER_BATCH * self._threads):
            [found] = session.run(None, dict(zip(INPUTS, pad_batch(bags, rows), strict=True)))
            if found.shape != (len(rows), self.dim) or not np.isfinite(found).all():
                raise ModelError(
                    "The exported encoder returned no embeddings",
                    got=f"{self.folder}: an array of shape {found.shape}, or NaN",
                    expected=f"({len(rows)}, {self.dim}) finite numbers",
                    fix="delete the folder, which is then made again",
                )
            out[rows] = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return out

    def _session_for_current_threads(self) -> Any:
        """A session with the number of threads that torch uses now."""
        threads = torch.get_num_threads()
        if self._session is None or threads != self._threads:
            self._threads, self._session = threads, start_session(self.folder / "model.onnx", threads)
        return self._session


def start_session(file: Path, threads: int) -> Any:
    """An ONNX Runtime session for a graph, with exact int8 products on every CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Spinning threads take the cores from torch, which alternates with this session.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if products_saturate():
        options.add_session_config_entry("session.x64quantprecision", "1")  # exact, at half the speed
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no common base class
        raise ModelError(
            "ONNX Runtime cannot load the encoder",
            got=f"{file.name}: {error}",
            fix="upgrade onnxruntime, or train with --backend torch",
        ) from error


def products_saturate() -> bool:
    """Whether products of uint8 with int8 can overflow on this machine: on x86 without VNNI instructions, and on x86
    systems that do not report their instructions."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return True
