"""Section 3.1.3: MCFA, PCA followed by a Gaussian mixture, and mPPCA over clusters and dimensions."""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

from latently.metrics import adjusted_rand_score, error_rate, purity
from latently.mixture import MCFA, MPPCA, GaussianMixture
from reproductions.framework import Reproduction, beside
from reproductions.restarts import ROUGH, SAID, fit_restarts

METHODS = ("MCFA", "PCA+GMM", "mPPCA")  # of the source
STANDARDISED = "MCFA, standardised"
KEYS = ("method", "clusters", "dimensions")
BY_LABEL = "ERR picked by label"
COLUMNS = {
    "ERR": ".4f",
    "ARI": ".4f",
    "BIC": ".0f",
    "BIC in data space": ".0f",
    "ERR by majority": ".4f",
    BY_LABEL: ".4f",
    "chosen": "",
}
PROTOCOL = f"""
    {SAID} Features are as they are, neither centred nor standardised: only so do the printed BIC values of
    MCFA come about. "{STANDARDISED}" was not published; there MCFA has a free mean, which BIC counts. ERR is
    one minus the accuracy under the best one-to-one assignment of clusters to classes; "ERR by majority" lets
    several clusters stand for one class. BIC of PCA+GMM is, as in the source, that of the projected data,
    which compares with nothing; "BIC in data space" completes PCA+GMM by isotropic noise in the dimensions
    left out and is comparable between all rows; the lowest of each method is marked. "{BY_LABEL}" is the
    lowest ERR among the same fits: not a legitimate way to pick, because it looks at the labels, but perhaps
    what was printed.
"""
ABOUT_BIC = """
    The source compares BIC between methods. Its values of PCA+GMM belong to projected data, whose density is
    another one for every number of dimensions; its values of mPPCA are not those of a fitted mPPCA, whose BIC
    is of the size of that of MCFA.
"""


def reproduction(load, *, clusters, dimensions, restarts, quick, published, remarks, figures=None, **about):
    """A table of section 3.1.3; `load(seed)` gives rows and classes, `quick` the grid of a quick run."""

    def measure(settings, seed):
        return compare(*load(seed), seed=seed, **settings)

    return Reproduction(
        protocol=PROTOCOL,
        keys=KEYS,
        columns=COLUMNS,
        published=published_grid(published),
        measure=measure,
        settings={"clusters": clusters, "dimensions": dimensions, "restarts": restarts, "n_jobs": -1},
        quick_settings={"restarts": 1, "n_init": 2, "n_jobs": 1, **quick},
        summary=summary,
        remarks=(*remarks, ABOUT_BIC),
        figures={"": draw, **(figures or {})},
        **about,
    )


def published_grid(text):
    """Records of lines "clusters dimensions", then ERR, BIC and ARI of each method; "?" cannot be read."""
    records = []
    for line in text.strip().splitlines():
        clusters, dimensions, *numbers = (None if word == "?" else float(word) for word in line.split())
        for i, method in enumerate(METHODS):
            err, bic, ari = numbers[3 * i : 3 * i + 3]
            key = {"method": method, "clusters": int(clusters), "dimensions": int(dimensions)}
            records.append(key | {"ERR": err, "BIC": bic, "ARI": ari})
    return records


def compare(X, y, *, clusters, dimensions, restarts, n_jobs, seed, n_init=ROUGH["n_init"]):
    """Records of all methods over the grid."""
    methods = ("MCFA", STANDARDISED, "PCA+GMM", "mPPCA")
    grid = [(method, K, q) for method in methods for K in clusters for q in dimensions]
    records = Parallel(n_jobs=n_jobs)(delayed(cell)(X, y, *entry, restarts, seed, n_init) for entry in grid)
    for method in methods:
        own = [record for record in records if record["method"] == method]
        min(own, key=lambda record: record["BIC in data space"])["chosen"] = "by BIC"
    return records


def cell(X, y, method, K, q, n_restarts, seed, n_init=ROUGH["n_init"]):
    """The record of one entry of the grid: the likeliest fit, and what labels would have picked."""
    Z, bic_of_rest = rows_for(method, X, q)
    best, *others = fit_restarts(estimator(method, K, q), Z, n_restarts, seed, n_init=n_init)
    labels = best.predict(Z)
    errors = [error_rate(y, model.predict(Z)) for model in (best, *others)]
    bic = best.bic(Z)
    return {
        "method": method,
        "clusters": K,
        "dimensions": q,
        "ERR": errors[0],
        "ARI": float(adjusted_rand_score(y, labels)),
        "BIC": bic,
        "BIC in data space": bic + bic_of_rest,
        "ERR by majority": 1 - purity(y, labels),
        BY_LABEL: min(errors),
        "ERR, median of restarts": float(np.median(errors)),
        "log-likelihood per row": best.score(Z),
        "converged": bool(best.converged_),
    }


def estimator(method, K, q):
    if method == "PCA+GMM":
        return GaussianMixture(K)
    return MPPCA(K, q) if method == "mPPCA" else MCFA(K, q)


def rows_for(method, X, q):
    """What the method is fitted to, and what must be added to BIC of that to get BIC of X."""
    N, D = X.shape
    if method == STANDARDISED:  # units change the density by their product; the mean off the subspace is free
        return scale(X), float(2 * N * np.sum(np.log(X.std(axis=0))) + (D - q) * np.log(N))
    if method == "PCA+GMM":
        # PCA is a rotation, so a row's density is that of its projection times that of the rest, which is
        # taken for isotropic noise. Free are its variance, its mean, and the subspace: q (D - q) numbers.
        pca = PCA(q).fit(X)
        Z = pca.transform(X)
        variance = np.sum((X - pca.inverse_transform(Z)) ** 2) / (N * (D - q))
        log_likelihood = -0.5 * N * (D - q) * (np.log(2 * np.pi * variance) + 1)
        return Z, float(-2 * log_likelihood + (1 + (D - q) + q * (D - q)) * np.log(N))
    return X, 0.0


def summary(rows):
    """Of each method, ours where the source is best and where our BIC is lowest."""
    columns = [*KEYS, "ERR", beside("ERR"), BY_LABEL, "ARI", beside("ARI")]
    short = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        if method in METHODS:
            best = min(own, key=lambda row: (row[beside("ERR")], row[beside("BIC")]))
            short.append({"setting": "lowest published ERR"} | {name: best.get(name) for name in columns})
        best = min(own, key=lambda row: row["BIC in data space"])
        short.append({"setting": "our lowest BIC"} | {name: best.get(name) for name in columns})
    return short


def draw(result):
    """Error over dimensions, ours beside theirs."""
    from reproductions.plots.beside_published import errors_over_grid

    title = f"{result.reproduction.title}: clustering error"
    return errors_over_grid(result.rows(), title=title, by_label=BY_LABEL)
