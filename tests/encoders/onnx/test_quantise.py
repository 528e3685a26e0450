"""Products in int8, on a graph of one product."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from metaxc.encoders.onnx.quantise import quantise

RANDOM = np.random.default_rng(0)
WEIGHTS = RANDOM.normal(size=(64, 8)).astype(np.float32) * np.logspace(-3, 2, 8, dtype=np.float32)


@pytest.fixture
def product(tmp_path):
    """x · W, once as it is and once in int8, as functions."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "W"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["texts", "tokens", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["texts", "tokens", 8])],
        [numpy_helper.from_array(WEIGHTS, "W")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    file = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), str(file))
    quantise(file)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    return file, lambda x: session.run(None, {"x": x})[0]


def test_each_token_and_each_channel_has_a_scale_of_its_own(product):
    x = RANDOM.normal(size=(3, 5, 64)).astype(np.float32)
    x[0, 0] *= 1000  # one loud token must not take the others' precision
    x[1, 1] /= 1000
    expected = x @ WEIGHTS
    error = np.abs(product[1](x) - expected)
    size = np.linalg.norm(x, axis=-1, keepdims=True) * np.linalg.norm(WEIGHTS, axis=0)
    assert (error / size).max() < 0.005
    assert (error / size).max() > 1e-5


def test_zeros_stay_zeros(product):
    assert product[1](np.zeros((1, 2, 64), np.float32)).tolist() == np.zeros((1, 2, 8)).tolist()


def test_the_float_weights_are_gone(product):
    stored = {tensor.name: tensor.data_type for tensor in onnx.load(str(product[0])).graph.initializer}
    assert "W" not in stored
    assert stored["W.int8"] == TensorProto.INT8
