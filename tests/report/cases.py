"""Models and rows that the tests of reports share, and a reader of pages."""

from functools import cache
from html.parser import HTMLParser

import numpy as np
from sklearn.datasets import load_digits, load_iris, load_wine

from latently.factorization import BNMF
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture
from latently.selection import select
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

NASTY = "</script><img src=x onerror=alert(1)>'\"&<b>\u2028"


def wine():
    """Scaled rows, their classes, and names of the features."""
    data = load_wine()
    return data.data / data.data.std(axis=0), data.target_names[data.target], data.feature_names


@cache
def holed():
    """Iris with one cell in twenty missing."""
    X = load_iris().data.copy()
    X[np.random.default_rng(0).random(X.shape) < 0.05] = np.nan
    return X


@cache
def digits():
    data = load_digits()
    return (data.data[:400] + np.random.default_rng(0).random((400, 64))) / 17, data.target[:400]


@cache
def counts():
    rng = np.random.default_rng(0)
    return rng.poisson(rng.random((80, 3)) @ rng.gamma(1.0, 4.0, size=(3, 6))).astype(float)


@cache
def search():
    X, _, _ = wine()
    return select(MCFA(n_init=1), X, {"n_components": [2, 3], "n_factors": [1, 2, 3]}, random_state=0)


@cache
def mcfa():
    return search().best_


@cache
def fitted(name):
    """A fitted model and rows for it."""
    X, y, _ = wine()
    return {
        "GaussianMixture": lambda: (GaussianMixture(3, covariance_type="tied", random_state=0).fit(X), X),
        "one Gaussian": lambda: (GaussianMixture(1).fit(X), X),
        "one feature": lambda: (GaussianMixture(2, random_state=0).fit(X[:, :1]), X[:, :1]),
        "FactorAnalysis": lambda: (FactorAnalysis(2).fit(X), X),
        "PPCA": lambda: (PPCA(1).fit(X), X),
        "MFA": lambda: (MFA(3, 1, random_state=0, n_init=2, tol=1e-5).fit(holed()), holed()),
        "no factors": lambda: (MFA(2, 0, random_state=0).fit(X), X),
        "MPPCA": lambda: (MPPCA(2, 2, random_state=0).fit(X), X),
        "MCFA": lambda: (mcfa(), X),
        "MFMClassifier": lambda: (MFMClassifier(2, 2, random_state=0, n_init=1, tol=1e-4).fit(X, y), X),
        "MJFAClassifier": lambda: (MJFAClassifier(1, 2, random_state=0).fit(X, y), X),
        "PerClass": lambda: (PerClass(FactorAnalysis(2)).fit(X, y), X),
        "BNMF": lambda: (BNMF(3, random_state=0, n_init=1).fit(counts()), counts()),
    }[name]()


MODELS = (
    "GaussianMixture|one Gaussian|one feature|FactorAnalysis|PPCA|MFA|no factors|MPPCA|MCFA|MFMClassifier|"
    "MJFAClassifier|PerClass|BNMF"
).split("|")


class Reader(HTMLParser):
    """A page taken apart; it complains of tags that do not match."""

    EMPTY = ("meta", "img", "br", "input")

    def __init__(self, html):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self._open = [], [], []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()

    def handle_data(self, data):
        self.texts.append((self._open[-1] if self._open else "", data))

    def count(self, tag):
        return sum(found == tag for found, _ in self.elements)

    def text(self, tag=None):
        unseen = ("script", "style") if tag is None else ()
        return "".join(data for within, data in self.texts if tag in (None, within) and within not in unseen)

    def all(self, attribute):
        return [attrs[attribute] for _, attrs in self.elements if attribute in attrs]

    def headings(self):
        return [data for within, data in self.texts if within == "h2"]
