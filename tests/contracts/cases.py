"""Every public estimator in one list, small and quick to fit, and what a contract can ask of each.

A contract picks the cases to which it applies by method (`having("sample")`), by constructor parameter
(`having(options=("warm_start",))`), by tag, or by what a case says of itself where scikit-learn has no tag.
"""

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import has_fit_parameter

from latently import deep
from latently.deep import DMCFA, DMFA
from latently.factorization import (
    BNMF,
    IBPIBP,
    INBMT,
    MEIBP,
    NLMF,
    NMF,
    NMTF,
    PCA,
    BinarySparseCoding,
    DeepNLMF,
    FastNMTF,
    LinearGaussianIBP,
    NLMFClassifier,
    PenalizedNMTF,
    VectorQuantizer,
)
from latently.generate import CodebookGenerator, SourceDensity
from latently.mixture import (
    MCFA,
    MFA,
    MPPCA,
    PPCA,
    BayesianGaussianMixture,
    BayesianMCFA,
    BayesianMFA,
    FactorAnalysis,
    GaussianMixture,
    MixedMixture,
    NestedMixture,
)
from latently.rejection import MahalanobisScore, NeighborScore
from latently.selection import Imputer, OutlierDetector
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass
from tests.contracts.models import rows

N, D = 60, 4
CLOSE = {"rtol": 1e-6, "atol": 1e-7}
EVERYWHERE = frozenset({"files", "dask", "torch"})
# Methods with a result for every row, as far as estimators have them.
ROW_METHODS = (
    *("score_samples", "predict", "predict_proba", "predict_log_proba", "transform", "reconstruct", "impute"),
    *("predict_codes", "predict_component", "predict_subcomponents", "subcomponent_proba", "bound"),
    *("factor_posterior", "row_cost", "accepts", "sources", "score_sources", "memberships", "energy"),
)


def log_likelihood(model, X, y):
    return model.score(X)


def joint_log_likelihood(model, X, y):
    """Of rows and their classes, as far as these are known."""
    classes = np.searchsorted(model.classes_, np.maximum(y, 0))
    told = model.predict_log_proba(X)[np.arange(len(X)), classes]
    return np.mean(model.score_samples(X) + np.where(y < 0, 0.0, told))


def classification_likelihood(model, X, y):
    """Of rows and the components they are assigned to."""
    return np.mean(model.score_samples(X) + np.log(model.predict_proba(X).max(axis=1)))


def cost(model, X, y):
    """Of a factorisation with the sources of its fit."""
    labels = () if y is None else (y,)
    return model.cost(X, *labels, activations=model.activations_).total


def cost_of_factors(model, X, y):
    return model.cost(X, row_factors=model.row_factors_).total


def cost_of_labels(model, X, y):
    return model.cost(X, row_labels=model.row_labels_).total


@dataclass(frozen=True)
class Case:
    """How to build an estimator, and what it takes."""

    name: str
    make: Callable[..., Any]  # of options: the estimator before `fit`
    rows: str = "real"  # or "counts", or "unit" for the interval from 0 to 1
    holes: bool = False  # whether some entries of the rows are missing
    n_classes: int = 3  # of classifiers
    unlabelled: bool = False  # whether some rows have no label
    sources: frozenset = EVERYWHERE  # of rows, besides arrays and tables in memory
    objective: Callable | None = log_likelihood  # (model, X, y): what the last entry of `history_` is
    direction: int = 1  # of the objective: 1 rises, -1 falls
    trained: bool = (
        False  # in mini-batches with draws, so that the order of rows decides and history is noisy
    )
    in_closed_form: bool = False  # whether the fit takes no iterations
    layered: bool = False  # whether several fits follow one another, each with its own history
    counted: bool = (
        False  # whether rows are visited in order, and their number matters, as in an Indian buffet
    )
    turned: bool = (
        False  # whether rounding decides on how factors are turned, which the density does not tell
    )

    def __str__(self):
        return self.name

    # -- what it can do -------------------------------------------------------------------------------

    @cached_property
    def cls(self):
        return type(self.make())

    @cached_property
    def options(self):
        return set(self.make().get_params(deep=False))

    @cached_property
    def tags(self):
        return self.make().__sklearn_tags__()

    def has(self, method):
        return hasattr(self.make(), method)

    @property
    def is_classifier(self):
        return is_classifier(self.make())

    @property
    def takes_weights(self):
        return has_fit_parameter(self.make(), "sample_weight")

    @property
    def takes_nan(self):
        return self.tags.input_tags.allow_nan

    @property
    def is_iterative(self):
        stepwise = {"max_iter", "tol", "callbacks"} <= self.options
        return stepwise and not (self.in_closed_form or self.layered or self.trained)

    @property
    def settled(self):
        """Methods whose results a fit settles, however sums are rounded."""
        return [m for m in ROW_METHODS if not (self.turned and m in ("transform", "factor_posterior"))]

    @property
    def float32(self):
        """How closely float32 rows are followed: products may be in float32 too, where a tag says so."""
        kept = getattr(self.tags.transformer_tags, "preserves_dtype", ())
        return {"rtol": 1e-3, "atol": 1e-4} if "float32" in kept and self.rows == "counts" else CLOSE

    # -- rows -----------------------------------------------------------------------------------------

    def data(self, n=N, n_features=D, seed=0):
        """Rows that the estimator takes, and their classes for a classifier (else None).

        Numbers are multiples of 1/8, which float32 holds as well.
        """
        return self.like(rows(np.random.default_rng(seed), n, n_features), seed)

    def like(self, X, seed=0):
        """Other rows, as the estimator takes them, and classes by a direction that tells something."""
        rng = np.random.default_rng(seed + 1)
        y = None
        if self.is_classifier:
            direction = X[:, 0] + 0.5 * rng.normal(size=len(X)) * np.ptp(X[:, 0]) / 4
            ranks = np.argsort(np.argsort(direction))
            y = ranks * self.n_classes // len(X)
            if self.unlabelled:
                y[np.arange(len(X)) % 3 == 0] = -1
        if self.rows == "unit":
            X = 0.5 + np.arctan(np.where(np.isfinite(X), X, np.sign(X))) / np.pi
        if self.rows == "counts":
            X = np.abs(X)
        with np.errstate(over="ignore"):
            X = np.round(X) if self.rows == "counts" else np.where(np.abs(X) < 1e6, np.round(8 * X) / 8, X)
        if self.holes:
            X = np.where(rng.random(X.shape) < 0.1, np.nan, X)
            X[np.isnan(X).all(axis=1), 0] = 1.0
        return X, y

    # -- fits -----------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None, *, to=None, **options):
        """The estimator with these options, or `to`, fitted; too few iterations are no matter."""
        model = self.make(**options) if to is None else to
        weight = {} if sample_weight is None else {"sample_weight": sample_weight}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            return model.fit(X, y, **weight) if y is not None else model.fit(X, **weight)


@cache
def fitted(case):
    """A model that tests share: they must not change it."""
    return case.fit(*case.data())


@cache
def expected(case):
    """What that model says of the rows it was fitted to."""
    return answers(fitted(case), case.data()[0])


# -- the list -----------------------------------------------------------------------------------------

QUICK = {"max_iter": 4, "tol": 0.0, "n_init": 1, "random_state": 0}
PLAIN = {**QUICK, "accelerate": None}  # where an accelerated iteration is up to nine passes
CLASSES = {"objective": joint_log_likelihood}
IN_MEMORY = {"sources": frozenset()}
# Rows that classes borrow and temperatures learnt by folds are extras around a fit, for rows in memory; they
# have tests of their own. Without them a classifier keeps every contract of its model.
OF_ALL_ROWS = {"temperature": None, "unlabelled_weight": 1.0}
ALONE = {"shrinkage": None, **OF_ALL_ROWS}
CHOOSING = {"cv": 2, "n_jobs": 1, "random_state": 0}
KINDS_OF_COLUMNS = {0: "count", 1: list(range(40)), 2: "number", 3: "number"}
FALLING = {"direction": -1, "objective": cost}
IN_FACTORS = {"direction": -1, "sources": frozenset({"files", "dask"})}
BY_ROW_FACTORS = {"objective": cost_of_factors, **IN_FACTORS}
BY_ROW_LABELS = {"objective": cost_of_labels, **IN_FACTORS}
PRIORS = {"concentration_prior": [1, 1], "noise_prior": [1, 1e-3]}  # lists, as files have them
UNMOVED = {**PLAIN, **PRIORS, "moves": False}
BUFFET = {**IN_MEMORY, "objective": None, "rows": "counts"}
LAYERED = {"direction": -1, "objective": None, "layered": True}
BOUND = {"objective": None}  # of a posterior, not of the parameters that a model shows
CASES = [
    Case("GaussianMixture", partial(GaussianMixture, 2, **QUICK)),
    Case("GaussianMixture-spherical", partial(GaussianMixture, 2, covariance_type="spherical", **QUICK)),
    Case("GaussianMixture-VVE", partial(GaussianMixture, 2, covariance_type="VVE", **QUICK)),
    Case("FactorAnalysis", partial(FactorAnalysis, 2, **QUICK)),
    Case("PPCA", partial(PPCA, 2, **QUICK), in_closed_form=True),
    Case("PPCA-holes", partial(PPCA, 2, **QUICK), holes=True),
    Case("MFA", partial(MFA, 2, 2, **QUICK)),
    Case("MFA-holes", partial(MFA, 2, 2, shared_noise=True, **QUICK), holes=True),
    Case("MFA-CUCU-holes", partial(MFA, 2, 2, covariance_type="CUCU", **QUICK), holes=True),
    Case("MPPCA", partial(MPPCA, 2, 1, **QUICK)),
    Case("MCFA", partial(MCFA, 2, 2, **QUICK)),
    Case("MCFA-shared", partial(MCFA, 2, 2, shared_covariance=True, **PLAIN)),
    Case("GaussianMixture-t", partial(GaussianMixture, 2, tails="t", **QUICK)),
    Case("MFA-noise-holes", partial(MFA, 2, 2, noise_component=True, **QUICK), holes=True),
    Case("MPPCA-noise", partial(MPPCA, 2, 1, noise_component=True, **QUICK)),
    Case("MCFA-t-noise", partial(MCFA, 2, 2, tails="t", noise_component=True, **QUICK)),
    Case("BayesianGaussianMixture-holes", partial(BayesianGaussianMixture, 2, **QUICK), **BOUND, holes=True),
    Case("BayesianMFA", partial(BayesianMFA, 2, 2, **QUICK), **BOUND),
    Case("BayesianMFA-holes", partial(BayesianMFA, 2, 2, **QUICK), **BOUND, holes=True),
    Case("BayesianMCFA", partial(BayesianMCFA, 2, 2, **QUICK), **BOUND),
    Case("BayesianMCFA-holes", partial(BayesianMCFA, 2, 2, **QUICK), **BOUND, holes=True),
    Case(
        "NestedMixture",
        partial(NestedMixture, 2, 2, covariance_type="tied", **QUICK),
        objective=classification_likelihood,
    ),
    Case("MixedMixture", partial(MixedMixture, 2, n_factors=1, **QUICK)),
    Case(
        "MixedMixture-kinds",
        partial(MixedMixture, 2, columns=KINDS_OF_COLUMNS, unseen="missing", **QUICK),
        rows="counts",
        sources=frozenset({"files", "dask"}),  # tensors hold numbers only
    ),
    Case("MJFAClassifier", partial(MJFAClassifier, 2, 2, **PLAIN, **ALONE), **CLASSES),
    Case(
        "MJFAClassifier-unlabelled",
        partial(MJFAClassifier, 1, 2, **PLAIN, **ALONE),
        unlabelled=True,
        **CLASSES,
    ),
    Case("MFMClassifier", partial(MFMClassifier, 2, 2, **PLAIN, **OF_ALL_ROWS), n_classes=2, **CLASSES),
    Case(
        "MFMClassifier-unlabelled",
        partial(MFMClassifier, 1, 1, **QUICK, **OF_ALL_ROWS),
        unlabelled=True,
        objective=None,  # of several questions
    ),
    Case(
        "PerClass-MFA", partial(PerClass, MFA(2, 1, **QUICK), shrinkage=None, temperature=None), **IN_MEMORY
    ),
    Case(
        "PerClass-Gaussian",
        partial(PerClass, GaussianMixture(), shrinkage=None, temperature=None),
        **IN_MEMORY,
    ),
    Case("NMF", partial(NMF, 2, **QUICK), rows="counts", direction=-1, objective=None),
    Case("NMF-mu", partial(NMF, 2, solver="mu", **QUICK), rows="counts", direction=-1, objective=None),
    Case("NMF-kl", partial(NMF, 2, loss="kl", **QUICK), rows="counts", direction=-1, objective=None),
    Case("NMF-beta", partial(NMF, 2, loss=0.5, **QUICK), rows="counts", direction=-1, objective=None),
    Case("NLMF", partial(NLMF, 2, sigma2=0.5, alpha=0.1, beta=0.1, **QUICK), **FALLING),
    Case("NLMF-holes", partial(NLMF, 2, mapping="logistic", solver="exact", **QUICK), holes=True, **FALLING),
    Case(
        "NLMF-mu",
        partial(NLMF, 2, mapping="ratio", constraint="non_negative", solver="mu", **QUICK),
        rows="counts",
        **FALLING,
    ),
    Case("NLMFClassifier", partial(NLMFClassifier, 2, gamma=0.2, **QUICK), **FALLING),
    Case(
        "NLMFClassifier-unlabelled",
        partial(NLMFClassifier, 2, mapping="logistic", constraint="semi", solver="exact", **QUICK),
        rows="counts",
        unlabelled=True,
        **FALLING,
    ),
    Case("DeepNLMF", partial(DeepNLMF, [3, 2], sigma2=[0.5, 0.2], **QUICK), **LAYERED),
    Case("DeepNLMF-tuned", partial(DeepNLMF, [3, 2], fine_tune=True, fine_tune_iter=3, **QUICK), **LAYERED),
    Case("NMTF", partial(NMTF, 2, 2, **QUICK), rows="counts", **BY_ROW_FACTORS),
    Case(
        "PenalizedNMTF-holes",
        partial(PenalizedNMTF, 2, 2, **QUICK),
        rows="counts",
        holes=True,
        **BY_ROW_FACTORS,
    ),
    Case("FastNMTF", partial(FastNMTF, 3, 2, init="random", **QUICK), **BY_ROW_LABELS),
    Case("BNMF", partial(BNMF, 3, **QUICK), rows="counts"),
    Case("BinarySparseCoding", partial(BinarySparseCoding, 3, **QUICK)),
    Case(
        "LinearGaussianIBP",
        partial(LinearGaussianIBP, max_iter=4, random_state=0, **PRIORS, component_prior=[1, 1e-3]),
        counted=True,
        **{**IN_MEMORY, "trained": True, "objective": None},
    ),
    Case(
        "MEIBP",
        partial(MEIBP, component_prior=[1, 1e-3], init_components=4, **UNMOVED),
        counted=True,
        **BUFFET,
    ),
    Case("INBMT", partial(INBMT, core_prior=[1, 1e-3], init_components=3, **UNMOVED), counted=True, **BUFFET),
    Case("IBPIBP", partial(IBPIBP, rate_prior=[1, 1], init_components=3, **UNMOVED), counted=True, **BUFFET),
    Case("VectorQuantizer", partial(VectorQuantizer, 3, n_init=2, random_state=0), **IN_MEMORY),
    Case("PCA", partial(PCA, 2), **IN_MEMORY),
    Case("SourceDensity", partial(SourceDensity, PCA(), GaussianMixture(2, **QUICK)), **IN_MEMORY),
    Case(
        "CodebookGenerator",
        partial(CodebookGenerator, VectorQuantizer(6, n_init=1, random_state=0), 2, n_init=1, random_state=0),
        **IN_MEMORY,
    ),
    Case(
        "Imputer",
        partial(Imputer, [PPCA(1, **QUICK), MFA(2, 1, **QUICK)], **CHOOSING),
        holes=True,
        **IN_MEMORY,
    ),
    Case("OutlierDetector", partial(OutlierDetector, MFA(2, 1, **QUICK)), sources=frozenset({"files"})),
    Case("MahalanobisScore", MahalanobisScore, **IN_MEMORY),
    Case("NeighborScore", partial(NeighborScore, transformer=PCA(2)), **IN_MEMORY),
    Case("DMFA", partial(DMFA, 2, 2, 2, 1, **QUICK), layered=True, turned=True),
    Case("DMFA-tuned", partial(DMFA, 2, 2, 2, 1, fine_tune=True, **QUICK), layered=True, turned=True),
    Case("DMCFA", partial(DMCFA, 2, 2, 2, 1, **PLAIN), layered=True),
    Case("DMCFA-tuned", partial(DMCFA, 2, 2, 2, 1, fine_tune=True, **QUICK), layered=True),
]
NETWORKS = {"DAGMM", "DBN", "JointAutoencoder", "RBM", "VAE"}
HAVE_TORCH = importlib.util.find_spec("torch") is not None
if HAVE_TORCH:
    TRAINED = {"trained": True, "sources": frozenset({"files", "torch"})}
    EPOCHS = {"max_iter": 3, "batch_size": 16, "random_state": 0}
    CASES += [
        Case("RBM", partial(deep.RBM, 3, **EPOCHS), rows="unit", **TRAINED),
        Case("RBM-gaussian", partial(deep.RBM, 3, visible="gaussian", persistent=True, **EPOCHS), **TRAINED),
        Case("DBN", partial(deep.DBN, [3, 2], **EPOCHS), rows="unit", layered=True, **TRAINED),
        Case(
            "DBN-tuned",
            partial(deep.DBN, [3, 4, 2], fine_tune=2, visible="gaussian", **EPOCHS),
            layered=True,
            **TRAINED,
        ),
        Case("VAE", partial(deep.VAE, 2, hidden_layer_sizes=[6], prior="mixture", **EPOCHS), **TRAINED),
        Case(
            "VAE-bernoulli",
            partial(deep.VAE, 1, hidden_layer_sizes=[3], likelihood="bernoulli", **EPOCHS),
            rows="unit",
            **TRAINED,
        ),
        Case(
            "DAGMM",
            partial(deep.DAGMM, 2, 1, hidden_layer_sizes=[6], estimation_layer_sizes=[4], **EPOCHS),
            **TRAINED,
        ),
        Case(
            "JointAutoencoder",
            partial(deep.JointAutoencoder, 2, hidden_layer_sizes=[6], **EPOCHS),
            unlabelled=True,
            **TRAINED,
        ),
        Case(
            "JointAutoencoder-variational",
            partial(deep.JointAutoencoder, 2, hidden_layer_sizes=[6], variational=True, **EPOCHS),
            **TRAINED,
        ),
    ]


def having(*methods, options=(), **facts):
    """Parametrises a test by the cases with these methods, constructor parameters and facts."""
    chosen = [
        case
        for case in CASES
        if all(map(case.has, methods))
        and set(options) <= case.options
        and all(getattr(case, name) == value for name, value in facts.items())
    ]
    assert chosen, "a contract that applies to no estimator"
    return pytest.mark.parametrize("case", chosen, ids=str)


def from_source(source):
    """Parametrises a test by the cases that take rows from there."""
    return pytest.mark.parametrize("case", [case for case in CASES if source in case.sources], ids=str)


every_case = pytest.mark.parametrize("case", CASES, ids=str)
# One of each kind of fit. Rows, seeds and files of all estimators are read by the same functions: what only
# these functions do is asked of few cases.
KINDS = (
    *("GaussianMixture", "MFA-holes", "MJFAClassifier", "PerClass-Gaussian", "NMF", "NLMFClassifier", "BNMF"),
    *("PCA", "DMFA", "RBM"),
)


def in_every_form(name, forms, of_all, cases=None):
    """Parametrises a test by cases and forms: those in `of_all` with every case, the others with few."""
    chosen = [
        pytest.param(case, form, id=f"{form}-{case}")
        for form in forms
        for case in (CASES if cases is None else cases)
        if form in of_all or case.name in KINDS
    ]
    return pytest.mark.parametrize(("case", name), chosen)


# -- comparisons --------------------------------------------------------------------------------------


def answers(model, X, methods=ROW_METHODS):
    """All that a fitted estimator says of rows: arrays by the name of the method."""
    said = {}
    for method in methods:
        if hasattr(model, method):
            result = getattr(model, method)(X)
            for number, part in enumerate(result if isinstance(result, tuple) else (result,)):
                said[f"{method}.{number}"] = np.asarray(part)
    return said


NOT_SAVED = {
    "activations_",
    "row_factors_",
    "row_labels_",
    "history_parts_",
}  # they belong to the rows of a fit, and to its way


def state(value, name=""):
    """Fitted attributes as arrays by name, those of estimators within estimators as well."""
    if hasattr(value, "state_dict"):  # a torch module
        value = dict(value.state_dict())
    if isinstance(value, dict):
        parts = [state(part, f"{name}.{key}") for key, part in value.items()]
        return {key: array for part in parts for key, array in part.items()}
    if hasattr(value, "get_params"):
        kept = [key for key in vars(value) if key.endswith("_") and key not in NOT_SAVED]
        parts = [state(getattr(value, key), f"{name}.{key}") for key in kept]
        return {key: array for part in parts for key, array in part.items()}
    if isinstance(value, (list, tuple)):
        parts = [state(part, f"{name}.{number}") for number, part in enumerate(value)]
        return {key: array for part in parts for key, array in part.items()}
    return {} if value is None else {name: np.asarray(value)}


def numbers(model):
    """The fitted arrays of real numbers; the threshold of rejection may be infinite."""
    arrays = state(model)
    return [arrays[name] for name in arrays if arrays[name].dtype.kind == "f" and "reject_below" not in name]


def assert_equal(actual, expected, rtol=0.0, atol=0.0):
    """Two dicts of arrays agree, by default to the last bit."""
    assert actual.keys() == expected.keys()
    for name, array in expected.items():
        if rtol == atol == 0.0 or array.dtype.kind not in "fc":
            np.testing.assert_array_equal(actual[name], array, err_msg=name)
        else:
            np.testing.assert_allclose(actual[name], array, rtol=rtol, atol=atol, err_msg=name)
