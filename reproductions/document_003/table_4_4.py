"""Table 4.4: cost of an iteration against the numbers of rows and features."""

from __future__ import annotations

import time

import numpy as np

from latently.factorization import IBPIBP, INBMT, MEIBP, FastNMTF, PenalizedNMTF
from reproductions.document_003._buffets import FNMTF, IBPIBP_, INBMT_, MEIBP_, PNMT
from reproductions.framework import Reproduction

K = 8  # codes of rows and of columns


def measure(settings, seed):
    N, D = settings["rows"], settings["features"]
    return [
        {"method": method, "N": n, "D": d, "milliseconds": 1e3 * seconds(method, n, d, settings, seed)}
        for n, d in ((N, D), (2 * N, D), (4 * N, D), (N, 2 * D), (N, 4 * D))
        for method in (INBMT_, MEIBP_, IBPIBP_, FNMTF, PNMT)
    ]


def seconds(method, n, d, settings, seed):
    """CPU seconds of one sweep: the difference of two fits from the same start, the least of a few."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(2, size=(n, K)), rng.integers(2, size=(d, K))
    X = np.abs(rows @ rng.random((K, K)) @ columns.T + 0.5 * rng.standard_normal((n, d)))
    plain = {"random_state": seed, "tol": 0}
    starts = {
        INBMT_: lambda m: INBMT(
            row_codes_init=rows, column_codes_init=columns, moves=False, max_iter=m, **plain
        ),
        MEIBP_: lambda m: MEIBP(codes_init=rows, moves=False, max_iter=m, **plain),
        IBPIBP_: lambda m: IBPIBP(init_components=K, n_init=1, moves=False, max_iter=m, **plain),
        FNMTF: lambda m: FastNMTF(
            K,
            K,
            row_labels_init=np.arange(n) % K,
            column_labels_init=np.arange(d) % K,
            max_iter=m,
            **plain,
        ),
        PNMT: lambda m: PenalizedNMTF(
            K,
            K,
            row_factors_init=rows + 0.2,
            core_init=np.ones((K, K)) + np.eye(K),
            column_factors_init=columns + 0.2,
            max_iter=m,
            accelerate=None,
            **plain,
        ),
    }
    few, many = 2, 2 + settings["sweeps"]
    return (taken(starts[method](many), X, settings) - taken(starts[method](few), X, settings)) / (many - few)


def taken(model, X, settings):
    found = []
    for _ in range(settings["repeats"]):
        began = time.process_time()
        model.fit(X)
        found.append(time.process_time() - began)
    return min(found)


def exponents(rows):
    """Growth of the cost as a power of N and of D, by least squares on logarithms."""
    found = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        least = {axis: min(row[axis] for row in own) for axis in ("N", "D")}
        record = {"method": method}
        for axis, other in (("N", "D"), ("D", "N")):
            line = [
                (np.log(r[axis]), np.log(max(r["milliseconds"], 1e-3)))
                for r in own
                if r[other] == least[other]
            ]
            record[f"power of {axis}"] = float(np.polyfit(*np.transpose(line), 1)[0])
        found.append(record)
    return found


REPRODUCTION = Reproduction(
    id="003/table-4.4",
    title="cost of an iteration against the numbers of rows and features",
    source="Document 003, section 4.6, Table 4.4, which has orders of growth and no times",
    data="Tables of random sums of 8 x 8 blocks with noise, drawn from the seed.",
    protocol="""
        CPU time of one sweep without moves, as the difference of two fits of different length from the same
        start, divided by their difference in sweeps; the least of a few repeats, one BLAS thread.
    """,
    keys=("method", "N", "D"),
    columns={"milliseconds": ".2f", "power of N": ".2f", "power of D": ".2f"},
    published=(),
    measure=measure,
    settings={"rows": 1000, "features": 500, "sweeps": 12, "repeats": 1},
    quick_settings={"rows": 40, "features": 20, "sweeps": 2, "repeats": 1},
    summary=exponents,
    remarks=(
        """
        The source gives iNBMT the order O(aN + bD), below N D. No such order can be reached: each
        update of codes needs a product of the dense table with the other codes, O(N D (K + L)).
        """,
        """
        At these sizes measured costs grow no faster than the table, and mostly more slowly; why, for
        iNBMT and D in particular, was not examined. Times are of one run on a busy machine: no
        ranking.
        """,
    ),
)
