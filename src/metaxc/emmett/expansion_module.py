"""Query expansion as a module of a sentence-transformers model, so that an exported query tower includes it.

It is the only module of an exported folder that sentence-transformers does not have itself. It is imported from the
installed package metaxc; no code is in the folder. Since version 6 the library asks for `trust_remote_code=True` before
it imports any class of another package.
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
from metaxc.emmett.query_expansion import ExpansionConfig, QueryExpansion

ARRAYS, CONFIG = "expansion.safetensors", "config.json"


class ExpandQueries(Module):
    """Moves query embeddings towards what similar training queries clicked (`metaxc.emmett.query_expansion`).

    Args:
        expansion: The training queries and what they clicked.
    """

    def __init__(self, expansion: QueryExpansion):
        super().__init__()  # type: ignore[no-untyped-call]
        self.expansion = expansion

    def __repr__(self) -> str:
        return f"ExpandQueries({self.expansion!r})"

    def forward(self, features: dict[str, Tensor], **options: Any) -> dict[str, Tensor]:
        """Expand `features["sentence_embedding"]`, (texts, dim); computed on the CPU in float32."""
        given = features["sentence_embedding"]
        expanded = self.expansion.expand(given.detach().to("cpu", torch.float32).numpy())
        features["sentence_embedding"] = torch.from_numpy(np.asarray(expanded)).to(given.device, given.dtype)
        return features

    def get_embedding_dimension(self) -> int:
        """Numbers per embedding; expansion does not change them."""
        return int(self.expansion.embeddings.shape[1])

    def save(self, output_path: str, *args: Any, **options: Any) -> None:
        """Write the arrays and the configuration into a folder."""
        arrays = {**self.expansion.arrays(), **self.expansion.index_arrays()}
        save_arrays(Path(output_path) / ARRAYS, {**arrays, "embeddings": self.expansion.embeddings})
        save_json(Path(output_path) / CONFIG, self.expansion.config.model_dump())

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", *args: Any, **options: Any) -> ExpandQueries:
        """Read what `save` wrote; the arrays are checked first."""
        folder = Path(model_name_or_path) / subfolder
        arrays = load_arrays(folder / ARRAYS)
        embeddings = take_array(arrays, "embeddings", folder / ARRAYS, (None, None))
        config = ExpansionConfig.model_validate(load_json(folder / CONFIG))
        return cls(QueryExpansion.from_arrays(arrays, embeddings, config, folder / ARRAYS))
