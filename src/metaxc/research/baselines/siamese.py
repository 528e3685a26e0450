"""The bare encoder: dense retrieval (Reimers and Gurevych, 2019; in the paper, the Siamese encoders).

Learns nothing of its own: whatever the encoder given has learnt. score(q, i) = ⟨embedding of q, embedding of i's text⟩,
for observed and novel items alike. Costs the encoding of all texts.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from metaxc.data import Dataset
from metaxc.encoders import Encoder
from metaxc.research.baselines.baseline import Dense, encode_once


class Siamese:
    """Items by the embeddings of their texts.

    Args:
        encoder: Any encoder.
    """

    name: ClassVar[str] = "Siamese"

    def __init__(self, encoder: Encoder):
        self.encoder = encoder

    def fit(self, dataset: Dataset) -> Dense:
        items = np.asarray(self.encoder.encode_items(dataset.items.texts), dtype=np.float32)
        return Dense(encode_once(self.encoder, dataset), items)
