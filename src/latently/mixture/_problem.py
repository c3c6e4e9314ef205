"""What a fit works on: a kernel, and the rows in its frame."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from latently.backend.namespace import like, namespace, to_numpy
from latently.core.block import Block
from latently.core.drivers import alternate, em_step
from latently.core.frame import Frame
from latently.core.summary import Summary
from latently.core.sweep import LocalSweep
from latently.core.tree import mapped
from latently.distributions.mixture import Mixture


@dataclass(frozen=True)
class Problem:
    kernel: Mixture
    data: object  # core.data.Data, or its relative for Dask
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

    def sweep(self):
        """Passes over all rows."""
        return self.data.sweep(self.frame, floats_per_row=self.floats_per_row, block_size=self.block_size)

    def sweep_of(self, block):
        """Passes over some rows, which are in the user's units."""
        return self._sweep_of(block, self.frame)

    def sweep_of_sample(self, sample):
        """Passes over rows in main memory that are in the frame already."""
        return self._sweep_of(self.on_device(sample), None)

    def _sweep_of(self, block, frame):
        size = self.block_size
        return LocalSweep(lambda: [block], frame, floats_per_row=self.floats_per_row, block_size=size)

    def step(self):
        """The EM step over all rows."""
        return em_step(self.kernel, self.sweep(), self.log_volume)

    def in_alternation(self, step, sweep, log_volume=0.0, *, counted=lambda step: step, last=None):
        """An EM step, preceded by steps over some parameters at fixed others if the kernel has such.

        Only the `last` of these, if that is given.
        """
        kernels = self.kernel.conditionals(self.summary.missing)
        for kernel in kernels[::-1][:last]:
            step = alternate(counted(em_step(kernel, sweep, log_volume)), step)
        return step

    def to_frame(self, params):
        """Parameters in the user's units, carried into the frame and the region the floor allows."""
        moved = self.kernel.moved(params, -self.frame.shift / self.frame.scale, 1.0 / self.frame.scale)
        return self.kernel.clamped(moved)

    def from_frame(self, params):
        """Parameters of the frame in the user's units."""
        return self.kernel.moved(params, self.frame.shift, self.frame.scale)

    def on_device(self, record):
        """Arrays in main memory, carried to where the rows are."""
        return mapped(lambda array: like(array, self.frame.shift), record)

    def sample(self):
        """The rows that starts look at, in the frame and in main memory.

        In the order of their values along a fixed direction, which knows of no units and no offset.
        """
        rows = self.summary.sample
        block = self.frame.enter(Block(rows.X, rows.weight, rows.allowed).with_observed())
        direction = np.random.default_rng(0).standard_normal(block.X.shape[1])
        return block.take(np.argsort(block.X @ direction, kind="stable"))

    def in_main_memory(self):
        """The same problem for starting values, which are found with NumPy wherever the rows are."""
        family = replace(self.kernel.family, floor=to_numpy(self.kernel.family.floor))
        kernel = replace(self.kernel, family=family)
        return replace(self, kernel=kernel, frame=mapped(to_numpy, self.frame))
