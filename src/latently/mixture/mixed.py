"""Mixtures over tables with columns of several kinds: numbers, categories, ordered answers and counts."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import like, namespace, to_numpy
from latently.core.words import listed
from latently.distributions.columns import ColumnPrior, Layout
from latently.distributions.counts import CountPrior
from latently.distributions.levels import cut_points, level_counts, places
from latently.distributions.mixture import MixtureParams
from latently.estimators.checks import check_choice, check_integer
from latently.estimators.data import is_dask
from latently.estimators.labels import component_labels
from latently.estimators.messages import warn_user
from latently.estimators.options import estimator, option
from latently.estimators.rows import rows_of
from latently.mixture.base import MixtureEstimator
from latently.mixture.column_kinds import KINDS, Column, decoded, encoded, found, is_table, with_own_cells
from latently.mixture.factors import averaged_factors
from latently.mixture.mixed_rows import rows_in
from latently.mixture.mixed_structure import DISCRETE, MixedStarts, MixedStructure
from latently.mixture.priors import ROWS, prior_of_fitted, weak_prior

_COUNT_MODELS = {"negative_binomial": True, "poisson": False}
_SHAPES = (1e-1, 1e4)  # of the prior of counts


def check_columns(name, value):
    """ "auto", or a mapping from columns to kinds or lists of levels."""
    if isinstance(value, str) and value == "auto":
        return
    if not isinstance(value, Mapping):
        raise ValueError(f"{name} must be 'auto' or a dict of columns and kinds, not {value!r}")
    for column, kind in value.items():
        if not isinstance(kind, (list, tuple)) and kind not in KINDS:
            allowed = ", ".join(map(repr, KINDS))
            raise ValueError(
                f"{name}[{column!r}] must be one of {allowed} or a list of levels from low to high, "
                f"not {kind!r}"
            )


@estimator
class MixedMixture(MixtureEstimator):
    """Mixture for tables with numbers, categories, ordered answers and counts side by side.

    Within a component, columns are independent given the component, but for numbers, which depend on one
    another through factors if there are any. Numbers are Gaussian, the levels of a category have free
    probabilities, ordered answers are a normal variable seen through cut points that all components share,
    and counts are negative binomial or Poisson. Missing cells of every kind are left out of the likelihood,
    which is exact.

    Parameters
    ----------
    n_components : int, default=1
        Number of components K.
    columns : "auto" or dict, default="auto"
        The kind of some columns, by name (by number for arrays): "number", "category", "ordinal", "count",
        "date", or the list of levels of an ordered answer from low to high. Other columns follow their
        content: text, truth values and the whole numbers 0 and 1 are categories; ordered categoricals of
        pandas with more than two levels are ordinal; other whole numbers from 0 to at most 20 are counts;
        dates count in days; everything else is a number. Columns of an array are numbers unless named here.
    n_factors : int, default=0
        Number of factors of the numbers in each component.
    count_model : {"negative_binomial", "poisson"}, default="negative_binomial"
        Whether counts may vary more than a Poisson distribution has it.
    unseen : {"error", "missing"}, default="error"
        What a level means that the fit has not seen: an error, or a missing cell.
    probabilities_init, locations_init, scales_init, rates_init, dispersions_init : array-like, optional
        Starting values, as for numbers.
    {options}

    Attributes
    ----------
    columns_ : list of records
        Name, kind and levels of each column.
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_numbers)
        Of the numbers and dates, in the order of their columns. Attributes of kinds that the table does not
        have do not exist.
    loadings_ : ndarray of shape (n_components, n_numbers, n_factors)
    noise_variance_ : ndarray of shape (n_components, n_numbers)
    probabilities_ : ndarray of shape (n_components, n_levels)
        Of the levels of all categories, one column of the table after the other.
    locations_, scales_ : ndarray of shape (n_components, n_ordinal)
        Of the normal variables behind ordered answers, whose mean is 0 and deviation 1 over all rows.
    rates_ : ndarray of shape (n_components, n_counts)
        Means of the counts.
    dispersions_ : ndarray of shape (n_components, n_counts)
        The variance of a count is rate + dispersion * rate^2.
    {attributes}

    Examples
    --------
    >>> import pandas as pd
    >>> from latently.mixture import MixedMixture
    >>> table = pd.DataFrame({
    ...     "height": [1.6, 1.7, None, 1.8, 1.2, 1.1, 1.3, 1.2],
    ...     "ticket": ["full", "full", "full", "full", "child", "child", "child", None],
    ... })
    >>> model = MixedMixture(n_components=2, random_state=0).fit(table)
    >>> model.impute(table).loc[7, "ticket"]
    'child'
    """

    n_components: int = option(default=1, check=check_integer, least=1)
    _: KW_ONLY
    columns: Any = option(default="auto", check=check_columns)
    n_factors: int = option(default=0, check=check_integer, least=0)
    count_model: str = option(default="negative_binomial", check=check_choice, choices=tuple(_COUNT_MODELS))
    unseen: str = option(default="error", check=check_choice, choices=("error", "missing"))
    weights_init: Any = None
    means_init: Any = None
    loadings_init: Any = None
    noise_init: Any = None
    probabilities_init: Any = None
    locations_init: Any = None
    scales_init: Any = None
    rates_init: Any = None
    dispersions_init: Any = None

    @classmethod
    def from_parameters(cls, *, weights, columns, cut_points=(), **parameters):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        `columns` lists (name, kind, levels) of every column, and `cut_points` those between the levels of
        each ordered answer. Any further keywords are fitted attributes, or options of the constructor.
        """
        arrays = {name: parameters.pop(name) for name in _ARRAYS if name in parameters}
        n_factors = np.shape(arrays["loadings"])[-1] if "loadings" in arrays else 0
        model = cls(len(weights), n_factors=n_factors, **parameters)
        model._check_options()
        model._set_layout(
            columns=[
                [name, kind, list(levels[0]) if levels else [], "float64"] for name, kind, *levels in columns
            ],
            cuts=[list(map(float, inner)) for inner in cut_points],
        )
        return model._with_parameters(weights=weights, **arrays)

    # -- columns --------------------------------------------------------------------------------------

    def _as_numbers(self, X, *, reset, weight=None):
        """The rows as numbers; with `reset` after finding out what columns hold."""
        if not reset:
            check_is_fitted(self)
        rows = rows_in(X)
        if reset:
            plain = rows is None or (rows.plain and self.columns == "auto")
            self.columns_: Any = (
                None if plain else found(rows.parts(), self.columns, self.unseen, rows.with_weight(weight))
            )
            _tell_single_levels(self.columns_ or ())
        columns = getattr(self, "columns_", None)
        if columns is None or (rows is None and all(one.kind == "number" for one in columns)):
            return X
        if rows is None and isinstance(X, np.ndarray):
            return X  # which is empty, or no table: an error of all models
        if rows is None:
            raise TypeError(_WITHOUT_KINDS)
        return X if rows.plain and self.columns == "auto" else rows.mapped(columns, self.unseen)

    def _layout_of(self, columns, cuts):
        """The layout for these columns, with cut points between the levels of ordered answers."""
        at = {kind: tuple(j for j, one in enumerate(columns) if one.kind in kind) for kind in _GROUPS}
        numbers, categories, ordered, counts = (at[kind] for kind in _GROUPS)
        ends = tuple((-np.inf, *map(float, inner), np.inf) for inner in cuts)
        sizes = tuple(len(columns[j].levels) for j in categories)
        dispersed = (_COUNT_MODELS[self.count_model],) * len(counts)
        return Layout(len(columns), numbers, categories, sizes, ordered, ends, counts, dispersed)

    def _allowed(self, y, n_rows, *, reset):
        return component_labels(y, n_rows, self.n_components)

    def _problem(self, data):
        columns = self.columns_
        if columns is None:
            if self.columns != "auto" and any(kind != "number" for kind in self.columns.values()):
                raise TypeError(_WITHOUT_KINDS)
            columns = [Column(j, "number") for j in range(data.n_features)]
        self.columns_ = columns
        flat: list[Any] = [[] for one in columns if one.kind == "ordinal"]
        layout = self._layout_of(columns, flat)
        self._level_weights = np.zeros(0)
        if layout.with_levels:
            sizes = tuple(len(columns[j].levels) for j in layout.with_levels)
            sweep = data.sweep(None, floats_per_row=2 * data.n_features, block_size=self.block_size)
            self._level_weights = to_numpy(
                sweep.reduce(_weights_of_levels, np.add, layout.with_levels, sizes)
            )
            own = [self._level_weights[place] for place in places(sizes)]
            flat = [cut_points(counts)[1:-1] for counts in own[len(layout.categories) :]]
        self._layout = self._layout_of(columns, flat)
        known = {entry.init for entry in self._parameters()}
        for name in self.get_params(deep=False):
            if name.endswith("s_init") and getattr(self, name) is not None and name not in known:
                raise ValueError(f"{name} is given, but X has no columns to which it could belong")
        try:
            return super()._problem(data)
        finally:
            del self._level_weights  # they are for the prior

    def _structure(self):
        check_is_fitted(self, "columns_")
        return MixedStructure(self.n_components, self.n_factors, self._layout)

    def _check_features(self, n_features):
        n_numbers = len(self._layout.numbers)
        if self.n_factors > n_numbers:
            raise ValueError(
                f"n_factors={self.n_factors} must not be larger than the {n_numbers} columns of numbers"
            )

    def _n_features_of(self, given):
        return self._layout.n_features

    def _layout_header(self):
        cuts = [list(ends[1:-1]) for ends in self._layout.cuts]
        return {"columns": [one.as_list() for one in self.columns_], "cuts": cuts}

    def _set_layout(self, columns, cuts):
        """The columns of a file; what is no column is a ValueError."""
        self.columns_ = [Column.from_list(entry) for entry in columns]
        ordinal = [one for one in self.columns_ if one.kind == "ordinal"]
        if len(cuts) != len(ordinal):
            raise ValueError("each ordered answer must have cut points")
        for one, inner in zip(ordinal, cuts, strict=True):
            values = np.array(inner, dtype=float)
            if (
                values.shape != (len(one.levels) - 1,)
                or not np.all(np.isfinite(values))
                or np.any(np.diff(values) <= 0)
            ):
                raise ValueError(
                    f"the cut points of column {one.name!r} must increase, one less than its levels"
                )
        self._layout = self._layout_of(self.columns_, cuts)

    # -- fitting --------------------------------------------------------------------------------------

    def _floor(self, summary, frame, structure):
        discrete = like(structure.is_discrete, summary.deviation)
        deviation = namespace(discrete).where(discrete, 1.0, summary.deviation)
        return super()._floor(replace(summary, deviation=deviation), frame, structure)

    def _prior(self, family, frame, data, summary, floor):
        rows = ROWS if isinstance(self.prior, str) else float(self.prior)
        layout, numbers = family.layout, None
        if summary.n_rows == 0:
            return self._prior_about_fitted(family, frame, rows)
        rows_each = rows * min(1.0, summary.total_weight / max(1, summary.n_rows))
        if layout.numbers:
            own = like(np.array(layout.numbers), summary.deviation)
            xp = namespace(summary.deviation)
            sweep = data.sweep(frame, floats_per_row=4 * data.n_features, block_size=self.block_size)
            variance = xp.take((summary.deviation / frame.scale) ** 2, own)
            numbers = weak_prior(
                family.gaussian, xp.take(floor, own), variance, summary, _OfColumns(sweep, layout.numbers),
                self.n_components, rows,
            )  # fmt: skip
        mean, deviation = (
            to_numpy(array)[list(layout.counts)] for array in (summary.mean, summary.deviation)
        )
        mean = np.maximum(mean, 1e-3)
        excess = np.maximum(deviation**2 - mean, 1e-12)
        counts = CountPrior(rows_each, mean, np.clip(mean**2 / excess, *_SHAPES))
        shares = family._shares(self._level_weights)
        return ColumnPrior(rows_each, numbers, shares, counts)

    def _prior_about_fitted(self, family, frame, rows):
        fitted = self._fitted_model()
        moved = fitted.kernel.moved(fitted.params, -frame.shift / frame.scale, 1.0 / frame.scale)
        c, shares = moved.components, to_numpy(moved.weights) / float(np.sum(to_numpy(moved.weights)))
        numbers = None
        if c.numbers is not None:
            numbers = prior_of_fitted(family.gaussian, MixtureParams(moved.weights, c.numbers), rows)
        chances = shares @ np.exp(to_numpy(family.prepare(c).log_levels)).T
        mean = shares @ to_numpy(c.rates)
        dispersion = np.maximum(shares @ to_numpy(c.dispersions), 1.0 / _SHAPES[1])
        return ColumnPrior(
            rows, numbers, chances, CountPrior(rows, mean, np.clip(1.0 / dispersion, *_SHAPES))
        )

    _starts = MixedStarts

    # -- using a fitted model -------------------------------------------------------------------------

    @available_if(lambda self: self.n_factors > 0)
    def transform(self, X, *, out=None):
        """Posterior means of the factors of the numbers, averaged over components, (n_samples, n_factors)."""
        return rows_of(self, X, averaged_factors, out=out)

    def impute(self, X, *, n_draws=None, return_std=False, random_state=None, out=None):
        """Impute missing cells, by their expectation given the observed ones or by draws.

        A number gets its conditional mean, a category its most probable level, an ordered answer its median
        and a count its rounded mean.

        Parameters
        ----------
        X : table of the columns of the fit
            Rows with empty cells.
        n_draws : int, optional
            Multiple imputation: the number of completed tables, in each of which empty cells are drawn from
            their conditional distribution.
        return_std : bool, default=False
            Whether to return an array (n_samples, n_features) of standard errors as well, zero where cells
            were observed: of numbers and counts the standard deviation given the observed cells, of ordered
            answers the same in levels, of categories the chance that the level is another one.
        random_state : int, Generator, RandomState or None
            Seed of the draws.
        out : path of a .npy file, optional
            Write the imputed rows to this file block by block, with levels as 0, 1, ... and dates in days.

        Returns
        -------
        table of the type of X, or a list of `n_draws` of them
            Rows of files and of Dask come as numbers, as for `out`.
        """
        made = super().impute(X, n_draws=n_draws, return_std=return_std, random_state=random_state, out=out)
        if out is not None or not self._has_levels_of_its_own(X):
            return made
        if n_draws is not None:
            return [self._table(one, X) for one in made]
        return (self._table(made[0], X), made[1]) if return_std else self._table(made, X)

    def _table(self, rows, X):
        """Imputed rows in the form of X; cells whose level is unknown stay as they are."""
        made = decoded(to_numpy(rows), self.columns_, X)
        return made if self.unseen == "error" else with_own_cells(made, X)

    def _has_levels_of_its_own(self, X):
        """Whether rows go back into the user's table."""
        return is_table(X) or (not hasattr(X, "chunks") and not is_dask(X) and bool(self._layout.discrete))

    def sample(self, n_samples=1, *, random_state=None):
        rows, components = super().sample(n_samples, random_state=random_state)
        named = all(isinstance(one.name, str) for one in self.columns_)
        if not named and not self._layout.discrete:
            return rows, components
        return decoded(to_numpy(rows), self.columns_), components

    sample.__doc__ = MixtureEstimator.sample.__doc__

    def level_probabilities(self, column):
        """Probabilities of the levels of a category or an ordered answer, one row per component.

        Parameters
        ----------
        column : str or int
            Its name, or its number in an array.

        Returns
        -------
        DataFrame with the levels as columns
        """
        import pandas

        names = [one.name for one in self.columns_]
        if column not in names or names.index(column) not in self._layout.with_levels:
            raise ValueError(f"column {column!r} is not a category or an ordered answer of the model")
        at = self._layout.with_levels.index(names.index(column))
        fitted = self._fitted_model()
        logs = to_numpy(fitted.kernel.family.prepare(fitted.params.components).log_levels)
        chances = np.exp(logs[places(self._layout.all_sizes)[at], :]).T
        return pandas.DataFrame(chances, columns=list(self.columns_[names.index(column)].levels))


def _tell_single_levels(columns):
    names = [one.name for one in columns if len(one.levels) == 1]
    if names:
        warn_user(f"X has columns with one level only ({listed(names)}), which tell rows apart in nothing")


def on_numbers(model, X):
    """The same density for rows of numbers, with 0, 1, ... for levels; a table as such rows; and the levels.

    These are texts by the place of the column, as far as it has any.
    """
    columns = model.columns_
    twin = deepcopy(model)
    twin.columns_ = [
        Column(j, one.kind, tuple(map(float, range(len(one.levels))))) for j, one in enumerate(columns)
    ]
    twin.columns = {j: one.kind for j, one in enumerate(columns)}
    if hasattr(twin, "feature_names_in_"):
        del twin.feature_names_in_
    levels = {j: list(map(str, one.levels)) for j, one in enumerate(columns) if one.levels}
    return twin, encoded(X, columns, model.unseen), levels


_WITHOUT_KINDS = "X: lists and tensors cannot have columns of several kinds; give a table or an array"
_GROUPS = (("number", "date"), ("category",), ("ordinal",), ("count",))
_ARRAYS = ("means", "loadings", "noise_variance", *DISCRETE)


@dataclass(frozen=True)
class _OfColumns:
    """Passes over some columns of the rows."""

    sweep: Any
    columns: tuple[int, ...]

    def reduce(self, fn, combine, *args):
        return self.sweep.reduce(_of_columns, combine, fn, self.columns, *args)


def _of_columns(fn, columns, *given):
    *args, block = given
    index = like(np.array(columns), block.X)
    observed = block.observed
    if observed is not None:
        observed = namespace(block.X).take(observed, index, axis=1)
    return fn(*args, replace(block, X=namespace(block.X).take(block.X, index, axis=1), observed=observed))


def _weights_of_levels(columns, sizes, block):
    """(M,) the weight of the rows at every level."""
    xp, index = namespace(block.X), like(np.array(columns), block.X)
    codes, observed = xp.take(block.X, index, axis=1), block.observed
    if observed is not None:
        observed = xp.take(observed, index, axis=1)
        codes = xp.where(observed, codes, 0.0)
    return level_counts(xp.astype(codes, xp.float64), observed, block.weight, sizes)
