"""What all models share that EM fits: the engine around a kernel, scoring in blocks, parameters in and out.

A subclass says what a fit works on (a kernel, and a frame for the rows), where it starts, and which arrays
are its parameters.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from inspect import signature
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import contiguous, is_floating, like, namespace, to_device, to_numpy
from latently.core.checkpoint import Checkpoint, fingerprint
from latently.core.drivers import Iteration, Passes, Result, State, relative, run
from latently.core.progress import Progress
from latently.core.saving import SavedMixin
from latently.core.squarem import squarem
from latently.core.stepwise import Batch, Online
from latently.core.summary import summarise
from latently.core.tree import mapped
from latently.distributions.mixture import log_density
from latently.mixture import _starts
from latently.mixture._notebook import NotebookMixin
from latently.mixture._validation import (
    check_callbacks,
    check_choice,
    check_data,
    check_flag,
    check_integer,
    check_number,
    check_path,
    check_same_device,
    check_seed,
    check_summary,
    check_weights,
    check_writable,
)

# Parameters that may differ between a fit and the one that goes on from its checkpoint.
_FREE_TO_CHANGE = {"max_iter", "tol", "verbose", "callbacks", "checkpoint", "checkpoint_every"}
_NOISE = 1e-5  # what the log-likelihood of a pass by mini-batches is known to, about


class EMEstimator(NotebookMixin, SavedMixin, DensityMixin, BaseEstimator):
    """The estimator behind every model that EM fits. Subclasses provide the methods of the first section."""

    def __init__(
        self,
        *,
        max_iter,
        tol,
        n_init,
        accelerate,
        batch_size,
        learning_decay,
        learning_offset,
        checkpoint,
        checkpoint_every,
        block_size,
        random_state,
        warm_start,
        verbose,
        callbacks,
    ):
        self.max_iter = max_iter
        self.tol = tol
        self.n_init = n_init
        self.accelerate = accelerate
        self.batch_size = batch_size
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.block_size = block_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks

    # -- what a subclass provides -------------------------------------------------------------------

    _PARAMETERS: ClassVar[dict[str, str]]  # fitted attribute (no underscore) -> its starting value's name

    def _n_components(self):
        return self.n_components

    def _shapes(self, D):
        """The shape of every parameter, by name."""
        raise NotImplementedError

    def _to_kernel(self, fitted):
        """Fitted arrays, by name, as the kernel's parameters."""
        raise NotImplementedError

    def _from_kernel(self, params):
        """The kernel's parameters as fitted arrays, by name."""
        raise NotImplementedError

    def _kernel(self):
        """The kernel of a fitted model, for rows in the user's units."""
        raise NotImplementedError

    def _frame(self, kernel, params):
        """The frame in which rows are best scored."""
        raise NotImplementedError

    def _problem(self, data):
        """The data looked through, and the kernel and frame that suit them."""
        raise NotImplementedError

    def _problem_of_model(self, data):
        """The kernel and frame that suit rows like those the model was fitted to, whatever is in the data."""
        raise NotImplementedError

    def _start(self, problem, progress=None):
        """Starting values in the frame, and whether the user interrupted the search for them.

        What the user gave, what an earlier fit left, or our own.
        """
        raise NotImplementedError

    def _example(self, problem):
        """A state of stepwise EM, for the shapes of its records."""
        raise NotImplementedError

    def _validated(self, name, value, D, shown_as):
        """A parameter array of the user's, checked and broadcast; errors call it `shown_as`."""
        raise NotImplementedError

    def _n_features_of(self, given):
        """The number of features that parameters of the user's speak of."""
        raise NotImplementedError

    def _known(self, y, n_rows, *, reset):
        """(n_rows, K) bool: what labels say of where each row may come from; None for nothing."""
        return None

    def n_parameters(self):
        """Number of free parameters of the fitted density."""
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    # -- fitting ------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model by expectation-maximisation.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN is an entry that was not observed. Besides arrays and tables in memory: torch
            tensors on any device, Dask arrays and data frames, the path of a .npy, .zarr, .parquet or .csv
            file, and anything that gives blocks of rows anew each time it is iterated over.
        y : array-like of shape (n_samples,) or (n_samples, n_components), optional
            What is known of the components: the component of each row, -1 where it is not known; or True for
            every component that a row may come from.
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; fractions are fine.

        Returns
        -------
        self
        """
        self._check_hyperparameters()
        with unchanged_on_failure(self):
            return self._fit(check_data(self, X, y, sample_weight, reset=True))

    def partial_fit(self, X, y=None, sample_weight=None):
        """Go on fitting with a batch of rows, by stepwise EM.

        The first batch gives the starting values, as `fit` would find them, and the units in which
        `noise_floor` counts; so it should be typical, and hold some rows of every component. Batch t has the
        share (t + learning_offset)^-learning_decay in what the parameters are made of. A model that was
        fitted, or read from a file, goes on from its parameters; its steps so far count for t.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        self._check_hyperparameters()
        with unchanged_on_failure(self):
            return self._partial_fit(X, y, sample_weight)

    def _fit(self, data):
        return self._fit_to(self._problem(data))

    def _fit_to(self, problem):
        vars(self).pop("_online", None)
        result = self._fitted_in(problem)
        self._keep(problem.from_frame(result.params))
        self.n_iter_, self.converged_ = result.n_iter, result.converged
        self.history_ = like(np.array(result.history), problem.frame.shift)
        return self

    def _summarised(self, data):
        """Passes over the rows as they are, and what a first look at them tells."""
        sweep = data.sweep(None, floats_per_row=3 * data.n_features, block_size=self.block_size)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is told of by the check
            summary = summarise(sweep, self._sample_size())
        check_summary(self, summary)
        return sweep, summary

    def _sample_size(self):
        """Rows to be kept for the starts; with starting values, only what tells a checkpoint its data."""
        given = all(getattr(self, init) is not None for init in self._PARAMETERS.values())
        if given or (self.warm_start and hasattr(self, "history_")):
            return 0 if self.checkpoint is None else 2
        return _starts.rows_for_start(self._n_components())

    def _fitted_in(self, problem):
        """Parameters, history and the like, in the frame."""
        checkpoint = self._checkpoint(problem)
        with Progress(type(self).__name__) if self.verbose else nullcontext() as progress:
            callbacks = [*(self.callbacks or ()), *([progress] if progress else ())]
            method = self._by_em if self.batch_size is None else self._by_mini_batches
            result = method(problem, checkpoint, progress, callbacks)
        if checkpoint and not result.interrupted:
            checkpoint.remove()
        if result.interrupted:
            warnings.warn(
                f"{type(self).__name__} was interrupted; it is fitted as far as iteration {result.n_iter}",
                ConvergenceWarning,
                stacklevel=5,  # where `fit` was called
            )
        elif not result.converged and result.n_iter == self.max_iter and self.tol > 0:
            warnings.warn(
                f"{type(self).__name__} did not converge in max_iter={self.max_iter} iterations; "
                "raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=5,
            )
        return result

    def _by_em(self, problem, checkpoint, progress, callbacks):
        """All rows at every step."""
        passes, max_iter = Passes(), self.max_iter
        if checkpoint and checkpoint.exists():
            shape = self._example(problem).params
            records, history, numbers = checkpoint.read({"params": shape, "previous": shape})
            state = State(history=history, n_iter=numbers["n_iter"], rounding=numbers["rounding"], **records)
            passes.count = numbers["n_passes"]
        else:
            start, interrupted = self._start(problem, progress)
            state = State.at(start)
            max_iter = 0 if interrupted else max_iter

        def save(state):
            if checkpoint and state.n_iter % self.checkpoint_every == 0:
                records = {"params": state.params, "previous": state.previous}
                numbers = {"n_iter": state.n_iter, "rounding": state.rounding, "n_passes": passes.count}
                checkpoint.write(records, state.history, numbers)

        step = passes.counted(self._step(problem))
        if self.accelerate == "squarem":
            step = problem.in_alternation(step, problem.sweep(), problem.log_volume, counted=passes.counted)
            step = squarem(step, problem.kernel)
        result = run(
            step,
            state,
            max_iter=max_iter,
            stop=relative(self.tol),
            callbacks=callbacks,
            between=save,
        )
        self.n_passes_ = passes.count
        return replace(result, interrupted=result.interrupted or max_iter < self.max_iter)

    def _by_mini_batches(self, problem, checkpoint, progress, callbacks):
        """A step after every `batch_size` rows; an iteration is a pass over all of them."""
        stop = relative(max(self.tol, _NOISE) if self.tol else 0.0)
        if checkpoint and checkpoint.exists():
            records, history, numbers = checkpoint.read({"online": self._example(problem)})
            online, seed = records["online"], numbers["seed"]
            ended, converged, interrupted = numbers["ended"], numbers["converged"], False
        else:
            start, interrupted = self._start(problem, progress)
            online, history, ended, converged = Online(start, None), [], interrupted, False
            seed = check_random_state(self.random_state).randint(2**31 - 1)
        full = min(self.batch_size, problem.summary.n_rows)
        full_weight = problem.summary.total_weight * (full / problem.summary.n_rows)
        try:
            while len(history) < self.max_iter and not ended:
                n_iter = len(history)
                order = np.random.default_rng([seed, n_iter])
                total, weight = 0.0, 0.0
                for batch in problem.data.batches(self.batch_size, order):
                    size = Batch(min(1.0, len(batch) / full), full_weight)
                    online, part, its_weight = online.step(
                        problem.kernel, problem.sweep_of(batch), batch=size, **self._learning()
                    )
                    total, weight = total + part, weight + its_weight
                objective = total / weight - problem.log_volume
                gain = objective - history[-1] if history else np.inf
                history.append(objective)
                converged = stop(objective, abs(gain))
                told = Iteration(n_iter, objective, gain, self.max_iter)
                ended = any([callback(told) is True for callback in callbacks]) or converged
                if checkpoint and len(history) % self.checkpoint_every == 0:
                    numbers = {"seed": int(seed), "ended": bool(ended), "converged": bool(converged)}
                    checkpoint.write({"online": online}, history, numbers)
        except KeyboardInterrupt:
            if not history:
                raise
            interrupted = True
        n_iter = len(history)
        try:
            history.append(problem.step()(online.params).objective)  # what those were on the way to
        except KeyboardInterrupt:
            if not history:
                raise
            history.append(history[-1])
            interrupted = True
        self.n_passes_ = n_iter + 1
        return Result(online.params, history, n_iter, converged, interrupted)

    def _learning(self):
        return {"decay": self.learning_decay, "offset": self.learning_offset}

    def _partial_fit(self, X, y, sample_weight):
        online = getattr(self, "_online", None)
        data = check_data(self, X, y, sample_weight, reset=online is None and not hasattr(self, "history_"))
        if hasattr(self, "history_"):
            self._check_shapes(data.n_features, "partial_fit")
        if online is None:
            if hasattr(self, "history_"):  # it was fitted, or read from a file: go on from there
                problem = self._problem_of_model(data)
                start = problem.to_frame(self._parameters())
                online = Online(start, problem.kernel.implied_stats(start), self.n_iter_)
            else:
                problem = self._problem(data)
                online = Online(self._start(problem)[0], None)
                self.n_iter_, self.converged_, self.history_, self.n_passes_ = 0, False, np.zeros(0), 0
        else:
            problem, online = online
            problem = replace(problem, data=data)
        online, total, weight = online.step(problem.kernel, problem.sweep(), **self._learning())
        if weight:
            log_volume = problem.data.sweep(None, floats_per_row=data.n_features, block_size=self.block_size)
            log_volume = log_volume.sum(weighted_log_volume, problem.frame) / weight
            history = np.append(to_numpy(self.history_), total / weight - float(log_volume))
            self.history_ = like(history, problem.frame.shift)
            self.n_iter_ += 1
            self.n_passes_ += 1
        self._online = replace(problem, data=None, summary=replace(problem.summary, sample=None)), online
        self._keep(problem.from_frame(online.params))
        return self

    def _checkpoint(self, problem):
        """Where the state of this fit is kept; what tells it from other fits."""
        if self.checkpoint is None:
            return None
        summary = problem.summary
        belongs_to = {"data": f"{summary.n_rows} rows, {summary.content}"}
        for name, value in self.get_params(deep=False).items():
            if name not in _FREE_TO_CHANGE:
                value = value.item() if isinstance(value, np.generic) else value
                plain = value is None or isinstance(value, (bool, int, float, str))
                belongs_to[name] = repr(value) if plain else fingerprint(value) if _is_array(value) else "?"
        check_writable("checkpoint", self.checkpoint)
        return Checkpoint(self.checkpoint, {"model": type(self).__name__, **belongs_to})

    def _check_hyperparameters(self):
        check_integer("n_components", self._n_components(), least=1)
        check_integer("max_iter", self.max_iter, least=0)
        check_number("tol", self.tol, least=0)
        if not (isinstance(self.n_init, str) and self.n_init == "auto"):
            check_integer("n_init", self.n_init, least=1, or_else="auto")
        check_choice("accelerate", self.accelerate, (None, "squarem"))
        for name in ("block_size", "batch_size"):
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=1)
        check_number("learning_decay", self.learning_decay, least=0, most=1)
        check_number("learning_offset", self.learning_offset, least=1)
        check_path("checkpoint", self.checkpoint)
        check_integer("checkpoint_every", self.checkpoint_every, least=1)
        check_seed(self.random_state)
        check_flag("warm_start", self.warm_start)
        if not isinstance(self.verbose, (bool, np.bool_)):
            check_integer("verbose", self.verbose, least=0)
        check_callbacks(self.callbacks)

    def _check_features(self, D):
        """Whether the model makes sense for this number of features."""

    def _given_starts(self, D):
        """The starting values that the user gave, checked."""
        return {
            name: self._validated(name, getattr(self, init), D, shown_as=init)
            for name, init in self._PARAMETERS.items()
            if getattr(self, init) is not None
        }

    def _completed(self, ours, given):
        """The starting values given, and our own for what was not."""
        return {**ours, **given}

    def _check_shapes(self, D, purpose):
        shapes = self._shapes(D)
        for name, array in self._fitted_parameters().items():
            if tuple(array.shape) != shapes[name]:
                raise ValueError(
                    f"{purpose} needs the shapes of the earlier fit, but {name}_ has shape "
                    f"{tuple(array.shape)} and would now be {shapes[name]}; begin with a new estimator"
                )

    def _step(self, problem):
        """The EM step over all rows."""
        return problem.step()

    # -- parameters in and out ------------------------------------------------------------------------

    def _fitted_parameters(self):
        """Fitted arrays by name."""
        check_is_fitted(self)
        return {name: getattr(self, f"{name}_") for name in self._PARAMETERS}

    def _parameters(self):
        """The fitted attributes as the kernel's parameters, in the user's units."""
        return self._to_kernel(self._fitted_parameters())

    def _parameters_in_main_memory(self):
        return mapped(to_numpy, self._parameters())

    def _keep(self, params):
        """Makes the kernel's parameters, in the user's units, those of this estimator."""
        self._store(self._from_kernel(params))

    def _store(self, fitted):
        for name, array in fitted.items():
            # in one fixed layout, so that a model read from a file gives the same bits
            setattr(self, f"{name}_", contiguous(array))

    def _placed(self):
        """A fitted array, which is where all of them are."""
        return next(iter(self._fitted_parameters().values()))

    def _set_parameters(self, **given):
        """Makes this a fitted estimator with these parameters."""
        if set(given) != set(self._PARAMETERS):
            raise ValueError(f"expected the parameters {sorted(self._PARAMETERS)}, not {sorted(given)}")
        D = self._n_features_of(given)
        self._check_features(D)
        self._store({name: self._validated(name, value, D, shown_as=name) for name, value in given.items()})
        self.n_features_in_ = D
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        return self

    # -- using a fitted model -------------------------------------------------------------------------

    def score_samples(self, X, *, out=None):
        """Log density of each row, of what was observed of it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Where to write the result block by block; what is returned is then the file, memory-mapped.
            All methods that give an array for every row have it.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        return self._rows_of(X, scores, out=out)

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows, weighted if `sample_weight` is given."""
        scores = in_main_memory(self.score_samples(X))
        if sample_weight is not None:
            sample_weight = check_weights(sample_weight, len(scores))
        return float(np.average(scores, weights=sample_weight))

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
        params = self._parameters_in_main_memory()
        drawn = self._kernel().sample(params, n_samples, as_generator(random_state))
        return tuple(like(array, self._placed()) for array in drawn)

    def bic(self, X):
        """Bayesian information criterion on the rows of X; lower is better."""
        return information_criteria(self, X)["bic"]

    def aic(self, X):
        """Akaike information criterion on the rows of X; lower is better."""
        return information_criteria(self, X)["aic"]

    def to(self, where):
        """The fitted model with its parameters elsewhere.

        Parameters
        ----------
        where : str or torch.device
            "numpy" for NumPy arrays, else the device of torch tensors, such as "cpu" or "cuda".

        Returns
        -------
        estimator
            A copy; this one stays where it is.
        """
        moved = copy(self)
        moved._store({name: to_device(array, where) for name, array in self._fitted_parameters().items()})
        moved.history_ = to_device(self.history_, where)
        vars(moved).pop("_online", None)
        return moved

    def _rows_of(self, X, fn, *args, out=None):
        """`fn(kernel, density, frame, *args, block)` for all rows of X, in blocks in the user's units."""
        check_is_fitted(self)
        if out is not None:
            check_writable("out", out)
        data = check_data(self, X, reset=False)
        params, kernel = self._parameters(), self._kernel()
        check_same_device(f"{type(self).__name__}.{fn.method}", data, self._placed())
        frame = self._frame(kernel, params)
        density = kernel.prepare(kernel.moved(params, -frame.shift / frame.scale, 1.0 / frame.scale))
        floats = kernel.floats_per_row(self._n_components(), data.n_features, True)
        sweep = data.sweep(None, floats_per_row=floats, block_size=self.block_size)
        checked = quietly if data.in_memory else finite_only
        return data.collected(sweep.rows(checked, fn, kernel, density, frame, *args), out)


@contextmanager
def unchanged_on_failure(estimator):
    """A fit that fails leaves the estimator as it was."""
    earlier = vars(estimator).copy()
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(earlier)
        raise


def information_criteria(model, X, weight=None, *, with_icl=False):
    """Log-likelihood per row, BIC, AIC and, if asked for, ICL; weights count as copies of rows."""
    scores = in_main_memory(model.score_samples(X))
    weight = np.ones(len(scores)) if weight is None else weight
    n, total, m = weight.sum(), weight @ scores, model.n_parameters()
    found = {"log_likelihood": total / n, "bic": -2 * total + m * np.log(n), "aic": -2 * total + 2 * m}
    if with_icl:
        resp = in_main_memory(model.predict_proba(X))
        entropy = -weight @ np.sum(resp * np.log(np.where(resp > 0, resp, 1.0)), axis=1)
        found["icl"] = found["bic"] + 2 * entropy
    return {name: float(value) for name, value in found.items()}


def for_method(method):
    """Says which method a function of rows works for, for its errors."""

    def mark(fn):
        fn.method = method
        return fn

    return mark


def quietly(fn, *args):
    with np.errstate(over="ignore", invalid="ignore"):  # rows far away: log density -inf
        return fn(*args)


def finite_only(fn, *args):
    """For rows that nobody looked at before."""
    *_, block = args
    xp = namespace(block.X)
    if is_floating(block.X) and bool(xp.any(xp.isinf(block.X))):
        raise ValueError("Input X contains infinity")
    return quietly(fn, *args)


def weighted_log_volume(frame, block):
    """The sum over rows of weight times log volume."""
    volume = frame.log_volume(block)
    xp = namespace(block.X)
    if block.observed is None:
        return volume * block.total_weight()
    return xp.sum(volume if block.weight is None else volume * block.weight)


@for_method("score_samples")
def scores(kernel, density, frame, block):
    return log_density(kernel, density, frame.enter(block)) - frame.log_volume(block)


def in_main_memory(rows):
    """The result of a method for all rows, as a NumPy array."""
    return to_numpy(rows.compute() if hasattr(rows, "compute") else rows)


def _is_array(value):
    return isinstance(value, (list, tuple)) or hasattr(value, "shape")


def as_generator(random_state):
    """A NumPy Generator from whatever scikit-learn users pass as a seed."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    check_seed(random_state)
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**32, size=4, dtype=np.uint64))
    return np.random.default_rng(random_state)


def drawn_from(density, n_samples, rng):
    """Rows (n, D) of any density and their components (n,), in an order that says nothing of these."""
    seed = int(rng.integers(2**32))
    if "random_state" in signature(density.sample).parameters:
        drawn = density.sample(n_samples, random_state=seed)
    else:  # scikit-learn's mixtures draw by the seed of the fit
        drawn = copy(density).set_params(random_state=seed).sample(n_samples)
    X, components = drawn if isinstance(drawn, tuple) else (drawn, np.zeros(n_samples, dtype=int))
    order = rng.permutation(n_samples)
    return in_main_memory(X)[order], in_main_memory(components)[order]
