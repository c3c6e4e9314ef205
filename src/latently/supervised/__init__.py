"""Generative classifiers: they model the density of the rows and can reject outliers."""

from latently.supervised.mfm import MFMClassifier
from latently.supervised.mjfa import MJFAClassifier
from latently.supervised.per_class import PerClass

__all__ = ["MFMClassifier", "MJFAClassifier", "PerClass"]
