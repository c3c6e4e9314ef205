"""From what the user gives as data to a source of its rows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from latently.core.sources.blocks import array_like, block_source, looks_like_a_block, of_dask
from latently.core.sources.delimited import open_delimited
from latently.core.sources.dialect import Given
from latently.core.sources.memmap import memmap_source
from latently.core.sources.npy import open_npy, open_npz
from latently.core.sources.packing import PACKINGS, inner_name, packing_of
from latently.core.sources.parquet import open_parquet
from latently.core.sources.source import Source
from latently.core.sources.table import Table, table_source
from latently.core.sources.whole import WHOLE, open_whole
from latently.core.sources.zarr import open_zarr, zarr_source

FOLDERS = (".zarr", ".parquet", ".pq")  # that may be folders of files
_TEXT = (".csv", ".tsv", ".txt", ".dat")  # packed or not
ENDINGS = (".npy", ".npz", *FOLDERS, *_TEXT, *WHOLE)  # of names of files that can be read


def open_source(X: Any) -> Source | None:
    """The source that X names or is; None where X is no source but an ordinary array-like."""
    if of_dask(X):
        return None
    if isinstance(X, Source):
        return X
    if isinstance(X, str | os.PathLike):
        return table_source(open_table(X))
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


def open_table(
    path: str | os.PathLike[str],
    *,
    text: Given | None = None,
    array: str | None = None,
) -> Table:
    """The table in a file, or in a folder of zarr or Parquet.

    `text` says how a file of text, or a sheet, is written; `array` is the name of one in an .npz archive.
    """
    path = Path(os.fspath(path))
    if not path.exists():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    packed = packing_of(path) and not path.is_dir()
    name = inner_name(path) if packed else path.name.lower()
    ending = next((ending for ending in (_TEXT if packed else ENDINGS) if name.endswith(ending)), None)
    if ending is None:
        what = f"holds {name!r}, which" if packed else "has a name that"
        raise ValueError(
            f"{str(path)!r} {what} does not end in one of {', '.join(_TEXT if packed else ENDINGS)}, "
            f"so it is not a kind of file that can be read; text may be packed ({', '.join(PACKINGS)})"
        )
    if path.is_dir() and ending not in FOLDERS:
        raise ValueError(f"{str(path)!r} is a folder, not a {ending} file")
    if ending == ".npy":
        return open_npy(path)
    if ending == ".npz":
        return open_npz(path, array)
    if ending == ".zarr":
        return open_zarr(path)
    if ending in FOLDERS:
        return open_parquet(path)
    if ending in WHOLE:
        return open_whole(path, ending, text)
    return open_delimited(path, text)
