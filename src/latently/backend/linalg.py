"""Small linear algebra on stacks of matrices, for any namespace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from latently.backend.namespace import (
    Array,
    Floats,
    constant,
    eye,
    is_numpy,
    is_torch,
    like,
    namespace,
    to_numpy,
)

_SPARE = 8  # vectors beyond those asked for, which speed up convergence
_POWERS = 5
_TIE = 1e-3  # entries this close to the largest are as large: two features of a correlation tie exactly
_RIDGE = 1e-14  # relative to the sum of squares: directions below it are rounding errors
_TINY = 1e-300  # vectors that are zero stay zero
_FEW = 6  # eigenvalues in all for each vector, up to which a symmetric eigenproblem is solved exactly


def transpose(stack: Array) -> Array:
    """Transpose every matrix of the stack."""
    return namespace(stack).matrix_transpose(stack)


def symmetric(stack: Array) -> Array:
    """The symmetric part, to remove rounding errors."""
    return 0.5 * (stack + transpose(stack))


def diagonals(stack: Array) -> Array:
    """(..., D) the diagonals of a stack of matrices."""
    return namespace(stack).linalg.diagonal(stack)


def squared_lengths(array: Array, axis: int = -1) -> Array:
    """Sums of squares along an axis, without an array of squares if possible."""
    xp = namespace(array)
    if is_torch(array):
        return xp.linalg.vector_norm(array, axis=axis) ** 2
    return xp.vecdot(array, array, axis=-1) if axis == -1 else xp.sum(array * array, axis=axis)


def inverse(stack: Array) -> Array:
    """The inverses of matrices that have one: a device is not waited for to make sure."""
    if is_torch(stack):
        import torch

        return torch.linalg.inv_ex(stack).inverse
    return namespace(stack).linalg.inv(stack)


def cholesky_of_definite(stack: Array) -> Array:
    """The Cholesky factors of matrices that have some by construction: a device is not waited for."""
    if is_torch(stack):
        import torch

        return torch.linalg.cholesky_ex(stack).L
    return namespace(stack).linalg.cholesky(stack)


def inverse_of_triangular(cholesky: Array) -> Array:
    """The inverses of Cholesky factors."""
    if is_torch(cholesky):
        import torch

        one = constant(cholesky, np.eye, cholesky.shape[-1])
        return torch.linalg.solve_triangular(cholesky, one.expand(cholesky.shape), upper=False)
    return namespace(cholesky).linalg.inv(cholesky)


def is_positive_definite(stack: Array) -> bool:
    """Whether every matrix of the stack has a Cholesky factor."""
    return _cholesky_if_any(stack) is not None


def _cholesky_if_any(stack: Array) -> Array | None:
    """The Cholesky factors of a stack; None if a matrix has none."""
    xp = namespace(stack)
    if is_torch(stack):
        import torch

        factor, failed = torch.linalg.cholesky_ex(stack)
        return factor if bool(torch.all(failed == 0) & torch.all(torch.isfinite(factor))) else None
    try:
        factor = xp.linalg.cholesky(stack)
    except np.linalg.LinAlgError:
        return None
    return factor if bool(xp.all(xp.isfinite(factor))) else None


def log_determinant(cholesky: Array) -> Array:
    """log |C C'| of a stack of Cholesky factors C."""
    xp = namespace(cholesky)
    return 2.0 * xp.sum(xp.log(diagonals(cholesky)), axis=-1)


def root(stack: Array) -> Array:
    """Symmetric square roots of positive semidefinite matrices; negative eigenvalues are rounding errors."""
    xp = namespace(stack)
    values, vectors = xp.linalg.eigh(stack)
    return (vectors * xp.sqrt(xp.clip(values, min=0.0))[..., None, :]) @ transpose(vectors)


def any_root(stack: Array) -> Array:
    """C with C C' = S of positive semidefinite matrices S: Cholesky factors where all have one.

    They cost a tenth of symmetric roots.
    """
    factor = _cholesky_if_any(stack)
    return root(stack) if factor is None else factor


def clamp_spectrum(stack: Array, floor: Array) -> Array:
    """Project matrices S to M >= diag(floor): the maximiser of -ln|M| - tr(M^-1 S) among M >= diag(floor).

    With F = diag(floor), the eigenvalues of F^-1/2 S F^-1/2 below one become one.
    """
    xp = namespace(stack)
    root = xp.sqrt(floor)
    scale = root[:, None] * root[None, :]
    values, vectors = xp.linalg.eigh(symmetric(stack / scale))
    values = xp.where(values < 1.0, 1.0, values)
    return scale * symmetric((vectors * values[..., None, :]) @ transpose(vectors))


def sparse_matrix(values: Floats, columns: NDArray[np.int64], bounds: list[int], n_columns: int) -> Any:
    """Sparse matrix with `values` in `columns`; row k has the entries bounds[k] to bounds[k + 1]."""
    return sparse.csr_array((values, columns, bounds), shape=(len(bounds) - 1, n_columns))


def leading_eigenpairs(rows: Array, n_pairs: int) -> tuple[Floats, Floats]:
    """Largest eigenvalues (r,) and eigenvectors (D, r) of rows' rows, r = min(n_pairs, n, D).

    Uses the smaller of the D x D and the n x n product, computed where the rows are. The largest entry of
    each vector is positive, so that the result does not depend on signs chosen by LAPACK.
    """
    n, D = rows.shape
    r = min(n_pairs, n, D)
    if r == 0:
        return np.zeros(0), np.zeros((D, 0))
    wide = n < D
    values, vectors = _leading(to_numpy(rows @ rows.T if wide else rows.T @ rows), r)
    if wide:
        vectors = to_numpy(rows.T @ like(np.ascontiguousarray(vectors), rows))
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(float).tiny)
    return values, with_fixed_signs(vectors)


def leading_eigenvectors(matrix: Floats, n_vectors: int) -> Floats:
    """(D, r) the eigenvectors of the largest eigenvalues of a positive semidefinite matrix."""
    return with_fixed_signs(_leading(matrix, min(n_vectors, len(matrix)))[1])


def _leading(matrix: Floats, r: int) -> tuple[Floats, Floats]:
    size = len(matrix)
    values, vectors = linalg.eigh(matrix, subset_by_index=[size - r, size - 1])
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1]


def rough_eigenpairs(rows: Array, n_pairs: int) -> tuple[Array, Array]:
    """`leading_eigenpairs` to a few digits, for starting values: by products of the rows with a few vectors.

    Block power iteration from fixed vectors (Halko, Martinsson & Tropp, 2011), where the rows (..., n, D)
    are. Small problems in main memory are solved exactly, which is faster.
    """
    xp, (*stack, n, D) = namespace(rows), rows.shape
    r = min(n_pairs, n, D)
    width = min(r + _SPARE, n, D)
    if r == 0 or (is_numpy(rows) and min(n, D) <= _FEW * width):
        found = [leading_eigenpairs(one, r) for one in to_numpy(rows).reshape(-1, n, D)]
        values, vectors = (np.stack(arrays) for arrays in zip(*found, strict=True))
        return like(values.reshape(*stack, r), rows), like(vectors.reshape(*stack, D, r), rows)
    vectors = like(np.random.default_rng(0).standard_normal((D, width)), rows)
    for _ in range(_POWERS):
        vectors = _orthonormalised(transpose(rows) @ (rows @ vectors))
    image = rows @ vectors
    values, mixed = xp.linalg.eigh(transpose(image) @ image)
    values, vectors = xp.flip(values, axis=-1)[..., :r], vectors @ xp.flip(mixed, axis=-1)[..., :r]
    return xp.clip(values, min=0.0), vectors * _signs(vectors)


def _orthonormalised(vectors: Array) -> Array:
    """Orthonormal columns that span those of every matrix of the stack, or nearly so for tensors.

    Tensors are divided by the Cholesky factors of their products, twice, since factorisations of tall
    matrices wait for one another on a device.
    """
    xp = namespace(vectors)
    if not is_torch(vectors):
        return xp.linalg.qr(vectors)[0]
    for _ in range(2):
        products = transpose(vectors) @ vectors
        ridge = _RIDGE * xp.sum(diagonals(products), axis=-1) + _TINY
        products = products + ridge[..., None, None] * eye(products.shape[-1], products)
        vectors = vectors @ transpose(inverse_of_triangular(cholesky_of_definite(products)))
    return vectors


def orthonormal(A: Floats) -> tuple[Floats, Floats]:
    """Orthonormal Q (D, q) and upper triangular U (q, q) with A = Q U and U_ii >= 0.

    Uses LU elimination, so that rows on a small scale keep their precision next to rows on a large one.
    """
    L, V = linalg.lu(A, permute_l=True)
    W = np.linalg.cholesky(L.T @ L).T
    signs = np.where(np.diagonal(V) < 0, -1.0, 1.0)
    Q = linalg.solve_triangular(W, L.T, trans="T").T
    return Q * signs, (W @ V) * signs[:, None]


def with_fixed_signs(vectors: Floats) -> Floats:
    """Flip the signs of columns so that the first entry of largest magnitude is positive."""
    return np.asarray(vectors * _signs(vectors))


def _signs(vectors: Array) -> Array:
    """(..., 1, r) the signs of the first entries of largest magnitude of the columns.

    Rounding does not decide.
    """
    xp = namespace(vectors)
    sizes = xp.abs(vectors)
    among_largest = sizes >= (1.0 - _TIE) * xp.max(sizes, axis=-2, keepdims=True)
    largest = xp.argmax(xp.astype(among_largest, xp.int8), axis=-2, keepdims=True)
    return xp.where(xp.take_along_axis(vectors, largest, axis=-2) < 0, -1.0, 1.0)
