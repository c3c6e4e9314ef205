"""Uncertainty of mixtures by bootstrap: intervals of parameters, tests of the number of components.

    weighted      rows get random weights n * Dirichlet(1, ..., 1): the weighted likelihood bootstrap, which
                  approximates a posterior distribution (Newton & Raftery 1994, JRSS B)
    parametric    as many rows are drawn from the model, with its missing entries

Every draw is fitted from the parameters of the model, so it stays at its optimum. Then its components are
matched with those of the model by how they share the rows, and its factors are turned to those of the model:
both are arbitrary. Likelihood-ratio tests of K against K + 1 components draw rows from the model with K,
because the usual chi-squared distribution does not hold there (McLachlan 1987, Applied Statistics).
"""

from __future__ import annotations

import warnings
from copy import deepcopy

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed

from latently.backend.placement import one_blas_thread
from latently.estimators.checks import LARGEST, check_choice, check_integer, check_number
from latently.estimators.messages import warn_user
from latently.estimators.randomness import as_generator
from latently.selection.frames import pandas
from latently.selection.intervals import ParameterIntervals, names_of_axes
from latently.selection.refits import METHODS, Refits, arrays_of, like_rows

_MOST_FAILED = 0.2  # share of draws that may fail without an error


class Bootstrap(ParameterIntervals):
    """The result of :func:`bootstrap`.

    Attributes
    ----------
    draws_ : dict of str to ndarray of shape (n_draws, ...)
        Each fitted array in every draw, by its name without the trailing underscore, matched with the model.
    intervals_ : pandas.DataFrame
        A row for every number: `parameter`, its `class`, `component`, `subcomponent`, `feature` and `factor`
        as far as it has them, `estimate`, `standard_error`, `low` and `high`. Of covariances there are those
        up to the diagonal.
    n_failed_ : int
        Draws whose fit failed; they are left out.
    method : str
    level : float
    """

    def __init__(self, estimates, shapes, draws, names, *, method, level, n_failed=0):
        super().__init__(estimates, shapes, names, method=method, level=level)
        self.draws_, self.n_failed_ = draws, n_failed

    @property
    def basis(self):
        """What the intervals are, as a sentence."""
        n = len(next(iter(self.draws_.values())))
        failed = f" ({self.n_failed_} more failed)" if self.n_failed_ else ""
        return (
            f"Intervals contain {100 * self.level:g} % of {n} {self.method} bootstrap fits{failed}, each "
            "from the parameters of the model."
        )

    def _numbers(self, name):
        drawn = self.draws_[name]
        ends = np.quantile(drawn, [0.5 - self.level / 2, 0.5 + self.level / 2], axis=0)
        largest = np.abs(drawn).max(axis=0)
        unit = np.where(largest > LARGEST, largest, 1.0)  # squares of variances of huge rows overflow
        return unit * (drawn / unit).std(axis=0, ddof=1), *ends


def bootstrap(
    model,
    X,
    y=None,
    *,
    n_draws=200,
    method="weighted",
    level=0.95,
    sample_weight=None,
    feature_names=None,
    levels=None,
    n_jobs=None,
    random_state=None,
):
    """Standard errors and intervals of all parameters of a fitted mixture, factor model or classifier.

    They are of the optimum that the model is at: that the search for it may find another one is not part of
    them, and neither is the choice of the number of components.

    Parameters
    ----------
    model : fitted estimator
        A Gaussian, nested or mixed mixture or a factor model of `latently.mixture`, or a classifier of such
        densities: `PerClass`, `MJFAClassifier` or `MFMClassifier`.
    X : array-like of shape (n_samples, n_features)
        The rows it was fitted to, in memory; NaN where missing. A table for `MixedMixture`.
    y : array-like of shape (n_samples,), optional
        The classes of the rows, for classifiers.
    n_draws : int, default=200
        Number of fits. Standard errors need about 100, ends of intervals 500 and more.
    method : {"weighted", "parametric"}, default="weighted"
        Random weights of the rows, or rows drawn from the model, which are too sure if it is wrong.
    level : float, default=0.95
        Probability of the intervals, which are quantiles of the draws.
    sample_weight : array-like of shape (n_samples,), optional
        Weight of each row in the fit.
    feature_names : list of str, optional
        Names in the table of intervals; by default those of the fit.
    levels : dict, optional
        Names of the levels 0, 1, ... of categories there, by feature name, if the fit had numbers for them.
    n_jobs : int, optional
        Number of parallel fits, as for joblib. The result does not depend on it.
    random_state : int, Generator, RandomState or None
        Seed of the draws.

    Returns
    -------
    Bootstrap
        `intervals_`, `draws_`, `summary()`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from latently.mixture import GaussianMixture
    >>> from latently.selection import bootstrap
    >>> X = load_iris().data
    >>> model = GaussianMixture(2, random_state=0).fit(X)
    >>> found = bootstrap(model, X, n_draws=50, random_state=0).intervals_
    >>> weights = found[found["parameter"] == "weights"]
    >>> bool((weights["standard_error"].between(0.02, 0.06)).all())       # sqrt(w (1 - w) / 150) = 0.038
    True
    """
    check_choice("method", method, METHODS)
    check_integer("n_draws", n_draws, least=2)
    check_number("level", level, least=1e-6, most=1 - 1e-6)
    refits = Refits.of(model, X, y, sample_weight, method)
    seeds = as_generator(random_state).integers(2**32, size=n_draws)
    found = Parallel(n_jobs=n_jobs)(delayed(refits.draw)(int(seed)) for seed in seeds)
    fits = [one for one in found if not isinstance(one, str)]
    if len(found) - len(fits) > _MOST_FAILED * n_draws:
        first = next(one for one in found if isinstance(one, str))
        raise ValueError(f"{len(found) - len(fits)} of {n_draws} fits failed, the first with: {first}")
    shapes, estimates = refits.shapes, arrays_of(model)
    draws = {name: np.stack([fit[name] for fit in fits]) for name in shapes}
    return Bootstrap(
        estimates,
        shapes,
        draws,
        names_of_axes(model, feature_names, levels),
        method=method,
        level=float(level),
        n_failed=len(found) - len(fits),
    )


# -- the number of components -------------------------------------------------------------------------


class LikelihoodRatioTest:
    """The result of :func:`likelihood_ratio_test`.

    Attributes
    ----------
    n_components_ : int
        The first number of components that is not rejected in favour of one more.
    table_ : pandas.DataFrame
        A row for each test: `n_components`, `likelihood_ratio`, `p_value`, `n_draws`.
    best_ : estimator
        The model with `n_components_`.
    draws_ : list of ndarray
        The likelihood ratios of the draws of each test.
    level : float
    """

    def __init__(self, tests, models, *, level, draws):
        self._tests, self.level, self.draws_ = tests, level, draws
        rejected = [test["p_value"] <= level for test in tests]
        last = len(tests) if all(rejected) else rejected.index(False)
        self.best_ = models[last]
        self.n_components_ = self.best_.n_components

    @property
    def table_(self):
        return pandas().DataFrame(self._tests)

    def __repr__(self):
        return (
            f"{self.n_components_} components at level {self.level:g}\n{self.table_.to_string(index=False)}"
        )

    def _repr_html_(self):
        return self.table_._repr_html_()


def likelihood_ratio_test(
    estimator,
    X,
    *,
    most_components=6,
    n_draws=99,
    level=0.05,
    n_jobs=None,
    random_state=None,
):
    """Test K against K + 1 components for K = 1, 2, ... until K is not rejected, by parametric bootstrap.

    The p-value is (1 + the number of draws from the model with K whose likelihood ratio is at least that of
    the rows) / (1 + `n_draws`). Both models are fitted to each draw, so this takes `n_draws` searches for
    every K: a criterion such as BIC (:func:`select`) takes one.

    Parameters
    ----------
    estimator : mixture
        With `n_components`; clones of it are fitted.
    X : array-like of shape (n_samples, n_features)
        The rows, in memory; NaN where missing.
    most_components : int, default=6
        The largest number of components to be fitted.
    n_draws : int, default=99
        The smallest p-value is 1 / (1 + `n_draws`), so 99 draws suit a level of 0.05.
    level : float, default=0.05
        The probability of each test to ask for a component too many.
    n_jobs : int, optional
        Number of parallel draws, as for joblib. The result does not depend on it.
    random_state : int, Generator, RandomState or None
        Seed of the draws, and of fits whose own `random_state` is None.

    Returns
    -------
    LikelihoodRatioTest
        `n_components_`, `table_`, `best_`.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.mixture import GaussianMixture
    >>> from latently.selection import likelihood_ratio_test
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(100, 1)) + 6.0 * (np.arange(100) % 2)[:, None]
    >>> quick = GaussianMixture(n_init=2, tol=1e-4)
    >>> likelihood_ratio_test(quick, X, n_draws=19, random_state=0).n_components_
    2
    """
    check_integer("most_components", most_components, least=2)
    check_integer("n_draws", n_draws, least=1)
    check_number("level", level, least=1e-6, most=1 - 1e-6)
    if "n_components" not in getattr(estimator, "get_params", dict)() or not hasattr(estimator, "sample"):
        raise TypeError(f"estimator must be a mixture, such as GaussianMixture(), not {estimator!r}")
    if level < 1 / (n_draws + 1):
        raise ValueError(
            f"n_draws={n_draws} gives p-values of at least {1 / (n_draws + 1):.3g}, so none can be below "
            f"level={level:g}; draw at least {int(np.ceil(1 / level)) - 1}"
        )
    X = X if hasattr(estimator, "columns") and hasattr(X, "iloc") else np.asarray(X, dtype=np.float64)
    rng = as_generator(random_state)
    seed = int(rng.integers(2**32))
    models, tests, draws = [_fitted(estimator, X, 1, seed)], [], []
    while models[-1].n_components < most_components:
        null, K = models[-1], models[-1].n_components
        models.append(_fitted(estimator, X, K + 1, seed))
        observed = _likelihood_ratio(null, models[-1], X)
        seeds = rng.integers(2**32, size=n_draws)
        drawn = np.array(
            Parallel(n_jobs=n_jobs)(delayed(_drawn_ratio)(null, estimator, X, int(one)) for one in seeds)
        )
        draws.append(drawn)
        p_value = (1 + int(np.count_nonzero(drawn >= observed))) / (n_draws + 1)
        tests.append(
            {"n_components": K, "likelihood_ratio": observed, "p_value": p_value, "n_draws": n_draws}
        )
        if p_value > level:
            break
    else:
        warn_user(
            f"{most_components - 1} components are rejected in favour of {most_components}, the largest "
            "number; give a larger most_components"
        )
    return LikelihoodRatioTest(tests, models, level=float(level), draws=draws)


def _fitted(estimator, X, K, seed):
    model = clone(estimator).set_params(n_components=K)
    if model.get_params().get("random_state", 0) is None:
        model.set_params(random_state=seed)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        return model.fit(X)


def _likelihood_ratio(null, larger, X):
    return 2.0 * float(np.sum(larger.score_samples(X)) - np.sum(null.score_samples(X)))


def _drawn_ratio(null, estimator, X, seed):
    """The likelihood ratio of rows drawn from the smaller model."""
    rng = np.random.default_rng(seed)
    rows = like_rows(X, null.sample(len(X), random_state=rng)[0])
    smaller = deepcopy(null).set_params(warm_start=True, verbose=0, callbacks=None)
    with warnings.catch_warnings(), one_blas_thread():
        warnings.simplefilter("ignore")
        smaller.fit(rows)
    larger = _fitted(estimator, rows, null.n_components + 1, seed)
    return _likelihood_ratio(smaller, larger, rows)
