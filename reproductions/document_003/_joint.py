"""Joint autoencoders of MNIST that the tables and figures of chapter 6 share."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from latently.datasets import load
from latently.deep import JointAutoencoder
from reproductions.kept import kept_model

SHAPE = (28, 28)
DIGITS = tuple(range(10))
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Channels, epochs and weight of the cross-entropy were chosen on training rows alone: Table 6.1, settings.
CHOSEN = {
    "n_factors": 16,
    "hidden_layer_sizes": [32, 64, 128],
    "activation": "relu",
    "classification_weight": 100.0,
    "learning_rate_schedule": "cosine",
    "max_iter": 30,
}


def of_seeds(settings, seed):
    return range(seed, seed + settings["seeds"])


@cache
def mnist(part):
    """Rows with pixels in [0, 1], and labels."""
    rows = load("mnist")
    X, y = (rows.X_train, rows.y_train) if part == "train" else (rows.X_test, rows.y_test)
    return X.reshape(len(X), -1) / 255, y


def training_rows(n_of_each, seed, classes=DIGITS):
    """So many rows of each class, drawn at random."""
    X, y = mnist("train")
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:n_of_each] for c in classes])
    chosen = rng.permutation(chosen)
    return X[chosen], y[chosen]


def trained(options, n_of_each, seed, classes=DIGITS):
    """A joint autoencoder of MNIST."""
    settings = [options, n_of_each, seed, list(map(int, classes))]
    model = kept_model(
        "joint", settings, lambda: fitted(options, *training_rows(n_of_each, seed, classes), seed)
    )
    return model.to(DEVICE)


def fitted(options, X, y, seed):
    """A joint autoencoder of images."""
    torch.set_num_threads(1)
    return JointAutoencoder(image_shape=SHAPE, random_state=seed, device=DEVICE, **options).fit(X, y)


def letters():
    """All letters of the binary alphadigits and of Pre-NIST, sized as the digits of MNIST, and their names.

    A digit of MNIST is 20 pixels high or wide within 28.
    """
    drawn, names = [], []
    for name in ("binary_alphadigits", "inbmt_pre_nist"):
        rows = load(name)
        labels = np.asarray(rows.class_names)[rows.y]
        for row, label in zip(rows.X, labels, strict=True):
            if label.isalpha():
                drawn.append(_within(row.reshape(rows.image_shape)))
                names.append(label)
    return np.array(drawn), np.array(names)


def _within(image):
    """A binary image as a row of 28 x 28 pixels: its bounding box, smoothly scaled to 20 pixels."""
    rows, columns = np.flatnonzero(image.any(axis=1)), np.flatnonzero(image.any(axis=0))
    box = image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    scale = 20 / max(box.shape)
    height, width = (max(1, round(scale * size)) for size in box.shape)
    whole = np.zeros(SHAPE)
    top, left = (28 - height) // 2, (28 - width) // 2
    picture = _cubic(box.shape[0], height) @ box @ _cubic(box.shape[1], width).T
    whole[top : top + height, left : left + width] = np.clip(picture, 0, 1)
    return whole.ravel()


def _cubic(n_before, n_after):
    """Weights (n_after, n_before) of pixels by a cubic kernel, wider where the image is made smaller."""
    scale = n_before / n_after
    centres = (np.arange(n_after) + 0.5) * scale
    apart = np.abs(np.arange(n_before) + 0.5 - centres[:, None]) / max(scale, 1.0)
    near = (1.5 * apart - 2.5) * apart**2 + 1  # Keys (1981), a = -1/2
    far = ((-0.5 * apart + 2.5) * apart - 4) * apart + 2
    weights = np.where(apart < 1, near, np.where(apart < 2, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)


def fashion():
    rows = load("fashion_mnist")
    return rows.X_test.reshape(len(rows.X_test), -1) / 255
