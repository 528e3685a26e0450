"""Which observed classifiers inform an item: the nearest neighbours of its embedding."""

from metaxc.selectors.nearest import NearestSelector, Selector

__all__ = ["NearestSelector", "Selector"]
