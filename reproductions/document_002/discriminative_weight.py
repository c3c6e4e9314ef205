"""What a weight on the labels does, which the source has not: factors that describe, or tell apart."""

from __future__ import annotations

from joblib import Parallel, delayed

from reproductions.document_002._comparison import (
    COLUMNS,
    NOISE_FLOOR,
    TOL,
    fitted,
    folds,
    mean_of,
    measures,
)
from reproductions.document_002._comparison import published as published_tables
from reproductions.document_002.tables_5_2_5_3 import MFM, PCA
from reproductions.document_002.tables_5_2_5_3_sonar import rows
from reproductions.framework import Reproduction
from reproductions.told import span

KEYS = ("L", "d", "weight")
SHOWN = ("P_cc by x", "P_cc by y", "R_clas by x", "R_clas by y", "SER", "ln p(x)", "converged")
FITTED = "P_cc by x, fitted rows"


def measure(settings, seed):
    X, y = rows()
    grid = [(L, d, weight) for L, d in settings["models"] for weight in settings["weights"]]
    run = delayed(cross_validated)
    found = Parallel(n_jobs=settings["n_jobs"])(run(*entry, X, y, settings["starts"], seed) for entry in grid)
    return [dict(zip(KEYS, entry, strict=True)) | one for entry, one in zip(grid, found, strict=True)]


def cross_validated(L, d, weight, X, y, n_starts, seed):
    found = []
    for fit, test in folds(X, y, seed):
        model = fitted("MFM", "k-means", L, d, X[fit], y[fit], n_starts, seed, weight)
        found.append(measures(model, X[test], y[test], seed) | {FITTED: model.score(X[fit], y[fit])})
    return mean_of(found)


def published():
    """The source's MFM, of which the weight is one."""
    printed = (record for record in published_tables(MFM, PCA, svm=1.0) if record["method"] == "MFM")
    return [
        {"L": record["L"], "d": record["d"], "weight": 1}
        | {name: record[name] for name in SHOWN if name in record}
        for record in printed
        if record["starts"] != "random"
    ]


def draw(result):
    from reproductions.plots.planes import two_measures

    groups = {}
    for record in result.records:
        line = groups.setdefault(f"L = {record['L']}, d = {record['d']}", [])
        line.append((record["SER"], record["P_cc by x"], f"{record['weight']:g}"))
    return two_measures(
        groups,
        x="SER in dB",
        y="P_cc by x",
        title="Describing against telling apart, by the weight on labels",
    )


def about_weight(told):
    def at(measure, weight):
        return [told(measure, L, d, weight) for d in (3, 6) for L in (1, 2)]

    few, many = at("P_cc by x", 1), at("P_cc by x", 100)
    cost, nats = (
        [before - after for before, after in zip(at(name, 1), at(name, 100), strict=True)]
        for name in ("SER", "ln p(x)")
    )
    return f"""
        Weights up to 1 change little: beside 60 features a label weighs next to nothing. With three factors
        100 in place of 1 takes P_cc from {few[0]:.3f} to {many[0]:.3f} (L = 1) and from {few[1]:.3f} to
        {many[1]:.3f} (L = 2), and with six from {few[2]:.3f} to {many[2]:.3f} and from {few[3]:.3f} to
        {many[3]:.3f}. It costs {span(cost, ".1f")} dB of SER and {span(nats, ".0f")} of ln p(x).
    """


def about_labels(told):
    most = 2, 6, 100
    return f"""
        More weight fits labels rather than learns them: with L = 2, d = 6 and a weight of 100 P_cc is
        {told(FITTED, *most):.3f} on fitted rows and {told("P_cc by x", *most):.3f} on the others. R_clas by
        y then says {told("R_clas by y", *most):.2f}, which is far from true; R_clas by x says
        {told("R_clas by x", *most):.2f} where {1 - told("P_cc by x", *most):.2f} are wrong.
    """


REPRODUCTION = Reproduction(
    id="002/discriminative-weight",
    title="what a weight on the labels does to MFM, on sonar echoes",
    source="beyond document 002, whose MFM (Table 5.2) has the weight 1",
    data="The 208 sonar echoes of 002/tables-5.2-5.3-sonar. Published numbers belong to other data.",
    protocol=f"""
        MFM maximises the mean of ln p(x) + weight * ln P(z | x). Folds, starts ("k-means"), noise floor
        ({NOISE_FLOOR:.0%}), stopping ({TOL:g}) and measures as in the other tables; all but the last column
        on rows that were not fitted.
    """,
    keys=KEYS,
    other_numbers={"100": "a weight"},
    columns={name: COLUMNS[name] for name in SHOWN} | {FITTED: ".3f"},
    published=published(),
    measure=measure,
    settings={
        "models": ((1, 3), (1, 6), (2, 3), (2, 6)),
        "weights": (0.1, 1, 10, 100),
        "starts": 5,
        "n_jobs": -1,
    },
    quick_settings={"models": ((1, 3),), "weights": (1, 10), "starts": 1, "n_jobs": 1},
    remarks=(
        about_weight,
        about_labels,
    ),
    figures={"": draw},
)
