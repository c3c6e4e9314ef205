"""What factorisations that are fitted by sweeps share: options, starts, fits and batches.

A sweep moves the sources of all rows, then the components; `Sweeps` makes it a step. A fit is the best of
several starts, of which each makes a few sweeps first. Batches are learned from sums over rows, of which
older ones are discounted.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from latently.backend.namespace import like, to_numpy
from latently.core.drivers import Objective, Passes, best_start
from latently.core.tree import add, mapped
from latently.estimators import fitting
from latently.estimators.checks import check_choice, check_integer, check_number
from latently.estimators.data import check_same_device, identity_in_order
from latently.estimators.fitting import FitOptions
from latently.estimators.iterative import IterativeEstimator
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option

_SHORT_RUN = 10  # sweeps of every start before the better ones continue

COST = Objective("cost", direction=-1, remedy="rescale the data")


class Sweeps(Protocol):
    """Sweeps over the rows of a fit."""

    @property
    def data(self) -> Any: ...
    @property
    def step(self) -> Any: ...
    @property
    def scale(self) -> float:
        """The order of magnitude of the cost."""

    @property
    def passes(self) -> Passes: ...
    def example(self) -> Any: ...


@estimator
class SweptFactorization(IterativeEstimator):
    """Factorisations by sweeps; a subclass has `_sweeps(data, totals)`, `_totals(data)` and `_start`.

    Parameters
    ----------
    n_init : int, default=1
        Number of starts, of which the best is used; all after the first are random.
    max_iter : int, default=500
        Maximum number of sweeps.
    tol : float, default=1e-5
        The fit stops when a sweep decreases the cost by less than `tol` times the cost. With 0, exactly
        `max_iter` sweeps are made.
    learning_decay, learning_offset : float, default=0.7 and 10.0
        Step size of `partial_fit`: batch t has weight (t + learning_offset)^-learning_decay.
    callbacks : list of callables, optional
        Called after every sweep with a record (`number`, `objective`, `gain`, `max_iter`), whose objective is
        the cost and whose gain is its decrease; one that returns True stops the fit.

    Attributes
    ----------
    n_iter_ : int
        Number of sweeps.
    n_passes_ : int
        Passes over the rows, including those of rejected steps.
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If X had string column names.
    """

    n_components: int | None = option(default=None, check=check_integer, least=1, or_else=None)
    _: KW_ONLY
    n_init: int = option(default=1, check=check_integer, least=1)
    components_init: Any = None
    activations_init: Any = None
    max_iter: int = option(default=500, check=check_integer, least=0)
    tol: float = option(default=1e-5, check=check_number, least=0)
    accelerate: Any = option(default="auto", check=check_choice, choices=("auto", None))
    batch_size: ClassVar[None] = None  # type: ignore[misc]

    objective = COST

    def partial_fit(self, X, y=None, sample_weight=None):
        """Update the model with a batch of rows.

        Their activations are inferred with the current components; weighted sums over all batches, in which
        older batches are discounted, then give new components. The first batch determines the starting
        values, so it should contain all components. A model that was fitted, or read from a file, continues
        from its components; its earlier sweeps count for t.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.

        Returns
        -------
        self
        """
        return self._learn_from(X, y, sample_weight)

    def _learn_from(self, *given, **more):
        """Update the model with what `_data` makes of its arguments."""
        self._check_options()
        with unchanged_on_failure(self):
            data = self._data(*given, **more, reset=not hasattr(self, "components_"))
            found = self._totals(data)
            self._continue(self._sweeps(data, found), found)
        return self

    # -- for subclasses -------------------------------------------------------------------------------

    def _swept(self, sweeps: Sweeps, found: Any, step: Any) -> Any:
        """The result of sweeps from the starting point; what it tells of them is kept."""
        options = replace(self._options(sweeps, self._identity(sweeps.data)), passes=sweeps.passes)
        result = fitting.fit(
            step,
            lambda progress: self._start(sweeps, found, options, progress),
            options,
            example=sweeps.example,
        )
        self._keep_run(result, sweeps)
        return result

    def _identity(self, data: Any) -> str:
        """By which a checkpoint knows the rows, in their order."""
        return "" if self.checkpoint is None else identity_in_order(data, self.block_size)

    def _keep_run(self, result: Any, sweeps: Sweeps) -> None:
        self.__dict__.pop("_online", None)
        self.n_iter_, self.converged_, self.n_passes_ = result.n_iter, result.converged, sweeps.passes.count

    def _options(self, sweeps: Sweeps, identity: str = "") -> FitOptions:
        objective = replace(COST, least_size=sweeps.scale)
        return FitOptions.of(self, identity, objective=objective, least_size=0.0)

    def _best(self, sweeps: Sweeps, points: Any, n_init: int, options: FitOptions, progress: Any) -> Any:
        """The best of several starting points, and whether the user interrupted the search."""
        points = progress.starts(points) if progress and n_init > 1 else points
        return best_start(
            sweeps.step, points, n_steps=_SHORT_RUN, stop=options.stop, objective=options.objective
        )

    def _continues(self, data: Any, method: str) -> bool:
        """Whether there are components to continue from, which have to be beside the rows."""
        if hasattr(self, "components_"):
            check_same_device(f"{type(self).__name__}.{method}", data, self.components_)
            return True
        return False

    def _first_batch(self, sweeps: Sweeps, found: Any) -> Any:
        """The starting point of a model that learns batch by batch."""
        point, _ = self._start(sweeps, found, self._options(sweeps), None)
        self.n_iter_, self.n_passes_, self.converged_, self.history_ = 0, 0, False, np.zeros(0)
        return point.shared

    def _discounted(self, earlier: Any, sums: Any) -> Any:
        """Sums of a batch with those of earlier batches, if there were any."""
        if earlier is None:
            return sums
        share = self._share(self.n_iter_)
        return add(mapped(lambda a: (1 - share) * a, earlier), mapped(lambda a: share * a, sums))

    def _share(self, n_batches: int) -> float:
        """The weight of the next batch after so many."""
        return (n_batches + self.learning_offset) ** -self.learning_decay

    def _count_batch(self, cost: float) -> None:
        history = to_numpy(self.history_)
        self.n_iter_ += 1
        self.n_passes_ += 1
        self.history_ = like(np.append(history, cost), self.components_)

    def _totals(self, data):
        raise NotImplementedError

    def _sweeps(self, data, found):
        raise NotImplementedError

    def _start(self, sweeps, found, options, progress):
        raise NotImplementedError

    def _continue(self, sweeps, found):
        raise NotImplementedError
