"""Table 3.6: seeds among 30 columns of noise."""

from __future__ import annotations

from latently.datasets import load_noisy_seeds
from reproductions.document_003._clustering import SHARED, reproduction
from reproductions.told import listed, span


def load_rows(seed):
    rows = load_noisy_seeds(random_state=seed)
    return rows.X, rows.y


def about_floor(told):
    key = "MCFA", 3, (4, 5, 6)
    return f"""
        MCFA in 4 to 6 dimensions is better than printed: with 3 clusters its mean ERR is
        {span(told.all("ERR", *key), ".3f")} over the draws of the noise, printed are
        {listed(told.printed.all("ERR", *key), ".4f")}, and fits from the classes have
        {span(told.all("ERR from classes", *key), ".3f")}. What decides is the floor of the noise variances:
        the seven measurements depend on one another almost exactly, and with a floor of 1e-6 (an earlier
        protocol of ours) the likelihood follows that dependence, and ERR is 0.15 to 0.16.
    """


def about_bic(told):
    own = told.by_key("BIC", "MCFA", ..., range(3, 7))
    above = [value - told.printed("BIC", *key) for key, value in own.items() if key[1:] != (3, 3)]
    return f"""
        BIC tells that the source had no such floor: in 3 and more dimensions its values lie
        {span(above, ".0f")} below ours (but for 3 clusters in 3 dimensions), and they are above those that
        a floor of 1e-6 gives. So its fits were probably stopped early, on the way to an optimum with more
        errors.
    """


def about_others(told):
    ours, classes = (told.all(name, "mPPCA", 3) for name in ("BIC", "BIC from classes"))
    gain = [other - own for own, other in zip(ours, classes, strict=True)]
    return f"""
        PCA+GMM and above all mPPCA are worse than printed. Fits of mPPCA with 3 clusters from the classes end
        at {span(told.all("ERR from classes", "mPPCA", 3), ".2f")} (printed are
        {span(told.printed.all("ERR", "mPPCA", 3), ".2f")}), but are lesser optima: BIC of ours is lower by
        {span(gain, ".0f")} in the mean, with ERR of {span(told.all("ERR", "mPPCA", 3), ".2f")}.
    """


def about_clusters(told):
    bic = told.by_key("BIC", "MCFA")
    best = min(bic, key=bic.get)
    three = min(told.all("BIC", "MCFA", 3))
    majority = told.all("ERR by majority", "MCFA", 4, (4, 5, 6))
    return f"""
        Our mean BIC of MCFA is lowest with {best[1]} clusters in {best[2]} dimensions, {bic[best]:.0f};
        with 3 clusters it is {three:.0f} at the lowest. With 4 clusters a variety is split, and ERR by
        majority is {span(majority, ".2f")} in 4 and more dimensions.
    """


REPRODUCTION = reproduction(
    load_rows,
    id="003/table-3.6",
    title="MCFA, PCA+GMM and mPPCA on seeds with noise",
    source="Document 003, section 3.1.3, Table 3.6",
    data="""
        Seeds, 210 kernels of 3 varieties of wheat (70 each), 7 measurements and 30 columns of noise, uniform
        on [0, 2], drawn anew from each seed.
    """,
    clusters=(2, 3, 4),
    dimensions=(2, 3, 4, 5, 6),
    draws=5,
    drawn=True,
    variants=(SHARED,),
    quick={"clusters": (3,), "dimensions": (2,)},
    published="""
    2 2  0.3333 11410 0.4685  0.3333 2453 0.3963  0.3333 18679 0.4720
    2 3  0.3333  9902 0.4436  0.3333 3453 0.4219  0.3333 21156 0.4517
    2 4  0.3333  9980 0.4927  0.3381 4413 0.4820  0.3333 20932 0.4564
    2 5  0.3333 10040 0.4797  0.3333 5378 0.4088  0.3333 22514 0.4564
    2 6  0.3333 10242 0.5299  0.3429 6318 0.3916  0.3381 20919 0.4683
    3 2  0.1238 11411 0.6688  0.1381 2460 0.6544  0.1143 21192 ?
    3 3  0.1000 11247 0.7257  0.1143 3473 0.7018  0.1238 25097 0.6807
    3 4  0.0905  9763 0.7530  0.1333 4449 0.6627  0.1333 26369 0.6632
    3 5  0.0667  9883 0.8138  0.1238 5444 0.6814  0.1429 28910 0.6452
    3 6  0.0667 10086 0.8136  0.1095 6422 0.7072  0.1619 28872 0.6046
    4 2  0.1286 11455 0.6660  0.1476 2475 0.6632  0.1714 22517 ?
    4 3  0.1381  9776 0.6572  0.1429 3510 0.6812  0.1857 27477 0.6358
    4 4  0.0810  9849 0.7811  0.1571 4491 0.6319  0.2095 27424 0.5915
    4 5  0.0714 10002 0.8059  0.1857 5510 0.6102  0.2190 27411 0.6271
    4 6  0.0714 10188 0.8059  0.2143 6512 0.5310  0.2381 28528 0.5782
    """,
    missed="""
        mPPCA and PCA+GMM: the likeliest optima are not the classes, as counted below. BIC of MCFA: the source
        had no floor of the noise variances at 1%; with our floor errors are fewer and BIC is higher.
    """,
    remarks=(
        about_floor,
        about_bic,
        about_others,
        about_clusters,
        """
        The printed ARI of PCA+GMM with 2 clusters is, in all five lines, that of Table 3.4: copied by
        mistake, and not compared. That of mPPCA with 3 and 4 clusters in 2 dimensions cannot be read.
        """,
        """
        The text says that BIC of mPPCA is lowest with 3 clusters; in the table it is lowest with 2.
        """,
    ),
)
