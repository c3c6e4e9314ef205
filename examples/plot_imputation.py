"""
Imputing missing pixels
=======================

30 % of the pixels of every image are missing, and the lower half of some images. A mixture is fitted to the
observed pixels by their exact likelihood and imputes the missing ones.
"""

import numpy as np
from sklearn.datasets import load_digits

from latently.mixture import MFA
from latently.plots import ImageGridDisplay

X = load_digits().data / 16
rng = np.random.default_rng(0)
missing = rng.random(X.shape) < 0.3
missing[:10, 32:] = True  # the lower half of the first ten images is missing
X_missing = np.where(missing, np.nan, X)

# NaN marks a missing entry.
model = MFA(n_components=15, n_factors=6, noise="isotropic", n_init=2, tol=1e-4, random_state=0).fit(
    X_missing
)
imputed = model.impute(X_missing)

# %%
# Ten digits without their lower half, the imputed images, and the originals:

lines = [np.where(missing, 0.35, X)[:10], imputed[:10].clip(0, 1), X[:10]]
display = ImageGridDisplay(np.concatenate(lines), (8, 8), scale=None).plot()

# %%
# The error of the imputed pixels, compared with imputing the mean of each pixel:


def error(values):
    """Root mean squared error of the missing pixels."""
    return np.sqrt(np.mean((values - X)[missing] ** 2))


print(f"mixture {error(imputed):.3f}, mean {error(np.nanmean(X_missing, axis=0)):.3f}")

# %%
# Imputed values are expectations, which are smoother than images. Random draws show the uncertainty: where
# they agree, it is small.

draws = model.impute(X_missing[:10], n_draws=3, random_state=0).clip(0, 1)
display = ImageGridDisplay(np.concatenate(draws), (8, 8), scale=None).plot()
