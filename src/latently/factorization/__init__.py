"""Matrix factorisations: rows as weighted sums of components."""

from latently.factorization.binary import BNMF, BinarySparseCoding
from latently.factorization.nmf import NMF
from latently.factorization.pca import PCA
from latently.factorization.quantizer import VectorQuantizer

__all__ = ["BNMF", "NMF", "PCA", "BinarySparseCoding", "VectorQuantizer"]
