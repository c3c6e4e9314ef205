"""A factorisation with a density of its sources: a generative model of rows.

    x = A s + b,     s ~ p(s)

A and b come from any factorisation, p(s) from any mixture. With d sources and D features, x has a density if
A is square and invertible: p(x) = p(s) / |det A|. With d < D all generated rows lie in a subspace, so x has
no density, but the sources do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import DensityMixin, clone
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from latently.core.data import Data
from latently.estimators.base import Estimator
from latently.estimators.checks import check_flag, check_weights
from latently.estimators.data import checked_table
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.memory import check_draws
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator
from latently.estimators.randomness import as_generator, draw_from
from latently.estimators.rejection import Rejecting, remember_rows
from latently.estimators.rows import in_main_memory
from latently.estimators.weights import weights_in_rows


@estimator
class SourceDensity(DensityMixin, Rejecting, Estimator):
    """Factorisation x = A s + b with a density of the sources s.

    Parameters
    ----------
    factorizer : estimator
        Provides A and b. Anything with `fit_transform` and `inverse_transform`, or `components_`: the models
        of `latently.factorization`, scikit-learn's `PCA`, `NMF` and `FactorAnalysis`, and pipelines of these.
    density : estimator
        Provides p(s). Anything with `fit` and `score_samples`, and `sample` to draw rows: the models of
        `latently.mixture`, scikit-learn's `GaussianMixture` and `KernelDensity`.
    {options}

    Attributes
    ----------
    factorizer_, density_ : estimators
        Fitted clones: the first fitted to the rows, the second to their sources.
    n_sources_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    {attributes}

    Examples
    --------
    >>> from latently.generate import SourceDensity
    >>> from latently.mixture import MFA
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> X = load_digits().data
    >>> model = SourceDensity(PCA(20), MFA(5, 3, tol=1e-4, random_state=0)).fit(X)
    >>> digits, components = model.sample(10, random_state=0, truncate=True)
    >>> digits.shape, model.score_sources(X).shape
    ((10, 64), (1797,))
    """

    factorizer: Any
    density: Any

    def fit(self, X, y=None, sample_weight=None):
        """Fit the factorisation to the rows, then the density to their sources.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, if both estimators accept weights.

        Returns
        -------
        self
        """
        self._check_options()
        for part in (self.factorizer, self.density):
            if sample_weight is not None and not has_fit_parameter(part, "sample_weight"):
                raise ValueError(f"sample_weight was given, but {type(part).__name__}.fit does not accept it")
        with unchanged_on_failure(self), ended_by_one_interrupt():
            X = checked_table(self, X, dtype=np.float64, ensure_min_samples=2)
            factorizer, density = clone(self.factorizer), clone(self.density)
            if sample_weight is None:
                S = np.asarray(factorizer.fit_transform(X))
                density.fit(S)
            else:
                weight = weights_in_rows(sample_weight, len(X))
                S = np.asarray(factorizer.fit(X, sample_weight=weight).transform(X))
                density.fit(S, sample_weight=weight)
            check_decodes(factorizer)
            self.factorizer_, self.density_ = factorizer, density
            remember_rows(self, Data(X, weight=None if sample_weight is None else weight))
        return self

    def _check_options(self):
        super()._check_options()
        check_factorizer(self.factorizer)
        can = all(hasattr(self.density, method) for method in ("fit", "score_samples", "get_params"))
        if not can or isinstance(self.density, type):
            raise TypeError(
                "density must be an estimator with fit and score_samples, such as GaussianMixture(10), "
                f"not {self.density!r}"
            )

    # -- using a fitted model -----------------------------------------------------------------------

    @property
    def n_sources_(self):
        check_is_fitted(self)
        return self.density_.n_features_in_

    def sources(self, X):
        """Sources s of the rows, (n_samples, n_sources)."""
        check_is_fitted(self)
        X = checked_table(self, X, dtype=np.float64, reset=False)
        return np.asarray(self.factorizer_.transform(X))

    def reconstruct(self, X):
        """Rows reconstructed from their sources, (n_samples, n_features)."""
        S = self.sources(X)
        return decoded(self.factorizer_, S)

    def sample(self, n_samples=1, *, random_state=None, truncate=False):
        """Draw sources from their density and map them to rows.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Seed of this draw; those of the estimators are used by `fit` only.
        truncate : bool, default=False
            Whether to set negative entries of the rows to zero. For display only: truncated rows are no
            longer draws from the model.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component of the density that each row was drawn from; 0 if it has no components.
        """
        check_is_fitted(self)
        check_draws(self, n_samples)
        check_flag("truncate", truncate)
        if not hasattr(self.density_, "sample"):
            raise TypeError(
                f"sample needs a density with 'sample', but {type(self.density_).__name__} has none"
            )
        S, components = draw_from(self.density_, n_samples, as_generator(random_state))
        X = decoded(self.factorizer_, S)
        return np.maximum(X, 0.0) if truncate else X, components

    def score_samples(self, X):
        """Log density of each row, if there are as many sources as features.

        The map from sources to rows must be linear and invertible. With fewer sources than features this
        raises a ValueError; use `score_sources`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        A, b = self._linear_map()
        d, D = A.shape
        if d != D or np.linalg.matrix_rank(A) < D:
            reason = (
                f"there are {d} sources for {D} features"
                if d != D
                else "the map from sources to rows is singular"
            )
            raise ValueError(
                f"score_samples needs as many sources as features and an invertible map, but {reason}; "
                "score_sources gives the log density of the sources"
            )
        X = checked_table(self, X, dtype=np.float64, reset=False)
        S = np.linalg.solve(A.T, (X - b).T).T  # not `transform`, which may constrain sources
        return in_main_memory(self.density_.score_samples(S)) - np.linalg.slogdet(A)[1]

    def score_sources(self, X):
        """Log density ln p(s) of the sources of each row, (n_samples,).

        Use it to compare densities of the same sources. It is not a density of rows: it ignores the residual
        of the factorisation, and depends on the scale of the sources.
        """
        S = self.sources(X)
        return in_main_memory(self.density_.score_samples(S))

    def score(self, X, y=None, sample_weight=None):
        """Mean of `score_samples`, weighted if `sample_weight` is given."""
        scores = self.score_samples(X)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, len(scores))
        return float(np.average(scores, weights=sample_weight))

    def _linear_map(self):
        """A (d, D), the contribution of each source, and b (D,)."""
        check_is_fitted(self)
        d = self.n_sources_
        b = decoded(self.factorizer_, np.zeros((1, d)))[0]
        A = decoded(self.factorizer_, np.eye(d)) - b
        probe = np.arange(1.0, d + 1.0)[None, :]
        if not np.allclose(decoded(self.factorizer_, probe), probe @ A + b, rtol=1e-6):
            raise ValueError(
                "score_samples needs a linear map from sources to rows, which "
                f"{type(self.factorizer_).__name__} does not have; use score_sources"
            )
        return A, b

    def _sizes_in_words(self):
        return [f"{self.n_sources_} sources"]

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {}

    def _set_fitted_arrays(self):
        """Does nothing: the parts hold all arrays."""

    def _parts(self):
        return {"factorizer": self.factorizer_, "density": self.density_}

    def _set_parts(self, factorizer, density):
        self.factorizer_, self.density_ = factorizer, density
        if type(factorizer) is not type(self.factorizer) or type(density) is not type(self.density):
            raise ValueError("its parts do not have the classes of its hyper-parameters")
        self.n_features_in_ = self.factorizer_.n_features_in_
        if decoded(self.factorizer_, np.zeros((1, self.n_sources_))).shape != (1, self.n_features_in_):
            raise ValueError("its density does not match the sources of its factorizer")


def check_factorizer(factorizer):
    if not all(hasattr(factorizer, name) for name in ("fit_transform", "get_params")) or isinstance(
        factorizer, type
    ):
        raise TypeError(
            "factorizer must be an estimator with fit_transform and inverse_transform, such as PCA(20), "
            f"not {factorizer!r}"
        )


def check_decodes(factorizer):
    """Raise an error unless a fitted factorizer can map sources to rows."""
    if not hasattr(factorizer, "inverse_transform") and not hasattr(factorizer, "components_"):
        raise TypeError(
            f"factorizer must have inverse_transform or components_, but {type(factorizer).__name__} has "
            "neither, so it cannot map sources to rows"
        )


def decoded(factorizer, S):
    """Rows (n, D) for sources (n, d)."""
    if hasattr(factorizer, "inverse_transform"):
        return np.asarray(factorizer.inverse_transform(S))
    return S @ factorizer.components_ + getattr(factorizer, "mean_", 0.0)  # scikit-learn's FactorAnalysis
