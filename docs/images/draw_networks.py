"""Draw the pictures of models that need torch, and of NLMF, from the examples of their pages.

`python docs/images/draw_networks.py` writes them to docs/images/networks, in about half a minute. They are
kept as files because the pages are built without torch.
"""

from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from PIL import Image
from sklearn.datasets import load_digits

from latently.deep import DAGMM, DBN, RBM, VAE, JointAutoencoder
from latently.factorization import NLMFClassifier
from latently.plots import ImageGridDisplay

FOLDER = Path(__file__).parent / "networks"


def save(figure, name):
    """Save a figure with few colours."""
    path = FOLDER / f"{name}.png"
    figure.savefig(path, dpi=60)
    Image.open(path).convert("RGB").quantize(48, dither=Image.Dither.NONE).save(path, optimize=True)
    plt.close(figure)


def grids(pictures, n_columns):
    """Grids of images side by side, each with its scale."""
    figure, axes = plt.subplots(1, len(pictures), figsize=(10 / 3 * len(pictures), 3.2), layout="constrained")
    for ax, (title, (images, scale)) in zip(axes, pictures.items(), strict=True):
        ImageGridDisplay(images, (8, 8), scale=scale, n_columns=n_columns).plot(ax)
        ax.set_title(title)
    return figure


def histograms(ax, scores, threshold, name):
    """Scores of two kinds of rows; those below the range are in its first bin."""
    every = np.concatenate(list(scores.values()))
    span = np.quantile(every, 0.03), every.max()
    for label, values in scores.items():
        ax.hist(values.clip(span[0]), bins=40, range=span, alpha=0.6, density=True, label=label)
    ax.axvline(threshold, color="k", linewidth=1, label=name)
    ax.set(xlabel="score", yticks=[])
    ax.legend()


def boltzmann(X):
    X = (X > 7).astype(float)
    model = RBM(16, batch_size=20, max_iter=20, random_state=0).fit(X[:1500])
    drawn = model.sample(30, n_steps=500, random_state=0)[0]
    weights = {"weights of 16 hidden units": (model.components_, "single")}
    save(grids({"digits": (X[:30], None), **weights, "digits drawn": (drawn, None)}, 6), "rbm")


def belief_net(X, y):
    X = X / 16
    model = DBN((64, 64), learning_rate=0.2, batch_size=20, max_iter=15, random_state=0)
    made = model.fit(X[:1500], y[:1500]).generate(np.tile(np.arange(10), 3), random_state=0)
    digits = np.stack([X[y == label][j] for j in range(3) for label in range(10)])
    save(
        grids({"digits of 0 to 9": (digits, None), "generated, by class": (made.clip(0, 1), None)}, 10), "dbn"
    )


def autoencoder(X):
    X = X / 16
    settings = {"hidden_layer_sizes": (50,), "likelihood": "bernoulli", "max_iter": 15, "random_state": 0}
    model = VAE(4, prior="mixture", **settings).fit(X[:1500])
    new = X[1500:1530]
    rebuilt, drawn = model.reconstruct(new), model.sample(30, random_state=0)[0]
    save(grids({"digits": (new, None), "reconstructed": (rebuilt, None), "drawn": (drawn, None)}, 6), "vae")


def joint_autoencoder(X, y):
    known = y != 4
    train, held_out = X[known][:1000], X[known][1000:]
    model = JointAutoencoder(hidden_layer_sizes=(64,), max_iter=30, random_state=0)
    model = model.fit(train, y[known][:1000]).calibrate_rejection(held_out, acceptance=0.95)
    made = model.generate(np.tile(np.unique(y[known]), 3), random_state=0).clip(0, 16) / 16
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    ImageGridDisplay(made, (8, 8), scale=None, n_columns=9).plot(axes[0])
    axes[0].set_title("generated, by class")
    scores = {"known digits, held out": held_out, "fours, never seen": X[~known]}
    scores = {name: model.score_samples(rows) for name, rows in scores.items()}
    histograms(axes[1], scores, model.reject_below_, "threshold")
    save(figure, "joint_autoencoder")


def anomalies():
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(2, 10))

    def usual(n):
        return np.tanh(rng.normal(size=(n, 2)) @ plane) + 0.05 * rng.normal(size=(n, 10))

    odd = np.tanh(rng.normal(size=(100, 10)))
    model = DAGMM(hidden_layer_sizes=(32, 16), contamination=0.05, max_iter=40, random_state=0)
    model.fit(usual(1000))
    figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    scores = {"usual rows": model.score_samples(usual(200)), "anomalies": model.score_samples(odd)}
    histograms(ax, scores, model.offset_, "offset_")
    save(figure, "dagmm")


def factorisation(X, y):
    X = X / 16
    model = NLMFClassifier(20, sigma2=0.02, gamma=0.2, max_iter=50, random_state=0).fit(X[::2], y[::2])
    figure, axes = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
    ImageGridDisplay.from_estimator(model, (8, 8), scale="single", n_columns=5).plot(axes[0])
    ImageGridDisplay.from_classes(model, (8, 8), scale="single", n_columns=5).plot(axes[1])
    made = model.generate(np.arange(10), random_state=0).clip(0, 1)
    ImageGridDisplay(made, (8, 8), scale=None, n_columns=5).plot(axes[2])
    titles = ["components", "coefficients of classes", "generated, by class"]
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)
    save(figure, "nlmf")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    X, y = load_digits(return_X_y=True)
    boltzmann(X)
    belief_net(X, y)
    autoencoder(X)
    joint_autoencoder(X, y)
    anomalies()
    factorisation(X, y)
