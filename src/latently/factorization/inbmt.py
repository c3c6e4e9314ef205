"""Binary matrix tri-factorisation with Indian-buffet row and column codes."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np

from latently.distributions.binary_blocks import BinaryBlocks
from latently.estimators.checks import check_locations, check_non_negative, check_number, check_positive
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.factorization import block_moves
from latently.factorization.buffet import check_codes, check_pair, check_scales, check_variance
from latently.factorization.monotone_buffet import MonotoneBuffet


@estimator
class INBMT(MonotoneBuffet):
    """Binary row codes and binary column codes around a non-negative core: X = Z W C' + noise.

    Row codes Z and column codes C have Indian buffet priors, so both numbers are learnt; a row and a column
    may belong to any number of them. The entries of the core W are half-normal. Codes are maximised over, of
    W there is a posterior in which entries are independent truncated normals.

    Parameters
    ----------
    core_prior : (float, float), default=(1, 1e-3)
        Shape and scale of the inverse gamma prior of the variance of the half-normal.
    row_codes_init : array-like of shape (n_samples, K), optional
    column_codes_init : array-like of shape (n_features, L), optional
        Starting codes, both or none; without, features are grouped at random.
    location_init, scale_init : array-like of shape (K, L), optional
        Starting posterior of the core; needs the codes.
    concentration_init, column_concentration_init, core_variance_init : float, default=1.0
    noise_init : float, optional
        Starting hyper-parameters; without a noise variance, they start at their modes given the codes.
    {options}

    Attributes
    ----------
    row_codes_ : ndarray of shape (n_samples, K)
    column_codes_ : ndarray of shape (n_features, L)
        Zeros and ones.
    core_ : ndarray of shape (K, L)
        The posterior mean of W.
    location_, scale_ : ndarray of shape (K, L)
        The posterior of W before its truncation at zero.
    components_ : ndarray of shape (K, n_features)
        What each row code adds to a row, ``core_ @ column_codes_.T``.
    row_labels_ : ndarray of shape (n_samples,)
        For each row the active code that explains most of it alone, -1 if it has none.
    column_labels_ : ndarray of shape (n_features,)
        The same of columns.
    column_concentration_ : float
    core_variance_ : float
    bound_ : float
        Lower bound of the log probability of the rows and all codes, T.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import INBMT
    >>> rng = np.random.default_rng(0)
    >>> shapes = np.kron(np.eye(3), np.ones(4))                 # three groups of four columns
    >>> codes = rng.integers(2, size=(200, 3))
    >>> X = codes @ shapes + 0.3 * rng.normal(size=(200, 12))
    >>> model = INBMT(random_state=0).fit(X)
    >>> model.core_.shape, model.column_codes_.shape
    ((3, 3), (12, 3))
    """

    _: KW_ONLY
    core_prior: Any = option(default=(1, 1e-3), check=check_pair)
    row_codes_init: Any = None
    column_codes_init: Any = None
    location_init: Any = None
    scale_init: Any = None
    concentration_init: float = option(default=1.0, check=check_number, least=0)
    column_concentration_init: float = option(default=1.0, check=check_number, least=0)
    noise_init: float | None = option(default=None, check=check_variance, or_else=(None,))
    core_variance_init: float = option(default=1.0, check=check_variance)

    _fields: ClassVar[dict[str, str]] = {"noise_variance": "noise", "core_variance": "spread"}

    @classmethod
    def from_parameters(
        cls,
        *,
        row_codes,
        column_codes,
        location,
        scale,
        concentration,
        column_concentration,
        noise_variance,
        core_variance,
        **options,
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor. Labels of rows and columns, which need the rows,
        are all -1.
        """
        return cls(**options)._with_parameters(
            row_codes=row_codes,
            column_codes=column_codes,
            location=location,
            scale=scale,
            concentration=concentration,
            column_concentration=column_concentration,
            noise_variance=noise_variance,
            core_variance=core_variance,
        )

    @property
    def codes_(self):
        """The row codes, by the name that other models have for them."""
        return self.row_codes_

    def _check_options(self):
        super()._check_options()
        self._check_given_together(("row_codes_init", "column_codes_init"), ("location_init", "scale_init"))

    def _model(self, table):
        return BinaryBlocks(table, self._priors(self.core_prior))

    def _given_start(self, model):
        N, D = model.table.Y.shape
        if self.warm_start and hasattr(self, "row_codes_"):
            self._check_shape_of_last_fit((len(self.row_codes_), len(self.column_codes_)), (N, D))
            Z, X = self.row_codes_.astype(np.float64), self.column_codes_.astype(np.float64)
            return model.given(Z, X, self.location_, self.scale_, **self._last_hyper())
        if self.row_codes_init is None:
            return None
        Z, X = self._codes_given("row_codes_init", N), self._codes_given("column_codes_init", D)
        shape = Z.shape[1], X.shape[1]
        location, scale = (self._matrix_given(name, shape) for name in ("location_init", "scale_init"))
        if scale is not None:
            check_scales("scale_init", scale)
        rows, columns = Z.any(axis=0), X.any(axis=0)
        location, scale = (None if a is None else a[rows][:, columns] for a in (location, scale))
        return model.given(Z[:, rows], X[:, columns], location, scale, **self._hyper())

    def _random_start(self, model, rng):
        found = block_moves.starting_blocks(model.table, self.init_components, rng)
        return model.given(found.rows, found.columns, found.core, None, **self._hyper())

    def _moved(self, model, state, rng):
        return block_moves.moved(model, state, rng)

    def _keep_state(self, model, state):
        super()._keep_state(model, state)
        table, Z = model.table, state.row_codes
        of_columns = Z @ state.core.expectation  # (N, L)
        self._keep(
            row_labels=labels(Z, table.Y @ self.components_.T, table.row_sums(self.components_**2)),
            column_labels=labels(
                state.column_codes, table.Y.T @ of_columns, table.transposed.row_sums((of_columns**2).T)
            ),
        )

    def _derive(self):
        super()._derive()
        self._keep(core=self._weights().expectation)
        unknown = (np.full(len(codes), -1) for codes in (self.row_codes_, self.column_codes_))
        self.row_labels_, self.column_labels_ = unknown

    def _by_feature(self, moments):
        return moments @ self.column_codes_.T

    def _exact_arrays(self):
        labels = {"row_labels": self.row_labels_, "column_labels": self.column_labels_}
        return {name: array.astype(np.float64) for name, array in labels.items()}

    def _set_exact_arrays(self, **given):
        codes = {"row_labels": self.row_codes_, "column_labels": self.column_codes_}
        check_labels(codes, given)
        self._keep(**{name: given[name].astype(np.int64) for name in codes})

    def _parameters(self):
        return (
            Parameter("row_codes", "row_codes_init", ("N", "K"), check_codes),
            Parameter("column_codes", "column_codes_init", ("D", "L"), check_codes),
            Parameter("location", "location_init", ("K", "L"), check_locations),
            Parameter("scale", "scale_init", ("K", "L"), check_scales),
            Parameter("concentration", "concentration_init", (), check_non_negative),
            Parameter("column_concentration", "column_concentration_init", (), check_non_negative),
            Parameter("noise_variance", "noise_init", (), check_positive),
            Parameter("core_variance", "core_variance_init", (), check_positive),
        )


def check_labels(codes, given):
    """Raise an error unless these are numbers of codes, or -1, for all rows of the codes of that name."""
    if given.keys() != codes.keys():
        raise ValueError(f"expected the labels {sorted(codes)}, not {sorted(given)}")
    for name, array in given.items():
        n, K = codes[name].shape
        if array.shape != (n,) or not np.all(np.isin(array, np.arange(-1, K))):
            raise ValueError(f"{name} must hold a number from -1 to {K - 1} for each of {n}")


def labels(codes, inner, squares):
    """(n,) the active code with the largest y'b - |b|^2 / 2, the lowest in case of ties; -1 without any."""
    if not codes.shape[1]:
        return np.full(len(codes), -1)
    explained = np.where(codes > 0.5, inner - 0.5 * squares, -np.inf)
    return np.where(codes.any(axis=1), np.argmax(explained, axis=1), -1)
