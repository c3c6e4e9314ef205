"""Indian-buffet models that are fitted by coordinate ascent of an objective J.

A fit alternates sweeps of a model of `distributions`; where a plain sweep gains little, moves change the
number of columns. J is a bound of the log evidence plus log hyper-priors.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import ClassVar

import numpy as np

from latently.core.drivers import Objective, Step, best_start
from latently.distributions.truncated_normal import TruncatedNormal
from latently.estimators.checks import check_flag, check_integer, check_number, numbers, parameter
from latently.estimators.options import estimator, option
from latently.estimators.randomness import as_generator
from latently.factorization.buffet import BuffetFactorization, Standing, check_codes

_SHORT_RUN = 8  # sweeps of every start before the better ones continue
_SETTLED = 1e-4  # a sweep that gains less than this part of J is followed by moves


@estimator
class MonotoneBuffet(BuffetFactorization):
    """Those fitted by coordinate ascent of an objective J.

    Parameters
    ----------
    init_components : int, default=10
        Groups of features at the start, more than there are; they are merged and removed on the way. Each of
        the groups is a feature at first.
    moves : bool, default=True
        Whether features are removed, merged, split and added; without, sweeps alone can remove features.
    n_init : int, default=4
        Number of random starts, of which the one with the largest J is kept.
    tol : float, default=1e-8
        The fit stops when a sweep with moves increases J by less than `tol` times J. With 0, exactly
        `max_iter` sweeps are made.
    callbacks : list of callables, optional
        Called after every sweep with a record (`number`, `objective`, `gain`, `max_iter`), whose objective is
        J; one that returns True stops the fit.

    Attributes
    ----------
    history_ : ndarray of shape (n_sweeps,)
        J after every sweep: `bound_` plus the log densities of the hyper-priors without their normalising
        constants. It never decreases.
    """

    _: KW_ONLY
    init_components: int = option(default=10, check=check_integer, least=1)
    moves: bool = option(default=True, check=check_flag)
    n_init: int = option(default=4, check=check_integer, least=1)  # type: ignore[misc]
    tol: float = option(default=1e-8, check=check_number, least=0)

    objective = Objective("objective J", remedy="rescale the data")
    _fields: ClassVar[dict[str, str]]  # of a state, by the fitted arrays that are called otherwise

    def _fit(self, table):
        rng = as_generator(self.random_state)
        model = self._model(table)
        given = self._given_start(model)

        def start(options, progress):
            if given is not None:
                return Standing(given), False
            starts = (Standing(self._random_start(model, rng)) for _ in range(self.n_init))
            starts = progress.starts(starts) if progress and self.n_init > 1 else starts
            return best_start(
                step, starts, n_steps=_SHORT_RUN, stop=options.stop, objective=options.objective
            )

        step = self._step(model, rng)
        result = self._learnt(step, start, 1.0)
        self._keep_state(model, result.params.state)

    def _step(self, model, rng):
        """A sweep, with moves where it gains little; it stays where only rounding is left to gain."""

        def step(here):
            state = here.state
            J = model.objective(state)
            rounding = _rounding(model, state, J)

            def next_standing():
                there = model.with_modes(model.sweep(state))
                found, searched = model.objective(there), False
                if J - rounding <= found < J:
                    there, found = state, J
                if self.moves and found - J <= _SETTLED * abs(J):
                    there, kept = self._moved(model, there, rng)
                    searched = not kept
                return Standing(there, searched)

            return Step(J, rounding, next_standing, may_stop=here.searched or not self.moves)

        return step

    def _model(self, table):
        """The model with its rows."""
        raise NotImplementedError

    def _given_start(self, model):
        """The state that the user gave, or that of the last fit for a warm start; or None."""
        raise NotImplementedError

    def _random_start(self, model, rng):
        raise NotImplementedError

    def _moved(self, model, state, rng):
        raise NotImplementedError

    def _keep_state(self, model, state):
        self._keep(**self._arrays_of(state))
        self._derive()
        self.bound_ = model.bound(state)

    def _arrays_of(self, state):
        """The fitted arrays of a state, by name."""
        values = {entry: getattr(state, self._field(entry)) for entry in self._parameters()}
        return {
            entry.name: value.astype(np.int64) if entry.check is check_codes else np.asarray(value)[()]
            for entry, value in values.items()
        }

    def _field(self, entry):
        """The field of a state that holds a fitted array."""
        return self._fields.get(entry.name, entry.name)

    def _hyper(self):
        """Hyper-parameters at the start, by the fields of a state; None where the user gave none."""
        given = {entry: getattr(self, entry.init) for entry in self._parameters() if not entry.shape}
        return {self._field(entry): None if value is None else float(value) for entry, value in given.items()}

    def _last_hyper(self):
        """Those of the last fit."""
        scalars = (entry for entry in self._parameters() if not entry.shape)
        return {self._field(entry): float(getattr(self, f"{entry.name}_")) for entry in scalars}

    def _more_header(self):
        return {"bound": self.bound_ if np.isfinite(self.bound_) else None}

    def _set_more(self, *, bound):
        if not (bound is None or (type(bound) is float and np.isfinite(bound))):
            raise ValueError("bound must be a finite number, or null")
        self.bound_ = math.nan if bound is None else bound

    def _derive(self):
        self.bound_ = math.nan
        self._keep(components=self._by_feature(self._weights().expectation))

    def _component_variances(self):
        return self._by_feature(self._weights().variance)

    def _weights(self):
        """The posterior of W."""
        return TruncatedNormal(self.location_, self.scale_)

    def _by_feature(self, moments):
        """(K, D) what each row code adds to every feature, from moments of W."""
        return moments

    def _codes_given(self, name, n_rows):
        """Starting codes from the user, float64, without null columns; errors name the parameter."""
        value = numbers(name, getattr(self, name))
        if value.ndim != 2 or value.shape[0] != n_rows:
            raise ValueError(f"{name} must have shape ({n_rows}, number of codes), not {value.shape}")
        return check_codes(name, value).astype(np.float64)

    def _matrix_given(self, name, shape):
        """A starting matrix from the user, or None."""
        value = getattr(self, name)
        return None if value is None else parameter(name, value, shape)

    def _check_given_together(self, codes, others):
        """Raise an error for starting values that refer to codes which were not given."""
        have = all(getattr(self, name) is not None for name in codes)
        for name in (*codes, *others):
            if getattr(self, name) is not None and not have:
                raise ValueError(f"{name} needs {' and '.join(codes)}, which it refers to")

    def _check_shape_of_last_fit(self, found, expected):
        if found != expected:
            raise ValueError(
                f"warm_start continues from the codes of the last fit, of a table of shape {found}; X has "
                f"shape {expected}: use a new estimator"
            )


def _rounding(model, state, J):
    """What of J may be lost to rounding: sums of squares are differences of larger ones."""
    return 64 * np.finfo(np.float64).eps * (1.0 + abs(J) + model.table.sum_squares / state.noise)
