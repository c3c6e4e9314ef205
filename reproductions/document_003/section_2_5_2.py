"""Section 2.5.2: DAGMM by the protocol of its paper, beside simple baselines and the untrained network."""

from __future__ import annotations

from reproductions.document_003._dagmm import FOREST, LITERAL, OURS, PCA, UNSHRUNKEN, measure, pieces
from reproductions.framework import Reproduction

__all__ = ["REPRODUCTION", "pieces"]
PUBLISHED = [
    {"data": "thyroid", "method": OURS, "precision": 0.4766, "recall": 0.4834, "F1": 0.4782},
    {"data": "arrhythmia", "method": OURS, "precision": 0.4909, "recall": 0.5078, "F1": 0.4983},
    {"data": "KDD 10 %", "method": OURS, "precision": 0.9297, "recall": 0.9442, "F1": 0.9369},
]


def about_sets(told):
    kdd = {name: told("AUROC", "KDD 10 %", name) for name in (OURS, FOREST)}
    return f"""
        On thyroid all methods but the untrained network are above the published F1; an isolation forest is
        the best of them. On arrhythmia the published F1 is not reached: the trained network is below the
        untrained one, and both below PCA and the forest, which reach it. There are fewer than 200 training
        rows of 274 features, and the error of rows trained on is far smaller than that of all others. On
        KDD the published F1 is not reached by DAGMM; the forest has an F1 of
        {told("F1", "KDD 10 %", FOREST):.3f} and DAGMM {told("F1", "KDD 10 %", OURS):.3f}, at an AUROC of
        {kdd[FOREST]:.3f} and {kdd[OURS]:.3f}.
    """


def about_halves(told):
    deviations = [told("sd of F1", "thyroid", name) for name in (OURS, LITERAL, UNSHRUNKEN)]
    return f"""
        Over random halves, which differ in rows and seed, the deviation of F1 on thyroid is
        {deviations[0]:.3f} with our penalty, {deviations[1]:.3f} with the literal one and {deviations[2]:.3f}
        with literal penalty and covariances; PCA, which has no seed, has
        {told("sd of F1", "thyroid", PCA):.3f}. "Section 2.5.2, spread" has that over seeds alone.
    """


REPRODUCTION = Reproduction(
    id="003/section-2.5.2",
    title="DAGMM for anomalies in tables",
    source="""section 2.5.2 of document 003, which has no table; the numbers are those of Zong et al. (2018),
        Table 2""",
    data="""Thyroid (3772 rows, 93 anomalies) and arrhythmia (452 rows, 66 anomalies) in the form of ODDS, and
        the 10 % file of KDD Cup 1999 (494,021 rows with one-hot categories), of which the 97,278 normal
        connections are the anomalies, as in the paper.""",
    protocol="""
        As in the paper: a random half of the rows is for training, of which anomalies are taken
        out; the other half is for testing, and its rows with the highest energies, 2.5 %, 15 % and
        20 % of them, are called anomalies. Layers, factors, components and batches are those of the
        paper, the loss has 0.1 and 0.005. Epochs are a tenth of the paper's (2000, 1000 and 20),
        with a learning rate ten times the paper's (0.001), and of KDD the first 50,000 training
        rows are used; there is no dropout. The literal penalty is divided by the number of rows,
        all else equal; without shrinkage the covariances are as in the paper too. The untrained
        network has its mixture from a pass over the training rows. PCA + Gaussian is probabilistic
        PCA with 2, 10 and 10 factors. All methods get rows that are standardised by the training
        rows. Means and standard deviations are over random halves and seeds.
    """,
    keys=("data", "method"),
    other_numbers=dict.fromkeys(("200", "274"), "rows and features, counted"),
    columns={
        "fits": "d",
        "precision": ".3f",
        "recall": ".3f",
        "F1": ".3f",
        "sd of F1": ".3f",
        "AUROC": ".3f",
        "sd of AUROC": ".3f",
    },
    published=PUBLISHED,
    measure=measure,
    remarks=(
        """
        Fits are half as many as the 20 of the paper, and epochs a tenth.
        """,
        about_sets,
        about_halves,
    ),
    settings={
        "sets": ["thyroid", "arrhythmia", "KDD 10 %"],
        "seeds": {"thyroid": 10, "arrhythmia": 10, "KDD 10 %": 10},
        "epochs": {"thyroid": 2000, "arrhythmia": 1000, "KDD 10 %": 20},
        "learning_rate": 1e-3,
        "kdd_rows": 50000,
    },
    quick_settings={"sets": ["arrhythmia"], "seeds": {"arrhythmia": 1}, "epochs": {"arrhythmia": 2}},
)
