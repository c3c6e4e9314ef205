"""Table 3.12: urban land cover."""

from __future__ import annotations

import numpy as np

from latently.datasets import load
from reproductions.document_003._classification import ALONE, BY_BIC, OFFICIAL, SHARED, reproduction
from reproductions.told import listed

STARTS = 5


def load_rows(seed, ways):
    rows = load("urban_land_cover")
    wanted = [list(rows.class_names).index(name) for name in ("building", "concrete", "grass")]
    fit, test = np.isin(rows.y_train, wanted), np.isin(rows.y_test, wanted)
    split = (rows.X_train[fit], rows.y_train[fit], rows.X_test[test], rows.y_test[test])
    return {OFFICIAL: [split] * STARTS}


def about_mjfa(told):
    mjfa = OFFICIAL, "2L-MJFA"
    shared, alone = (told("ERR", OFFICIAL, *key, 5) for key in ((SHARED, 2), (ALONE, 1)))
    return f"""
        The lowest printed rate of 2L-MJFA, 0.1099 with five components in 15 dimensions, is not reached
        there: ours is {told("ERR", *mjfa, 5, 15):.4f}, with a spread of
        {told("ERR, spread", *mjfa, 5, 15):.3f} between starts. There are 77 rows to learn from, and several
        components of free covariances are worse than one: one component has {told("ERR", *mjfa, 1, 10):.4f}
        in 10 dimensions, and {told("ERR", *mjfa, 1, 5):.4f} in 5, which we added after a first run
        ({alone:.4f} if no rows are borrowed); two with a shared covariance have {shared:.4f} there. One
        component is not in the printed table.
    """


def about_print(told):
    two = [told("ERR", OFFICIAL, method, 2, 2) for method in ("2L-MJFA", "mPPCA")]
    return f"""
        With two components in two dimensions 2L-MJFA and mPPCA have {listed(two, ".4f")}, where more than
        0.5 is printed; two dimensions are enough for the three classes, and the printed fits must have
        failed. From 15 dimensions on mPPCA, and from 20 on mMCFA and PCA-GMM, are far below the print.
    """


def about_lda(told):
    return f"""
        There are fewer rows than features, so that LDA without shrinkage can separate any training rows:
        {min(told.all("ERR", OFFICIAL, "LDA-GMM", (2, 3, 4, 5))):.2f} and more on test rows, and
        {told("ERR", OFFICIAL, "LDA with shrinkage"):.4f} with shrinkage.
    """


def about_bic(told):
    chosen = [told("ERR", OFFICIAL, method, BY_BIC) for method in ("2L-MJFA", SHARED, "mMCFA")]
    return f"""
        BIC judges the density and not the classes: what it chooses for 2L-MJFA, the same with a shared
        covariance and mMCFA has {listed(chosen, ".4f")}. Support vectors have
        {told("ERR", OFFICIAL, "support vectors (SVC)"):.4f}.
    """


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.12",
    title="2L-MJFA and other classifiers on urban land cover",
    source="Document 003, section 3.3.5, Table 3.12 and Fig. 3.17",
    data="""
        Urban land cover (ULC), building, concrete and grass, 147 features; 77 rows for training and 273 for
        testing, the official parts.
    """,
    ways={OFFICIAL: (STARTS, None)},
    grid={"components": (2, 3, 4, 5), "dimensions": (2, 10, 15, 20, 25, 30)},
    more={"components": (1,), "dimensions": (5,)},
    about_ways="Rows are given; tests differ in the seed of the starts.",
    tested=273,
    other_numbers={"148": "Table 3.9"},
    quick={"components": (2,), "dimensions": (2,)},
    published="""
    2 2  0.5108       0.1209       0.5128       0.3301       0.6557
    10 2  0.1319       0.1355       0.4945       0.2491       -
    10 3  0.1282       0.1282       0.1832       0.2015       -
    10 4  0.1355       0.1502       0.3736       0.2564       -
    10 5  0.1245       0.1319       0.2418       0.2418       -
    15 2  0.1172       0.3077       0.3846       0.3700       -
    15 3  0.1172       0.2234       0.3773       0.3846       -
    15 4  0.1392       0.2381       0.2418       0.3773       -
    15 5  0.1099       0.1722       0.3223       0.4139       -
    20 2  0.1209       0.4725       0.3773       0.3883       -
    20 3  0.1209       0.3919       0.3443       0.4139       -
    20 4  0.1245       0.3883       0.3883       0.3956       -
    20 5  0.1172       0.3004       0.3516       0.4396       -
    25 2  0.1172       0.4579       0.3114       0.4066       -
    25 3  0.1392       0.3150       0.2454       0.4176       -
    25 4  0.1319       0.3810       0.3480       0.4066       -
    25 5  0.1319       0.4029       0.2930       0.4432       -
    30 2  0.1245       0.4286       0.4249       0.4432       -
    30 3  0.1209       0.2454       0.3443       0.4396       -
    30 4  0.1429       0.3883       0.2527       0.4505       -
    30 5  0.1392       0.3883       0.3077       0.4945       -
    """,
    missed="""
        77 rows of 147 features: several components of free covariances are worse than one, which reaches the
        lowest print but is not in the printed grid.
    """,
    remarks=(
        """
        All printed rates are multiples of 1/273 but 0.5108 and 0.3301, in the line of two dimensions. The
        source counts 148 dimensions; there are 147 features.
        """,
        about_mjfa,
        about_print,
        about_lda,
        about_bic,
    ),
)
