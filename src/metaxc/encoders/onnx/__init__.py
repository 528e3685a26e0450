"""The pretrained transformer as an ONNX graph: the same embeddings on a CPU in less than half the time.

`export` writes the graph, `quantise` its matrix products in int8, `model` runs it, `choice` decides by a parity check
whether it may stand in for torch. Needs the extra `fast`; everything works without it, more slowly.
"""

from metaxc.encoders.onnx.choice import choose
from metaxc.encoders.onnx.model import OnnxModel
from metaxc.encoders.onnx.settings import BACKENDS, INSTALL, Backend, missing, named_by

__all__ = ["BACKENDS", "INSTALL", "Backend", "OnnxModel", "choose", "missing", "named_by"]
