"""Table 3.1: images of each digit in MNIST."""

from __future__ import annotations

import numpy as np

from latently.datasets import load
from reproductions.framework import Reproduction

TRAINING = (5923, 6742, 5958, 6131, 5842, 5241, 5918, 6265, 5851, 5949, 60000)
TEST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009, 10000)
DIGITS = (*map(str, range(10)), "all")


def measure(settings, seed):
    rows = load("mnist")
    counts = [np.bincount(y, minlength=10).tolist() for y in (rows.y_train, rows.y_test)]
    pairs = zip(*(own + [sum(own)] for own in counts), strict=True)
    return [
        {"digit": digit, "training images": fit, "test images": test}
        for digit, (fit, test) in zip(DIGITS, pairs, strict=True)
    ]


REPRODUCTION = Reproduction(
    id="000/table-3.1",
    title="images of each digit in MNIST",
    source="Document 000, section 3.1, Table 3.1",
    data="MNIST.",
    protocol="Counted.",
    keys=("digit",),
    other_numbers={"5421": "counted"},
    columns={"training images": "", "test images": ""},
    published=[
        {"digit": digit, "training images": fit, "test images": test}
        for digit, fit, test in zip(DIGITS, TRAINING, TEST, strict=True)
    ],
    measure=measure,
    counted=lambda record: False,  # sizes of data
    remarks=("5241 fives is a misprint for 5421: only so the printed row adds up to 60,000.",),
)
