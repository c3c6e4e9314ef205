"""Non-negative matrix factorisation."""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from functools import partial, wraps
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import is_floating, is_native, is_sparse, like, namespace, to_numpy
from latently.core.data import Data
from latently.core.tree import mapped
from latently.distributions.divergences import BetaDivergence, Divergence
from latently.distributions.nonnegative import (
    Penalty,
    SquaredError,
    known_in,
    with_first,
)
from latently.estimators.checks import (
    check_choice,
    check_integer,
    check_matrix,
    check_non_negative,
    check_number,
    check_weights,
    numbers,
    parameter,
)
from latently.estimators.data import check_data, checked_table
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, given_starts, store
from latently.estimators.randomness import as_generator
from latently.estimators.rows import for_method, in_main_memory, rows_over
from latently.estimators.weights import weights_in_rows
from latently.factorization import nmf_batches, starts
from latently.factorization.alternating import SweptFactorization
from latently.factorization.entry_weights import with_entry_weights
from latently.factorization.linear import LinearFactorization
from latently.factorization.sweeps import NonnegativeSweeps, place_of

_LOST = 0.01  # share of the cost that rounding may be
_BETA = {"frobenius": 2.0, "kl": 1.0, "itakura-saito": 0.0}
_LARGEST_BETA = 10.0


def _check_loss(name, value):
    """The name of a loss, or the beta of a beta divergence."""
    if isinstance(value, str) and value in _BETA:
        return
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not -_LARGEST_BETA <= float(value) <= _LARGEST_BETA:
        names = ", ".join(map(repr, _BETA))
        raise ValueError(
            f"{name} must be one of {names} or the beta of a beta divergence, a number from "
            f"{-_LARGEST_BETA:g} to {_LARGEST_BETA:g}, not {value!r}"
        )


def _check_fixed(name, value):
    """Given components, (m, n_features), or None."""
    if value is not None:
        check_matrix(name, value)
        check_non_negative(name, numbers(name, value))


@estimator
class NMF(LinearFactorization, SweptFactorization):
    """Non-negative matrix factorisation: X ~ S A with non-negative S and A.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of components r; None uses the number of features.
    loss : {"frobenius", "kl", "itakura-saito"} or float, default="frobenius"
        Half the sum of squares of X - S A; the Kullback-Leibler divergence, the sum of x ln(x / sA) - x + sA;
        the Itakura-Saito divergence, the sum of x / sA - ln(x / sA) - 1, for positive X; or the beta of a
        beta divergence, of which these have beta 2, 1 and 0.
    solver : {"auto", "hals", "mu"}, default="auto"
        "hals" alternates coordinate descent on activations and components, "mu" uses multiplicative updates.
        "auto" is "hals" for the Frobenius loss and "mu" for all others, for which it is the only solver.
    init : {"auto", "nndsvd", "nndsvda", "nndsvdar", "random", "kmeans"}, default="auto"
        Starting values of the components: non-negative parts of singular vectors with zeros kept ("nndsvd"),
        replaced by the mean of X ("nndsvda") or by small random numbers ("nndsvdar"); random numbers; or
        cluster centres. "auto" is "nndsvd" for "hals", and "nndsvda" for "mu", which cannot change zeros.
    fixed_components : array-like of shape (m, n_features), optional
        Given components, which stay as they are; they are the first m of the `n_components`, and the others
        are learnt.
    components_init : array-like of shape (n_components, n_features), optional
        Starting values of the components; those that are fixed are ignored.
    activations_init : array-like of shape (n_samples, n_components), optional
        Starting values of the activations; needs `components_init`. By default they are computed from the
        components.
    alpha_W : float, default=0.0
    alpha_H : float or "same", default="same"
        Penalties on activations and on components, multiplied by the number of features and of rows as in
        scikit-learn. With `alpha_W` or `alpha_H` alone the cost has no minimum, because S / c and c A have
        the same product.
    l1_ratio : float, default=0.0
        The fraction of the L1 norm in the penalties; the rest is squared L2.
    batch_size : int, optional
        Mini-batch size, for very many rows. Components are updated after every batch, from sums over all
        batches in which older ones have smaller weights (`learning_decay`, `learning_offset`), as by
        `partial_fit`; the rows are in a new random order in each pass, which counts as an iteration. By
        default every update uses all rows.
    accelerate : {"auto", None}, default="auto"
        Whether steps are extrapolated, and rejected if the cost would increase: "hals" uses momentum and
        several passes of descent in each sweep, "mu" exponents above one. None uses plain sweeps: one pass
        over activations, then one over components.
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        A; each component has unit length if there are no penalties and it is not fixed.
    history_ : ndarray of shape (n_sweeps,)
        Weighted cost after every sweep, including penalties; it never increases. With `batch_size` the cost
        met during each pass, which may increase, and as its last entry that of the fitted components.
    reconstruction_err_ : float
        The norm of X - S A, or the square root of twice the divergence, without penalties.
    n_components_ : int
    {attributes}

    Notes
    -----
    NaN marks a missing entry, which the loss ignores; `entry_weight` weights the loss of every entry. SciPy
    sparse matrices are not converted to dense, but block by block for losses other than "frobenius" and "kl".
    `transform` minimises the loss over activations alone, a convex problem for beta from 1 to 2;
    `fit_transform` gives the same.

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

    n_components: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    _: KW_ONLY
    loss: Any = option(default="frobenius", check=_check_loss)
    solver: str = option(default="auto", check=check_choice, choices=("auto", "hals", "mu"))
    init: str = option(default="auto", check=check_choice, choices=("auto", *starts.INITS))
    alpha_W: float = option(default=0.0, check=check_number, least=0)
    alpha_H: Any = option(default="same", check=check_number, least=0, or_else="same")
    l1_ratio: float = option(default=0.0, check=check_number, least=0, most=1)
    fixed_components: Any = option(default=None, check=_check_fixed)
    batch_size: int | None = option(  # type: ignore[assignment,misc]  # other factorisations have none
        default=None, check=check_integer, least=1, or_else=None
    )

    @classmethod
    def from_parameters(cls, *, components, **options):
        """A fitted estimator with known components (n_components, n_features)."""
        check_matrix("components", components)
        return cls(len(components), **options)._with_parameters(components=components)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None, *, entry_weight=None):
        """Factorise the rows into activations and components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
            Non-negative rows. NaN marks a missing entry. Torch tensors stay on their device; Dask collections
            and files are read block by block.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.
        entry_weight : array-like of shape (n_samples, n_features), optional
            Weight of each entry, with which its loss is multiplied; zero is a missing entry. X must be dense
            and in memory.

        Returns
        -------
        self
        """
        return self._fit_to(X, y, sample_weight, entry_weight)

    def partial_fit(self, X, y=None, sample_weight=None, *, entry_weight=None):
        """Update the model with a batch of rows.

        Their activations are inferred with the current components; weighted sums over all batches, in which
        older batches are discounted, then give new components. The first batch determines the starting
        values, so it should contain all components. A model that was fitted, or read from a file, continues
        from its components; its earlier sweeps count for t.

        Parameters
        ----------
        X, y, sample_weight, entry_weight
            As for `fit`.

        Returns
        -------
        self
        """
        return self._learn_from(X, y, sample_weight, entry_weight)

    def _fit(self, data):
        found = self._totals(data)
        sweeps = self._sweeps(data, found)
        if self.batch_size is not None:
            return self._fit_by_batches(data, found, sweeps)
        result = self._swept(sweeps, found, sweeps.step)
        self._keep(self._normalised(result.params.shared))
        costs = np.maximum(np.array(result.history), 0.0)  # negative only by rounding
        self.history_ = like(costs[1:], self.components_)
        loss = result.history[-1] - sweeps.penalties(result.params)
        self.reconstruction_err_ = float(np.sqrt(max(2.0 * loss, 0.0)))
        self._warn_of_rounding(data, found, loss)

    def _fit_by_batches(self, data, found, sweeps):
        def sweeps_of(batch):
            of_batch = starts.totals_of(batch, loss.of_entries, self.block_size)
            return self._sweeps(batch, of_batch), of_batch.weight

        loss = sweeps.loss
        options = replace(self._options(sweeps, self._identity(data)), passes=sweeps.passes)
        start = lambda progress: self._start(sweeps, found, options, progress)
        result = nmf_batches.fitted(self, data, sweeps, start, options, sweeps_of)
        self._keep(self._normalised(result.params.components))
        self._keep_run(result, sweeps)
        self.history_ = like(np.maximum(np.array(result.history), 0.0), self.components_)
        costs, weight = to_numpy(in_main_memory(self._rows_of_data(data, _row_costs))), data.field("weight")
        left = float(costs.sum() if weight is None else to_numpy(weight) @ costs)
        self.reconstruction_err_ = float(np.sqrt(max(2.0 * left, 0.0)))

    def _warn_of_rounding(self, data, found, loss):
        """Warn of a cost that is lost in rounding, as that of rows far from zero that differ little is.

        It is the difference of sums of the size of the squares of X; the sum over residuals is not, but is
        another pass.
        """
        if self._beta() not in (1.0, 2.0):
            return
        dtype = np.float32 if starts.is_single(data) else np.float64
        precision = np.finfo(dtype).eps
        resolved = 10.0 * precision**2 * found.square  # sums of squares of rounding errors of X
        seen, total = to_numpy(found.seen), to_numpy(found.total)
        if found.square - float(np.sum(total**2 / seen)) > 1e4 * precision * found.square:
            return  # X varies as much as it is far from zero, nearly
        divergence = self._beta() == 1.0
        size = abs(found.constant) + float(total.sum()) if divergence else found.square
        if loss > 1e3 * precision * size:
            return
        sweep = data.sweep(None, floats_per_row=4 * data.n_features, block_size=self.block_size)
        if sweep.sum(starts.squares_about, like(found.mean(), self.components_)) <= resolved:
            return  # all rows are alike
        errors = to_numpy(in_main_memory(self._rows_of_data(data, _squared_errors)))
        weight = data.field("weight")
        left = 0.5 * float(errors.sum() if weight is None else to_numpy(weight) @ errors)
        if left <= 0.4 * resolved:  # X is a product, up to rounding
            return
        if divergence:
            left /= found.largest
        if _LOST * left < precision * size:
            warn_user(
                f"the cost of NMF is lost in rounding: what the components leave of X costs {left:.2g}, and "
                f"its terms are of the size {size:.2g}, too large for {dtype.__name__}. X lies far from zero "
                "compared with its spread, so neither history_ nor convergence tells much; subtract a "
                "constant from the features, or use PCA or NLMF, which have an offset"
            )

    def _normalised(self, components):
        """Components of unit length, unless they are fixed or penalties determine their scale."""
        if self.alpha_W > 0:
            return components
        xp = namespace(components)
        norms = xp.sqrt(xp.sum(components**2, axis=1))
        found = components / xp.where(norms > 0, norms, 1.0)[:, None]
        return with_first(components, self._n_fixed(), found)

    def fit_transform(self, X, y=None, sample_weight=None, *, entry_weight=None):
        """Fit the model and return the activations of the rows, (n_samples, n_components)."""
        self.fit(X, sample_weight=sample_weight, entry_weight=entry_weight)
        return self.transform(X, entry_weight=entry_weight)

    def _continue(self, sweeps, found):
        continues = self._continues(sweeps.data, "partial_fit")
        components = self._with_fixed(self.components_) if continues else self._first_batch(sweeps, found)
        earlier = getattr(self, "_online", None)
        if earlier is None and self.n_iter_ > 0:  # the rows of the fit are not kept; its components are
            earlier = partial(sweeps.loss.explained, A=components)
        components, sums, cost = nmf_batches.after_batch(
            sweeps, found.weight, components, earlier, self._share(self.n_iter_)
        )
        self._online = mapped(namespace(components).asarray, sums)
        self._keep(components)
        self._count_batch(cost)
        self.reconstruction_err_ = float(np.sqrt(max(2.0 * cost, 0.0)))

    def _start(self, sweeps, found, options, progress):
        """The starting point, and whether the user interrupted the search for it."""
        data, r = sweeps.data, sweeps.n_components
        place = place_of(data)
        if self.warm_start and self._continues(data, "fit"):
            self._check_shapes(data.n_features, "warm_start")
            components = self._with_fixed(self.components_)
            self._check_support(components, found)
            return sweeps.start(components), False
        activations = None
        if self.activations_init is not None:
            name, shape = "activations_init", (data.count_rows(), r)
            given = check_non_negative(name, parameter(name, self.activations_init, shape))
            activations = like(given.astype(sweeps.dtype), place)
        if self.components_init is not None:
            given = given_starts(self, self._parameters(), self._sizes(data.n_features))["components"]
            given = self._with_fixed(given)
            self._check_support(given, found)
            return sweeps.start(like(given, place), activations), False
        rng = as_generator(self.random_state)
        sweep = sweeps.over(data)

        def starting_points():
            for number in range(self.n_init):
                init = self._init() if number == 0 else "random"
                components = self._starting(init, sweep, found, rng, place)
                self._check_support(components, found)
                yield sweeps.start(like(components, place), activations)

        return self._best(sweeps, starting_points(), self.n_init, options, progress)

    def _starting(self, init, sweep, found, rng, place):
        """(r, D) starting values of the components, in main memory; those that are fixed first."""
        m, D = self._n_fixed(), len(found.mean())
        n_free = self._sizes(D)["r"] - m
        if n_free == 0:
            return numbers("fixed_components", self.fixed_components)
        components = starts.components(init, sweep, found, n_free, rng, place)
        if not m:
            return components
        given, free = numbers("fixed_components", self.fixed_components), components.mean()
        scale = given.mean() / free if given.mean() > 0 and free > 0 else 1.0
        return np.concatenate([given, scale * components])

    def _n_fixed(self):
        return 0 if self.fixed_components is None else len(self.fixed_components)

    def _check_fixed(self, n_features):
        """Raise an error unless the given components fit among those of rows with so many features."""
        if self.fixed_components is None:
            return
        shape, r = np.shape(self.fixed_components), self._sizes(n_features)["r"]
        if shape[1] != n_features:
            raise ValueError(
                f"fixed_components has shape {shape}, but X has {n_features} features; give one column for "
                "each of them"
            )
        if shape[0] > r:
            raise ValueError(
                f"fixed_components has {shape[0]} rows, more than the {r} components, which include them; "
                "raise n_components, or leave some of them out"
            )

    def _with_fixed(self, components):
        """The components, with the given ones in place of the first."""
        m = self._n_fixed()
        if not m:
            return components
        given = like(numbers("fixed_components", self.fixed_components), components)
        return namespace(components).concat([given, components[m:, :]])

    def _check_support(self, components, found):
        unreached = (to_numpy(components).sum(axis=0) == 0) & (to_numpy(found.total) > 0)
        if self._beta() <= 1.0 and np.any(unreached):
            raise ValueError(
                f"all components start at zero in feature {np.argmax(unreached)}, where X is not zero, so "
                'the divergence is and stays infinite; use init="nndsvda", or a positive components_init'
            )

    def _init(self):
        if self.init != "auto":
            return self.init
        return "nndsvd" if self._solver() == "hals" else "nndsvda"

    def _solver(self):
        return self._solvers()[0] if self.solver == "auto" else self.solver

    def _solvers(self):
        return ("hals", "mu") if self._beta() == 2.0 else ("mu",)

    def _beta(self):
        return _BETA[self.loss] if isinstance(self.loss, str) else float(self.loss)

    def _loss(self, n_features, solver):
        beta, m, penalty = self._beta(), self._n_fixed(), self._penalty(self.alpha_W, n_features)
        if beta == 2.0:
            return SquaredError(solver, penalty, m)
        return Divergence(penalty, m) if beta == 1.0 else BetaDivergence(beta, penalty, m)

    def _penalty(self, alpha, count):
        return Penalty(alpha * count * self.l1_ratio, alpha * count * (1.0 - self.l1_ratio))

    def _data(self, X, y=None, sample_weight=None, entry_weight=None, *, reset):
        if not is_sparse(X):
            data = check_data(self, X, sample_weight, reset=reset)
            return data if entry_weight is None else with_entry_weights(data, entry_weight)
        if entry_weight is not None:
            raise ValueError("entry_weight needs a dense X; give X.toarray(), with NaN for missing entries")
        X = checked_table(
            self, X, reset=reset, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
        )
        if not np.all(np.isfinite(X.data)):
            raise ValueError(
                "X is sparse and contains NaN or infinity; missing entries are not supported in sparse "
                "matrices, so use a dense array"
            )
        weight = None if sample_weight is None else np.asarray(weights_in_rows(sample_weight, X.shape[0]))
        return Data(X, weight=weight)

    def _totals(self, data):
        """Sums over all entries; an error if the rows cannot be factorised."""
        self._check_fixed(data.n_features)
        loss = self._loss(data.n_features, self._solver())
        found = starts.checked_totals(
            self, data, positive=True, of_entries=loss.of_entries, largest_power=loss.largest_power
        )
        if loss.needs_positive and found.lowest <= 0:
            raise ValueError(_zeros_message(loss))
        return found

    def _sweeps(self, data, found):
        D = data.n_features
        r = D if self.n_components is None else self.n_components
        loss = self._loss(D, self._solver())
        total, seen = (float(to_numpy(array).sum()) for array in (found.total, found.seen))
        scale = loss.scale(found.constant, total, seen)
        missing = data.field("observed") is not None or bool(
            np.any(to_numpy(found.seen) < found.weight * (1 - 1e-12))
        )
        return NonnegativeSweeps(
            loss,
            self._penalty(self.alpha_W if self.alpha_H == "same" else self.alpha_H, found.weight),
            data,
            n_components=r,
            dtype="float32" if starts.is_single(data) else "float64",
            constant=found.constant,
            scale=scale if scale > 0 else 1.0,
            floats_per_row=_floats_per_row(loss, data, r, missing),
            block_size=self.block_size,
            accelerate=self.accelerate is not None,
        )

    def _check_options(self):
        super()._check_options()
        check_choice("solver", self.solver, ("auto", *self._solvers()))
        if self.alpha_H != "same" and (self.alpha_H == 0) != (self.alpha_W == 0):
            raise ValueError(
                f"alpha_W={self.alpha_W} and alpha_H={self.alpha_H}: with a penalty on one factor alone the "
                'cost has no minimum, because the other can absorb its scale; set both, or alpha_H="same"'
            )
        if self.activations_init is not None and self.components_init is None:
            raise ValueError("activations_init needs components_init, which it refers to")

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X, *, entry_weight=None, out=None):
        """Activations of the rows that minimise the loss, (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), sparse matrix, path or blocks
        entry_weight : array-like of shape (n_samples, n_features), optional
            As for `fit`.
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._rows_of(X, _activations, out, entry_weight)

    def reconstruct(self, X, *, entry_weight=None, out=None):
        """Rows reconstructed from their activations, (n_samples, n_features)."""
        return self._rows_of(X, _reconstruction, out, entry_weight)

    def impute(self, X, *, entry_weight=None, out=None):
        """Impute missing entries by their reconstruction; observed entries are unchanged.

        Entries of weight zero are missing too.
        """
        return self._rows_of(X, _imputed, out, entry_weight)

    def row_cost(self, X, *, entry_weight=None, out=None):
        """The loss of each row, without penalties, (n_samples,)."""
        return self._rows_of(X, _row_costs, out, entry_weight)

    def score(self, X, y=None, sample_weight=None, *, entry_weight=None):
        """Minus the mean loss of the rows, weighted if `sample_weight` is given."""
        costs = in_main_memory(self.row_cost(X, entry_weight=entry_weight))
        weight = None if sample_weight is None else check_weights(sample_weight, len(costs))
        return -float(np.average(costs, weights=weight))

    def squared_error(self, X, sample_weight=None):
        """Sum of squared differences between X and its reconstruction, over observed entries."""
        errors = in_main_memory(self._rows_of(X, _squared_errors))
        weight = np.ones(len(errors)) if sample_weight is None else check_weights(sample_weight, len(errors))
        return float(weight @ errors)

    def inverse_transform(self, X):
        """Rows for given activations, (n_samples, n_features)."""
        check_is_fitted(self)
        if not is_native(X) and not is_sparse(X):
            numbers("X", X)  # an error if they are none; float32 stays as it is
            X = np.asarray(X)
        if X.ndim != 2 or X.shape[1] != self.components_.shape[0]:
            raise ValueError(
                f"X must have one column for each of the {self.components_.shape[0]} components, "
                f"not shape {X.shape}"
            )
        return X @ self.components_

    def _rows_of(self, X, fn, out=None, entry_weight=None):
        check_is_fitted(self)
        return self._rows_of_data(self._data(X, entry_weight=entry_weight, reset=False), fn, out)

    def _rows_of_data(self, data, fn, out=None):
        r, D = self.components_.shape
        loss = self._loss(D, "hals")
        floats = _floats_per_row(loss, data, r, _may_be_missing(data))
        place = self.components_
        return rows_over(self, data, fn, loss, place, place=place, floats_per_row=floats, out=out)

    # -- parameters in and out ------------------------------------------------------------------------

    def _keep(self, components):
        store(self, {"components": components})
        self.n_components_ = int(components.shape[0])

    def _parameters(self):
        return (Parameter("components", "components_init", ("r", "D"), check_non_negative),)

    def _sizes(self, n_features):
        return {"r": n_features if self.n_components is None else self.n_components, "D": n_features}

    def _set_fitted_arrays(self, **given):
        super()._set_fitted_arrays(**given)
        self.n_components_ = len(self.components_)
        self.reconstruction_err_ = float("nan")

    def _more_header(self):
        err = self.reconstruction_err_
        return {"reconstruction_err": err if np.isfinite(err) else None}

    def _set_more(self, *, reconstruction_err):
        err = reconstruction_err
        if not (err is None or (type(err) is float and 0 <= err < np.inf)):
            raise ValueError("reconstruction_err must be a non-negative number, or null")
        self.reconstruction_err_ = float("nan") if err is None else err


def _floats_per_row(loss, data, r, missing):
    """Temporary floats per row, which determine the number of rows in a block."""
    D = data.n_features
    if is_sparse(data.X) and not isinstance(loss, BetaDivergence):
        # every block sums a dense matrix, so there should be few blocks
        D = 1 + data.X.nnz // data.X.shape[0]
    return loss.floats_per_row(r, D, missing)


def _may_be_missing(data):
    """Whether entries may be missing; the sum is NaN if any entry is."""
    if not data.in_memory or data.field("observed") is not None:
        return True
    X = data.X
    return not is_sparse(X) and is_floating(X) and bool(namespace(X).isnan(namespace(X).sum(X)))


# -- functions of blocks ------------------------------------------------------------------------------


def _has_zeros(block, values):
    """Whether an observed entry is zero; `values` are those that are stored."""
    if is_sparse(block.X):
        return block.X.nnz < block.X.shape[0] * block.X.shape[1] or bool(np.any(values == 0))
    xp, known = namespace(values), known_in(block)
    return bool(xp.any(values == 0 if known is None else (values == 0) & known))


def _zeros_message(loss):
    name = '"itakura-saito"' if loss.beta == 0 else f"{loss.beta:g}"
    return (
        f"X has entries of zero, whose loss {name} is infinite; add a small number to X, mark them as "
        "missing (NaN), or use a loss above 0, such as 0.5"
    )


def _for_rows(method):
    """Decorator for functions of rows that were not validated before; casts components to their precision."""

    def checked(fn):
        @wraps(fn)
        def of_block(loss, components, block):
            X = block.X.data if is_sparse(block.X) else block.X
            xp = namespace(X)
            known = known_in(block)
            seen = X if known is None else xp.where(known, X, 0)
            if X.shape[0] and bool(xp.min(seen) < 0):
                raise ValueError(
                    "Negative values in data passed to NMF; sums of non-negative parts are never negative"
                )
            if X.shape[0] and is_floating(X) and bool(xp.any(xp.isinf(seen))):
                raise ValueError("Input X contains infinity")
            if loss.needs_positive and _has_zeros(block, seen):
                raise ValueError(_zeros_message(loss))
            dtype = xp.float32 if X.dtype == xp.float32 else xp.float64
            return fn(loss, namespace(components).astype(components, dtype, copy=False), block)

        return for_method(method)(of_block)

    return checked


@_for_rows("transform")
def _activations(loss, A, block):
    return loss.solved(A, block).T


@_for_rows("reconstruct")
def _reconstruction(loss, A, block):
    return loss.solved(A, block).T @ A


@_for_rows("impute")
def _imputed(loss, A, block):
    known = known_in(block)
    if known is None:
        return block.X.toarray() if is_sparse(block.X) else block.X
    return namespace(block.X).where(known, block.X, loss.solved(A, block).T @ A)


@_for_rows("row_cost")
def _row_costs(loss, A, block):
    return loss.row_costs(loss.solved(A, block), A, block)


@_for_rows("squared_error")
def _squared_errors(loss, A, block):
    return 2.0 * SquaredError().row_costs(loss.solved(A, block), A, block)
