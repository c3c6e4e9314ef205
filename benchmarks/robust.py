"""Outliers among the rows that a mixture is fitted to: how well its density finds them.

    python benchmarks/robust.py [--quick] [--seeds 3] [--output benchmarks/results/robust.json]
    python benchmarks/robust.py --files FILES.npz    # few rows of the rarest class among the others

Every model is fitted to all rows, outliers included, without labels; `score_samples` of the same rows is
compared with the labels: AUROC and average precision of a low density as the sign of an outlier.
Where the other rows come from known clusters, ARI is the agreement of the components with them, outliers left
out. IsolationForest and LOF are the peers. Sizes of the mixtures are the same with and without
`noise_component` and `tails="t"`. Data sets are read from the folder that `LATENTLY_DATA` names, as those of
`latently.datasets` are; contaminated ones are made here.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, average_precision_score, roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

from latently.mixture import MCFA, MFA, MPPCA, GaussianMixture

WAYS = {
    "normal": {},
    "noise": {"noise_component": True},
    "t": {"tails": "t"},
    "t and noise": {"tails": "t", "noise_component": True},
}


def thyroid(seed):
    """3772 x 6, 93 outliers."""
    data = _read("thyroid_odds")
    return data["X"], data["y"] == 1, {"gaussian": 4, "mfa": (4, 2)}, None


def arrhythmia(seed):
    """452 x 274, 66 outliers; features that vary in fewer than 5 % of rows are left out."""
    data = _read("arrhythmia_odds")
    X = data["X"]
    X = X[:, [np.mean(column != np.median(column)) > 0.05 for column in X.T]]
    return (X - X.mean(axis=0)) / X.std(axis=0), data["y"] == 1, {"mfa": (2, 4), "mcfa": (2, 6)}, None


def kddcup(seed):
    """4000 normal connections and 60 attacks x features that vary, as log(1 + x), standardised."""
    data = _read("kddcup99_10pct")
    rng = np.random.default_rng(seed)
    is_attack = data["class_names"][data["y"]] != "normal"
    rare = ~np.isin(data["class_names"][data["y"]], ("smurf", "neptune"))
    own = rng.choice(np.flatnonzero(~is_attack), 4000, replace=False)
    odd = rng.choice(np.flatnonzero(is_attack & rare), 60, replace=False)
    X = np.log1p(data["X_num"][np.concatenate([own, odd])])
    X = X[:, [np.mean(column != np.median(column)) > 0.05 for column in X.T]]
    return (X - X.mean(axis=0)) / X.std(axis=0), np.arange(4060) >= 4000, {"gaussian": 4, "mfa": (4, 3)}, None


def scattered(seed):
    """1000 rows of 3 overlapping clusters in 4 dimensions, 100 uniform rows around them."""
    rng = np.random.default_rng(seed)
    X, y = _clusters(rng, 1000, 4)
    odd = rng.uniform(-15.0, 15.0, (100, 4))
    sizes = {"gaussian": 3, "mfa": (3, 2), "mcfa": (3, 3)}
    return np.concatenate([X, odd]), np.arange(1100) >= 1000, sizes, y


def displaced(seed):
    """5732 rows of 3 clusters in 6 dimensions, and 71 such rows moved by 4 to 12 units in some direction."""
    rng = np.random.default_rng(seed)
    X, y = _clusters(rng, 5732, 6)
    direction = rng.normal(size=(71, 6))
    direction *= rng.uniform(4.0, 12.0, (71, 1)) / np.linalg.norm(direction, axis=1)[:, None]
    odd = X[rng.choice(5732, 71, replace=False)] + direction
    sizes = {"gaussian": 5, "mfa": (5, 2), "mcfa": (5, 4)}  # more components than clusters
    return np.concatenate([X, odd]), np.arange(5803) >= 5732, sizes, y


def rare_class(path, seed):
    """At most 1500 rows of a file with X and y: of its smallest class five per cent, of the others all."""
    with np.load(path) as arrays:
        X, y = arrays["X"].astype(float), arrays["y"]
    rng = np.random.default_rng(seed)
    rare = y == np.argmin(np.bincount(y))
    own = rng.permutation(np.flatnonzero(~rare))[:1500]
    odd = rng.permutation(np.flatnonzero(rare))[: round(0.05 * len(own))]
    X = X[np.concatenate([own, odd])]
    X = X[:, X.std(axis=0) > 0]
    sizes = {"gaussian": 4, "mfa": (3, min(3, X.shape[1] - 2))}
    return (X - X.mean(axis=0)) / X.std(axis=0), np.arange(len(X)) >= len(own), sizes, None


DATA = {f.__name__: f for f in (thyroid, arrhythmia, kddcup, scattered, displaced)}
QUICK = ("scattered",)


def _clusters(rng, N, D):
    centres, shapes = rng.normal(scale=2.5, size=(3, D)), rng.normal(size=(3, D, 2))
    labels = rng.integers(3, size=N)
    factors = rng.normal(size=(N, 2))
    noise = 0.7 * rng.normal(size=(N, D))
    return centres[labels] + np.einsum("ndq,nq->nd", shapes[labels], factors) + noise, labels


def _read(name):
    return np.load(Path(os.environ.get("LATENTLY_DATA", Path.home() / "latently_data")) / f"{name}.npz")


def models(sizes, seed):
    """Name, way and unfitted model."""
    yield "IsolationForest", "", IsolationForest(random_state=seed)
    yield "LOF", "", LocalOutlierFactor()
    for name, size in sizes.items():
        for way, options in WAYS.items():
            settings = {**options, "random_state": seed, "tol": 1e-6}
            if name == "gaussian":
                yield "GaussianMixture", way, GaussianMixture(size, **settings)
            elif name == "mfa":
                yield "MFA", way, MFA(*size, **settings)
                yield "MPPCA", way, MPPCA(*size, **settings)
            else:
                yield "MCFA", way, MCFA(*size, **settings)


def measured(X, is_odd, y, model):
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)
        model.fit(X)
        of_rows = getattr(model, "negative_outlier_factor_", None)
        scores = -(model.score_samples(X) if of_rows is None else of_rows)
    found = {
        "auroc": roc_auc_score(is_odd, scores),
        "average_precision": average_precision_score(is_odd, scores),
        "cpu_s": time.process_time() - start,
    }
    if y is not None and hasattr(model, "weights_"):
        found["ari"] = adjusted_rand_score(y, model.predict(X[~is_odd]))
    if hasattr(model, "noise_weight_"):
        found["noise_weight"] = float(model.noise_weight_)
    if hasattr(model, "degrees_of_freedom_"):
        found["least_degrees"] = float(model.degrees_of_freedom_.min())
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="*", choices=list(DATA))
    parser.add_argument("--files", nargs="*", default=[], help=".npz files with X and y")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    names = arguments.files or arguments.only or (QUICK if arguments.quick else DATA)
    results = []
    for name in names:
        rows = {}
        for seed in range(1 if arguments.quick else arguments.seeds):
            X, is_odd, sizes, y = DATA[name](seed) if name in DATA else rare_class(name, seed)
            for model, way, estimator in models(sizes, seed):
                rows.setdefault((model, way), []).append(measured(X, is_odd, y, estimator))
        for (model, way), found in rows.items():
            mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
            results.append({"data": Path(name).stem, "model": model, "way": way, **mean})
            line = "  ".join(f"{key} {value:.3f}" for key, value in mean.items())
            print(f"{Path(name).stem:10} {model:16} {way:12} {line}", flush=True)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
