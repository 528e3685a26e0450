"""Texts and clicks: the `Dataset`, its folder, splits, checks, converters, and sources of real data."""

from metaxc.data.check import CheckReport, check_folder
from metaxc.data.data_problems import Problem
from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.data.dataset_folder import read_folder, write_folder
from metaxc.data.split import SplitReport, save_split, split

__all__ = [
    "CheckReport",
    "ClickLog",
    "Dataset",
    "Problem",
    "SplitReport",
    "Texts",
    "check_folder",
    "click_matrix",
    "read_folder",
    "save_split",
    "split",
    "write_folder",
]
