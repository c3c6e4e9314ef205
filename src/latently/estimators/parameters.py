"""The table of an estimator's fitted arrays: name, starting value, shape and check of each.

Shapes are written in symbols, such as ("K", "D", "q"), and resolved by the sizes of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import Array, contiguous
from latently.estimators.checks import check_locations, parameter

Check = Callable[[str, Any], Any]


@dataclass(frozen=True)
class Parameter:
    """One fitted array."""

    name: str  # of the attribute, without its underscore
    init: str | None  # the constructor parameter with its starting value; None if it follows from the data
    shape: tuple[str, ...]  # in symbols
    check: Check = check_locations  # takes the name to show and an array, returns the array, or raises

    def shape_for(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes[symbol] for symbol in self.shape)

    def checked(self, value: Any, sizes: Mapping[str, int], shown_as: str) -> Any:
        """The user's value, broadcast to the shape and validated; errors call it `shown_as`."""
        return self.check(shown_as, parameter(shown_as, value, self.shape_for(sizes)))


Table = Sequence[Parameter]


def given_starts(model: Any, table: Table, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The starting values given by the user, validated, by the name of the fitted attribute."""
    return {
        entry.name: entry.checked(getattr(model, entry.init), sizes, entry.init)
        for entry in table
        if entry.init is not None and getattr(model, entry.init) is not None
    }


def all_given(model: Any, table: Table) -> bool:
    """Whether the user has given every starting value."""
    return all(entry.init is None or getattr(model, entry.init) is not None for entry in table)


def fitted_arrays(model: Any, table: Table) -> dict[str, Array]:
    """The fitted attributes by name."""
    check_is_fitted(model)
    return {entry.name: getattr(model, f"{entry.name}_") for entry in table}


def store(model: Any, arrays: Mapping[str, Array]) -> None:
    """Set fitted attributes in one memory layout, so that models read from files give identical results."""
    for name, array in arrays.items():
        setattr(model, f"{name}_", contiguous(array))


def set_given(model: Any, table: Table, sizes: Mapping[str, int], given: Mapping[str, Any]) -> None:
    """Store given parameters, validated, as fitted attributes."""
    store(model, {entry.name: entry.checked(given[entry.name], sizes, entry.name) for entry in table})


def check_names(table: Table, given: Mapping[str, Any]) -> None:
    """Raise an error unless these are exactly the parameters of the table."""
    names = {entry.name for entry in table}
    if set(given) != names:
        raise ValueError(f"expected the parameters {sorted(names)}, not {sorted(given)}")


def check_shapes(model: Any, table: Table, sizes: Mapping[str, int], purpose: str) -> None:
    """Raise an error unless the model has the shapes of a fit with these sizes."""
    for entry in table:
        if not hasattr(model, f"{entry.name}_"):
            raise ValueError(
                f"{purpose} needs {entry.name}_, which the earlier fit, with other options, lacks"
            )
        found, expected = tuple(getattr(model, f"{entry.name}_").shape), entry.shape_for(sizes)
        if found != expected:
            raise ValueError(
                f"{purpose} needs the shapes of the earlier fit, but {entry.name}_ has shape {found} and "
                f"would now have {expected}; use a new estimator"
            )
