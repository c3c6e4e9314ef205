"""Safe HTML: text is escaped unless it is markup created here."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value):
    """A value as HTML: markup unchanged, anything else escaped."""
    if isinstance(value, Markup):
        return value
    # file names may contain lone surrogates, which cannot be encoded
    return Markup(escape(str(value).encode("utf-8", "replace").decode("utf-8")))


def join(parts, between=""):
    return Markup(between.join(text(part) for part in parts))


_EMPTY = {"meta", "input", "img", "br"}
_SHAPES = {"rect", "line", "path", "circle", "use", "image"}


def element(tag, *children, **attributes):
    """<tag attribute="...">children</tag>.

    Attributes are written with - for _ and may end in _ to avoid Python keywords; those that are None or
    False are omitted, True is written without a value.
    """
    written = []
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name = name.rstrip("_").replace("_", "-")
        written.append(f" {name}" if value is True else f' {name}="{text(_short(value))}"')
    opened = f"<{tag}{''.join(written)}"
    if tag in _EMPTY:
        return Markup(f"{opened}>")
    if tag in _SHAPES and not children:
        return Markup(f"{opened}/>")
    return Markup(f"{opened}>{join(children)}</{tag}>")


def _short(value):
    """Coordinates rounded to screen precision."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value


def script_data(identifier, value):
    """A value for scripts, as JSON that cannot be interpreted as markup."""
    encoded = json.dumps(value, allow_nan=False, separators=(",", ":"))  # ASCII, so no U+2028 either
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    return Markup(f'<script type="application/json" id="{identifier}">{encoded}</script>')


def source_hash(source):
    """Hash by which a Content-Security-Policy allows an inline style or script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode('utf-8')).digest()).decode('ascii')}'"
