"""Factorisations with binary latent units: binary NMF, and binary sparse coding."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, DensityMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import is_floating, like, namespace, to_numpy, zeros
from latently.core.drivers import LOG_LIKELIHOOD, best_start, em_step, relative
from latently.core.tree import mapped
from latently.distributions.binary_causes import (
    BinaryCauses,
    CauseParams,
    GaussianNoise,
    PoissonNoise,
    activations,
    best_codes,
    log_density,
    n_states,
)
from latently.estimators import criteria, fitting
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_matrix,
    check_non_negative,
    check_number,
    check_positive,
    check_weights,
    real_array,
)
from latently.estimators.data import identity_in_order
from latently.estimators.fitting import FitOptions
from latently.estimators.kernel_models import KernelEstimator
from latently.estimators.memory import check_draws
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.estimators.randomness import as_generator, as_random_state
from latently.estimators.rejection import Rejecting
from latently.estimators.rows import for_method, in_main_memory, rows_of
from latently.estimators.starts import SHORT_RUN
from latently.factorization.candidates import Candidates, WithCandidates

_MOST_STATES = 2**18  # that are tabulated
_FEWEST_CANDIDATES = 8
_STARTS = 8
_ROWS_FOR_NMF = 2000
_FARTHEST = 1e6  # from the origin, in units of the spread of the rows
_RESOLVED = 16 * float(np.finfo(np.float64).eps)
_RULES = ("proper", "conditional", "source")


def _check_candidates(name, value):
    if value is not None:
        check_integer(name, value, least=1, or_else="auto")


def _check_probability(name, array):
    if not np.all((array > 0) & (array < 1)):
        raise ValueError(f"{name} must lie between 0 and 1")
    return array


@estimator
class _BinaryFactorization(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, DensityMixin, Rejecting, KernelEstimator
):
    """Everything but the noise; a concrete model implements `_noise`.

    Parameters
    ----------
    truncation : int, optional
        Maximum number of units that may be on in a row. By default all states are used, which is feasible for
        a dozen units.
    truncation_rule : {"proper", "conditional", "source"}, default="proper"
        The objective under truncation. "proper": a lower bound of the likelihood, the sum over the remaining
        states. "conditional": the likelihood under a prior restricted to the remaining states, which is
        correct if no row has more active units. "source": posteriors normalised over states with one more
        unit, as in the original publication, so that rows with too many active units get less weight; its
        objective may decrease.
    candidates : int, "auto" or None, default="auto"
        Number of units of each row that may be on under truncation, for models with many units. They are
        selected by how strongly they are present in the row, and updated from time to time in rows whose
        objective increases. "auto" is None (all units) as long as these have few states.
    per_unit : bool, default=False
        Whether each unit has its own activation probability.
    annealing : int, default=0
        Number of EM steps after each start with noise on the weights that decreases to zero.
    n_init : int or "auto", default="auto"
        Number of random starts. After a few EM steps on a sample of the rows the better half continues, and
        so on until one is left. "auto" is 8.
    components_init, activation_probability_init, noise_init : array-like, optional
        Starting values in the shape of the fitted attributes, or anything that broadcasts to it. They replace
        the computed starting values; if all are given, EM starts from exactly these.

    Attributes
    ----------
    n_iter_ : int
        EM steps taken.
    n_passes_ : int
        Passes over the data in these steps; with "squarem" a step takes up to three.
    converged_ : bool
    history_ : ndarray of shape (n_iter + 1,)
        Objective per row at the starting values and after every step: the log-likelihood, or under truncation
        the objective of `truncation_rule`. Except for the rule "source" it never decreases.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    truncation: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    truncation_rule: str = option(default="proper", check=check_choice, choices=_RULES)
    candidates: Any = option(default="auto", check=_check_candidates)
    per_unit: bool = option(default=False, check=check_flag)
    annealing: int = option(default=0, check=check_integer, least=0)
    components_init: Any = None
    activation_probability_init: Any = None

    objective = replace(LOG_LIKELIHOOD, name="objective per row")  # under truncation a bound

    bic, aic = criteria.bic, criteria.aic

    def _noise(self, summary):
        """The noise model for rows with these moments, or of a fitted model if `summary` is None."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    @property
    def _n_features_out(self):
        return self.n_components

    def _check_options(self):
        super()._check_options()
        truncated = self.truncation is not None and self.truncation < self.n_components
        if self.per_unit and truncated and self.truncation_rule != "proper":
            raise ValueError('per_unit needs truncation_rule="proper"')
        given = self.candidates is not None and self.candidates != "auto"
        if given and self.truncation is not None and self.candidates < self.truncation:
            raise ValueError(
                f"candidates={self.candidates} must not be smaller than truncation={self.truncation}"
            )
        if self._n_candidates() is not None and self.truncation_rule == "source":
            raise ValueError('candidates cannot be used with truncation_rule="source"')
        if self._n_candidates() is None:
            most = self.n_components if self.truncation is None else self.truncation + 1
            self._check_listable(most, "set `truncation`, or a smaller one")

    def _n_candidates(self):
        """The number of candidate units per row; None if the states of all units are listed."""
        if self.truncation is None or self.candidates is None:
            return None
        if self.candidates != "auto":
            return self.candidates if self.candidates < self.n_components else None
        chosen = min(self.n_components, max(_FEWEST_CANDIDATES, 2 * self.truncation + 2))
        D = getattr(self, "n_features_in_", 1)
        # measured cost in nanoseconds per row: of states shared by all rows, and of states of single rows
        listed = n_states(self.n_components, self.truncation)
        listing_is_dearer = 13 * D * n_states(chosen, self.truncation) < (6 + 0.08 * D) * listed
        return chosen if (listing_is_dearer or listed > _MOST_STATES) and chosen < self.n_components else None

    def _check_listable(self, most_on, cure):
        if n_states(self.n_components, most_on) > _MOST_STATES:
            raise ValueError(
                f"n_components={self.n_components} units have {n_states(self.n_components, most_on)} states, "
                f"too many to enumerate; {cure}"
            )

    # -- fitting --------------------------------------------------------------------------------------

    def _result(self, problem):
        by_rows = problem.kernel.candidates is not None and self.batch_size is None
        # mini-batches select candidates at every visit of a row
        return self._with_candidates(problem) if by_rows else super()._result(problem)

    def _with_candidates(self, problem):
        """EM with candidates that are kept between iterations."""
        identity = "" if self.checkpoint is None else identity_in_order(problem.data, self.block_size)
        options = FitOptions.of(self, identity)
        candidates = Candidates(problem, options.stop, self.accelerate == "squarem", options.passes)

        def start(progress):
            params, interrupted = self._start(problem, progress)
            return candidates.start(params), interrupted

        def example():
            allowed = np.zeros((problem.data.count_rows(), self.n_components), dtype=bool)
            return WithCandidates(self._example(problem), allowed)

        result = fitting.fit(candidates.step(), start, options, example=example)
        self.n_passes_ = options.passes.count
        return replace(result, params=result.params.params)

    def _kernel(self, summary=None):
        return BinaryCauses(
            self.n_components,
            self._noise(summary),
            truncation=self.truncation,
            rule=self.truncation_rule,
            per_unit=bool(self.per_unit),
            candidates=self._n_candidates(),
        )

    def _own_start(self, problem, given, progress):
        here = problem.in_main_memory()
        sample = here.sample()
        rng = as_random_state(self.random_state)
        n_init = _STARTS if self.n_init == "auto" else self.n_init
        starts = (here.kernel.clamped(self._random_start(sample, rng, i, given)) for i in range(n_init))
        if progress:
            starts = progress.starts(starts)
        kernel = replace(problem.kernel, chosen_anew=problem.kernel.candidates is not None)
        step = em_step(kernel, problem.sweep_of_sample(sample))
        starts = (self._annealed(step, problem.on_device(start), rng) for start in starts)
        return best_start(step, starts, n_steps=2 * SHORT_RUN, stop=relative(self.tol))

    def _random_start(self, sample, rng, i, given):
        """Alternates between components from NMF, parts of rows, and random weights around the mean row."""
        H, X, weight = self.n_components, sample.X, sample.weight
        share = weight / weight.sum()
        mean, on = share @ X, min(0.5, max(1.0 / H, 0.2))
        W = mean / (on * H) * rng.uniform(0.2, 1.8, size=(H, X.shape[1]))
        if i % 2 == 0 and np.all(X >= 0):
            rows = rng.choice(len(X), size=min(len(X), _ROWS_FOR_NMF), p=share)
            W = 0.01 * W + self._parts_of_nmf(X[rows], rng)
        elif i % 4 == 1:
            W = 0.5 * W + 0.5 * X[rng.choice(len(X), size=H, p=share)]
        activation = np.full((H,) if self.per_unit else (), on)
        ours = {"components": W, "activation_probability": activation}
        ours |= self._more_starts(sample)
        return self._to_kernel({**ours, **given})

    def _parts_of_nmf(self, X, rng):
        """(H, D) components of an NMF, scaled to their strength in rows where they are strong."""
        from sklearn.decomposition import NMF  # here, because it takes a tenth of a second

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            seed = rng.randint(2**31 - 1)
            nmf = NMF(self.n_components, init="random", max_iter=60, tol=1e-3, random_state=seed)
            strengths = nmf.fit_transform(X)
        strong = strengths >= 0.5 * strengths.max(axis=0)
        typical = np.sum(strengths * strong, axis=0) / np.maximum(strong.sum(axis=0), 1)
        return nmf.components_ * typical[:, None]

    def _more_starts(self, sample):
        return {}

    def _annealed(self, step, params, rng):
        """Parameters after `annealing` EM steps with noise on the weights that decreases to zero."""
        for i in range(self.annealing):
            params = step(params).next_params()
            size = 0.5 * (1.0 - (i + 1) / self.annealing)
            W = to_numpy(params.components)
            noise = np.exp(size * rng.standard_normal(W.shape) - 0.5 * size**2)
            params = replace(params, components=like(W * noise, params.components))
        return params

    # -- parameters in and out ------------------------------------------------------------------------

    def _parameters(self):
        shape = ("H",) if self.per_unit else ()
        return (
            Parameter("components", "components_init", ("H", "D")),
            Parameter(
                "activation_probability", "activation_probability_init", shape, check=_check_probability
            ),
        )

    def _sizes(self, n_features):
        return {"H": self.n_components, "D": n_features}

    def _to_kernel(self, fitted):
        probability = fitted["activation_probability"]
        by_unit = probability if self.per_unit else zeros((self.n_components,), probability) + probability
        return CauseParams(fitted["components"], by_unit)

    def _from_kernel(self, params):
        pi = params.activation
        return {"components": params.components, "activation_probability": pi if self.per_unit else pi[0]}

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """Posterior probability of each unit to be on, (n_samples, n_components)."""
        return rows_of(self, X, probabilities_on, out=out)

    def predict_codes(self, X, *, out=None):
        """Most probable state of the units for each row, (n_samples, n_components) of zeros and ones."""
        return rows_of(self, X, codes, out=out)

    def reconstruct(self, X, *, out=None):
        """Noise-free rows: their posterior expectation, (n_samples, n_features)."""
        return rows_of(self, X, expected, out=out)

    def inverse_transform(self, X):
        """Expected rows for given units, (n_samples, n_features); X may hold probabilities."""
        check_is_fitted(self)
        S = real_array("X", X, dtype=np.float64)
        if S.shape[1] != self.n_components:
            raise ValueError(
                f"X has {S.shape[1]} columns, but the model has n_components={self.n_components}"
            )
        return S @ to_numpy(self.components_)

    def score_samples(self, X, *, out=None):
        """Log density of each row, summed over all states of the units.

        For the rule "conditional" the prior is restricted to the states within the truncation. If there are
        too many states to enumerate, an error is raised; use `bound`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        has_all = self.truncation is None or self.truncation_rule != "conditional"
        most = self.n_components if has_all else self.truncation
        self._check_listable(most, "score_samples sums over all states; use `bound`")
        return rows_of(self, X, exact_scores, out=out)

    def bound(self, X, *, out=None):
        """The objective of the fit for each row, (n_samples,).

        Without truncation it is the log density; with the rule "proper" it is a lower bound of it.
        """
        return rows_of(self, X, objectives, out=out)

    def score(self, X, y=None, sample_weight=None):
        """Mean of `bound` over the rows, weighted if `sample_weight` is given."""
        scores = in_main_memory(self.bound(X))
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, len(scores))
        return float(np.average(scores, weights=sample_weight))

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
        codes : ndarray of shape (n_samples, n_components)
            The units that were on.
        """
        fitted = self._fitted_model()
        check_draws(self, n_samples)
        drawn = fitted.kernel.sample(mapped(to_numpy, fitted.params), n_samples, as_generator(random_state))
        return tuple(like(array, fitted.place) for array in drawn)

    def n_parameters(self):
        """Number of free parameters: weights and activation probabilities."""
        check_is_fitted(self)
        return self.n_components * self.n_features_in_ + (self.n_components if self.per_unit else 1)


@estimator
class BNMF(_BinaryFactorization):
    """Binary NMF: counts as sums of binary causes.

    Each of H units is on with probability pi, s_h ~ Bernoulli(pi), and x_d ~ Poisson(sum_h s_h w_hd): parts
    are present or absent, while in NMF they have any strength. Fitted by EM over the states of the units, all
    2^H or, with `truncation`, those with few units on.

    Parameters
    ----------
    n_components : int, default=1
        Number of units H.
    m_step : {"exact", "least_squares"}, default="exact"
        Update of the weights: the exact EM step, which never decreases the likelihood, or least squares with
        negative weights set to zero, as in the original publication.
    weight_floor : float, default=1e-6
        Lower bound of the weights, as a fraction of the mean of X, so that every count has non-zero
        probability.
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    activation_probability_ : float, or ndarray of shape (n_components,) with `per_unit`
    {attributes}

    Examples
    --------
    >>> from latently.datasets import load_bars
    >>> from latently.factorization import BNMF
    >>> bars = load_bars(size=4, n_samples=500, random_state=0)
    >>> model = BNMF(n_components=8, random_state=0).fit(bars.X)
    >>> model.predict_codes(bars.X).shape
    (500, 8)
    """

    _: KW_ONLY
    m_step: str = option(default="exact", check=check_choice, choices=("exact", "least_squares"))
    weight_floor: float = option(default=1e-6, check=check_number, least=0)

    @classmethod
    def from_parameters(cls, *, components, activation_probability, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        check_matrix("components", components)
        options = {"per_unit": np.ndim(activation_probability) == 1, **options}
        model = cls(len(components), **options)
        return model._with_parameters(components=components, activation_probability=activation_probability)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _parameters(self):
        components, probability = super()._parameters()
        return replace(components, check=check_non_negative), probability

    def _noise(self, summary):
        return PoissonNoise(least_squares=self.m_step == "least_squares")

    def _problem(self, data):
        problem = super()._problem(data)
        xp = namespace(problem.summary.mean)
        floor = self.weight_floor * float(xp.mean(problem.summary.mean))
        return replace(problem, kernel=replace(problem.kernel, floor=floor))

    def _check_rows(self, data, summary):
        sweep = data.sweep(None, floats_per_row=3 * data.n_features, block_size=self.block_size)
        found = sweep.reduce(kinds_of_values, worse)
        if found.lowest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: X must hold counts, but its "
                f"smallest entry is {found.lowest:.6g}"
            )
        if found.fractions:
            warn_user(
                "X holds numbers that are not counts, for which the Poisson formula is not a density; round "
                "X if log-likelihoods matter"
            )


@estimator
class BinarySparseCoding(_BinaryFactorization):
    """Binary sparse coding: rows as sums of binary causes, with Gaussian noise.

    Each of H units is on with probability pi, and x ~ N(sum_h s_h w_h, sigma^2 I). The counterpart of `BNMF`
    for data that are not counts; weights may be negative.

    Parameters
    ----------
    n_components : int, default=1
        Number of units H.
    noise_floor : float, default=1e-6
        Lower bound of the noise variance, as a fraction of the mean variance of the features. It is never
        less than 4e-15 of the mean square of X, below which float64 has no digits.
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    activation_probability_ : float, or ndarray of shape (n_components,) with `per_unit`
    noise_variance_ : float
    {attributes}

    Examples
    --------
    >>> from latently.datasets import load_bars
    >>> from latently.factorization import BinarySparseCoding
    >>> bars = load_bars(size=4, n_samples=500, random_state=0)
    >>> model = BinarySparseCoding(n_components=8, random_state=0).fit(bars.X)
    >>> model.transform(bars.X).shape
    (500, 8)
    """

    _: KW_ONLY
    noise_floor: float = option(default=1e-6, check=check_number, least=0)
    noise_init: Any = None

    @classmethod
    def from_parameters(cls, *, components, activation_probability, noise_variance, **options):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        check_matrix("components", components)
        options = {"per_unit": np.ndim(activation_probability) == 1, **options}
        model = cls(len(components), **options)
        return model._with_parameters(
            components=components,
            activation_probability=activation_probability,
            noise_variance=noise_variance,
        )

    def _parameters(self):
        return *super()._parameters(), Parameter("noise_variance", "noise_init", (), check=check_positive)

    def _noise(self, summary):
        if summary is None:
            return GaussianNoise()
        xp = namespace(summary.deviation)
        variance = float(xp.mean(summary.deviation**2))
        # the noise is a difference of mean squares, of which float64 has no more digits
        resolved = _RESOLVED * (variance + float(xp.mean(summary.mean**2)))
        return GaussianNoise(max(self.noise_floor * (variance or 1.0), resolved))

    def _check_rows(self, data, summary):
        """Refuse rows so far from the origin, which is the model's own, that squared distances are noise."""
        xp = namespace(summary.mean)
        spread = float(xp.mean(summary.deviation**2)) ** 0.5
        far = float(xp.max(xp.abs(summary.mean)))
        if 0 < spread < far / _FARTHEST:
            raise ValueError(
                f"X is {far / spread:.2g} times farther from zero than its rows differ, which float64 cannot "
                "resolve without a mean of its own; subtract the means of the columns from X"
            )

    def _more_starts(self, sample):
        weight = sample.weight / sample.weight.sum()
        variance = float(np.mean(weight @ (sample.X - weight @ sample.X) ** 2))
        return {"noise_variance": np.float64(variance or 1.0)}

    def _to_kernel(self, fitted):
        return replace(super()._to_kernel(fitted), noise_variance=fitted["noise_variance"])

    def _from_kernel(self, params):
        return super()._from_kernel(params) | {"noise_variance": params.noise_variance}

    def n_parameters(self):
        """Number of free parameters: weights, activation probabilities and the noise variance."""
        return super().n_parameters() + 1


# -- functions of blocks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    lowest: float
    fractions: bool  # whether any is not an integer


def kinds_of_values(block):
    xp = namespace(block.X)
    seen = block.X if block.observed is None else xp.where(block.observed, block.X, 0)
    fractions = is_floating(seen) and bool(xp.any(seen != xp.round(seen)))
    return Values(float(xp.min(seen)), fractions)


def worse(a, b):
    return Values(min(a.lowest, b.lowest), a.fractions or b.fractions)


@for_method("transform")
def probabilities_on(kernel, density, frame, block):
    return activations(kernel, density, frame.enter(block))


@for_method("predict_codes")
def codes(kernel, density, frame, block):
    return best_codes(kernel, density, frame.enter(block))


@for_method("reconstruct")
def expected(kernel, density, frame, block):
    return activations(kernel, density, frame.enter(block)) @ density.params.components


@for_method("bound")
def objectives(kernel, density, frame, block):
    return log_density(kernel, density, frame.enter(block))


@for_method("score_samples")
def exact_scores(kernel, density, frame, block):
    every = kernel.exact()
    return log_density(every, every.prepare(density.params), frame.enter(block))
