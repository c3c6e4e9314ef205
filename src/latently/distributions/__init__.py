"""Families of densities: parameter records and pure functions on them, without scikit-learn."""

from latently.distributions.common_loadings import CommonLoadings
from latently.distributions.common_loadings_records import CommonParams
from latently.distributions.gaussian import FullGaussian, FullParams
from latently.distributions.indian_buffet import IndianBuffet, left_ordered_form
from latently.distributions.low_rank import LowRankGaussian, LowRankParams
from latently.distributions.mixture import Mixture, MixtureParams
from latently.distributions.squashed_normal import SquashedNormal
from latently.distributions.truncated_normal import TruncatedNormal

__all__ = [
    "CommonLoadings",
    "CommonParams",
    "FullGaussian",
    "FullParams",
    "IndianBuffet",
    "LowRankGaussian",
    "LowRankParams",
    "Mixture",
    "MixtureParams",
    "SquashedNormal",
    "TruncatedNormal",
    "left_ordered_form",
]
