"""Table 3.4: wine, which the source calls Physical."""

from __future__ import annotations

from latently.datasets import load
from reproductions.document_003._clustering import (
    MPPCA_STANDARDISED,
    STANDARDISED,
    gains_of_fourth,
    reproduction,
)
from reproductions.told import listed, span


def load_rows(seed):
    rows = load("wine")
    return rows.X, rows.y


def about_three_clusters(told):
    excess = told.above_print("ERR", "MCFA", 3, range(4, 9))
    return f"""
        With 3 clusters in 4 and more dimensions MCFA has
        {listed(told.all("ERR", "MCFA", 3, range(4, 9)), ".4f")}, {span(excess, "+.4f")} from the print,
        with a lower BIC. PCA+GMM with 6 and 8 has an optimum near the classes
        ({listed(told.all("ERR from classes", "PCA+GMM", 3, [6, 8]), ".4f")}), and ours has
        {listed(told.all("ERR", "PCA+GMM", 3, [6, 8]), ".4f")}.
    """


def about_mppca(told):
    dimensions = range(3, 9)
    ours, classes = (told.all(name, "mPPCA", 3, dimensions) for name in ("BIC", "BIC from classes"))
    gain = [other - own for own, other in zip(ours, classes, strict=True)]
    return f"""
        Printed error rates of mPPCA are those of lesser optima. With 3 clusters, fits that start from the
        classes end at {span(told.all("ERR from classes", "mPPCA", 3, dimensions), ".3f")} in 3 and more
        dimensions, printed are {span(told.printed.all("ERR", "mPPCA", 3, dimensions), ".3f")}; but ours
        have a BIC that is lower by {span(gain, ".0f")}, and ERR of
        {span(told.all("ERR", "mPPCA", 3, dimensions), ".2f")}. An earlier remark of ours, that features as
        they are cannot give such rates, was wrong: a floor of 1% of the mean variance, nearly all of which
        is that of one feature (proline), had decided every fit.
    """


def about_optima(told):
    spread = told.all("BIC, spread", "mPPCA")
    return f"""
        mPPCA has many optima. The spread of the lowest BIC of five seeds is above 2 in
        {sum(one > 2 for one in spread)} of {len(spread)} settings, and up to {max(spread):.0f}, so the
        likeliest of ours need not be the best.
    """


def about_standardised(told):
    method = MPPCA_STANDARDISED
    return f"""
        On standardised features the likeliest fits of mPPCA with 3 clusters have
        {span(told.all("ERR", method, 3, range(3, 8)), ".2f")} in 3 to 7 dimensions, and
        {told("ERR", method, 3, 8):.2f} in 8.
    """


def about_fourth(told):
    theirs, ours = (gains_of_fourth(one, 178) for one in (told.printed, told))
    return f"""
        With 4 clusters the printed ERR and ARI of MCFA are as good as with 3, which needs a fourth cluster
        that is nearly empty. Our fits have a lower BIC and use it, so one cultivar is split and ERR, not
        ERR by majority, is higher. By BIC the fourth gains {listed(theirs, ".0f")} of log-likelihood in
        print, and {listed(ours, ".0f")} with ours, in 2 to 8 dimensions.
    """


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.4",
    title="MCFA, PCA+GMM and mPPCA on wine",
    source='Document 003, section 3.1.3, Table 3.4 ("Physical")',
    data="Wine, 178 wines, 13 measurements, 3 cultivars (59, 71, 48).",
    clusters=(2, 3, 4),
    dimensions=(2, 3, 4, 5, 6, 7, 8),
    draws=5,
    variants=(STANDARDISED, MPPCA_STANDARDISED),
    quick={"clusters": (2,), "dimensions": (5,)},
    published="""
    2 2  0.3146 7398 0.4717  0.3258 4142 0.3963  0.3090 241520 0.4336
    2 3  0.2921 7134 0.5397  0.3202 5106 0.4219  0.3090 240639 0.4403
    2 4  0.2921 7010 0.5298  0.3202 5945 0.4820  0.3315 250914 0.3904
    2 5  0.2753 6962 0.5711  0.3258 6452 0.4088  0.3315 250091 0.3904
    2 6  0.2697 6973 0.5820  0.3315 6922 0.3916  0.3315 250283 0.3904
    2 7  0.2697 6986 0.5820  0.2865 7255 0.5499  0.3315 236383 0.3904
    2 8  0.2697 7045 0.5820  0.2921 7487 0.5397  0.3315 263761 0.3904
    3 2  0.0562 7384 0.8298  0.2978 4130 0.3827  0.2191 527095 ?
    3 3  0.0225 7096 0.9295  0.2697 5109 0.4302  0.1067 626431 0.7174
    3 4  0.0225 6922 0.9309  0.1401 5872 0.6170  0.0787 688774 0.7781
    3 5  0.0169 6935 0.9485  0.0730 6413 0.7822  0.1461 678949 0.6381
    3 6  0.0056 6881 0.9832  0.0562 6905 0.8319  0.0899 683243 0.7486
    3 7  0.0056 6948 0.9817  0.0618 7253 0.8185  0.0674 672007 0.8069
    3 8  0.0056 6944 0.9832  0.0449 7462 0.8708  0.0843 594161 0.7637
    4 2  0.0618 7411 0.8145  0.2978 4165 0.3600  0.2640 538754 ?
    4 3  0.0393 7106 0.8792  0.2865 5143 0.3977  0.2416 573750 0.5014
    4 4  0.0169 6999 0.9470  0.1404 5863 0.6479  0.1854 677267 0.6478
    4 5  0.0169 6988 0.9470  0.1124 6445 0.7531  0.2191 656419 0.5858
    4 6  0.0169 7018 0.9551  0.1180 6992 0.7436  0.1966 647137 0.6339
    4 7  0.0056 7099 0.9833  0.0899 7327 0.8355  0.2472 549149 0.5043
    4 8  0.0056 7121 0.9900  0.1011 7505 0.8264  0.2165 682489 0.5709
    """,
    missed="""
        With 4 clusters the print needs a cluster that is nearly empty, and ours use all; with 2, and for
        mPPCA and PCA+GMM with 3, the printed rates are of lesser optima, which labels would choose and
        likelihood does not.
    """,
    remarks=(
        """
        The printed ARI of mPPCA with 3 and 4 clusters in 2 dimensions cannot be read. 0.1401 and 0.2165 are
        no multiples of 1/178 and must be misprints.
        """,
        about_fourth,
        about_three_clusters,
        about_mppca,
        about_optima,
        about_standardised,
    ),
)
