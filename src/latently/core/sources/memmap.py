"""Arrays that are mapped to memory, read like files: their pages do not stay."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from latently.core.sources.chunks import check_shape, real_dtype, rechunked
from latently.core.sources.source import RowSource, Source


def memmap_source(X: np.memmap[Any, Any]) -> Source:
    name = "the memory map"
    real_dtype(X.dtype, name)
    check_shape(X.shape, name)
    return RowSource(name, X.shape[1], X.shape[0], None, partial(rechunked, [X], X.shape[1]))
