"""Scores of rows beside densities, by which rows can be rejected: what a density has to beat."""

from latently.rejection.classifier import ClassifierScore
from latently.rejection.distances import MahalanobisScore, NeighborScore

__all__ = ["ClassifierScore", "MahalanobisScore", "NeighborScore"]
