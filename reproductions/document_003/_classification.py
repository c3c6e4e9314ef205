"""Section 3.3.5: 2L-MJFA, its competitors and usual classifiers over components and dimensions."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product

import numpy as np
from joblib import Parallel, delayed
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from latently.datasets import with_noise_features
from latently.mixture import MCFA, MPPCA, GaussianMixture
from latently.supervised import MJFAClassifier, PerClass
from reproductions.document_003._clustering import rows_for
from reproductions.framework import Reproduction
from reproductions.restarts import ROUGH

METHODS = ("2L-MJFA", "mMCFA", "mPPCA", "PCA-GMM", "LDA-GMM")  # of the source
SHARED = "2L-MJFA, shared covariance"
USUAL = {
    "LDA with shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "logistic regression": LogisticRegression(max_iter=1000),
    "support vectors (SVC)": SVC(),
    "most frequent class": DummyClassifier(),
}
OFFICIAL, ONE_FOLD, FOUR_FOLDS = "official rows", "one fold", "four folds"
N_FOLDS = 5
NOISE_FLOOR = 0.01
BY_BIC = "by BIC"
KEYS = ("train on", "method", "components", "dimensions")
COLUMNS = {"ERR": ".4f", "spread": ".2f", "chosen": "", "not fitted": ""}
PROTOCOL = f"""
    All features are standardised by mean and variance of the training rows; the source does not say whether
    its were. Each model is fitted once, with the best of {ROUGH["n_init"]} short runs by likelihood, and no
    noise variance may fall below {NOISE_FLOOR:.0%} of the feature's variance. "Components" are those of each
    class; components and dimensions without a printed number are additions of ours. "{SHARED}" was not
    published: there all components have one covariance of the factors. LDA-GMM has at most one dimension less
    than there are classes. ERR is the share of test rows that are assigned to a wrong class. "Chosen" are the
    components and dimensions of lowest BIC of training rows and their classes, without a look at test rows;
    BIC of PCA-GMM is completed by isotropic noise in the dimensions left out, and LDA-GMM takes as many
    dimensions as it can. The short table has components x dimensions in brackets; "our lowest" is picked by
    its test rows, as the source picks, so it is too good to be expected of new rows. The last four methods
    are scikit-learn's with its defaults, but for the automatic shrinkage of LDA and more iterations of
    logistic regression.
"""
IN_FOLDS = """
    Five folds with equal shares of classes. As the source has it, each fold in turn is for training and the
    other four for testing ("one fold"). ERR is the mean over the five, and spread their standard deviation.
"""
BOTH_WAYS = """
    Beside that, four folds are for training and one for testing ("four folds"); printed numbers stand beside
    both.
"""
THINNED = """
    Of the printed grid a part is run, to save time: one with the lowest printed rate of 2L-MJFA.
"""
UNKNOWN = """
    The source does not say how many components it took; printed numbers stand beside each of ours.
"""


def reproduction(load, *, train_on, components, dimensions, quick, published, **about):
    """A table of section 3.3.5; `load(seed)` gives splits by what is trained on, `quick` the grid of a quick
    run, `published` is the text that `published_grid` takes."""

    def measure(settings, seed):
        splits = load(seed)
        return compare({way: splits[way] for way in train_on}, seed=seed, **settings)

    printed = published_grid(published, train_on, components)
    folded = OFFICIAL not in train_on
    applies = {
        IN_FOLDS: folded,
        BOTH_WAYS: FOUR_FOLDS in train_on,
        UNKNOWN: "?" in published,
        THINNED: not {record["dimensions"] for record in printed} <= set(dimensions),
        PROTOCOL: True,
    }
    return Reproduction(
        protocol="".join(text for text in applies if applies[text]),
        keys=KEYS,
        columns=COLUMNS,
        published=printed,
        measure=measure,
        settings={"components": components, "dimensions": dimensions, "n_jobs": -1}
        | ({"folds": N_FOLDS} if folded else {}),
        quick_settings={"n_init": 2, "n_jobs": 1} | ({"folds": 1} if folded else {}) | quick,
        summary=partial(summary, published=printed),
        figures={"": draw},
        **about,
    )


def published_grid(text, train_on, components):
    """Records of lines "dimensions components", then ERR or ERR±spread of each method, "-" if there is none.

    They are repeated for each of `train_on`, and for each of `components` where the source does not say how
    many it took ("?").
    """
    records = []
    for line in text.strip().splitlines():
        q, g, *cells = line.split()
        for way, number in product(train_on, components if g == "?" else (int(g),)):
            key = {"train on": way, "components": number, "dimensions": int(q)}
            for method, cell in zip(METHODS, cells, strict=True):
                if cell != "-":
                    numbers = zip(("ERR", "spread"), map(float, cell.split("±")), strict=False)
                    records.append(key | {"method": method} | dict(numbers))
    return records


def in_folds(X, y, *, n_noise_features=0, seed):
    """Splits (X, y, X_test, y_test) of five folds, by what is trained on."""
    X = with_noise_features(X, n_noise_features, distribution="normal", random_state=seed)
    folds = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(X, y))
    pairs = {ONE_FOLD: [(one, four) for four, one in folds], FOUR_FOLDS: folds}
    return {way: [(X[fit], y[fit], X[test], y[test]) for fit, test in pairs[way]] for way in pairs}


def compare(splits, *, components, dimensions, n_jobs, seed, folds=1, n_init=ROUGH["n_init"]):
    """Records of all methods over the grid, of what BIC chooses, and of the usual classifiers."""
    standardised = {way: [standardise(*split) for split in parts[:folds]] for way, parts in splits.items()}
    n_classes = len(np.unique(next(iter(splits.values()))[0][1]))
    cells = [
        (method, g, q)
        for method in (METHODS[0], SHARED, *METHODS[1:])
        for q in dimensions
        for g in components
        if method != "LDA-GMM" or q < n_classes
    ] + [(name, None, None) for name in USUAL]
    tasks = [(way, *cell, split) for way, parts in standardised.items() for cell in cells for split in parts]
    outcomes = iter(
        Parallel(n_jobs=n_jobs)(
            delayed(outcome)(method, g, q, split, seed, n_init) for _, method, g, q, split in tasks
        )
    )
    records = []
    for way, parts in standardised.items():
        found = {cell: [next(outcomes) for _ in parts] for cell in cells}
        for method in dict.fromkeys(cell[0] for cell in cells):
            own = {cell: found[cell] for cell in cells if cell[0] == method}
            records += [{"train on": way} | record for record in records_of(method, own)]
    return records


def standardise(X, y, X_test, y_test):
    scaler = StandardScaler().fit(X)
    return scaler.transform(X), y, scaler.transform(X_test), y_test


def records_of(method, found):
    """Records of one method; `found` are the outcomes of each split by cell of the grid."""
    records = {cell: {"method": method, "components": cell[1], "dimensions": cell[2]} for cell in found}
    for cell, parts in found.items():
        obstacles = [part["obstacle"] for part in parts if "obstacle" in part]
        records[cell] |= {"not fitted": obstacles[0]} if obstacles else errors(parts)
    if method in USUAL:
        return list(records.values())
    most = max(q for _, _, q in found)
    eligible = [cell for cell in found if method != "LDA-GMM" or cell[2] == most]
    chosen = [lowest_bic(split, eligible, found) for split in range(len(next(iter(found.values()))))]
    for cell in set(chosen):
        records[cell]["chosen"] = f"{chosen.count(cell)} of {len(chosen)}"
    picked = errors([found[cell][split] for split, cell in enumerate(chosen)])
    by_bic = {"method": method, "components": BY_BIC, "dimensions": BY_BIC} | picked
    return [*records.values(), by_bic]


def lowest_bic(split, cells, found):
    return min(
        (cell for cell in cells if "BIC" in found[cell][split]), key=lambda cell: found[cell][split]["BIC"]
    )


def errors(parts):
    rates = [part["ERR"] for part in parts]
    spread = {"spread": float(np.std(rates, ddof=1))} if len(rates) > 1 else {}
    return {"ERR": float(np.mean(rates)), **spread}


def outcome(method, g, q, split, seed, n_init=ROUGH["n_init"]):
    """ERR on the test rows and BIC of the training rows, or what is in the way of a fit."""
    X, y, X_test, y_test = split
    if method in USUAL:
        return {"ERR": 1 - USUAL[method].fit(X, y).score(X_test, y_test)}
    fewest = int(np.unique(y, return_counts=True)[1].min())
    if method not in (METHODS[0], SHARED) and fewest < g:
        return {"obstacle": f"a class has {fewest} rows for {g} components"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "too few rows for a")
        fitted = classifier(method, g, q, seed, n_init).fit(X, y)
    rest = rows_for("PCA+GMM", X, q)[1] if method == "PCA-GMM" else 0.0
    return {
        "ERR": 1 - fitted.score(X_test, y_test),
        "BIC": fitted[-1].bic(fitted[:-1].transform(X), y) + rest,
    }


def classifier(method, g, q, seed, n_init):
    # maximum likelihood, as in the source: no prior, and classes borrow nothing
    options = {**ROUGH, "n_init": n_init, "noise_floor": NOISE_FLOOR, "random_state": seed, "prior": None}
    alone = {"shrinkage": None, "temperature": None}
    before = {"PCA-GMM": PCA(q), "LDA-GMM": LinearDiscriminantAnalysis(n_components=q)}
    models = {
        "2L-MJFA": MJFAClassifier(g, q, **options, **alone),
        SHARED: MJFAClassifier(g, q, shared_covariance=True, **options, **alone),
        "mMCFA": PerClass(MCFA(g, q, **options), **alone),
        "mPPCA": PerClass(MPPCA(g, q, **options), **alone),
        "PCA-GMM": PerClass(GaussianMixture(g, **options), **alone),
        "LDA-GMM": PerClass(GaussianMixture(g, **options), **alone),
    }
    return make_pipeline(before.get(method, "passthrough"), models[method])


def summary(rows, published):
    """Of each method, the lowest published ERR and ours there, our lowest, and what training rows choose."""
    short = []
    for way, method in dict.fromkeys((row["train on"], row["method"]) for row in rows):
        own = [row for row in rows if (row["train on"], row["method"]) == (way, method)]
        grid = {(row["components"], row["dimensions"]): row["ERR"] for row in own if "ERR" in row}
        picked = grid.pop((BY_BIC, BY_BIC), None)
        theirs = {
            (record["components"], record["dimensions"]): record["ERR"]
            for record in published
            if (record["train on"], record["method"]) == (way, method)
        }
        best, ours = lowest(theirs), lowest(grid)
        line = {"train on": way, "method": method}
        line["lowest published"] = told(theirs[best[0]], best) if best else None
        line["ours there"] = ", ".join(told(grid[cell]) if cell in grid else "-" for cell in best)
        line["our lowest"] = told(grid[ours[0]], ours[:1]) if picked is not None else None
        line["chosen on training rows"] = told(grid[ours[0]] if picked is None else picked)
        short.append(line)
    return short


def lowest(rates):
    """Cells of the lowest rate, all of them."""
    return [cell for cell in rates if rates[cell] == min(rates.values())]


def told(rate, cells=()):
    """With components and dimensions."""
    places = ", ".join(f"{g} x {q}" for g, q in cells)
    return f"{rate:.4f}" + (f" ({places})" if places else "")


def draw(result):
    """Error over dimensions, ours beside theirs."""
    from reproductions.plots.beside_published import class_errors

    return class_errors(
        result.rows(), methods=(METHODS[0], SHARED, *METHODS[1:]), title=result.reproduction.title
    )
