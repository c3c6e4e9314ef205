"""Plots of models and data (extra `plots`)."""

try:
    import matplotlib as _matplotlib  # noqa: F401
except ImportError as error:
    raise ImportError("plots need matplotlib: pip install 'latently[plots]'") from error

from latently.plots.blocks import BlocksDisplay
from latently.plots.codes import CodesDisplay
from latently.plots.consensus import ConsensusDisplay
from latently.plots.convergence import ConvergenceDisplay
from latently.plots.images import ImageGridDisplay, image_grid
from latently.plots.latent import LatentDisplay
from latently.plots.likelihood import LikelihoodDisplay
from latently.plots.loadings import LoadingsDisplay
from latently.plots.principal_axes import PrincipalAxesDisplay
from latently.plots.rejection import RejectionDisplay
from latently.plots.responsibilities import ResponsibilitiesDisplay
from latently.plots.sources import SourcesDisplay

__all__ = [
    "BlocksDisplay",
    "CodesDisplay",
    "ConsensusDisplay",
    "ConvergenceDisplay",
    "ImageGridDisplay",
    "LatentDisplay",
    "LikelihoodDisplay",
    "LoadingsDisplay",
    "PrincipalAxesDisplay",
    "RejectionDisplay",
    "ResponsibilitiesDisplay",
    "SourcesDisplay",
    "image_grid",
]
