"""Constructor parameters, declared once.

An estimator is a dataclass whose fields are its parameters. A base class declares and documents those that
several models share. `@estimator` creates the constructor with the signature that scikit-learn reads, and
replaces `{options}` and `{attributes}` in a model's docstring by the entries of its base classes. A subclass
may declare a field again to change its default, or as `ClassVar` to remove the parameter.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from functools import partial
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound=type)


def option(*, default: Any, check: Callable[..., Any], **limits: Any) -> Any:
    """A constructor parameter: its default, and the check `check(name, value, **limits)` of its values."""
    return dataclasses.field(default=default, metadata={"check": partial(check, **limits)})


def check_options(model: Any) -> None:
    """Check every parameter of an estimator with the check it was declared with.

    Numbers of other libraries become Python's, which are equal: products of np.int8(3) or np.float16(3)
    overflow, and NumPy takes no root of a Fraction.
    """
    for field in dataclasses.fields(model):
        if field.init and "check" in field.metadata:
            value = getattr(model, field.name)
            field.metadata["check"](field.name, value)
            if isinstance(value, Real) and not isinstance(value, int | float):
                setattr(model, field.name, int(value) if isinstance(value, Integral) else float(value))


@dataclass_transform(eq_default=False, field_specifiers=(option,))
def estimator(cls: T) -> T:
    """Give a class its constructor, and add inherited parameters to its docstring."""
    made: T = dataclasses.dataclass(eq=False, repr=False)(cls)  # type: ignore[assignment]
    made.__init__.__signature__ = _own_first(made)  # type: ignore[misc]
    made.__doc__ = _completed(made)
    return made


def _own_first(cls: type) -> inspect.Signature:
    """The signature with the parameters of the class itself before those it inherits."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    own = inspect.get_annotations(cls)

    def order(parameter: inspect.Parameter) -> tuple[int, bool]:
        return parameter.kind, parameter.name not in ("self", *own)

    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)  # types are in the documentation
        for parameter in sorted(signature.parameters.values(), key=order)
    ]
    return inspect.Signature(parameters)


def _completed(cls: type) -> str:
    """The docstring with `{options}` and `{attributes}` replaced by the entries of base classes."""
    doc = inspect.cleandoc(cls.__doc__ or "")
    parameters = {field.name for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for placeholder, title, known in (
        ("{options}", "Parameters", parameters),
        ("{attributes}", "Attributes", None),
    ):
        if placeholder in doc:
            doc = doc.replace(placeholder, "\n".join(_inherited(cls, doc, title, known)))
    return doc


def _inherited(cls: type, doc: str, title: str, known: set[str] | None) -> list[str]:
    """The entries of a docstring section of the base classes that the class does not have itself.

    `known` limits them to these names.
    """
    seen = {name for names in _entries(doc, title) for name in names.split(", ")}
    found = []
    for base in cls.__mro__[1:]:
        for names, text in _entries(inspect.cleandoc(base.__dict__.get("__doc__") or ""), title).items():
            new = [n for n in names.split(", ") if n not in seen and (known is None or n in known)]
            if new:
                found.append(text.replace(names, ", ".join(new), 1))
                seen.update(new)
    return found


def _entries(doc: str, title: str) -> dict[str, str]:
    """The entries of a section of a docstring, by the names they document."""
    section = re.search(rf"^{title}\n-+\n(.*?)(?=\n\n\S[^\n]*\n-+\n|\Z)", doc, re.DOTALL | re.MULTILINE)
    if section is None:
        return {}
    entries = re.findall(r"^\S[^\n]*(?:\n[ \t]+[^\n]*)*", section.group(1), re.MULTILINE)
    return {entry.partition(" : ")[0].strip(): entry for entry in entries}
