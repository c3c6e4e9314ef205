"""The base class of all mixtures: shared options, fitting, and the methods of a fitted mixture.

A concrete model declares its own options and returns a `_structure`, which defines the family of the
components and the fitted arrays.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import KW_ONLY, fields
from typing import Any

import numpy as np
from sklearn.base import DensityMixin, is_classifier
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import double, like, namespace, to_numpy
from latently.backend.placement import on_device, one_blas_thread
from latently.core.summary import Summary
from latently.core.tree import mapped
from latently.distributions.mixture import log_density, responsibilities
from latently.distributions.small_steps import SmallSteps, steps_are_small
from latently.distributions.stacked import can_be_stacked
from latently.estimators import criteria
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_prior,
    check_weights,
)
from latently.estimators.data import called, check_same_device, computed
from latently.estimators.em import fit_em, keep_result, known_start, partial_fit
from latently.estimators.fitted import FittedModel
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.labels import component_labels
from latently.estimators.memory import check_draws
from latently.estimators.messages import DegenerateWarning, warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import store
from latently.estimators.problem import Problem, summarised
from latently.estimators.randomness import as_generator
from latently.estimators.rejection import Rejecting
from latently.estimators.rows import for_method, in_main_memory, rows_of
from latently.estimators.starts import sample_size
from latently.mixture import starts
from latently.mixture.degenerate import degenerate_components, described
from latently.mixture.priors import ROWS, prior_of_fitted, weak_prior
from latently.mixture.searching import search_of
from latently.mixture.structure import Structure
from latently.mixture.trimming import Searched, cleaner

_TINY_FLOOR = 1e-4  # largest noise_floor at which components should not end
_EXACT = 1e-3  # largest difference of what exact parameters show, relative to the largest entry
_FARTHEST = 1e6  # standard deviations that starting means may lie away from the data


@estimator
class MixtureEstimator(DensityMixin, Rejecting, IterativeEstimator):
    """Options shared by all mixtures; a concrete model implements `_structure`.

    Parameters
    ----------
    init : {"kmeans", "k-means++", "random"}, default="kmeans"
        How rows are initially partitioned among components. Every second start uses standardised features,
        and from the third start on features are weighted at random, so that all starts differ. For MCFA some
        starts use principal component scores and some a random partition.
    noise_floor : float, default=1e-6
        Lower bound of all variances, as a fraction of the feature's variance in the data (of the mean
        variance, if the variance is isotropic). The likelihood is maximised subject to this bound.
    prior : {"auto", None} or float, default="auto"
        How many rows the prior of each component is worth; "auto" is one. The prior keeps covariances and
        noise variances away from zero, which prevents components that fit a few rows exactly; its scale is
        the spread of all rows that factors leave unexplained. None is maximum likelihood.
    dtype : {"float64", "float32"}, default="float64"
        Precision of matrix products; sums are always float64.
    weights_init, subweights_init, means_init, covariances_init, loadings_init, noise_init, \
latent_means_init, latent_covariances_init, class_prior_init, coef_init, intercept_init : array-like, optional
        Starting values in the shape of the fitted attributes, or anything that broadcasts to it. They replace
        the computed starting values; if all are given, EM starts from exactly these.

    Attributes
    ----------
    n_iter_ : int
        EM steps taken.
    n_passes_ : int
        Passes over the data in these steps; with "squarem" a step takes up to three (MCFA: nine).
    converged_ : bool
    history_ : ndarray of shape (n_iter + 1,)
        Objective per row at the starting values and after every step: the log-likelihood plus the log prior,
        which is at most zero, or the log-likelihood alone with prior=None. It never decreases.
    degenerate_components_ : ndarray of int
        Components of `fit` that the rows do not determine: those with fewer rows than their parameters need,
        or with the noise of most features at `noise_floor`. `fit` warns of them. Not kept in files.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    """

    _: KW_ONLY
    init: str = option(default="kmeans", check=check_choice, choices=starts.INITS)
    noise_floor: float = option(default=1e-6, check=check_number, least=0)
    dtype: str = option(default="float64", check=check_choice, choices=("float64", "float32"))
    prior: Any = option(default="auto", check=check_prior)

    def _structure(self) -> Structure:
        """The mapping between fitted attributes and the kernel's parameters, for the current options."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.array_api_support = True
        return tags

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model by EM.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN marks a missing entry. Accepts arrays and data frames in memory, torch tensors on
            any device, Dask arrays and data frames, the path of a .npy, .zarr, .parquet or .csv file, and any
            iterable that yields the same blocks of rows each time it is iterated over.
        y : array-like of shape (n_samples,) or (n_samples, n_components), optional
            Known components: the component of each row, -1 if unknown; or True for every component that a row
            may come from.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        return super().fit(X, y, sample_weight)

    partial_fit = partial_fit

    def _data(self, X, y=None, sample_weight=None, *, reset):
        data = super()._data(X, y, sample_weight, reset=reset)
        if y is None:
            return data
        allowed = self._allowed(computed(y), data.count_rows(), reset=reset)
        return data.with_field("allowed", allowed)

    def _allowed(self, y, n_rows, *, reset):
        """(n_rows, K) bool: the components that labels allow each row; None for all."""
        return component_labels(y, n_rows, self._structure().n_components)

    def _fit(self, data):
        problem = self._problem(data)
        result = self._result(problem)
        keep_result(self, problem, result)
        self._look_for_degenerate_components(problem, result.params)

    def _look_for_degenerate_components(self, problem, params):
        """Keep their indices and warn of them; components of classifiers have the rows of their class."""
        if is_classifier(self):
            return
        rows = max(problem.summary.total_weight, float(problem.summary.n_rows))
        tiny = self.noise_floor <= _TINY_FLOOR  # above it the floor is the user's choice
        varying = problem.summary.deviation > 0 if tiny else None
        found = degenerate_components(problem.kernel, params, rows, varying)
        self._degenerate = [one.number for one in found]  # no array: it belongs to no device
        if found:
            robust = getattr(self, "noise_component", None) is False
            warn_user(described(found, type(self).__name__, robust=robust), DegenerateWarning)

    @property
    def degenerate_components_(self):
        """Indices of the components with too few rows, or with noise at the floor, in the last fit."""
        if not hasattr(self, "_degenerate"):
            raise AttributeError("degenerate_components_ is known after `fit` only")
        return np.array(self._degenerate, dtype=int)

    def _result(self, problem, step=None):
        """The fitted parameters in the frame; `step` replaces the EM step over the rows."""
        with one_blas_thread() if problem.is_small else nullcontext():  # once, not for every pass
            return fit_em(
                self,
                problem,
                start=lambda progress: self._start(problem, progress),
                example=lambda: example(problem, self._structure()),
                step=step,
            )

    def _problem(self, data):
        """The kernel and the frame for these rows."""
        structure = self._structure()
        self._check_features(data.n_features)
        summary = summarised(self, data, sample_size(self, structure.n_components))
        self._check_rows(summary.n_rows, structure)
        if summary.n_rows < 2 and not data.in_memory:  # arrays in memory were counted before
            raise ValueError(f"Found X with {summary.n_rows} sample(s) while a minimum of 2 is required")
        structure.check_rows(summary)
        frame = structure.frame(summary.mean, summary.deviation)
        return self._problem_in(frame, data, summary, structure)

    def _problem_of_fitted(self, data):
        """The kernel and the frame of the earlier fit, for new rows."""
        fitted = self._fitted_model()
        check_same_device(f"{type(self).__name__}.partial_fit", data, fitted.place)
        summary = Summary.of_moments(*fitted.kernel.moments(fitted.params))
        return self._problem_in(fitted.frame, data, summary, self._structure())

    def _problem_in(self, frame, data, summary, structure):
        structure.check_frame(frame, lambda feature: called(self, feature))
        floor = self._floor(summary, frame, structure)
        family = structure.family_in(frame, floor)
        plain = structure.gaussian_family(family)
        if self.prior is not None and any(field.name == "prior" for field in fields(plain)):
            family = family.with_prior(self._prior(plain, frame, data, summary, floor))
        kernel = structure.kernel_for(family, self.dtype, frame, summary)
        if on_device(frame.shift) and steps_are_small(kernel):
            kernel = SmallSteps(kernel.family, kernel.dtype)
        return Problem(kernel, data, frame, summary, structure.n_components, self.block_size)

    def _prior(self, family, frame, data, summary, floor):
        """The prior of the family in the frame; for further rows of a fitted model, about its own noise."""
        rows = ROWS if isinstance(self.prior, str) else float(self.prior)
        if summary.n_rows == 0:
            fitted = self._fitted_model()
            moved = fitted.kernel.moved(fitted.params, -frame.shift / frame.scale, 1.0 / frame.scale)
            return prior_of_fitted(family, self._structure().gaussian(moved), rows)
        sweep = data.sweep(frame, floats_per_row=4 * data.n_features, block_size=self.block_size)
        variance = (summary.deviation / frame.scale) ** 2
        return weak_prior(family, floor, variance, summary, sweep, self._structure().n_components, rows)

    def _check_rows(self, n_rows, structure):
        if n_rows < structure.least_rows:
            raise ValueError(
                f"n_components={structure.least_rows} must not be larger than n_samples={n_rows}"
            )

    def _floor(self, summary, frame, structure):
        """Lower bound of the variance of each feature in the frame: `noise_floor` times its variance.

        Isotropic families use the mean variance. A constant feature is treated as having variance one, the
        variance of the other features in the frame.
        """
        if not structure.family(None).has_floor:
            return None
        xp = namespace(frame.scale)
        variance = (summary.deviation / frame.scale) ** 2
        if structure.family(None).isotropic:
            variance = xp.zeros_like(variance) + xp.mean(variance)
        constant = variance == 0
        if bool(xp.any(constant)):
            self._report_constant(np.flatnonzero(to_numpy(constant)))
        return self.noise_floor * xp.where(constant, 1.0, variance)

    def _report_constant(self, features):
        names = [called(self, feature) for feature in features[:5]]
        listed = ", ".join(names) + (", ..." if len(features) > 5 else "")
        if self.noise_floor == 0:
            raise ValueError(
                f"X has constant features ({listed}), so the likelihood has no maximum; "
                "drop them, or set noise_floor above 0"
            )
        warn_user(f"X has constant features ({listed}); their variance is set to noise_floor")

    def _start(self, problem, progress=None):
        """Starting values in the frame, and whether the user interrupted the search for them.

        Given by the user, from the previous fit, or our own.
        """
        structure = self._structure()
        start, given = known_start(self, problem, structure.to_kernel, near_data, structure.means_from)
        if start is not None:
            return start, False
        here = problem.in_main_memory()
        sample, means = here.sample(), structure.start_means(given)

        def with_given(start):
            ours = structure.from_kernel(here.from_frame(start))
            completed = structure.to_kernel(structure.completed(ours, given))
            return near_data(here.to_frame(completed), structure.means_from)

        def ready(starts):
            if given:
                starts = map(with_given, starts)
            return map(problem.on_device, progress.starts(starts) if progress else starts)

        def searched(rows):
            found = self._starts(
                here.kernel,
                structure.n_components,
                self.init,
                self.random_state,
                rows,
                here.frame,
                None if means is None else (means - here.frame.shift) / here.frame.scale,
                structure.start_dimensions,
                structure.n_groups,
                self._on_device(problem, rows),
            )
            search = self._search(problem, rows)
            n_first, n_near = starts.number_of_starts(
                self.n_init, structure.start_dimensions, structure.most_starts, search.effort
            )
            best, interrupted = search.best(
                ready(found.first(n_first)),
                lambda best: ready(found.near(mapped(to_numpy, best))),
                n_near,
                n_vain=search.effort.in_vain if self.n_init == "auto" else None,
            )
            return Searched(found, search, best, interrupted)

        first = searched(sample)
        as_asked = self.n_init != "auto" or means is not None or sample.allowed is not None
        if as_asked or first.interrupted or first.clean:
            return first.best, first.interrupted
        return cleaner(first, here.kernel, sample, searched, ready)

    def _first_start(self, problem, progress=None):
        """Starting values without a search for better ones, after the user interrupted the fit."""
        n_init, self.n_init = self.n_init, 1
        try:
            return MixtureEstimator._start(self, problem, progress)[0], True
        finally:
            self.n_init = n_init

    _starts = starts.Starts  # how rows are partitioned for starts

    @staticmethod
    def _on_device(problem, sample):
        """The kernel and the sample on the device of the rows, if starts can be computed there."""
        if not on_device(problem.frame.shift) or not can_be_stacked(problem.kernel):
            return None
        return problem.kernel, problem.on_device(sample)

    def _search(self, problem, sample):
        """How starts are compared: by runs on a sample of the rows, which share passes if they can."""
        return search_of(
            problem,
            sample,
            tol=self.tol,
            accelerated=self.accelerate == "squarem",
            quick_steps=self._structure().quick_steps,
        )

    # -- parameters in and out ------------------------------------------------------------------------

    def _parameters(self):
        return self._structure().parameters

    def _sizes(self, n_features):
        return self._structure().sizes(n_features)

    def _keep(self, params):
        """Store the kernel's parameters, in the user's units, as fitted attributes."""
        structure = self._structure()
        fitted = structure.from_kernel(params)
        store(self, fitted)
        self._exact = self._fitted_arrays(), structure.exact(params, self._fitted_arrays())

    def _exact_params(self):
        """The kernel's own parameters, if they were kept and the fitted attributes have not changed since."""
        fitted, params = getattr(self, "_exact", ({}, None))
        if params is None:
            return None
        same = all(fitted[name] is array for name, array in self._fitted_arrays().items())
        return params if same else None

    def _exact_arrays(self):
        params = self._exact_params()
        if params is None:
            return {}
        structure = self._structure()
        components = structure.gaussian(params).components
        return {name: getattr(components, name) for name in structure.exact_names}

    def _set_exact_arrays(self, **given):
        structure, fitted = self._structure(), self._fitted_arrays()
        shown = structure.to_kernel(fitted)
        params = structure.with_exact(shown, given)
        family = structure.gaussian_family(structure.family(np.zeros(self.n_features_in_)))
        one, other = (structure.gaussian(of).components for of in (shown, params))
        # in any basis of the factors; variances of what is shown lose digits far from the origin
        rounding = 1e-9 * np.max(np.abs(one.means)) ** 2
        means, variances = one.means, family.marginal_variances(one)
        far = np.abs(other.means - means) > _EXACT * np.max(np.abs(means)) + np.sqrt(rounding)
        wide = np.abs(family.marginal_variances(other) - variances) > _EXACT * np.max(variances) + rounding
        if np.any(far) or np.any(wide):
            raise ValueError("the exact parameters are not those that the fitted arrays show")
        self._exact = fitted, params

    def to(self, device):
        moved = super().to(device)
        params = self._exact_params()
        if params is not None:
            moved._exact = moved._fitted_arrays(), mapped(lambda array: like(array, moved.history_), params)
        return moved

    to.__doc__ = IterativeEstimator.to.__doc__

    def _gaussian_params(self):
        """The mixture of Gaussians within the fitted parameters."""
        return self._structure().gaussian(self._fitted_model().params)

    def _fitted_model(self) -> FittedModel:
        structure, fitted = self._structure(), self._fitted_arrays()
        exact = self._exact_params()
        params = structure.to_kernel(fitted) if exact is None else exact
        kernel = structure.kernel(structure.family(np.zeros(self.n_features_in_)), self.dtype)
        frame = structure.frame(*kernel.moments(params))
        place = next(iter(fitted.values()))
        return FittedModel(kernel, params, frame, structure.n_components, self.n_features_in_, place)

    # -- using a fitted model -------------------------------------------------------------------------

    def score_samples(self, X, *, out=None):
        """Log density of the observed entries of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped. All methods that
            return one result per row accept it.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return rows_of(self, X, scores, out=out)

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows, weighted if `sample_weight` is given."""
        scores = in_main_memory(self.score_samples(X))
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, len(scores))
        return float(np.average(scores, weights=sample_weight))

    def predict_proba(self, X, *, out=None):
        """Posterior probability of each component, (n_samples, n_components)."""
        return rows_of(self, X, probabilities, out=out)

    def predict(self, X, *, out=None):
        """The most probable component of each row."""
        return rows_of(self, X, most_probable, out=out)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model, then `predict` the same rows."""
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows from the model.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Seed of this draw; the estimator's `random_state` is used by `fit` only.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The component each row was drawn from.
        """
        fitted = self._fitted_model()
        check_draws(self, n_samples)
        drawn = fitted.kernel.sample(mapped(to_numpy, fitted.params), n_samples, as_generator(random_state))
        return tuple(like(array, fitted.place) for array in drawn)

    def impute(self, X, *, n_draws=None, return_std=False, random_state=None, out=None):
        """Impute missing entries by their expectation given the observed ones, or by draws.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            Rows with NaN in the entries to be imputed.
        n_draws : int, optional
            Multiple imputation: the number of completed tables, in each of which missing entries are drawn
            from their conditional distribution instead of being replaced by its mean.
        return_std : bool, default=False
            Whether to return standard errors as well: the standard deviation of each missing entry given the
            observed ones, zero where observed. It includes the uncertainty about the component and takes the
            fitted parameters as known.
        random_state : int, Generator, RandomState or None
            Seed of the draws.
        out : path of a .npy file, optional
            As for `score_samples`. With `n_draws` the file has shape (n_samples, n_draws, n_features); with
            `return_std` it has shape (n_samples, 2, n_features).

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Observed entries are unchanged. With `n_draws`, of shape (n_draws, n_samples, n_features); with
            `return_std`, two arrays: imputed rows and standard errors.
        """
        check_flag("return_std", return_std)
        check_is_fitted(self)
        if n_draws is None:
            rows = rows_of(self, X, rows_with_errors if return_std else imputed_rows, out=out)
            return (rows[:, 0, :], rows[:, 1, :]) if return_std else rows
        check_integer("n_draws", n_draws, least=1)
        if return_std:
            raise ValueError(
                "return_std=True needs n_draws=None: standard errors are those of the expectation"
            )
        drawn = rows_of(self, X, drawn_tables, int(n_draws), as_generator(random_state), out=out)
        return tables_first(drawn)

    def n_parameters(self):
        """Number of free parameters of the fitted density."""
        check_is_fitted(self)
        structure = self._structure()
        K = structure.n_components
        return structure.n_free_weights + structure.family(None).n_parameters(K, self.n_features_in_)

    bic, aic, icl = criteria.bic, criteria.aic, criteria.icl


def near_data(start: Any, shown_as: str) -> Any:
    """The start, after a check that its means are near the data: far away quadratic forms lose precision."""
    distance = np.max(np.abs(start.components.means))
    if distance > _FARTHEST:
        raise ValueError(
            f"{shown_as} are {distance:.1g} standard deviations away from the data; check their units"
        )
    return start


def example(problem: Problem, structure: Structure) -> Any:
    """Parameters of the right shapes, for reading a checkpoint."""
    here = problem.in_main_memory()
    rows = here.sample()[:2]
    means = np.zeros((structure.n_components, problem.data.n_features))
    labels = np.zeros(len(rows), dtype=int)
    return problem.on_device(here.kernel.from_partition(rows.X, rows.weight, labels, means))


# -- functions of blocks ------------------------------------------------------------------------------


@for_method("score_samples")
def scores(kernel, density, frame, block):
    return log_density(kernel, density, frame.enter(block)) - frame.log_volume(block)


@for_method("predict_proba")
def probabilities(kernel, density, frame, block):
    return responsibilities(kernel, density, frame.enter(block))


@for_method("predict")
def most_probable(kernel, density, frame, block):
    return kernel.most_probable(probabilities(kernel, density, frame, block))


@for_method("impute")
def imputed_rows(kernel, density, frame, block):
    """Rows whose missing entries are replaced by their expectation."""
    if block.observed is None:
        return double(block.X)
    values = kernel.imputed(density, frame.enter(block))
    return namespace(values).where(block.observed, double(block.X), values * frame.scale + frame.shift)


@for_method("impute")
def rows_with_errors(kernel, density, frame, block):
    """(n, 2, D) imputed rows, and the standard deviations of missing entries given the observed ones."""
    xp, X = namespace(block.X), double(block.X)
    if block.observed is None:
        return xp.stack([X, xp.zeros_like(X)], axis=1)
    mean, variance = kernel.moments_of_missing(density, frame.enter(block))
    imputed = xp.where(block.observed, X, mean * frame.scale + frame.shift)
    return xp.stack([imputed, xp.where(block.observed, 0.0, xp.sqrt(variance) * frame.scale)], axis=1)


@for_method("impute")
def drawn_tables(kernel, density, frame, n_draws, rng, block):
    """(n, n_draws, D) rows whose missing entries are drawn."""
    xp, X = namespace(block.X), double(block.X)[:, None, :]
    if block.observed is None:
        return xp.broadcast_to(X, (X.shape[0], n_draws, X.shape[2])) + 0.0
    framed = frame.enter(block)
    values = like(kernel.drawn(density, framed, n_draws, rng), framed.X)
    return xp.where(block.observed[:, None, :], X, values * frame.scale + frame.shift)


def tables_first(drawn):
    """(n_draws, n, D) from (n, n_draws, D), of NumPy, torch or Dask."""
    return (
        drawn.swapaxes(0, 1)
        if hasattr(drawn, "swapaxes")
        else namespace(drawn).permute_dims(drawn, (1, 0, 2))
    )
