"""Chapter 5: MFM against PPCA, MPPCA and a linear SVM, over numbers of components L and of factors d.

The sonar and face images of the source cannot be had. Each table takes other rows of two classes, several
pairs of them if there are more, and shows means over pairs and folds.
"""

from __future__ import annotations

import warnings

import numpy as np
from joblib import Parallel, delayed
from scipy.linalg import block_diag, null_space
from scipy.stats import ortho_group
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sklearn.svm import SVC

from latently.metrics import purity, signal_to_error_ratio
from latently.mixture import MPPCA
from latently.supervised import MFMClassifier
from reproductions.framework import beside

NOISE_FLOOR = 0.01
BETTER = {
    **dict.fromkeys(("R_dim", "R_clas by x", "R_clas by y", "R_clus"), "lower"),
    **dict.fromkeys(("P_cc by x", "P_cc by y", "SER"), "higher"),
}
TOL = 1e-5
SVM = "linear SVM"
KEYS = ("method", "starts", "L", "d")
ONLY, BY_KMEANS, BY_CHANCE = "", "k-means", "random"  # one component needs one start only
WORST = "P_cc by x, worst pair"
FITTED_DENSITY = "ln p(x), fitted rows"
RISKS = ("R_dim", "R_clas by x", "R_clas by y", "R_clus")
PUBLISHED_MFM = (*RISKS, "P_cc by x", "P_cc by y", "SER")
PUBLISHED_PCA = ("R_dim", "R_clus", "SER")
COLUMNS = {
    "R_dim": ".5f",
    "R_dim, turned": ".5f",
    "R_clas by x": ".2e",
    "R_clas by y": ".2e",
    "R_clus": ".1e",
    "P_cc by x": ".3f",
    "P_cc by y": ".3f",
    WORST: ".3f",
    "SER": ".2f",
    "SER, least squares": ".2f",
    "ln p(x)": ".1f",
    FITTED_DENSITY: ".1f",
    "purity": ".3f",
    "converged": ".2f",
}
PROTOCOL = f"""
    Twofold cross-validation with as many of each class in both halves, every measure on the half that was not
    fitted.

    Of several starts the likeliest is kept (the worse half is given up after four steps, and so on). L > 1
    begins from groups of rows. "{BY_CHANCE}", which is closer to the source, are groups made by chance.
    "{BY_KMEANS}" are for MPPCA groups made by k-means of the rows; for MFM, of five starts three are made by
    k-means of rows about the means of their classes, one by k-means of the rows in d principal dimensions,
    and one by chance. So MFM and MPPCA mostly begin from different groups. PPCA is MPPCA with L = 1.

    No noise variance may fall below {NOISE_FLOOR:.0%} of the mean variance of the features; a fit ends when
    the log-likelihood gains less than {TOL:g} of its size. The SVM has C = 1.

    Measures are those of section 5.2: R_dim is the expected squared error of the factors, per factor; R_clas
    the expected probability of a wrong label, P_cc the share of right ones, by x or by the estimated factors
    y; R_clus the expected probability of a wrong component; SER, in dB, is the mean of |x| / |x_hat - x| with
    x_hat made from the averaged factors by the most probable component.

    Beyond the source: "R_dim, turned" is R_dim after the factors of each component were turned at random
    about w, which changes no density; "SER, least squares" is that of the row projected on its component; ln
    p(x) is the mean log density of rows; "purity" is the share of rows in the class that has most rows of
    their component.

    Means are taken over folds and pairs, "{WORST}" is the least over pairs.
"""
ABOUT_LEVELS = """
    Published numbers belong to other data and stand beside both kinds of starts. Levels cannot be compared,
    only patterns.
"""
ABOUT_RISKS = """
    "The risk by y is smaller" (source: because factors generalise better): seen in every row, but for another
    reason. The risk by y takes the estimated factors for exact. With L = 1 it is the smaller of
    Phi(w'y + b) and its complement, that by x the same of (w'y + b) / s with s >= 1, so it is never smaller.
"""
ABOUT_SHARES = """
    Why starts matter: the label hangs on the factors alone, and these are N(0, I) in every component, so all
    components have the same shares of the classes. Where a component has rows of one class, a label costs the
    logarithm of that share whether w parts the classes or is 0, so the likelihood is next to indifferent to
    w, and fits that begin at w = 0 stay near it. That is why most groups for MFM are made about the means of
    classes.
"""


def published(mfm, pca, svm):
    """Records of lines "L d" and the numbers of the source's two tables; that of the SVM is from its text."""
    records = [{"method": SVM, "starts": ONLY, "L": None, "d": None, "P_cc by x": svm}]
    for text, names in ((mfm, PUBLISHED_MFM), (pca, PUBLISHED_PCA)):
        for line in text.strip().splitlines():
            L, d, *numbers = line.split()
            method = "MFM" if names is PUBLISHED_MFM else pca_name(int(L))
            measures = dict(zip(names, map(float, numbers), strict=True))
            for starts in starts_of(int(L)):
                records.append({"method": method, "starts": starts, "L": int(L), "d": int(d)} | measures)
    return records


def pca_name(L):
    return "PPCA" if L == 1 else "MPPCA"


def starts_of(L):
    return (ONLY,) if L == 1 else (BY_KMEANS, BY_CHANCE)


def compare(pairs, *, components, factors, starts, n_jobs, seed):
    """Records over the grid; `pairs` are rows and classes (0 and 1)."""
    grid = entries(components, factors)
    tasks = [(*entry, X, y) for entry in grid for X, y in pairs]
    found = Parallel(n_jobs=n_jobs)(delayed(cross_validated)(*task, starts, seed) for task in tasks)
    records = []
    for i, entry in enumerate(grid):
        of_pairs = found[i * len(pairs) : (i + 1) * len(pairs)]
        record = dict(zip(KEYS, entry, strict=True)) | mean_of(of_pairs)
        if len(pairs) > 1 and "P_cc by x" in record:
            record[WORST] = min(one["P_cc by x"] for one in of_pairs)
        records.append(record)
    return records


def entries(components, factors):
    """Method, kind of starts, L and d of every record."""
    models = [
        (method, kind, L, d)
        for d in factors
        for L in components
        for kind in starts_of(L)
        for method in (pca_name(L), "MFM")
    ]
    return [*models, (SVM, ONLY, None, None)]


def mean_of(measures):
    return {name: float(np.mean([one[name] for one in measures])) for name in measures[0]}


def folds(X, y, seed):
    return list(StratifiedKFold(2, shuffle=True, random_state=seed).split(X, y))


def cross_validated(method, kind, L, d, X, y, n_starts, seed):
    """The measures of one entry of the grid on one pair."""
    found = []
    for fit, test in folds(X, y, seed):
        if method == SVM:
            found.append({"P_cc by x": SVC(kernel="linear").fit(X[fit], y[fit]).score(X[test], y[test])})
        else:
            model = fitted(method, kind, L, d, X[fit], y[fit], n_starts, seed)
            known = {FITTED_DENSITY: np.mean(model.score_samples(X[fit]))}
            found.append(measures(model, X[test], y[test], seed) | known)
    return mean_of(found)


def fitted(method, kind, L, d, X, y, n_starts, seed, weight=1.0):
    """An MFM; PPCA and MPPCA are put as one whose label hangs on nothing, so that all are measured alike."""
    settings = {"n_init": n_starts, "noise_floor": NOISE_FLOOR, "tol": TOL, "random_state": seed}
    settings["init"] = "random" if kind == BY_CHANCE else "kmeans"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a column tells
        if method == "MFM":
            return MFMClassifier(L, d, discriminative_weight=weight, **settings).fit(X, y)
        model = MPPCA(L, d, **settings).fit(X)
    blind = MFMClassifier.from_parameters(
        weights=model.weights_,
        means=model.means_,
        loadings=model.loadings_,
        noise_variance=model.noise_variance_,
        coef=np.zeros(d),
        intercept=0.0,
    )
    blind.converged_ = model.converged_
    return blind


def measures(model, X, y, seed):
    """Those of section 5.2, and a few more; nothing about labels where the label hangs on nothing."""
    risks, d = model.risks(X), model.n_factors
    found = {
        "R_dim": np.mean(risks.dimension) / d,
        "R_dim, turned": np.mean(turned(model, seed).risks(X).dimension) / d,
        "R_clus": np.mean(risks.clustering),
        "SER": signal_to_error_ratio(X, model.reconstruct(X)),
        "SER, least squares": signal_to_error_ratio(X, model.reconstruct(X, least_squares=True)),
        "ln p(x)": np.mean(model.score_samples(X)),
        "purity": purity(y, model.predict_component(X)),
        "converged": model.converged_,
    }
    if np.any(model.coef_):
        found |= {
            "R_clas by x": np.mean(risks.classification),
            "R_clas by y": np.mean(risks.latent_classification),
            "P_cc by x": np.mean(model.predict(X) == y),
            "P_cc by y": np.mean(model.predict_from_factors(X) == y),
        }
    return found


def turned(model, seed):
    """The same density of rows and labels, with the factors of each component turned at random about w."""
    rng, d = np.random.default_rng(seed), model.n_factors
    across = null_space(model.coef_)  # (d, d - 1), or (d, d) where w is 0
    frame = np.hstack([axis(model.coef_[0])[:, None], across]) if np.any(model.coef_) else across
    loadings = []
    for G in model.loadings_:
        turn = ortho_group.rvs(across.shape[1], random_state=rng)
        loadings.append(G @ frame @ block_diag(np.eye(d - len(turn)), turn) @ frame.T)
    return MFMClassifier.from_parameters(
        weights=model.weights_,
        means=model.means_,
        loadings=loadings,
        noise_variance=model.noise_variance_,
        coef=model.coef_,
        intercept=model.intercept_,
        classes=model.classes_,
    )


def axis(w):
    return w / np.linalg.norm(w)


def summary(rows):
    """What the source's claims are about."""
    names = ("P_cc by x", WORST, "R_clas by x", "SER", "ln p(x)", FITTED_DENSITY, "purity")
    columns = [column for name in names for column in (name, beside(name))]
    there = [name for name in columns if any(row.get(name) is not None for row in rows)]
    return [{name: row.get(name) for name in (*KEYS, *there)} for row in rows]


# -- pictures -----------------------------------------------------------------------------------------


def draw_planes(result, pair, *, title, class_names):
    """Figs. 5.11 to 5.18 and 5.29 to 5.36: factors of rows that were not fitted, three of them."""
    from reproductions.plots.planes import latent_planes

    X, y = pair
    fit, test = folds(X, y, result.seed)[0]
    panels = {}
    for of_pca in (True, False):
        for L in result.settings["components"]:
            for kind in starts_of(L):
                method = pca_name(L) if of_pca else "MFM"
                model = fitted(method, kind, L, 3, X[fit], y[fit], result.settings["starts"], result.seed)
                name = f"{method}, L = {L}" + (f", {kind}" if kind else "")
                panels[name] = plane(model, X[fit], y[fit], X[test])
    return latent_planes(panels, y[test], class_names=class_names, title=title, n_lines=2)


def plane(model, X_fit, y_fit, X):
    """Factors of X along w and along the direction across w in which they vary most, and where labels change.

    Where the label hangs on nothing, w is that of a linear SVM on the factors of the fitted rows.
    """
    Y_fit, Y = model.transform(X_fit), model.transform(X)
    w, b = model.coef_[0], model.intercept_[0]
    if not np.any(w):
        svm = SVC(kernel="linear").fit(Y_fit, y_fit)
        w, b = svm.coef_[0], svm.intercept_[0]
    across = null_space(w[None, :])
    spread = np.linalg.svd((Y_fit - Y_fit.mean(axis=0)) @ across)[2][0]
    return Y @ np.column_stack([axis(w), across @ spread]), -b / np.linalg.norm(w)


def draw_reconstructions(result, pair, image_shape, *, title):
    """Figs. 5.3 to 5.10 and 5.21 to 5.28: images that were not fitted, and what the factors keep of them."""
    from reproductions.plots.planes import image_lines

    X, y = pair
    components, factors = result.settings["components"], result.settings["factors"]
    fit, test = folds(X, y, result.seed)[0]
    own = [test[y[test] == label] for label in (0, 1)]
    shown = X[np.concatenate([rows[np.linspace(0, len(rows) - 1, 5).astype(int)] for rows in own])]
    models = [("MFM", 1, d) for d in factors]
    models += [(method, L, factors[0]) for method in ("MFM", "MPPCA") for L in components if L > 1]
    lines = {"original": shown}
    for method, L, d in models:
        model = fitted(method, starts_of(L)[0], L, d, X[fit], y[fit], result.settings["starts"], result.seed)
        lines[f"{method}, L = {L}, d = {d}"] = model.reconstruct(shown)
    return image_lines(lines, image_shape, title=title)


def beside_mfm(told, measure, starts=...):
    """Values of MPPCA, each with that of MFM of the same size and starts."""
    ours = told.by_key(measure, "MPPCA", starts)
    return [(value, told(measure, "MFM", *key[1:])) for key, value in ours.items()]


def higher(told, measure, starts=...):
    """In how many rows MPPCA has more than MFM, as "3 of 6 rows"."""
    both = beside_mfm(told, measure, starts)
    return f"{sum(mppca > mfm for mppca, mfm in both)} of {len(both)} rows"


def about_risk_of_component(printed):
    def remark(told):
        both = beside_mfm(told, "R_clus")
        smaller = sum(mppca < mfm for mppca, mfm in both)
        return f"""
            "R_clus is smaller for MPPCA than for MFM": in {smaller} of {len(both)} rows here, and in
            {printed} of 6 in print.
        """

    return remark


def largest_turn(told, *key):
    """Of MFM with several components, the row where turned factors have the most other R_dim: a text."""
    turned = told.by_key("R_dim, turned", "MFM", *key)
    before = told.by_key("R_dim", "MFM", *key)
    row = max(turned, key=lambda one: abs(turned[one] / before[one] - 1))
    method, starts, L, d = row
    return f"""
        R_dim with L > 1 is not a property of the density: turned about w, it goes from {before[row]:.5f} to
        {turned[row]:.5f} ({method}, L = {L}, d = {d}, {starts}) while no probability changes. Where R_clus is
        negligible the turn is too.
    """
