"""`latently.load`: any estimator from its file."""

from __future__ import annotations

import importlib
from pathlib import Path

from latently.core import io
from latently.core.io import ModelFileError
from latently.estimators import saving

# Models of tables, which are no estimators of arrays.
_OF_TABLES = {"TableModel": "latently.tables"}
# Which class a file may name, and where it lives. A file never decides what is imported.
KNOWN_CLASSES = {
    "GaussianMixture": "latently.mixture",
    "FactorAnalysis": "latently.mixture",
    "PPCA": "latently.mixture",
    "MFA": "latently.mixture",
    "BayesianGaussianMixture": "latently.mixture",
    "BayesianMCFA": "latently.mixture",
    "BayesianMFA": "latently.mixture",
    "MPPCA": "latently.mixture",
    "MCFA": "latently.mixture",
    "NestedMixture": "latently.mixture",
    "MixedMixture": "latently.mixture",
    "PerClass": "latently.supervised",
    "MJFAClassifier": "latently.supervised",
    "MFMClassifier": "latently.supervised",
    "NMF": "latently.factorization",
    "NLMF": "latently.factorization",
    "NLMFClassifier": "latently.factorization",
    "DeepNLMF": "latently.factorization",
    "NMTF": "latently.factorization",
    "PenalizedNMTF": "latently.factorization",
    "FastNMTF": "latently.factorization",
    "DMFA": "latently.deep",
    "DMCFA": "latently.deep",
    "RBM": "latently.deep",
    "DAGMM": "latently.deep",
    "JointAutoencoder": "latently.deep",
    "DBN": "latently.deep",
    "VAE": "latently.deep",
    "LinearGaussianIBP": "latently.factorization",
    "MEIBP": "latently.factorization",
    "IBPIBP": "latently.factorization",
    "INBMT": "latently.factorization",
    "BNMF": "latently.factorization",
    "BinarySparseCoding": "latently.factorization",
    "VectorQuantizer": "latently.factorization",
    "PCA": "latently.factorization",
    "SourceDensity": "latently.generate",
    "CodebookGenerator": "latently.generate",
    "Imputer": "latently.selection",
    "OutlierDetector": "latently.selection",
    "ClassifierScore": "latently.rejection",
    "MahalanobisScore": "latently.rejection",
    "NeighborScore": "latently.rejection",
}


def load(path, **needed):
    """Read an estimator that was written by its `save` method.

    Nothing in the file is executed. A file that is damaged, of another version or not one of ours is a
    :class:`latently.core.io.ModelFileError`.

    Parameters
    ----------
    path : str or path-like
        The file; or a folder that the command line wrote, which holds a :class:`latently.tables.TableModel`.
    **needed
        What the file could not hold, as `save` said: the `encoder` and `decoder` of networks of
        your own. Their parameters are those of the file.

    Returns
    -------
    estimator
        A fitted estimator of the class that was saved.

    Examples
    --------
    >>> import latently
    >>> from latently.mixture import PPCA
    >>> model = PPCA.from_parameters(mean=[0.0, 0.0], loadings=[[1.0], [2.0]], noise_variance=0.5)
    >>> model.save("ppca.latently")
    >>> latently.load("ppca.latently").score([[1.0, 2.0]]) == model.score([[1.0, 2.0]])
    True
    """
    if Path(path).is_dir():
        return _table_model(Path(path))
    header, arrays = io.read(path)
    name = header.get("class")
    if not _is_known(name):
        raise ModelFileError(f"{str(path)!r} holds a {name!r}, which this version of latently does not have")
    more = header.get("more")
    needs = more.get("needs", []) if isinstance(more, dict) else []
    unknown = sorted(name for name in needed if name not in needs)
    if unknown:
        raise TypeError(f"{str(path)!r} needs no {', '.join(unknown)}; it needs {needs or 'nothing more'}")
    try:
        return saving.rebuild(_class_named, header, arrays, needed)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise ModelFileError(f"{str(path)!r} does not hold a valid {name}: {error}") from None


MODEL, DESCRIPTION = "model.latently", "description.json"  # of a folder


def _table_model(folder):
    """The table model in a folder, whose description must be that of the model."""
    from latently.tables.preparation import check_description, described

    if not (folder / MODEL).is_file():
        raise ModelFileError(
            f"{str(folder)!r} is not a folder written by latently fit or select: it has no {MODEL}"
        )
    model = load(folder / MODEL)
    if type(model).__name__ != "TableModel":
        raise ModelFileError(
            f"{str(folder / MODEL)!r} holds a {type(model).__name__} without the preparation of its table, "
            "as earlier versions of latently wrote it; fit it again"
        )
    path = folder / DESCRIPTION
    try:
        if not path.is_file():
            raise ValueError("it is missing")
        if path.stat().st_size > 2 * len(described(model.preparation_).encode()) + 10_000:
            raise ValueError("it is not that of the model beside it: it is too large")
        check_description(path.read_text(encoding="utf-8"), model.preparation_)
    except ValueError as error:
        raise ModelFileError(f"the description {str(path)!r} cannot be used: {error}") from None
    return model


def _class_named(name):
    if not _is_known(name):
        raise ValueError(f"this version of latently has no {name!r}")
    return getattr(importlib.import_module({**KNOWN_CLASSES, **_OF_TABLES}[name]), name)


def _is_known(name):
    return isinstance(name, str) and (name in KNOWN_CLASSES or name in _OF_TABLES)
