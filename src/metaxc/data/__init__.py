"""Text and clicks in: the `Dataset`, its files, its splits, its checks, and sources of real data."""

from metaxc.data.dataset import ClickLog, Dataset, Texts, click_matrix

__all__ = ["ClickLog", "Dataset", "Texts", "click_matrix"]
