"""What stands beside numbers that are worse than the print: which other fits would have met it."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions import judgement
from reproductions.judgement import MATCHED, NO_EVIDENCE, NOISE, WORSE

BY_LABEL = "ERR picked by label"
FROM_CLASSES, THEIR_BIC = "ERR from classes", "BIC from classes"
PICKED, LESSER, MISSED, NOT_THERE = (
    "best of our fits by label meets it",
    "fit from the classes meets it, but is less likely",
    "fit from the classes meets it and is likelier",
    "fit from the classes does not meet it",
)
CLUSTERS = ("worse", PICKED, LESSER, MISSED, NOT_THERE)
SHARED, ALONE = "met with a shared covariance", "met without borrowed rows"
VARIANTS = {SHARED: "2L-MJFA, shared covariance", ALONE: "2L-MJFA, no borrowed rows"}


@dataclass(frozen=True)
class Worse:
    """A printed rate that ours does not meet."""

    reproduction: object
    record: dict
    printed: dict

    def met_by(self, rate):
        """Whether another rate of ours would meet it; None is no rate."""
        if rate is None:
            return False
        n_rows = self.reproduction.tested(self.record, "ERR")
        found = judgement.judged("ERR", (), "lower", self.record | {"ERR": rate}, self.printed, n_rows)
        return found.state in (MATCHED, NOISE)


def worse_rates(reproduction, records):
    """The cells of a table with an ERR that is worse."""
    keys = reproduction.keys
    ours = {tuple(record.get(key) for key in keys): record for record in records}
    theirs = {tuple(record.get(key) for key in keys): record for record in reproduction.published}
    cells = judgement.cells(reproduction, records)
    return [
        Worse(reproduction, ours[cell.key], theirs[cell.key])
        for cell in cells
        if cell.measure == "ERR" and cell.state == WORSE
    ]


def of_clusters(reproduction, records):
    """Numbers of worse rates of clusters by what else there is, or None for other tables."""
    if not any(THEIR_BIC in record for record in records):
        return None
    counts = dict.fromkeys(CLUSTERS, 0)
    for one in worse_rates(reproduction, records):
        counts["worse"] += 1
        counts[PICKED] += one.met_by(one.record.get(BY_LABEL))
        if FROM_CLASSES in one.record:
            likelier = one.record[THEIR_BIC] < one.record["BIC"] - NO_EVIDENCE
            met = one.met_by(one.record[FROM_CLASSES])
            counts[(MISSED if likelier else LESSER) if met else NOT_THERE] += 1
    return counts


def of_classes(reproduction, records):
    """Numbers of worse rates of 2L-MJFA, and of those that its variants meet, or None for other tables."""
    variants = {
        (record["train on"], record["method"], record["components"], record["dimensions"]): record.get("ERR")
        for record in records
        if record.get("method") in VARIANTS.values()
    }
    if not variants:
        return None
    worse = [one for one in worse_rates(reproduction, records) if one.record["method"] == "2L-MJFA"]
    counts = {"worse": len(worse)}
    for told, method in VARIANTS.items():
        rates = [
            variants.get((one.record["train on"], method, one.record["components"], one.record["dimensions"]))
            for one in worse
        ]
        tried = [rate is not None for rate in rates]
        met = sum(one.met_by(rate) for one, rate in zip(worse, rates, strict=True))
        counts[told] = f"{met} of {sum(tried)} tried"
    return counts
