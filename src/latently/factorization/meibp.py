"""Maximisation-expectation for Indian-buffet features."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np

from latently.distributions.binary_features import BinaryFeatures
from latently.estimators.checks import check_locations, check_non_negative, check_number, check_positive
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.factorization import feature_moves
from latently.factorization.buffet import check_codes, check_pair, check_scales, check_variance
from latently.factorization.monotone_buffet import MonotoneBuffet


@estimator
class MEIBP(MonotoneBuffet):
    """Binary codes times non-negative features, whose number is learnt: X = Z W + noise.

    Codes have an Indian buffet prior, the entries of W are half-normal. Codes are maximised over, of W
    there is a posterior in which entries are independent truncated normals ("maximisation-expectation").

    Parameters
    ----------
    component_prior : (float, float), default=(1, 1e-3)
        Shape and scale of the inverse gamma prior of the variance of the half-normal.
    codes_init : array-like of shape (n_samples, K), optional
        Starting codes; without, features of the rows are grouped at random.
    location_init, scale_init : array-like of shape (K, n_features), optional
        Starting posterior of the components; needs `codes_init`.
    concentration_init, component_variance_init : float, default=1.0
    noise_init : float, optional
        Starting hyper-parameters; without a noise variance, they start at their modes given the codes.
    {options}

    Attributes
    ----------
    codes_ : ndarray of shape (n_samples, K)
        Zeros and ones: which features the fitted rows have.
    components_ : ndarray of shape (K, n_features)
        The posterior mean of W.
    location_, scale_ : ndarray of shape (K, n_features)
        The posterior of W before its truncation at zero.
    component_variance_ : float
    bound_ : float
        Lower bound of the log probability of the rows and their codes, T.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import MEIBP
    >>> rng = np.random.default_rng(0)
    >>> shapes = np.kron(np.eye(3), np.ones(4))                 # three features of four pixels
    >>> codes = rng.integers(2, size=(200, 3))
    >>> X = codes @ shapes + 0.3 * rng.normal(size=(200, 12))
    >>> model = MEIBP(random_state=0).fit(X)
    >>> model.n_components_, model.components_.shape
    (3, (3, 12))
    """

    _: KW_ONLY
    component_prior: Any = option(default=(1, 1e-3), check=check_pair)
    codes_init: Any = None
    location_init: Any = None
    scale_init: Any = None
    concentration_init: float = option(default=1.0, check=check_number, least=0)
    noise_init: float | None = option(default=None, check=check_variance, or_else=(None,))
    component_variance_init: float = option(default=1.0, check=check_variance)

    _fields: ClassVar[dict[str, str]] = {"noise_variance": "noise", "component_variance": "spread"}

    @classmethod
    def from_parameters(
        cls, *, codes, location, scale, concentration, noise_variance, component_variance, **options
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return cls(**options)._with_parameters(
            codes=codes,
            location=location,
            scale=scale,
            concentration=concentration,
            noise_variance=noise_variance,
            component_variance=component_variance,
        )

    def _check_options(self):
        super()._check_options()
        self._check_given_together(("codes_init",), ("location_init", "scale_init"))

    def _model(self, table):
        return BinaryFeatures(table, self._priors(self.component_prior))

    def _given_start(self, model):
        N, D = model.table.Y.shape
        if self.warm_start and hasattr(self, "codes_"):
            self._check_shape_of_last_fit((len(self.codes_), self.location_.shape[1]), (N, D))
            codes, start = self.codes_.astype(np.float64), self._last_hyper()
            location, scale = self.location_, self.scale_
        elif self.codes_init is not None:
            codes, start = self._codes_given("codes_init", N), self._hyper()
            location = self._matrix_given("location_init", (codes.shape[1], D))
            scale = self._matrix_given("scale_init", (codes.shape[1], D))
            in_use = codes.any(axis=0)
            codes = codes[:, in_use]
            location, scale = (None if a is None else a[in_use] for a in (location, scale))
        else:
            return None
        if scale is not None:
            check_scales("scale_init", scale)
        return model.given(codes, location, scale, **start)

    def _random_start(self, model, rng):
        proposal = feature_moves.starting_columns(model.table, self.init_components, rng)
        return model.given(*proposal, None, **self._hyper())

    def _moved(self, model, state, rng):
        return feature_moves.moved(model, state, rng)

    def _parameters(self):
        return (
            Parameter("codes", "codes_init", ("N", "K"), check_codes),
            Parameter("location", "location_init", ("K", "D"), check_locations),
            Parameter("scale", "scale_init", ("K", "D"), check_scales),
            Parameter("concentration", "concentration_init", (), check_non_negative),
            Parameter("noise_variance", "noise_init", (), check_positive),
            Parameter("component_variance", "component_variance_init", (), check_positive),
        )
