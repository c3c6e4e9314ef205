"""
Filling holes in images
=======================

Three in ten pixels of every image are gone, and the lower half of some. A mixture is fitted to what was
observed, by its exact likelihood, and tells what to expect in the holes.
"""

import numpy as np
from sklearn.datasets import load_digits

from latently.mixture import MFA
from latently.plots import ImageGridDisplay

X = load_digits().data / 16
rng = np.random.default_rng(0)
missing = rng.random(X.shape) < 0.3
missing[:10, 32:] = True  # nothing is left of the lower half of the first ten
holed = np.where(missing, np.nan, X)

# NaN is an entry that was not observed.
model = MFA(n_components=15, n_factors=6, noise="isotropic", n_init=2, tol=1e-4, random_state=0).fit(holed)
filled = model.impute(holed)

# %%
# Ten digits without their lower half, what the model expects there, and how they were:

lines = [np.where(missing, 0.35, X)[:10], filled[:10].clip(0, 1), X[:10]]
display = ImageGridDisplay(np.concatenate(lines), (8, 8), scale=None).plot()

# %%
# How far off are the pixels that were filled in, beside filling in the mean of each pixel?


def error(values):
    """Root mean square of what is wrong in the holes."""
    return np.sqrt(np.mean((values - X)[missing] ** 2))


print(f"mixture {error(filled):.3f}, mean {error(np.nanmean(holed, axis=0)):.3f}")

# %%
# What is filled in is an expectation, smoother than images are. Draws show how sure it is: where they agree
# there is little doubt.

draws = [model.impute(holed[:10], sample=True, random_state=i).clip(0, 1) for i in range(3)]
display = ImageGridDisplay(np.concatenate(draws), (8, 8), scale=None).plot()
