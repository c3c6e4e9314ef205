"""The problem that a fit solves: a kernel, and the rows in its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from latently.backend.namespace import like, namespace, to_numpy
from latently.backend.placement import is_small
from latently.core.block import Block
from latently.core.drivers import alternate, em_step
from latently.core.frame import Frame
from latently.core.kernel import Kernel
from latently.core.summary import Summary, summarise
from latently.core.sweep import LocalSweep
from latently.core.tree import mapped
from latently.estimators.data import check_summary
from latently.estimators.memory import check_parameters_fit
from latently.estimators.starts import rows_in_order


@dataclass(frozen=True)
class Problem:
    kernel: Kernel
    data: Any  # core.data.Data, or its counterpart for Dask
    frame: Frame
    summary: Summary
    n_components: int
    block_size: int | None

    @property
    def log_volume(self):
        """Log-likelihood per row in the frame minus that in the user's units."""
        xp = namespace(self.frame.scale)
        share = self.summary.observed_weight / self.summary.total_weight
        return float(xp.sum(self.frame.log_scale() * share))

    @property
    def floats_per_row(self):
        D = self.data.n_features
        return self.kernel.floats_per_row(self.n_components, D, self.summary.missing)

    @property
    def is_small(self):
        """Whether passes over all rows take one block and one thread."""
        in_one_block = self.data.in_memory and self.block_size is None
        return in_one_block and is_small(self.data.X, self.floats_per_row)

    def sweep(self):
        """Passes over all rows."""
        return self.data.sweep(self.frame, floats_per_row=self.floats_per_row, block_size=self.block_size)

    def sweep_of(self, block):
        """Passes over some rows in the user's units."""
        return self._sweep_of(block, self.frame)

    def sweep_of_sample(self, sample):
        """Passes over rows in main memory that are already in the frame."""
        return self._sweep_of(self.on_device(sample), None)

    def _sweep_of(self, block, frame):
        size, width = self.block_size, self.floats_per_row
        return LocalSweep(lambda: [block], frame, floats_per_row=width, block_size=size, fixed=True)

    def step(self, passes=None, sweep=None):
        """The EM step over all rows, in a sweep of them if given; `passes` counts its evaluations."""
        return em_step(self.kernel, self.sweep() if sweep is None else sweep, self.log_volume, passes)

    def with_conditionals(self, step, sweep, log_volume=0.0, *, passes=None, last=None):
        """An EM step, preceded by the kernel's conditional steps, if any.

        A conditional step updates some parameters with the others fixed. With `last`, only the last `last` of
        them are taken.
        """
        kernels = self.kernel.conditionals(self.summary.missing)
        for kernel in kernels[::-1][:last]:
            step = alternate(em_step(kernel, sweep, log_volume, passes), step)
        return step

    def to_frame(self, params):
        """Parameters in the user's units, moved into the frame and above the floor."""
        moved = self.kernel.moved(params, -self.frame.shift / self.frame.scale, 1.0 / self.frame.scale)
        return self.kernel.clamped(moved)

    def from_frame(self, params):
        """Parameters of the frame in the user's units."""
        return self.kernel.moved(params, self.frame.shift, self.frame.scale)

    def on_device(self, record):
        """Arrays in main memory, moved to the device of the rows."""
        return mapped(lambda array: like(array, self.frame.shift), record)

    def sample(self):
        """The rows that starts are computed from, in the frame and in main memory.

        Ordered by their projection on a direction that depends neither on units, nor on an offset, nor on the
        order of the features.
        """
        rows: Any = self.summary.sample
        block = self.frame.enter(Block(rows.X, rows.weight, rows.allowed).with_observed())
        return block.take(rows_in_order(block.X))

    def in_main_memory(self):
        """The same problem for computing starting values, always with NumPy."""
        return replace(self, kernel=self.kernel.in_main_memory(), frame=mapped(to_numpy, self.frame))

    @property
    def data_identity(self):
        """Identifies these rows, for checkpoints."""
        return f"{self.summary.n_rows} rows, {self.summary.content}"


def summarised(model, data, sample_size):
    """Summary of the rows, computed in two passes before a fit; an error if they are unsuitable."""
    check_parameters_fit(model, data.n_features)
    sweep = data.sweep(None, floats_per_row=3 * data.n_features, block_size=model.block_size)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is reported by the check
        summary = summarise(sweep, sample_size)
    check_summary(model, summary)
    return summary
