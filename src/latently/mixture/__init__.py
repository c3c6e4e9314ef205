"""Mixtures of Gaussians and of factor models."""

from latently.mixture.bayesian import BayesianGaussianMixture
from latently.mixture.bayesian_common import BayesianMCFA
from latently.mixture.bayesian_factors import BayesianMFA
from latently.mixture.factor import PPCA, FactorAnalysis
from latently.mixture.gaussian import GaussianMixture
from latently.mixture.mcfa import MCFA
from latently.mixture.mfa import MFA, MPPCA
from latently.mixture.mixed import MixedMixture
from latently.mixture.nested import NestedMixture

__all__ = [
    "MCFA",
    "MFA",
    "MPPCA",
    "PPCA",
    "BayesianGaussianMixture",
    "BayesianMCFA",
    "BayesianMFA",
    "FactorAnalysis",
    "GaussianMixture",
    "MixedMixture",
    "NestedMixture",
]
