"""An exported graph at work: token bags in, unit embeddings out."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metaxc.arrays import Floats
from metaxc.artifacts import load_json
from metaxc.encoders.length_batches import batches_by_length, padded
from metaxc.encoders.onnx.onnx_export import NAMES
from metaxc.encoders.tokens import TokenBags
from metaxc.errors import ModelError

TOKENS = 256
"""Tokens per batch and thread. From 128 to 512 made no difference on one thread; 1,024 was slower."""


class OnnxModel:
    """A graph that `metaxc.encoders.onnx.onnx_export` wrote.

    Args:
        folder: Verified by the caller.
        dim: Size of an embedding.
    """

    def __init__(self, folder: Path, dim: int):
        self.folder, self.dim = folder, dim
        self.max_tokens = int(load_json(folder / "facts.json")["max_tokens"])
        self._threads, self._session = 0, None

    def __repr__(self) -> str:
        return f"OnnxModel({self.folder.name!r}, dim={self.dim})"

    def embed(self, bags: TokenBags) -> Floats:
        """(texts, dim) float32, unit rows; the bags carry the tokens that begin and end a text."""
        out = np.empty((len(bags), self.dim), np.float32)
        session = self._session_now()
        for rows in batches_by_length(np.diff(bags.starts), TOKENS * self._threads):
            [found] = session.run(None, dict(zip(NAMES, padded(bags, rows), strict=True)))
            out[rows] = found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-12)
        return out

    def _session_now(self) -> Any:
        """A session with as many threads as torch has now."""
        threads = torch.get_num_threads()
        if self._session is None or threads != self._threads:
            self._threads, self._session = threads, _session(self.folder / "model.onnx", threads)
        return self._session


def _session(file: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Threads that wait busily take the cores from torch, which works in turn with this session.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if products_saturate():
        options.add_session_config_entry("session.x64quantprecision", "1")  # exact, at half the speed
    try:
        return onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common class to catch
        raise ModelError(
            "ONNX Runtime cannot load the encoder",
            got=f"{file.name}: {error}",
            fix="upgrade onnxruntime, or train with --backend torch",
        ) from error


def products_saturate() -> bool:
    """Whether products of uint8 with int8 can overflow on this machine: on x86 without VNNI instructions, or where
    nobody says whether it has them."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False
    try:
        return "vnni" not in Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return True
