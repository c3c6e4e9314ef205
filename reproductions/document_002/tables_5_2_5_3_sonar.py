"""Tables 5.2 and 5.3 on sonar echoes, in place of sonar images."""

from __future__ import annotations

from latently.datasets import load
from reproductions.document_002._comparison import (
    ABOUT_LEVELS,
    ABOUT_RISKS,
    BY_CHANCE,
    BY_KMEANS,
    COLUMNS,
    KEYS,
    ONLY,
    PROTOCOL,
    SVM,
    WORST,
    about_risk_of_component,
    beside_mfm,
    compare,
    draw_planes,
    higher,
    largest_turn,
    published,
    summary,
)
from reproductions.document_002.tables_5_2_5_3 import MFM, PCA
from reproductions.framework import Reproduction
from reproductions.told import listed


def rows():
    """Energy in 60 bands, from 0 to 1, of echoes of rocks (0) and of a metal cylinder (1)."""
    echoes = load("sonar")
    return echoes.X, echoes.y.astype(int)


def measure(settings, seed):
    return compare([rows()], seed=seed, **settings)


def planes(result):
    title = "Three factors of echoes that were not fitted"
    return draw_planes(result, rows(), title=title, class_names=("rock", "cylinder"))


def about_ser(told):
    gaps = [abs(mppca - mfm) for mppca, mfm in beside_mfm(told, "SER")]
    return f"""
        "With L = 1, MFM has the SER of PPCA": seen, to 0.01 dB. "MPPCA has a little higher SER than MFM":
        it is higher in {higher(told, "SER")}; they differ by {max(gaps):.2f} dB at most.
    """


def about_classes(told):
    shares = told.by_key("P_cc by x", "MFM")
    worst, best = min(shares, key=shares.get), max(shares, key=shares.get)
    more = [
        told("P_cc by x", "MFM", BY_CHANCE, L, d) > told("P_cc by x", "MFM", BY_KMEANS, L, d)
        for L in (2, 3)
        for d in (3, 6, 9)
    ]
    return f"""
        These rows are not linearly separable: the SVM has {told("P_cc by x", SVM):.3f}. MFM has between
        {shares[worst]:.3f} (L = {worst[2]}, d = {worst[3]}, where the more frequent class has
        {told("purity", "MFM", ONLY, 1, 3):.3f}) and {shares[best]:.3f} (L = {best[2]}, d = {best[3]},
        {best[1]}). SER rises with d throughout, P_cc does not. In {sum(more)} of {len(more)} cells random
        groups lead to a higher P_cc than k-means. What a weight on labels does stands in
        002/discriminative-weight.
    """


def about_turns(told):
    return f"""
        Sixty features leave doubt about the component (R_clus up to {max(told.all("R_clus")):.2f}), so a
        comparison of R_dim between MFM and MPPCA compares turns. {largest_turn(told, ..., (2, 3))}
    """


def about_growth(told):
    return f"""
        "R_dim per factor grows with d": for PPCA {listed(told.all("R_dim", "PPCA"), ".4f")}; it is not so in
        general.
    """


def about_density(told):
    density = told.by_key("ln p(x)")
    _, _, L, d = max(density, key=density.get)
    return f"""
        ln p(x) of rows that were not fitted is highest with L = {L} and d = {d}, whatever SER says.
    """


REPRODUCTION = Reproduction(
    id="002/tables-5.2-5.3-sonar",
    title="MFM, PPCA, MPPCA and a linear SVM on sonar echoes",
    source="Document 002, section 5.3, Tables 5.2 and 5.3, Figs. 5.11 to 5.18",
    data="""
        In place of the source's sonar images: 208 sonar echoes, 111 of a metal cylinder and 97 of rocks, as
        energies in 60 bands of frequency from 0 to 1 (Connectionist Bench, UCI). One pair of classes.
    """,
    protocol=PROTOCOL,
    keys=KEYS,
    other_numbers={"0.01": "a bound"},
    columns={name: spec for name, spec in COLUMNS.items() if name != WORST},
    published=published(MFM, PCA, svm=1.0),
    measure=measure,
    settings={"components": (1, 2, 3), "factors": (3, 6, 9), "starts": 5, "n_jobs": -1},
    quick_settings={"components": (1, 2), "factors": (3,), "starts": 1, "n_jobs": 1},
    summary=summary,
    remarks=(
        ABOUT_LEVELS,
        about_ser,
        about_classes,
        ABOUT_RISKS,
        about_turns,
        about_growth,
        about_risk_of_component(3),
        about_density,
    ),
    figures={"-planes": planes},
)
