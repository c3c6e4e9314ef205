"""Binary features whose codes depend on binary categories."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np

from latently.distributions.binary_codes import least_squares_gains
from latently.distributions.binary_features import BinaryFeatures
from latently.distributions.buffet_priors import GammaPrior, InverseGammaPrior
from latently.distributions.correlated_codes import Correlated, CorrelatedCodes
from latently.distributions.indian_buffet import log_odds
from latently.estimators.checks import check_locations, check_non_negative, check_number, check_positive
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.factorization import category_moves
from latently.factorization.buffet import check_codes, check_pair, check_scales, check_variance
from latently.factorization.monotone_buffet import MonotoneBuffet

_CERTAIN = 50.0  # log odds beyond which nothing is doubtful
_SWEEPS_OF_FEATURES = 10  # of ME-IBP, before categories


def check_probability(name, value):
    check_number(name, value, least=0, most=1)
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {value!r}")


@estimator
class IBPIBP(MonotoneBuffet):
    """Binary features that come with binary categories of the rows (correlated IBP-IBP).

    X = Z W + noise, where a row has feature k if any of its categories gives it: z_nk is 1 with probability
    1 - q^c, c being the number of categories that row n has and that have feature k. Rows have categories,
    and categories features, by Indian buffet processes; the entries of W are exponential.

    Parameters
    ----------
    miss_probability : float, default=0.05
        q, the probability that a category which has a feature does not give it to a row.
    rate_prior : (float, float), default=(1, 1)
        Shape (at least 1) and rate of the gamma prior of the rate of W.
    concentration_init, rate_init : float, default=1.0
        Starting values, which `learn_hyperparameters=False` keeps; that of both concentrations.
    noise_init : float, optional
        Starting noise variance; without, that of the ME-IBP from which a fit starts.
    {options}

    Attributes
    ----------
    codes_ : ndarray of shape (n_samples, K)
    categories_ : ndarray of shape (n_samples, C)
    category_features_ : ndarray of shape (C, K)
        Zeros and ones: the features of rows, the categories of rows, and the features of categories.
    components_ : ndarray of shape (K, n_features)
        The posterior mean of W.
    location_, scale_ : ndarray of shape (K, n_features)
        The posterior of W before its truncation at zero.
    category_concentration_, feature_concentration_ : float
    rate_ : float
    bound_ : float
        Lower bound of the log probability of the rows, their codes and categories, T.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import IBPIBP
    >>> rng = np.random.default_rng(0)
    >>> shapes = np.kron(np.eye(4), np.ones(3))                 # four features of three pixels
    >>> kinds = np.array([[1, 1, 0, 0], [0, 0, 1, 1]])          # two categories of two features
    >>> codes = np.minimum(rng.integers(2, size=(300, 2)) @ kinds, 1)
    >>> X = codes @ shapes + 0.2 * rng.normal(size=(300, 12))
    >>> model = IBPIBP(random_state=0).fit(X)
    >>> model.components_.shape[0] == model.category_features_.shape[1]
    True
    """

    _: KW_ONLY
    miss_probability: float = option(default=0.05, check=check_probability)
    rate_prior: Any = option(default=(1, 1), check=check_pair, least=1.0)
    concentration_init: float = option(default=1.0, check=check_number, least=0)
    rate_init: float = option(default=1.0, check=check_variance)
    noise_init: float | None = option(default=None, check=check_variance, or_else=(None,))

    _fields: ClassVar[dict[str, str]] = {"noise_variance": "noise", "category_features": "links"}

    @classmethod
    def from_parameters(
        cls,
        *,
        codes,
        categories,
        category_features,
        location,
        scale,
        category_concentration,
        feature_concentration,
        noise_variance,
        rate,
        **options,
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return cls(**options)._with_parameters(
            codes=codes,
            categories=categories,
            category_features=category_features,
            location=location,
            scale=scale,
            category_concentration=category_concentration,
            feature_concentration=feature_concentration,
            noise_variance=noise_variance,
            rate=rate,
        )

    @property
    def concentration_(self):
        """The concentration of the categories of rows."""
        return self.category_concentration_

    def _model(self, table):
        return CorrelatedCodes(
            table,
            float(self.miss_probability),
            GammaPrior(*map(float, self.concentration_prior)),
            InverseGammaPrior(*map(float, self.noise_prior)),
            GammaPrior(*map(float, self.rate_prior)),
            learn=bool(self.learn_hyperparameters),
        )

    def _given_start(self, model):
        if not (self.warm_start and hasattr(self, "codes_")):
            return None
        self._check_shape_of_last_fit((len(self.codes_), self.location_.shape[1]), model.table.Y.shape)
        codes = self.codes_.astype(np.float64)
        return Correlated(
            codes=codes,
            categories=self.categories_.astype(np.float64),
            links=self.category_features_.astype(np.float64),
            location=self.location_,
            scale=self.scale_,
            products=codes.T @ model.table.Y,
            **self._last_hyper(),
        )

    def _random_start(self, model, rng):
        features = category_moves.features_to_start_from(
            BinaryFeatures(model.table, self._priors((1.0, 1e-3))),
            self.init_components,
            _SWEEPS_OF_FEATURES,
            self.moves,
            rng,
        )
        one = float(self.concentration_init)
        noise = features.noise if self.noise_init is None else float(self.noise_init)
        return category_moves.from_features(
            model, features, concentrations=(one, one), noise=noise, rate=float(self.rate_init)
        )

    def _moved(self, model, state, rng):
        return category_moves.moved(model, state, rng)

    def predict_codes(self, X):
        """Codes of rows, (n_samples, n_components) of zeros and ones.

        Each row for itself: categories are turned one at a time, each together with the codes that suit the
        categories, while that makes the row with both more probable. Of the ends that are reached from no
        category, from all, and from those that the codes of the row alone suggest, the best is kept. Prior
        odds are m_c : N - m_c for a category of m_c of the N fitted rows.
        """
        return super().predict_codes(X)

    def _codes_of(self, table):
        gains = least_squares_gains(
            table, self.components_, self._component_variances(), float(self.noise_variance_)
        )
        prior = log_odds(len(self.categories_))[self.categories_.sum(axis=0)]
        prior = np.clip(prior, -_CERTAIN, _CERTAIN)  # no row, or every one
        return self._model(table).best_codes(gains, self.category_features_.astype(np.float64), prior)

    def _parameters(self):
        return (
            Parameter("codes", None, ("N", "K"), check_codes),
            Parameter("categories", None, ("N", "C"), check_codes),
            Parameter("category_features", None, ("C", "K"), check_codes),
            Parameter("location", None, ("K", "D"), check_locations),
            Parameter("scale", None, ("K", "D"), check_scales),
            Parameter("category_concentration", "concentration_init", (), check_non_negative),
            Parameter("feature_concentration", "concentration_init", (), check_non_negative),
            Parameter("noise_variance", "noise_init", (), check_positive),
            Parameter("rate", "rate_init", (), check_positive),
        )
