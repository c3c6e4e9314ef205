"""What stands beside numbers that are worse than the print: which other fits would have met it."""

from __future__ import annotations

from dataclasses import dataclass

from reproductions import judgement
from reproductions.judgement import MATCHED, NO_EVIDENCE, NOISE, WORSE

PICKED, TRIED, LESSER, MISSED, NOT_THERE = (
    "best of our fits by label meets it",
    "best of 20 random starts by label meets it",
    "fit from the classes meets it, but is less likely",
    "fit from the classes meets it and is likelier",
    "fit from the classes does not meet it",
)
CLUSTERS = ("worse", PICKED, TRIED, LESSER, MISSED, NOT_THERE)
LOWEST = "met by our lowest rate of the method"
SHARED, ALONE = "met with a shared covariance", "met without borrowed rows"
VARIANTS = {SHARED: "2L-MJFA, shared covariance", ALONE: "2L-MJFA, no borrowed rows"}
CLASSES = ("train on", "method", "components", "dimensions")


@dataclass(frozen=True)
class Rate:
    """A rate of clusters, and what tells which of two fits is the likelier."""

    measure: str
    likelihood: str
    sign: int  # 1 if more is likelier
    margin: float

    def likelier(self, record):
        """Whether the fit from the classes is likelier than ours."""
        gain = record[from_classes(self.likelihood)] - record[self.likelihood]
        return self.sign * gain > self.margin


RATES = (
    Rate("ERR", "BIC", -1, NO_EVIDENCE),
    Rate("ERR training", "log p(y) training", 1, 0.0),
    Rate("ERR test", "log p(y) training", 1, 0.0),
)


def from_classes(name):
    return f"{name} from classes"


@dataclass(frozen=True)
class Worse:
    """A printed rate that ours does not meet."""

    reproduction: object
    measure: str
    record: dict
    printed: dict

    def met_by(self, rate):
        """Whether another rate of ours would meet it; None is no rate."""
        if rate is None:
            return False
        n_rows = self.reproduction.tested(self.record, self.measure)
        record = self.record | {self.measure: rate}
        found = judgement.judged(self.measure, (), "lower", record, self.printed, n_rows)
        return found.state in (MATCHED, NOISE)


def worse_rates(reproduction, records, measure="ERR"):
    """The cells of a table with a rate that is worse."""
    keys = reproduction.keys
    ours = {tuple(record.get(key) for key in keys): record for record in records}
    theirs = {tuple(record.get(key) for key in keys): record for record in reproduction.published}
    cells = judgement.cells(reproduction, records)
    return [
        Worse(reproduction, measure, ours[cell.key], theirs[cell.key])
        for cell in cells
        if cell.measure == measure and cell.state == WORSE
    ]


def of_clusters(reproduction, records):
    """A line of numbers of worse rates of clusters, by what else there is, for each measure."""
    lines = []
    for rate in RATES:
        worse = worse_rates(reproduction, records, rate.measure)
        if not worse or not any(from_classes(rate.measure) in record for record in records):
            continue
        counts = dict.fromkeys(CLUSTERS, 0)
        for one in worse:
            counts["worse"] += 1
            counts[PICKED] += one.met_by(one.record.get(f"{rate.measure} picked by label"))
            counts[TRIED] += one.met_by(one.record.get(f"{rate.measure} lowest of 20 trials"))
            if from_classes(rate.measure) in one.record:
                met = one.met_by(one.record[from_classes(rate.measure)])
                counts[(MISSED if rate.likelier(one.record) else LESSER) if met else NOT_THERE] += 1
        lines.append({"measure": rate.measure} | counts)
    return lines


def of_classes(reproduction, records):
    """A line of numbers of worse rates of classes, by what would meet them, for each method."""
    if reproduction.keys != CLASSES:
        return []
    worse = worse_rates(reproduction, records)
    rates = {tuple(record[key] for key in CLASSES): record["ERR"] for record in records if "ERR" in record}
    lines = []
    for method in dict.fromkeys(one.record["method"] for one in worse):
        own = [one for one in worse if one.record["method"] == method]
        lowest = {
            way: min(rate for key, rate in rates.items() if key[:2] == (way, method))
            for way in {one.record["train on"] for one in own}
        }
        line = {"method": method, "worse": len(own)}
        line[LOWEST] = sum(one.met_by(lowest[one.record["train on"]]) for one in own)
        for told, variant in VARIANTS.items():
            others = [rates.get((one.record["train on"], variant, *grid(one.record))) for one in own]
            tried = sum(rate is not None for rate in others)
            met = sum(one.met_by(rate) for one, rate in zip(own, others, strict=True))
            line[told] = f"{met} of {tried} tried" if tried and variant.startswith(method) else ""
        lines.append(line)
    return lines


def grid(record):
    return record["components"], record["dimensions"]
