"""The families of densities that `compare` tries, and how sizes are searched within one.

Sizes grow from the smallest as long as BIC falls: the neighbours of the best so far are fitted next, so a
grid has no edge. Families take turns, so each has its first fits before one has many.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture

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
    limits: tuple[int, ...]  # their largest values
    start: tuple[int, ...]
    tried: dict[tuple[int, ...], Any] = field(
        default_factory=dict
    )  # by sizes: a `Cell`, or None if it failed

    @property
    def best(self) -> Any:
        """The fit with the lowest BIC; None if there is none."""
        found = [cell for cell in self.tried.values() if cell is not None]
        return min(found, key=lambda cell: cell.bic, default=None)

    def next_sizes(self) -> Any:
        """The sizes to fit next; None at a minimum of BIC."""
        if not self.tried:
            return self.start
        if self.best is None:
            return None
        now: tuple[int, ...] = self.best.sizes
        for step in _STEPS[len(self.sizes)] if self.sizes else ():
            sizes = tuple(size + by for size, by in zip(now, step, strict=True))
            if sizes not in self.tried and all(
                1 <= size <= most for size, most in zip(sizes, self.limits, strict=True)
            ):
                return sizes
        return None

    def parameters(self, sizes):
        return dict(zip(self.sizes, sizes, strict=True))


@dataclass
class Cell:
    """A fit of one size."""

    sizes: tuple[int, ...]
    estimator: Any
    bic: float
    log_likelihood: float  # per row of the fit
    n_parameters: int
    seconds: float


def families(n_rows, n_features):
    """The sensible families for a table of this size."""
    most = max(1, min(_MOST_COMPONENTS, n_rows // 10))
    k = ("n_components",)
    kq = ("n_components", "n_factors")
    found = (
        [Family("one Gaussian", GaussianMixture(1), (), (), ())] if n_features <= _MOST_FULL_FEATURES else []
    )
    kinds = ["full", "tied"] if n_features <= _MOST_FULL_FEATURES else []
    thin = ["diag", "spherical"] if n_features > 1 else []
    found += [
        Family(f"{kind} Gaussian mixture", GaussianMixture(covariance_type=kind), k, (most,), (2,))
        for kind in [*kinds, *thin]
    ]
    if n_features > 2:
        q = min(n_features - 1, max(1, n_rows // 10))
        found += [
            Family("factor analysis", FactorAnalysis(), ("n_factors",), (q,), (1,)),
            Family("PPCA", PPCA(), ("n_factors",), (q,), (1,)),
            Family("MFA", MFA(), kq, (most, q), (2, 1)),
            Family("MPPCA", MPPCA(), kq, (most, q), (2, 1)),
            Family("MCFA", MCFA(), kq, (most, q), (2, min(2, q))),
        ]
    if n_features <= _MOST_FULL_FEATURES:
        found.append(Family("t mixture", GaussianMixture(tails="t"), k, (most,), (1,)))
    return found


def described(name, parameters):
    """A model in words: "MFA with 3 components and 2 factors"."""
    texts = []
    for parameter, value in parameters.items():
        noun = parameter.removeprefix("n_").removesuffix("s" if value == 1 else "")
        texts.append(f"{int(value)} {noun}")
    return f"{name} with {' and '.join(texts)}" if texts else name


def rows_to_search(n_rows, n_features):
    """How many rows a search uses, of a table of this size."""
    return int(np.clip(1_000_000 // n_features, 2000, 10_000).clip(max=n_rows))
