"""Rows composed from a codebook, with one element from each group.

    x = sum_g a_g,     a_g any element of group g

k-means groups similar elements, which would overlap in one row. With groups of l_g elements there are
prod_g l_g different rows, all equally probable; they are numbered, and computed only on request.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from itertools import product
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from latently.estimators.base import Estimator
from latently.estimators.checks import check_choice, check_flag, check_integer, check_seed, numbers, parameter
from latently.estimators.data import checked_table
from latently.estimators.memory import check_draws
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_generator
from latently.factorization.quantizer import INITS, VectorQuantizer
from latently.generate.sources import check_factorizer


@estimator
class CodebookGenerator(Estimator):
    """New rows as sums of codebook elements, one from each group of similar elements.

    Parameters
    ----------
    factorizer : estimator, optional
        A clone of it is fitted, and its `components_` are the codebook, such as the components of an NMF. By
        default the rows passed to `fit` are the codebook.
    n_groups : int, default=5
        Number of groups, and of elements in a new row.
    unit_length : bool, default=True
        Whether elements are normalised to unit length first: in a factorisation their length is arbitrary.
    init : {"rows", "k-means++", "unit", "gaussian"}, default="rows"
        Starting values of k-means, as in :class:`latently.factorization.VectorQuantizer`; "rows" are random
        elements.
    n_init : int, default=10
        Number of random starts of k-means.
    random_state : int, Generator, RandomState or None
        Seed of k-means.

    Attributes
    ----------
    codebook_ : ndarray of shape (n_elements, n_features)
    labels_ : ndarray of shape (n_elements,)
        The group of each element.
    centers_, starts_ : ndarrays of shape (n_groups, n_features)
        Means of the groups, and the starting values of k-means.
    groups_ : list of ndarrays
        Indices of the elements of each group.
    n_combinations_ : int
        Number of different rows, as an exact integer.
    factorizer_ : estimator or None
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.

    Examples
    --------
    >>> import numpy as np
    >>> from latently.generate import CodebookGenerator
    >>> strokes = np.array([[1, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1, 0], [0, 0, 0.8, 0.2]])
    >>> model = CodebookGenerator(n_groups=2, unit_length=False, random_state=0).fit(strokes)
    >>> model.n_combinations_
    4
    >>> model.compose(model.combination([0, 3])).sum(axis=1)
    array([2., 2.])
    """

    factorizer: Any = None
    n_groups: int = option(default=5, check=check_integer, least=1)
    _: KW_ONLY
    unit_length: bool = option(default=True, check=check_flag)
    init: str = option(default="rows", check=check_choice, choices=INITS)
    n_init: int = option(default=10, check=check_integer, least=1)
    random_state: Any = option(default=None, check=check_seed)

    def fit(self, X, y=None):
        """Fit the factorisation, if one is given, and group its components.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows to factorise, or the elements of the codebook if there is no `factorizer`.
        y : ignored

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            X = checked_table(self, X, dtype=np.float64)
            self.factorizer_ = None if self.factorizer is None else clone(self.factorizer).fit(X)
            codebook = X if self.factorizer_ is None else numbers("components_", self._components())
            if self.unit_length:
                length = np.linalg.norm(codebook, axis=1, keepdims=True)
                codebook = codebook / np.where(length > 0, length, 1.0)
            quantizer = self._quantizer()
            try:
                self.labels_ = quantizer.fit(codebook).predict(codebook)
                n_filled = len(np.unique(self.labels_))
                if n_filled < self.n_groups:  # elements that differ by rounding alone
                    raise ValueError(f"only {n_filled} have elements")
            except ValueError as error:
                raise ValueError(
                    f"the codebook of {len(codebook)} elements (n_samples={len(X)}, n_features={X.shape[1]}) "
                    f"cannot be split into n_groups={self.n_groups} groups: {error}"
                ) from None
            self.codebook_, self.centers_, self.starts_ = codebook, quantizer.components_, quantizer.starts_
        return self

    def _check_options(self):
        super()._check_options()
        if self.factorizer is not None:
            check_factorizer(self.factorizer)

    def _quantizer(self):
        return VectorQuantizer(
            self.n_groups, init=self.init, n_init=self.n_init, random_state=self.random_state
        )

    def _components(self) -> Any:
        if not hasattr(self.factorizer_, "components_"):
            raise TypeError(
                f"factorizer must have components_, but {type(self.factorizer_).__name__} does not"
            )
        found: Any = self.factorizer_
        return found.components_

    # -- combinations -------------------------------------------------------------------------------

    @property
    def groups_(self):
        check_is_fitted(self, "labels_")
        return [np.flatnonzero(self.labels_ == group) for group in range(self.n_groups)]

    @property
    def n_combinations_(self):
        return prod(len(group) for group in self.groups_)

    def combinations(self):
        """Iterate over all combinations in order: tuples with one element of each group."""
        return product(*(group.tolist() for group in self.groups_))

    def combination(self, number):
        """Elements of the combination with this number, computed directly.

        Parameters
        ----------
        number : int or sequence of int
            From 0 to `n_combinations_` - 1; the element of the last group varies fastest.

        Returns
        -------
        ndarray of shape (n_groups,) or (n_numbers, n_groups)
            Indices into `codebook_`.
        """
        groups, most = self.groups_, self.n_combinations_
        if isinstance(number, Integral):
            return np.array(_digits(number, groups, most))
        return np.array([_digits(each, groups, most) for each in number], dtype=int).reshape(-1, len(groups))

    def compose(self, elements):
        """Rows that are sums of codebook elements.

        Parameters
        ----------
        elements : array-like of int, of shape (n_elements,) or (n_samples, n_elements)
            Indices into `codebook_`.

        Returns
        -------
        ndarray of shape (n_features,) or (n_samples, n_features)
        """
        check_is_fitted(self)
        elements = np.asarray(elements)
        if elements.dtype.kind not in "iu" or elements.ndim not in (1, 2):
            raise ValueError("elements must be indices into codebook_, integers in one or two dimensions")
        if elements.size and (elements.min() < 0 or elements.max() >= len(self.codebook_)):
            raise ValueError(f"elements must lie between 0 and {len(self.codebook_) - 1}")
        return self.codebook_[elements].sum(axis=-2)

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows; all combinations are equally probable.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None
            Seed of this draw; the estimator's `random_state` is used by `fit` only.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        elements : ndarray of shape (n_samples, n_groups)
            The element of each group, as an index into `codebook_`.
        """
        check_is_fitted(self)
        check_draws(self, n_samples)
        rng = as_generator(random_state)
        elements = np.stack([rng.choice(group, size=n_samples) for group in self.groups_], axis=1)
        return self.compose(elements), elements

    def _sizes_in_words(self):
        return [f"{len(self.codebook_)} elements in {self.n_groups} groups"]

    # -- files --------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        check_is_fitted(self)
        return {
            "codebook": self.codebook_,
            "labels": self.labels_.astype(np.float64),
            "centers": self.centers_,
            "starts": self.starts_,
        }

    def _set_fitted_arrays(self, codebook, labels, centers, starts):
        codebook = numbers("codebook", codebook)
        if codebook.ndim != 2 or np.shape(labels) != codebook.shape[:1]:
            raise ValueError("codebook must be a matrix, with one label per row")
        if set(np.unique(labels)) != set(range(self.n_groups)):
            raise ValueError(f"labels must hold every group from 0 to {self.n_groups - 1}")
        self.codebook_, self.labels_ = codebook, np.asarray(labels).astype(int)
        self.centers_ = parameter("centers", centers, (self.n_groups, codebook.shape[1]))
        self.starts_ = parameter("starts", starts, self.centers_.shape)
        self.n_features_in_ = codebook.shape[1]

    def _parts(self):
        return {"factorizer": self.factorizer_}

    def _set_parts(self, factorizer):
        if type(factorizer) is not type(self.factorizer):
            raise ValueError("its factorizer does not have the class of its hyper-parameter")
        self.factorizer_ = factorizer


def _digits(number, groups, n_combinations):
    """The elements of a combination: the digits of its number in a mixed-radix system."""
    if isinstance(number, bool) or not isinstance(number, Integral) or not 0 <= int(number) < n_combinations:
        raise ValueError(
            f"number must be an integer from 0 to n_combinations_ - 1 = {n_combinations - 1}, not {number!r}"
        )
    number, elements = int(number), []
    for group in reversed(groups):
        number, digit = divmod(number, len(group))
        elements.append(int(group[digit]))
    return elements[::-1]
