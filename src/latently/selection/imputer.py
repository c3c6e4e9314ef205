"""A model for imputation, chosen by how well it predicts entries that are hidden from it.

Which entries are hidden decides what is measured. In turn, the rows of each of `cv` parts borrow the
missingness patterns of other rows, and what these patterns cover is hidden, so that hidden entries are
missing in the way of the data's own. Every candidate is fitted to what is left. Its error is that of the
hidden entries in units of the standard deviation of their features: imputing the mean has an error of about
one.

Candidates grow step by step along paths (factors, components, shrinkage), each of which ends where the error
no longer decreases. Paths are followed on some of the rows, with few iterations, which are a kind of
shrinkage as well; the few best models are compared on all. They are independent of the units of the features,
except for PPCA and MPPCA.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, field, replace
from numbers import Integral
from time import perf_counter
from typing import Any

import numpy as np
from joblib import delayed
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from latently.backend.placement import one_blas_thread, row_threads
from latently.estimators.base import Estimator
from latently.estimators.checks import check_callbacks, check_integer, check_seed, check_verbosity
from latently.estimators.data import called, checked_table
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.messages import InterruptedWarning, unchanged_on_failure, warn_user
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_random_state
from latently.mixture import MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.selection.search import side_by_side

_QUICK: dict[str, Any] = {"tol": 1e-3, "max_iter": 100}  # further iterations fit the rows, not hidden entries
_SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128)  # numbers of factors
_COARSE = (2, 8, 24, 64, 128)  # the first of them
_COMPONENTS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
_PRIORS = (
    1.0,
    10.0,
    30.0,
    100.0,
)  # rows that the prior of full covariances is worth: weak to strong shrinkage
_FLOORS = (0.03, 0.001)  # of their variances
_FACTOR_FLOOR = 0.03
_FIRST_ROWS = 1000  # on which paths are followed
_LEADERS = 2  # models that are compared on all rows
_MOST_FULL = 200  # features up to which full covariances are tried
_PATIENCE = 2  # steps without a lower error after which a path ends; one for mixtures
_WORTH = 0.995  # a step counts as better below this fraction of the error
_NEAR = 1.05  # a path goes on if its error is below this times the lowest
_HOPEFUL = 1.2  # the same of paths of factors, which may be long
_CLOSE = 1.02  # and a model is compared on all parts
_ENOUGH = 1500  # hidden entries that are enough to compare models along a path
_SHARE = 0.2  # of the entries hidden if no row has missing ones


@dataclass(frozen=True)
class Candidate:
    """A model, and how well it imputes."""

    model: Any = field(compare=False)  # not fitted
    error: float = np.nan  # root of the mean squared error of hidden entries, in standard deviations
    standard_error: float = np.nan  # of that, over the parts
    seconds: float = field(default=0.0, compare=False)
    failure: str = ""  # the message of the error, if a fit failed

    @property
    def sortable(self) -> float:
        return float(self.error) if np.isfinite(self.error) else np.inf

    @property
    def name(self) -> str:
        """The model in a few words, such as MFA(2, 4)."""
        return name_of(self.model)


def name_of(model: Any) -> str:
    """A model in a few words: its sizes, and bounds that differ from the default."""
    own = model.get_params(deep=False)
    default = type(model)().get_params(deep=False)
    told = [
        str(own[name]) if name in ("n_components", "n_factors") else f"{name}={own[name]!r}"
        for name in ("n_components", "n_factors", "covariance_type", "noise_floor", "prior", "tails")
        if name in own and (name.startswith("n_") or own[name] != default[name])
    ]
    return f"{type(model).__name__}({', '.join(told)})"


def _lowest(candidates: list[Candidate]) -> float:
    return min((candidate.sortable for candidate in candidates), default=np.inf)


@estimator
class Imputer(OneToOneFeatureMixin, TransformerMixin, Estimator):
    """Impute missing entries by the model that predicts hidden entries best.

    `fit` hides some of the observed entries, in the missingness patterns of other rows, and compares models
    by the error with which they impute these entries: means of the features, a full Gaussian with several
    amounts of shrinkage, also with heavy tails, factor analysis and PPCA with growing numbers of factors, and
    mixtures of these. The best is fitted to all rows.

    Parameters
    ----------
    models : list of estimators, optional
        The candidates, for example ``[PPCA(q) for q in range(1, 9)]``. Each needs `fit` and `impute`. By
        default they are chosen as above; paths end where the error stops decreasing.
    cv : int, default=4
        Number of parts of the rows in which entries are hidden in turn.
    max_rows : int, default=3000
        Candidates are compared on at most this many rows, drawn at random.
    n_jobs : int or None
        Number of parallel fits, each on one core, as for :func:`select`.
    random_state : int, Generator, RandomState or None
        Seed of hidden entries, and of models whose own `random_state` is None.
    verbose : int, default=0
        Whether to print the error of each candidate.
    callbacks : list of callables, optional
        Called with the :class:`Candidate` after each comparison: `model`, `error`, `seconds`.

    Attributes
    ----------
    best_ : estimator
        The chosen model, fitted to all rows.
    best_score_ : float
        Its error: root mean squared error of hidden entries in standard deviations of their features.
    baseline_score_ : float
        The error of the means of the features.
    candidates_ : list of Candidate
        All models that were compared, with their errors; `table_` is a table of them. They are not saved.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from latently.selection import Imputer
    >>> X = load_iris().data.copy()
    >>> X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    >>> imputer = Imputer(random_state=0).fit(X)
    >>> completed = imputer.transform(X)
    >>> bool(np.isfinite(completed).all()), imputer.best_score_ < 0.5 * imputer.baseline_score_
    (True, True)
    """

    models: Any = None
    _: KW_ONLY
    cv: int = option(default=4, check=check_integer, least=2)
    max_rows: int = option(default=3000, check=check_integer, least=2)
    n_jobs: int | None = option(default=None, check=lambda name, value: _check_jobs(name, value))
    random_state: Any = option(default=None, check=check_seed)
    verbose: int = option(default=0, check=check_verbosity)
    callbacks: Any = option(default=None, check=check_callbacks)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None):
        """Choose a model, and fit it to all rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows, in memory, with NaN in missing entries. Without any, a fifth of the entries is hidden at
            random.
        y : ignored

        Returns
        -------
        self
            Ctrl-C ends the comparison; the best of the models compared until then is fitted to all rows.
        """
        self._check_options()
        with unchanged_on_failure(self):
            rows = checked_table(
                self, X, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2
            )
            never = np.flatnonzero(np.isnan(rows).all(axis=0))
            if len(never):
                raise ValueError(f"feature {called(self, never[0])} of X is missing in every row; drop it")
            rng = as_random_state(self.random_state)
            task = _Task.of(rows, self.cv, self.max_rows, rng)
            seed = rng.randint(2**31 - 1)
            self._candidates = self._compared_so_far(task, seed)
            best = min(reversed(self._candidates), key=lambda candidate: candidate.sortable)
            if not np.isfinite(best.sortable):
                raise ValueError(f"no model could be fitted; {best.model}: {best.failure}")
            self.best_score_ = best.error
            self.baseline_score_ = task.error_of_means()
            with _quietly(), ended_by_one_interrupt() as ending:
                self.best_ = clone(best.model).fit(X)
            if ending.interrupted:
                warn_user("Imputer was interrupted; its model is not fitted to the end", InterruptedWarning)
        return self

    def _check_options(self):
        super()._check_options()
        if self.models is None:
            return
        if not isinstance(self.models, (list, tuple)) or not self.models:
            raise TypeError(f"models must be a list of estimators, such as [PPCA(2)], not {self.models!r}")
        for model in self.models:
            if isinstance(model, type) or not all(hasattr(model, name) for name in ("fit", "impute")):
                raise TypeError(
                    f"models must have fit and impute, as PPCA(2) has; {model!r} is not such an object"
                )

    def _compared_so_far(self, task: _Task, seed: int) -> list[Candidate]:
        """All candidates, or those that were compared before the user interrupted."""
        self._done: list[Candidate] = []
        try:
            return self._compared(task, seed)
        except KeyboardInterrupt:
            if not np.isfinite(_lowest(self._done)):
                raise
            warn_user(
                f"Imputer was interrupted; it chooses among the {len(self._done)} models compared until then",
                InterruptedWarning,
            )
            return self._done
        finally:
            self.__dict__.pop("_done", None)

    def _compared(self, task: _Task, seed: int) -> list[Candidate]:
        """All candidates with their errors, in the order in which they were compared.

        Paths are followed on some of the rows and parts; all of them decide between the best.
        """
        if self.models is not None:
            return self._round(task, [_seeded(model, seed) for model in self.models])
        n, D = task.X.shape
        some = task.some_rows().some_parts()
        found = self._along(some, _full_paths(D), 1)
        found += self._along(some, _factor_paths(D), _PATIENCE, _HOPEFUL * _lowest(found))
        found += self._along(some, _further_paths(found, n, D, seed), 1, _NEAR * _lowest(found))
        if some is task:
            return found
        close = [c for c in found if c.sortable <= _CLOSE * _lowest(found)]
        best = sorted(close, key=lambda candidate: candidate.sortable)[:_LEADERS]
        again = self._round(task, [candidate.model for candidate in best])
        others = [replace(c, error=max(c.error, _lowest(again))) for c in found if id(c) not in map(id, best)]
        return others + [
            replace(new, seconds=old.seconds + new.seconds) for new, old in zip(again, best, strict=True)
        ]

    def _along(
        self, task: _Task, paths: list[list[Any]], patience: int, near: float = np.inf
    ) -> list[Candidate]:
        """Compare the next model of every path at a time, until all paths have ended.

        A path ends after steps that do not lower its error, and at once where its error is above `near`.
        """
        compared: list[Candidate] = []
        state = [(path, np.inf, 0) for path in paths if path]
        while state:
            found = self._round(task, [path[0] for path, _, _ in state])
            compared += found
            going = []
            for (path, best, waited), candidate in zip(state, found, strict=True):
                waited = 0 if candidate.sortable < _WORTH * best else waited + 1
                best = min(best, candidate.sortable)
                if len(path) > 1 and waited < patience and best <= near:
                    going.append((path[1:], best, waited))
            state = going
        return compared

    def _round(self, task: _Task, models: list[Any]) -> list[Candidate]:
        """The models with their errors; all fits side by side."""
        parts = range(len(task.hidden))
        jobs = [delayed(_errors)(model, task, part) for model in models for part in parts]
        found: list[Candidate] = []
        errors: list[tuple[float, float, str]] = []
        with one_blas_thread():
            for error in side_by_side(jobs, self.n_jobs, row_threads()):
                errors.append(error)
                if len(errors) < len(parts):
                    continue
                candidate, errors = _candidate(models[len(found)], errors), []
                found.append(candidate)
                self._done.append(candidate)
                if self.verbose:
                    print(f"{candidate.name}: {candidate.failure or f'error {candidate.error:.4f}'}")
                for callback in self.callbacks or ():
                    callback(candidate)
        return found

    # -- using a fitted model -------------------------------------------------------------------------

    def transform(self, X):
        """The rows with missing entries imputed.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Or a data frame with the same index and columns, if X is one.
        """
        return self.impute(X)

    def impute(self, X, **options):
        """Impute missing entries by the chosen model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        **options
            Those of the `impute` method of the model: for mixtures `n_draws`, `return_std`, `random_state`
            and `out`.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Or a data frame, if X is one and no options are given.
        """
        check_is_fitted(self)
        if not hasattr(X, "iloc"):
            return self.best_.impute(X, **options)
        imputed = self.best_.impute(X, **options)
        if options:
            return imputed
        return type(X)(imputed, index=X.index, columns=X.columns)

    @property
    def candidates_(self):
        """All models that were compared, with their errors; they are not saved."""
        check_is_fitted(self)
        return self._candidates

    @property
    def table_(self):
        """The candidates as a pandas DataFrame, best first."""
        check_is_fitted(self)
        try:
            import pandas
        except ImportError as error:
            raise ImportError("tables need pandas: pip install 'latently[csv]'") from error

        rows = [
            {
                "model": candidate.name,
                "error": candidate.error,
                "standard_error": candidate.standard_error,
                "seconds": candidate.seconds,
                "failure": candidate.failure,
            }
            for candidate in self.candidates_
        ]
        return pandas.DataFrame(rows).sort_values("error", kind="stable", ignore_index=True)

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {
            "best_score": np.asarray(self.best_score_),
            "baseline_score": np.asarray(self.baseline_score_),
        }

    def _parts(self):
        return {"best": self.best_}

    def _set_parts(self, best):
        if not hasattr(best, "impute"):
            raise ValueError("its model cannot impute")
        self.best_, self.n_features_in_ = best, best.n_features_in_

    def _set_fitted_arrays(self, best_score, baseline_score):
        for score in (best_score, baseline_score):
            if np.shape(score) != () or not np.isfinite(score):
                raise ValueError("its errors must be finite numbers")
        self.best_score_, self.baseline_score_ = np.float64(best_score), np.float64(baseline_score)
        self._candidates = []


def _check_jobs(name, value):
    if value is not None and (isinstance(value, bool) or not isinstance(value, Integral) or value == 0):
        raise ValueError(f"{name} must be None, a number of jobs or -1 for every core, not {value!r}")


# -- candidates ------------------------------------------------------------------------------------------


def _full_paths(D: int) -> list[list[Any]]:
    """Means, and full Gaussians from weak to strong shrinkage."""
    full = [
        [GaussianMixture(noise_floor=floor, prior=rows, **_QUICK) for rows in _PRIORS]
        for floor in _FLOORS
        if 1 < D <= _MOST_FULL
    ]
    return [[GaussianMixture(covariance_type="diag", **_QUICK)], *full]


def _factor_paths(D: int) -> list[list[Any]]:
    """Growing factor models of one component."""
    return [
        [_factors(q) for q in _COARSE if _identified(q, D)],
        [PPCA(q, **_QUICK) for q in _COARSE if q < D],
    ]


def _factors(q: int) -> FactorAnalysis:
    return FactorAnalysis(q, noise_floor=_FACTOR_FLOOR, **_QUICK)


def _identified(q: int, D: int) -> bool:
    """With more factors a covariance of factor analysis has no fewer parameters than a full one."""
    return q < D and (D - q) ** 2 >= D + q


def _further_paths(singles: list[Candidate], n: int, D: int, seed: int) -> list[list[Any]]:
    """Models near the best ones of one component: mixtures of them, heavy tails, other numbers of factors.

    A component has on average at least ten rows, five for each of its factors, and one for each feature if
    covariances are full.
    """

    def best(*classes):
        own = [c for c in singles if isinstance(c.model, classes) and np.isfinite(c.sortable)]
        own = [c for c in own if getattr(c.model, "covariance_type", "full") == "full"]
        return min(own, key=lambda candidate: candidate.sortable, default=None)

    options: dict[str, Any] = {**_QUICK, "n_init": 1, "random_state": seed}
    sizes = [K for K in _COMPONENTS if n >= 10 * K]
    paths = []
    gaussian, factors, principal = best(GaussianMixture), best(FactorAnalysis, PPCA), best(PPCA)
    if gaussian is not None:
        shrunk = {"noise_floor": gaussian.model.noise_floor, "prior": gaussian.model.prior}
        paths.append([GaussianMixture(tails="t", **shrunk, **_QUICK)])
        paths.append([GaussianMixture(K, **shrunk, **options) for K in sizes if n >= K * D])
    if factors is not None:
        q, isotropic = factors.model.n_factors, isinstance(factors.model, PPCA)
        cls: Any
        more: dict[str, Any]
        cls, more = (MPPCA, {}) if isotropic else (MFA, {"noise_floor": _FACTOR_FLOOR})
        for smaller in sorted({max(1, q // 4), max(1, q // 2)}):
            paths.append([cls(K, smaller, **more, **options) for K in sizes if n >= 5 * K * smaller])
    for family, kind in ((principal, PPCA), (best(FactorAnalysis), FactorAnalysis)):
        if family is None or family.sortable > _NEAR * _lowest(singles):
            continue
        q = family.model.n_factors
        between = [r for r in (*_SIZES, D - 1) if r not in _COARSE and 0 < r < D]
        for path in ([r for r in reversed(between) if r < q], [r for r in between if r > q]):
            if kind is PPCA:
                paths.append([PPCA(r, **_QUICK) for r in path])
            else:
                paths.append([_factors(r) for r in path if _identified(r, D)])
    return paths


def _seeded(model: Any, seed: int) -> Any:
    model = clone(model)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=seed)
    return model


# -- hidden entries --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Rows, and the entries to be hidden in turn."""

    X: Any  # (n, D)
    hidden: list[Any]  # for each part of the rows a mask (n, D)
    scale: Any  # (D,) standard deviations; one where constant

    @classmethod
    def of(cls, X, cv, max_rows, rng):
        X = X[np.lexsort(np.where(np.isnan(X), np.inf, X).T)]  # so that the order of rows does not matter
        observed = ~np.isnan(X)
        rows = np.flatnonzero(observed.any(axis=1))
        if len(rows) > max_rows:
            rows = np.sort(rng.choice(rows, size=max_rows, replace=False))
            unseen = ~observed[rows].any(axis=0)  # rare features need some rows that have them
            for feature in np.flatnonzero(unseen):
                rows = np.union1d(rows, np.flatnonzero(observed[:, feature])[:2])
        X, observed = X[rows], observed[rows]
        largest = np.nanmax(np.abs(X), axis=0)
        unit = np.where(largest > 0, largest, 1.0)
        deviation = np.nanstd(X / unit, axis=0) * unit  # squares of large numbers would overflow
        return cls(X, hidden_entries(observed, cv, rng), np.where(deviation > 0, deviation, 1.0))

    def some_parts(self):
        """The same with as many parts as give enough hidden entries."""
        counts = np.cumsum([mask.sum() for mask in self.hidden])
        n_parts = int(np.searchsorted(counts, _ENOUGH)) + 1
        return self if n_parts >= len(self.hidden) else replace(self, hidden=self.hidden[:n_parts])

    def some_rows(self):
        """The same with some rows, at equal distances in their order, if these observe all features."""
        if len(self.X) <= _FIRST_ROWS:
            return self
        rows = np.linspace(0, len(self.X) - 1, _FIRST_ROWS).astype(int)
        seen = [(~np.isnan(self.X[rows]) & ~mask[rows]).sum(axis=0).min() for mask in self.hidden]
        if min(seen) < 2 or not all(mask[rows].any() for mask in self.hidden):
            return self
        return replace(self, X=self.X[rows], hidden=[mask[rows] for mask in self.hidden])

    def error_of_means(self):
        """The error of imputing the means of the features."""
        squares = [
            np.mean((((np.nanmean(np.where(mask, np.nan, self.X), axis=0) - self.X) / self.scale)[mask]) ** 2)
            for mask in self.hidden
        ]
        return float(np.sqrt(np.mean(squares)))


def hidden_entries(observed, cv, rng):
    """Masks (n, D) of the entries that are hidden in turn: one for each of `cv` parts of the rows.

    Rows borrow the missingness pattern of another incomplete row. A feature keeps at least two entries.
    """
    n, D = observed.shape
    incomplete = np.flatnonzero(~observed.all(axis=1))
    part = rng.permutation(n) % cv
    if len(incomplete):
        patterns = ~observed[rng.choice(incomplete, size=n)]
    else:
        patterns = rng.uniform(size=(n, D)) < _SHARE
    masks = []
    for p in range(cv):
        mask = patterns & observed & (part == p)[:, None]
        if not mask.any():  # patterns are all alike, or there are very few rows
            mask = observed & (rng.uniform(size=(n, D)) < _SHARE)
        for feature in np.flatnonzero((observed & ~mask).sum(axis=0) < 2):
            mask[:, feature] = False
        if mask.any():
            masks.append(mask)
    if not masks:
        raise ValueError(f"X has too few observed entries ({int(observed.sum())}) to hide some; add rows")
    return masks


# -- one fit ---------------------------------------------------------------------------------------------


def _errors(model: Any, task: _Task, part: int) -> tuple[float, float, str]:
    """Mean squared error of the hidden entries of a part, seconds, and the message of an error."""
    began = perf_counter()
    mask = task.hidden[part]
    seen = np.where(mask, np.nan, task.X)
    try:
        with one_blas_thread(), _quietly(), ended_by_one_interrupt() as ending:
            imputed = np.asarray(clone(model).fit(seen).impute(seen))
        if ending.interrupted:  # a model that is not fitted to the end is not compared
            raise KeyboardInterrupt
        error = float(np.mean((((imputed - task.X) / task.scale)[mask]) ** 2))
        failure = "" if np.isfinite(error) else "the imputed entries are not finite"
    except Exception as raised:  # a model that cannot be fitted does not affect the others
        error, failure = np.nan, f"{type(raised).__name__}: {raised}"
    return error, perf_counter() - began, failure


def _candidate(model: Any, results: list[tuple[float, float, str]]) -> Candidate:
    squares = np.array([square for square, _, _ in results])
    failure = next((message for _, _, message in results if message), "")
    candidate = Candidate(model, seconds=sum(seconds for _, seconds, _ in results), failure=failure)
    if failure:
        return candidate
    error = float(np.sqrt(squares.mean()))
    spread = float(squares.std(ddof=1) / np.sqrt(len(squares))) if len(squares) > 1 else np.nan
    return replace(candidate, error=error, standard_error=spread / (2 * max(error, 1e-300)))


class _quietly(warnings.catch_warnings):
    """Candidates need not converge, and constant features are imputed by their constant."""

    def __enter__(self):
        super().__enter__()
        warnings.simplefilter("ignore")
