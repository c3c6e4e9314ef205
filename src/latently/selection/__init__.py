"""Choosing among models: numbers of components and factors, kinds of noise, by a criterion."""

from latently.selection.result import Selection
from latently.selection.search import select

__all__ = ["Selection", "select"]
