"""DAGMM by the protocol of its paper, beside simple baselines and the untrained network."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from latently.datasets import load
from latently.deep import DAGMM
from latently.mixture import PPCA
from reproductions.kept import kept

OURS, LITERAL, UNTRAINED = "DAGMM", "DAGMM, literal penalty", "DAGMM, untrained"
UNSHRUNKEN = "DAGMM, literal penalty and covariances"
FOREST, PCA = "isolation forest", "PCA + Gaussian"
METHODS = (OURS, LITERAL, UNSHRUNKEN, UNTRAINED, FOREST, PCA)
NOT_OF_A_FIT = ("sets", "methods", "seeds")
SIZES = {  # layers, factors, components and batches as in the paper
    "thyroid": {"hidden_layer_sizes": (12, 4), "n_factors": 1, "n_components": 2, "batch_size": 1024},
    "arrhythmia": {"hidden_layer_sizes": (10,), "n_factors": 2, "n_components": 2, "batch_size": 128},
    "KDD 10 %": {"hidden_layer_sizes": (60, 30, 10), "n_factors": 1, "n_components": 4, "batch_size": 1024},
}
SHARES = {"thyroid": 0.025, "arrhythmia": 0.15, "KDD 10 %": 0.2}  # of the test rows, called anomalies
N_FACTORS = {"thyroid": 2, "arrhythmia": 10, "KDD 10 %": 10}  # of PCA + Gaussian


def rows_of(name):
    """Rows and whether they are anomalies."""
    if name != "KDD 10 %":
        rows = load(f"{name}_odds")
        return rows.X, rows.y == 1
    rows = load("kddcup99_10pct")
    hot = [
        column[:, None] == np.unique(column) for column in np.asarray(rows.X_cat).T
    ]  # one column for each value
    return np.hstack([rows.X_num, *hot]).astype(np.float32), is_normal(rows)


def is_normal(rows):
    """In this file attacks are many, and normal connections are taken for the anomalies."""
    return np.asarray(rows.class_names)[rows.y] == "normal"


def run(name, method, settings, seed):
    """Precision, recall, F1 and AUROC on the test half."""
    torch.set_num_threads(1)
    X, odd = rows_of(name)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[: len(X) // 2], order[len(X) // 2 :]
    train = train[~odd[train]]
    if name == "KDD 10 %":
        train = train[: settings["kdd_rows"]]
    mean, deviation = X[train].mean(axis=0), X[train].std(axis=0)
    scaled = (X - mean) / np.where(deviation > 1e-7, deviation, 1.0)
    model = fitted(method, scaled[train], name, settings, seed)
    score = np.asarray(model.score_samples(scaled[test]))
    anomaly = np.zeros(len(test), dtype=bool)
    anomaly[np.argsort(score)[: round(SHARES[name] * len(test))]] = True
    precision, recall, f1, _ = precision_recall_fscore_support(odd[test], anomaly, average="binary")
    auroc = roc_auc_score(~odd[test], score)
    return {"precision": precision, "recall": recall, "F1": f1, "AUROC": auroc}


def fitted(method, rows, name, settings, seed):
    if method == FOREST:
        return IsolationForest(random_state=seed).fit(rows)
    if method == PCA:
        return PPCA(N_FACTORS[name]).fit(rows)
    return DAGMM(
        **SIZES[name],
        **({"covariance_shrinkage": 0.0} if method == UNSHRUNKEN else {}),
        covariance_penalty=0.005 / len(rows) if method in (LITERAL, UNSHRUNKEN) else 0.005,
        max_iter=0 if method == UNTRAINED else settings["epochs"][name],
        learning_rate=settings["learning_rate"],
        random_state=seed,
    ).fit(rows)


def run_kept(name, method, settings, seed):
    of_fit = {key: value for key, value in settings.items() if key not in NOT_OF_A_FIT}
    what = {"data": name, "method": method, "seed": seed, "settings": of_fit}
    return kept("dagmm", what, lambda: run(name, method, settings, seed))


def seeds_of(name, settings, seed):
    return range(seed, seed + settings["seeds"][name])


def methods_of(name, settings):
    return settings["methods"][name] if "methods" in settings else METHODS


def pieces(settings, seed):
    """What can run at the same time."""
    for name in settings["sets"]:
        for method in methods_of(name, settings):
            for own in seeds_of(name, settings, seed):
                yield f"{name}, {method}, {own}", partial(run_kept, name, method, settings, own)


def measure(settings, seed):
    records = []
    for name in settings["sets"]:
        for method in methods_of(name, settings):
            found = [run_kept(name, method, settings, own) for own in seeds_of(name, settings, seed)]
            record = {"data": name, "method": method, "fits": len(found)}
            for measured in ("precision", "recall", "F1", "AUROC"):
                values = [one[measured] for one in found]
                record |= {
                    measured: float(np.mean(values)),
                    f"sd of {measured}": float(np.std(values)),
                }
            records.append(record)
    return records
