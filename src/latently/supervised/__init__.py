"""Classifiers that know the density of their data."""

from latently.supervised.mfm import MFMClassifier
from latently.supervised.mjfa import MJFAClassifier
from latently.supervised.per_class import PerClass

__all__ = ["MFMClassifier", "MJFAClassifier", "PerClass"]
