"""scikit-learn's own checks, for every public estimator and the variants that differ in code."""

import pytest
from sklearn.neighbors import KernelDensity
from sklearn.utils.estimator_checks import parametrize_with_checks

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
from latently.rejection import ClassifierScore, MahalanobisScore, NeighborScore
from latently.selection import Imputer, OutlierDetector
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass
from tests.contracts.cases import CASES, HAVE_TORCH
from tests.contracts.models import ALL

LOOSE = {"tol": 1e-2, "n_init": 1}  # to save time
SMALL = MFA(2, 1, random_state=0, max_iter=5, **LOOSE)
FULL = GaussianMixture()
EM = {"tol": 1e-3, "n_init": 2, "max_iter": 20}
FEW_SWEEPS = {"tol": 1e-3, "max_iter": 10}
FEW_CODES = {"init_components": 2, "moves": False, "n_init": 1, "max_iter": 4, "random_state": 0}
CHECKED = [  # one of every class
    GaussianMixture(2, **EM),
    BayesianGaussianMixture(2, **EM),
    BayesianMFA(2, 1, **EM),
    BayesianMCFA(2, 1, **EM),
    FactorAnalysis(),
    PPCA(),
    MFA(2, 1, **EM),
    MPPCA(2, 1, **EM),
    MCFA(2, 1, **EM),
    NestedMixture(2, 2, covariance_type="diag", random_state=0, **LOOSE),
    MixedMixture(2, random_state=0, **LOOSE),
    MJFAClassifier(2, 1, max_iter=5, **LOOSE),
    MFMClassifier(**FEW_SWEEPS),
    PerClass(SMALL),
    NMF(**FEW_SWEEPS),
    NLMF(**FEW_SWEEPS),
    NLMFClassifier(**FEW_SWEEPS),
    DeepNLMF((2, 2), **FEW_SWEEPS),
    NMTF(**LOOSE),
    PenalizedNMTF(**LOOSE),
    FastNMTF(**LOOSE),
    MEIBP(**FEW_CODES),
    INBMT(**FEW_CODES),
    IBPIBP(**FEW_CODES),
    LinearGaussianIBP(max_iter=3, random_state=0),
    BNMF(3, **LOOSE),
    BinarySparseCoding(2, **LOOSE),
    VectorQuantizer(2, n_init=1, random_state=0),
    PCA(),
    SourceDensity(PCA(), GaussianMixture()),
    CodebookGenerator(n_groups=2, random_state=0),
    Imputer([GaussianMixture(covariance_type="diag"), SMALL], cv=2, n_jobs=1, random_state=0),
    OutlierDetector(SMALL),
    ClassifierScore(PerClass(FULL)),
    MahalanobisScore(),
    NeighborScore(n_neighbors=2),
    DMFA(**LOOSE),
    DMCFA(**LOOSE),
]
if HAVE_TORCH:  # rows of the checks are any numbers, which binary units refuse
    FEW = {"max_iter": 2, "random_state": 0}
    CHECKED += [
        deep.RBM(3, visible="gaussian", **FEW),
        deep.DBN((3, 2), visible="gaussian", **FEW),
        deep.VAE(1, **FEW),
        deep.DAGMM(2, 1, hidden_layer_sizes=(5,), max_iter=1, random_state=0),
        deep.JointAutoencoder(1, hidden_layer_sizes=(5,), batch_size=16, max_iter=12, random_state=0),
    ]
VARIANTS = [  # that differ in code
    *(cls() for cls in (GaussianMixture, MFA, MPPCA, MCFA)),
    *(model.unfitted(2, 1, tol=1e-3) for model in ALL),
    GaussianMixture(2, tails="t", **EM),
    MFA(2, 1, tails="t", noise_component=True, **EM),
    MCFA(2, 1, noise_component=True, **EM),
    NestedMixture(random_state=0, **LOOSE),
    MJFAClassifier(tol=1e-4),
    MFMClassifier(2, 2, **LOOSE),
    PerClass(FULL),
    PerClass(PPCA(1)),
    PerClass(KernelDensity()),
    NMF(2, loss="kl", tol=1e-3),
    NMF(2, solver="mu", tol=1e-3),
    NLMF(2, constraint="non_negative", mapping="ratio", tol=1e-3),
    NLMF(2, solver="gradient", tol=1e-3),
    NLMF(2, solver="exact", alpha=0.1, beta=0.1, tol=1e-3),
    NLMFClassifier(2, session="dual", tol=1e-3),
    NLMFClassifier(2, constraint="semi", mapping="logistic", tol=1e-3),
    BNMF(),
    BNMF(4, truncation=2, **LOOSE),
    BNMF(4, truncation=2, truncation_rule="conditional", **LOOSE),
    BinarySparseCoding(),
    *(VectorQuantizer(2, init=init, n_init=1, random_state=0) for init in ("rows", "unit")),
    PCA(1),
    SourceDensity(PCA(), KernelDensity()),
    CodebookGenerator(PCA(1), n_groups=1, random_state=0),
    DMFA(2, 1, 2, 1, fine_tune=True, **LOOSE),
    DMCFA(2, 1, 2, 1, fine_tune=True, **LOOSE),
]
# A row of weight 2 cannot be shared by two components, as the same row twice can.
TOO_FEW_ROWS = {"check_sample_weight_equivalence_on_dense_data": "one row of some weight in a class"}


def test_every_estimator_is_checked():
    cases = {case.cls for case in CASES} | {ClassifierScore}
    assert {type(estimator) for estimator in CHECKED} == cases


# A row of weight 2 is in one mini-batch, with one draw, where the same row twice may be in two.
BATCHES = {"check_sample_weight_equivalence_on_dense_data": "batches differ from those of repeated rows"}


# Borrowed rows are rounded to 40 binary digits, of which covariances of ten features and five rows lose four.
ROUNDED = {"check_sample_weight_equivalence_on_dense_data": "digits of borrowed rows"}


def expected_failures(model):
    if type(model).__name__ == "DAGMM":
        return {}  # the rows of the check are one batch, whose statistics are weighted
    if hasattr(model, "validation_fraction"):
        return BATCHES
    if getattr(model, "density", None) is FULL:
        return ROUNDED
    return TOO_FEW_ROWS if getattr(model, "density", None) is SMALL else {}


quiet = pytest.mark.filterwarnings(
    "ignore:too few rows for a",
    "ignore:y is ignored:UserWarning",  # the checks hand targets of all kinds to every estimator,
    "ignore:X holds numbers that are not counts:UserWarning",  # any numbers,
    "ignore:X has constant features:UserWarning",  # classes of a few rows,
    "ignore:divide by zero encountered in log:RuntimeWarning",  # and to KernelDensity weights of zero
    "ignore::sklearn.exceptions.ConvergenceWarning",
)


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
@quiet
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(VARIANTS, expected_failed_checks=expected_failures)
@quiet
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)
