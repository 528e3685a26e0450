"""The algorithm: trains an Emmett from a click log."""

from metaxc.irene.config import SIZES, IreneConfig
from metaxc.irene.irene import Irene

__all__ = ["SIZES", "Irene", "IreneConfig"]
