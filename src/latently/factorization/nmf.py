"""Non-negative matrix factorisation."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from copy import copy
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from latently.backend.namespace import (
    contiguous,
    double,
    is_floating,
    is_sparse,
    like,
    namespace,
    to_device,
    to_numpy,
)
from latently.core.data import Data
from latently.core.drivers import State, best_start, run
from latently.core.progress import Progress
from latently.core.saving import SavedMixin
from latently.core.tree import add, mapped
from latently.factorization import _starts
from latently.factorization._alternation import Alternation
from latently.factorization._family import LinearFactorization
from latently.factorization._nonnegative import Codebook, Divergence, How, Penalty, SquaredError, row_costs
from latently.mixture._engine import as_generator, in_main_memory, unchanged_on_failure
from latently.mixture._notebook import NotebookMixin
from latently.mixture._validation import (
    check_callbacks,
    check_choice,
    check_data,
    check_flag,
    check_integer,
    check_number,
    check_same_device,
    check_seed,
    check_weights,
    check_writable,
    numbers,
    parameter,
)

_LOSSES = {"frobenius": ("hals", "mu"), "kl": ("mu",)}
_SHORT_RUN = 10  # sweeps of every start before the better ones go on
_SOLVED, _SOLVED_SINGLE, _MOST_PASSES = 1e-10, 1e-5, 2000  # when activations of given components are found
_LARGEST, _LARGEST_SINGLE = 1e150, 1e15  # so that squares are numbers still


class NMF(NotebookMixin, LinearFactorization, SavedMixin, BaseEstimator):
    """Non-negative matrix factorisation: rows as sums of parts, X ~ S A with no negative entry.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of parts r; None is one for each feature.
    loss : {"frobenius", "kl"}, default="frobenius"
        Half the sum of squares of X - S A, or the Kullback-Leibler divergence sum of x ln(x / sA) - x + sA.
    solver : {"auto", "hals", "mu"}, default="auto"
        Coordinate descent on activations and components in turn, "hals", or multiplicative updates, "mu".
        "auto" is "hals" for the Frobenius loss and "mu" for "kl", which has no other.
    init : {"auto", "nndsvd", "nndsvda", "nndsvdar", "random", "kmeans"}, default="auto"
        Where components start: at the non-negative parts of singular vectors, with zeros left as they are,
        filled with their mean, or with small numbers by chance; by chance; or at centres of clusters.
        "auto" is "nndsvd" for "hals", and "nndsvda" for "mu", which never leaves a zero.
    n_init : int, default=1
        Starts of which the best goes on; those after the first are by chance.
    components_init : array-like of shape (n_components, n_features), optional
    activations_init : array-like of shape (n_samples, n_components), optional
        Starting values. Activations are worked out from the components if only those are given.
    alpha_W : float, default=0.0
    alpha_H : float or "same", default="same"
        Penalties on activations and on components, as scikit-learn has them: multiplied by the number of
        features and of rows. `alpha_W` without `alpha_H` has no minimum, because S / c and c A make the same
        product.
    l1_ratio : float, default=0.0
        The share of the absolute values in the penalties; that of squares is the rest.
    max_iter : int, default=500
        Most sweeps.
    tol : float, default=1e-5
        Stop when a sweep lowers the cost by less than this part of it.
    accelerate : {"auto", None}, default="auto"
        Whether steps are carried on in their direction, and taken back where the cost would rise: for "hals"
        with several passes of descent in each sweep, for "mu" with exponents above one. None makes plain
        sweeps: one pass over activations, then one over components.
    learning_decay, learning_offset : float
        How `partial_fit` forgets: batch t has the share (t + learning_offset)^-learning_decay.
    block_size : int, optional
        Rows at a time; by default as many as fit the cache well.
    random_state : int, RandomState, Generator or None
    warm_start : bool, default=False
        Whether `fit` starts from the components of the fit before.
    verbose : int, default=0
    callbacks : list of callables, optional
        Each is told of every sweep (the objective is minus the cost, as a part of that of no factorisation)
        and may return True to end the fit.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        A, the parts; each of unit length if there are no penalties.
    history_ : ndarray of shape (n_sweeps,)
        The cost after every sweep, penalties included; rows count with their weights.
    reconstruction_err_ : float
        The norm of X - S A, or the square root of twice the divergence, without penalties.
    n_iter_ : int
        Sweeps.
    n_passes_ : int
        How often the rows were gone through, steps taken back included.
    converged_ : bool
    n_components_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    NaN is an entry that was not observed: the loss leaves it out. Sparse matrices of SciPy are taken as they
    are. `transform` minimises the loss over activations alone, which is convex; `fit_transform` gives the
    same.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.factorization import NMF
    >>> X = load_digits().data
    >>> model = NMF(n_components=10, random_state=0).fit(X)
    >>> model.transform(X).shape, model.components_.shape
    ((1797, 10), (10, 64))
    >>> bool((model.history_[1:] <= model.history_[:-1]).all())
    True
    """

    _OBJECTIVE: ClassVar = "cost"

    def __init__(
        self,
        n_components=None,
        *,
        loss="frobenius",
        solver="auto",
        init="auto",
        n_init=1,
        components_init=None,
        activations_init=None,
        alpha_W=0.0,
        alpha_H="same",
        l1_ratio=0.0,
        max_iter=500,
        tol=1e-5,
        accelerate="auto",
        learning_decay=0.7,
        learning_offset=10.0,
        block_size=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        callbacks=None,
    ):
        self.n_components = n_components
        self.loss = loss
        self.solver = solver
        self.init = init
        self.n_init = n_init
        self.components_init = components_init
        self.activations_init = activations_init
        self.alpha_W = alpha_W
        self.alpha_H = alpha_H
        self.l1_ratio = l1_ratio
        self.max_iter = max_iter
        self.tol = tol
        self.accelerate = accelerate
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.block_size = block_size
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.callbacks = callbacks

    @classmethod
    def from_parameters(cls, *, components, **settings):
        """A fitted estimator with known components (n_components, n_features)."""
        model = cls(len(components), **settings)
        model._check_hyperparameters()
        return model._set_parameters(components=components)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # -- fitting ------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Find parts and activations that make up the rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
            Rows without negative entries; NaN where nothing was observed. Torch tensors on any device, Dask
            collections and files are gone through where they are.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            How often each row counts; fractions are fine.

        Returns
        -------
        self
        """
        self._check_hyperparameters()
        with unchanged_on_failure(self):
            return self._fit(self._data(X, sample_weight, reset=True))

    def _fit(self, data):
        found = self._looked_at(data)
        alternation = self._alternation(data, found)
        with (
            Progress(type(self).__name__, "part not explained") if self.verbose else nullcontext() as progress
        ):
            callbacks = [*(self.callbacks or ()), *([progress] if progress else ())]
            start, interrupted = self._start(alternation, data, found, progress)
            result = run(
                alternation.step,
                State.at(start),
                max_iter=0 if interrupted else self.max_iter,
                stop=self._stop,
                callbacks=callbacks,
            )
        if result.interrupted or interrupted:
            message = f"NMF was interrupted; it is fitted as far as sweep {result.n_iter}"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)  # where `fit` was called
        elif not result.converged and result.n_iter == self.max_iter and self.tol > 0:
            message = f"NMF did not converge in max_iter={self.max_iter} sweeps; raise max_iter or tol"
            warnings.warn(message, ConvergenceWarning, stacklevel=3)  # where `fit` was called
        vars(self).pop("_online", None)
        self._set_components(self._normalised(result.params.components))
        self.n_iter_, self.converged_, self.n_passes_ = result.n_iter, result.converged, alternation.n_passes
        costs = np.maximum(-alternation.scale * np.array(result.history[1:]), 0.0)  # but for rounding
        self.history_ = like(costs, self.components_)
        loss = result.params.cost - self._penalties(result.params, alternation)
        self.reconstruction_err_ = float(np.sqrt(max(2.0 * loss, 0.0)))
        return self

    def _normalised(self, components):
        """Of unit length, their activations having what that takes from them; penalties settle the scale."""
        if self.alpha_W > 0:
            return components
        xp = namespace(components)
        norms = xp.sqrt(xp.sum(components**2, axis=1))
        return components / xp.where(norms > 0, norms, 1.0)[:, None]

    def _stop(self, objective, gain):
        return self.tol > 0 and gain <= self.tol * abs(objective)

    def _penalties(self, place, alternation):
        """What penalties add to the cost of a place."""
        A = place.components
        xp = namespace(A)
        added = alternation.penalty.cost(xp.sum(A), xp.sum(A * A))
        penalty = alternation.loss.penalty
        if penalty.l1 or penalty.l2:
            sums = alternation.sweep_of(place.data).sum(_sizes, A.shape[0])
            added += penalty.cost(sums[0], sums[1])
        return added

    def fit_transform(self, X, y=None, sample_weight=None):
        """Fit, and give the activations of the rows, (n_samples, n_components), as `transform` would."""
        return self.fit(X, sample_weight=sample_weight).transform(X)

    def partial_fit(self, X, y=None, sample_weight=None):
        """Go on fitting with a batch of rows.

        Their activations are found for the components so far; sums over all batches, in which older ones
        count ever less, then give new components. The first batch gives the starting values, so it should
        hold some rows of every part. A model that was fitted, or read from a file, goes on from its
        components; its sweeps so far count for t.

        Parameters
        ----------
        X, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        self._check_hyperparameters()
        data = self._data(X, sample_weight, reset=not hasattr(self, "components_"))
        found = self._looked_at(data)
        alternation = self._alternation(data, found)
        if not hasattr(self, "components_"):
            place, _ = self._start(alternation, data, found, None)
            components = place.components
            self.n_iter_, self.n_passes_, self.converged_, history = 0, 0, False, np.zeros(0)
        else:
            self._check_place("partial_fit", data)
            components, history = self.components_, to_numpy(self.history_)
        sums, cost = self._solved_sums(alternation, components, data)
        sums = mapped(lambda array: array / found.weight, sums)
        earlier = getattr(self, "_online", None)
        if earlier is None and self.n_iter_ > 0:  # rows of a fit are gone, but its components explain them
            earlier = alternation.loss.explained(sums, components)
        if earlier is not None:
            share = (self.n_iter_ + self.learning_offset) ** -self.learning_decay
            sums = add(mapped(lambda a: (1 - share) * a, earlier), mapped(lambda a: share * a, sums))
        self._online = mapped(namespace(components).asarray, sums)
        per_row = Penalty(alternation.penalty.l1 / found.weight, alternation.penalty.l2 / found.weight)
        if self.loss == "kl":  # counts hold the components they belong to
            components = namespace(components).ones_like(components)
        self._set_components(alternation.loss.components(sums, components, per_row, How(n_passes=4)))
        self.n_iter_ += 1
        self.n_passes_ += 1
        self.history_ = like(np.append(history, cost), self.components_)
        self.reconstruction_err_ = float(np.sqrt(max(2.0 * cost, 0.0)))
        return self

    def _solved_sums(self, alternation, components, data):
        """Sums of a batch whose activations are solved for, and its cost."""
        xp = namespace(components)
        codebook = Codebook.of(xp.astype(components, getattr(xp, alternation.dtype), copy=False))
        sums = alternation.sweep_of(data).sum(_solved_sums, alternation.loss, codebook)
        if self.loss == "kl":
            cost = alternation.constant + float(sums.cost)
            cost += alternation.penalty.cost(xp.sum(components), xp.sum(components**2))
            return replace(sums, counts=sums.counts * components), cost
        return sums, alternation.loss.cost(sums, components, alternation.penalty, alternation.constant)

    def _start(self, alternation, data, found, progress):
        """Where sweeps start, and whether the user interrupted the search for it."""
        D, r = data.n_features, self._n_parts(data.n_features)
        place = self._place(data)
        if self.warm_start and hasattr(self, "components_"):
            self._check_place("fit", data)
            if tuple(self.components_.shape) != (r, D):
                raise ValueError(
                    f"warm_start needs the shapes of the earlier fit, but components_ has shape "
                    f"{tuple(self.components_.shape)} and would now be {(r, D)}; begin with a new estimator"
                )
            self._check_reach(self.components_, found)
            return alternation.start(self.components_, data), False
        activations = None
        if self.activations_init is not None:
            shape = (data.count_rows(), r)
            given = _non_negative(
                "activations_init", parameter("activations_init", self.activations_init, shape)
            )
            activations = like(given.astype(alternation.dtype), place)
        if self.components_init is not None:
            given = _non_negative(
                "components_init", parameter("components_init", self.components_init, (r, D))
            )
            self._check_reach(given, found)
            return alternation.start(like(given, place), data, activations), False
        rng = as_generator(self.random_state)
        sweep = alternation.sweep_of(data)

        def starts():
            for number in range(self.n_init):
                init = self._init() if number == 0 else "random"
                components = _starts.components(init, sweep, found, r, rng, place)
                self._check_reach(components, found)
                yield alternation.start(like(components, place), data, activations)

        found_starts = progress.starts(starts()) if progress and self.n_init > 1 else starts()
        return best_start(alternation.step, found_starts, n_steps=_SHORT_RUN, stop=self._stop)

    def _check_reach(self, components, found):
        unreached = (to_numpy(components).sum(axis=0) == 0) & (to_numpy(found.total) > 0)
        if self.loss == "kl" and np.any(unreached):
            raise ValueError(
                f"all components start at zero in feature {np.argmax(unreached)}, where X is not zero; the "
                'divergence is infinite there, and stays so: use init="nndsvda", or give components_init '
                "above zero"
            )

    def _init(self):
        if self.init != "auto":
            return self.init
        return "nndsvd" if self._solver() == "hals" else "nndsvda"

    def _solver(self):
        return _LOSSES[self.loss][0] if self.solver == "auto" else self.solver

    def _n_parts(self, D):
        return D if self.n_components is None else self.n_components

    def _data(self, X, sample_weight, *, reset):
        if is_sparse(X):
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr",
                dtype=[np.float64, np.float32],
                ensure_all_finite=False,
            )
            if not np.all(np.isfinite(X.data)):
                raise ValueError(
                    "X is sparse and contains NaN or infinity; entries of a sparse matrix are all "
                    "observed, so give a dense array where some are missing"
                )
            weight = None if sample_weight is None else check_weights(sample_weight, X.shape[0])
            return Data(X, weight)
        return check_data(self, X, None, sample_weight, reset=reset)

    def _check_place(self, method, data):
        if not is_sparse(data.X):
            check_same_device(f"NMF.{method}", data, self.components_)
        elif not isinstance(self.components_, np.ndarray):
            raise ValueError(
                f"NMF.{method}(): X is sparse, but the components are not NumPy arrays: "
                "model = model.to('numpy')"
            )

    def _place(self, data):
        """An array that lives where the rows do."""
        return data.X if data.in_memory and not is_sparse(data.X) else np.zeros(0)

    def _is_single(self, data):
        """Whether products are taken in float32: not where blocks of a file may differ."""
        return data.in_memory and str(data.X.dtype).endswith("float32")

    def _looked_at(self, data):
        sweep = data.sweep(None, floats_per_row=4 * data.n_features, block_size=self.block_size)
        with np.errstate(over="ignore", invalid="ignore"):
            found = sweep.reduce(_starts.look, _starts.both)
        if found is None:
            raise ValueError("every entry of X is missing (NaN), so there is nothing to learn from")
        if found.lowest < 0:
            raise ValueError(
                f"Negative values in data passed to {type(self).__name__}: X holds {found.lowest:.6g}, but "
                "sums of non-negative parts are never negative; shift or clip X, or use PCA"
            )
        largest = _LARGEST_SINGLE if self._is_single(data) else _LARGEST
        if not found.largest < largest:
            raise ValueError(
                f"Input X contains infinity or a value too large: {found.largest:.6g}; rescale X, or give "
                "float64 where it is float32"
            )
        if 0 < found.largest < 1 / largest:
            raise ValueError(
                f"X has no entry above {found.largest:.6g}, and squares of such numbers vanish; rescale X, "
                "or give float64 where it is float32"
            )
        seen = to_numpy(found.seen)
        if not np.all(seen > 0):
            raise ValueError(f"feature {np.argmin(seen)} of X is missing (NaN) in every row; drop it")
        return found

    def _alternation(self, data, found):
        D = data.n_features
        r = self._n_parts(D)
        of_rows = self._penalty(self.alpha_W, D)
        of_components = self._penalty(self.alpha_W if self.alpha_H == "same" else self.alpha_H, found.weight)
        if self.loss == "kl":
            loss, constant, scale = Divergence(of_rows), found.entropy, float(to_numpy(found.total).sum())
        else:
            loss, constant = SquaredError(self._solver(), of_rows), 0.5 * found.square
            scale = constant
        missing = bool(np.any(to_numpy(found.seen) < found.weight * (1 - 1e-12)))
        floats = _floats_per_row(self.loss, data, r, missing)

        def sweep_of(data):
            return data.sweep(None, floats_per_row=floats, block_size=self.block_size)

        return Alternation(
            loss,
            of_components,
            sweep_of=sweep_of,
            dtype="float32" if self._is_single(data) else "float64",
            constant=constant,
            scale=scale if scale > 0 else 1.0,
            accelerate=self.accelerate is not None,
        )

    def _penalty(self, alpha, count):
        return Penalty(alpha * count * self.l1_ratio, alpha * count * (1.0 - self.l1_ratio))

    def _set_components(self, components):
        self.components_ = contiguous(components)
        self.n_components_ = int(components.shape[0])

    def _check_hyperparameters(self):
        if self.n_components is not None:
            check_integer("n_components", self.n_components, least=1, or_else=None)
        check_choice("loss", self.loss, tuple(_LOSSES))
        check_choice("solver", self.solver, ("auto", *_LOSSES[self.loss]))
        check_choice("init", self.init, ("auto", *_starts.INITS))
        check_integer("n_init", self.n_init, least=1)
        check_number("alpha_W", self.alpha_W, least=0)
        if self.alpha_H != "same":
            check_number("alpha_H", self.alpha_H, least=0)
            if (self.alpha_H == 0) != (self.alpha_W == 0):
                raise ValueError(
                    f"alpha_W={self.alpha_W} and alpha_H={self.alpha_H}: a penalty on one factor alone has "
                    'no minimum, because the other can take its scale; set both, or alpha_H="same"'
                )
        check_number("l1_ratio", self.l1_ratio, least=0, most=1)
        check_integer("max_iter", self.max_iter, least=0)
        check_number("tol", self.tol, least=0)
        check_choice("accelerate", self.accelerate, ("auto", None))
        check_number("learning_decay", self.learning_decay, least=0, most=1)
        check_number("learning_offset", self.learning_offset, least=1)
        if self.block_size is not None:
            check_integer("block_size", self.block_size, least=1)
        if not isinstance(self.random_state, np.random.Generator):
            check_seed(self.random_state)
        check_flag("warm_start", self.warm_start)
        if not isinstance(self.verbose, (bool, np.bool_)):
            check_integer("verbose", self.verbose, least=0)
        check_callbacks(self.callbacks)
        if self.activations_init is not None and self.components_init is None:
            raise ValueError("activations_init needs components_init, which says what it activates")

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, out=None):
        """Activations of the rows, those that minimise the loss, (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
        out : path of a .npy file, optional
            Where to write the result block by block; what is returned is then the file, memory-mapped.
        """
        return self._rows_of(X, _activations, out)

    def reconstruct(self, X, *, out=None):
        """The rows as sums of parts, (n_samples, n_features)."""
        return self._rows_of(X, _reconstruction, out)

    def impute(self, X, *, out=None):
        """The rows with what is missing filled by their sums of parts; what was observed is as it was."""
        return self._rows_of(X, _filled, out)

    def row_cost(self, X, *, out=None):
        """The loss of each row, without penalties, (n_samples,)."""
        return self._rows_of(X, _row_costs, out)

    def score(self, X, y=None, sample_weight=None):
        """Minus the mean loss of the rows, weighted if `sample_weight` is given."""
        costs = in_main_memory(self.row_cost(X))
        weight = None if sample_weight is None else check_weights(sample_weight, len(costs))
        return -float(np.average(costs, weights=weight))

    def squared_error(self, X, sample_weight=None):
        """The sum of squared differences between X and its reconstruction, over what was observed."""
        errors = in_main_memory(self._rows_of(X, _squared_errors, None))
        weight = np.ones(len(errors)) if sample_weight is None else check_weights(sample_weight, len(errors))
        return float(weight @ errors)

    def inverse_transform(self, X):
        """Rows for given activations, (n_samples, n_features)."""
        check_is_fitted(self)
        if not hasattr(X, "__array_namespace__") and not is_sparse(X):
            X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.components_.shape[0]:
            raise ValueError(
                f"X must have a column for each of the {self.components_.shape[0]} components, "
                f"not shape {X.shape}"
            )
        return X @ self.components_

    def to(self, where):
        """The fitted model with its components elsewhere: "numpy", or a device of torch such as "cuda"."""
        moved = copy(self)
        moved.components_, moved.history_ = (to_device(a, where) for a in (self.components_, self.history_))
        vars(moved).pop("_online", None)
        return moved

    def _rows_of(self, X, fn, out):
        check_is_fitted(self)
        if out is not None:
            check_writable("out", out)
        data = self._data(X, None, reset=False)
        self._check_place(_METHODS[fn], data)
        D, r = self.components_.shape[1], self.components_.shape[0]
        penalty = self._penalty(self.alpha_W, D)
        loss = Divergence(penalty) if self.loss == "kl" else SquaredError("hals", penalty)
        floats = _floats_per_row(self.loss, data, r, _may_be_missing(data))
        sweep = data.sweep(None, floats_per_row=floats, block_size=self.block_size)
        rows = sweep.rows(_checked, fn, loss, self.components_)
        return data.collected(rows, out)

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_parameters(self):
        check_is_fitted(self)
        return {"components": self.components_}

    def _set_parameters(self, *, components):
        array = _non_negative("components", numbers("components", components))
        if array.ndim != 2 or 0 in array.shape:
            raise ValueError(f"components must have shape (n_components, n_features), not {array.shape}")
        if self.n_components is not None and len(array) != self.n_components:
            raise ValueError(f"components must have n_components={self.n_components} rows, not {len(array)}")
        self.components_ = array.copy()
        self.n_components_, self.n_features_in_ = array.shape
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        self.reconstruction_err_ = float("nan")
        return self

    def _more_header(self):
        err = self.reconstruction_err_
        return {"reconstruction_err": err if np.isfinite(err) else None}

    def _set_more(self, more):
        err = more.get("reconstruction_err")
        if set(more) != {"reconstruction_err"} or not (
            err is None or (type(err) is float and 0 <= err < np.inf)
        ):
            raise ValueError("reconstruction_err must be a number that is not negative, or null")
        self.reconstruction_err_ = float("nan") if err is None else err


def _floats_per_row(loss, data, r, missing):
    """How much memory a row takes: few for complete rows, whose descent is quicker in long blocks."""
    D = data.n_features
    if is_sparse(data.X):  # every block adds up a dense matrix, so there should be few
        D = 1 + data.X.nnz // data.X.shape[0]
    if loss == "kl":
        return 4 * D + 6 * r
    return 3 * D + 6 * r + 2 * r * r if missing else D + 6 * r


def _may_be_missing(data):
    """Whether entries may be missing; a sum tells of a NaN in one go."""
    if not data.in_memory:
        return True
    X = data.X
    return not is_sparse(X) and is_floating(X) and bool(namespace(X).isnan(namespace(X).sum(X)))


def _non_negative(name, array):
    if np.any(array < 0):
        raise ValueError(f"{name} must not be negative; its smallest entry is {array.min():.6g}")
    return array


# -- what is asked of a block ---------------------------------------------------------------------------


def _solved(loss, A, block):
    """Activations (r, n) that minimise the loss."""
    xp = namespace(A)
    if isinstance(loss, Divergence):  # Newton's method wants digits
        X = block.X.astype(np.float64) if is_sparse(block.X) else double(block.X)
        found = loss.solved(Codebook.of(double(A)), replace(block, X=X), _MOST_PASSES, _SOLVED)
        return xp.astype(found, A.dtype, copy=False)
    tolerance = _SOLVED if A.dtype == xp.float64 else _SOLVED_SINGLE
    how = How(cold_passes=_MOST_PASSES, tolerance=tolerance)
    _, [state] = loss.rows(Codebook.of(A), how, block)
    return state.T


def _solved_sums(loss, codebook, block):
    state = _solved(loss, codebook.components, block).T
    how = How(n_passes=0, exponent=0.0)
    return loss.rows(codebook, how, replace(block, state=state))[0]


def _checked(fn, loss, components, block):
    """For rows that nobody looked at before."""
    X = block.X.data if is_sparse(block.X) else block.X
    xp = namespace(X)
    seen = X if block.observed is None else xp.where(block.observed, X, 0)
    if X.shape[0] and bool(xp.min(seen) < 0):
        raise ValueError(
            "Negative values in data passed to NMF; sums of non-negative parts are never negative"
        )
    if X.shape[0] and is_floating(X) and bool(xp.any(xp.isinf(seen))):
        raise ValueError("Input X contains infinity")
    dtype = xp.float32 if X.dtype == xp.float32 else xp.float64
    return fn(loss, namespace(components).astype(components, dtype, copy=False), block)


def _activations(loss, A, block):
    return _solved(loss, A, block).T


def _reconstruction(loss, A, block):
    return _solved(loss, A, block).T @ A


def _filled(loss, A, block):
    if block.observed is None:
        return block.X.toarray() if is_sparse(block.X) else block.X
    xp = namespace(block.X)
    return xp.where(block.observed, block.X, _reconstruction(loss, A, block))


def _row_costs(loss, A, block):
    return row_costs(loss, _solved(loss, A, block), A, block)


def _squared_errors(loss, A, block):
    return 2.0 * row_costs(SquaredError(), _solved(loss, A, block), A, block)


_METHODS = {
    _squared_errors: "squared_error",
    _activations: "transform",
    _reconstruction: "reconstruct",
    _filled: "impute",
    _row_costs: "row_cost",
}


def _sizes(r, block):
    """Sums of the activations and of their squares, (2,)."""
    S = block.state[:, :r]
    xp = namespace(S)
    counted = S if block.weight is None else S * block.weight[:, None]
    return xp.stack([xp.sum(counted), xp.sum(counted * S)])
