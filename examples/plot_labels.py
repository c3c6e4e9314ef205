"""
Classes in one plane
====================

Two classifiers with factors: MJFA describes each class by components in a subspace that all share; MFM has
factors that describe rows and predict their class at once. With two factors, both show all rows in a plane.
"""

from matplotlib import pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from latently.supervised import MFMClassifier, MJFAClassifier

wine = load_wine()
X, y = scale(wine.data), wine.target
models = {
    "MJFA": MJFAClassifier(1, n_factors=2, random_state=0),
    "MFM": MFMClassifier(1, n_factors=2, random_state=0),
}

figure, axes = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    plane = model.fit(X[::2], y[::2]).transform(X[1::2])
    for label, cultivar in enumerate(wine.target_names):
        ax.scatter(*plane[y[1::2] == label].T, s=12, label=cultivar)
    right = model.score(X[1::2], y[1::2])
    ax.set(title=f"{name}: {right:.0%} of new wines are right", xlabel="factor 1", ylabel="factor 2")
axes[0].legend()
