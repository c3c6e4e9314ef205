"""What factor models by variational Bayes share, which keep as many factors as the rows ask for."""

from __future__ import annotations

import numpy as np

from latently.backend.namespace import like
from latently.distributions import LowRankGaussian, MixtureParams
from latently.distributions.variational_factors import FactorPrior
from latently.estimators.checks import check_integer
from latently.mixture.factors import FactorMethods
from latently.mixture.mfa import MFA
from latently.mixture.posterior import TYPICAL
from latently.mixture.priors import ROWS, weak_prior


class PosteriorFactorMethods(FactorMethods):
    """Beside `PosteriorMixture`; a model has `_structure`, `_without_unused_factors` and `predictive`."""

    _least_columns = 0  # of the loadings that are kept

    @property
    def _n_columns(self):
        """Of the loadings: as many as there may be until the fit has removed some."""
        return getattr(self, "_kept_factors", self.n_factors)

    @property
    def _n_features_out(self):
        return self._n_columns

    def _check_features(self, n_features):
        """Any number is fine: columns that are not needed vanish."""

    def _gaussian_params(self):
        """The scales of the t distributions of new rows."""
        fitted = self._fitted_model()
        return MixtureParams(fitted.params.weights, self._predictive_components(fitted).gaussian)

    @staticmethod
    def _predictive_components(fitted):
        return fitted.kernel.predictive(fitted.params).components

    # -- fitting --------------------------------------------------------------------------------------

    def _data(self, X, y=None, sample_weight=None, *, reset):
        data = super()._data(X, y, sample_weight, reset=reset)
        if reset and not (self.warm_start and hasattr(self, "history_")):
            self._kept_factors = self._most_factors(data.n_features)
        return data

    def _most_factors(self, n_features):
        return max(self._least_columns, min(self.n_factors, n_features - 1))

    def _fit(self, data):
        super()._fit(data)
        self._without_unused_factors()

    def _without_unused_factors(self):
        """Remove columns of loadings that nothing uses from the fitted arrays."""
        raise NotImplementedError

    def _prior(self, family, frame, data, summary, floor):
        """That of all components: some rows of noise that factors leave, about the mean of all rows."""
        if summary.n_rows == 0:  # of a fitted model
            mean = (self.prior_mean_ - frame.shift) / frame.scale
            return FactorPrior(float(self.prior_rows_), mean, self.prior_noise_ / frame.scale**2)
        rows = ROWS if isinstance(self.prior, str) else float(self.prior)
        sweep = data.sweep(frame, floats_per_row=4 * data.n_features, block_size=self.block_size)
        variance = (summary.deviation / frame.scale) ** 2
        plain = LowRankGaussian(self._most_factors(data.n_features), floor)  # also where fewer are left
        spread = weak_prior(plain, floor, variance, summary, sweep, TYPICAL, rows)
        mean = (summary.mean - frame.shift) / frame.scale
        self._prior_of_all = {
            "prior_mean": summary.mean,
            "prior_noise": spread.scale * frame.scale**2,
            "prior_rows": like(np.array(spread.rows), mean),
        }
        return FactorPrior(float(spread.rows), mean, spread.scale)

    # -- a fitted model -------------------------------------------------------------------------------

    def predictive(self):
        """The mixture of t factor analysers, `MFA(tails="t")`, whose density this model uses for rows."""
        raise NotImplementedError

    def rotate(self, method="varimax", *, normalize=True):
        """As :meth:`MFA.rotate`; what is returned is an `MFA` with rotated factors and an equal density."""
        return self.predictive().rotate(method, normalize=normalize)

    def align_factors(self, reference=0):
        """As :meth:`MFA.align_factors`; what is returned is an `MFA` with an equal density."""
        return self.predictive().align_factors(reference)

    def communalities(self):
        return self.predictive().communalities()

    communalities.__doc__ = MFA.communalities.__doc__

    def _layout_header(self):
        return {**super()._layout_header(), "n_factors": int(self._n_columns)}

    def _set_layout(self, n_components, n_factors=None):
        super()._set_layout(n_components)
        if n_factors is not None:
            check_integer("n_factors_", n_factors, least=0)
            if n_factors > self.n_factors:
                raise ValueError(f"the factors that are used, {n_factors}, must not exceed {self.n_factors}")
            self._kept_factors = int(n_factors)
