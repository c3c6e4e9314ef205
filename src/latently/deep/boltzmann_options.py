"""What models that learn by contrastive divergence share: options, first intercepts, codes of the user."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import torch

from latently.core.drivers import Objective
from latently.deep.boltzmann import BinaryUnits, GaussianUnits, Learning
from latently.deep.network import NetworkEstimator
from latently.estimators.checks import check_choice, check_flag, check_integer, check_number, numbers
from latently.estimators.options import estimator, option
from latently.estimators.rejection import Rejecting


@estimator
class BoltzmannOptions(Rejecting, NetworkEstimator):
    """Options of models that learn by contrastive divergence.

    Parameters
    ----------
    visible : {"binary", "gaussian"}, default="binary"
        Binary units take rows in [0, 1], of which fractions are used as they are. Gaussian ones take any
        rows; p(v | h) is then a normal distribution with variance `visible_variance`.
    visible_variance : float, default=1.0
        Variance of Gaussian visible units given the hidden ones. It is not learnt: scale the rows, or choose
        it near the variance that hidden units will not explain.
    n_gibbs : int, default=1
        Number k of Gibbs steps from the rows (CD-k), or of the persistent chains, for each update.
    persistent : bool, default=False
        Whether the chains of the model go on from one update to the next (PCD) instead of starting at the
        rows. There are `batch_size` of them.
    learning_rate : float, default=0.1
        Step size.
    momentum : float, default=0.5
        Share of an update that is added to the next one, below 1.
    weight_decay : float, default=1e-4
        Penalty on squared weights: an update subtracts `learning_rate * weight_decay` times the weights.
    sparsity_target : float, optional
        Share of the rows for which a hidden unit should be on.
    sparsity_weight : float, default=0.1
        How strongly the share of every hidden unit is drawn to `sparsity_target`.
    batch_size : int, default=100
        Number of rows of a mini-batch; with at least as many as rows there is one update in an epoch.
    max_iter : int, default=20
        Number of epochs, which are passes over the rows.
    {options}
    """

    _: KW_ONLY
    visible: str = option(default="binary", check=check_choice, choices=("binary", "gaussian"))
    visible_variance: float = option(default=1.0, check=check_number, least=1e-12)
    n_gibbs: int = option(default=1, check=check_integer, least=1)
    persistent: bool = option(default=False, check=check_flag)
    learning_rate: float = option(default=0.1, check=check_number, least=0)
    momentum: float = option(default=0.5, check=check_number, least=0, most=1)
    weight_decay: float = option(default=1e-4, check=check_number, least=0)
    sparsity_target: float | None = option(default=None, check=check_number, least=0, most=1, or_else=None)
    sparsity_weight: float = option(default=0.1, check=check_number, least=0)
    batch_size: int = option(default=100, check=check_integer, least=1)
    max_iter: int = option(default=20, check=check_integer, least=0)

    watched: ClassVar[str] = "log-likelihood"
    draws_name_generators: ClassVar[bool] = True
    static_steps: ClassVar[bool] = True
    precision: ClassVar[torch.dtype] = torch.float64  # so that small updates of large weights are not lost

    @property
    def objective(self):  # type: ignore[override]
        binary = self.visible == "binary"
        return Objective(f"{'pseudo-' if binary else 'reconstruction '}log-likelihood per row")

    def _optimizer(self, module):
        return None

    def _learning(self):
        return Learning(
            rate=self.learning_rate,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            n_gibbs=self.n_gibbs,
            sparsity_target=self.sparsity_target,
            sparsity_weight=self.sparsity_weight,
        )

    def _units(self, n_labels=0):
        """The kind of the visible units."""
        if self.visible == "gaussian":
            return GaussianUnits(float(self.visible_variance), n_labels)
        return BinaryUnits(n_labels)

    def _n_chains(self):
        return self.batch_size if self.persistent else 0

    def _check_rows(self, X):
        if self.visible == "binary":
            low, high = float(X.min()), float(X.max())
            if low < 0.0 or high > 1.0:
                raise ValueError(
                    f"binary visible units need X in [0, 1], but it is from {low:.6g} to {high:.6g}; "
                    'rescale X, or use visible="gaussian"'
                )


def start_intercept(units, rows, upward=lambda X: X):
    """Intercepts that make the mean of the rows likely: log odds, or the mean itself for Gaussian units.

    `upward` takes a batch of rows to the visible units.
    """
    total: Any = 0.0
    n = 0
    for batch in rows.batches(torch.Generator(rows.device)):
        total = total + len(batch) * batch.mean(upward(batch.X)).double()
        n += len(batch)
    rest, labels = units.parted((total / n)[None])
    if isinstance(units, BinaryUnits):
        rest = torch.logit(
            rest.clamp(0.01, 0.99)
        )  # a unit that is never on could be: weights have to move it
    return torch.cat([rest, torch.log(labels.clamp(min=0.01))], dim=1)[0]


def through_codes(machine, part, codes, width):
    """`part(machine, codes)` in float64, for codes of this width, as NumPy array or tensor like the codes."""
    given = torch.is_tensor(codes)
    there = torch.as_tensor(codes if given else numbers("codes", codes), dtype=torch.float64)
    if there.ndim != 2 or there.shape[1] != width:
        raise ValueError(
            f"codes must have shape (n_samples, {width}), that is {width} columns, not {tuple(there.shape)}"
        )
    with torch.no_grad():
        found = part(machine, there.detach().to(machine.components.device))
    return found.to(codes.device) if given else found.cpu().numpy()
