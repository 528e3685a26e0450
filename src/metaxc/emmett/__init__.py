"""The framework as one model: represent, search, explain, save, load (`model`)."""

from metaxc.emmett.calibration import Calibration
from metaxc.emmett.explanation import Explanation, Neighbour
from metaxc.emmett.model import Emmett, Hit

__all__ = ["Calibration", "Emmett", "Explanation", "Hit", "Neighbour"]
