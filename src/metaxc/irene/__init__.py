"""The algorithm: an Emmett trained from a click log (`recipe`)."""

from metaxc.irene.config import SIZES, IreneConfig
from metaxc.irene.recipe import Irene

__all__ = ["SIZES", "Irene", "IreneConfig"]
