"""Families of densities compared on one table: which fits best, by how much, and whether it fits at all."""

from __future__ import annotations

import time
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score

from latently.estimators.checks import check_integer, check_number, check_seed
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.messages import InterruptedWarning, warn_user
from latently.selection.families import Cell, described, families, mixed_families, rows_to_search
from latently.selection.fit_check import Calibration, calibration
from latently.selection.search import degenerate_count

_HELD_OUT = 0.2  # share of the rows that no candidate is fitted to
_FEWEST_HELD_OUT = 20
_SEARCH = {"max_iter": 100, "tol": 1e-5}  # the winner is fitted anew, to the end
_PATIENCE = 1.5  # times the budget in which the first fits of families may end


@dataclass
class Comparison:
    """The result of `compare`.

    Attributes
    ----------
    best_ : estimator
        The best model, fitted to all rows given.
    best_name_, best_params_ : str and dict
        Its family, and the sizes that were found.
    table_ : DataFrame
        One row for each family, best first: `family`, sizes, `bic`, `held_out` (mean log density of
        held-out rows), `stability` (adjusted Rand index of bootstrap fits), `n_parameters`, `n_fits`
        and `seconds`.
    calibration_ : Calibration
        Whether the best model fits at all.
    verdict_ : str
        Which family won, by how much, and whether it fits.
    """

    best_: Any
    best_name_: str
    best_params_: dict
    table_: Any
    calibration_: Calibration | None
    verdict_: str
    seconds_: float

    def unfitted(self, random_state=0):
        """The best estimator, not fitted, with the settings of a fit to the end."""
        settings = self.best_.get_params(deep=False)
        for name in ("max_iter", "tol", "callbacks"):
            del settings[name]
        return type(self.best_)(**{**settings, "random_state": random_state})

    def __str__(self):
        return self.verdict_


def compare(
    X,
    *,
    n_components=None,
    n_factors=None,
    columns=None,
    budget=30,
    n_bootstrap=0,
    feature_names=None,
    random_state=0,
    refit=True,
    progress=None,
):
    """Fit the sensible families of densities to rows, and say which to use.

    Gaussian mixtures of several structures, factor models, their mixtures, and a mixture with heavy tails
    are fitted to four fifths of the rows, each in sizes that grow while BIC falls. The lowest BIC wins;
    held-out rows check it. Of many rows a sample is used. Of rows with columns that are not plain numbers,
    the families are mixtures of mixed columns.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
        Standardised rows, NaN where missing; tables are compared by `TableModel` or the command line.
    n_components, n_factors : int or list of int, optional
        Compare only models with one of these numbers of components, or of factors. By default all families
        are compared, in sizes that the search finds.
    columns : dict, optional
        Kinds of columns that are not plain numbers, by their place, as for `MixedMixture`.
    budget : float, default=30
        Seconds for all fits of the comparison; a fit under way when the time is over is stopped.
    n_bootstrap : int, default=0
        Number of bootstrap fits of each family's best model, for `stability`. They take time of their own.
    feature_names : list of str, optional
        Names in the verdict.
    random_state : int, default=0
        Seed of fits, samples and held-out rows.
    refit : bool, default=True
        Whether `best_` is fitted to all rows of X; otherwise it is the one fitted to four fifths of a sample.
    progress : callable, optional
        Called as ``progress(seconds, budget, text)`` after every fit.

    Returns
    -------
    Comparison
        Ctrl-C ends the search with the fits so far; then `best_` is not fitted to all rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from latently.selection import compare
    >>> found = compare(scale(load_iris().data), budget=5)
    >>> found.table_["bic"].is_monotonic_increasing
    True
    """
    check_number("budget", budget, least=0.1)
    check_integer("n_bootstrap", n_bootstrap, least=0)
    check_seed("random_state", random_state)
    sizes = [_numbers("n_components", n_components), _numbers("n_factors", n_factors)]
    start = time.monotonic()
    X = _checked(X)
    train, held_out = _divided(X, random_state)
    search = _Search(train, start, float(budget), random_state, progress)
    kinds = families(train, *sizes) if columns is None else mixed_families(train, columns, *sizes)
    found = search.run(kinds)
    if not found:
        raise ValueError("no family could be fitted: " + (search.error or "the rows do not suit any"))
    if search.interrupted:
        warn_user(
            "compare was interrupted; it compares the models fitted until then, to a part of the rows",
            InterruptedWarning,
        )
        n_bootstrap, refit = 0, False
    scores = {family.name: _scores(family, held_out) for family in found}
    stability = {
        family.name: _stability(family.best, train, held_out, n_bootstrap, random_state) for family in found
    }
    best = found[0]
    # calibrated before the refit, by rows that it has not seen
    fit = calibration(best.best.estimator, held_out, feature_names=feature_names) if len(held_out) else None
    model = best.best.estimator
    if refit:
        parameters = best.parameters(best.best.sizes)
        model = clone(best.estimator).set_params(**parameters, random_state=random_state).fit(X)
    return Comparison(
        model,
        best.name,
        best.parameters(best.best.sizes),
        _table(found, scores, stability),
        fit,
        _verdict(found, scores, fit, search),
        time.monotonic() - start,
    )


def _numbers(name, given):
    """The allowed numbers in ascending order; None if all are."""
    if given is None:
        return None
    numbers = [given] if np.ndim(given) == 0 else list(given)
    if not numbers:
        raise ValueError(f"{name} must be a number or a list of numbers, not empty")
    for number in numbers:
        check_integer(name, number, least=1)
    return sorted(map(int, set(numbers)))


def _checked(X):
    X = np.asarray(X, dtype=np.float64)
    if X.ndim != 2 or min(X.shape) == 0:
        raise ValueError(f"X must be rows of numbers, (n_samples, n_features), not of shape {X.shape}")
    if np.isinf(X).any():
        raise ValueError("X contains infinite values")
    if len(X) < 10:
        raise ValueError(f"{len(X)} rows are too few to compare models; at least 10 are needed")
    return X


def _divided(X, seed):
    """Rows of the search and held-out rows, of a sample if there are many."""
    order = np.random.default_rng(seed).permutation(len(X))[: rows_to_search(*X.shape)]
    n_held_out = int(_HELD_OUT * len(order))
    if n_held_out < _FEWEST_HELD_OUT:  # too few to judge by
        return X[np.sort(order)], X[:0]
    return X[np.sort(order[n_held_out:])], X[np.sort(order[:n_held_out])]


class _Search:
    """Fits in turn until all families are at a minimum of BIC or the time is over."""

    def __init__(self, X, start, budget, seed, progress):
        self.X, self.start, self.budget, self.seed, self.progress = X, start, budget, seed, progress
        self.error = None
        self.complete = True
        self.interrupted = False

    def run(self, kinds):
        """The families with a fit, best first; those until then if the user interrupts."""
        kinds = list(kinds)
        try:
            self._fit_in_turn(list(kinds))
        except KeyboardInterrupt:
            if all(family.best is None for family in kinds):
                raise
            self.interrupted = True
        found = [family for family in kinds if family.best is not None]
        sound = [family for family in found if family.best.n_degenerate == 0]
        return sorted(sound or found, key=lambda family: family.best.bic)

    def _fit_in_turn(self, waiting):
        while waiting:
            for family in self._turn(waiting):
                sizes = family.next_sizes()
                if sizes is None:
                    waiting.remove(family)
                    continue
                if self.elapsed() > (self.budget if family.tried else _PATIENCE * self.budget):
                    self.complete = False
                    waiting.remove(family)
                    continue
                family.tried[sizes] = self._cell(family, sizes)
                if self.progress is not None:
                    self.progress(
                        self.elapsed(), self.budget, described(family.name, family.parameters(sizes))
                    )

    def _turn(self, waiting):
        """The families that are fitted next: all at first, then the better half."""
        if any(len(family.tried) < 2 for family in waiting):
            return list(waiting)
        hopeful = sorted(waiting, key=lambda family: family.best.bic if family.best else np.inf)
        return hopeful[: max(2, len(hopeful) // 2)]

    def elapsed(self):
        return time.monotonic() - self.start

    def _cell(self, family, sizes):
        begin = time.monotonic()
        late = self.budget if family.tried else _PATIENCE * self.budget
        over = []

        def stop(iteration):
            if self.elapsed() > late:
                over.append(True)
            return bool(over)

        model = clone(family.estimator).set_params(
            **family.parameters(sizes), **_SEARCH, random_state=self.seed, callbacks=[stop]
        )
        try:
            with warnings.catch_warnings(), ended_by_one_interrupt() as ending:
                warnings.simplefilter("ignore")  # of convergence and degenerate components, in a search
                model.fit(self.X)
            if ending.interrupted:
                raise KeyboardInterrupt
            bic = float(model.bic(self.X))
        except (ValueError, np.linalg.LinAlgError) as error:
            self.error = f"{described(family.name, family.parameters(sizes))}: {error}"
            return None
        model.set_params(callbacks=None)
        if over:
            self.complete = False
            if family.tried:  # what stopped early cannot be compared with what did not
                return None
        n, m = len(self.X), int(model.n_parameters())
        seconds, n_degenerate = time.monotonic() - begin, degenerate_count(model)
        return Cell(sizes, model, bic, (m * np.log(n) - bic) / (2 * n), m, seconds, n_degenerate)


def _scores(family, held_out):
    return np.asarray(family.best.estimator.score_samples(held_out)) if len(held_out) else np.zeros(0)


def _stability(cell, train, held_out, n_bootstrap, seed):
    """Mean agreement of clusters with those of fits to bootstrap samples; None without clusters."""
    model = cell.estimator
    if n_bootstrap == 0 or getattr(model, "n_components", 1) == 1 or not hasattr(model, "predict"):
        return None
    rows = held_out if len(held_out) else train
    rng, clusters, found = np.random.default_rng(seed), model.predict(rows), []
    for _ in range(n_bootstrap):
        sample = train[rng.integers(len(train), size=len(train))]
        with warnings.catch_warnings(), suppress(ValueError):
            warnings.simplefilter("ignore")
            again = clone(model).set_params(random_state=int(rng.integers(2**31))).fit(sample)
            found.append(adjusted_rand_score(clusters, again.predict(rows)))
    return float(np.mean(found)) if found else None


def _table(found, scores, stability):
    import pandas

    rows = []
    for family in found:
        cell, held_out = family.best, scores[family.name]
        sizes = {"n_components": None, "n_factors": None} | family.parameters(cell.sizes)
        rows.append(
            {
                "family": family.name,
                **sizes,
                "bic": cell.bic,
                "held_out": float(held_out.mean()) if len(held_out) else np.nan,
                "stability": stability[family.name],
                "n_parameters": cell.n_parameters,
                "n_fits": len(family.tried),
                "seconds": round(sum(one.seconds for one in family.tried.values() if one is not None), 3),
            }
        )
    types = {"n_components": "Int64", "n_factors": "Int64", "stability": "float64"}
    return pandas.DataFrame(rows).astype(types)


def _verdict(found, scores, fit, search):
    """Sentences: which won, by how much, what held-out rows say, and whether it fits."""
    best = found[0]
    won = described(best.name, best.parameters(best.best.sizes))
    won = won if won.startswith("t ") else won[0].upper() + won[1:]  # of the t distribution
    sentences = []
    if len(found) > 1:
        second = found[1]
        gap = second.best.bic - best.best.bic
        strength = "by far" if gap > 10 else "clearly" if gap > 6 else "narrowly" if gap > 2 else "barely"
        next_one = described(second.name, second.parameters(second.best.sizes))
        sentences.append(
            f"{won} is {strength} the best of {len(found)} families: its BIC is {gap:.1f} below {next_one}."
        )
    else:
        sentences.append(f"{won} is the only family that could be fitted.")
    mine = scores[best.name]
    if len(mine):
        others = {name: score - mine for name, score in scores.items() if name != best.name}
        name = max(others, key=lambda name: others[name].mean(), default=None)
        if name is not None:
            gain, error = others[name].mean(), others[name].std() / np.sqrt(len(mine))
            if gain > 2 * error:
                sentences.append(
                    f"Held-out rows disagree: their log density is {gain:.3f} ± {error:.3f} per row "
                    f"higher under {name}, so compare both."
                )
            else:
                sentences.append("Held-out rows agree.")
    if fit is not None:
        sentences.append(fit.verdict)
    if search.interrupted:
        sentences.append("The search was interrupted; more time tries more sizes.")
    elif not search.complete:
        sentences.append(
            f"The search was stopped after its budget of {search.budget:g} s; a larger one tries more sizes."
        )
    return " ".join(sentences)
