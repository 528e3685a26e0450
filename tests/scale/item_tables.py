"""Parquet files of items of the small world."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def write_items(file: Path, numbers, row_group_size: int = 10) -> None:
    """Items with an id, a text and a price."""
    texts = [f"i{number}" for number in numbers]
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table({"id": texts, "text": texts, "price": np.arange(len(texts))})
    pq.write_table(table, file, row_group_size=row_group_size)
