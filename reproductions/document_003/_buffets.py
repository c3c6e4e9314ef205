"""The methods of chapter 4 of document 003, and images for them."""

from __future__ import annotations

import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from latently.datasets import load, load_com_nist, load_com_usps, load_griffiths
from latently.factorization import IBPIBP, INBMT, MEIBP, PenalizedNMTF

INBMT_, MEIBP_, IBPIBP_, PNMT, FNMTF, KMEANS = "iNBMT", "ME-IBP", "IBP-IBP", "PNMT", "FNMTF", "k-means"
SYN, COM_NIST, COM_USPS = "Syn", "Com-NIST", "Com-USPS"
LUMINANCES = (1.0, 2.0, 3.0)


def composed(name, n_samples, seed):
    """Noisy images with known features: `X`, `clean`, `features` and `image_shape`."""
    if name == SYN:
        data = load_griffiths(n_samples, noise=0.8, luminances=LUMINANCES, random_state=seed)
        data.image_shape = np.array([6, 6])
        data.clean = (data.codes * data.luminances) @ data.features
        return data
    make = load_com_nist if name == COM_NIST else load_com_usps
    return make(n_samples, noise=0.8, random_state=seed)


def models(seed, n_init, n_clusters, max_iter):
    """Estimators by the names of the source, unfitted."""
    learnt = {"n_init": n_init, "max_iter": max_iter, "random_state": seed}
    return {
        INBMT_: INBMT(**learnt),
        MEIBP_: MEIBP(**learnt),
        IBPIBP_: IBPIBP(**learnt),
        PNMT: PenalizedNMTF(*n_clusters, max_iter=max_iter, n_init=n_init, random_state=seed),
    }


def fitted(model, X):
    """The model, and the seconds that its fit took; too few sweeps are no matter."""
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X)
    return model, time.process_time() - began


def reconstruction(model):
    """The rows of the fit without noise, by the codes of the fit."""
    if hasattr(model, "row_factors_"):
        return model.row_factors_ @ model.core_ @ model.column_factors_.T
    return model.codes_ @ model.components_


def pre_images(name, n_test, seed):
    """Rows and classes for training and for tests, drawn from the file, and the size of the images."""
    data = load(name)
    rng = np.random.default_rng(seed)
    by_class = [rng.permutation(np.flatnonzero(data.y == c)) for c in np.unique(data.y)]
    each = n_test // len(by_class)
    test = np.concatenate([rows[:each] for rows in by_class])
    train = np.concatenate([rows[each:] for rows in by_class])
    X = data.X.astype(float)
    return (X[train], data.y[train]), (X[test], data.y[test]), tuple(int(size) for size in data.image_shape)
