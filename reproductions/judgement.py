"""How far our numbers agree with published ones, by one rule for all tables.

A published number is a cell. Ours beside it is

- matched: at least as good, to the digits printed;
- within noise: worse, but by no more than chance explains;
- worse;

or the cell is not comparable, for a reason that is told, or was not run. "Agrees" is two-sided: no further
away than noise, be it better or worse.

Noise is the larger of what one row can change (for BIC: 2, which is no evidence by the rule of Kass and
Raftery), and two standard errors of the difference, from the spread of our draws and of the printed ones;
a printed number without a spread is taken for one draw like ours.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

MATCHED, NOISE, WORSE = "matched", "within noise", "worse"
EXCLUDED, NOT_RUN = "not comparable", "not run"
COMPARED = (MATCHED, NOISE, WORSE)
STATES = (*COMPARED, EXCLUDED, NOT_RUN)
PRINTED_TESTS = 5  # behind a printed mean with a spread
ROWS_OF_ARI = 3  # one row of n changes it by up to some 3 / n
NO_EVIDENCE = 2.0  # a difference of BIC
UNITS = ("e_r", "log p(y) training", "log p(y) test")  # that one row hardly changes


@dataclass(frozen=True)
class Cell:
    """One published number and what became of it."""

    measure: str
    key: tuple
    state: str
    ours: float | None = None
    printed: float | None = None
    noise: float | None = None
    reason: str = ""

    @property
    def agrees(self):
        return self.state in COMPARED and abs(self.ours - self.printed) <= self.noise + half_digit(
            self.printed
        )


def cells(reproduction, records):
    """The cells of a reproduction, for records of ours."""
    keys = reproduction.keys
    ours = {tuple(record.get(key) for key in keys): record for record in records}
    found = []
    for printed in reproduction.published:
        if not reproduction.counted(printed):
            continue
        key = tuple(printed.get(name) for name in keys)
        for measure, better in reproduction.better.items():
            if printed.get(measure) is None:
                continue
            reason = reproduction.excluded(ours.get(key, {}) | printed, measure)
            if reason:
                found.append(Cell(measure, key, EXCLUDED, printed=printed[measure], reason=reason))
            elif ours.get(key, {}).get(measure) is None:
                found.append(Cell(measure, key, NOT_RUN, printed=printed[measure]))
            else:
                record = ours[key]
                n_rows = reproduction.tested(record, measure)
                found.append(judged(measure, key, better, record, printed, n_rows))
    return found


def judged(measure, key, better, record, printed, n_rows):
    ours, theirs = record[measure], printed[measure]
    lag = ours - theirs if better == "lower" else theirs - ours
    noise = noise_of(measure, record, printed, n_rows)
    state = MATCHED if lag <= half_digit(theirs) else NOISE if lag <= noise else WORSE
    return Cell(measure, key, state, ours, theirs, noise)


def noise_of(measure, record, printed, n_rows):
    """What chance explains of a difference."""
    errors = [one.get("standard error") for one in (record, printed)]
    if None not in errors:
        return max(of_one_row(measure, n_rows), 2 * math.hypot(*errors))
    spread, printed_spread = record.get(f"{measure}, spread", 0.0), printed.get(f"{measure}, spread")
    theirs = spread**2 if printed_spread is None else printed_spread**2 / PRINTED_TESTS
    drawn = 2 * math.sqrt(spread**2 / record.get("draws", 1) + theirs)
    return max(of_one_row(measure, n_rows), drawn)


def of_one_row(measure, n_rows):
    if measure.startswith("BIC"):
        return NO_EVIDENCE
    if n_rows is None:
        return 0.0
    if measure == "errors":
        return 1.0
    rows = ROWS_OF_ARI if measure in ("ARI", "NMI") else 100 if measure.endswith("%") else 1
    return 0.0 if measure in UNITS else rows / n_rows + 1e-9


def half_digit(printed):
    """Half of the last digit of a number as printed: of rates 4 digits, of others as many as they have."""
    text = repr(float(printed))
    decimals = 4 if abs(printed) < 1 else len(text.partition(".")[2]) if text[-2:] != ".0" else 0
    return 0.5 * 10.0**-decimals + 1e-12


def counts(found):
    """Numbers of cells by state, and of those that agree."""
    return Counter(cell.state for cell in found), sum(cell.agrees for cell in found)
