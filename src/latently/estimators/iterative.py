"""The base of all iterative estimators: their options, and `fit`."""

from __future__ import annotations

from copy import copy
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from latently.backend.namespace import to_device
from latently.core.drivers import LOG_LIKELIHOOD, Objective
from latently.estimators import notebook, saving
from latently.estimators.checks import (
    check_callbacks,
    check_choice,
    check_flag,
    check_integer,
    check_number,
    check_path,
    check_seed,
    check_verbosity,
    numbers,
)
from latently.estimators.data import check_data
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import check_options, estimator, option
from latently.estimators.parameters import (
    check_names,
    check_shapes,
    fitted_arrays,
    set_given,
    store,
)
from latently.estimators.rejection import remember_rows


@estimator
class IterativeEstimator(BaseEstimator):
    """Options shared by all iterative models; a subclass implements `_fit`.

    Parameters
    ----------
    max_iter : int, default=1000
        Maximum number of EM iterations.
    tol : float, default=5e-8
        EM stops when the log-likelihood per row increases by less than `tol` times its absolute value (or by
        less than `tol`, if that value is below one). With 0, exactly `max_iter` steps are taken.
    n_init : int or "auto", default="auto"
        Number of starts. After a few EM steps the best go on with the steps of the fit until they have
        converged or cannot overtake the best one. Mixtures try a third of the starts at first (at least 8,
        10 for MCFA) and the others near the best optimum found, with two of its components merged and one
        split. With more than 10000 rows (or 50 per component) starts use a sample of the rows. "auto" is 8 at
        first and 12 near the best, and up to 24 more while better ones are found. One component needs one
        start.
    accelerate : {"squarem", None}, default="squarem"
        "squarem" takes longer steps where EM converges slowly; an iteration then takes up to three passes
        over the data (nine for MCFA, whose EM step has three parts). The likelihood never decreases, and the
        fixed points are those of EM. None is plain EM.
    batch_size : int, optional
        Mini-batch size, for very many rows. If given, the model is fitted by stepwise EM: parameters are
        updated after every batch, in a new random order in each pass. An iteration is then a pass over the
        data; `history_` holds the log-likelihood accumulated during each pass and, as its last entry, that of
        the fitted parameters; a `tol` below 1e-5 is treated as 1e-5.
    learning_decay, learning_offset : float, default=0.7 and 10.0
        Step size of stepwise EM (`batch_size`, `partial_fit`): batch t contributes to the running statistics
        with weight (t + offset)^-decay. It converges for a decay between 0.5 and 1; with 0 only the last
        batch counts.
    checkpoint : path, optional
        A file for the state of the fit. After an interruption, `fit` with the same data and options resumes
        from it and gives bit for bit the result of the uninterrupted fit. It is removed when the fit has
        finished.
    checkpoint_every : int, default=10
        Iterations between two checkpoints.
    block_size : int, optional
        Number of rows processed at a time; by default as many as fit in a few megabytes.
    random_state : int, Generator, RandomState or None
        Seed of the random starts.
    warm_start : bool, default=False
        Whether `fit` starts from the parameters of the last fit.
    verbose : int, default=0
        Whether to show progress.
    callbacks : list of callables, optional
        Called after every iteration with a record (`number`, `objective`, `gain`, `max_iter`); one that
        returns True stops the fit.
    """

    _: KW_ONLY
    max_iter: int = option(default=1000, check=check_integer, least=0)
    tol: float = option(default=5e-8, check=check_number, least=0)
    n_init: Any = option(default="auto", check=check_integer, least=1, or_else="auto")
    accelerate: Any = option(default="squarem", check=check_choice, choices=(None, "squarem"))
    batch_size: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    learning_decay: float = option(default=0.7, check=check_number, least=0, most=1)
    learning_offset: float = option(default=10.0, check=check_number, least=1)
    checkpoint: Any = option(default=None, check=check_path)
    checkpoint_every: int = option(default=10, check=check_integer, least=1)
    block_size: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    random_state: Any = option(default=None, check=check_seed)
    warm_start: bool = option(default=False, check=check_flag)
    verbose: int = option(default=0, check=check_verbosity)
    callbacks: Any = option(default=None, check=check_callbacks)

    objective: ClassVar[Objective] = LOG_LIKELIHOOD  # what `history_` holds, and which direction is better

    save = saving.save
    _repr_html_inner = notebook.html
    _repr_mimebundle_ = notebook.mimebundle

    def fit(self, X, y=None, sample_weight=None):
        """Fit the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows. NaN marks a missing entry. Accepts arrays and data frames in memory, torch tensors on
            any device, Dask arrays and data frames, the path of a .npy, .zarr, .parquet or .csv file, and any
            iterable that yields the same blocks of rows each time it is iterated over.
        y : ignored
            Unless the model uses labels.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row, in any unit; integers without a common divisor are copies of rows.

        Returns
        -------
        self
        """
        return self._fit_to(X, y, sample_weight)

    def _fit_to(self, *given, **more):
        """Fit the model to what `_data` makes of its arguments."""
        self._check_options()
        with unchanged_on_failure(self):
            data = self._data(*given, **more, reset=True)
            self._fit(data)
            remember_rows(self, data)
        return self

    # -- what a subclass may extend -------------------------------------------------------------------

    def _check_options(self):
        """Check every option on its own and, in subclasses, those that depend on one another."""
        check_options(self)

    def _data(self, X, y=None, sample_weight=None, *, reset):
        """The rows with their weights and labels; `reset` for a new fit."""
        return check_data(self, X, sample_weight, reset=reset)

    def _fit(self, data):
        """Fit the model and set the fitted attributes."""
        raise NotImplementedError

    # -- fitted arrays --------------------------------------------------------------------------------

    def _parameters(self):
        """The table of the fitted arrays, a tuple of `Parameter`."""
        raise NotImplementedError

    def _sizes(self, n_features):
        """The values of the symbols in the shapes of the table, by symbol."""
        raise NotImplementedError

    def _n_features_of(self, given):
        """The number of features, from the first fitted array with a feature axis."""
        entry = next(entry for entry in self._parameters() if "D" in entry.shape)
        array = numbers(entry.name, given[entry.name])
        axis = entry.shape.index("D") - len(entry.shape)
        if array.ndim < -axis or array.shape[axis] == 0:
            raise ValueError(f"{entry.name} must have one entry per feature")
        return int(array.shape[axis])

    def _fitted_arrays(self):
        return fitted_arrays(self, self._parameters())

    def _set_fitted_arrays(self, **given):
        """Set the fitted arrays from the user or a file, validated."""
        check_names(self._parameters(), given)
        n_features = self._n_features_of(given)
        self._check_features(n_features)
        set_given(self, self._parameters(), self._sizes(n_features), given)
        self.n_features_in_ = n_features
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)

    def _with_parameters(self, **given):
        """This new estimator, with these parameters as its fitted arrays; for `from_parameters`."""
        self._check_options()
        self._set_fitted_arrays(**given)
        return self

    def _check_features(self, n_features):
        """Raise an error if the model is not defined for this number of features."""

    def _check_shapes(self, n_features, purpose):
        check_shapes(self, self._parameters(), self._sizes(n_features), purpose)

    # -- devices --------------------------------------------------------------------------------------

    def to(self, device):
        """Copy the fitted model to another device.

        Parameters
        ----------
        device : str or torch.device
            "numpy" for NumPy arrays, or the device of torch tensors, such as "cpu" or "cuda".

        Returns
        -------
        estimator
            A copy; this estimator is unchanged.
        """
        moved: Any = copy(self)
        arrays = {**self._fitted_arrays(), "history": self.history_}
        store(moved, {name: to_device(array, device) for name, array in arrays.items()})
        moved.__dict__.pop("_online", None)
        return moved
