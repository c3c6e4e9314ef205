"""Section 2.5.2: DAGMM by the protocol of its paper, beside simple baselines and the untrained network."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.ensemble import IsolationForest
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score

from latently.datasets import load
from latently.deep import DAGMM
from latently.mixture import PPCA
from reproductions.framework import Reproduction
from reproductions.kept import kept

OURS, LITERAL, UNTRAINED = "DAGMM", "DAGMM, literal penalty", "DAGMM, untrained"
UNSHRUNKEN = "DAGMM, literal penalty and covariances"
FOREST, PCA = "isolation forest", "PCA + Gaussian"
METHODS = (OURS, LITERAL, UNSHRUNKEN, UNTRAINED, FOREST, PCA)
NOT_OF_A_FIT = ("sets", "seeds")
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


def measure(settings, seed):
    records = []
    for name in settings["sets"]:
        for method in METHODS:
            found = []
            for number in range(settings["seeds"][name]):
                of_fit = {key: value for key, value in settings.items() if key not in NOT_OF_A_FIT}
                what = {"data": name, "method": method, "seed": seed + number, "settings": of_fit}
                found.append(kept("dagmm", what, lambda at=(name, method, settings, seed + number): run(*at)))
            record = {"data": name, "method": method, "fits": len(found)}
            for measured in ("precision", "recall", "F1", "AUROC"):
                values = [one[measured] for one in found]
                record |= {
                    measured: float(np.mean(values)),
                    f"sd of {measured}": float(np.std(values)),
                }
            records.append(record)
    return records


PUBLISHED = [
    {"data": "thyroid", "method": OURS, "precision": 0.4766, "recall": 0.4834, "F1": 0.4782},
    {"data": "arrhythmia", "method": OURS, "precision": 0.4909, "recall": 0.5078, "F1": 0.4983},
    {"data": "KDD 10 %", "method": OURS, "precision": 0.9297, "recall": 0.9442, "F1": 0.9369},
]
REPRODUCTION = Reproduction(
    id="003/section-2.5.2",
    title="DAGMM for anomalies in tables",
    source="""section 2.5.2 of document 003, which has no table; the numbers are those of Zong et al. (2018),
        Table 2""",
    data="""Thyroid (3772 rows, 93 anomalies) and arrhythmia (452 rows, 66 anomalies) in the form of ODDS, and
        the 10 % file of KDD Cup 1999 (494,021 rows with one-hot categories), of which the 97,278 normal
        connections are the anomalies, as in the paper.""",
    protocol="""
        As in the paper: a random half of the rows is for training, of which anomalies are taken
        out; the other half is for testing, and its rows with the highest energies, 2.5 %, 15 % and
        20 % of them, are called anomalies. Layers, factors, components and batches are those of the
        paper, the loss has 0.1 and 0.005. Epochs are a tenth of the paper's (2000, 1000 and 20),
        with a learning rate ten times the paper's (0.001), and of KDD the first 50,000 training
        rows are used; there is no dropout. The literal penalty is divided by the number of rows,
        all else equal; without shrinkage the covariances are as in the paper too. The untrained
        network has its mixture from a pass over the training rows. PCA + Gaussian is probabilistic
        PCA with 2, 10 and 10 factors. All methods get rows that are standardised by the training
        rows. Means and standard deviations are over random halves and seeds.
    """,
    keys=("data", "method"),
    columns={
        "fits": "d",
        "precision": ".3f",
        "recall": ".3f",
        "F1": ".3f",
        "sd of F1": ".3f",
        "AUROC": ".3f",
        "sd of AUROC": ".3f",
    },
    published=PUBLISHED,
    measure=measure,
    remarks=(
        """Fits are fewer than the 20 of the paper, to save time: 5 for the small tables, 2 for KDD.""",
        """On thyroid all methods but the untrained network are above the published F1; an isolation forest is
        the best of them. On arrhythmia the trained network is below the untrained one, and both below PCA and
        the forest: with fewer than 200 training rows of 274 features, the error of rows trained on is
        far smaller than that of all others. On KDD DAGMM has the largest AUROC.""",
        """Our penalty does not make results on thyroid steadier than the literal one, with everything else
        equal: the covariances are shrunken and the mixture is that of all rows in both, so that the literal
        one, which nearly vanishes, does no harm.""",
    ),
    settings={
        "sets": ["thyroid", "arrhythmia", "KDD 10 %"],
        "seeds": {"thyroid": 10, "arrhythmia": 10, "KDD 10 %": 2},
        "epochs": {"thyroid": 2000, "arrhythmia": 1000, "KDD 10 %": 20},
        "learning_rate": 1e-3,
        "kdd_rows": 50000,
    },
    quick_settings={"sets": ["arrhythmia"], "seeds": {"arrhythmia": 1}, "epochs": {"arrhythmia": 2}},
)
