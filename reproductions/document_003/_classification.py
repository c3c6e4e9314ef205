"""Section 3.3.5: 2L-MJFA, its competitors and usual classifiers over components and dimensions."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product

import numpy as np
from joblib import Parallel, delayed, hash
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import RepeatedStratifiedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from latently.datasets import with_noise_features
from latently.mixture import MCFA, MPPCA, GaussianMixture
from latently.supervised import MJFAClassifier, PerClass
from reproductions.document_003 import _protocol
from reproductions.document_003._clustering import rows_for
from reproductions.document_003._protocol import OPTIONS, over_draws, seed_of
from reproductions.framework import Reproduction
from reproductions.kept import kept
from reproductions.source import LIBRARY

METHODS = ("2L-MJFA", "mMCFA", "mPPCA", "PCA-GMM", "LDA-GMM")  # of the source
SHARED, ALONE = "2L-MJFA, shared covariance", "2L-MJFA, no borrowed rows"
MJFA = (METHODS[0], SHARED, ALONE)
USUAL = {
    "LDA with shrinkage": LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "logistic regression": LogisticRegression(max_iter=1000),
    "support vectors (SVC)": SVC(),
    "most frequent class": DummyClassifier(),
}
OFFICIAL, ONE_FOLD, FOUR_FOLDS, TWO_THIRDS = "official rows", "one fold", "four folds", "two thirds"
UNSCALED = ", weak noise, unscaled"
N_FOLDS = 5
N_COMPONENTS = 2  # where the source does not say how many: the fewest that it takes elsewhere
BY_BIC = "by BIC"
STARTS = 8
KEYS = ("train on", "method", "components", "dimensions")
COLUMNS = {"ERR": ".4f", "ERR, spread": ".4f", "draws": "", "chosen": "", "not fitted": ""}
ABOUT_METHODS = f"""
    To save time, a fit has {STARTS} starts; by default there are up to some 80.

    "Components" are those of each class; components and dimensions without a printed number are additions of
    ours. Variants, which were not published: in "{SHARED}" all components have one covariance of the factors,
    and in "{ALONE}" the model is that of the source, with the weak prior; both are fitted with at most
    {N_COMPONENTS} components. LDA-GMM has at most one dimension less than there are classes.

    ERR is the share of test rows that are assigned to a wrong class, the mean over the tests; spread is their
    standard deviation.

    "Chosen" are the components and dimensions of lowest BIC of training rows and their classes, without a
    look at test rows; BIC of PCA-GMM is completed by isotropic noise in the dimensions left out, and LDA-GMM
    takes as many dimensions as it can. The short table has components x dimensions in brackets; "our lowest"
    is picked by its test rows, as the source picks, so it is too good to be expected of new rows.

    The last four methods are scikit-learn's with its defaults, but for the automatic shrinkage of LDA and
    more iterations of logistic regression.
"""
IN_FOLDS = """
    Five folds with equal shares of classes; columns of noise, if any, are drawn anew for each. "One fold":
    a fold is for training and the other four for testing, as the source says; "four folds": the other way
    round.
"""
UNKNOWN = f"""
    The source does not say how many components it took; {N_COMPONENTS} of ours are compared with the print.
"""


def reproduction(load, *, ways, grid, quick, published, tested, more=None, about_ways="", **about):
    """A table of section 3.3.5.

    Parameters
    ----------
    load : callable
        `load(seed, ways)` gives splits by what is trained on.
    ways : mapping of str to tuple
        By what is trained on: how many tests, and of which methods (None: all). The first is compared with
        the print.
    grid : dict of str to tuple
        "components" and "dimensions" of the source.
    quick : dict
        The grid of a quick run.
    published : str
        As `published_grid` takes it.
    tested : int
        Test rows behind a printed rate, all tests together.
    more : dict of str to tuple, optional
        Components and dimensions of 2L-MJFA alone that the source does not have.
    """
    unknown = "?" in published
    counted_way = next(iter(ways))

    def measure(settings, seed):
        splits = load(seed, tuple(settings["ways"]))
        return compare(splits, seed=seed, more=more or {}, **settings)

    def counted(record):
        known = not unknown or record["components"] == N_COMPONENTS
        return known and record["train on"] == counted_way

    printed = published_grid(published, tuple(ways), grid["components"])
    folded = not any(way.startswith(OFFICIAL) for way in ways)
    parts = (IN_FOLDS if folded else "", UNKNOWN if unknown else "", about_ways, ABOUT_METHODS)
    return Reproduction(
        protocol=_protocol.PROTOCOL + "".join(parts),
        keys=KEYS,
        columns=COLUMNS,
        published=printed,
        measure=measure,
        settings={"ways": ways, **grid, "n_jobs": -1},
        quick_settings={"ways": {counted_way: (1, None)}, "n_init": 2, "n_jobs": 1, **quick},
        summary=partial(summary, published=printed),
        figures={"": draw},
        better={"ERR": "lower"},
        counted=counted,
        tested=lambda record, measure: tested,
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
                    numbers = zip(("ERR", "ERR, spread"), map(float, cell.split("±")), strict=False)
                    records.append(key | {"method": method} | dict(numbers))
    return records


def in_folds(X, y, ways, *, n_noise_features=0, seed):
    """Splits (X, y, X_test, y_test) by what is trained on, with noise drawn anew for each."""
    folds = list(StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed).split(X, y))
    pairs = {ONE_FOLD: [(one, four) for four, one in folds], FOUR_FOLDS: folds}
    if TWO_THIRDS in ways:
        pairs[TWO_THIRDS] = list(
            RepeatedStratifiedKFold(n_splits=3, n_repeats=2, random_state=seed).split(X, y)
        )
    splits = {}
    for way in ways:
        splits[way] = []
        for draw, (fit, test) in enumerate(pairs[way]):
            rows = with_noise_features(
                X, n_noise_features, distribution="normal", random_state=seed_of(seed, draw)
            )
            splits[way].append((rows[fit], y[fit], rows[test], y[test]))
    return splits


def compare(splits, *, ways, components, dimensions, n_jobs, seed, more=None, n_init=STARTS):
    """Records of all methods over the grid, of what BIC chooses, and of the usual classifiers."""
    tasks, cells = [], {}
    for way, (n_tests, methods) in ways.items():
        parts = splits[way][:n_tests]
        if not way.endswith(UNSCALED):
            parts = [standardise(*split) for split in parts]
        cells[way] = cells_of(methods, components, dimensions, more or {}, len(np.unique(parts[0][1])))
        tasks += [(way, cell, draw, split) for cell in cells[way] for draw, split in enumerate(parts)]
    outcomes = Parallel(n_jobs=n_jobs)(
        delayed(kept_outcome)(cell, split, seed_of(seed, draw), n_init) for _, cell, draw, split in tasks
    )
    found = {}
    for (way, cell, _, _), told in zip(tasks, outcomes, strict=True):
        found.setdefault((way, cell), []).append(told)
    records = []
    for way in ways:
        for method in dict.fromkeys(cell[0] for cell in cells[way]):
            own = {cell: found[way, cell] for cell in cells[way] if cell[0] == method}
            records += [{"train on": way} | record for record in records_of(method, own)]
    return records


def cells_of(methods, components, dimensions, more, n_classes):
    """(method, components, dimensions) of all that is fitted to one split."""
    cells = []
    for method in (*MJFA, *METHODS[1:]):
        if methods is not None and method not in methods:
            continue
        own = list(product(dimensions, components))
        if method in MJFA:
            variant = method != METHODS[0]
            numbers = [g for g in components if g <= N_COMPONENTS or not variant]
            own = sorted(
                product((*dimensions, *more.get("dimensions", ())), (*numbers, *more.get("components", ())))
            )
        cells += [(method, g, q) for q, g in own if method != "LDA-GMM" or q < n_classes]
    return cells + ([(name, None, None) for name in USUAL] if methods is None else [])


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
    return over_draws([{"ERR": part["ERR"]} for part in parts], ())


def kept_outcome(cell, split, seed, n_init):
    """`outcome`, or that of an earlier run."""
    key = [hash(split), *cell, seed, n_init, OPTIONS]
    return kept("class", key, lambda: outcome(*cell, split, seed, n_init), LIBRARY)


def outcome(method, g, q, split, seed, n_init=STARTS):
    """ERR on the test rows and BIC of the training rows, or what is in the way of a fit."""
    X, y, X_test, y_test = split
    if method in USUAL:
        return {"ERR": 1 - USUAL[method].fit(X, y).score(X_test, y_test)}
    fewest = int(np.unique(y, return_counts=True)[1].min())
    if method not in MJFA and fewest < g:
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
    # predicted classes do not depend on the temperature, which takes fits of its own
    options, sure = {**OPTIONS, "n_init": n_init, "random_state": seed}, {"temperature": None}
    before = {"PCA-GMM": PCA(q), "LDA-GMM": LinearDiscriminantAnalysis(n_components=q)}
    models = {
        "2L-MJFA": MJFAClassifier(g, q, **options, **sure),
        SHARED: MJFAClassifier(g, q, shared_covariance=True, **options, **sure),
        ALONE: MJFAClassifier(g, q, shrinkage=None, **options, **sure),
        "mMCFA": PerClass(MCFA(g, q, **options), **sure),
        "mPPCA": PerClass(MPPCA(g, q, **options), **sure),
        "PCA-GMM": PerClass(GaussianMixture(g, **options), **sure),
        "LDA-GMM": PerClass(GaussianMixture(g, **options), **sure),
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

    return class_errors(result.rows(), methods=(*MJFA, *METHODS[1:]), title=result.reproduction.title)
