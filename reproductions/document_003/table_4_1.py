"""Table 4.1: sizes of the data sets of images."""

from __future__ import annotations

import numpy as np

from latently.datasets import load
from reproductions.framework import Reproduction


def measure(settings, seed):
    found = {
        "Pre-USPS": load("inbmt_pre_usps").X,
        "Pre-NIST": load("inbmt_pre_nist").X,
        "Coil-20": load("coil20")["X_64"],
        "UMIST": load("umist").X,
    }
    records = [{"data set": name, "rows": len(X), "features": X.shape[1]} for name, X in found.items()]
    for record, name in zip(records[2:], ("coil20", "umist"), strict=True):
        record["classes"] = len(np.unique(load(name).y))
    return records


REPRODUCTION = Reproduction(
    id="003/table-4.1",
    title="sizes of the data sets of images",
    source="Document 003, section 4.5.1, Table 4.1",
    data="""
        The files of the authors for Pre-USPS and Pre-NIST, Coil-20 and UMIST. Syn, Com-USPS and Com-NIST are
        not public; 003/table-4.2 generates sets of their kind.
    """,
    protocol="Counted.",
    keys=("data set",),
    columns={"rows": "", "features": "", "classes": ""},
    published=[
        {"data set": "Syn", "rows": 4500, "features": 36},
        {"data set": "Com-USPS", "rows": 2000, "features": 1024},
        {"data set": "Com-NIST", "rows": 400, "features": 4096},
        {"data set": "Pre-USPS", "rows": 400, "features": 256},
        {"data set": "Pre-NIST", "rows": 600, "features": 1024},
        {"data set": "Coil-20", "rows": 1440, "features": 4096, "classes": 20},
        {"data set": "UMIST", "rows": 575, "features": 644, "classes": 20},
    ],
    measure=measure,
    counted=lambda record: False,  # sizes of data
    remarks=("The rows for testing, 20 of Pre-USPS and 15 of Pre-NIST, are not public.",),
)
