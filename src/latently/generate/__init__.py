"""New rows from parts: densities of the sources of a factorisation, and combinations of codebook elements."""

from latently.generate.codebook import CodebookGenerator
from latently.generate.sources import SourceDensity

__all__ = ["CodebookGenerator", "SourceDensity"]
