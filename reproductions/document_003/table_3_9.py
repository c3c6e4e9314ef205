"""Table 3.9: sizes of the data sets of small samples."""

from __future__ import annotations

import numpy as np

from latently.datasets import load
from reproductions.framework import Reproduction

WANTED = ("building", "concrete", "grass")


def sizes(n_training, n_test, n_features, y):
    return {
        "training rows": n_training,
        "test rows": n_test,
        "features": n_features,
        "classes": len(np.unique(y)),
    }


def measure(settings, seed):
    """Of the tests that the tables of error rates compare with the print."""
    wdbc, wpbc, lsvt, tissue = (load(name) for name in ("wdbc", "wpbc", "lsvt", "breast_tissue"))
    cover = load("urban_land_cover")
    wanted = [list(cover.class_names).index(name) for name in WANTED]
    fit, test = np.isin(cover.y_train, wanted), np.isin(cover.y_test, wanted)
    n_test = len(wpbc.X) // 5
    found = {
        "WDBC": sizes(len(wdbc.X) // 5 + 1, len(wdbc.X) - len(wdbc.X) // 5 - 1, 30 + 30, wdbc.y),
        "WPBC": sizes(len(wpbc.X) - n_test, n_test, wpbc.X.shape[1], wpbc.y),
        "ULC": sizes(int(fit.sum()), int(test.sum()), cover.X_train.shape[1], cover.y_train[fit]),
        "LSVT": sizes(2 * len(lsvt.X) // 3, len(lsvt.X) // 3, lsvt.X.shape[1], lsvt.y),
        "BT": sizes(len(tissue.X) - len(tissue.X) // 5, len(tissue.X) // 5, 9 + 30, tissue.y),
    }
    return [{"data set": name} | size for name, size in found.items()]


def published():
    names = ("training rows", "test rows", "features", "classes")
    lines = {
        "WDBC": (114, 455, 60, 2),
        "WPBC": (38, 156, 33, 2),
        "ULC": (77, 273, 148, 3),
        "LSVT": (56, 42, 309, 2),
        "BT": (81, 24, 39, 6),
    }
    return [{"data set": name} | dict(zip(names, line, strict=True)) for name, line in lines.items()]


REPRODUCTION = Reproduction(
    id="003/table-3.9",
    title="sizes of the data sets of small samples",
    source="Document 003, section 3.3.5, Table 3.9",
    data="WDBC and breast tissue (BT) with 30 columns of noise, WPBC, three classes of ULC, and LSVT.",
    protocol="Counted, for the tests that Tables 3.10 to 3.14 compare; folds may differ by a row.",
    keys=("data set",),
    other_numbers=dict.fromkeys(("126", "147", "194", "252", "310"), "rows and features, counted"),
    columns={"training rows": "", "test rows": "", "features": "", "classes": ""},
    published=published(),
    measure=measure,
    counted=lambda record: False,  # sizes of data
    remarks=(
        """
        WPBC: the table has one fold for training, but printed rates lie a row of 194 apart, so that we train
        on four. ULC has 147 features. LSVT has 126 rows and 310 features; 14 of its 21 printed rates are
        multiples of 1/252, as means of six tests of 42 rows are, so that we train on 84.
        """,
    ),
)
