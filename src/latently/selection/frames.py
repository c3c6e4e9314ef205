"""Tables of results are data frames of pandas, which is an extra."""

from __future__ import annotations

from typing import Any


def pandas() -> Any:
    try:
        import pandas
    except ImportError as error:
        raise ImportError("tables need pandas: pip install 'latently[csv]'") from error
    return pandas
