"""Figures 3.46 to 3.57: mixtures of factor analysers of the sources of parts."""

from __future__ import annotations

from functools import lru_cache

from latently.mixture import MFA
from reproductions.document_000._digits import (
    ABOUT_DENSITIES,
    ABOUT_QUALITY,
    ABOUT_ROWS,
    ALL,
    DENSITY,
    EM,
    HELD_OUT,
    IMAGE_SHAPE,
    QUALITY,
    TWO,
    component_lines,
    fitted_quietly,
    measured,
    parts,
)
from reproductions.document_000.figures_3_28_3_45 import n_rows
from reproductions.framework import Reproduction
from reproductions.told import listed, span

SHOWN = ((30, 10), (30, 30))  # parts and components whose curves the source shows


def measure(settings, seed):
    records, told = [], set()
    for (digit, d, K, factors), density in densities(**settings, seed=seed).items():
        its_parts = parts(digit, d, n_rows(digit, settings), seed)
        about = {"digits": str(digit), "parts": d}
        if (digit, d) not in told:
            told.add((digit, d))
            for name, quality in its_parts.references(settings["network_rows"], seed).items():
                records.append(about | {"K": name, "d'": None} | quality)
        found = measured(density, its_parts, settings["drawn"], settings["network_rows"], seed)
        records.append(about | {"K": K, "d'": factors} | found)
    return records


@lru_cache(maxsize=1)  # what is drawn is what was measured
def densities(cases, rows, rows_of_all, drawn, network_rows, seed):
    rows_of = {ALL: rows_of_all, TWO: rows}
    return {
        (digit, d, K, factors): fitted_quietly(
            MFA(K, factors, shared_noise=True, random_state=seed, **EM),
            parts(digit, d, rows_of[digit], seed).fitted,
        )
        for digit, d, sizes, numbers in cases
        for K in sizes
        for factors in numbers
    }


# -- pictures -----------------------------------------------------------------------------------------


def draw_convergence(result):
    """Figs. 3.46 and 3.52."""
    from reproductions.plots.curves import curve_panels

    panels = {}
    for (digit, d, K, factors), fit in densities(**result.settings, seed=result.seed).items():
        if digit == TWO and (d, K) in SHOWN:
            panels.setdefault(f"{d} parts, K = {K}", {})[f"d' = {factors}"] = fit.history_
    return curve_panels(panels, y="ln p, fitted", title="Mixtures of factor analysers of sources")


def draw_likelihoods(result):
    """Figs. 3.47 and 3.53, with held-out images beside fitted ones."""
    from reproductions.plots.planes import two_measures

    lines = {}
    for row in result.records:
        if row["digits"] == str(TWO) and row["d'"] is not None:
            for name in DENSITY:
                line = lines.setdefault(f"{row['parts']} parts, K = {row['K']}, {name}", [])
                line.append((row["d'"], row[name], ""))
    return two_measures(lines, x="d'", y="ln p", title="Log densities of sources over the number of factors")


def draw_digits(result, digit, title, n_lines):
    from reproductions.plots.planes import image_lines

    lines = {}
    for case, fit in densities(**result.settings, seed=result.seed).items():
        of_digit, d, K, factors = case
        if of_digit == digit and K < 100 and factors in (5, 8, 15, 25):
            decode = parts(digit, d, n_rows(digit, result.settings), result.seed).factorizer.inverse_transform
            lines |= component_lines(f"{d}, {K}, {factors}", fit, decode, result.seed, n_lines)
    return image_lines(lines, IMAGE_SHAPE, title=title)


def draw_twos(result):
    """Figs. 3.48 to 3.51 and 3.54 to 3.57."""
    title = "Factor analysers, by d, K and d': two components of each, the mean first"
    return draw_digits(result, TWO, title, n_lines=2)


def draw_all(result):
    """Beyond the source: all digits."""
    title = "Factor analysers of all digits, by d, K and d': components of each, the mean first"
    return draw_digits(result, ALL, title, n_lines=4)


APART = "told apart"
SIZES = (10, 30)


def ends(told, measure, K, spec):
    """From the fewest to the most factors, of 30 parts of 2s."""
    values = told.all(measure, "2", 30, K)
    return f"from {values[0]:{spec}} to {values[-1]:{spec}} (K = {K})"


def about_factors(told):
    first, second = (ends(told, HELD_OUT, K, ".1f") for K in SIZES)
    return f"""
        "The likelihood rises with d'": yes, and on held-out images too, {first} and {second}.
    """


def about_quality(told):
    first, second = (ends(told, APART, K, ".3f") for K in SIZES)
    return f"""
        "d' = 5 is fairly good, 8 more noisy, 15 worse, 25 fails": no. The share told from real ones falls
        as d' grows, if not at each step, {first} and {second}, and so does the distance. To the eye all are
        soft, rather bold 2s, of which some have doubled strokes; those of d' = 5 have more.
    """


def about_mixtures(told):
    return f"""
        "Better than mixtures of Gaussians": hardly. At best {max(told.all(HELD_OUT, "2", 30, SIZES)):.1f} on
        held-out images and {min(told.all(APART, "2", 30, SIZES)):.3f} told apart; for full covariances see
        000/figures-3.28-3.45.
    """


def about_parts(told):
    return f"""
        "100 parts are worse": yes, {span(told.all(APART, "2", 100, 10), ".2f")} are told apart; digits are in
        shreds, less so with d' = 25.
    """


def about_all(told):
    real, shuffled = (
        listed(told.all("like a digit", "all", ..., kind), ".2f")
        for kind in ("real, rebuilt", "sources shuffled")
    )
    return f"""
        All digits: {span(told.all("like a digit", "all", ..., SIZES), ".2f")} of what is drawn is like a
        digit (rebuilt real ones {real}, shuffled sources {shuffled}), and all classes are there. To the eye
        about half can be read; the others are between 4, 7 and 9, or between 3, 5 and 8.
    """


REPRODUCTION = Reproduction(
    id="000/figures-3.46-3.57",
    title="mixtures of factor analysers of the sources of parts",
    source="Document 000, section 3.6, Figs. 3.46 to 3.57, which have no numbers",
    data="""
        MNIST, the 5958 training images of the 2, and 1000 of its test images; beyond the source, 10,000
        training and 1000 test images of all digits. Pixels from 0 to 1.
    """,
    protocol=f"""
        Images are factorised by NMF, whose parts have unit length, and their sources have a mixture of K
        factor analysers with d' factors and, as in the source, one diagonal noise for all components.
        {ABOUT_DENSITIES} "Falls" counts iterations that lowered the log-likelihood. {ABOUT_QUALITY}
        {ABOUT_ROWS}

        For all digits "classes" is the exponential of the entropy of the classes that the network sees: 10,
        if all are equally frequent. Sources are those of 000/figures-3.28-3.45, so log densities may be
        compared with those there.
    """,
    keys=("digits", "parts", "K", "d'"),
    columns=DENSITY | QUALITY | {"iterations": "", "falls": ""},
    published=(),
    measure=measure,
    settings={
        "cases": (
            (TWO, 30, (10, 30), (5, 8, 10, 15, 20, 25)),
            (TWO, 30, (100,), (5,)),
            (TWO, 100, (10,), (5, 15, 25)),
            (ALL, 30, (10, 30), (5, 15)),
            (ALL, 100, (30,), (5,)),
        ),
        "rows": None,
        "rows_of_all": 10000,
        "drawn": 1000,
        "network_rows": 60000,
    },
    quick_settings={
        "cases": ((TWO, 30, (10,), (2, 5)), (ALL, 9, (2,), (5,))),
        "rows": 150,
        "rows_of_all": 150,
        "drawn": 40,
        "network_rows": 500,
    },
    remarks=(
        """
        "Violations" of the likelihood, which the source has on every asymptote: none, in all 21 fits. One of
        them took all 500 iterations; the others met the source's tolerance.
        """,
        about_factors,
        about_quality,
        """
        "More components have more of these defects": no, K = 30 is better than K = 10 at each d', by ln p of
        held-out images and by both measures of quality. With K = 100 and d' = 5 it is worse by the first, and
        better by the others.
        """,
        about_mixtures,
        about_parts,
        about_all,
        """
        Left out: K = 20 and 50, and K > 10 with 100 parts for the 2, of which the source shows nothing.
        """,
    ),
    figures={
        "-convergence": draw_convergence,
        "-likelihoods": draw_likelihoods,
        "-digits": draw_twos,
        "-all-digits": draw_all,
    },
)
