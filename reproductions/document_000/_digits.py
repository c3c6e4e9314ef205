"""Chapter 3: digits that are fitted and held out, parts of them, and numbers for digits that were drawn.

The source judges drawn digits by eye. Here a network that was trained on real digits says what it takes them
for, another classifier tries to tell them from real ones, and their distance to the fitted ones is measured.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.stats import entropy
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.model_selection import cross_val_score
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from latently.datasets import load
from latently.factorization import NMF

TWO, ALL = 2, "all"
N_HELD_OUT = 1000
IMAGE_SHAPE = (28, 28)
REBUILT, SHUFFLED, OTHERS = "real, rebuilt", "sources shuffled", "other digits, rebuilt"
NOISE_FLOOR = 0.01
EM = {"tol": 1e-5, "max_iter": 500, "n_init": 1, "accelerate": None, "noise_floor": NOISE_FLOOR}
FITTED, HELD_OUT = "ln p, fitted", "ln p, held out"
DENSITY = {FITTED: ".1f", HELD_OUT: ".1f"}
QUALITY = {
    "called a 2": ".3f",
    "confidence": ".3f",
    "like a digit": ".3f",
    "classes": ".1f",
    "told apart": ".3f",
    "distance": ".2f",
}
ABOUT_QUALITY = """

    Quality is measured on 1000 drawn images. They are treated as the source treats what it shows: negative
    pixels become zero, and the largest of an image becomes one. "Called a 2" is the share that a network
    takes for a 2 which was trained on the 60,000 real training digits (128 hidden units, eight passes; it
    has 0.973 of the 10,000 test digits right), "confidence" the mean probability of the class it chooses,
    and "like a digit" the share for which this is at least what it is for 95% of real test digits. "Told
    apart" is the share of right answers (two folds) of a support vector machine that is to tell 1000 drawn
    images from 1000 real ones: 0.5 is chance, 1 is never mistaken. "Distance" is the median distance to the
    nearest fitted image, over that of held-out images: it is 0 for copies, and above 1 for images that are
    less like the fitted ones than new real ones are.
"""
ABOUT_ROWS = f"""

    "{REBUILT}" are held-out digits made of their own sources, which is the best that sources can do; drawn
    digits are compared with these, not with the originals, so that what the parts leave out tells nobody
    apart. "{SHUFFLED}" takes each source from another fitted digit: sources with the right values that
    know nothing of one another. "{OTHERS}" are real digits of the other nine, made of parts of the 2.
"""
ABOUT_DENSITIES = f"""

    Plain EM from one start by k-means, until the log-likelihood gains less than {EM["tol"]:g} of its size or
    for {EM["max_iter"]} iterations, as in the source. No variance falls below {NOISE_FLOOR:.0%} of that which
    a source has in all fitted images. ln p is the mean log density of the sources of an image, of fitted and
    of held-out images. It may be compared between densities of the same sources only: same digits, same
    number of parts.
"""


@lru_cache(maxsize=12)  # reading the file takes longer than most fits
def images(digit, n_rows, seed):
    """Some training and some test images of a digit, or of all, with pixels from 0 to 1."""
    digits, rng = load("mnist"), np.random.default_rng(seed)

    def some(X, y, n):
        own = np.arange(len(y)) if digit == ALL else np.flatnonzero(y == digit)
        return X[rng.permutation(own)[:n]] / 255

    return some(digits.X_train, digits.y_train, n_rows), some(digits.X_test, digits.y_test, N_HELD_OUT)


def as_shown(rows):
    """Images without negative pixels, the largest being one."""
    rows = np.maximum(rows, 0.0)
    largest = rows.max(axis=1, keepdims=True)
    return rows / np.where(largest > 0, largest, 1.0)


# -- quality ------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def recogniser(n_rows):
    """The network, and the confidence that 95% of real test digits reach."""
    digits = load("mnist")
    network = MLPClassifier(128, alpha=1e-3, max_iter=8, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # eight passes are meant
        network.fit(digits.X_train[:n_rows] / 255, digits.y_train[:n_rows])
    confidence = network.predict_proba(digits.X_test / 255).max(axis=1)
    return network, float(np.quantile(confidence, 0.05))


@dataclass(frozen=True)
class Real:
    """Images to compare drawn ones with."""

    digit: int | str
    fitted: np.ndarray
    held_out: np.ndarray

    def judge(self, drawn, network_rows):
        """The measures of quality of drawn images."""
        drawn = as_shown(drawn)
        return self.recognised(drawn, network_rows) | {
            "told apart": told_apart(drawn, as_shown(self.held_out)),
            "distance": float(self.nearest(drawn) / self.usual_distance),
        }

    def itself(self, network_rows):
        """The same of held-out images, which are to be told from fitted ones."""
        return self.recognised(self.held_out, network_rows) | {
            "told apart": told_apart(as_shown(self.fitted), as_shown(self.held_out)),
            "distance": 1.0,
        }

    def recognised(self, drawn, network_rows):
        """What the network takes images for; "classes" is the number of equally frequent ones."""
        network, usual = recogniser(network_rows)
        probabilities = network.predict_proba(as_shown(drawn))
        called, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
        found = {"confidence": float(confidence.mean()), "like a digit": float(np.mean(confidence >= usual))}
        if self.digit == ALL:
            return found | {"classes": float(np.exp(entropy(np.bincount(called, minlength=10))))}
        return {f"called a {self.digit}": float(np.mean(called == self.digit))} | found

    def nearest(self, shown):
        return np.median(pairwise_distances_argmin_min(shown, as_shown(self.fitted))[1])

    @cached_property
    def usual_distance(self):
        return self.nearest(as_shown(self.held_out))


def told_apart(drawn, real):
    n = min(len(drawn), len(real))
    both = np.concatenate([drawn[:n], real[:n]])
    return float(np.mean(cross_val_score(SVC(C=10.0), both, np.repeat([0, 1], n), cv=2)))


# -- parts and their sources --------------------------------------------------------------------------


@dataclass(frozen=True)
class Parts:
    """An NMF of digits, and the sources of fitted and of held-out ones."""

    factorizer: NMF
    fitted: np.ndarray
    held_out: np.ndarray
    real: Real

    def draw(self, density, n, seed):
        """Images of sources drawn from a density, and the components of these."""
        # not SourceDensity, which would look for the parts anew for each density
        sources, components = density.sample(n, random_state=seed)
        order = np.random.default_rng(seed).permutation(n)
        return self.factorizer.inverse_transform(sources[order]), components[order]

    def references(self, network_rows, seed):
        """What drawn digits are to be held against: names, and measures of quality."""
        rng, real = np.random.default_rng(seed), self.real
        shuffled = rng.permuted(self.fitted, axis=0)[: len(self.held_out)]
        found = {
            REBUILT: real.itself(network_rows),
            SHUFFLED: real.judge(self.factorizer.inverse_transform(shuffled), network_rows),
        }
        if real.digit != ALL:
            digits = load("mnist")
            others = digits.X_test[digits.y_test != real.digit][:N_HELD_OUT] / 255
            found[OTHERS] = real.judge(self.factorizer.reconstruct(others), network_rows)
        return found


@lru_cache(maxsize=8)
def parts(digit, d, n_rows, seed):
    fitted, held_out = images(digit, n_rows, seed)
    factorizer = NMF(d, tol=1e-4, random_state=seed).fit(fitted)
    sources = [factorizer.transform(rows) for rows in (fitted, held_out)]
    rebuilt = [factorizer.inverse_transform(S) for S in sources]
    return Parts(factorizer, *sources, Real(digit, *rebuilt))


def fitted_quietly(model, rows):
    """A fitted model; that it may end at its last iteration is told by a column, or meant."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(rows)


def measured(density, its_parts, n_drawn, network_rows, seed):
    """Of a density of sources: log densities, the quality of what is drawn, and how EM went."""
    drawn, _ = its_parts.draw(density, n_drawn, seed)
    return {
        FITTED: float(density.score(its_parts.fitted)),
        HELD_OUT: float(density.score(its_parts.held_out)),
        **its_parts.real.judge(drawn, network_rows),
        "iterations": int(density.n_iter_),
        "falls": falls(density.history_),
    }


def falls(history):
    """How often an objective fell, beyond rounding."""
    history = np.asarray(history)
    return int(np.sum(np.diff(history) < -1e-9 * np.abs(history[:-1])))


# -- pictures -----------------------------------------------------------------------------------------


def component_lines(name, density, decode, seed, n_lines, n_images=12):
    """Lines of pictures: the mean of one of the heaviest components, and images drawn from it."""
    heaviest = np.argsort(-density.weights_)[:n_lines]
    n = int(4 * n_images / density.weights_[heaviest[-1]])  # enough from each of them
    rows, components = density.sample(n, random_state=seed)
    lines = {}
    for i, k in enumerate(heaviest):
        chosen = np.concatenate([density.means_[[k]], rows[components == k][: n_images - 1]])
        lines[name if i == 0 else f"{name} ({i + 1})"] = as_shown(decode(chosen))
    return lines
