"""Figures 3.8 to 3.11: MFA against MCFA on training and test rows."""

from __future__ import annotations

import numpy as np
from joblib import Parallel, delayed
from sklearn.model_selection import train_test_split

from latently.datasets import load
from latently.metrics import error_rate
from latently.mixture import MCFA, MFA
from reproductions.framework import Reproduction
from reproductions.restarts import SAID, fit_restarts

NOISE_FLOOR = 0.01
GREY_LEVELS = 255


def urban_land_cover(seed):
    """Three covers; the official test rows are for training, as they are more."""
    rows = load("urban_land_cover")
    wanted = [list(rows.class_names).index(name) for name in ("building", "concrete", "grass")]
    fit, test = np.isin(rows.y_test, wanted), np.isin(rows.y_train, wanted)
    return rows.X_test[fit], rows.X_train[test], rows.y_test[fit], rows.y_train[test]


def coil(seed):
    """The first four objects, ten views of each for testing."""
    rows = load("coil20")
    first = rows.y < 4
    X, y = rows.X[first].astype(float), rows.y[first]
    return train_test_split(X, y, test_size=40, stratify=y, random_state=seed)


def leukaemia(n_test):
    def rows(seed):
        rows = load("leuk72_3k")
        return train_test_split(rows.X, rows.y, test_size=n_test, stratify=rows.y, random_state=seed)

    return rows


def usps(seed):
    """A hundred of each of four digits from the official training and test rows."""
    rows = load("usps")
    rng = np.random.default_rng(seed)

    def some(y):
        return np.concatenate(
            [rng.choice(np.flatnonzero(y == digit), 100, replace=False) for digit in (1, 2, 3, 4)]
        )

    fit, test = some(rows.y_train), some(rows.y_test)
    X, X_test = (GREY_LEVELS * part.astype(float) for part in (rows.X_train[fit], rows.X_test[test]))
    return X, X_test, rows.y_train[fit], rows.y_test[test]


# name: how to get the rows, classes, factors of MFA and MCFA (Table 5.1, first layers)
SETS = {
    "ULC-3": (urban_land_cover, 3, {"MFA": 90, "MCFA": 90}),
    "Coil-4-proc": (coil, 4, {"MFA": 16, "MCFA": 16}),
    "Leuk72_3k, 54/18": (leukaemia(18), 3, {"MFA": 16, "MCFA": 16}),
    "Leuk72_3k, 45/27": (leukaemia(27), 3, {"MFA": 16, "MCFA": 16}),
    "USPS1-4": (usps, 4, {"MFA": 16, "MCFA": 10}),
}
MEASURES = ("log-likelihood training", "log-likelihood test", "ERR training", "ERR test")
LEUKAEMIA = (
    ("MFA", -154.8025, -191.3275, 0.0667, 0.1111),
    ("MCFA", -117.4220, -120.6031, 0.0667, 0.0741),
)
PUBLISHED = {
    "ULC-3": (
        ("MFA", -434.0364, -737.4383, 0.3297, 0.2857),
        ("MCFA", -216.7516, -295.4271, 0.1429, 0.1818),
    ),
    "Coil-4-proc": (
        ("MFA", -3813.9950, -4504.3847, 0.0726, 0.1250),
        ("MCFA", -1521.7157, -1570.5914, 0.0605, 0.0500),
    ),
    "Leuk72_3k, 54/18": LEUKAEMIA,
    "Leuk72_3k, 45/27": LEUKAEMIA,
    "USPS1-4": (
        ("MFA", -1078.2457, -1140.2889, 0.2150, 0.2375),
        ("MCFA", -451.4169, -461.5310, 0.1100, 0.1725),
    ),
}


def measure(settings, seed):
    tasks = [(name, method) for name in settings["sets"] for method in ("MFA", "MCFA")]
    n_restarts = settings["restarts"]
    return Parallel(n_jobs=settings["n_jobs"])(delayed(record)(*task, n_restarts, seed) for task in tasks)


def record(name, method, n_restarts, seed):
    """Of the fit of highest likelihood on training rows, and what labels would have picked."""
    rows, K, factors = SETS[name]
    X, X_test, y, y_test = rows(seed)
    model = {"MFA": MFA, "MCFA": MCFA}[method](K, factors[method], noise_floor=NOISE_FLOOR)
    fits = fit_restarts(model, X, n_restarts, seed)
    errors = [error_rate(y, fitted.predict(X)) for fitted in fits]
    test_errors = [error_rate(y_test, fitted.predict(X_test)) for fitted in fits]
    return {
        "data set": name,
        "method": method,
        "factors": factors[method],
        "log-likelihood training": fits[0].score(X),
        "log-likelihood test": fits[0].score(X_test),
        "ERR training": errors[0],
        "ERR test": test_errors[0],
        "ERR training picked by label": min(errors),
        "ERR test picked by label": min(test_errors),
        "features": X.shape[1],
        "parameters": fits[0].n_parameters(),
        "converged": bool(fits[0].converged_),
    }


def draw(result):
    """Ours beside theirs; log-likelihoods per feature, so that all data sets fit one scale."""
    from reproductions.plots.beside_published import bars_beside_published

    density = [name for name in result.rows()[0] if name.startswith("log-likelihood")]
    rows = [row | {name: row[name] / row["features"] for name in density} for row in result.rows()]
    titles = {name: f"{name}, per row and feature" if name in density else name for name in MEASURES}
    return bars_beside_published(
        rows, measures=titles, groups="data set", method="method", title="MFA against MCFA"
    )


REPRODUCTION = Reproduction(
    id="003/figures-3.8-3.11",
    title="MFA against MCFA, log-likelihood per row and clustering error",
    source="""
        Document 003, section 3.2.1, Figures 3.8 to 3.11; numbers from the columns MFA and MCFA of Tables 5.2
        to 5.4, settings from Table 5.1
    """,
    data="""
        ULC-3: building, concrete and grass, 147 features, 273 official test rows for training and 77 official
        training rows for testing. Coil-4-proc: the first four objects (which four is not said), 1024 grey
        levels from 0 to 255, 248 and 40 views. Leuk72_3k: 39 features, 54 and 18 rows as the text has it, and
        45 and 27, of which the printed error rates are multiples. USPS1-4: 100 training and 100 test images
        of each of the digits 1 to 4, 256 grey levels from 0 to 255.
    """,
    protocol=f"""
        As many components as classes. {SAID} No noise variance may fall below {NOISE_FLOOR:.0%} of the
        feature's variance: where features hardly vary within a cluster, the likelihood grows without bound.
        ERR is that of the best one-to-one assignment. "Picked by label" is the lowest among the same fits:
        not a legitimate way to pick, but the source reports the best of several trials.
    """,
    keys=("data set", "method"),
    columns={
        "factors": "",
        "log-likelihood training": ".1f",
        "log-likelihood test": ".1f",
        "ERR training": ".4f",
        "ERR test": ".4f",
        "ERR training picked by label": ".4f",
        "ERR test picked by label": ".4f",
    },
    published=[
        {"data set": name, "method": method, **dict(zip(MEASURES, numbers, strict=True))}
        for name, lines in PUBLISHED.items()
        for method, *numbers in lines
    ],
    measure=measure,
    settings={"sets": tuple(SETS), "restarts": 20, "n_jobs": -1},
    quick_settings={"sets": ("Leuk72_3k, 54/18",), "restarts": 1, "n_jobs": 1},
    remarks=(
        """
        MCFA is an MFA whose components share loadings and noise, so with equal factors the maximum of the
        likelihood on training rows is higher for MFA, as ours is. The printed order, MCFA far above MFA on
        every training set, cannot be that of maximised likelihoods.
        """,
        """
        Features of Leuk72_3k have mean 0 and variance 1: one Gaussian with independent features has about -55
        per row, more than all printed values.
        """,
        """
        The printed values of MFA on the two sets of pictures are close to ours, so grey levels ran to 255;
        those of MCFA are far above what MCFA reaches in the same units.
        """,
        """
        On test rows MCFA is far above MFA where rows are fewest (Leuk72_3k), and about equal or below it
        elsewhere.
        """,
        """
        On USPS1-4 restarts of MCFA end within one unit of log-likelihood per row of each other, but with ERR
        between 0.03 and more than 0.25: picking by likelihood is then picking by chance.
        """,
        """
        With the default floor of 1e-6 training rows are fitted better still, and test rows of USPS1-4 fall
        below -1,000,000 per row under MFA.
        """,
        """
        Which objects make Coil-4-proc decides its error rates; ours are of other objects.
        """,
    ),
    figures={"": draw},
)
