"""
Shapes of clusters
==================

Constraints on the covariances of a Gaussian mixture decide which shapes its components can have. Clusters
that no ellipse describes are mixtures themselves.
"""

import numpy as np
from matplotlib import pyplot as plt

from latently.mixture import GaussianMixture, NestedMixture

angle = np.linspace(0, 2 * np.pi, 100)
circle = 2 * np.column_stack([np.cos(angle), np.sin(angle)])  # two standard deviations


def draw(ax, X, model, title):
    """Draw rows coloured by component, and the ellipses of its Gaussians."""
    labels = model.predict(X)
    for k in range(model.n_components):
        ax.scatter(*X[labels == k].T, s=4, color=f"C{k}", alpha=0.5)
        gaussians = zip(model.means_[k].reshape(-1, 2), model.covariances_[k].reshape(-1, 2, 2), strict=True)
        for mean, covariance in gaussians:
            ax.plot(*(mean + circle @ np.linalg.cholesky(covariance).T).T, color=f"C{k}")
    ax.set(title=title, aspect="equal", xticks=[], yticks=[])


rng = np.random.default_rng(0)
shapes = np.array([[[3.0, 0.0], [0.0, 0.4]], [[0.5, 0.0], [0.0, 0.5]], [[1.2, 1.0], [1.0, 1.2]]])
centres = np.array([[0.0, -2.5], [-3.0, 1.0], [2.0, 1.5]])
X = np.concatenate(
    [rng.multivariate_normal(mean, shape, 200) for mean, shape in zip(centres, shapes, strict=True)]
)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, name in zip(axes, ["VII", "EEE", "VVV"], strict=True):
    model = GaussianMixture(3, covariance_type=name, random_state=0).fit(X)
    draw(ax, X, model, f"{name}: BIC {model.bic(X):.0f}")

# %%
# Two bent clusters. One Gaussian for each is not enough; a mixture for each follows their shape:

t = np.pi * rng.random(600)
upper = rng.random(600) < 0.5
moons = np.column_stack(
    [np.where(upper, np.cos(t), 1 - np.cos(t)), np.where(upper, np.sin(t), -0.5 - np.sin(t))]
)
moons += 0.08 * rng.normal(size=moons.shape)

figure, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
draw(
    axes[0], moons, GaussianMixture(2, covariance_type="VVV", random_state=0).fit(moons), "GaussianMixture(2)"
)
draw(axes[1], moons, NestedMixture(2, 4, random_state=0).fit(moons), "NestedMixture(2, 4)")
