"""Reading the next chunk while one is in use."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar, cast

T = TypeVar("T")


def ahead(chunks: Iterator[T]) -> Iterator[T]:
    """The same items, the next one being read in a thread while one is in use.

    So two are in memory at a time. An error comes up where its item would have; when the reader stops early,
    the read under way is waited for, `chunks` is closed and the thread ends.
    """
    end = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="latently-ahead")
    try:
        coming = pool.submit(next, chunks, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, chunks, end)
            yield cast(T, item)
    finally:
        pool.shutdown()
        if hasattr(chunks, "close"):
            with suppress(ValueError):  # an interrupt may leave a thread that reads: then its end closes them
                chunks.close()
