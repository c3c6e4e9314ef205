"""Deep density models."""

from latently.deep.dmcfa import DMCFA
from latently.deep.dmfa import DMFA

__all__ = ["DMCFA", "DMFA"]
