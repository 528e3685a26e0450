"""Converters between a `Dataset` and the folders that others publish."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from metaxc.data.dataset import Dataset
from metaxc.data.formats.assets import Assets, read_assets, write_assets
from metaxc.data.formats.beir import read_beir, write_beir
from metaxc.data.formats.line_files import find
from metaxc.data.formats.trec import qrels_of, read_qrels, read_run, write_qrels, write_run
from metaxc.data.formats.xc import read_xc, write_xc

__all__ = [
    "FORMATS",
    "Assets",
    "Format",
    "detect",
    "qrels_of",
    "read_assets",
    "read_beir",
    "read_qrels",
    "read_run",
    "read_xc",
    "write_assets",
    "write_beir",
    "write_qrels",
    "write_run",
    "write_xc",
]


class Format(NamedTuple):
    """How a folder is read and written."""

    read: Callable[..., Dataset]
    write: Callable[..., None]


FORMATS = {"xc": Format(read_xc, write_xc), "beir": Format(read_beir, write_beir)}
"""Formats of whole data sets, by name."""

_MARKS = {"xc": ("lbl.json", "trn_X_Y.txt", "trn_X_Y.npz"), "beir": ("corpus.jsonl",)}


def detect(path: Path | str) -> str | None:
    """Name of the format of a folder, by a file that only this format has; None where there is none."""
    return next((name for name, marks in _MARKS.items() if find(Path(path), *marks)), None)
