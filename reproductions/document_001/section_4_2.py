"""Section 4.2: sixteen units for handwritten ones and sevens."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from joblib import Parallel, delayed

from latently.datasets import load
from latently.factorization import BNMF
from reproductions.document_001._bars import (
    ABOUT_SOURCE,
    AS_SOURCE,
    EXACT,
    LAST,
    NOISY,
    path,
    random_start,
)
from reproductions.framework import Reproduction
from reproductions.told import listed, span

N_UNITS = 16
PROPER = "at most three on"
JUDGED_AT = 4  # most units on when parameters are judged
CASES = ((NOISY, AS_SOURCE), (EXACT, AS_SOURCE), (EXACT, PROPER))


def images(n_rows, seed):
    """Counts up to 10, of ones and sevens of the first 60,000 digits."""
    digits = load("mnist")
    own = np.flatnonzero(np.isin(digits.y_train, (1, 7)))
    chosen = np.random.default_rng(seed).choice(own, size=n_rows, replace=False)
    return np.round(digits.X_train[chosen] / 25.5)


def measure(settings, seed):
    X = images(settings["rows"], seed)
    records = []
    for key, model in models(**settings, seed=seed).items():
        on = model.transform(X)
        weights = model.components_
        records.append(
            dict(zip(REPRODUCTION.keys, key, strict=True))
            | {
                "bound": float(np.mean(model.bound(X))),
                "pi": float(model.activation_probability_),
                "units on": float(np.mean(on.sum(axis=1))),
                "one unit on": float(np.mean(on.sum(axis=1) < 1.5)),
                "least used": float(on.mean(axis=0).min()),
                "most used": float(on.mean(axis=0).max()),
                "ink of a unit": float(np.mean(weights.sum(axis=1)) / np.mean(X.sum(axis=1))),
            }
        )
    return records


@lru_cache(maxsize=1)  # what is drawn is what was measured
def models(rows, n_iter, n_jobs, seed):
    X = images(rows, seed)
    found = Parallel(n_jobs=n_jobs)(delayed(fitted)(X, *case, n_iter, seed) for case in CASES)
    return dict(zip(CASES, found, strict=True))


def fitted(X, step, truncation, n_iter, seed):
    rng = np.random.default_rng([seed, 1])
    weights, probability = random_start(N_UNITS, X.shape[1], rng)
    if truncation == AS_SOURCE:
        steps = path(X, weights, probability, step, truncation=2, truncation_at_end=3, n_iter=n_iter, rng=rng)
        weights, probability = steps[-1]
        model = BNMF.from_parameters(components=weights, activation_probability=probability)
    else:
        model = BNMF(
            N_UNITS,
            truncation=3,
            components_init=weights,
            activation_probability_init=probability,
            max_iter=n_iter,
            tol=0,
            accelerate=None,
        ).fit(X)
    return model.set_params(truncation=JUDGED_AT, candidates=None)


def draw_weights(result):
    """Fig. 4.9."""
    from reproductions.plots.planes import image_lines

    lines = {}
    for (step, truncation), model in models(**result.settings, seed=result.seed).items():
        weights = model.components_[np.argsort(-model.components_.sum(axis=1))]
        lines[f"{step}\n{truncation}"] = np.minimum(weights / 10, 1)
    return image_lines(lines, (28, 28), title="Ones and sevens: weights, the unit with most ink first")


def draw_reconstructions(result):
    """Fig. 4.8, and what the model makes of these digits."""
    from reproductions.plots.planes import image_lines

    X = images(result.settings["rows"], result.seed)[:12]
    lines = {"images": X / 10}
    for (step, truncation), model in models(**result.settings, seed=result.seed).items():
        lines[f"{step}\n{truncation}"] = np.minimum(model.reconstruct(X) / 10, 1)
    return image_lines(lines, (28, 28), title="Ones and sevens: images, and what units make of them")


def about_units(told):
    return f"""
        Still an image is about two units, {span(told.all("units on"), ".2f")} on average, each with about
        half of its ink: a digit is the sum of faint ones that it lies between.
    """


def about_bound(told):
    noisy, exact, proper = (told("bound", *case) for case in CASES)
    return f"""
        Exact steps end with a bound that is higher by {exact - noisy:.0f} per image. Without the source's
        normalisation, which lets images with many units count less, it is higher by {proper - exact:.0f}
        more.
    """


def about_pi(told):
    pi, found = (told.all(name, ..., AS_SOURCE) for name in ("pi", "units on"))
    expected = [N_UNITS * value for value in pi]
    return f"""
        Under the source's truncation pi is corrected for images with more units on than are used; with
        {listed(pi, ".3f")} for {N_UNITS} units it expects {listed(expected, ".1f")} of them, more than the
        {listed(found, ".2f")} that are found.
    """


REPRODUCTION = Reproduction(
    id="001/section-4.2",
    title="sixteen units for handwritten ones and sevens",
    source="Document 001, section 4.2, Figs. 4.8 and 4.9, which have no numbers",
    data="""
        6500 ones and sevens, drawn from those of the first 60,000 digits of MNIST, 28 x 28 pixels, scaled to
        a maximum of 10 and rounded, because Poisson noise makes counts; the source says nothing of rounding.
    """,
    protocol=f"""
        {ABOUT_SOURCE}

        Truncation "{AS_SOURCE}": the source sets the most units on to pi H, but pi is not
        known here; we take two, with posteriors normalised over up to three, and in the last {LAST}
        iterations three and four. "{PROPER}", beyond the source, is the bound over such states. All have the
        same start and 60 iterations, without acceleration.

        "Bound" is a lower bound of the log-likelihood per
        image, over states with at most {JUDGED_AT} units on, however the parameters were learnt. "Units on"
        is the expected number per image, "one unit on" the share of images for which it is below 1.5, "least
        used" and "most used" the share of images in which such a unit is on, and "ink of a unit" the mean sum
        of a unit's weights over that of an image's pixels.
    """,
    keys=("step", "truncation"),
    columns={
        "bound": ".1f",
        "pi": ".3f",
        "units on": ".2f",
        "one unit on": ".2f",
        "least used": ".3f",
        "most used": ".3f",
        "ink of a unit": ".2f",
    },
    published=(),
    measure=measure,
    settings={"rows": 6500, "n_iter": 60, "n_jobs": -1},
    quick_settings={"rows": 50, "n_iter": 11, "n_jobs": 1},
    remarks=(
        """
        "Holistic representations": seen in all three. Nearly all units are whole ones and sevens of some
        slant and width; a couple are strokes that some writers add, at the middle or the foot, and dim, as
        the source says.
        """,
        about_units,
        about_bound,
        about_pi,
    ),
    figures={"-weights": draw_weights, "-images": draw_reconstructions},
)
