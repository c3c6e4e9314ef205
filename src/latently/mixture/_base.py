"""What all mixtures share: fitting by the engine, scoring in blocks, sampling, criteria.

A subclass says which family it is, which arrays make its parameters, and how they are checked.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from latently.backend.placement import block_rows
from latently.core.block import Block, summarise
from latently.core.drivers import best_start, em_step, relative, run
from latently.core.frame import Frame
from latently.core.progress import Progress
from latently.core.saving import SavedMixin
from latently.core.squarem import squarem
from latently.core.sweep import InMemorySweep
from latently.distributions.mixture import Mixture, log_density, responsibilities
from latently.mixture import _starts
from latently.mixture._validation import (
    check_callbacks,
    check_choice,
    check_flag,
    check_integer,
    check_locations,
    check_mixing_weights,
    check_number,
    check_positive,
    check_rows,
    check_seed,
    check_summary,
    check_weights,
    numbers,
    parameter,
)

_FARTHEST = 1e6  # standard deviations that starting means may lie away from the data


class MixtureBase(SavedMixin, DensityMixin, BaseEstimator):
    """The estimator behind every mixture. Subclasses provide the methods of the first section."""

    def __init__(
        self,
        *,
        max_iter,
        tol,
        n_init,
        init,
        noise_floor,
        accelerate,
        batch_size,
        dtype,
        random_state,
        warm_start,
        verbose,
        callbacks,
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.init = init
        self.noise_floor = noise_floor
        self.accelerate = accelerate
        self.batch_size = batch_size
        self.dtype = dtype
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks

    # -- what a subclass provides -------------------------------------------------------------------

    _PARAMETERS: ClassVar[dict[str, str]]  # fitted attribute (no underscore) -> its starting value's name

    def _n_components(self):
        return self.n_components

    def _family(self, floor):
        """The family of the components, with a variance floor (D,)."""
        raise NotImplementedError

    def _shapes(self, D):
        """The shape of every parameter, by name."""
        raise NotImplementedError

    def _to_kernel(self, fitted):
        """Fitted arrays, by name, as the kernel's parameters."""
        raise NotImplementedError

    def _from_kernel(self, params):
        """The kernel's parameters as fitted arrays, by name."""
        raise NotImplementedError

    # -- fitting ------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model by expectation-maximisation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows.
        y : ignored
            Present for API consistency.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; fractions are fine.

        Returns
        -------
        self
        """
        self._check_hyperparameters()
        earlier = vars(self).copy()
        try:
            return self._fit(check_rows(self, X, sample_weight, reset=True))
        except BaseException:
            vars(self).clear()
            vars(self).update(earlier)  # what was fitted before stays as it was
            raise

    def _fit(self, block):
        N, D = block.X.shape
        if self._n_components() > N:
            raise ValueError(f"n_components={self._n_components()} must not be larger than n_samples={N}")
        self._check_features(D)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is told of by the check
            summary = summarise(block, block_rows(N, 3 * D, self.batch_size))
        check_summary(summary)
        frame = Frame.around(summary.mean, summary.deviation, isotropic=self._family(None).isotropic)
        kernel = Mixture(self._family(self._floor(summary, frame)), self.dtype)
        result = self._fitted_in(kernel, block, frame)
        self._store(self._from_kernel(kernel.moved(result.params, frame.shift, frame.scale)))
        self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.history_ = np.array(result.history)
        return self

    def _fitted_in(self, kernel, block, frame):
        """Parameters, history and the like, in the frame."""
        with Progress(type(self).__name__) if self.verbose else nullcontext() as progress:
            step = self._step(kernel, block, frame)
            result = run(
                squarem(step, kernel) if self.accelerate == "squarem" else step,
                self._start(kernel, block, frame, progress),
                max_iter=self.max_iter,
                stop=relative(self.tol),
                callbacks=[*(self.callbacks or ()), *([progress] if progress else ())],
            )
        if not result.converged and result.n_iter == self.max_iter and self.tol > 0:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} iterations; "
                "raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=4,  # where `fit` was called
            )
        return result

    def _check_hyperparameters(self):
        check_integer("n_components", self._n_components(), least=1)
        check_integer("max_iter", self.max_iter, least=0)
        check_number("tol", self.tol, least=0)
        check_integer("n_init", self.n_init, least=1)
        check_choice("init", self.init, _starts.INITS)
        check_number("noise_floor", self.noise_floor, least=0)
        check_choice("accelerate", self.accelerate, (None, "squarem"))
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, least=1)
        check_choice("dtype", self.dtype, ("float64", "float32"))
        check_seed(self.random_state)
        check_flag("warm_start", self.warm_start)
        if not isinstance(self.verbose, (bool, np.bool_)):
            check_integer("verbose", self.verbose, least=0)
        check_callbacks(self.callbacks)

    def _check_features(self, D):
        """Whether the model makes sense for this number of features."""

    def _floor(self, summary, frame):
        """The smallest variance of each feature in the frame: `noise_floor` times the variance it has.

        Isotropic families go by the mean variance. Where there is no variance to go by, one takes its place,
        which in the frame is that of the other features.
        """
        variance = (summary.deviation / frame.scale) ** 2
        if self._family(None).isotropic:
            variance = np.full_like(variance, variance.mean())
        flat = variance == 0
        if flat.any():
            self._complain_of_constant(np.flatnonzero(flat))
        return self.noise_floor * np.where(flat, 1.0, variance)

    def _complain_of_constant(self, features):
        listed = ", ".join(map(str, features[:5])) + (", ..." if len(features) > 5 else "")
        if self.noise_floor == 0:
            raise ValueError(
                f"X has constant features ({listed}), so the likelihood has no maximum; "
                "drop them, or set noise_floor above 0"
            )
        warnings.warn(
            f"X has constant features ({listed}); their variance is held at noise_floor",
            UserWarning,
            stacklevel=5,  # where `fit` was called
        )

    def _start(self, kernel, block, frame, progress=None):
        """Starting values in the frame: what the user gave, what an earlier fit left, or our own."""
        D = block.X.shape[1]
        inward = (-frame.shift / frame.scale, 1.0 / frame.scale)
        if self.warm_start and hasattr(self, "history_"):
            self._check_warm(D)
            last = kernel.clamped(kernel.moved(self._parameters(), *inward))
            return self._near(last, "the means of the last fit")
        given = self._given_starts(D)
        if len(given) == len(self._PARAMETERS):
            return self._near(kernel.clamped(kernel.moved(self._to_kernel(given), *inward)), "means_init")
        K = self._n_components()
        means = (given["means"] - frame.shift) / frame.scale if "means" in given else None
        sample = _starts.canonical_sample(
            block, frame, _starts.rows_for_start(K), block_rows(len(block), 3 * D, self.batch_size)
        )
        starts = _starts.starting_values(
            kernel, K, self.init, self.n_init, self.random_state, sample, frame, means
        )

        def with_given(start):
            ours = self._from_kernel(kernel.moved(start, frame.shift, frame.scale))
            params = self._to_kernel({**ours, **given})
            return self._near(kernel.clamped(kernel.moved(params, *inward)), "means_init")

        if given:
            starts = map(with_given, starts)
        if progress:
            starts = progress.starts(starts)
        as_it_is = Frame(np.zeros(D), np.ones(D), frame.log_volume)  # the sample is in the frame already
        short = em_step(kernel, self._sweep(kernel, Block(*sample), as_it_is))
        return best_start(short, starts, n_steps=_starts.SHORT_RUN, stop=relative(self.tol))

    def _given_starts(self, D):
        """The starting values that the user gave, checked."""
        return {
            name: self._validated(name, getattr(self, init), D, shown_as=init)
            for name, init in self._PARAMETERS.items()
            if getattr(self, init) is not None
        }

    @staticmethod
    def _near(start, shown_as):
        """The start, if its means are where the data are: quadratic forms lose all digits far away."""
        distance = np.max(np.abs(start.components.means))
        if distance > _FARTHEST:
            raise ValueError(
                f"{shown_as} are {distance:.1g} standard deviations away from the data; check their units"
            )
        return start

    def _check_warm(self, D):
        shapes = self._shapes(D)
        for name, array in self._fitted_parameters().items():
            if array.shape != shapes[name]:
                raise ValueError(
                    f"warm_start needs the shapes of the earlier fit, but {name}_ has shape {array.shape} "
                    f"and would now be {shapes[name]}; set warm_start=False"
                )

    def _step(self, kernel, block, frame):
        return em_step(kernel, self._sweep(kernel, block, frame))

    def _sweep(self, kernel, block, frame):
        D = block.X.shape[1]
        return InMemorySweep(
            block,
            frame,
            floats_per_row=kernel.family.floats_per_row(self._n_components(), D),
            batch_size=self.batch_size,
        )

    # -- parameters in and out ------------------------------------------------------------------------

    def _fitted_parameters(self):
        """Fitted arrays by name."""
        check_is_fitted(self)
        return {name: getattr(self, f"{name}_") for name in self._PARAMETERS}

    def _parameters(self):
        """The fitted attributes as the kernel's parameters, in the user's units."""
        return self._to_kernel(self._fitted_parameters())

    def _store(self, fitted):
        for name, array in fitted.items():
            # in one fixed layout, so that a model read from a file gives the same bits
            setattr(self, f"{name}_", np.ascontiguousarray(array))

    def _validated(self, name, value, D, shown_as):
        """A parameter array of the user's, checked and broadcast; errors call it `shown_as`."""
        array = parameter(shown_as, value, self._shapes(D)[name])
        if name == "weights":
            return check_mixing_weights(shown_as, array)
        if name == "noise_variance":
            return check_positive(shown_as, array)
        return check_locations(shown_as, array) if name in ("mean", "means", "loadings") else array

    def _set_parameters(self, **given):
        """Makes this a fitted estimator with these parameters."""
        if set(given) != set(self._PARAMETERS):
            raise ValueError(f"expected the parameters {sorted(self._PARAMETERS)}, not {sorted(given)}")
        name = "mean" if "mean" in given else "means"
        means = numbers(name, given[name])
        if means.ndim == 0 or means.shape[-1] == 0:
            raise ValueError(f"{name} must have one entry per feature")
        D = means.shape[-1]
        self._check_features(D)
        self._store({name: self._validated(name, value, D, shown_as=name) for name, value in given.items()})
        self.n_features_in_ = D
        self.n_iter_, self.converged_, self.history_ = 0, False, np.zeros(0)
        return self

    # -- using a fitted model -------------------------------------------------------------------------

    def score_samples(self, X):
        """Log density of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._rows_of(X, log_density, volume=True)

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows, weighted if `sample_weight` is given."""
        scores = self.score_samples(X)
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, len(scores))
        return float(np.average(scores, weights=sample_weight))

    def predict_proba(self, X):
        """Posterior probability of each component, (n_samples, n_components)."""
        return self._rows_of(X, responsibilities)

    def predict(self, X):
        """The most probable component of each row."""
        return np.argmax(self.predict_proba(X), axis=1)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model, then `predict` the same rows."""
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Its own source of chance: the estimator's `random_state` belongs to `fit`.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component each row was drawn from.
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, least=1)
        return self._kernel().sample(self._parameters(), n_samples, as_generator(random_state))

    def n_parameters(self):
        """Number of free parameters of the fitted density."""
        check_is_fitted(self)
        K = self._n_components()
        return K - 1 + self._family(None).n_parameters(K, self.n_features_in_)

    def bic(self, X):
        """Bayesian information criterion on the rows of X; lower is better."""
        scores = self.score_samples(X)
        return float(-2 * scores.sum() + self.n_parameters() * np.log(len(scores)))

    def aic(self, X):
        """Akaike information criterion on the rows of X; lower is better."""
        return float(-2 * self.score_samples(X).sum() + 2 * self.n_parameters())

    def icl(self, X):
        """BIC plus twice the entropy of the responsibilities (integrated completed likelihood)."""
        resp = self.predict_proba(X)
        entropy = -np.sum(resp * np.log(np.where(resp > 0, resp, 1.0)))
        return float(self.bic(X) + 2 * entropy)

    def _kernel(self):
        return Mixture(self._family(np.zeros(self.n_features_in_)), self.dtype)

    def _rows_of(self, X, fn, volume=False):
        """`fn(kernel, density, block)` for all rows of X, block by block."""
        check_is_fitted(self)
        block = check_rows(self, X, reset=False)
        kernel = self._kernel()
        params = self._parameters()
        frame = Frame.around(*kernel.moments(params), isotropic=kernel.family.isotropic)
        density = kernel.prepare(kernel.moved(params, -frame.shift / frame.scale, 1.0 / frame.scale))

        def quietly(piece):
            with np.errstate(over="ignore", invalid="ignore"):  # rows far away: log density -inf
                return fn(kernel, density, piece)

        values = self._sweep(kernel, block, frame).rows(quietly)
        return values - frame.log_volume if volume else values


def as_generator(random_state):
    """A NumPy Generator from whatever scikit-learn users pass as a seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    check_seed(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint64))
    return np.random.default_rng(random_state)
