"""The framework as one model: represent, search, explain, save, load."""

from metaxc.emmett.hits import Hit, Hits
from metaxc.emmett.model import Emmett
from metaxc.emmett.model_folder import read_about
from metaxc.emmett.pipeline import Explanation, Neighbour
from metaxc.emmett.query_expansion import ExpansionConfig, QueryExpansion
from metaxc.emmett.scoring import Calibration

__all__ = [
    "Calibration",
    "Emmett",
    "ExpansionConfig",
    "Explanation",
    "Hit",
    "Hits",
    "Neighbour",
    "QueryExpansion",
    "read_about",
]
