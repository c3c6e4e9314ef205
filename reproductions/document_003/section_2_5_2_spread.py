"""Section 2.5.2: how far results of DAGMM differ between seeds on the same rows, by its penalty."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import f1_score, roc_auc_score

from latently.datasets import load
from latently.deep import DAGMM
from reproductions.framework import Reproduction
from reproductions.kept import kept

SIZES = {  # layers of thyroid as in the paper
    "thyroid": {"hidden_layer_sizes": (12, 4), "n_factors": 1, "n_components": 2, "batch_size": 1024},
    "arrhythmia": {"hidden_layer_sizes": (10,), "n_factors": 2, "n_components": 2, "batch_size": 128},
    "breast cancer": {"hidden_layer_sizes": (12, 4), "n_factors": 1, "n_components": 2, "batch_size": 128},
    "digits": {"hidden_layer_sizes": (30, 10), "n_factors": 2, "n_components": 4, "batch_size": 128},
}
OURS, LITERAL, UNSHRUNKEN, COSINE = "ours", "literal penalty", "literal penalty and covariances", "cosine"
VARIANTS = (OURS, LITERAL, UNSHRUNKEN, COSINE)
EIGHT = 8  # the digit that is odd


def rows_of(name):
    """Rows and whether they are anomalies."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X, y == EIGHT
    rows = load("wdbc" if name == "breast cancer" else f"{name}_odds")
    return np.asarray(rows.X, dtype=float), rows.y == rare(rows.y)


def rare(y):
    classes, counts = np.unique(y, return_counts=True)
    return classes[counts.argmin()]


def options_of(variant, n_rows):
    return {
        OURS: {},
        LITERAL: {"covariance_penalty": 0.005 / n_rows},
        UNSHRUNKEN: {"covariance_penalty": 0.005 / n_rows, "covariance_shrinkage": 0.0},
        COSINE: {"learning_rate_schedule": "cosine"},
    }[variant]


def run(name, variant, settings, half, seed):
    """AUROC and F1 of the other half of the rows, with as many called anomalies as there are."""
    torch.set_num_threads(1)
    X, odd = rows_of(name)
    order = np.random.default_rng(half).permutation(len(X))
    train, test = order[: len(X) // 2], order[len(X) // 2 :]
    train = train[~odd[train]]
    mean, deviation = X[train].mean(axis=0), X[train].std(axis=0)
    scaled = (X - mean) / np.where(deviation > 1e-7, deviation, 1.0)
    options = {"max_iter": settings["epochs"][name], "learning_rate": 1e-3, "random_state": seed}
    model = DAGMM(**SIZES[name], **options, **options_of(variant, len(train))).fit(scaled[train])
    score = model.score_samples(scaled[test])
    called = np.zeros(len(test), dtype=bool)
    called[np.argsort(score)[: odd[test].sum()]] = True
    return {"AUROC": roc_auc_score(~odd[test], score), "F1": f1_score(odd[test], called)}


def run_kept(name, variant, settings, half, seed):
    what = {"data": name, "epochs": settings["epochs"][name], "of": [variant, half, seed]}
    return kept("dagmm-spread", what, lambda: run(name, variant, settings, half, seed))


def pieces(settings, seed):
    """What can run at the same time."""
    for name in settings["epochs"]:
        for variant in VARIANTS:
            for half in range(settings["halves"]):
                for own in range(seed, seed + settings["seeds"]):
                    call = partial(run_kept, name, variant, settings, half, own)
                    yield f"spread, {name}, {variant}, {half}, {own}", call


def measure(settings, seed):
    records = []
    seeds = range(seed, seed + settings["seeds"])
    for name in settings["epochs"]:
        for variant in VARIANTS:
            found = [
                [run_kept(name, variant, settings, half, own) for own in seeds]
                for half in range(settings["halves"])
            ]
            record = {"data": name, "variant": variant, "fits": len(found) * len(seeds)}
            for measured in ("F1", "AUROC"):
                values = np.array([[one[measured] for one in own] for own in found])  # (halves, seeds)
                record |= {
                    measured: float(values.mean()),
                    f"{measured}, sd over seeds": float(np.sqrt(values.var(axis=1).mean())),
                    f"{measured}, sd over halves": float(values.mean(axis=1).std()),
                }
            records.append(record)
    return records


REPRODUCTION = Reproduction(
    id="003/section-2.5.2-spread",
    title="spread of DAGMM over seeds",
    source="section 2.5.2 of document 003, which has no numbers",
    data="""Thyroid and arrhythmia in the form of ODDS, Wisconsin breast cancer with its malignant cases as
        anomalies, and scikit-learn's digits with the eights as anomalies.""",
    protocol="""
        Random halves of the rows; from the training half anomalies are taken out. On every half fits differ
        in the seed alone, so that the spread over seeds is not mixed with that over rows. As many test rows
        as there are anomalies are called anomalies.
    """,
    keys=("data", "variant"),
    columns={
        "fits": "d",
        "F1": ".3f",
        "F1, sd over seeds": ".3f",
        "F1, sd over halves": ".3f",
        "AUROC": ".3f",
        "AUROC, sd over seeds": ".4f",
        "AUROC, sd over halves": ".4f",
    },
    published=(),
    measure=measure,
    settings={
        "epochs": {"thyroid": 2000, "arrhythmia": 1000, "breast cancer": 500, "digits": 300},
        "halves": 3,
        "seeds": 6,
    },
    quick_settings={"epochs": {"digits": 2}, "halves": 1, "seeds": 2},
)
