"""Beyond the source: twenty bars, of which all states could not be listed in reasonable time."""

from __future__ import annotations

import time
from functools import lru_cache

import numpy as np
from joblib import Parallel, delayed

from latently.datasets import load_bars
from latently.factorization import BNMF
from reproductions.document_001._bars import (
    ABOUT_FOUND,
    ABOUT_SOURCE,
    LAST,
    NOISY,
    in_order,
    judged,
    path,
    random_start,
)
from reproductions.framework import Reproduction

PLAIN, DEFAULT, SOURCE = "BNMF, one start, plain EM", "BNMF", f"source's start, {NOISY}"
MOST_ON = {PLAIN: 3, DEFAULT: 3, SOURCE: 2}
JUDGED_AT = 4  # most units on when codes are judged


def measure(settings, seed):
    records = []
    for method, runs in fits(**settings, seed=seed).items():
        found = [
            judged(weights, pi, drawing(settings["size"], settings["rows"], seed, i), truncation=JUDGED_AT)
            | {"iterations": n_iter, "seconds": seconds}
            for i, (weights, pi, n_iter, seconds) in enumerate(runs)
        ]
        means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
        whole = sum(one["bars"] == 2 * settings["size"] for one in found)
        records.append(
            {"method": method, "most on": MOST_ON[method], "all bars": f"{whole} of {len(found)}"} | means
        )
    return records


def drawing(size, rows, seed, i):
    return load_bars(size, rows, probability=0.1, random_state=1000 * seed + i)


@lru_cache(maxsize=1)  # what is drawn is what was measured
def fits(size, rows, draws, n_iter, n_jobs, seed):
    """Weights, probability, iterations and seconds of each draw, by method."""
    images = [drawing(size, rows, seed, i) for i in range(draws)]
    tasks = [(method, images[i], n_iter, [seed, i]) for method in MOST_ON for i in range(draws)]
    found = Parallel(n_jobs=n_jobs)(delayed(fitted)(*task) for task in tasks)
    return {method: found[i * draws : (i + 1) * draws] for i, method in enumerate(MOST_ON)}


def fitted(method, bars, n_iter, seeds):
    rng = np.random.default_rng(seeds)
    began = time.perf_counter()
    if method == SOURCE:
        start = random_start(*bars.components.shape, rng)
        cuts = {"truncation": MOST_ON[SOURCE], "truncation_at_end": MOST_ON[SOURCE] + 1}
        weights, probability = path(bars.X, *start, NOISY, **cuts, n_iter=n_iter, rng=rng)[-1]
        return weights, probability, n_iter, time.perf_counter() - began
    model = BNMF(
        len(bars.components),
        truncation=MOST_ON[method],
        candidates=None,
        random_state=int(rng.integers(2**31)),
    )
    if method == PLAIN:
        model.set_params(n_init=1, max_iter=n_iter, tol=0, accelerate=None)
    model.fit(bars.X)
    seconds = time.perf_counter() - began
    return model.components_, float(model.activation_probability_), model.n_iter_, seconds


def draw(result):
    from reproductions.plots.planes import image_lines

    bars = drawing(result.settings["size"], result.settings["rows"], result.seed, 0)
    lines = {"truth": bars.components}
    for method, runs in fits(**result.settings, seed=result.seed).items():
        weights = runs[0][0]
        lines[method.replace(", ", "\n")] = weights[in_order(weights, bars)]
    white = 1.2 * bars.components.max()
    lines = {name: np.minimum(weights / white, 1.0) for name, weights in lines.items()}
    title = f"{len(bars.components)} bars: weights, in the order of the bars"
    return image_lines(lines, bars.image_shape, title=title)


def about_bars(told):
    return f"""
        BNMF finds all twenty bars in both draws, and so does the first of its starts alone, by 60 plain
        steps. The source's algorithm finds {told("bars", SOURCE):.0f} of them on average.
    """


def about_pi(told):
    return f"""
        pi is {told("pi", DEFAULT, 3):.3f} where 0.1 is true, because with at most three units on the images
        with more count as if they had three. All else comes out right: codes are right in
        {told("codes right", DEFAULT, 3):.3f} of the units.
    """


REPRODUCTION = Reproduction(
    id="001/large-bars",
    title="twenty bars",
    source="beyond document 001, whose bars are eight (section 4.1)",
    data="""
        2000 images of 10 x 10 pixels (load_bars), each with twenty bars of weight 10 that are there with
        probability 0.1: two on average, at most three in 0.867 and at most four in 0.957 of the images.
    """,
    protocol=f"""
        "{DEFAULT}" is BNMF with its defaults but for truncation and candidates=None (all units may be on in
        any image); "{PLAIN}" has n_init=1 and 60 iterations without acceleration. {ABOUT_SOURCE}
        At most two units are on there (pi H), and three in the last {LAST} iterations. {ABOUT_FOUND}

        Numbers are means over draws of the images; "amplitudes off by" is the largest relative error of a
        bar's mean weight, "codes right" the share of units whose state in the most probable code, with at
        most {JUDGED_AT} on, is true. "Seconds" are of a whole fit with its starts.
    """,
    keys=("method", "most on"),
    columns={
        "all bars": "",
        "bars": ".1f",
        "amplitudes off by": ".3f",
        "pi": ".4f",
        "codes right": ".4f",
        "iterations": ".0f",
        "seconds": ".1f",
    },
    published=(),
    measure=measure,
    settings={"size": 10, "rows": 2000, "draws": 2, "n_iter": 60, "n_jobs": -1},
    quick_settings={"size": 4, "rows": 300, "draws": 1, "n_iter": 20, "n_jobs": 1},
    remarks=(
        about_bars,
        about_pi,
    ),
    figures={"": draw},
)
