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
    missed="""
        PCA-GMM and mPPCA go by variance, of which our noise has as much as the features; with weaker noise,
        whose strength the source does not tell, they are on both sides of the print.
    """,
    remarks=(
        """
        The text speaks of 403 rows for training and 206 for testing, but there are 403 in all. All printed
        rates are multiples of 1/145 but 0.1214, which is printed twice; so the official 145 test rows were
        used.
        """,
        """
        From 3 dimensions on 2L-MJFA is at or below the printed rates, but for one component in 15 and 20
        dimensions; with two components it errs in 0.0124 of the rows in 3 dimensions and in 0.0138 in 5,
        where 0.0414 is printed, the lowest of the table. In one dimension ours are above the print. Borrowed
        rows matter where there are many factors: without them two components in 20 dimensions have 0.23.
        """,
        """
        PCA-GMM and mPPCA go by variance, and here noise has as much of it as the features: all our rates
        are above 0.45. With noise of standard deviation 0.1 and features as they are mPPCA has 0.16 to 0.24
        from 3 dimensions on and PCA-GMM 0.05 to 0.19 from 5 on, on both sides of what is printed: the noise
        of the source was weaker than its features; it does not say how strong.
        """,
        """
        LDA-GMM has rates of 0.03 to 0.06, where 0.37 and 0.40 are printed. The text concludes that LDA
        gives no good subspace for test rows; we find the opposite.
        """,
        """
        BIC judges the density and not the classes: for 2L-MJFA it chooses one dimension in all five draws,
        with 0.1862, and 0.1600 with a shared covariance; with weak noise it chooses three, with 0.0290.
        Chosen on training rows, LDA-GMM has the lowest rate with strong noise, 0.0538.
        """,
    ),
)
