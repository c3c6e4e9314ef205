"""A fitted model as its methods use it: kernel, parameters, and a frame for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from latently.backend.namespace import Array
from latently.core.frame import Frame


@dataclass(frozen=True)
class FittedModel:
    kernel: Any  # for rows in the user's units
    params: Any  # in the user's units
    frame: Frame  # in which rows are scored
    n_components: int
    n_features: int
    place: Array  # any array on the device of the model

    @cached_property
    def density(self) -> Any:
        """Prepared parameters for evaluating blocks of rows in the frame."""
        frame = self.frame
        moved = self.kernel.moved(self.params, -frame.shift / frame.scale, 1.0 / frame.scale)
        return self.kernel.prepare(moved)

    @property
    def floats_per_row(self) -> int:
        return int(self.kernel.floats_per_row(self.n_components, self.n_features, True))
