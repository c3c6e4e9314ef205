"""Matrix factorisations: rows as weighted sums of components."""

from latently.factorization.binary import BNMF, BinarySparseCoding
from latently.factorization.deep_nlmf import DeepNLMF
from latently.factorization.fast_nmtf import FastNMTF
from latently.factorization.nlmf import NLMF
from latently.factorization.nlmf_classifier import NLMFClassifier
from latently.factorization.nmf import NMF
from latently.factorization.nmtf import NMTF, PenalizedNMTF
from latently.factorization.pca import PCA
from latently.factorization.quantizer import VectorQuantizer

__all__ = [
    "BNMF",
    "NLMF",
    "NMF",
    "NMTF",
    "PCA",
    "BinarySparseCoding",
    "DeepNLMF",
    "FastNMTF",
    "NLMFClassifier",
    "PenalizedNMTF",
    "VectorQuantizer",
]
