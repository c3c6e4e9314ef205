"""What chapter 4 is about: the algorithm of the source, iteration by iteration, and when a bar is found."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from latently.factorization import BNMF

EXACT, LEAST_SQUARES = "exact", "least squares"
NOISY = f"{LEAST_SQUARES}, noise"
M_STEPS = {EXACT: "exact", LEAST_SQUARES: "least_squares", NOISY: "least_squares"}
WITHOUT, AS_SOURCE = "none", "source"
N_ITER = 60
LAST = 10  # iterations at the end, without noise and with more units on
NOISE = 0.05  # times a Poisson number of mean one is added to each weight
ABOUT_SOURCE = f"""

    The algorithm of the source: weights begin uniform between 0 and 1, and so does the probability pi of a
    unit to be on; weights move by least squares, with negative ones set to zero (eq. 3.8). We also let them
    move by the step of EM for Poisson noise ("{EXACT}"). "{NOISY}": after each iteration but the last {LAST},
    {NOISE:g} times a Poisson number of mean one is added to each weight; the source adds "small" noise, of
    which it says no more.
"""
ABOUT_FOUND = """

    Units are assigned to bars so that squared distances are least. A bar is found if its unit is above half
    of the true weight on the pixels of the bar, and below it on all others.
"""


def random_start(n_units, n_features, rng):
    """Weights and probability as the source begins."""
    return rng.uniform(size=(n_units, n_features)), rng.uniform()


def path(X, weights, probability, step, *, truncation=None, truncation_at_end=None, n_iter=N_ITER, rng=None):
    """Weights and probability of the start and after each iteration; `rng` makes the noise."""
    found = [(weights, probability)]
    for i in range(n_iter):
        ending = i >= n_iter - LAST
        model = BNMF(
            len(weights),
            truncation=truncation_at_end if ending else truncation,
            truncation_rule="source",
            candidates=None,
            m_step=M_STEPS[step],
            components_init=weights,
            activation_probability_init=probability,
            max_iter=1,
            tol=0,
            accelerate=None,
        ).fit(X)
        weights, probability = model.components_, float(model.activation_probability_)
        if step == NOISY and not ending:
            weights = weights + NOISE * rng.poisson(1.0, size=weights.shape)
        found.append((weights, probability))
    return found


def in_order(weights, bars):
    """Indices of the units, in the order of the bars that they are nearest to."""
    return linear_sum_assignment(cdist(bars.components, weights, "sqeuclidean"))[1]


def judged(weights, probability, bars, *, truncation=None):
    """How near parameters come to the truth."""
    order = in_order(weights, bars)
    weights, own = weights[order], bars.components > 0
    strength = np.sum(weights * own, axis=1) / np.sum(bars.components, axis=1)
    model = BNMF.from_parameters(
        components=weights, activation_probability=probability, truncation=truncation
    )
    codes = model.set_params(candidates=None).predict_codes(bars.X)
    return {
        "bars": int(np.sum(np.all((weights > bars.components.max() / 2) == own, axis=1))),
        "amplitudes off by": float(np.max(np.abs(strength - 1))),
        "pi": float(probability),
        "codes right": float(np.mean(codes == bars.codes)),
    }
