"""Table 3.10: Wisconsin diagnostic breast cancer among noise."""

from __future__ import annotations

from latently.datasets import load
from reproductions.document_003._classification import (
    ALONE,
    FOUR_FOLDS,
    N_FOLDS,
    ONE_FOLD,
    SHARED,
    in_folds,
    reproduction,
)
from reproductions.told import span

GRID = {"components": (2, 3, 4, 5), "dimensions": (1, 10, 15, 20, 25, 30)}


def load_rows(seed, ways):
    rows = load("wdbc")
    return in_folds(rows.X, rows.y, ways, n_noise_features=30, seed=seed)


def about_mjfa(told):
    mjfa = ONE_FOLD, "2L-MJFA"
    one, alone = (told.by_key("ERR", ONE_FOLD, method, 1) for method in ("2L-MJFA", ALONE))
    best = min(one, key=one.get)
    shared = told.all("ERR", ONE_FOLD, SHARED, 1) + told.all("ERR", ONE_FOLD, SHARED, 2)
    return f"""
        The lowest printed rate of 2L-MJFA, 0.0404 with 5 components in 30 dimensions, is not reached. There
        ours is {told("ERR", *mjfa, 5, 30):.4f}: that model has 10 covariances of 30 factors,
        {10 * 30 * 31 // 2} numbers, for 114 rows. With 2 components there it is
        {told("ERR", *mjfa, 2, 30):.4f} with borrowed rows and {told("ERR", ONE_FOLD, ALONE, 2, 30):.4f}
        without. With one component, which is not in the printed table, it is {one[best]:.4f} in {best[3]}
        dimensions ({min(alone.values()):.4f} at the lowest if no rows are borrowed), and with a shared
        covariance {span(shared, ".2f")} in all dimensions.
    """


def about_lda(told):
    return f"""
        LDA-GMM has {span(told.all("ERR", ONE_FOLD, "LDA-GMM", GRID["components"]), ".2f")} on one fold: LDA
        without shrinkage, with 114 rows of 60 features, fits the training rows too closely. With shrinkage it
        has {told("ERR", ONE_FOLD, "LDA with shrinkage"):.4f}. On four folds LDA-GMM has
        {span(told.all("ERR", FOUR_FOLDS, "LDA-GMM", GRID["components"]), ".3f")}, near the printed
        {span(told.printed.all("ERR", ONE_FOLD, "LDA-GMM"), ".3f")}, which were probably trained on more rows
        than one fold.
    """


def about_one_dimension(told):
    return f"""
        mPPCA in one dimension has {span(told.all("ERR", ONE_FOLD, "mPPCA", ..., 1), ".2f")} where
        {span(told.printed.all("ERR", ONE_FOLD, "mPPCA", ..., 1), ".2f")} is printed. The rate of PCA-GMM in
        one dimension is printed as 0.0935 for 2, 3, 4 and 5 components alike; ours differ.
    """


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.10",
    title="2L-MJFA and other classifiers on WDBC with noise",
    source="Document 003, section 3.3.5, Table 3.10 and Fig. 3.15",
    data="""
        Wisconsin diagnostic breast cancer (WDBC), 569 rows of 2 classes (212, 357), 30 features and 30
        columns of standard normal noise, drawn anew from each seed.
    """,
    ways={ONE_FOLD: (N_FOLDS, None), FOUR_FOLDS: (N_FOLDS, ("PCA-GMM", "LDA-GMM"))},
    grid=GRID,
    more={"components": (1,)},
    tested=569,
    other_numbers={
        "0.0279": "the text of the source",
        "114": "Table 3.9, rows of a fold",
        "4650": "parameters",
    },
    quick={"components": (2,), "dimensions": (10,)},
    published="""
    1 2  0.1023±0.02  0.0703±0.02  0.2846±0.03  0.0935±0.03  0.0350±0.01
    1 3  0.1010±0.01  0.0686±0.02  0.2509±0.03  0.0935±0.03  0.0282±0.01
    1 4  0.1022±0.01  0.0703±0.03  0.2778±0.04  0.0935±0.03  0.0334±0.01
    1 5  0.1076±0.01  0.0705±0.02  0.2759±0.01  0.0935±0.03  0.0334±0.01
    10 2  0.0746±0.02  0.0742±0.01  0.3202±0.01  0.1502±0.12  -
    10 3  0.0707±0.02  0.0861±0.02  0.3019±0.02  0.1528±0.15  -
    10 4  0.0716±0.02  0.0817±0.02  0.2465±0.05  0.1571±0.12  -
    10 5  0.0441±0.03  0.0842±0.02  0.2065±0.03  0.1600±0.11  -
    15 2  0.0698±0.02  0.0707±0.01  0.3212±0.03  0.2182±0.15  -
    15 3  0.0689±0.02  0.0830±0.01  0.3041±0.03  0.2050±0.10  -
    15 4  0.0716±0.03  0.0922±0.02  0.3295±0.04  0.2114±0.11  -
    15 5  0.0737±0.03  0.0963±0.03  0.2917±0.03  0.2147±0.09  -
    20 2  0.0755±0.02  0.0703±0.02  0.3448±0.05  0.2406±0.12  -
    20 3  0.0755±0.03  0.0707±0.01  0.3348±0.06  0.2343±0.08  -
    20 4  0.0645±0.02  0.0914±0.04  0.3005±0.06  0.2536±0.08  -
    20 5  0.0641±0.01  0.0833±0.03  0.2956±0.02  0.2749±0.09  -
    25 2  0.0680±0.02  0.0707±0.01  0.3405±0.02  0.2481±0.11  -
    25 3  0.0597±0.03  0.0712±0.02  0.3199±0.07  0.2775±0.06  -
    25 4  0.0505±0.01  0.0776±0.02  0.3097±0.04  0.3189±0.07  -
    25 5  0.0479±0.04  0.0782±0.02  0.2917±0.02  0.3633±0.02  -
    30 2  0.0417±0.02  0.0707±0.01  0.3110±0.03  0.2938±0.07  -
    30 3  0.0483±0.01  0.0743±0.02  0.2935±0.02  0.3229±0.09  -
    30 4  0.0422±0.01  0.0738±0.02  0.3053±0.02  0.3628±0.02  -
    30 5  0.0404±0.04  0.0681±0.01  0.2987±0.02  0.3606±0.03  -
    """,
    missed="""
        2L-MJFA and mMCFA with many components and dimensions have more parameters than the fold has rows; one
        component of 2L-MJFA reaches the lowest print. LDA without shrinkage fits a fold too closely. For
        mMCFA in one dimension no reason is known.
    """,
    remarks=(
        about_mjfa,
        """
        The text calls 0.0404 the significantly lowest rate and says that the best of the competitors is
        just 0.0279, by LDA-GMM. That is lower; and the table has 0.0282.
        """,
        about_lda,
        about_one_dimension,
    ),
)
