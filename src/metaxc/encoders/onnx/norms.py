"""Layer norms out of operators that ONNX Runtime computes with vector instructions.

Its own kernels for layer norm are slow on a CPU, which tells once the products are in int8. The same out of
MeanVarianceNormalization, a product and a sum is faster (benchmarks/results/quantisers.json has both).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

LAST_OF_THREE = 2
"""The axis of the features: activations are (texts, tokens, features)."""


def spell_out_norms(file: Path) -> None:
    """Replace the layer norms of the graph at `file`, alone or fused with a sum, by what they are made of."""
    import onnx

    model = onnx.load(str(file))
    nodes: list[Any] = []
    for node in model.graph.node:
        nodes += _spelled_out(node) if _is_norm(node) else [node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(file))


def _is_norm(node: Any) -> bool:
    """Whether it is a norm of which nothing but the result is used."""
    return node.op_type in ("SkipLayerNormalization", "LayerNormalization") and not any(node.output[1:])


def _spelled_out(node: Any) -> list[Any]:
    from onnx import helper

    out = node.output[0]
    if node.op_type == "SkipLayerNormalization":
        x, skip, gamma, beta, *bias = node.input
        terms = [skip, *bias]
    else:
        x, gamma, beta = node.input
        terms = []
    made = []
    for place, term in enumerate(terms):
        made.append(helper.make_node("Add", [x, term], [f"{out}.sum{place}"]))
        x = f"{out}.sum{place}"
    return [
        *made,
        helper.make_node("MeanVarianceNormalization", [x], [f"{out}.normal"], axes=[LAST_OF_THREE]),
        helper.make_node("Mul", [f"{out}.normal", gamma], [f"{out}.times"]),
        helper.make_node("Add", [f"{out}.times", beta], [out]),
    ]
