"""Table 3.7: numbers of parameters."""

from __future__ import annotations

import numpy as np

from latently.mixture import MCFA, MPPCA
from latently.supervised import MJFAClassifier, PerClass
from reproductions.framework import Reproduction

MPPCA_, MMCFA, MJFA = "mPPCA", "mMCFA", "2L-MJFA"


def printed(method, m, g, p, q):
    """The formulas of the table: m classes, g components, p features and q factors."""
    if method == MPPCA_:
        return m * (g + g * p + g * p * q - g * q * (q - 1) // 2)
    component = 1 + q + q * (q + 1) // 2
    if method == MMCFA:
        return m * (p * q - q * q + p + g * component)
    return p * q - q * q + p + m * g * component


def corrected(method, m, g, p, q):
    """The same where weights sum to one in each class, and every component of mPPCA has its noise variance;
    both leave out the m - 1 class priors."""
    return printed(method, m, g, p, q) - m + (m * g if method == MPPCA_ else 0)


def measure(settings, seed):
    rng = np.random.default_rng(seed)
    records = []
    for m, g, p, q in settings["sizes"]:
        y = np.repeat(np.arange(m), 12 * g)
        X = rng.standard_normal((len(y), p)) + 3 * y[:, None]
        few = {"tol": 1.0, "n_init": 1, "random_state": seed}
        alone = {"shrinkage": None, "temperature": None}
        models = {
            MPPCA_: PerClass(MPPCA(g, q, **few), **alone),
            MMCFA: PerClass(MCFA(g, q, **few), **alone),
            MJFA: MJFAClassifier(g, q, **few, **alone),
        }
        for method, model in models.items():
            size = {"classes": m, "components": g, "features": p, "factors": q}
            ours = model.fit(X, y).n_parameters() - (m - 1)
            expected = corrected(method, m, g, p, q)
            records.append({"method": method, **size, "parameters": ours, "corrected formula": expected})
    return records


SIZES = ((2, 2, 12, 3), (3, 2, 20, 4), (6, 3, 39, 4))

REPRODUCTION = Reproduction(
    id="003/table-3.7",
    title="numbers of parameters",
    source="Document 003, section 3.3.1, Table 3.7, which has formulas",
    data="Simulated rows; the numbers depend on sizes only.",
    protocol="""
        The printed formulas, evaluated for a few sizes, beside `n_parameters` of the classifiers less the
        free class priors, which the table leaves out. "Corrected formula" has weights that sum to one in each
        class, and a noise variance for each component of mPPCA.
    """,
    keys=("method", "classes", "components", "features", "factors"),
    columns={"parameters": "", "corrected formula": ""},
    published=[
        {
            "method": method,
            "classes": m,
            "components": g,
            "features": p,
            "factors": q,
            "parameters": printed(method, m, g, p, q),
        }
        for m, g, p, q in SIZES
        for method in (MPPCA_, MMCFA, MJFA)
    ],
    measure=measure,
    settings={"sizes": SIZES},
    quick_settings={"sizes": SIZES[:1]},
    counted=lambda record: False,  # formulas
    remarks=(
        """
        The printed formulas count all weights as free, though they sum to one, and leave out the noise
        variances of mPPCA. The difference is m for mMCFA and 2L-MJFA, and m (g - 1) the other way for mPPCA;
        the order of the methods, and that 2L-MJFA has the fewest, stand.
        """,
    ),
)
