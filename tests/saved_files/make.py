"""Writes a small file for every class that can be saved, with what it answers: these must load for ever.

    python -m tests.saved_files.make            writes files of classes that have none yet
    python -m tests.saved_files.make MFA NMF    writes those of these classes anew

A file is written anew only if its class has never been released in the old form.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

from latently.deep import DAGMM, DBN, DMCFA, DMFA, RBM, VAE, JointAutoencoder
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
from latently.saved import KNOWN_CLASSES
from latently.selection import Imputer, OutlierDetector
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

HERE = Path(__file__).parent
METHODS = ("score_samples", "predict", "predict_proba", "transform", "reconstruct", "impute", "bound")


def rows():
    """(40, 3) two groups of non-negative numbers of which every other one has the label 1."""
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    return np.round(rng.gamma(4.0, size=(40, 3)) + 6.0 * y[:, None]), y


def models():
    """By name: that of the class, or of the class and a variant, such as "MFA-robust"."""
    few = {"max_iter": 5, "n_init": 1, "random_state": 0}
    return {
        "GaussianMixture": GaussianMixture(2, covariance_type="tied", **few),
        "FactorAnalysis": FactorAnalysis(1, **few),
        "PPCA": PPCA(1),
        "MFA": MFA(2, 1, **few),
        "MFA-robust": MFA(2, 1, tails="t", noise_component=True, **few),
        "MPPCA": MPPCA(2, 1, shared_noise=True, **few),
        "MCFA": MCFA(2, 2, **few),
        "NestedMixture": NestedMixture(2, 2, covariance_type="diag", **few),
        "BayesianGaussianMixture": BayesianGaussianMixture(4, **few),
        "BayesianMFA": BayesianMFA(3, 2, **few),
        "BayesianMCFA": BayesianMCFA(3, 2, **few),
        "MixedMixture": MixedMixture(
            2, columns={0: "count", 1: list(range(1, 21)), 2: "number"}, unseen="missing", **few
        ),
        "PerClass": PerClass(DMFA(1, 1, 1, 1, **few), reject_below=-30.0),
        "MJFAClassifier": MJFAClassifier(2, 2, **few),
        "MFMClassifier": MFMClassifier(1, 2, **few),
        "NMF": NMF(2, max_iter=5, random_state=0),
        "NMTF": NMTF(2, 2, **few),
        "PenalizedNMTF": PenalizedNMTF(2, 2, **few),
        "FastNMTF": FastNMTF(3, 2, **few),
        "NLMF": NLMF(2, mapping="logistic", constraint="semi", max_iter=5, random_state=0),
        "NLMFClassifier": NLMFClassifier(2, session="dual", sigma2=0.5, max_iter=5, random_state=0),
        "DeepNLMF": DeepNLMF(
            (3, 2),
            mapping=("tanh", "logistic"),
            sigma2=(0.5, 0.1),
            fine_tune=True,
            fine_tune_iter=2,
            max_iter=5,
        ),
        "BNMF": BNMF(3, **few),
        "LinearGaussianIBP": LinearGaussianIBP(max_iter=5, random_state=0),
        "MEIBP": MEIBP(init_components=3, **few),
        "IBPIBP": IBPIBP(init_components=3, **few),
        "INBMT": INBMT(init_components=3, **few),
        "BinarySparseCoding": BinarySparseCoding(3, **few),
        "PCA": PCA(2),
        "VectorQuantizer": VectorQuantizer(3, n_init=1, random_state=0),
        "SourceDensity": SourceDensity(PCA(3), MFA(2, 1, **few)),
        "CodebookGenerator": CodebookGenerator(
            NMF(3, max_iter=5, random_state=0), 2, n_init=1, random_state=0
        ),
        "Imputer": Imputer([PPCA(1), PPCA(2)], cv=2, n_jobs=1, random_state=0),
        "OutlierDetector": OutlierDetector(PPCA(1), contamination=0.2),
        "ClassifierScore": ClassifierScore(PerClass(PPCA(1)), kind="energy"),
        "MahalanobisScore": MahalanobisScore(transformer=PCA(2), reject_below=-3.0),
        "NeighborScore": NeighborScore(n_neighbors=2, transformer=PCA(2)),
        "DMFA": DMFA(2, 2, 2, 1, **few),
        "DMCFA": DMCFA(2, 2, 2, 1, **few),
        "DBN": DBN(
            (4, 3), visible="gaussian", visible_variance=10.0, fine_tune=2, max_iter=5, random_state=0
        ),
        "VAE": VAE(1, hidden_layer_sizes=[3], prior="mixture", max_iter=5, random_state=0),
        "DAGMM": DAGMM(2, 1, hidden_layer_sizes=[3], max_iter=5, random_state=0),
        "JointAutoencoder": JointAutoencoder(
            2, hidden_layer_sizes=[3], reject_below=-30.0, max_iter=5, random_state=0
        ),
        "RBM": RBM(3, visible="gaussian", visible_variance=10.0, max_iter=5, random_state=0),
    }


def answers(model):
    """What the methods of a model say of three rows, as lists of numbers."""
    X = rows()[0][:3]
    found = {name: np.asarray(getattr(model, name)(X)).tolist() for name in METHODS if hasattr(model, name)}
    if hasattr(model, "sample"):
        found["sample"] = np.asarray(model.sample(2, random_state=0)[0]).tolist()
    return found


def main(names):
    X, y = rows()
    for name, model in models().items():
        path = HERE / f"{name}.latently"
        if name in names or not (names or path.exists()):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so few iterations do not converge
                model.fit(X, y)
            model.save(path)
            text = json.dumps(answers(model), indent=1)
            path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
            print(f"wrote {path.name}")
    assert {name.partition("-")[0] for name in models()} == set(KNOWN_CLASSES)


if __name__ == "__main__":
    main(set(sys.argv[1:]))
