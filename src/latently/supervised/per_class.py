"""Bayes classifier built from one density per class.

    p(l | x) = rho_l p(x | l) / sum_h rho_h p(x | h)

Any estimator with `score_samples` can be used: a copy of it is fitted to the rows of each class.
"""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from latently.backend.namespace import like, namespace, to_numpy
from latently.core.data import Data
from latently.estimators.base import Estimator
from latently.estimators.checks import check_class_prior
from latently.estimators.classifier import FEW, DensityClassifier, check_temperature
from latently.estimators.data import check_data, in_memory
from latently.estimators.fitting import ended_by_one_interrupt
from latently.estimators.memory import check_draws
from latently.estimators.messages import InterruptedWarning, unchanged_on_failure, warn_user
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_generator, draw_from
from latently.estimators.rejection import remember_rows
from latently.estimators.rows import in_main_memory
from latently.estimators.weights import in_rows, weights_in_rows
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.supervised.borrowing import borrowed_rows, check_shrinkage

_GAUSSIAN = (FactorAnalysis, GaussianMixture, MCFA, MFA, MPPCA, PPCA)  # with one component


@estimator
class PerClass(DensityClassifier, Estimator):
    """Bayes classifier with one density per class: p(l|x) is proportional to rho_l p(x|l).

    The densities are fitted separately, each to the rows of its class. With :class:`latently.mixture.MCFA` it
    is known as mMCFA, with :class:`latently.mixture.MPPCA` as mPPCA.

    Parameters
    ----------
    density : estimator
        Anything with `fit(X)` and `score_samples(X)`, the log density of rows: the models of
        `latently.mixture`, scikit-learn's `GaussianMixture` and `KernelDensity`, and pipelines that end in
        one of these. Clones of it are fitted. X may hold NaN if this estimator supports it.
    class_prior : array-like of shape (n_classes,), optional
        Probabilities rho of the classes, in ascending order of their labels. By default the (weighted) class
        frequencies.
    shrinkage : float, "auto" or None, default="auto"
        How many rows each class borrows on average from what classes share: the deviations of all rows from
        their class means. "auto" is ten rows and more where classes seem to differ by chance only (closed
        form), of both the fraction 5 / n for classes of n > 5 rows; with 20 to 100 rows per class (up to
        twice as many as features) cross-validation decides whether to borrow at all. None or 0 borrows none,
        as do densities whose `fit` takes no weights and, with "auto", those with prior=None.
    temperature : float, "auto" or None, default="auto"
        `predict_proba` gives the posteriors of p(x, class)^(1/T); T > 1 makes them less certain, and
        `predict` does not depend on it. "auto" learns T >= 1, and a share of equal probabilities (`doubt_`),
        by the log loss of labelled rows: with fewer than 100 per class (or two for each feature)
        of rows held out of five more fits, else of (some of) the rows of the fit. None is Bayes' rule.
    n_jobs : int, optional
        Number of classes fitted in parallel, as for joblib. The result does not depend on it.
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Labels in ascending order.
    class_prior_ : ndarray of shape (n_classes,)
    densities_ : list of estimators
        The density of each class.
    rejected_label_ : int or str
        The label that `predict` gives rejected rows: -1, or "rejected" if labels are text.
    temperature_ : float
    doubt_ : float
        Share of equal probabilities of all classes in `predict_proba`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.preprocessing import scale
    >>> from latently.mixture import MCFA
    >>> from latently.supervised import PerClass
    >>> X, y = load_wine(return_X_y=True)
    >>> X = scale(X)
    >>> model = PerClass(MCFA(n_components=1, n_factors=2)).fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.9
    True
    >>> model = model.calibrate_rejection(X[1::2], acceptance=0.95)
    >>> model.predict([[100.0] * 13])  # not a wine
    array([-1])
    """

    density: Any
    _: KW_ONLY
    class_prior: Any = None
    shrinkage: Any = option(default="auto", check=check_shrinkage)
    temperature: Any = option(default="auto", check=check_temperature)
    n_jobs: int | None = None

    takes_unlabelled: ClassVar = False

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        if _is_density(self.density):
            tags.input_tags.allow_nan = get_tags(self.density).input_tags.allow_nan
        return tags

    # -- fitting ------------------------------------------------------------------------------------

    def fit(self, X, y, sample_weight=None):
        """Fit a density to the rows of each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows, in memory.
        y : array-like of shape (n_samples,)
            The class of each row, as numbers or text.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, for densities that accept weights.

        Returns
        -------
        self
        """
        self._check_options()
        if sample_weight is not None and not has_fit_parameter(self.density, "sample_weight"):
            raise ValueError(
                f"sample_weight was given, but {type(self.density).__name__}.fit does not accept it"
            )
        with unchanged_on_failure(self):
            rows = self._rows(X, reset=True)
            codes = self._encoded(y, len(rows))
            weight = None if sample_weight is None else weights_in_rows(sample_weight, len(rows))
            self.class_prior_ = self._prior(np.bincount(codes, weight))
            amount = self._learnt_amount(rows, codes, weight)
            lent = self._borrowed(rows, codes, weight, amount)
            with ended_by_one_interrupt():
                self.densities_ = self._fitted(rows, codes, weight, lent)
            if not self._has_few(codes, weight):
                self._learn_from_fit(rows, codes, np.ones(len(codes)) if weight is None else weight)
            self._warn_of_few_rows(np.bincount(codes, None if weight is None else weight > 0))
            remember_rows(self, Data(rows, weight=weight))
        return self

    def _fitted(self, rows, codes, weight, lent):
        """The density of each class."""
        return Parallel(n_jobs=self.n_jobs)(
            delayed(_fitted_to_class)(self.density, label, *_of_class(rows, codes, weight, lent, code))
            for code, label in enumerate(self.classes_.tolist())
        )

    def _fitted_again(self, rows, codes, weight, amount):
        """A fitted copy whose densities go on from where they are, for other rows or weights."""
        again = copy(self)
        again.class_prior_ = self._prior(np.bincount(codes, weight, len(self.classes_)))
        lent = self._borrowed(rows, codes, weight, amount)
        again.densities_ = [
            _fitted_to_class(density, label, *_of_class(rows, codes, weight, lent, code), go_on=True)
            for code, (density, label) in enumerate(zip(self.densities_, self.classes_.tolist(), strict=True))
        ]
        return again

    def _borrows_by_itself(self):
        can = has_fit_parameter(self.density, "sample_weight")
        return self.shrinkage == "auto" and can and not self._by_likelihood()

    def _has_few(self, codes, weight):
        """Whether rows per class are so few that fits are cross-validated; covariances may need many."""
        total = len(codes) if weight is None else float(weight.sum())
        return total < max(FEW, 2 * self.n_features_in_) * len(self.classes_)

    def _learnt_amount(self, rows, codes, weight):
        """How much classes borrow; where rows are few, learnt together with the temperature."""
        self._calibrate(self._given_calibration())
        if not self._has_few(codes, weight):
            return self.shrinkage
        X = np.asarray(to_numpy(rows), dtype=np.float64)
        weight = np.ones(len(X)) if weight is None else weight
        told = weight > 0
        amount, interrupted = self._learn(X[told], codes[told], weight[told])
        if interrupted:
            warn_user("PerClass was interrupted; its temperature is not learnt", InterruptedWarning)
        return amount

    def _borrowed(self, rows, codes, weight, amount):
        """Rows that classes borrow from one another, or None."""
        none = amount in (None, 0) or (amount == "auto" and self._by_likelihood())
        if none or not has_fit_parameter(self.density, "sample_weight"):
            return None
        X = np.asarray(to_numpy(rows), dtype=np.float64)
        if weight is None:
            weight = np.ones(len(X))
        X, codes, weight = X[weight > 0], codes[weight > 0], weight[weight > 0]
        single = isinstance(self.density, _GAUSSIAN) and getattr(self.density, "n_components", 1) == 1
        return borrowed_rows(X, codes, weight, len(self.classes_), amount, axes=single)

    def _by_likelihood(self):
        """Whether the density asks for maximum likelihood."""
        return getattr(self.density, "prior", "auto") is None

    def _warn_of_few_rows(self, counts):
        """Warn of classes with fewer values than their density has parameters."""
        if not all(hasattr(density, "n_parameters") for density in self.densities_):
            return
        needs = [-(-density.n_parameters() // self.n_features_in_) + 1 for density in self.densities_]
        few = [code for code, need in enumerate(needs) if counts[code] < need]
        if not few:
            return
        listed = ", ".join(
            f"class {self.classes_.tolist()[code]!r} has {int(counts[code])} rows and needs {needs[code]}"
            for code in few[:3]
        )
        more = f", and {len(few) - 3} more" if len(few) > 3 else ""
        cure = "" if self.shrinkage else ", shrinkage='auto'"
        warn_user(
            f"too few rows for a {type(self.density).__name__} of each class: {listed}{more}; use a density "
            f"with fewer parameters{cure}, or MJFAClassifier, whose classes share most parameters"
        )

    def _check_options(self):
        super()._check_options()
        if not _is_density(self.density):
            raise TypeError(
                "density must be an estimator with fit and score_samples that needs no labels, such as "
                f"GaussianMixture(2), not {self.density!r}"
            )

    def _rows(self, X, *, reset):
        data = check_data(self, in_memory(X), reset=reset)
        if not data.in_memory:
            raise ValueError("PerClass needs all rows of X in memory; give them as an array or a data frame")
        return data.X

    def _prior(self, weight):
        """Class probabilities, given the total weight of the rows of each class."""
        if np.any(weight == 0):
            label = self.classes_.tolist()[np.argmin(weight)]
            raise ValueError(f"sample_weight is zero for every row of class {label!r}; drop these rows")
        if self.class_prior is None:
            return weight / weight.sum()
        return check_class_prior(self.class_prior, len(weight))

    # -- using a fitted model -----------------------------------------------------------------------

    def score_samples(self, X):
        """Log density ln p(x) of each row, whatever its class, (n_samples,)."""
        return logsumexp(self._class_log_joint(X), axis=1)

    def _class_log_joint(self, X):
        return self._class_log_densities(X) + np.log(self.class_prior_)

    def _class_log_densities(self, X):
        """(n_samples, n_classes) ln p(x | class)."""
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        columns = [in_main_memory(density.score_samples(rows)) for density in self.densities_]
        log_densities = np.stack(columns, axis=1).astype(np.float64)
        wrong = np.isnan(log_densities) | (log_densities == np.inf)
        if np.any(wrong):
            row, code = np.argwhere(wrong)[0]
            raise ValueError(
                f"the density of class {self.classes_.tolist()[code]!r} gives row {row} of X the log density "
                f"{log_densities[row, code]}, which is not valid"
            )
        return log_densities

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows and their classes from the model, if its densities have `sample`.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Seed of this draw; the `random_state` of `density` is used by `fit` only.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        y : ndarray of shape (n_samples,)
            The label of the class each row was drawn from.
        """
        check_is_fitted(self)
        self._check_densities_have("sample")
        check_draws(self, n_samples)
        rng = as_generator(random_state)
        codes = rng.choice(len(self.classes_), size=n_samples, p=self.class_prior_)
        X = np.empty((n_samples, self.n_features_in_))
        for code in np.unique(codes):
            X[codes == code] = draw_from(self.densities_[code], int(np.count_nonzero(codes == code)), rng)[0]
        return X, self.classes_[codes]

    def n_parameters(self):
        """Number of free parameters of the fitted density of rows and classes."""
        check_is_fitted(self)
        self._check_densities_have("n_parameters")
        of_prior = len(self.classes_) - 1 if self.class_prior is None else 0
        return of_prior + sum(density.n_parameters() for density in self.densities_)

    def _check_densities_have(self, method):
        for density in self.densities_:
            if not hasattr(density, method):
                raise TypeError(
                    f"{method} needs densities that have {method!r}, but {type(density).__name__} does not"
                )

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {"class_prior": self.class_prior_}

    def _parts(self):
        return {"densities": self.densities_}

    def _set_parts(self, densities):
        if not isinstance(densities, list) or not densities:
            raise ValueError("it has no densities")
        if any(type(density) is not type(self.density) for density in densities):
            raise ValueError("its densities do not have the class of its hyper-parameter density")
        self.densities_, self.n_features_in_ = densities, densities[0].n_features_in_
        if any(density.n_features_in_ != self.n_features_in_ for density in densities):
            raise ValueError("its densities differ in their number of features")

    def _set_fitted_arrays(self, class_prior):
        self.class_prior_ = check_class_prior(class_prior, len(self.densities_))
        self._set_classes(None, len(class_prior))


def _is_density(density):
    can = all(hasattr(density, method) for method in ("fit", "score_samples", "get_params"))
    return can and not isinstance(density, type) and not is_classifier(density)


def _of_class(rows, codes, weight, lent, code):
    """The rows of a class and those that it borrows, their weights, and how many are its own."""
    own = codes == code
    X, given = rows[like(own, rows)], None if weight is None else weight[own]
    if lent is not None:
        borrowed = lent.codes == code
        given = np.concatenate([np.ones(len(X)) if given is None else given, lent.weight[borrowed]])
        X = namespace(X).concat([X, namespace(X).astype(like(lent.X[borrowed], X), X.dtype)])
    return X, given, int(np.count_nonzero(own))


def _fitted_to_class(density, label, X, weight, n_rows, *, go_on=False):
    weights = {} if weight is None else {"sample_weight": in_rows(weight)}
    go_on = go_on and "warm_start" in density.get_params()
    begun = deepcopy(density).set_params(warm_start=True) if go_on else clone(density)
    try:
        return begun.fit(X, **weights)
    except ValueError as error:
        raise ValueError(
            f"{type(density).__name__} could not be fitted to the {n_rows} rows of class {label!r}: {error}"
        ) from error
