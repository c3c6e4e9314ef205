"""A model of a table: how its columns are prepared, and the estimator fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from latently.estimators import notebook
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.randomness import as_generator
from latently.estimators.rejection import check_acceptance
from latently.estimators.saving import save
from latently.tables import answers
from latently.tables.columns import Choice
from latently.tables.preparation import ACCEPTANCE, preparation_of, quantiles
from latently.tables.preparing import (
    check_enough,
    collected,
    later_rows,
    recorded,
    surveyed,
    takes_binary,
    takes_kinds,
)
from latently.tables.reading import like_input, table_of


class TableModel(BaseEstimator):
    """A density model of a table, with everything that leads from the table to its numbers.

    It takes tables as they are, finds the columns it can use and tells which it leaves out, standardises
    them, and answers in the units, names and labels of the table. `latently.load` returns it for a folder
    that the command line wrote.

    A table is a data frame of pandas or polars, an Arrow table, an array, or the path of a file.

    Parameters
    ----------
    estimator : estimator, optional
        The model of the prepared rows, such as ``MFA(3, 2)``. By default family and size are chosen by
        `latently.selection.compare`; if columns hold text or truth values, among mixtures of mixed columns.
    columns, without : list of str, optional
        Names of the columns to use, or not to use; * matches any text.
    label : str, optional
        The column with the class of each row. Classifiers learn it; other models leave it out.
    missing : list of str, optional
        Further texts that stand for missing cells.
    as_is : list of str, optional
        Columns that are used without doubts about their values: numbers such as -9999 are not taken for
        missing, and columns of identification numbers, codes, times or two values are not left out.
    kinds : dict, optional
        What some columns hold, by name: "number", "category", "ordinal", "count", "date", or the levels of an
        ordered answer from low to high; by default their content tells. Of columns that are not plain
        numbers, `MixedMixture` is the model.
    standardise : bool, optional
        Whether columns get mean 0 and standard deviation 1; by default all but images and sums of parts.

    Attributes
    ----------
    estimator_ : estimator
        The fitted estimator. It takes and gives prepared rows, not the table's.
    preparation_ : Preparation
        Columns, means, scales, what was left out and why.
    columns_ : list of str
        The columns that are used.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from latently.mixture import MFA
    >>> from latently.tables import TableModel
    >>> wines = load_wine(as_frame=True).data
    >>> model = TableModel(MFA(n_components=3, n_factors=2, random_state=0)).fit(wines)
    >>> holes = wines.mask(wines > 1000)
    >>> filled = model.impute(holes)
    >>> type(filled).__name__, int(filled.isna().sum().sum())
    ('DataFrame', 0)
    >>> model.save("wines.latently")
    >>> import latently
    >>> bool((latently.load("wines.latently").predict(wines) == model.predict(wines)).all())
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        columns: Any = None,
        without: Any = None,
        label: str | None = None,
        missing: Any = None,
        as_is: Any = None,
        standardise: bool | None = None,
        kinds: Any = None,
    ):
        self.estimator = estimator
        self.columns = columns
        self.without = without
        self.label = label
        self.missing = missing
        self.as_is = as_is
        self.standardise = standardise
        self.kinds = kinds

    # -- fitting ------------------------------------------------------------------------------------

    def fit(self, table, y=None):
        """Fit the estimator to the table.

        Parameters
        ----------
        table : table
            A data frame, an Arrow table, an array, or the path of a file.
        y : array-like of shape (n_rows,), optional
            Classes, for classifiers, if no column of the table has them.

        Returns
        -------
        self
        """
        self._check_options()
        name = type(self.estimator).__name__
        choice = Choice(
            tuple(self.columns or ()),
            tuple(self.without or ()),
            tuple(self.as_is or ()),
            takes_binary(name),
            kinds=self.kinds or {},
            takes_kinds=None if self.estimator is None else takes_kinds(name),
        )
        missing = tuple(self.missing or ())
        with unchanged_on_failure(self):
            known = surveyed(table_of(table), choice, missing=missing, label=self.label)
            record = recorded(known, name, missing=missing, as_is=choice.as_is, standardise=self.standardise)
            rows = collected(known, record)
            if self.estimator is None:
                estimator, record = _best_family(rows.X, record)
            else:
                estimator = clone(self.estimator)
                if record.kinds:
                    estimator.set_params(columns=record.estimator_columns())
            X, labels = _labelled(estimator, rows, y)
            check_enough(estimator, len(X))
            estimator.fit(X) if labels is None else estimator.fit(X, labels)
            self._set_fitted(estimator, _with_densities(record, estimator, [rows.X]))
        return self

    @classmethod
    def of_fitted(cls, estimator, preparation):
        """The model of an estimator that was fitted to rows prepared in this way."""
        model = cls(
            clone(estimator),
            label=preparation.label,
            missing=preparation.missing or None,
            as_is=preparation.as_is or None,
            kinds={**preparation.kinds, **_orders(preparation)} or None,
            standardise=preparation.standardised,
        )
        model._set_fitted(estimator, preparation)
        return model

    def _set_fitted(self, estimator, preparation):
        if estimator.n_features_in_ != len(preparation.columns):
            raise ValueError(
                f"the estimator has {estimator.n_features_in_} features, but the preparation "
                f"{len(preparation.columns)} columns"
            )
        self.estimator_, self.preparation_ = estimator, preparation
        self.columns_ = list(preparation.columns)
        self.n_features_in_ = len(self.columns_)
        self.feature_names_in_ = np.array(self.columns_, dtype=object)

    def _check_options(self):
        if self.estimator is not None and not (
            hasattr(self.estimator, "fit") and hasattr(self.estimator, "get_params")
        ):
            raise TypeError(f"estimator must be an estimator such as MFA(3, 2), not {self.estimator!r}")
        if not (self.kinds is None or isinstance(self.kinds, Mapping)):
            raise TypeError(f"kinds must be a dict such as {{'grade': 'ordinal'}}, not {self.kinds!r}")
        for name in ("columns", "without", "missing", "as_is"):
            value = getattr(self, name)
            if isinstance(value, str) or not (value is None or all(isinstance(one, str) for one in value)):
                raise TypeError(f"{name} must be a list of texts such as ['a', 'b'], not {value!r}")

    # -- using a fitted model -----------------------------------------------------------------------

    def predict(self, table):
        """Component or class of each row, (n_rows,)."""
        return self._answer(answers.predicted, table)

    def predict_proba(self, table):
        """Probability of each component or class, (n_rows, n_components)."""
        return self._answer(answers.probabilities, table)

    def score_samples(self, table):
        """Log density of each row in the table's units, (n_rows,)."""
        return self._answer(answers.log_densities, table)

    def score(self, table, y=None):
        """Mean log density of the rows; of classifiers with y, the share of rows they classify right."""
        if y is not None and hasattr(self.estimator_, "classes_"):
            return float(np.mean(self.predict(table).astype(str) == np.asarray(y).astype(str)))
        return float(np.mean(self.score_samples(table)))

    def accepts(self, table, acceptance=None):
        """Whether each row is as usual as the rows of the fit, (n_rows,); `latently score` tells the same.

        Without `acceptance`, by the threshold of `calibrate_rejection`, or 0.99. A row is accepted if its log
        density is at least that of a fraction `acceptance` of the rows that were left out of the fit
        (`latently fit --hold-out`) or, if none were, of the rows of the fit.
        """
        estimator, record = self._fitted()
        if acceptance is None and np.max(getattr(estimator, "reject_below_", -np.inf)) > -np.inf:
            return self._answer(answers.accepted, table)
        if not record.densities:
            raise ValueError(f"a {type(estimator).__name__} has no densities, so it cannot tell unusual rows")
        if acceptance is not None:
            check_acceptance("acceptance", acceptance)
        return self.score_samples(table) >= record.threshold(ACCEPTANCE if acceptance is None else acceptance)

    def calibrate_rejection(self, table, y=None, *, acceptance=0.95, per_class=False):
        """Find the threshold of `accepts` by rows that were left out of the fit.

        New rows of the same kind are then accepted with a probability of at least `acceptance`: as the method
        of the estimator, which is that of all models with a density.

        Parameters
        ----------
        table : table
            Rows that the fit has not seen.
        y : array-like of shape (n_rows,), optional
            Their classes, for `per_class`.
        acceptance : float, default=0.95
        per_class : bool, default=False
            Whether every class has a threshold of its own; for classifiers.

        Returns
        -------
        self
        """
        estimator, _ = self._fitted()
        answers.needs(estimator, "calibrate_rejection", "be calibrated")

        rows = self._answer(lambda estimator, record, values: record.to_frame(values), table)
        estimator.calibrate_rejection(rows, y, acceptance=acceptance, per_class=per_class)
        return self

    def transform(self, table):
        """Factors of each row: a table like the one given, with columns factor_1, factor_2 and so on."""
        import pandas

        rows = self._answer(answers.factors, table)
        frame = pandas.DataFrame(rows, columns=answers.factor_names(rows.shape[1]), index=_index(table))
        return like_input(frame, table)

    def impute(self, table, *, return_std=False, n_draws=None, random_state=None):
        """The table with missing cells filled in; all other cells and columns are as they were.

        Parameters
        ----------
        table : table
        return_std : bool, default=False
            Whether to return the standard error of each cell too, zero where it was observed.
        n_draws : int, optional
            Draw missing cells at random, and return so many tables; by default cells are expectations.
        random_state : int, Generator, RandomState or None
            Seed of the draws.

        Returns
        -------
        table, (table, table of standard errors) or list of tables
        """
        import pandas

        estimator, record = self._fitted()
        answers.needs(estimator, "impute", "impute missing cells")
        if (return_std or n_draws is not None) and not answers.draws_rows(estimator):
            raise ValueError(
                f"a {type(estimator).__name__} imputes expectations only; return_std and n_draws need a "
                "mixture, such as MFA"
            )
        later, rng = self._later(table), as_generator(random_state)
        parts: list[list] = []
        for frame, values, _ in later.frames():
            if return_std:
                rows, errors = answers.imputed_with_errors(estimator, record, values)
                errors = pandas.DataFrame(errors, columns=record.columns, index=frame.index)
                parts.append([answers.with_imputed(frame, later, values, rows), errors])
                continue
            if n_draws is None:
                completed = [answers.imputed(estimator, record, values)]
            else:
                completed = answers.imputed_draws(estimator, record, values, n_draws, rng)
            parts.append([answers.with_imputed(frame, later, values, rows) for rows in completed])
        tables = [like_input(pandas.concat(pieces), table) for pieces in zip(*parts, strict=True)]
        if return_std:
            return tables[0], tables[1]
        return tables if n_draws is not None else tables[0]

    def reconstruct(self, table):
        """What the model makes of each row by its factors: a table of the columns used."""
        import pandas

        rows = self._answer(answers.reconstructed, table)
        return like_input(pandas.DataFrame(rows, columns=self.columns_, index=_index(table)), table)

    def sample(self, n_samples=1, *, random_state=None):
        """Rows drawn from the model, as a data frame; their component or class comes first."""
        estimator, record = self._fitted()
        return answers.sampled(estimator, record, n_samples, as_generator(random_state))

    def _answer(self, answer, table):
        estimator, record = self._fitted()
        pieces = [answer(estimator, record, values) for _, values, _ in self._later(table).frames()]
        return np.concatenate(pieces)

    def _fitted(self):
        check_is_fitted(self, "estimator_")
        return self.estimator_, self.preparation_

    def _later(self, table):
        return later_rows(table_of(table), self._fitted()[1])

    def __sklearn_is_fitted__(self):
        return hasattr(self, "estimator_")

    # -- files --------------------------------------------------------------------------------------

    save = save
    _repr_html_inner = notebook.html
    _repr_mimebundle_ = notebook.mimebundle

    def _fitted_arrays(self):
        check_is_fitted(self, "estimator_")
        if getattr(self.estimator_, "_needed_at_load", list)():
            raise ValueError("a table model cannot be saved with networks of your own")
        return {}

    def _more_header(self):
        return {"preparation": self.preparation_.to_dict()}

    def _parts(self):
        return {"estimator": self.estimator_}

    def _set_parts(self, estimator):
        if self.estimator is not None and type(estimator) is not type(self.estimator):
            raise ValueError("its estimator does not have the class of its hyper-parameter estimator")
        self.estimator_ = estimator
        self.n_features_in_ = estimator.n_features_in_

    def _set_fitted_arrays(self):
        pass

    def _set_more(self, preparation):
        self._set_fitted(self.estimator_, preparation_of(preparation))


def _orders(record):
    """Levels of ordered answers from low to high."""
    return {name: record.levels[name] for name, kind in record.kinds.items() if kind == "ordinal"}


def _best_family(X, record):
    """The best estimator, not fitted, and the record with the verdict of the comparison."""
    from latently.selection import compare

    found = compare(X, columns=record.estimator_columns() or None, feature_names=record.columns, refit=False)
    fit = found.calibration_
    plot = None if fit is None else [fit.expected, fit.observed]
    record = replace(record, model=type(found.best_).__name__, verdict=found.verdict_, probability_plot=plot)
    return found.unfitted(), record


def _index(table):
    """The index of the user's data frame, which answers have too."""
    return table.index if hasattr(table, "index") and hasattr(table, "iloc") else None


def _labelled(estimator, rows, y):
    """Rows of a fit and their labels, if the estimator takes any."""
    if y is None and rows.codes is None:
        if is_classifier(estimator):
            raise ValueError(f"{type(estimator).__name__} needs classes: give label, or y")
        return rows.X, None
    if not is_classifier(estimator):
        return rows.X, None if y is None else np.asarray(y)
    if y is not None:
        return rows.X, np.asarray(y)
    names = np.array(rows.labels, dtype=str)
    known = rows.codes >= 0
    return rows.X[known], names[rows.codes[known]]


def _with_densities(record, estimator, chunks):
    """The record with quantiles of the log densities of the rows of the fit."""
    if not hasattr(estimator, "score_samples"):
        return record
    scores = [np.asarray(estimator.score_samples(X), dtype=np.float64) - record.log_volume(X) for X in chunks]
    return replace(record, densities=quantiles(np.concatenate(scores)))
