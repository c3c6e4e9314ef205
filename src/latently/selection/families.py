"""The families of densities that `compare` tries, and how sizes are searched within one.

Sizes grow from the smallest as long as BIC falls, first twofold: the neighbours of the best so far are fitted
next, so a grid has no edge. Families take turns, so each has its first fits before one has many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latently.core.words import listed
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture, MixedMixture

_MOST_COMPONENTS = 50
_MOST_FULL_FEATURES = 200  # beyond which full covariances are not tried
_STEPS: dict[int, list[tuple[int, ...]]] = {
    1: [(1,), (2,), (-1,)],
    2: [(1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (2, 0), (0, 2), (1, -1), (-1, 1)],
}


@dataclass
class Family:
    """One kind of model, with the sizes that were fitted."""

    name: str  # in tables and sentences
    estimator: Any
    sizes: tuple[str, ...]  # parameters that are searched
    allowed: tuple[Sequence[int], ...]  # their values, ascending
    start: tuple[int, ...]
    tried: dict[tuple[int, ...], Any] = field(
        default_factory=dict
    )  # by sizes: a `Cell`, or None if it failed

    @property
    def best(self) -> Any:
        """The fit with the lowest BIC, one without degenerate components if possible; None without fits."""
        found = [cell for cell in self.tried.values() if cell is not None]
        return min(found, key=lambda cell: (cell.n_degenerate > 0, cell.bic), default=None)

    def next_sizes(self) -> Any:
        """The sizes to fit next; None at a minimum of BIC."""
        if not self.tried:
            return self.start
        if self.best is None:
            return None
        places = tuple(values.index(size) for values, size in zip(self.allowed, self.best.sizes, strict=True))
        for around in _around(places):
            if all(0 <= place < len(values) for place, values in zip(around, self.allowed, strict=True)):
                sizes = tuple(values[place] for place, values in zip(around, self.allowed, strict=True))
                if sizes not in self.tried:
                    return sizes
        return None

    def parameters(self, sizes):
        return dict(zip(self.sizes, sizes, strict=True))


def _around(now: tuple[int, ...]) -> Any:
    """Places to try after these in the lists of values: twice as far, then one or two more or fewer."""
    for j in range(len(now)):
        yield (*now[:j], 2 * now[j] + 1, *now[j + 1 :])
    for step in _STEPS[len(now)] if now else ():
        yield tuple(size + by for size, by in zip(now, step, strict=True))


@dataclass
class Cell:
    """A fit of one size."""

    sizes: tuple[int, ...]
    estimator: Any
    bic: float
    log_likelihood: float  # per row of the fit
    n_parameters: int
    seconds: float
    n_degenerate: int = 0  # components that the rows do not determine


def families(X, n_components=None, n_factors=None):
    """The sensible families for these rows; with numbers of components or factors, those that have them.

    Both are lists of allowed numbers, ascending.
    """
    n_rows, n_features = X.shape
    K = n_components or range(1, max(1, min(_MOST_COMPONENTS, n_rows // 10)) + 1)
    q = n_factors or range(1, min(n_features - 1, max(1, n_rows // 10)) + 1)
    q = [number for number in q if number < n_features]
    likely = likely_factors(X)

    def some(values, wanted):
        """The start: the allowed value that is nearest to the wanted one."""
        return min(values, key=lambda value: abs(value - wanted))

    found = []
    if n_factors is None:
        found += _gaussian_mixtures(n_features, K, some(K, 2))
    if q and (n_factors or n_features > 2):
        first, least = some(q, likely), some(q, max(2, likely))
        kq, grid, two = ("n_components", "n_factors"), (K, q), some(K, 2)
        if 1 in K:
            found += [
                Family("factor analysis", FactorAnalysis(), ("n_factors",), (q,), (first,)),
                Family("PPCA", PPCA(), ("n_factors",), (q,), (first,)),
            ]
        found += [
            Family("MFA", MFA(), kq, grid, (two, first)),
            Family("MPPCA", MPPCA(), kq, grid, (two, first)),
            Family("MCFA", MCFA(), kq, grid, (two, least)),
        ]
    if n_factors is None and n_features <= _MOST_FULL_FEATURES:
        found.append(Family("t mixture", GaussianMixture(tails="t"), ("n_components",), (K,), (some(K, 1),)))
    if not found:
        raise ValueError(
            f"n_factors must be less than the number of columns, {n_features}, not {listed(n_factors)}"
            if n_factors
            else f"no family of densities suits {n_features} columns"
        )
    return found


def mixed_families(X, columns, n_components=None, n_factors=None):
    """The families for rows with columns of these kinds, by place; the other columns are numbers.

    All are densities of the same measure, so their likelihoods can be compared.
    """
    n_rows = len(X)
    K = n_components or range(1, max(1, min(_MOST_COMPONENTS, n_rows // 10)) + 1)
    numbers = [j for j in range(X.shape[1]) if columns.get(j, "number") == "number"]
    q = n_factors or range(1, min(len(numbers) - 1, max(1, n_rows // 10)) + 1)
    q = [number for number in q if number < len(numbers)]
    model = MixedMixture(columns=dict(columns), unseen="missing")
    start = min(K, key=lambda k: abs(k - 2))
    found = []
    if not n_factors:
        if 1 in K:
            found.append(Family("independent columns", model, (), (), ()))
        found.append(Family("mixed mixture", model, ("n_components",), (K,), (start,)))
        if "count" in columns.values():
            poisson = MixedMixture(columns=dict(columns), unseen="missing", count_model="poisson")
            found.append(
                Family("mixed mixture with Poisson counts", poisson, ("n_components",), (K,), (start,))
            )
        if "ordinal" in columns.values():
            free = {j: "category" if kind == "ordinal" else kind for j, kind in columns.items()}
            found.append(
                Family(
                    "mixed mixture without orders",
                    MixedMixture(columns=free, unseen="missing"),
                    ("n_components",),
                    (K,),
                    (start,),
                )
            )
    if q and (n_factors or len(numbers) > 2):
        first = min(q, key=lambda number: abs(number - likely_factors(X[:, numbers])))
        sizes = ("n_components", "n_factors")
        found.append(Family("mixed mixture with factors", model, sizes, (K, q), (start, first)))
    if not found:
        raise ValueError(f"n_factors must be less than the number of columns of numbers, {len(numbers)}")
    return found


def _gaussian_mixtures(n_features, K, start):
    """Of one Gaussian, and of covariances of several structures."""
    kinds = ["full", "tied"] if n_features <= _MOST_FULL_FEATURES else []
    kinds += ["diag", "spherical"] if n_features > 1 else []
    one = kinds[0] == "full" and 1 in K
    found = [Family("one Gaussian", GaussianMixture(1), (), (), ())] if one else []
    return found + [
        Family(
            f"{kind} Gaussian mixture",
            GaussianMixture(covariance_type=kind),
            ("n_components",),
            (K,),
            (start,),
        )
        for kind in kinds
    ]


def likely_factors(X):
    """A number of factors to start with: half of the eigenvalues of the correlations that are above one."""
    centred = np.nan_to_num(X - np.nanmean(X, axis=0))
    scale = centred.std(axis=0)
    centred = centred[:, scale > 0] / scale[scale > 0]
    if centred.shape[1] == 0:
        return 1
    strong = np.linalg.svd(centred[:2000], compute_uv=False) ** 2 > min(len(centred), 2000)
    return int(np.clip(np.count_nonzero(strong) // 2, 1, 8))


def described(name, parameters):
    """A model in words: "MFA with 3 components and 2 factors"."""
    texts = []
    for parameter, value in parameters.items():
        noun = parameter.removeprefix("n_").removesuffix("s" if value == 1 else "")
        texts.append(f"{int(value)} {noun}")
    return f"{name} with {' and '.join(texts)}" if texts else name


def rows_to_search(n_rows, n_features):
    """How many rows a search uses, of a table of this size."""
    return int(np.clip(400_000 // n_features, 2000, 10_000).clip(max=n_rows))
