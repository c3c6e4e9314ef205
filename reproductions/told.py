"""Numbers for remarks, from results as they are saved: none is typed, so none can be out of date."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ANY = ...
Records = Sequence[Mapping[str, Any]]


class Told:
    """Numbers of records, each by its measure and entries of its key.

    An entry is a value, `...` for any, or a tuple, list or range for one of these; last ones that are left
    out may be any. `printed` are those of the published records.
    """

    def __init__(self, keys: Sequence[str], records: Records, published: Records = ()) -> None:
        self.keys, self.records, self.published = keys, records, published

    @property
    def printed(self) -> Told:
        return Told(self.keys, self.published)

    def __call__(self, measure: str, *key: Any) -> Any:
        """The one number of these entries."""
        found = self.all(measure, *key)
        if len(found) > 1:
            raise LookupError(f"there are {len(found)} numbers {measure!r} of {key}")
        return found[0]

    def all(self, measure: str, *key: Any) -> list[Any]:
        """Every number of these entries, at least one."""
        return list(self.by_key(measure, *key).values())

    def by_key(self, measure: str, *key: Any) -> dict[tuple[Any, ...], Any]:
        """The same by whole keys."""
        found = {
            tuple(record.get(name) for name in self.keys): record[measure]
            for record in self.records
            if record.get(measure) is not None
            and all(matches(record.get(name), entry) for name, entry in zip(self.keys, key, strict=False))
        }
        if not found:
            raise LookupError(f"there is no number {measure!r} of {key}")
        return found

    def above_print(self, measure: str, *key: Any) -> list[float]:
        """How far our numbers lie above the printed ones of the same keys."""
        ours, theirs = self.by_key(measure, *key), self.printed.by_key(measure, *key)
        return [ours[one] - theirs[one] for one in ours if one in theirs]


def matches(value: Any, entry: Any) -> bool:
    if entry is ANY:
        return True
    return value in entry if isinstance(entry, (tuple, list, range)) else value == entry


def span(values: Iterable[float], spec: str) -> str:
    """The least and the largest, as "0.1 to 0.3", or one of them if they read the same."""
    values = list(values)
    ends = [format(end, spec) for end in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


def listed(values: Iterable[float], spec: str) -> str:
    """All of them, as "0.1, 0.2 and 0.3"."""
    shown = [format(value, spec) for value in values]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))
