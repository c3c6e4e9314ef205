"""From what the user gives as data to a source of its rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.blocks import array_like, block_source, looks_like_a_block, of_dask
from latently.core.sources.delimited import open_delimited
from latently.core.sources.memmap import memmap_source
from latently.core.sources.npy import open_npy
from latently.core.sources.parquet import open_parquet
from latently.core.sources.source import Source
from latently.core.sources.zarr import open_zarr, zarr_source


def open_source(X: Any) -> Source | None:
    """The source that X names or is; None where X is no source but an ordinary array-like."""
    if of_dask(X):
        return None
    if isinstance(X, Source):
        return X
    if isinstance(X, str | os.PathLike):
        return _open_file(Path(os.fspath(X)))
    if isinstance(X, np.memmap) and X._mmap is not None:  # type: ignore[attr-defined]
        return memmap_source(X)
    zarr = sys.modules.get("zarr")
    if zarr is not None and isinstance(X, zarr.Array | zarr.Group):
        return zarr_source(X, "the zarr array")
    if array_like(X) or isinstance(X, bytes | bytearray | Mapping | Set):
        return None
    if isinstance(X, Iterator):
        raise TypeError(
            f"an iterator ({type(X).__name__}) can be read only once, but the rows are needed several times: "
            "give a function that returns a new iterator over the blocks, or an object whose __iter__ does"
        )
    if isinstance(X, Sequence):
        return block_source(X) if len(X) > 0 and looks_like_a_block(X[0]) else None
    return block_source(X) if isinstance(X, Iterable) or callable(X) else None


def _open_file(path: Path) -> Source:
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    for suffix, opener in _OPENERS.items():
        if path.name.lower().endswith(suffix):
            if path.is_dir() and opener not in (open_zarr, open_parquet):
                raise ValueError(f"{str(path)!r} is a folder, not a {suffix} file")
            return opener(path)
    raise ValueError(f"{str(path)!r} is not a kind of file that can be read: {', '.join(_OPENERS)}")


_OPENERS: dict[str, Callable[[Path], Source]] = {
    ".npy": open_npy,
    ".zarr": open_zarr,
    ".parquet": open_parquet,
    ".pq": open_parquet,
    ".csv": open_delimited,
    ".csv.gz": open_delimited,
    ".tsv": open_delimited,
    ".tsv.gz": open_delimited,
}
