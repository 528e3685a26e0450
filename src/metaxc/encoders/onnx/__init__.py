"""The pretrained transformer as an ONNX graph: the same embeddings on a CPU in less than half the time.

`export` writes the graph, `quantise` its matrix products in int8, `model` runs it, `choice` decides by a parity check
whether it may stand in for torch. Needs the extra `fast`; everything works without it, more slowly.
"""

from metaxc.encoders.onnx.backend_choice import choose
from metaxc.encoders.onnx.onnx_install import BACKENDS, INSTALL, Backend, missing, named_by
from metaxc.encoders.onnx.onnx_model import OnnxModel

__all__ = ["BACKENDS", "INSTALL", "Backend", "OnnxModel", "choose", "missing", "named_by"]
