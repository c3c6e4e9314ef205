"""The linear-Gaussian model of the Indian buffet process."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np

from latently.core.drivers import Objective, Step
from latently.distributions.binary_features import BinaryFeatures
from latently.distributions.collapsed_features import CollapsedFeatures, Draw, Patterned
from latently.distributions.indian_buffet import IndianBuffet, binary_matrix
from latently.estimators.checks import (
    check_integer,
    check_locations,
    check_non_negative,
    check_number,
    check_positive,
    numbers,
)
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter
from latently.estimators.randomness import as_generator
from latently.factorization import category_moves
from latently.factorization.buffet import (
    BuffetFactorization,
    Standing,
    check_codes,
    check_pair,
    check_variance,
)

_GROUPS, _SWEEPS = 10, 10  # of the ME-IBP from which a chain starts


@dataclass(frozen=True)
class LogJoint:
    """The parts of the log joint probability of rows and codes, weights integrated out.

    Attributes
    ----------
    likelihood : float
        ln p(X | Z).
    prior : float
        ln P([Z]) of the class of the codes.
    total : float
        Their sum.
    """

    likelihood: float
    prior: float
    total: float


@dataclass(frozen=True)
class _Chain:
    """A chain: where it is, and the most probable state that it has seen."""

    draw: Draw
    log_joint: float
    best: Draw
    best_log_joint: float


@estimator
class LinearGaussianIBP(BuffetFactorization):
    """Binary codes times Gaussian weights, whose number is learnt, by Gibbs sampling: X = Z A + noise.

    The weights are integrated out. A sweep visits all rows: a row drops the features that it alone has, draws
    each of the others, and brings new ones; then hyper-parameters are drawn.

    Parameters
    ----------
    concentration_init : float, default=1.0
    noise_init, component_variance_init : float, optional
        Starting hyper-parameters; by default the chain starts from a short fit of ME-IBP.
    component_prior : (float, float), default=(1, 1e-3)
        Shape and scale of the inverse gamma prior of the variance of the weights.
    codes_init : array-like of shape (n_samples, K), optional
        Starting codes.
    keep : int, default=0
        How many of the last states are kept in `draws_`.
    max_iter : int, default=500
        Number of sweeps.
    callbacks : list of callables, optional
        Called after every sweep with a record (`number`, `objective`, `gain`, `max_iter`), whose objective is
        the log joint probability; one that returns True stops the fit.
    {options}

    Attributes
    ----------
    codes_ : ndarray of shape (n_samples, K)
        Zeros and ones: the most probable state that the chain has seen, by ln p(X | Z) + ln P([Z]).
    log_joint_ : float
        Its log joint probability.
    components_ : ndarray of shape (K, n_features)
        The posterior mean of the weights given these codes.
    component_variance_ : float
    draws_ : list of ndarray
        The codes after each of the last `keep` sweeps. Not saved.
    history_ : ndarray of shape (n_sweeps,)
        The log joint probability after every sweep; it may rise and fall.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.factorization import LinearGaussianIBP
    >>> rng = np.random.default_rng(0)
    >>> weights = np.kron(np.eye(3), [1.0, -1.0, 2.0, 1.0])
    >>> X = rng.integers(2, size=(100, 3)) @ weights + 0.3 * rng.normal(size=(100, 12))
    >>> model = LinearGaussianIBP(max_iter=30, keep=10, random_state=0).fit(X)
    >>> model.components_.shape[1], len(model.draws_)
    (12, 10)
    """

    _: KW_ONLY
    component_prior: Any = option(default=(1, 1e-3), check=check_pair)
    codes_init: Any = None
    concentration_init: float = option(default=1.0, check=check_number, least=0)
    noise_init: float | None = option(default=None, check=check_variance, or_else=(None,))
    component_variance_init: float | None = option(default=None, check=check_variance, or_else=(None,))
    keep: int = option(default=0, check=check_integer, least=0)
    max_iter: int = option(default=500, check=check_integer, least=0)
    tol: ClassVar[float] = 0.0  # type: ignore[misc]

    objective = Objective("log joint probability", direction=0, remedy="rescale the data")

    @classmethod
    def from_parameters(
        cls, *, codes, components, concentration, noise_variance, component_variance, **options
    ):
        """A fitted estimator with known parameters, in the shapes of the fitted attributes.

        Any further keywords are those of the constructor.
        """
        return cls(**options)._with_parameters(
            codes=codes,
            components=components,
            concentration=concentration,
            noise_variance=noise_variance,
            component_variance=component_variance,
        )

    def _fit(self, table):
        rng = as_generator(self.random_state)
        model = CollapsedFeatures(Patterned.of(table), self._priors(self.component_prior))
        draws: list[Any] = []

        def step(here):
            chain = here.state

            def next_standing():
                draw = model.swept(chain.draw, rng)
                draws.append(draw.codes.astype(np.int64))
                del draws[: max(len(draws) - self.keep, 0)]
                log_joint = model.log_joint(draw)
                best = (draw, log_joint)
                if log_joint <= chain.best_log_joint:
                    best = chain.best, chain.best_log_joint
                return Standing(_Chain(draw, log_joint, *best))

            return Step(chain.log_joint, 0.0, next_standing)

        def start(options, progress):
            draw = self._first_draw(model, table, rng)
            log_joint = model.log_joint(draw)
            return Standing(_Chain(draw, log_joint, draw, log_joint)), False

        try:
            chain = self._learnt(step, start, 1.0).params.state
        except np.linalg.LinAlgError as error:
            raise ValueError(
                "X holds values so far from the others that rounding is all that is left of these; leave "
                f"out the rows with them, or rescale X ({error})"
            ) from error
        best = chain.best
        self.draws_ = draws[: self.n_iter_] if self.keep else []
        self._keep(
            codes=best.codes.astype(np.int64),
            components=model.rows.posterior_mean(best),
            concentration=np.float64(best.concentration),
            noise_variance=np.float64(best.noise),
            component_variance=np.float64(best.spread),
        )
        self.log_joint_ = float(chain.best_log_joint)

    def _first_draw(self, model, table, rng):
        """Where the chain starts."""
        N = len(table.Y)
        hyper: dict[str, Any] = {
            "concentration": float(self.concentration_init),
            "noise": self.noise_init,
            "spread": self.component_variance_init,
        }
        if self.warm_start and hasattr(self, "codes_"):
            found = (len(self.codes_), self.components_.shape[1])
            if found != table.Y.shape:
                raise ValueError(
                    f"warm_start continues from the codes of the last fit, of a table of shape {found}; X "
                    f"has shape {table.Y.shape}: use a new estimator"
                )
            return Draw(
                self.codes_.astype(np.float64),
                float(self.concentration_),
                float(self.noise_variance_),
                float(self.component_variance_),
            )
        if self.codes_init is not None:
            codes = numbers("codes_init", self.codes_init)
            if codes.ndim != 2 or len(codes) != N:
                raise ValueError(f"codes_init must have shape ({N}, number of codes), not {codes.shape}")
            codes = check_codes("codes_init", codes).astype(np.float64)
            noise = spread = max(table.sum_squares / table.n_observed, 1e-12)
        else:
            features = category_moves.features_to_start_from(
                BinaryFeatures(table, model.priors), _GROUPS, _SWEEPS, True, rng
            )
            codes, noise, spread = features.codes, features.noise, features.spread
            if not codes.shape[1]:
                codes = IndianBuffet(hyper["concentration"]).sample(N, rng).astype(np.float64)
                noise = spread = max(table.sum_squares / table.n_observed, 1e-12)
        return Draw(
            codes[:, codes.any(axis=0)],
            hyper["concentration"],
            float(noise if hyper["noise"] is None else hyper["noise"]),
            float(spread if hyper["spread"] is None else hyper["spread"]),
        )

    def log_joint(self, X, codes):
        """Log joint probability of rows and codes, with the fitted hyper-parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The rows; NaN marks a missing entry.
        codes : array-like of shape (n_samples, K)
            Zeros and ones, with any number of columns; null columns make no difference.

        Returns
        -------
        LogJoint
            A record with `likelihood`, `prior` and `total`.
        """
        table = self._table_of_codes(X)
        Z = binary_matrix("codes", codes).astype(np.float64)
        if len(Z) != len(table.Y):
            raise ValueError(
                f"codes must have one row for each of the {len(table.Y)} rows of X, not {len(Z)}"
            )
        noise, spread = float(self.noise_variance_), float(self.component_variance_)
        likelihood = float(Patterned.of(table).log_likelihood(Z[:, Z.any(axis=0)], noise, spread))
        prior = IndianBuffet(float(self.concentration_)).log_prob(Z)
        return LogJoint(likelihood, prior, likelihood + prior)

    def _component_variances(self):
        return None

    def _derive(self):
        self.log_joint_, self.draws_ = float("nan"), []

    def _more_header(self):
        return {"log_joint": self.log_joint_ if np.isfinite(self.log_joint_) else None}

    def _set_more(self, *, log_joint):
        if not (log_joint is None or (type(log_joint) is float and np.isfinite(log_joint))):
            raise ValueError("log_joint must be a finite number, or null")
        self.log_joint_ = float("nan") if log_joint is None else log_joint

    def _parameters(self):
        return (
            Parameter("codes", "codes_init", ("N", "K"), check_codes),
            Parameter("components", None, ("K", "D"), check_locations),
            Parameter("concentration", "concentration_init", (), check_non_negative),
            Parameter("noise_variance", "noise_init", (), check_positive),
            Parameter("component_variance", "component_variance_init", (), check_positive),
        )
