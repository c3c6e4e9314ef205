"""What all mixtures share: the frame of their rows, floors of variances, starts, and imputation.

A subclass says which family it is, which arrays make its parameters, and how they are checked.
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, like, namespace, to_numpy
from latently.core.drivers import best_start, em_step, relative
from latently.core.frame import Frame
from latently.core.stepwise import Online
from latently.core.summary import Summary
from latently.distributions.mixture import Mixture, drawn_rows, expected_rows
from latently.mixture import _starts
from latently.mixture._engine import EMEstimator, as_generator, for_method
from latently.mixture._problem import Problem
from latently.mixture._validation import (
    called,
    check_choice,
    check_flag,
    check_labels,
    check_locations,
    check_mixing_weights,
    check_number,
    check_positive,
    check_same_device,
    numbers,
    parameter,
)

_FARTHEST = 1e6  # standard deviations that starting means may lie away from the data


class MixtureBase(EMEstimator):
    """The estimator behind every mixture. Subclasses provide the methods of the first section."""

    def __init__(self, *, init, noise_floor, dtype, **engine):
        super().__init__(**engine)
        self.init = init
        self.noise_floor = noise_floor
        self.dtype = dtype

    # -- what a subclass provides -------------------------------------------------------------------

    _LOCATED_BY = "means_init"  # the starting values that say where components are

    def _family(self, floor):
        """The family of the components, with a variance floor (D,)."""
        raise NotImplementedError

    def _family_in(self, frame, floor):
        """The family for rows in a frame."""
        return self._family(floor)

    def _mixture(self, family):
        """The kernel of a family."""
        return Mixture(family, self.dtype)

    def _known(self, y, n_rows, *, reset):
        """(n_rows, K) bool: what labels say of the components each row may come from; None for nothing."""
        return check_labels(y, n_rows, self._n_components())

    def _in_dimensions(self):
        """The number of principal dimensions in which some starts look for clusters, if any."""
        return None

    def _least_rows(self):
        """How many rows there must be."""
        return self._n_components()

    def _n_classes(self):
        """The number of classes, if components belong to such, equally many to each."""
        return None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    # -- fitting ------------------------------------------------------------------------------------

    def _problem(self, data):
        """The data looked through, and the kernel and frame that suit them."""
        D, K = data.n_features, self._n_components()
        self._check_features(D)
        _, summary = self._summarised(data)
        if summary.n_rows < self._least_rows():
            raise ValueError(
                f"n_components={self._least_rows()} must not be larger than n_samples={summary.n_rows}"
            )
        if summary.n_rows < 2 and not data.in_memory:  # arrays in memory were counted before
            raise ValueError(f"Found X with {summary.n_rows} sample(s) while a minimum of 2 is required")
        frame = Frame.around(summary.mean, summary.deviation, isotropic=self._family(None).isotropic)
        kernel = self._mixture(self._family_in(frame, self._floor(summary, frame)))
        return Problem(kernel, data, frame, summary, K, self.block_size)

    def _problem_of_model(self, data):
        """The kernel and frame that suit rows like those the model was fitted to, whatever is in the data."""
        params, kernel = self._parameters(), self._kernel()
        check_same_device(f"{type(self).__name__}.partial_fit", data, self._placed())
        summary = Summary.of_moments(*kernel.moments(params))
        frame = self._frame(kernel, params)
        kernel = self._mixture(self._family_in(frame, self._floor(summary, frame)))
        return Problem(kernel, data, frame, summary, self._n_components(), self.block_size)

    def _frame(self, kernel, params):
        return Frame.around(*kernel.moments(params), isotropic=kernel.family.isotropic)

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_choice("init", self.init, _starts.INITS)
        check_number("noise_floor", self.noise_floor, least=0)
        check_choice("dtype", self.dtype, ("float64", "float32"))

    def _example(self, problem):
        """A state of stepwise EM, for the shapes of its records."""
        here = problem.in_main_memory()
        rows, K = here.sample()[:2], self._n_components()
        means = np.zeros((K, problem.data.n_features))
        params = here.kernel.from_partition(rows.X, rows.weight, np.zeros(len(rows), dtype=int), means)
        sweep = problem.sweep_of_sample(rows)
        return Online(problem.on_device(params), None).step(problem.kernel, sweep, **self._learning())[0]

    def _floor(self, summary, frame):
        """The smallest variance of each feature in the frame: `noise_floor` times the variance it has.

        Isotropic families go by the mean variance. Where there is no variance to go by, one takes its place,
        which in the frame is that of the other features.
        """
        xp = namespace(frame.scale)
        variance = (summary.deviation / frame.scale) ** 2
        if self._family(None).isotropic:
            variance = xp.zeros_like(variance) + xp.mean(variance)
        flat = variance == 0
        if bool(xp.any(flat)):
            self._complain_of_constant(np.flatnonzero(to_numpy(flat)))
        return self.noise_floor * xp.where(flat, 1.0, variance)

    def _complain_of_constant(self, features):
        names = [called(self, feature) for feature in features[:5]]
        listed = ", ".join(names) + (", ..." if len(features) > 5 else "")
        if self.noise_floor == 0:
            raise ValueError(
                f"X has constant features ({listed}), so the likelihood has no maximum; "
                "drop them, or set noise_floor above 0"
            )
        warnings.warn(
            f"X has constant features ({listed}); their variance is held at noise_floor",
            UserWarning,
            stacklevel=6,  # where `fit` was called
        )

    def _start(self, problem, progress=None):
        """Starting values in the frame, and whether the user interrupted the search for them.

        What the user gave, what an earlier fit left, or our own.
        """
        D, K = problem.data.n_features, self._n_components()
        here = problem.in_main_memory()
        if self.warm_start and hasattr(self, "history_"):
            self._check_shapes(D, "warm_start")
            last = here.to_frame(self._parameters_in_main_memory())
            return problem.on_device(self._near(last, "the means of the last fit")), False
        given = self._given_starts(D)
        if len(given) == len(self._PARAMETERS):
            start = self._near(here.to_frame(self._to_kernel(given)), self._LOCATED_BY)
            return problem.on_device(start), False
        means = (given["means"] - here.frame.shift) / here.frame.scale if "means" in given else None
        sample = here.sample()
        n_init = _starts.number_of_starts(self.n_init, len(sample), D, K, self._in_dimensions())
        starts = _starts.starting_values(
            here.kernel,
            K,
            self.init,
            n_init,
            self.random_state,
            sample,
            here.frame,
            means,
            self._in_dimensions(),
            self._n_classes(),
        )

        def with_given(start):
            ours = self._from_kernel(here.from_frame(start))
            return self._near(here.to_frame(self._to_kernel(self._completed(ours, given))), self._LOCATED_BY)

        if given:
            starts = map(with_given, starts)
        if progress:
            starts = progress.starts(starts)
        sweep = problem.sweep_of_sample(sample)
        short = problem.in_alternation(em_step(problem.kernel, sweep), sweep, last=1)
        return best_start(
            short, map(problem.on_device, starts), n_steps=_starts.SHORT_RUN, stop=relative(self.tol)
        )

    @staticmethod
    def _near(start, shown_as):
        """The start, if its means are where the data are: quadratic forms lose all digits far away."""
        distance = np.max(np.abs(start.components.means))
        if distance > _FARTHEST:
            raise ValueError(
                f"{shown_as} are {distance:.1g} standard deviations away from the data; check their units"
            )
        return start

    def _validated(self, name, value, D, shown_as):
        """A parameter array of the user's, checked and broadcast; errors call it `shown_as`."""
        array = parameter(shown_as, value, self._shapes(D)[name])
        if name == "weights":
            return check_mixing_weights(shown_as, array)
        if name == "noise_variance":
            return check_positive(shown_as, array)
        if name in ("mean", "means", "loadings", "latent_means"):
            return check_locations(shown_as, array)
        return array

    def _n_features_of(self, given):
        """The number of features that parameters of the user's speak of."""
        name = "mean" if "mean" in given else "means"
        means = numbers(name, given[name])
        if means.ndim == 0 or means.shape[-1] == 0:
            raise ValueError(f"{name} must have one entry per feature")
        return means.shape[-1]

    # -- using a fitted model -------------------------------------------------------------------------

    def impute(self, X, *, sample=False, random_state=None, out=None):
        """Fill what is missing, given what was observed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            Rows with NaN in the entries to be filled.
        sample : bool, default=False
            Whether to draw the missing entries from their distribution given the others, in place of taking
            its mean. Several draws show how sure the filling is.
        random_state : int, Generator, RandomState or None
            Source of chance of the draws.
        out : path of a .npy file, optional
            As for `score_samples`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Entries that were observed are as they were.
        """
        check_flag("sample", sample)
        check_is_fitted(self)
        rng = as_generator(random_state) if sample else None
        return self._rows_of(X, filled_rows, rng, out=out)

    def n_parameters(self):
        """Number of free parameters of the fitted density."""
        check_is_fitted(self)
        K = self._n_components()
        return K - 1 + self._family(None).n_parameters(K, self.n_features_in_)

    def _kernel(self):
        return self._mixture(self._family(np.zeros(self.n_features_in_)))


@for_method("impute")
def filled_rows(kernel, density, frame, rng, block):
    """Rows with missing entries imputed, by expectation or, given a generator, by chance."""
    if block.observed is None:
        return double(block.X)
    framed = frame.enter(block)
    if rng is None:
        values = expected_rows(kernel, density, framed)
    else:
        values = like(drawn_rows(kernel, density, rng, framed), framed.X)
    return namespace(values).where(block.observed, double(block.X), values * frame.scale + frame.shift)
