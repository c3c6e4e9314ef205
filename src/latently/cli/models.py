"""Models by name, and their options as text."""

from __future__ import annotations

import difflib
import importlib
import inspect
import re
from dataclasses import dataclass

from latently.cli.speaking import shown
from latently.selection.criteria import CRITERIA


@dataclass(frozen=True)
class Model:
    """What the command line needs to know about a class without importing it."""

    home: str
    name: str
    title: str
    k: str | None = "n_components"  # the parameter that -k sets
    q: str | None = "n_factors"  # the parameter that -q sets
    kind: str = "density"  # or "deep", "classes" (a classifier), "parts" (a factorisation) or "network"
    may_use_labels: bool = False  # whether labels are used if there are any
    usual_q: tuple[int, ...] = ()  # that -q stands for unless it is given, if not the usual range

    @property
    def labels(self):
        """Whether it needs labels."""
        return self.kind == "classes"

    def can_be_chosen_by(self, criterion):
        """Whether sizes can be selected by the criterion of this name."""
        if self.kind == "parts":  # some of these can impute missing values
            return CRITERIA[criterion].serves(self.load())
        return self.kind == "density" and not CRITERIA[criterion].labels

    def load(self):
        return getattr(importlib.import_module(self.home), self.name)


_MIXTURE, _SUPERVISED, _DEEP, _PARTS = (
    f"latently.{name}" for name in ("mixture", "supervised", "deep", "factorization")
)
MODELS = {
    "mcfa": Model(_MIXTURE, "MCFA", "clusters in one common subspace"),
    "mfa": Model(_MIXTURE, "MFA", "mixture of factor analysers"),
    "mppca": Model(_MIXTURE, "MPPCA", "mixture of probabilistic PCA"),
    "gaussian-mixture": Model(_MIXTURE, "GaussianMixture", "Gaussian mixture", q=None),
    "bayesian-mixture": Model(
        _MIXTURE, "BayesianGaussianMixture", "Gaussian mixture that finds its size", k=None, q=None
    ),
    "bayesian-mfa": Model(
        _MIXTURE, "BayesianMFA", "mixture of factor analysers that finds its sizes", k=None, q=None
    ),
    "bayesian-mcfa": Model(
        _MIXTURE, "BayesianMCFA", "clusters in one common subspace that find their sizes", k=None, q=None
    ),
    "mixed": Model(
        _MIXTURE,
        "MixedMixture",
        "numbers, categories, ordered answers, counts and dates side by side",
        usual_q=(0,),
    ),
    "nested": Model(_MIXTURE, "NestedMixture", "mixture of Gaussian mixtures", q=None),
    "fa": Model(_MIXTURE, "FactorAnalysis", "factor analysis", k=None),
    "ppca": Model(_MIXTURE, "PPCA", "probabilistic PCA", k=None),
    "mjfa": Model(_SUPERVISED, "MJFAClassifier", "classes in one common subspace", kind="classes"),
    "mfm": Model(_SUPERVISED, "MFMClassifier", "factors that also predict the label", kind="classes"),
    "per-class": Model(_SUPERVISED, "PerClass", "a density for each class", kind="classes"),
    "dmfa": Model(_DEEP, "DMFA", "MFA with a mixture in each component", kind="deep"),
    "dmcfa": Model(_DEEP, "DMCFA", "MCFA with a mixture in each component", kind="deep"),
    "vae": Model(_DEEP, "VAE", "variational autoencoder", k=None, kind="network"),
    "dagmm": Model(_DEEP, "DAGMM", "anomalies by an autoencoder and a mixture of codes", kind="network"),
    "joint-autoencoder": Model(
        _DEEP,
        "JointAutoencoder",
        "an autoencoder that classifies, generates and rejects",
        k=None,
        kind="classes",
    ),
    "rbm": Model(
        _DEEP,
        "RBM",
        "restricted Boltzmann machine, for rows in [0, 1]",
        q=None,
        kind="network",
    ),
    "dbn": Model(
        _DEEP,
        "DBN",
        "deep belief net, for rows in [0, 1]",
        k=None,
        q=None,
        kind="network",
        may_use_labels=True,
    ),
    "nmf": Model(_PARTS, "NMF", "non-negative matrix factorisation", q=None, kind="parts"),
    "nlmf": Model(_PARTS, "NLMF", "non-linear matrix factorisation", q=None, kind="parts"),
    "nlmf-classifier": Model(
        _PARTS, "NLMFClassifier", "non-linear factors that also predict the label", q=None, kind="classes"
    ),
    "deep-nlmf": Model(
        _PARTS,
        "DeepNLMF",
        "layers of non-linear factors that predict the label",
        k=None,
        q=None,
        kind="classes",
    ),
    "nmtf": Model(
        _PARTS,
        "NMTF",
        "clusters of rows and of columns",
        k="n_row_clusters",
        q="n_column_clusters",
        kind="parts",
    ),
    "penalized-nmtf": Model(
        _PARTS,
        "PenalizedNMTF",
        "clusters of rows and of columns that hardly overlap",
        k="n_row_clusters",
        q="n_column_clusters",
        kind="parts",
    ),
    "fast-nmtf": Model(
        _PARTS,
        "FastNMTF",
        "one cluster for each row and each column",
        k="n_row_clusters",
        q="n_column_clusters",
        kind="parts",
    ),
    "bnmf": Model(_PARTS, "BNMF", "counts as sums of binary causes", q=None, kind="parts"),
    "meibp": Model(_PARTS, "MEIBP", "binary features, as many as needed", k=None, q=None, kind="parts"),
    "inbmt": Model(
        _PARTS,
        "INBMT",
        "binary codes of rows and of columns, as many as needed",
        k=None,
        q=None,
        kind="parts",
    ),
    "ibp-ibp": Model(
        _PARTS, "IBPIBP", "binary features that come with categories", k=None, q=None, kind="parts"
    ),
    "ibp": Model(
        _PARTS, "LinearGaussianIBP", "binary features by Gibbs sampling", k=None, q=None, kind="parts"
    ),
    "binary-sparse-coding": Model(
        _PARTS, "BinarySparseCoding", "real numbers as sums of binary causes", q=None, kind="parts"
    ),
}
DEFAULT = "mcfa"
_DENSITY = "mcfa"  # the default of per-class
# Options of estimators that cannot be given on the command line, or have their own options there.
_NOT_OPTIONS = {
    "encoder",
    "decoder",
    "callbacks",
    "verbose",
    "warm_start",
    "random_state",
    "max_iter",
    "tol",
    "class_prior",
    "fixed_components",
    "columns",
}


def model_named(name):
    """The model of this name."""
    if name in MODELS:
        return MODELS[name]
    close = difflib.get_close_matches(name, MODELS, n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    raise ValueError(f"there is no model {shown(name)}{meant}; there are {', '.join(MODELS)}")


def build(model, sizes, options, *, seed, max_iter=None, tol=None):
    """An unfitted estimator; `options` are texts such as "noise=isotropic"."""
    given = dict(_split(option) for option in options)
    settings = dict(sizes)
    settings |= {name: value for name, value in (("max_iter", max_iter), ("tol", tol)) if value is not None}
    if model.name == "PerClass":
        density = model_named(given.pop("density", _DENSITY))
        if density.labels:
            raise ValueError("the option density of per-class must be a model without labels, such as mfa")
        kept = {name: size for name, size in settings.items() if name not in {"n_components", "n_factors"}}
        kept |= {name: sizes[name] for name in (density.k, density.q) if name in sizes}
        return model.load()(_made(density, kept, given, seed))
    return _made(model, settings, given, seed)


def _made(model, settings, given, seed):
    cls = model.load()
    parameters = inspect.signature(cls).parameters
    sizes = {model.k, model.q}
    allowed = [
        name
        for name in parameters
        if name not in _NOT_OPTIONS | sizes and (name == "n_init" or not name.endswith("_init"))
    ]
    for name, text in given.items():
        if name not in allowed:
            raise ValueError(f"{model.name} has no option {shown(name)}; there are {', '.join(allowed)}")
        settings = settings | {name: _typed(name, text, parameters[name].default)}
    seeded = {"random_state": seed} if "random_state" in parameters else {}
    return cls(**seeded, **settings)


def _split(option):
    name, equals, text = option.partition("=")
    if not equals:
        raise ValueError(f"an option must have the form name=value, not {shown(option)}")
    return name.strip().replace("-", "_"), text.strip()


def _typed(name, text, default):
    """The text as a value of the type of the default; the estimator itself checks the value.

    A comma separates the values of a setting that may have one for each layer.
    """
    if "," in text:
        return tuple(_typed(name, part.strip(), None) for part in text.split(","))
    word = text.lower()
    if word == "none":
        return None
    if isinstance(default, bool):
        if word not in ("true", "false"):
            raise ValueError(f"the option {name} must be true or false, not {shown(text)}")
        return word == "true"
    if isinstance(default, tuple) or re.fullmatch(r"\d+(,\d+)+", word):  # sizes of layers or images
        return tuple(numbers_of(name, text))
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    if isinstance(default, int | float):
        raise ValueError(f"the option {name} must be a number, not {shown(text)}")
    return text


def numbers_of(name, text):
    """The integers in "500,500,2000"; none in an empty text."""
    try:
        return [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise ValueError(
            f"the option {name} must be numbers with commas, such as 200,50, not {shown(text)}"
        ) from None


_LARGEST_RANGE = 1000


def numbers_in(text, option):
    """The numbers in "3", "1..6" or "1,2,4..6", in ascending order.

    Examples
    --------
    >>> from latently.cli.models import numbers_in
    >>> numbers_in("1..3,8", "-k")
    [1, 2, 3, 8]
    """
    found = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,6})\s*(?:\.\.\s*(\d{1,6})\s*)?", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last < first + _LARGEST_RANGE:
            raise ValueError(
                f"{option} must be a number, a range such as 1..6 or a list with commas, not {shown(text)}"
            )
        found |= set(range(first, last + 1))
    return sorted(found)
