"""Factorisations with causes that are on or off: binary NMF, and binary sparse coding."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from latently.backend.namespace import is_floating, like, namespace, to_numpy, zeros
from latently.core.drivers import Passes, State, best_start, em_step, relative, run
from latently.core.frame import Frame
from latently.core.squarem import squarem
from latently.core.stepwise import Online
from latently.core.summary import Summary
from latently.core.tree import mapped
from latently.distributions.binary_causes import (
    BinaryCauses,
    CauseParams,
    GaussianNoise,
    PoissonNoise,
    activations,
    best_codes,
    better_candidates,
    log_density,
    n_states,
)
from latently.mixture._docs import shares_docs
from latently.mixture._engine import EMEstimator, for_method, in_main_memory
from latently.mixture._problem import Problem
from latently.mixture._starts import SHORT_RUN
from latently.mixture._validation import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_same_device,
    check_weights,
    numbers,
    parameter,
)

_MOST_STATES = 2**18  # of which a table is made
_FEWEST_CANDIDATES = 8
_ROUND = 10  # iterations until candidates are chosen anew
_STARTS = 8
_ROWS_FOR_NMF = 2000
_RULES = ("proper", "conditional", "source")


class _BinaryFactorization(ClassNamePrefixFeaturesOutMixin, TransformerMixin, EMEstimator):
    """What the two share: all but the noise."""

    _OBJECTIVE: ClassVar = "objective per row"  # under truncation a bound

    def __init__(self, *, n_components, truncation, truncation_rule, candidates, per_unit, annealing, **rest):
        super().__init__(**rest)
        self.n_components = n_components
        self.truncation = truncation
        self.truncation_rule = truncation_rule
        self.candidates = candidates
        self.per_unit = per_unit
        self.annealing = annealing

    def _noise(self, summary):
        raise NotImplementedError

    # -- using a fitted model -----------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """Posterior probability of each unit to be on, (n_samples, n_components)."""
        return self._rows_of(X, probabilities_on, out=out)

    def predict_codes(self, X, *, out=None):
        """The most probable state of the units of each row, (n_samples, n_components) of zeros and ones."""
        return self._rows_of(X, codes, out=out)

    def reconstruct(self, X, *, out=None):
        """The rows without their noise: what is expected of them, (n_samples, n_features)."""
        return self._rows_of(X, expected, out=out)

    def inverse_transform(self, X):
        """Expected rows for given units, (n_samples, n_features); X may hold probabilities."""
        check_is_fitted(self)
        S = check_array(X, dtype=np.float64, input_name="X")
        if S.shape[1] != self.n_components:
            raise ValueError(
                f"X has {S.shape[1]} columns, but there are n_components={self.n_components} units"
            )
        return S @ to_numpy(self.components_)

    def score_samples(self, X, *, out=None):
        """Log density of each row, over all states of the units that the model has.

        These are all, but for the rule "conditional", whose prior has none beyond the truncation. Where
        there are too many to be listed, there is only `bound`.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        has_all = self.truncation is None or self.truncation_rule != "conditional"
        most = self.n_components if has_all else self.truncation
        self._check_listable(most, "score_samples adds up all states; use `bound`")
        return self._rows_of(X, exact_scores, out=out)

    def bound(self, X, *, out=None):
        """What the fit maximises, for each row: the log density, or what truncation leaves, (n_samples,).

        With the rule "proper" it is a lower bound of the log density.
        """
        return self._rows_of(X, objectives, out=out)

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

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        codes : ndarray of shape (n_samples, n_components)
            The units that were on.
        """
        return super().sample(n_samples, random_state=random_state)

    @property
    def _n_features_out(self):
        return self.n_components

    # -- for the engine -----------------------------------------------------------------------------

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        if self.truncation is not None:
            check_integer("truncation", self.truncation, least=1)
        check_choice("truncation_rule", self.truncation_rule, _RULES)
        check_flag("per_unit", self.per_unit)
        check_integer("annealing", self.annealing, least=0)
        truncated = self.truncation is not None and self.truncation < self.n_components
        if self.per_unit and truncated and self.truncation_rule != "proper":
            raise ValueError('per_unit needs truncation_rule="proper"')
        if not (self.candidates is None or self.candidates == "auto"):
            check_integer("candidates", self.candidates, least=1, or_else="auto")
            if self.truncation is not None and self.candidates < self.truncation:
                raise ValueError(
                    f"candidates={self.candidates} must not be fewer than truncation={self.truncation}"
                )
        if self._n_candidates() is not None and self.truncation_rule == "source":
            raise ValueError('candidates need another truncation_rule than "source"')
        if self._n_candidates() is None:
            most = self.n_components if self.truncation is None else self.truncation + 1
            self._check_listable(most, "set `truncation`, or a smaller one")

    def _n_candidates(self):
        """How many units of a row may be on; None if states are listed for all."""
        if self.truncation is None or self.candidates is None:
            return None
        if self.candidates != "auto":
            return self.candidates if self.candidates < self.n_components else None
        chosen = min(self.n_components, max(_FEWEST_CANDIDATES, 2 * self.truncation + 2))
        D = getattr(self, "n_features_in_", 1)
        # in nanoseconds a row, measured: of states that all rows share, and of those a row has to itself
        listed = n_states(self.n_components, self.truncation)
        listing_is_dearer = 13 * D * n_states(chosen, self.truncation) < (6 + 0.08 * D) * listed
        return chosen if (listing_is_dearer or listed > _MOST_STATES) and chosen < self.n_components else None

    def _check_listable(self, most_on, cure):
        if n_states(self.n_components, most_on) > _MOST_STATES:
            raise ValueError(
                f"n_components={self.n_components} units have {n_states(self.n_components, most_on)} states, "
                f"more than can be listed; {cure}"
            )

    def _shared_state(self, activation):
        """(H,) of what users see, which is a number if it is the same for all."""
        return activation if self.per_unit else zeros((self.n_components,), activation) + activation

    def _kernel(self, noise=None):
        return BinaryCauses(
            self.n_components,
            self._noise(None) if noise is None else noise,
            truncation=self.truncation,
            rule=self.truncation_rule,
            per_unit=bool(self.per_unit),
            candidates=self._n_candidates(),
        )

    def _frame(self, kernel, params):
        return self._same(self._placed())

    @staticmethod
    def _same(array):
        """The frame in which rows stay as they are."""
        xp = namespace(array)
        zeros = xp.zeros_like(array[0, :])
        return Frame(zeros, zeros + 1.0)

    def _problem(self, data):
        sweep, summary = self._summarised(data)
        self._check_values(sweep)
        frame = self._same(summary.mean[None, :])
        kernel = self._kernel(self._noise(summary))
        return Problem(kernel, data, frame, summary, self.n_components, self.block_size)

    def _check_values(self, sweep):
        """Whether the noise can have made such rows."""

    def _problem_of_model(self, data):
        check_same_device(f"{type(self).__name__}.partial_fit", data, self._placed())
        frame = self._same(self._placed())
        summary = Summary.of_moments(frame.shift, frame.scale)
        return Problem(self._kernel(), data, frame, summary, self.n_components, self.block_size)

    def _start(self, problem, progress=None):
        D = problem.data.n_features
        if self.warm_start and hasattr(self, "history_"):
            self._check_shapes(D, "warm_start")
            return problem.on_device(problem.kernel.clamped(self._parameters_in_main_memory())), False
        given = self._given_starts(D)
        if len(given) == len(self._PARAMETERS):
            return problem.on_device(problem.kernel.clamped(self._to_kernel(given))), False
        sample = self._sample(problem)
        rng = check_random_state(self.random_state)
        n_init = _STARTS if self.n_init == "auto" else self.n_init
        starts = (self._random_start(sample, rng, i, given) for i in range(n_init))
        if progress:
            starts = progress.starts(starts)
        kernel = replace(problem.kernel, chosen_anew=problem.kernel.candidates is not None)
        step = em_step(kernel, problem.sweep_of_sample(sample))
        starts = (self._annealed(step, problem.on_device(start), rng) for start in starts)
        return best_start(step, starts, n_steps=2 * SHORT_RUN, stop=relative(self.tol))

    @staticmethod
    def _sample(problem):
        """The rows that starts look at, in main memory."""
        return replace(problem, frame=mapped(to_numpy, problem.frame)).sample()

    def _random_start(self, sample, rng, i, given):
        """In turn the parts that NMF finds, parts of rows, and chance about the mean row."""
        H, X, weight = self.n_components, sample.X, sample.weight
        share = weight / weight.sum()
        mean, on = share @ X, min(0.5, max(1.0 / H, 0.2))
        W = mean / (on * H) * rng.uniform(0.2, 1.8, size=(H, X.shape[1]))
        if i % 2 == 0 and np.all(X >= 0):
            W = 0.01 * W + self._parts(X[rng.choice(len(X), size=min(len(X), _ROWS_FOR_NMF), p=share)], rng)
        elif i % 4 == 1:
            W = 0.5 * W + 0.5 * X[rng.choice(len(X), size=H, p=share)]
        activation = np.full(self._shapes(0)["activation_probability"], on)
        ours = {"components": W, "activation_probability": activation}
        ours |= self._more_starts(sample)
        return self._kernel().clamped(self._to_kernel({**ours, **given}))

    def _parts(self, X, rng):
        """(H, D) the parts of an NMF, as strong as they are where they are strong."""
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

    def _by_em(self, problem, checkpoint, progress, callbacks):
        """In rounds, between which candidates are chosen anew if there are such."""
        if problem.kernel.candidates is None:
            return super()._by_em(problem, checkpoint, progress, callbacks)
        if checkpoint:
            raise ValueError("checkpoint needs candidates=None: chosen candidates are not kept in it")
        start, interrupted = self._start(problem, progress)
        passes, state, max_iter = Passes(), State.at(start), 0 if interrupted else self.max_iter
        while True:
            before = state.history[-1] if state.history else -np.inf
            problem = self._with_candidates(problem, state.params)
            step = passes.counted(problem.step())
            step = squarem(step, problem.kernel) if self.accelerate == "squarem" else step
            result = run(
                step,
                state,
                max_iter=min(max_iter, state.n_iter + _ROUND),
                stop=relative(self.tol),
                callbacks=callbacks,
            )
            settled = relative(self.tol)(result.history[-1], result.history[-1] - before)
            ended_early = result.n_iter < min(max_iter, state.n_iter + _ROUND) and not result.converged
            if settled or ended_early or result.interrupted or result.n_iter >= max_iter:
                self.n_passes_ = passes.count
                return replace(result, converged=settled, interrupted=result.interrupted or interrupted)
            state = result.state()

    def _with_candidates(self, problem, params):
        density = problem.kernel.prepare(params)
        chosen = problem.sweep().rows(better_candidates, problem.kernel, density)
        allowed = in_main_memory(problem.data.collected(chosen, None))
        return replace(problem, data=problem.data.with_allowed(allowed))

    def _annealed(self, step, params, rng):
        """After `annealing` EM steps with noise on the weights that goes to zero."""
        for i in range(self.annealing):
            params = step(params).next_params()
            size = 0.5 * (1.0 - (i + 1) / self.annealing)
            W = to_numpy(params.components)
            noise = np.exp(size * rng.standard_normal(W.shape) - 0.5 * size**2)
            params = CauseParams(like(W * noise, params.components), params.activation, params.noise_variance)
        return params

    def _example(self, problem):
        sample = self._sample(problem)
        rng = np.random.RandomState(0)
        params = self._random_start(sample[: max(1, min(2, len(sample)))], rng, 0, {})
        sweep = problem.sweep_of_sample(sample)
        return Online(problem.on_device(params), None).step(problem.kernel, sweep, **self._learning())[0]

    def _shapes(self, D):
        H = self.n_components
        return {"components": (H, D), "activation_probability": (H,) if self.per_unit else ()}

    def _to_kernel(self, fitted):
        return CauseParams(fitted["components"], self._shared_state(fitted["activation_probability"]))

    def _from_kernel(self, params):
        pi = params.activation
        return {"components": params.components, "activation_probability": pi if self.per_unit else pi[0]}

    def _validated(self, name, value, D, shown_as):
        array = parameter(shown_as, value, self._shapes(D)[name])
        if name == "activation_probability" and not np.all((array > 0) & (array < 1)):
            raise ValueError(f"{shown_as} must lie between 0 and 1")
        return array

    def _n_features_of(self, given):
        components = numbers("components", given["components"])
        if components.ndim != 2 or components.shape[1] == 0:
            raise ValueError("components must have shape (n_components, n_features)")
        return components.shape[1]

    def n_parameters(self):
        """Number of free parameters: weights, and probabilities of the units."""
        check_is_fitted(self)
        return self.n_components * self.n_features_in_ + (self.n_components if self.per_unit else 1)


@shares_docs
class BNMF(_BinaryFactorization):
    """Binary NMF: counts as sums of causes that are on or off.

    Each of H units is on with probability pi, s_h ~ Bernoulli(pi), and x_d ~ Poisson(sum_h s_h w_hd): parts
    that are there or not, as against NMF's parts of any strength. Fitted by EM over the states of the units,
    all 2^H or, with `truncation`, those with few units on.

    Parameters
    ----------
    n_components : int, default=1
        Number of units H.
    truncation : int, optional
        Most units that may be on at once in a row. Without it all states count, which will do for a dozen
        units.
    truncation_rule : {"proper", "conditional", "source"}, default="proper"
        What is maximised under truncation. "proper": a lower bound of the likelihood, the sum over the states
        left. "conditional": the likelihood of a prior that has no other states, which is right if no row has
        more causes. "source": posteriors that are normalised over states with one unit more, as in the source
        of the model, so that rows with too many causes count less; its objective may fall.
    candidates : int, "auto" or None, default="auto"
        Under truncation, units of each row that may be on, chosen by how much of them is there: for many
        units. They are chosen anew now and then, for rows to which that gives a higher objective. "auto" is
        None, all units, as long as these have few states.
    m_step : {"exact", "least_squares"}, default="exact"
        How weights move: by the step of EM, which never lowers the likelihood, or by least squares with
        negative weights set to zero, as in the source.
    per_unit : bool, default=False
        Whether each unit has a probability of its own.
    weight_floor : float, default=1e-6
        No weight falls below this fraction of the mean of X, so that no count is impossible.
    annealing : int, default=0
        Noisy EM steps after each start, with noise on the weights that goes to zero.
    {shared}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    activation_probability_ : float, or ndarray of shape (n_components,) with `per_unit`
    {fitted}

    Examples
    --------
    >>> from latently.datasets import load_bars
    >>> from latently.factorization import BNMF
    >>> bars = load_bars(size=4, n_samples=500, random_state=0)
    >>> model = BNMF(n_components=8, random_state=0).fit(bars.X)
    >>> model.predict_codes(bars.X).shape
    (500, 8)
    """

    _PARAMETERS: ClassVar = {
        "components": "components_init",
        "activation_probability": "activation_probability_init",
    }

    def __init__(
        self,
        n_components=1,
        *,
        truncation=None,
        truncation_rule="proper",
        candidates="auto",
        m_step="exact",
        per_unit=False,
        weight_floor=1e-6,
        annealing=0,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        components_init=None,
        activation_probability_init=None,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_components=n_components,
            truncation=truncation,
            truncation_rule=truncation_rule,
            candidates=candidates,
            per_unit=per_unit,
            annealing=annealing,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.m_step = m_step
        self.weight_floor = weight_floor
        self.components_init = components_init
        self.activation_probability_init = activation_probability_init

    @classmethod
    def from_parameters(cls, *, components, activation_probability, truncation=None):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        model = cls(len(components), truncation=truncation, per_unit=np.ndim(activation_probability) == 1)
        model._check_hyperparameters()
        return model._set_parameters(components=components, activation_probability=activation_probability)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_choice("m_step", self.m_step, ("exact", "least_squares"))
        check_number("weight_floor", self.weight_floor, least=0)

    def _noise(self, summary):
        return PoissonNoise(least_squares=self.m_step == "least_squares")

    def _kernel(self, noise=None, floor=0.0):
        return replace(super()._kernel(noise), floor=floor)

    def _problem(self, data):
        problem = super()._problem(data)
        xp = namespace(problem.summary.mean)
        floor = self.weight_floor * float(xp.mean(problem.summary.mean))
        return replace(problem, kernel=replace(problem.kernel, floor=floor))

    def _check_values(self, sweep):
        found = sweep.reduce(kinds_of_values, worse)
        if found.lowest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: X must hold counts, but its "
                f"smallest entry is {found.lowest:.6g}"
            )
        if found.fractions:
            warnings.warn(
                "X holds numbers that are no counts, for which Poisson's formula is not a density; round X "
                "if log-likelihoods matter",
                UserWarning,
                stacklevel=5,  # where `fit` was called
            )

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name == "components" and np.any(array < 0):
            raise ValueError(f"{shown_as} must not be negative; its smallest entry is {array.min():.6g}")
        return array


@shares_docs
class BinarySparseCoding(_BinaryFactorization):
    """Binary sparse coding: rows as sums of causes that are on or off, with Gaussian noise.

    Each of H units is on with probability pi, and x ~ N(sum_h s_h w_h, sigma^2 I). The relative of `BNMF` for
    data that are not counts; weights may be negative.

    Parameters
    ----------
    n_components : int, default=1
        Number of units H.
    truncation : int, optional
        Most units that may be on at once in a row. Without it all states count.
    truncation_rule : {"proper", "conditional", "source"}, default="proper"
        What is maximised under truncation; see `BNMF`.
    candidates : int, "auto" or None, default="auto"
        Units of each row that may be on, under truncation; see `BNMF`.
    per_unit : bool, default=False
        Whether each unit has a probability of its own.
    noise_floor : float, default=1e-6
        The noise variance does not fall below this fraction of the mean variance of the features.
    annealing : int, default=0
        Noisy EM steps after each start, with noise on the weights that goes to zero.
    {shared}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
    activation_probability_ : float, or ndarray of shape (n_components,) with `per_unit`
    noise_variance_ : float
    {fitted}

    Examples
    --------
    >>> from latently.datasets import load_bars
    >>> from latently.factorization import BinarySparseCoding
    >>> bars = load_bars(size=4, n_samples=500, random_state=0)
    >>> model = BinarySparseCoding(n_components=8, random_state=0).fit(bars.X)
    >>> model.transform(bars.X).shape
    (500, 8)
    """

    _PARAMETERS: ClassVar = {
        "components": "components_init",
        "activation_probability": "activation_probability_init",
        "noise_variance": "noise_init",
    }

    def __init__(
        self,
        n_components=1,
        *,
        truncation=None,
        truncation_rule="proper",
        candidates="auto",
        per_unit=False,
        noise_floor=1e-6,
        annealing=0,
        max_iter=1000,
        tol=5e-8,
        n_init="auto",
        components_init=None,
        activation_probability_init=None,
        noise_init=None,
        accelerate="squarem",
        batch_size=None,
        learning_decay=0.7,
        learning_offset=10.0,
        checkpoint=None,
        checkpoint_every=10,
        block_size=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        super().__init__(
            n_components=n_components,
            truncation=truncation,
            truncation_rule=truncation_rule,
            candidates=candidates,
            per_unit=per_unit,
            annealing=annealing,
            max_iter=max_iter,
            tol=tol,
            n_init=n_init,
            accelerate=accelerate,
            batch_size=batch_size,
            learning_decay=learning_decay,
            learning_offset=learning_offset,
            checkpoint=checkpoint,
            checkpoint_every=checkpoint_every,
            block_size=block_size,
            random_state=random_state,
            warm_start=warm_start,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.noise_floor = noise_floor
        self.components_init = components_init
        self.activation_probability_init = activation_probability_init
        self.noise_init = noise_init

    @classmethod
    def from_parameters(cls, *, components, activation_probability, noise_variance, truncation=None):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes."""
        model = cls(len(components), truncation=truncation, per_unit=np.ndim(activation_probability) == 1)
        model._check_hyperparameters()
        return model._set_parameters(
            components=components,
            activation_probability=activation_probability,
            noise_variance=noise_variance,
        )

    def _check_hyperparameters(self):
        super()._check_hyperparameters()
        check_number("noise_floor", self.noise_floor, least=0)

    def _noise(self, summary):
        if summary is None:
            return GaussianNoise()
        xp = namespace(summary.deviation)
        variance = float(xp.mean(summary.deviation**2)) or 1.0
        return GaussianNoise(self.noise_floor * variance)

    def _more_starts(self, sample):
        weight = sample.weight / sample.weight.sum()
        variance = float(np.mean(weight @ (sample.X - weight @ sample.X) ** 2))
        return {"noise_variance": np.float64(variance or 1.0)}

    def _shapes(self, D):
        return super()._shapes(D) | {"noise_variance": ()}

    def _to_kernel(self, fitted):
        plain = super()._to_kernel(fitted)
        return replace(plain, noise_variance=fitted["noise_variance"])

    def _from_kernel(self, params):
        return super()._from_kernel(params) | {"noise_variance": params.noise_variance}

    def _validated(self, name, value, D, shown_as):
        array = super()._validated(name, value, D, shown_as)
        if name == "noise_variance" and not np.all(array > 0):
            raise ValueError(f"{shown_as} must be positive, not {array}")
        return array

    def n_parameters(self):
        """Number of free parameters: weights, probabilities of the units and the noise variance."""
        return super().n_parameters() + 1


@dataclass(frozen=True)
class Values:
    lowest: float
    fractions: bool  # whether any is not a whole number


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
