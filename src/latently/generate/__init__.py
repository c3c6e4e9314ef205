"""Generation of new rows, from densities of the sources of a factorisation or from codebook elements."""

from latently.generate.codebook import CodebookGenerator
from latently.generate.sources import SourceDensity

__all__ = ["CodebookGenerator", "SourceDensity"]
