"""The exposure as a module of a sentence-transformers model, where it follows the response of the classifiers.

Like `metaxc.emmett.expansion_module` it is imported from the installed package metaxc; no code is in the folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.modules.module import Module
from torch import Tensor

from metaxc.array_checks import take_array
from metaxc.artifacts import load_arrays, load_json, save_arrays, save_json
from metaxc.emmett.scoring import ClassifierResponse, query_vectors

ARRAYS, CONFIG = "response.safetensors", "config.json"


class AppendExposure(Module):
    """Appends to each query embedding the exposure times the response of the classifiers (`metaxc.emmett.scoring`).

    Args:
        response: How strongly the classifiers respond to a query.
        exposure: What a query with the mean response gets.
    """

    def __init__(self, response: ClassifierResponse, exposure: float):
        super().__init__()  # type: ignore[no-untyped-call]
        self.response, self.exposure = response, exposure

    def __repr__(self) -> str:
        return f"AppendExposure({self.exposure:g}, {len(self.response.heads):,} classifiers)"

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """(texts, dim) `features["sentence_embedding"]` to (texts, dim + 1); computed on the CPU in float32."""
        given = features["sentence_embedding"]
        queries = given.detach().to("cpu", torch.float32).numpy()
        made = query_vectors(queries, self.exposure * self.response(queries))
        features["sentence_embedding"] = torch.from_numpy(np.asarray(made)).to(given.device, given.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """Numbers per vector, with the exposure."""
        return int(self.response.heads.shape[1]) + 1

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Write the classifiers and the constants into a folder."""
        save_arrays(Path(output_path) / ARRAYS, {"heads": self.response.heads})
        save_json(Path(output_path) / CONFIG, {"exposure": self.exposure, "unit": self.response.unit})

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **options: Any) -> AppendExposure:
        """Read what `save` wrote; the arrays are checked first."""
        folder = Path(model_name_or_path) / subfolder
        heads = take_array(load_arrays(folder / ARRAYS), "heads", folder / ARRAYS, (None, None))
        config = load_json(folder / CONFIG)
        return cls(ClassifierResponse(heads, float(config["unit"])), float(config["exposure"]))
