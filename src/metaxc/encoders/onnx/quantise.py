"""Products with weights in int8, each token scaled by itself.

Why not the quantisers that come with ONNX Runtime: `quantize_dynamic` gives all tokens of a batch one scale, so that a
text's embedding depends on what else is in the batch, and one outlier takes the precision from all; `MatMulNBits`
scales every token by itself but runs slower (benchmarks/quantisers.py has both). Here a row of activations is divided
by its largest magnitude m before it is quantised, and its products are multiplied by m again:

    x · W  ≈  m · (round(127 · x / m) · Wq) · s / 127,    Wq int8, s per output channel

The integer product is ONNX Runtime's own. A text gets the same embedding alone and in any batch.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEVELS = 127
MIDDLE = 128
SMALLEST = 1e-12
"""In place of the largest magnitude of a row of zeros."""


def quantise(file: Path) -> None:
    """Replace every product with constant weights in the graph at `file` by one in int8."""
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(file))
    graph = model.graph
    weights = {tensor.name: tensor for tensor in graph.initializer}
    constants: dict[str, NDArray[Any]] = {
        "int8.step": np.array(1 / LEVELS, np.float32),
        "int8.middle": np.array(MIDDLE, np.uint8),
        "int8.smallest": np.array(SMALLEST, np.float32),
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
            constants |= _quantised(w, numpy_helper.to_array(weights[w]))
            replaced.add(w)
        product = [f"{x}.uint8", f"{w}.int8", "int8.step", f"{w}.step", "int8.middle", f"{w}.zero"]
        nodes += [
            helper.make_node("MatMulIntegerToFloat", product, [f"{out}.unit"], domain="com.microsoft"),
            helper.make_node("Mul", [f"{out}.unit", f"{x}.scale"], [out]),
        ]
    kept = [tensor for tensor in graph.initializer if tensor.name not in replaced]
    kept += [numpy_helper.from_array(array, name) for name, array in constants.items()]
    del graph.initializer[:], graph.node[:]
    graph.initializer.extend(kept)
    graph.node.extend(nodes)
    onnx.save(model, str(file))


def _quantised(name: str, weights: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
    """(in, out) weights as int8, with a step per output channel."""
    step = np.maximum(np.abs(weights).max(axis=0) / LEVELS, SMALLEST).astype(np.float32)
    rounded = np.clip(np.rint(weights / step), -LEVELS, LEVELS).astype(np.int8)
    return {f"{name}.int8": rounded, f"{name}.step": step, f"{name}.zero": np.zeros(len(step), np.int8)}
