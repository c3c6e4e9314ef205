"""Table 3.8: user knowledge among noise."""

from __future__ import annotations

from latently.datasets import load, with_noise_features
from reproductions.document_003._classification import METHODS, OFFICIAL, UNSCALED, reproduction
from reproductions.document_003._protocol import seed_of

WEAKLY = OFFICIAL + UNSCALED
DRAWS = 5


WEAK = 0.1  # standard deviation of the noise; features lie between 0 and 1


def load_rows(seed, ways):
    rows = load("user_knowledge")
    splits = {}
    for way in ways:
        splits[way] = []
        for draw in range(DRAWS):
            X = with_noise_features(rows.X, 35, distribution="normal", random_state=seed_of(seed, draw))
            if way == WEAKLY:
                X[:, rows.X.shape[1] :] *= WEAK
            n = len(rows.X_train)
            splits[way].append((X[:n], rows.y[:n], X[n:], rows.y[n:]))
    return splits


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.8",
    title="2L-MJFA and other classifiers on user knowledge with noise",
    source="Document 003, section 3.3.5, Table 3.8 and Fig. 3.14",
    data="""
        User knowledge, 5 features and 35 columns of standard normal noise, drawn anew from each seed; 4
        levels; 258 rows for training and 145 for testing, the official parts.
    """,
    ways={OFFICIAL: (DRAWS, None), WEAKLY: (DRAWS, METHODS)},
    grid={"components": (1, 2), "dimensions": (1, 3, 5, 10, 15, 20)},
    about_ways=f"""
        Noise is drawn anew for each test. "{WEAKLY}": noise of standard deviation {WEAK}, and features
        as they are.
    """,
    tested=145,
    quick={"components": (2,), "dimensions": (3,)},
    published="""
    1 ?  0.1214 0.2276 0.3172 0.6621 0.4000
    3 ?  0.0689 0.0552 0.2897 0.2483 0.3724
    5 ?  0.0414 0.0896 0.2690 0.2345 -
    10 ?  0.0620 0.0758 0.1931 0.1214 -
    15 ?  0.0620 0.1517 0.1586 0.1931 -
    20 ?  0.0620 0.2827 0.0897 0.2966 -
    """,
    remarks=(
        """
        The text speaks of 403 rows for training and 206 for testing, but there are 403 in all. All printed
        rates are multiples of 1/145 but 0.1214, which is printed twice; so the official 145 test rows were
        used.
        """,
        """
        2L-MJFA comes to the lowest printed rate, 0.0414, with two components in 3 dimensions. In 5
        dimensions, where it is printed, ours are 0.0483 to 0.0621, one to three rows more. These are of one
        draw of the noise and of an earlier protocol, without borrowed rows; by the shared protocol, means
        over five draws are 0.0124 in 3 dimensions and 0.0138 in 5. With a shared covariance one component in
        3 dimensions has 0.0069 below, which is one row and luck: the mean over five draws is 0.0207.
        """,
        """
        In 10 to 20 dimensions the printed rate of 2L-MJFA stays at 0.0620; ours grows to 0.28 in 20
        dimensions, because free covariances of so many factors fit the noise, and with a shared covariance
        to no more than 0.08 in any of them.
        """,
        """
        PCA-GMM and mPPCA go by variance, and here noise has as much of it as the features: our rates are
        above 0.5. The printed ones are far lower, so the noise of the source was weaker than its features;
        it does not say how strong.
        """,
        """
        LDA-GMM has rates of 0.03 to 0.08, where 0.37 and 0.40 are printed. The text concludes that LDA
        gives no good subspace for test rows; we find the opposite.
        """,
        """
        BIC judges the density and not the classes: for 2L-MJFA it chooses one dimension, with 0.1448, and
        0.1379 with a shared covariance. Chosen on training rows, LDA-GMM has the lowest rate, 0.0345.
        """,
    ),
)
