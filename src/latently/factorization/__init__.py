"""Matrix factorisations: rows as weighted sums of components."""

from latently.factorization.binary import BNMF, BinarySparseCoding
from latently.factorization.deep_nlmf import DeepNLMF
from latently.factorization.fast_nmtf import FastNMTF
from latently.factorization.ibp_ibp import IBPIBP
from latently.factorization.inbmt import INBMT
from latently.factorization.linear_gaussian_ibp import LinearGaussianIBP
from latently.factorization.meibp import MEIBP
from latently.factorization.nlmf import NLMF
from latently.factorization.nlmf_classifier import NLMFClassifier
from latently.factorization.nmf import NMF
from latently.factorization.nmtf import NMTF, PenalizedNMTF
from latently.factorization.pca import PCA
from latently.factorization.quantizer import VectorQuantizer

__all__ = [
    "BNMF",
    "IBPIBP",
    "INBMT",
    "MEIBP",
    "NLMF",
    "NMF",
    "NMTF",
    "PCA",
    "BinarySparseCoding",
    "DeepNLMF",
    "FastNMTF",
    "LinearGaussianIBP",
    "NLMFClassifier",
    "PenalizedNMTF",
    "VectorQuantizer",
]
