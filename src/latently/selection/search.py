"""Grid search over the parameters of a mixture or a factorisation.

The cells of the grid are fitted in parallel, each fit on one core, so that the results do not depend on the
number of parallel fits. Cells that nesting shows to have a poor optimum are refitted (`nesting`).
"""

from __future__ import annotations

import os
import time
import warnings
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cache, partial
from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, ParameterGrid, StratifiedKFold, check_cv
from sklearn.utils import _safe_indexing
from threadpoolctl import ThreadpoolController

from latently.backend.placement import one_blas_thread, row_threads
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_seed,
)
from latently.estimators.criteria import information_criteria
from latently.estimators.data import is_dask
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.labels import UNLABELLED, class_labels
from latently.estimators.messages import DegenerateWarning, InterruptedWarning
from latently.estimators.randomness import as_random_state
from latently.estimators.weights import weights_in_rows
from latently.selection import leaders
from latently.selection.criteria import CRITERIA, DEFAULT, OF_ALL_ROWS, listed
from latently.selection.frames import pandas
from latently.selection.hidden_entries import errors_of_imputed, observed_in, without_entries
from latently.selection.nesting import is_nested, start_from
from latently.selection.pipelines import is_pipeline, selected_last_step
from latently.selection.result import Selection, cell_name

_NEEDED = ("fit", "get_params")
_COLUMNS = {
    "log_likelihood": "float64",
    "n_parameters": "Int64",  # the nullable integer type of pandas
    **{criterion.column: "float64" for criterion in OF_ALL_ROWS},
    "n_iter": "Int64",
    "converged": "boolean",
    "degenerate": "Int64",
}
_BRIEF = ConvergenceWarning, DegenerateWarning  # warnings that say nothing of a fit that is meant to be brief
_QUICK = 1.0  # seconds of work before worker processes are started by default
_TOLERANCE = 1e-5  # relative accuracy of a log-likelihood per row
_LEAST_LOG = np.log(1e-15)  # of a probability, so that one certain error does not make a loss infinite
_ATTEMPTS = 3  # refits from the optimum of a nested model, per cell


def select(
    estimator,
    X,
    grid,
    criterion=DEFAULT,
    n_jobs=None,
    *,
    y=None,
    cv=5,
    sample_weight=None,
    random_state=None,
    warm_starts=True,
    exhaustive=False,
    verbose=0,
):
    """Fit a model with every combination of parameters and select the best by a criterion.

    Parameters
    ----------
    estimator : mixture, factorisation with missing entries, or classifier
        For example ``MFA()``, ``NMF()`` with the criterion "entries", or ``MFMClassifier()`` with "log_loss".
        It is not modified; clones are fitted. Or a pipeline that ends in one: the steps before it are fitted
        once, to all rows.
    X : array-like of shape (n_samples, n_features), path or blocks
        Any input of `estimator.fit`. The criteria "log_likelihood" and "entries" need an array or a data
        frame, so that rows or entries can be held out.
    grid : dict or list of dicts
        Parameter names and lists of values, as for scikit-learn's `ParameterGrid`.
    criterion : {"bic", "aic", "icl", "log_likelihood", "entries", "log_loss"}, default="bic"
        The first three are computed on the training rows; lower is better. "log_likelihood" is the mean
        held-out log-likelihood per row; higher is better. "entries" is the mean squared error with which
        `impute` predicts held-out entries of X; lower is better. Of tables of mixed columns, errors of
        numbers are in units of the variance of their column, and a wrong level counts as one. "log_loss" is
        the mean of -ln P(class) of held-out labelled rows, for classifiers; lower is better.
    n_jobs : int or None
        Number of parallel fits, each on one core; -1 means all cores. By default the fits of the first second
        run in this process, and the remaining ones on all cores. The result does not depend on it.
    y : array-like of shape (n_samples,), optional
        Labels for "log_loss", -1 for unlabelled rows, which are never held out.
    cv : int or splitter, default=5
        For criteria of held-out rows or entries: the number of folds, of rows or entries shuffled with
        `random_state`, or a scikit-learn splitter. With "log_loss" all classes are in every fold.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row, in fits and in the criteria.
    random_state : int, Generator, RandomState or None
        Passed to the estimator if its own is None, the same for every cell.
    warm_starts : bool, default=True
        Whether to refit a cell if a cell nested in it (for example with fewer components) has a higher
        likelihood, initialised from the optimum of that cell, up to three times. The better fit is kept.
    exhaustive : bool, default=False
        Whether every model is fitted with the full search of the estimator. By default, in grids of at least
        six mixtures with ``n_init="auto"`` that are compared by "bic", "aic" or "icl" on an array or a data
        frame, all models are fitted briefly first, and only those that may win are fitted fully (see the
        column `brief`).
    verbose : int, default=0
        Whether to show progress.

    Returns
    -------
    Selection
        `best_`, `best_params_`, `best_score_`, `table_`, `estimators_`, `plot()` and `to_html()`. Ctrl-C ends
        the search with the models fitted so far; the column `error` tells which are not.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> from latently.selection import select
    >>> grid = {"n_components": range(1, 4), "covariance_type": ["full", "tied"]}
    >>> found = select(GaussianMixture(), load_iris().data, grid, random_state=0)
    >>> found.best_params_
    {'covariance_type': 'full', 'n_components': 2}
    """
    if is_pipeline(estimator):
        return selected_last_step(
            partial(
                select, criterion=criterion, n_jobs=n_jobs, y=y, cv=cv, sample_weight=sample_weight,
                random_state=random_state, warm_starts=warm_starts, exhaustive=exhaustive,
                verbose=verbose,
            ),
            estimator, X, grid, y,
        )  # fmt: skip
    pandas()  # before anything is fitted
    check_choice("criterion", criterion, CRITERIA)
    kind = CRITERIA[criterion]
    _check_estimator(estimator, kind)
    check_flag("warm_starts", warm_starts)
    check_flag("exhaustive", exhaustive)
    check_seed("random_state", random_state)
    if not isinstance(verbose, (bool, np.bool_)):
        check_integer("verbose", verbose, least=0)
    n_jobs = _checked_jobs(n_jobs, X)
    cells = _checked_cells(estimator, grid)
    seed = random_state if isinstance(random_state, Integral) else _drawn_seed(random_state)
    X = np.asarray(X) if isinstance(X, (list, tuple)) else X
    y = _checked_labels(kind, estimator, y, X)
    parts = [None, *_held_out_parts(kind, cv, X, seed, y)]
    if sample_weight is not None:
        sample_weight = weights_in_rows(sample_weight, _row_count(X))

    search = _Search(estimator, X, y, sample_weight, cells, parts, int(seed), n_jobs, bool(verbose))
    try:
        if warm_starts and not exhaustive and leaders.is_worthwhile(search.complete, kind, X):
            search.fit_leaders(kind.column)
        else:
            search.fit_all()
        if warm_starts:
            search.refit_poor_optima()
    except KeyboardInterrupt:
        search.end_here()
    search.complain()
    table = pandas().DataFrame(search.rows(kind.column)).astype(_COLUMNS)
    found = Selection(criterion, table, cells, [search.fits[cell, 0].model for cell in range(len(cells))])
    if degenerate_count(found.best_):
        warnings.warn(
            f"all models have degenerate components, also the best, with {cell_name(found.best_params_)}; "
            "try fewer components or factors, or a larger prior",
            DegenerateWarning,
            stacklevel=2,
        )
    return found


# -- validation of arguments -----------------------------------------------------------------------------


def _check_estimator(estimator, criterion):
    if isinstance(estimator, type):
        raise TypeError(f"estimator must be an object, not a class; write {estimator.__name__}()")
    missing = [name for name in _NEEDED if not hasattr(estimator, name)] + criterion.lacking(estimator)
    if missing:
        others = [repr(other.name) for other in CRITERIA.values() if other.serves(estimator)]
        cure = f"; choose criterion={listed(others)}" if others else ""
        raise TypeError(
            f"estimator must {criterion.estimator}, but {type(estimator).__name__} has no "
            f"{' and no '.join(missing)}{cure}"
        )
    if getattr(estimator, "checkpoint", None) is not None:
        raise ValueError("estimator has a checkpoint, which all fits would share; set checkpoint=None")


def _checked_jobs(n_jobs, X):
    """A number of jobs; None if it is chosen automatically."""
    if n_jobs is None:
        if effective_n_jobs(None) > 1:  # by joblib.parallel_config
            return effective_n_jobs(None)
        here_only = not (isinstance(X, (list, tuple, np.ndarray, str, os.PathLike)) or hasattr(X, "iloc"))
        return 1 if here_only or is_dask(X) else None
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0:
        raise ValueError(f"n_jobs must be None, a number of jobs or -1 for every core, not {n_jobs!r}")
    return int(n_jobs)


def _checked_cells(estimator, grid):
    """The parameters of each cell."""
    try:
        cells = list(ParameterGrid(grid))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"grid must be a dict of parameters and lists of values, or a list of such dicts: {error}"
        ) from error
    names = {name for cell in cells for name in cell}
    if not names:
        raise ValueError("grid is empty; give at least one parameter, such as {'n_components': range(1, 7)}")
    own = estimator.get_params()
    unknown = sorted(names - own.keys())
    if unknown:
        raise ValueError(
            f"grid has the parameter {unknown[0]!r}, which {type(estimator).__name__} does not "
            f"have; its parameters are {', '.join(sorted(own))}"
        )
    if "checkpoint" in names:
        raise ValueError("grid must not have the parameter 'checkpoint'; remove it")
    return cells


def _drawn_seed(random_state):
    return as_random_state(random_state).randint(2**31 - 1)


def _checked_labels(criterion, estimator, y, X):
    """Labels as an array (n,), if the criterion uses them."""
    if not criterion.labels:
        if y is not None:
            users = listed([repr(other.name) for other in CRITERIA.values() if other.labels])
            raise ValueError(f"y is used by criterion={users} only; leave it out with {criterion.name!r}")
        return None
    if not hasattr(X, "shape"):
        raise TypeError(f"criterion={criterion.name!r} needs X in memory: an array or a data frame")
    class_labels(estimator, y, X.shape[0])
    return np.asarray(y)


def _held_out_parts(criterion, cv, X, seed, y=None):
    """Held-out rows or entries of each fold."""
    if criterion.held_out is None:
        return []
    if is_dask(X) or issparse(X) or not (hasattr(X, "shape") and hasattr(X, "__getitem__")):
        others = listed([repr(other.name) for other in OF_ALL_ROWS])
        raise TypeError(
            f"criterion={criterion.name!r} needs to index {criterion.held_out} of X, which "
            f"{type(X).__name__} does not support; give an array or a data frame, or choose {others}"
        )
    if criterion.labels:
        return list(_folds_of_classes(cv, y, seed))
    return (
        list(_folds(cv, X.shape[0], seed)) if criterion.held_out == "rows" else _hidden_entries(cv, X, seed)
    )


def _folds(cv, count, seed):
    """Training and held-out indices of each fold."""
    if isinstance(cv, Integral):
        check_integer("cv", cv, least=2, or_else="a splitter")
        cv = KFold(cv, shuffle=True, random_state=seed)
    return check_cv(cv).split(np.zeros((count, 1)))


def _folds_of_classes(cv, y, seed):
    """The same for labelled rows, with all classes in every fold; unlabelled rows are never held out."""
    codes, _ = class_labels(None, y, len(y))
    known = np.flatnonzero(codes != UNLABELLED)
    if isinstance(cv, Integral):
        check_integer("cv", cv, least=2, or_else="a splitter")
        smallest = int(np.bincount(codes[known]).min())
        if smallest < int(cv):
            raise ValueError(f"the smallest class has {smallest} rows, too few for cv={cv} folds")
        cv = StratifiedKFold(cv, shuffle=True, random_state=seed)
    for _, others in check_cv(cv, codes[known], classifier=True).split(known, codes[known]):
        yield np.setdiff1d(np.arange(len(y)), known[others]), known[others]


def _hidden_entries(cv, X, seed):
    """Masks (N, D) of the held-out entries of each fold; every feature keeps observed entries."""
    observed = observed_in(X)
    entries = np.flatnonzero(observed)
    if isinstance(cv, Integral) and len(entries) < int(cv):
        raise ValueError(f"X has {len(entries)} entries, too few for cv={cv} folds")
    masks = []
    for _, others in _folds(cv, len(entries), seed):
        hidden = np.zeros(observed.shape, dtype=bool)
        hidden.flat[entries[others]] = True
        left = np.sum(observed & ~hidden, axis=0)
        if left.min() == 0:
            raise ValueError(
                f"X has too few entries: without those of one fold, nothing is observed of feature "
                f"{left.argmin()}; increase cv, or remove the feature"
            )
        masks.append(hidden)
    return masks


def _row_count(X):
    if not hasattr(X, "shape") or not isinstance(X.shape[0], Integral):
        raise TypeError("sample_weight needs X in memory: an array or a data frame")
    return X.shape[0]


# -- one fit ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fit:
    """Result of a fit to all data, or without one fold."""

    model: Any = None
    numbers: dict[str, Any] = field(default_factory=dict)  # columns of the table
    log_likelihood: float = -np.inf  # per row, on the training rows
    degenerate: int = 0  # components that the rows do not determine
    held_out: float = np.nan  # held-out log-likelihood per row, or error per held-out entry
    seconds: float = 0.0
    started_from: str = ""
    error: str = ""
    interrupted: bool = False  # by the user, with the parameters so far
    warned: tuple = ()  # category and text of each warning raised in another process


_NOT_REACHED = Fit(error="the search was interrupted before this model was fitted")


def fit_one(estimator, params, start, X, y, weight, part, home):
    """Fit with `params` from `start`, if that is not empty; `part` is a fold, or None for all data.

    `home` is the id of the searching process. It records warnings of all its threads; others record their
    own.
    """
    began = time.perf_counter()
    abroad = os.getpid() != home
    recording: Any = warnings.catch_warnings(record=True) if abroad else nullcontext([])
    with (
        recording as caught,
        one_blas_thread(),
        _openmp().limit(limits=1),
        ended_by_one_interrupt() as ending,
    ):
        if abroad:
            warnings.simplefilter("always", UserWarning)
        try:
            model = clone(estimator).set_params(**params)
            own = {name: model.get_params(deep=False)[name] for name in start}
            model.set_params(**start)
            fit = (
                _fitted(model, X, weight, part) if y is None else _fitted_to_labels(model, X, y, weight, part)
            )
            model.set_params(**own)
        except Exception as error:  # an error in one cell does not affect the others
            fit = Fit(error=f"{type(error).__name__}: {error}")
    warned = tuple((warning.category, str(warning.message)) for warning in caught)
    return replace(fit, seconds=time.perf_counter() - began, interrupted=ending.interrupted, warned=warned)


@cache
def _openmp():
    return ThreadpoolController().select(user_api="openmp")  # k-means runs on it


def _fitted(model, X, weight, part):
    if part is None:
        model.fit(X, sample_weight=weight)
        numbers = criteria(model, X, weight) if _has_likelihood(model) else {}
        degenerate = degenerate_count(model)
        numbers |= {"n_iter": model.n_iter_, "converged": model.converged_, "degenerate": degenerate}
        return Fit(model, numbers, numbers.get("log_likelihood", -np.inf), degenerate)
    if isinstance(part, np.ndarray):
        return _fitted_without_entries(model, X, weight, part)
    (seen, its_weight), (others, their_weight) = (
        (_safe_indexing(X, rows), None if weight is None else weight[rows]) for rows in part
    )
    model.fit(seen, sample_weight=its_weight)
    held_out = model.score(others, sample_weight=their_weight)
    if np.isnan(held_out):
        raise ValueError("the log-likelihood of the held-out rows is not a number")
    score = model.score(seen, sample_weight=its_weight)
    return Fit(model, {}, score, degenerate_count(model), held_out)


def _fitted_to_labels(model, X, y, weight, part):
    weights = {} if weight is None else {"sample_weight": weight}
    if part is None:
        model.fit(X, y, **weights)
        numbers = {"n_iter": getattr(model, "n_iter_", None), "converged": getattr(model, "converged_", None)}
        if hasattr(model, "n_parameters"):
            numbers["n_parameters"] = model.n_parameters()
        return Fit(model, numbers)
    seen, others = part
    weights = {} if weight is None else {"sample_weight": weight[seen]}
    model.fit(_safe_indexing(X, seen), y[seen], **weights)
    codes, _ = class_labels(model, y[others], len(others), model.classes_)
    found = model.predict_log_proba(_safe_indexing(X, others))[np.arange(len(others)), codes]
    found = np.maximum(found, _LEAST_LOG)
    return Fit(
        model, {}, held_out=float(-np.average(found, weights=None if weight is None else weight[others]))
    )


def _fitted_without_entries(model, X, weight, hidden):
    seen = without_entries(model, X, hidden)
    model.fit(seen, sample_weight=weight)
    errors = errors_of_imputed(model, X, model.impute(seen), hidden)
    counted = None if weight is None else np.broadcast_to(weight[:, None], hidden.shape)[hidden]
    error = float(np.average(errors, weights=counted))
    if not np.isfinite(error):
        raise ValueError("the error of the held-out entries is not a finite number")
    log_likelihood = model.score(seen, sample_weight=weight) if _has_likelihood(model) else -np.inf
    return Fit(model, {}, log_likelihood, degenerate_count(model), error)


def degenerate_count(model):
    """How many components of a fitted mixture the rows do not determine; zero for other models."""
    return len(getattr(model, "degenerate_components_", ()))


def _has_likelihood(model):
    return all(criterion.serves(model) for criterion in OF_ALL_ROWS)


def criteria(model, X, weight=None):
    """Columns of the table with the criteria of a fitted mixture."""
    found = information_criteria(model, X, weight, with_icl=True)
    if not np.isfinite(found["log_likelihood"]):
        raise ValueError(f"the log-likelihood is {found['log_likelihood']}")
    return {**found, "n_parameters": model.n_parameters()}


# -- all fits --------------------------------------------------------------------------------------------


@dataclass
class _Search:
    estimator: Any
    X: Any
    y: Any
    weight: Any
    cells: list
    parts: list  # None for all data, then folds: training and held-out rows, or masks of held-out entries
    seed: int
    n_jobs: int | None
    verbose: bool

    def __post_init__(self):
        own = self.estimator.get_params(deep=False)
        seeded = {"random_state": self.seed} if own.get("random_state", 0) is None else {}
        self.params = [{**seeded, **cell} for cell in self.cells]  # parameters of the clone of each cell
        self.complete = [{**own, **params} for params in self.params]
        self.fits = {}  # by indices of cell and part
        self.refits: Counter[int] = Counter()  # by cell
        self.seconds: Counter[int] = Counter()  # by cell
        self.warned: Counter[Any] = Counter()  # by category and text
        self.brief = dict.fromkeys(range(len(self.cells)), False)  # by cell
        self.interrupted = False

    def fit_all(self):
        """Fit every cell and part."""
        for key, fit in self._run({key: {} for key in self._keys()}, type(self.estimator).__name__):
            self.fits[key] = fit
        self._check_any_fitted()

    def _keys(self):
        return [(cell, part) for cell in range(len(self.cells)) for part in range(len(self.parts))]

    def fit_leaders(self, column):
        """Fit every cell briefly and those that may win fully; for criteria of all rows."""
        rows = self.X.shape[0] if self.weight is None else float(np.sum(self.weight))

        def run(jobs, title, brief):
            return self._fitted([((cell, 0), start) for cell, start in jobs], title, brief)

        plan = leaders.Leaders(self.complete, run, _is_better, column, rows, self.seed)
        try:
            plan.fit()
        finally:  # also what there is at an interrupt
            self.fits, self.brief = {(cell, 0): fit for cell, fit in plan.fits.items()}, plan.brief()
        self._check_any_fitted()

    def end_here(self):
        """Make do with the fits that there are when the user interrupts; an error if there are none."""
        self.interrupted = True
        self.fits = {key: self.fits.get(key, _NOT_REACHED) for key in self._keys()}
        if all(map(self._error, range(len(self.cells)))):
            raise KeyboardInterrupt from None

    def _check_any_fitted(self):
        if all(map(self._error, range(len(self.cells)))):
            raise ValueError(
                f"no cell of the grid could be fitted; with {cell_name(self.cells[0])}: {self._error(0)}"
            )

    def refit_poor_optima(self):
        """Refit cells whose likelihood is below that of a cell nested in them, until there are none."""
        good = [cell for cell in range(len(self.cells)) if not self._error(cell) and not self.brief[cell]]
        nested = {
            cell: [other for other in good if is_nested(self.complete[other], self.complete[cell])]
            for cell in good
        }
        attempts: Counter[Any] = Counter()
        while True:
            starts, origins = {}, {}
            for (cell, part), fit in self.fits.items():
                candidates = [
                    (other, part) for other in nested.get(cell, ()) if not self.fits[other, part].degenerate
                ]
                better = max(candidates, key=lambda key: self.fits[key].log_likelihood, default=(cell, part))
                gap = self.fits[better].log_likelihood - fit.log_likelihood
                poor = gap > _TOLERANCE * max(1.0, abs(fit.log_likelihood))
                if poor and attempts[cell, part] < _ATTEMPTS:
                    starts[cell, part], origins[cell, part] = self._start(cell, better, attempts[cell, part])
                    attempts[cell, part] += 1
            if not starts:
                return
            for key, fit in self._run(starts, "Refitting poor optima"):
                self.refits[key[0]] += 1
                if _is_better(fit, self.fits[key]):
                    self.fits[key] = replace(fit, started_from=origins[key])

    def _start(self, cell, better, attempt):
        """Starting values from the better fit, and their name; another seed if there are none."""
        rng = np.random.default_rng([self.seed, attempt])
        start = start_from(self.fits[better].model, self.complete[cell], rng)
        if start is not None:
            return start, cell_name(self.cells[better[0]])
        seed = self.seed + 1 + attempt
        return {"random_state": seed}, f"random_state={seed}"

    def _error(self, cell):
        return next((e for part in range(len(self.parts)) if (e := self.fits[cell, part].error)), "")

    def _run(self, starts, title):
        """Yield each cell and part with its fit from the given starting values."""
        return zip(starts, self._fitted(list(starts.items()), title), strict=True)

    def _fitted(self, starts, title, brief=False):
        """Yield the fit of each (cell, part) from its starting values, in order, up to an interrupt."""
        jobs = [
            delayed(fit_one)(
                self.estimator,
                self.params[cell],
                start,
                self.X,
                self.y,
                self.weight,
                self.parts[part],
                os.getpid(),
            )
            for (cell, part), start in starts
        ]
        n_cores = row_threads()
        # Limit BLAS here too, for all threads: threads may not be able to change the limit themselves.
        with warnings.catch_warnings(record=True) as caught, one_blas_thread():
            warnings.simplefilter("always", UserWarning)
            results = side_by_side(jobs, self.n_jobs, n_cores)
            results = shown(results, len(jobs), title) if self.verbose else results
            for ((cell, _), _), fit in zip(starts, results, strict=True):
                self.seconds[cell] += fit.seconds
                warned = [*((one.category, str(one.message)) for one in caught), *fit.warned]
                caught.clear()
                self.warned.update(one for one in warned if not (brief and issubclass(one[0], _BRIEF)))
                yield fit
                if fit.interrupted:
                    raise KeyboardInterrupt

    def complain(self):
        """Summarise the warnings of all fits in one warning; of degenerate components the table tells."""
        told = (DegenerateWarning, InterruptedWarning)
        for kind in [kind for kind in self.warned if issubclass(kind[0], told)]:
            del self.warned[kind]
        if self.interrupted:
            n_fitted = sum(not self._error(cell) for cell in range(len(self.cells)))
            warnings.warn(
                f"the search was interrupted; {n_fitted} of {len(self.cells)} models are fitted, "
                "perhaps not all to the end",
                InterruptedWarning,
                stacklevel=3,  # the caller of `select`
            )
        if not self.warned:
            return
        convergence = all(issubclass(category, ConvergenceWarning) for category, _ in self.warned)
        common = self.warned.most_common(3)
        listed = "; ".join(f"{count} x {text}" for (_, text), count in common)
        more = ", and others" if len(self.warned) > len(common) else ""
        warnings.warn(
            f"some fits of the search raised warnings: {listed}{more}",
            ConvergenceWarning if convergence else UserWarning,
            stacklevel=3,  # the caller of `select`
        )

    def rows(self, column):
        """Rows of the table; `column` is the column for the mean over folds."""
        names = sorted({name for cell in self.cells for name in cell})
        for cell, complete in enumerate(self.complete):
            fit, *folds = (self.fits[cell, part] for part in range(len(self.parts)))
            yield {
                **{name: complete[name] for name in names},
                **{name: fit.numbers.get(name) for name in _COLUMNS},
                **(_held_out(column, [fold.held_out for fold in folds]) if folds else {}),
                "seconds": self.seconds[cell],
                "brief": self.brief[cell],
                "refits": self.refits[cell],
                "started_from": fit.started_from,
                "error": self._error(cell),
            }


def _is_better(fit, other):
    """Whether a fit is to be kept: without an error, without degenerate components, and likelier."""
    return (not fit.error, not fit.degenerate, fit.log_likelihood) > (
        not other.error,
        not other.degenerate,
        other.log_likelihood,
    )


def _held_out(column, scores):
    """Mean over folds and its standard error."""
    mean = np.mean(scores)
    error = np.std(scores, ddof=1) / np.sqrt(len(scores)) if np.isfinite(mean) else np.nan
    return {column: mean, "held_out_standard_error": error}


def side_by_side(jobs, n_jobs, n_cores):
    """Yield the results of joblib's delayed calls, in order."""
    if n_jobs is None:
        began = time.perf_counter()
        while jobs and time.perf_counter() - began < _QUICK:
            (function, args, kwargs), *jobs = jobs
            yield function(*args, **kwargs)
        n_jobs = n_cores
    if jobs:
        yield from Parallel(n_jobs=min(n_jobs, len(jobs)), return_as="generator")(jobs)


def shown(results, n_results, title):
    """Yield the results with a progress bar if rich is installed, else a line per tenth of them."""
    try:
        from rich.progress import track
    except ImportError:
        for number, result in enumerate(results, 1):
            if number * 10 // n_results > (number - 1) * 10 // n_results:
                print(f"{title}: {number} of {n_results} fits")
            yield result
        return
    yield from track(results, description=title, total=n_results)
