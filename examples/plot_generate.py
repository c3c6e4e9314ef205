"""
Generating digits from a factorisation
======================================

A factorisation decomposes images. With a density over the sources, new images can be generated: here from
principal components and from non-negative parts.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.factorization import NMF, PCA
from latently.generate import SourceDensity
from latently.mixture import GaussianMixture
from latently.plots import ImageGridDisplay, PrincipalAxesDisplay

X, y = load_digits(return_X_y=True)
threes = X[y == 3] / 16

density = GaussianMixture(3, random_state=0)
models = {
    "PCA": SourceDensity(PCA(12), density).fit(threes),
    "NMF": SourceDensity(NMF(12, random_state=0), density).fit(threes),
}

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
ImageGridDisplay(threes[:20], (8, 8), scale=None, n_columns=5).plot(axes[0])
axes[0].set_title("original")
for ax, (name, model) in zip(axes[1:], models.items(), strict=True):
    drawn, _ = model.sample(20, random_state=0, truncate=True)
    ImageGridDisplay(drawn.clip(0, 1), (8, 8), scale=None, n_columns=5).plot(ax)
    ax.set_title(name)

# %%
# The sources on their first two principal axes, with the mixture from which new sources are sampled:

display = PrincipalAxesDisplay.from_estimator(models["PCA"], threes).plot()
