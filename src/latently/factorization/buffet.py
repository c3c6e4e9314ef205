"""What factorisations with Indian-buffet priors share: options, rows in memory, and codes of new rows."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.distributions.binary_codes import Table, best_codes, least_squares_gains
from latently.distributions.buffet_priors import GammaPrior, InverseGammaPrior, Priors
from latently.estimators import fitting
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_positive,
    numbers,
    real_array,
)
from latently.estimators.data import called, check_data
from latently.estimators.fitting import FitOptions
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.messages import unchanged_on_failure, warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import check_names, set_given, store

_LARGEST = 1e100  # beyond which sums of squares may overflow
_FARTHEST = 1e6  # from the origin, in units of the spread of the rows


def check_pair(name, value, *, least=0.0):
    """Two parameters of a prior."""
    try:
        a, b = (float(number) for number in value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be two numbers, such as (1, 1), not {value!r}") from None
    if isinstance(value, str) or not (least <= a < np.inf and a > 0 and 0 < b < np.inf):
        raise ValueError(f"{name} must be two positive numbers, the first at least {least:g}, not {value!r}")


def check_variance(name, value, *, or_else=()):
    """A positive number, or None where that is allowed."""
    if value is None and None in or_else:
        return
    check_number(name, value, least=0)
    if not value > 1e-300:
        raise ValueError(f"{name} must be a positive number, not {value!r}")


def check_codes(name, array):
    """(N, K) integers 0 and 1."""
    if not np.all((array == 0) | (array == 1)):
        raise ValueError(f"{name} must hold zeros and ones only")
    return array.astype(np.int64)


def check_scales(name, array):
    """Positive entries, of which there may be none."""
    return check_positive(name, array) if array.size else array


@dataclass(frozen=True)
class Standing:
    """Where a fit stands."""

    state: Any
    searched: bool = False  # whether moves were tried last, and none was kept


@estimator
class BuffetFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, IterativeEstimator):
    """Everything that the models of Indian buffets share.

    Parameters
    ----------
    learn_hyperparameters : bool, default=True
        Whether concentrations and variances are learnt; otherwise they keep their starting values.
    concentration_prior : (float, float), default=(1, 1)
        Shape (at least 1) and rate of the gamma prior of concentrations.
    noise_prior : (float, float), default=(1, 1e-3)
        Shape and scale of the inverse gamma prior of the noise variance.
    max_iter : int, default=100
        Maximum number of sweeps.
    accelerate : None
        There is no acceleration; the parameter exists because other models have it.

    Attributes
    ----------
    n_components_ : int
        The number of features K that was learnt, which may be 0.
    concentration_ : float
    noise_variance_ : float
    n_iter_ : int
        Number of sweeps.
    n_passes_ : int
        The same.
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had string column names.
    """

    _: KW_ONLY
    learn_hyperparameters: bool = option(default=True, check=check_flag)
    concentration_prior: Any = option(default=(1, 1), check=check_pair, least=1.0)
    noise_prior: Any = option(default=(1, 1e-3), check=check_pair)
    max_iter: int = option(default=100, check=check_integer, least=0)
    accelerate: Any = option(default=None, check=check_choice, choices=(None,))
    n_init: ClassVar[int] = 1  # type: ignore[misc]
    batch_size: ClassVar[None] = None  # type: ignore[misc]
    learning_decay: ClassVar[float] = 0.0  # type: ignore[misc]
    learning_offset: ClassVar[float] = 0.0  # type: ignore[misc]
    checkpoint: ClassVar[None] = None  # type: ignore[misc]
    checkpoint_every: ClassVar[int] = 10  # type: ignore[misc]
    block_size: ClassVar[None] = None  # type: ignore[misc]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    @property
    def _n_features_out(self):
        return len(self.components_)

    @property
    def n_components_(self):
        return len(self.components_)

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None):  # type: ignore[override]  # rows have no weights
        """Learn the features, their number, and the codes of the rows.

        Rows have no weights: the prior of the codes counts them, so a row given twice is another model than
        one row that counts twice. They are visited in order, so another order can end in another optimum.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows, in main memory. NaN marks a missing entry, which the likelihood leaves out.
        y : ignored

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            self._fit(self._table(X, reset=True))
        return self

    def _table(self, X, *, reset):
        """The rows, checked."""
        data = check_data(self, np.asarray(X) if isinstance(X, np.memmap) else X, reset=reset)
        if not data.in_memory or not isinstance(data.X, np.ndarray):
            raise ValueError(
                f"{type(self).__name__} needs all rows at once, as an array or data frame in main memory; "
                "read X first, or give X.numpy() of a tensor"
            )
        X = data.X.astype(np.float64)
        if reset:
            self._check_rows(X)
        return Table.of(X)

    def _check_rows(self, X):
        seen = ~np.isnan(X)
        if not seen.any():
            raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
        if not seen.any(axis=0).all():
            feature = called(self, np.flatnonzero(~seen.any(axis=0))[0])
            raise ValueError(f"feature {feature} of X is missing (NaN) in every row; drop it")
        largest = np.max(np.abs(X[seen]))
        if largest > _LARGEST:
            raise ValueError(
                f"X holds values of about {largest:.3g}, whose sums of squares overflow; rescale X"
            )
        centre = np.where(seen, X, 0).sum(axis=0) / seen.sum(axis=0)
        with np.errstate(under="ignore"):
            spread = math.sqrt(float(np.mean(np.where(seen, X - centre, 0.0) ** 2)))
        far = float(np.max(np.abs(centre)))
        if 0 < spread < far / _FARTHEST:
            raise ValueError(
                f"X is {far / spread:.2g} times farther from zero than its rows differ, which float64 cannot "
                "resolve without a mean of its own; subtract the minimum of each column from X"
            )
        with np.errstate(under="ignore"):
            half = 0.5 * float(np.sum(X[seen] ** 2))
        prior = float(self.noise_prior[1])
        if self.learn_hyperparameters and largest > 0 and half < prior:
            other = f"({float(self.noise_prior[0]):g}, {1e-3 * half / seen.sum():.1g})"
            warn_user(
                f"half the sum of the squares of X, {half:.3g}, is less than the scale of noise_prior, "
                f"{prior:g}, so the prior decides rather than X; multiply X by a constant"
                + (f", or give noise_prior={other}" if half > 0 else "")
            )

    def _learnt(self, step, start, least_size):
        """The result of sweeps from `start(progress)`."""
        options = self._fit_options(least_size)
        result = fitting.fit(step, lambda progress: start(options, progress), options)
        self.n_iter_, self.n_passes_, self.converged_ = result.n_iter, result.n_iter, result.converged
        self.history_ = np.array(result.history[1:], dtype=np.float64)
        return result

    def _fit_options(self, least_size):
        return FitOptions.of(self, objective=replace(self.objective, least_size=least_size))

    def _table_of_codes(self, X):
        """Rows for the methods of a fitted model."""
        check_is_fitted(self)
        return self._table(X, reset=False)

    # -- using a fitted model -------------------------------------------------------------------------

    def predict_codes(self, X):
        """Codes of rows, (n_samples, n_components) of zeros and ones.

        Each row for itself: bits are turned while that makes the row and its codes more probable, with prior
        odds m_k : N - m_k for a feature that m_k of the N fitted rows have. Features that all fitted rows
        have are always on.
        """
        table = self._table_of_codes(X)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._codes_of(table).astype(np.int64)

    def _codes_of(self, table):
        m, N = self.codes_.sum(axis=0), len(self.codes_)
        with np.errstate(divide="ignore"):
            prior = np.log(m) - np.log(N - m)
        gains = least_squares_gains(
            table, self.components_, self._component_variances(), float(self.noise_variance_)
        )
        return best_codes(gains, prior)

    def _component_variances(self):
        """(K, D) posterior variances of the components, or None."""
        raise NotImplementedError

    def transform(self, X):
        """The codes of `predict_codes` as float64, (n_samples, n_components)."""
        return self.predict_codes(X).astype(np.float64)

    def inverse_transform(self, X):
        """Expected rows for given codes, (n_samples, n_features)."""
        check_is_fitted(self)
        Z = real_array("X", X, dtype=np.float64, ensure_min_features=0)
        if Z.shape[1] != len(self.components_):
            raise ValueError(
                f"X has {Z.shape[1]} columns, but the model has {len(self.components_)} components"
            )
        return Z @ self.components_

    def reconstruct(self, X):
        """Rows without noise: their codes times the components, (n_samples, n_features)."""
        return self.predict_codes(X) @ self.components_

    def impute(self, X):
        """Missing entries (NaN) filled by the reconstruction from what was seen; others are unchanged.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        table = self._table_of_codes(X)
        if table.mask is None:
            return table.Y.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(table.mask, table.Y, self._codes_of(table) @ self.components_)

    # -- parameters in and out ------------------------------------------------------------------------

    def _keep(self, **arrays):
        store(self, arrays)

    def _fitted_arrays(self):
        """Codes are written as float64, like all arrays of a file."""
        arrays = super()._fitted_arrays()
        return {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}

    def _set_fitted_arrays(self, **given):
        table = self._parameters()
        check_names(table, given)
        sizes: dict[str, int] = {}
        for entry in table:
            array = numbers(entry.name, given[entry.name])
            if array.ndim != len(entry.shape):
                raise ValueError(f"{entry.name} must have {len(entry.shape)} dimensions, not {array.ndim}")
            for symbol, size in zip(entry.shape, array.shape, strict=True):
                sizes.setdefault(symbol, size)
        if 0 in (sizes["N"], sizes["D"]):
            raise ValueError("there must be at least one row and one feature")
        set_given(self, table, sizes, given)
        self.n_features_in_ = sizes["D"]
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        self._derive()

    def _derive(self):
        """Set the attributes that follow from the fitted arrays."""

    def _sizes(self, n_features):
        raise NotImplementedError

    def _priors(self, weights):
        """The hyper-priors; `weights` are the parameters of that of the variance of the weights."""
        return Priors(
            GammaPrior(*map(float, self.concentration_prior)),
            InverseGammaPrior(*map(float, self.noise_prior)),
            InverseGammaPrior(*map(float, weights)),
            learn=bool(self.learn_hyperparameters),
        )
