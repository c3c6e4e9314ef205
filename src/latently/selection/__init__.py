"""Model selection: numbers of components and factors, noise structures, by a criterion."""

from latently.selection.result import Selection
from latently.selection.search import select

__all__ = ["Selection", "select"]
