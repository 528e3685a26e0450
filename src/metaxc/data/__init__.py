"""Text and clicks in: the `Dataset`, its files, its splits, its checks, and sources of real data."""

from metaxc.data.check import Report, check_folder
from metaxc.data.data_problems import Problem
from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix
from metaxc.data.dataset_folder import read_folder, write_folder
from metaxc.data.split import SplitReport, load_split, save_split, split

__all__ = [
    "ClickLog",
    "Dataset",
    "Problem",
    "Report",
    "SplitReport",
    "Texts",
    "check_folder",
    "click_matrix",
    "load_split",
    "read_folder",
    "save_split",
    "split",
    "write_folder",
]
