"""Joint autoencoders of MNIST that the tables and figures of chapter 6 share."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image

from latently.datasets import load
from latently.deep import JointAutoencoder
from reproductions.kept import kept_model

SHAPE = (28, 28)
DIGITS = tuple(range(10))
# Chosen on 8000 of the 10,000 training rows by the other 2000: channels, epochs, weight of the cross-entropy.
CHOSEN = {
    "n_factors": 16,
    "hidden_layer_sizes": [32, 64],
    "activation": "relu",
    "classification_weight": 10.0,
    "learning_rate_schedule": "cosine",
}


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


def trained(options, n_of_each, epochs, seed, classes=DIGITS):
    """A joint autoencoder of MNIST."""

    def fit():
        torch.set_num_threads(1)
        model = JointAutoencoder(image_shape=SHAPE, max_iter=epochs, random_state=seed, **options)
        return model.fit(*training_rows(n_of_each, seed, classes))

    settings = [options, n_of_each, epochs, seed, list(map(int, classes))]
    return kept_model("joint", settings, fit)


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
    picture = Image.fromarray((255 * box).astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    whole = np.zeros(SHAPE)
    top, left = (28 - height) // 2, (28 - width) // 2
    whole[top : top + height, left : left + width] = np.asarray(picture) / 255
    return whole.ravel()


def fashion():
    rows = load("fashion_mnist")
    return rows.X_test.reshape(len(rows.X_test), -1) / 255
