"""How several starts are compared: by short runs on a sample of the rows."""

from __future__ import annotations

SHORT_RUN = 4  # EM steps after which the better half of the starts continues


def rows_for_start(n_components: int) -> int:
    """Rows of the sample that starts see."""
    return max(10_000, 50 * n_components)
