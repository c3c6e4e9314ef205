"""Names and cells of the user's in messages: shortened, quoted, and without control characters."""

from __future__ import annotations

from collections.abc import Iterable

_LONGEST = 2000  # characters of a line


def one_line(text: object) -> str:
    """The text without line breaks, and with non-printable characters as escapes.

    Examples
    --------
    >>> from latently.core.words import one_line
    >>> print(one_line("two\\nlines and \\x1b[31mcolour"))
    two lines and \\x1b[31mcolour
    """
    text = " ".join(str(text).split())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


def shown(text: object, longest: int = 300) -> str:
    """A name or cell of the user's in quotes, truncated if it is long."""
    text = str(text)
    return one_line(repr(text if len(text) <= longest else text[: longest - 3] + "..."))


def listed(texts: Iterable[object], most: int = 5) -> str:
    """The first few of the user's names, and the number of others."""
    texts = list(texts)
    more = f" and {len(texts) - most} others" if len(texts) > most else ""
    return ", ".join(shown(text, 60) for text in texts[:most]) + more


def counted(number: int, what: str) -> str:
    """A number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
