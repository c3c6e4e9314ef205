"""Rows that need not fit in memory: a file, a memory map, a zarr array or blocks, read chunk by chunk.

A source can be read as often as one likes and gives the same rows each time, as arrays of about
`chunks.CHUNK_BYTES` that belong to the reader: nothing else refers to them, so nothing stays behind when they
are dropped. `ahead` reads the next chunk while one is in use; `RowWriter` puts one row per row back on disk.

Nothing here is ever unpickled. pandas, pyarrow and zarr are imported only when a file of theirs is opened.
"""

from latently.core.sources.arrays import pixel_names
from latently.core.sources.blocks import block_numbers
from latently.core.sources.cells import MISSING, numbers_of
from latently.core.sources.chunks import Rows, real_dtype, rows_in_frame
from latently.core.sources.dialect import Unclear
from latently.core.sources.opening import FOLDERS, open_source, open_table
from latently.core.sources.packages import package
from latently.core.sources.reading_ahead import ahead
from latently.core.sources.source import Followed, RowSource, Source
from latently.core.sources.table import Table
from latently.core.sources.writing import RowWriter

__all__ = [
    "FOLDERS",
    "MISSING",
    "Followed",
    "RowSource",
    "RowWriter",
    "Rows",
    "Source",
    "Table",
    "Unclear",
    "ahead",
    "block_numbers",
    "numbers_of",
    "open_source",
    "open_table",
    "package",
    "pixel_names",
    "real_dtype",
    "rows_in_frame",
]
