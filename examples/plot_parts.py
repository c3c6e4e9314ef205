"""
Prototypes, eigenvectors and parts
==================================

Three factorisations of images: vector quantisation represents each image by one prototype, principal
components add and subtract directions of variation, and non-negative matrix factorisation only adds parts, so
it finds strokes.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.factorization import NMF, PCA, VectorQuantizer
from latently.plots import ImageGridDisplay

X = load_digits().data / 16
models = {
    "prototypes": VectorQuantizer(16, random_state=0).fit(X),
    "eigenvectors": PCA(16).fit(X),
    "parts": NMF(16, random_state=0).fit(X),
}

figure, axes = plt.subplots(1, 3, figsize=(10, 3.7), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ImageGridDisplay.from_estimator(model, (8, 8), scale="single", n_columns=4).plot(ax)
    error = ((X - model.reconstruct(X)) ** 2).mean() / X.var()
    ax.set_title(f"{name}: {error:.0%} error")

# %%
# One image and its reconstructions:

three = X[3:4]
lines = [three] + [model.reconstruct(three).clip(0, 1) for model in models.values()]
figure, axes = plt.subplots(1, 4, figsize=(8, 2.4), layout="constrained")
for ax, image, name in zip(axes, lines, ["original", *models], strict=True):
    ImageGridDisplay(image, (8, 8), scale=None).plot(ax)
    ax.set_title(name)
