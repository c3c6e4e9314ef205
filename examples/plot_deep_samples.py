"""
Deep mixture of factor analysers
================================

In a mixture of factor analysers the factors of a component are Gaussian. In a deep mixture they follow
another mixture, so that the images of one component may be of several kinds.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.deep import DMFA
from latently.mixture import MFA
from latently.plots import ImageGridDisplay

# Grey levels are integers. Uniform noise of one level makes them continuous, as a density requires.
X = load_digits().data
X = (X + np.random.default_rng(0).random(X.shape)) / 17
settings = {"n_init": 1, "tol": 1e-4, "random_state": 0}
flat = MFA(10, 8, **settings).fit(X[::2])
deep = DMFA(10, 8, n_subcomponents=4, n_subfactors=3, **settings).fit(X[::2])

figure, axes = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
for ax, (name, model) in zip(axes, {"one layer": flat, "two layers": deep}.items(), strict=True):
    drawn = model.sample(30, random_state=0)[0]
    ImageGridDisplay(drawn.clip(0, 1), (8, 8), scale=None, n_columns=6).plot(ax)
    ax.set_title(f"{name}: held-out log density {model.score(X[1::2]):.1f}")

# %%
# The means of the second layer, one column per component of the first layer:

means = deep.collapse().means_.reshape(10, 4, -1)
columns = means.swapaxes(0, 1).reshape(40, -1)
display = ImageGridDisplay(columns.clip(0, 1), (8, 8), scale=None).plot()
