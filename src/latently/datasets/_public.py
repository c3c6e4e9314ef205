"""Public copies of data sets, converted to the format of the catalogue's files.

scikit-learn's fetchers verify downloads by their own checksums; `load` then compares the arrays returned
here with the catalogue.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import (
    fetch_kddcup99,
    fetch_olivetti_faces,
    fetch_openml,
    load_breast_cancer,
    load_iris,
    load_wine,
)

# ---------------------------------------------------------------------------- bundled with scikit-learn


def iris():
    return _bundled(load_iris())


def wine():
    return _bundled(load_wine())


def wdbc():
    return _bundled(load_breast_cancer())


def _bundled(data):
    return {
        "X": data.data,
        "y": data.target.astype(np.int16),
        "feature_names": np.array(data.feature_names),
        "class_names": np.array(data.target_names),
    }


# ----------------------------------------------------- downloads; `folder` is where the fetchers write


def _openml(data_id, folder):
    # this parser reads decimal numbers exactly, without pandas
    return fetch_openml(
        data_id=data_id, data_home=folder, as_frame=False, return_X_y=True, parser="liac-arff"
    )


def _split(X, y, n_train, **names):
    return {
        "X_train": X[:n_train],
        "y_train": y[:n_train],
        "X_test": X[n_train:],
        "y_test": y[n_train:],
        **names,
    }


def mnist(folder):
    X, y = _openml(554, folder)
    return _split(X.astype(np.uint8), y.astype(np.uint8), 60_000, image_shape=np.array([28, 28]))


def fashion_mnist(folder):
    X, y = _openml(40996, folder)
    garments = "T-shirt/top,Trouser,Pullover,Dress,Coat,Sandal,Shirt,Sneaker,Bag,Ankle boot"
    return _split(
        X.astype(np.uint8),
        y.astype(np.uint8),
        60_000,
        image_shape=np.array([28, 28]),
        class_names=np.array(garments.split(",")),
    )


def usps(folder):
    X, y = _openml(41082, folder)
    # Copies differ in scale and last digits, but all have 2001 grey levels. Ours were scaled in single
    # precision from the range -1 to 1.
    levels = np.rint((X - X.min()) / (X.max() - X.min()) * 2000)
    X = (((levels - 1000) / 1000).astype(np.float32) + 1) / 2
    digits = y.astype(np.int64) - 1  # the public labels start at 1
    return _split(X, digits.astype(np.uint8), 7291, image_shape=np.array([16, 16]))


def seeds(folder):
    X, y = _openml(1499, folder)
    features = (
        "area perimeter compactness kernel_length kernel_width asymmetry_coefficient kernel_groove_length"
    )
    return {
        "X": X,
        "y": y.astype(np.int16) - np.int16(1),
        "feature_names": np.array(features.split()),
        "class_names": np.array(["Kama", "Rosa", "Canadian"]),
    }


def sonar(folder):
    X, y = _openml(40, folder)
    return {"X": X, "y": (y == "Mine").astype(np.int16), "class_names": np.array(["rock", "mine"])}


def olivetti(folder):
    X, y = fetch_olivetti_faces(data_home=folder, return_X_y=True)
    # the brightest pixel is scaled to 1; originally it is 242
    return {
        "X": np.rint(242 * X).astype(np.uint8),
        "y": y.astype(np.int16),
        "image_shape": np.array([64, 64]),
    }


def kddcup99_10pct(folder):
    data = fetch_kddcup99(data_home=folder, percent10=True)
    column = dict(zip(data.feature_names, data.data.T, strict=True))
    categorical = ["protocol_type", "service", "flag"]
    numeric = [name for name in column if name not in categorical]
    levels, codes = zip(
        *(np.unique(_text(column[name]), return_inverse=True) for name in categorical), strict=True
    )
    class_names, y = np.unique(np.char.rstrip(_text(data.target), "."), return_inverse=True)
    return {
        "X_num": np.column_stack([column[name].astype(np.float64) for name in numeric]),
        "num_names": np.array(numeric),
        "X_cat": np.column_stack(codes).astype(np.uint8),
        "cat_names": np.array(categorical),
        **{f"cat_{name}": values for name, values in zip(categorical, levels, strict=True)},
        "y": y.astype(np.uint8),
        "class_names": class_names,
    }


def _text(values):
    return values.astype(bytes).astype(str)
