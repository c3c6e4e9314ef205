"""Figures 3.23 to 3.27: Gaussian mixtures of the pixels themselves."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from latently.mixture import MFA, GaussianMixture
from reproductions.document_000._digits import (
    ABOUT_QUALITY,
    EM,
    FITTED,
    HELD_OUT,
    IMAGE_SHAPE,
    NOISE_FLOOR,
    QUALITY,
    TWO,
    Real,
    component_lines,
    falls,
    fitted_quietly,
    images,
)
from reproductions.framework import Reproduction
from reproductions.told import listed, span

REAL, FULL, FACTORS = "real", "full", 10
ANALYSERS = f"{FACTORS} factors, one noise variance"


def measure(settings, seed):
    fitted, held_out = images(TWO, settings["rows"], seed)
    real, varies = Real(TWO, fitted, held_out), varying(fitted)
    network_rows = settings["network_rows"]
    records = [{"covariance": REAL, "K": None} | real.itself(network_rows)]
    for (covariance, K), model in models(**settings, seed=seed).items():
        drawn, _ = model.sample(settings["drawn"], random_state=seed)
        drawn = in_image(np.random.default_rng(seed).permutation(drawn), varies)
        records.append(
            {
                "covariance": covariance,
                "K": K,
                FITTED: float(model.score(fitted[:, varies])),
                HELD_OUT: float(model.score(held_out[:, varies])),
                "parameters": model.n_parameters(),
                **real.judge(drawn, network_rows),
                "iterations": int(model.n_iter_),
                "falls": falls(model.history_),
            }
        )
    return records


def varying(fitted):
    """Pixels that are not the same in all fitted images; models are of these."""
    return np.ptp(fitted, axis=0) > 0


def in_image(rows, varies):
    whole = np.zeros((len(rows), len(varies)))
    whole[:, varies] = rows
    return whole


@lru_cache(maxsize=1)  # what is drawn is what was measured
def models(cases, rows, drawn, network_rows, seed):
    fitted = images(TWO, rows, seed)[0]
    X = fitted[:, varying(fitted)]
    return {
        (covariance, K): fitted_quietly(model(covariance, K, seed), X)
        for covariance, sizes in cases
        for K in sizes
    }


def model(covariance, K, seed):
    if covariance == ANALYSERS:
        return MFA(K, FACTORS, noise="isotropic", random_state=seed, **EM)
    return GaussianMixture(K, covariance_type=covariance, random_state=seed, **EM)


# -- pictures -----------------------------------------------------------------------------------------


def draw_convergence(result):
    """In place of Fig. 3.23, which shows changes of responsibilities."""
    from reproductions.plots.curves import curve_panels

    panels = {}
    for (covariance, K), fit in models(**result.settings, seed=result.seed).items():
        panels.setdefault(covariance, {})[f"K = {K}"] = fit.history_
    return curve_panels(panels, y="ln p, fitted", title="Mixtures of pixels", n_lines=2)


def draw_digits(result):
    """Figs. 3.24 to 3.27."""
    from reproductions.plots.planes import image_lines

    varies = varying(images(TWO, result.settings["rows"], result.seed)[0])
    lines = {}
    for (covariance, K), fit in models(**result.settings, seed=result.seed).items():
        name = f"{covariance.partition(',')[0]}, {K}"
        lines |= component_lines(name, fit, lambda rows: in_image(rows, varies), result.seed, n_lines=1)
    title = "Mixtures of pixels, by covariance and K: the heaviest component of each, its mean first"
    return image_lines(lines, IMAGE_SHAPE, title=title)


OTHERS = ("diag", "spherical", "10 factors, one noise variance")


def about_iterations(told):
    return f"""
        "EM converges within few iterations": yes with full covariances,
        {listed(told.all("iterations", "full"), "d")}; the others take
        {span(told.all("iterations", OTHERS), "d")}. In place of changes of responsibilities (Fig. 3.23) the
        picture has log-likelihoods.
    """


def about_full(told):
    size = [number / 1e6 for number in told.all("parameters", "full")]
    return f"""
        "Full covariances seem the right choice": not as densities. On held-out images they have
        {listed(told.all("ln p, held out", "full"), ",.0f")}, all others
        {span(told.all("ln p, held out", OTHERS), ".0f")}: {listed(size, ".1f")} million parameters for 5958
        images.
    """


def about_numbers(told):
    real = told("called a 2", "real")
    return f"""
        Neither number orders pictures here. Diagonal covariances have the highest ln p of held-out images,
        because many pixels are nearly always zero, and they draw grains. The network calls
        {min(told.all("called a 2", ("full", *OTHERS))):.2f} and more of all drawn images a 2, but
        {real:.3f} of real ones: it sees through noise, and few drawn images are as odd as some real ones
        are.
    """


REPRODUCTION = Reproduction(
    id="000/figures-3.23-3.27",
    title="Gaussian mixtures of the pixels of the 2",
    source="Document 000, section 3.4, Figs. 3.23 to 3.27, which have no numbers",
    data="""
        MNIST, the 5958 training images of the 2, and 1000 of its test images, pixels from 0 to 1. Mixtures
        are of the 611 pixels that are not zero in all fitted images; the others are drawn as zero.
    """,
    protocol=f"""
        The source has full covariances; we add diagonal and spherical ones and, with {FACTORS} factors and
        one noise variance for each component, mixtures of factor analysers. Plain EM from one start by
        k-means, until the log-likelihood gains less than {EM["tol"]:g} of its size. No variance falls below
        {NOISE_FLOOR:.0%} of the pixel's. ln p is the mean log density of images. {ABOUT_QUALITY}
    """,
    keys=("covariance", "K"),
    other_numbers={"186,966": "entries of a covariance", "5958": "images, counted"},
    columns={
        FITTED: ".0f",
        HELD_OUT: ".0f",
        "parameters": ",",
        **{name: spec for name, spec in QUALITY.items() if name != "classes"},
        "iterations": "",
        "falls": "",
    },
    published=(),
    measure=measure,
    settings={
        "cases": (
            (FULL, (10, 30)),
            ("diag", (10, 30, 100, 200)),
            ("spherical", (10, 30, 100, 200)),
            (ANALYSERS, (10, 30, 100)),
        ),
        "rows": None,
        "drawn": 1000,
        "network_rows": 60000,
    },
    quick_settings={
        "cases": ((FULL, (2,)), ("diag", (2,)), ("spherical", (2,)), (ANALYSERS, (2,))),
        "rows": 100,
        "drawn": 40,
        "network_rows": 500,
    },
    remarks=(
        about_iterations,
        """
        "Means are good, drawn digits hardly handwritten": yes. Means are clean, if blurred. Drawn digits are
        2s in shreds with full covariances, 2s of grains with diagonal ones, and lie in even noise with
        spherical ones and with factors. All of them are told from real ones. "A component that draws one
        digit only" is not seen in the heaviest, which are shown.
        """,
        about_full,
        about_numbers,
        """
        Left out: full covariances with K = 100 and 200, as in Figs. 3.26 and 3.27. A component would have 60
        or 30 images for 186,966 entries, and K = 30 takes two minutes already.
        """,
    ),
    figures={"-convergence": draw_convergence, "-digits": draw_digits},
)
