"""Factorisations of matrices: rows as sums of parts."""

from latently.factorization.binary import BNMF, BinarySparseCoding

__all__ = ["BNMF", "BinarySparseCoding"]
