"""Figures 3.28 to 3.45: Gaussian mixtures of the sources of parts."""

from __future__ import annotations

from functools import lru_cache

from latently.mixture import GaussianMixture, NestedMixture
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
from reproductions.framework import Reproduction
from reproductions.told import listed, span

SPHERICAL, DIAGONAL, FULL, NESTED = "spherical", "diag", "full", "full, in two layers"
SUBCOMPONENTS = 5
SHOWN = (10, 50, 100, 500)  # numbers of components that the source shows
LOWEST_SHOWN = -100.0  # log densities below it would flatten all others


def measure(settings, seed):
    records, told = [], set()
    for case, density in densities(**settings, seed=seed).items():
        digit, d, covariance, K = case
        its_parts = parts(digit, d, n_rows(digit, settings), seed)
        about = {"digits": str(digit), "parts": d}
        if (digit, d) not in told:
            told.add((digit, d))
            for name, quality in its_parts.references(settings["network_rows"], seed).items():
                records.append(about | {"covariance": name, "K": None} | quality)
        found = measured(density, its_parts, settings["drawn"], settings["network_rows"], seed)
        records.append(about | {"covariance": covariance, "K": K} | found)
    return records


def n_rows(digit, settings):
    return settings["rows_of_all"] if digit == ALL else settings["rows"]


@lru_cache(maxsize=1)  # what is drawn is what was measured
def densities(cases, rows, rows_of_all, drawn, network_rows, seed):
    rows_of = {ALL: rows_of_all, TWO: rows}
    return {
        (digit, d, covariance, K): fitted_quietly(
            density(covariance, K, seed), parts(digit, d, rows_of[digit], seed).fitted
        )
        for digit, d, covariance, sizes in cases
        for K in sizes
    }


def density(covariance, K, seed):
    if covariance == NESTED:
        return NestedMixture(K // SUBCOMPONENTS, SUBCOMPONENTS, random_state=seed, **EM)
    return GaussianMixture(K, covariance_type=covariance, random_state=seed, **EM)


# -- pictures -----------------------------------------------------------------------------------------


def draw_axes(result, covariance):
    """Figs. 3.28, 3.30 and 3.32."""
    from latently.plots import PrincipalAxesDisplay

    found = densities(**result.settings, seed=result.seed)
    digit, d, _, K = case = next(case for case in found if case[2] == covariance)
    sources = parts(digit, d, n_rows(digit, result.settings), result.seed).fitted
    display = PrincipalAxesDisplay.from_estimator(found[case], sources).plot()
    display.axes_[0].set_title(f"{d} sources of the {digit}, K = {K}, {covariance}")
    return display.figure_


def draw_digits(result, title, chosen, n_lines):
    from reproductions.plots.planes import image_lines

    lines = {}
    for (digit, d, covariance, K), fit in densities(**result.settings, seed=result.seed).items():
        if chosen(digit, d, covariance, K):
            decode = parts(digit, d, n_rows(digit, result.settings), result.seed).factorizer.inverse_transform
            lines |= component_lines(f"{covariance}, {d}, {K}", fit, decode, result.seed, n_lines)
    return image_lines(lines, IMAGE_SHAPE, title=title)


def draw_covariances(result):
    """Figs. 3.29, 3.31 and 3.33."""
    _, d_shown, _, (K_shown, *_) = result.settings["cases"][0]
    return draw_digits(
        result,
        "Mixtures of sources, by covariance, d and K: components of each, the mean first",
        lambda digit, d, covariance, K: (digit, d, K) == (TWO, d_shown, K_shown) and covariance != NESTED,
        n_lines=4,
    )


def draw_sizes(result):
    """Figs. 3.36 to 3.39 and 3.42 to 3.45."""
    return draw_digits(
        result,
        "Mixtures of sources, by covariance, d and K: components of each, the mean first",
        lambda digit, d, covariance, K: digit == TWO and covariance == FULL and K in SHOWN,
        n_lines=2,
    )


def draw_all(result):
    """Beyond the source: all digits."""
    return draw_digits(
        result,
        "Mixtures of sources of all digits, by covariance, d and K: the mean first",
        lambda digit, d, covariance, K: digit == ALL,
        n_lines=3,
    )


def draw_convergence(result):
    """Figs. 3.34 and 3.40."""
    from reproductions.plots.curves import curve_panels

    panels = {}
    for (digit, d, covariance, K), fit in densities(**result.settings, seed=result.seed).items():
        if digit == TWO and covariance == FULL and K in SHOWN:
            panels.setdefault(f"{d} parts", {})[f"K = {K}"] = fit.history_
    return curve_panels(panels, y="ln p, fitted", title="Mixtures of sources, full covariances")


def draw_likelihoods(result):
    """Figs. 3.35 and 3.41, with held-out images beside fitted ones."""
    from reproductions.plots.planes import two_measures

    lines = {}
    for row in result.records:
        if row["digits"] == str(TWO) and row["covariance"] == FULL:
            for name in DENSITY:
                points = lines.setdefault(f"{row['parts']} parts, {name}", [])
                if row[name] > LOWEST_SHOWN:
                    points.append((row["K"], row[name], ""))
    title = f"Full covariances: log densities of sources, where above {LOWEST_SHOWN:.0f}"
    return two_measures(lines, x="K", y="ln p", title=title)


def summary(rows):
    """For each set of sources, the likeliest on held-out images, and what is drawn from it."""
    short = []
    for group in dict.fromkeys((row["digits"], row["parts"]) for row in rows):
        own = [row for row in rows if (row["digits"], row["parts"]) == group and HELD_OUT in row]
        best = max(own, key=lambda row: row[HELD_OUT])
        kept = ("digits", "parts", "covariance", "K", *DENSITY, *QUALITY)
        short.append({name: best.get(name) for name in kept})
    return short


APART = "told apart"
KINDS = ("spherical", "diag", "full")


def likeliest(told, parts):
    """The number of full components with the highest density of held-out 2s, and that."""
    density = told.by_key(HELD_OUT, "2", parts, "full")
    key = max(density, key=density.get)
    return key[3], density[key]


def about_kinds(told):
    apart, density = ([told(name, "2", 30, kind, 10) for kind in KINDS] for name in (APART, HELD_OUT))
    return f"""
        "Full covariances are best, spherical ones noisy" (30 parts, K = 10): yes, by every measure.
        {listed(apart, ".3f")} of the drawn images are told from real ones (spherical, diagonal, full), and
        ln p of held-out images is {listed(density, ".1f")}. To the eye all are 2s, the first two kinds with
        doubled strokes. Spherical ellipses are hardly smaller than the others, other than the source has
        it.
    """


def about_growth(told):
    most = [told(HELD_OUT, "2", parts, "full", 500) for parts in (30, 100)]
    return f"""
        "The likelihood grows with K": yes, on fitted images. On held-out ones it is highest with K =
        {likeliest(told, 30)[0]} (30 parts) and K = {likeliest(told, 100)[0]} (100 parts), and falls more
        and more after that: to {listed(most, ".1f")} with K = 500, where a component has 12 images.
    """


def about_memory(told):
    distance = [told("distance", "2", parts, "full", 500) for parts in (30, 100)]
    return f"""
        "More components give less noise, and with K = 500 the model tends to overfit": both are seen. The
        share told apart falls to {told(APART, "2", 30, "full", 500):.3f}, but drawn images come closer to
        fitted ones than new real digits are, {distance[0]:.2f} of the distance ({distance[1]:.2f} with 100
        parts): what improves is memory. At the best K on held-out images it is
        {told(APART, "2", 30, "full", likeliest(told, 30)[0]):.3f}.
    """


def about_parts(told):
    return f"""
        "100 parts are worse": yes. At least {min(told.all(APART, "2", 100, KINDS)):.3f} are told apart. To
        the eye there are specks and broken strokes, which with K = 500 go away where components are copies.
    """


def about_layers(told):
    layers, one = (told(HELD_OUT, "2", 30, kind, 50) for kind in ("full, in two layers", "full"))
    apart = [told(APART, "2", 30, kind, 50) for kind in ("full, in two layers", "full")]
    return f"""
        "Two layers are not expected to do better": 10 mixtures of 5 have {layers:.1f} on held-out images,
        where one mixture of 50 has {one:.1f}, and a single layer with K = {likeliest(told, 30)[0]} has
        {likeliest(told, 30)[1]:.1f}. {listed(apart, ".3f")} are told apart.
    """


def about_zeros(told):
    diagonal = [told(HELD_OUT, "2", parts, "diag", 100) for parts in (30, 100)]
    return f"""
        Of all sources 0.40 (30 parts) and 0.50 (100) are exactly zero. No Gaussian says so, but one with
        next to no variance comes close, and its log density is as high as the floor allows, also on
        held-out images. That may be why diagonal covariances with K = 100 have the highest ln p of held-out
        images of all ({listed(diagonal, ".1f")}), though what they draw is no better than what others do.
        Levels of ln p hang on the floor.
    """


def about_calls(told):
    shuffled, real = (
        listed(told.all("like a digit", "all", (30, 100), kind), ".2f")
        for kind in ("sources shuffled", "real, rebuilt")
    )
    return f"""
        Nearly all drawn 2s are called a 2 ({min(told.all("called a 2", "2", ..., KINDS)):.2f} and more,
        shuffled sources {told("called a 2", "2", 30, "sources shuffled"):.2f}), so this number does not
        order models of one digit; "told apart" and "distance" do. Of all digits,
        {span(told.all("like a digit", "all", ..., "full"), ".2f")} of what is drawn is like a digit,
        {shuffled} with shuffled sources, {real} of real ones rebuilt. All classes are there. To the eye
        most of K = 10 are between 3, 5 and 8 or between 4, 7 and 9; with K = 100 components are of one
        digit (the picture shows the heaviest, mostly 1s, which are easiest).
    """


REPRODUCTION = Reproduction(
    id="000/figures-3.28-3.45",
    title="Gaussian mixtures of the sources of parts",
    source="Document 000, section 3.5, Figs. 3.28 to 3.45, which have no numbers",
    data="""
        MNIST, the 5958 training images of the 2, and 1000 of its test images; beyond the source, 10,000
        training and 1000 test images of all digits. Pixels from 0 to 1.
    """,
    protocol=f"""
        Images are factorised by NMF, whose parts have unit length, and their sources have a mixture of
        Gaussians. "{NESTED}" is the source's equation (3.4), of which it shows nothing: a mixture of mixtures
        of {SUBCOMPONENTS} Gaussians, with K Gaussians in all. {ABOUT_DENSITIES} {ABOUT_QUALITY} {ABOUT_ROWS}

        For all digits "classes" is the exponential of the entropy of the classes that the network sees: 10,
        if all are equally frequent.
    """,
    keys=("digits", "parts", "covariance", "K"),
    other_numbers={
        "0.40": "counted in sources",
        "0.50": "counted in sources",
        "5050": "entries of a covariance",
    },
    columns=DENSITY | QUALITY | {"iterations": "", "falls": ""},
    published=(),
    measure=measure,
    settings={
        "cases": (
            (TWO, 30, SPHERICAL, (10, 100, 500)),
            (TWO, 30, DIAGONAL, (10, 100, 500)),
            (TWO, 30, FULL, (10, 20, 30, 50, 100, 200, 300, 400, 500)),
            (TWO, 30, NESTED, (50,)),
            (TWO, 100, SPHERICAL, (10, 100, 500)),
            (TWO, 100, DIAGONAL, (10, 100, 500)),
            (TWO, 100, FULL, (10, 20, 50, 100, 200, 500)),
            (ALL, 30, FULL, (10, 100, 500)),
            (ALL, 100, FULL, (10, 100)),
        ),
        "rows": None,
        "rows_of_all": 10000,
        "drawn": 1000,
        "network_rows": 60000,
    },
    quick_settings={
        "cases": (
            (TWO, 6, SPHERICAL, (10,)),
            (TWO, 6, DIAGONAL, (10,)),
            (TWO, 6, FULL, (3, 10)),
            (TWO, 6, NESTED, (10,)),
            (ALL, 6, FULL, (10,)),
        ),
        "rows": 150,
        "rows_of_all": 150,
        "drawn": 40,
        "network_rows": 500,
    },
    summary=summary,
    remarks=(
        about_kinds,
        about_growth,
        about_memory,
        about_parts,
        about_layers,
        about_zeros,
        about_calls,
        """
        Left out, to save time: K = 30, 300 and 400 with 100 parts, and K = 500 for all digits with 100 parts,
        where 20 images would have to make a covariance of 5050 entries.
        """,
    ),
    figures={
        "-axes-spherical": lambda result: draw_axes(result, SPHERICAL),
        "-axes-diag": lambda result: draw_axes(result, DIAGONAL),
        "-axes-full": lambda result: draw_axes(result, FULL),
        "-covariances": draw_covariances,
        "-sizes": draw_sizes,
        "-all-digits": draw_all,
        "-convergence": draw_convergence,
        "-likelihoods": draw_likelihoods,
    },
)
