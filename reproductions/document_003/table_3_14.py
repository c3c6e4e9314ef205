"""Table 3.14: breast tissue among noise."""

from __future__ import annotations

import numpy as np

from latently.datasets import load
from reproductions.document_003._classification import (
    ALONE,
    BY_BIC,
    FOUR_FOLDS,
    METHODS,
    MJFA,
    ONE_FOLD,
    SHARED,
    in_folds,
    reproduction,
)

NUMBERS = range(1, 6)  # of components


def load_rows(seed, ways):
    rows = load("breast_tissue")
    return in_folds(rows.X, rows.y, ways, n_noise_features=30, seed=seed)


def about_others(told):
    lag = {method: np.mean(told.above_print("ERR", FOUR_FOLDS, method)) for method in METHODS[1:4]}
    return f"""
        With four folds for training our rates of the competitors are lower than the printed ones, on
        average by {-lag["mMCFA"]:.2f} (mMCFA), {-lag["mPPCA"]:.2f} (mPPCA) and {-lag["PCA-GMM"]:.2f}
        (PCA-GMM), because classes borrow rows from one another. Without that, in an earlier run, they
        differed by 0.04 at most, so rows, noise and folds are probably those of the source.
    """


def about_mjfa(told):
    mjfa = FOUR_FOLDS, "2L-MJFA"
    theirs = told.printed.by_key("ERR", *mjfa)
    best = min(theirs, key=theirs.get)
    lowest = {method: min(told.all("ERR", FOUR_FOLDS, method, NUMBERS)) for method in MJFA}
    return f"""
        Those of 2L-MJFA are higher by {np.mean(told.above_print("ERR", *mjfa)):.3f} on average, and the
        lowest printed one, {theirs[best]:.4f}, is not reached: ours is {told("ERR", *best):.4f} there. Our
        lowest are {lowest["2L-MJFA"]:.4f}, with a shared covariance {lowest[SHARED]:.4f}, and without
        borrowed rows {lowest[ALONE]:.4f}. With one fold our lowest is
        {min(told.all("ERR", ONE_FOLD, "2L-MJFA", NUMBERS)):.4f}. Algorithm 2 of the source, as printed,
        takes posteriors of test rows in training. That does not explain its rates: with the test rows as
        unlabelled rows of training our rate with 2 components in 4 dimensions fell, in an earlier run, from
        0.331 to 0.274, and from 0.349 to 0.330 if no rows are borrowed.
    """


def about_choice(told):
    chosen = told("ERR", FOUR_FOLDS, ALONE, BY_BIC)
    lda, logistic = (told("ERR", FOUR_FOLDS, name) for name in ("LDA with shrinkage", "logistic regression"))
    return f"""
        Chosen on training rows, 2L-MJFA without borrowed rows has {chosen:.3f}, LDA with shrinkage
        {lda:.3f} and logistic regression {logistic:.3f}: 30 of the 39 features are noise.
    """


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.14",
    title="2L-MJFA and other classifiers on breast tissue with noise",
    source="Document 003, section 3.3.5, Table 3.14 and Fig. 3.19",
    data="""
        Breast tissue (BT), 106 rows of 6 classes (14 to 22 each), 9 features and 30 columns of standard
        normal noise, drawn anew from each seed.
    """,
    ways={FOUR_FOLDS: (5, None), ONE_FOLD: (5, (METHODS[0],))},
    grid={"components": (2, 3, 4, 5), "dimensions": (2, 4, 6, 9)},
    more={"components": (1,)},
    about_ways="Compared are four folds, which Table 3.9 has: 81 rows for training and 24 for testing.",
    tested=106,
    other_numbers=dict.fromkeys(
        ("0.331", "0.274", "0.349", "0.330"), "an earlier run, with borrowed test rows"
    ),
    quick={"components": (2,), "dimensions": (2,)},
    published="""
    2 2  0.2468±0.05 0.3902±0.07 0.6692±0.03 0.6517±0.14 0.5576±0.11
    4 2  0.1897±0.01 0.4257±0.05 0.7261±0.03 0.6255±0.12 0.5350±0.09
    6 2  0.1970±0.02 0.4533±0.05 0.6510±0.09 0.6159±0.13 -
    9 2  0.2073±0.04 0.4902±0.06 0.6418±0.02 0.5899±0.09 -
    2 3  0.2540±0.02 0.3900±0.06 0.6892±0.02 0.6032±0.15 0.5479±0.08
    4 3  0.2359±0.02 0.4164±0.02 0.6713±0.03 0.6076±0.10 0.5053±0.09
    6 3  0.2371±0.01 0.4615±0.04 0.6442±0.06 0.6088±0.08 -
    9 3  0.2085±0.04 0.5457±0.04 0.6088±0.07 0.6573±0.06 -
    2 4  0.2530±0.05 0.3616±0.07 0.6986±0.05 0.6043±0.15 0.5279±0.09
    4 4  0.2528±0.05 0.4164±0.02 0.6345±0.04 0.6182±0.09 0.5550±0.06
    6 4  0.2560±0.03 0.4995±0.02 0.6219±0.06 0.6585±0.06 -
    9 4  0.2254±0.02 0.5553±0.05 0.6618±0.04 0.6964±0.03 -
    2 5  0.2528±0.03 0.3892±0.06 0.6870±0.03 0.6149±0.12 0.5252±0.08
    4 5  0.2454±0.03 0.4459±0.04 0.6310±0.03 0.5887±0.09 0.4961±0.08
    6 5  0.2454±0.01 0.5362±0.04 0.6406±0.02 0.6973±0.07 -
    9 5  0.2169±0.04 0.5553±0.05 0.6406±0.02 0.6677±0.05 -
    """,
    missed="""
        2L-MJFA only. Test rows as unlabelled rows of training, which the printed algorithm has, explain a
        part of the difference; the rest is not explained.
    """,
    remarks=(
        """
        The source says that one fold is for training, but Table 3.9 has 81 rows for training and 24 for
        testing, about four folds and one. One fold has 2 or 3 rows of the smallest class, and no mixture of
        three components can be fitted to two.
        """,
        about_others,
        about_mjfa,
        about_choice,
    ),
)
