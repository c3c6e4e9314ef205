"""
Digits as a mixture of factor analysers
=======================================

Images of digits lie near a curved manifold. A mixture of factor analysers approximates it by linear pieces:
each component has a mean and a few directions along which its images vary. Sampling new images is fast.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.mixture import MFA
from latently.plots import ImageGridDisplay

X, y = load_digits(return_X_y=True)
X = X / 16  # 1797 images of 8 x 8 pixels

# All pixels have the same unit, so the noise is isotropic.
model = MFA(n_components=20, n_factors=5, noise="isotropic", n_init=2, tol=1e-5, random_state=0).fit(X)

# %%
# Component means, ordered by the most frequent digit of their images. The fit uses no labels.

component = model.predict(X)
digit = np.array([np.bincount(y[component == k], minlength=10).argmax() for k in range(20)])
order = np.argsort(digit, kind="stable")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
ImageGridDisplay(model.means_[order], (8, 8), scale="single", n_columns=5).plot(left)
left.set_title("means of 20 components")

drawn, _ = model.sample(20, random_state=1)
ImageGridDisplay(drawn.clip(0, 1), (8, 8), scale=None, n_columns=5).plot(right)
right.set_title("20 images sampled from the mixture")

# %%
# Within a component, images vary along its factors. Each line traverses the direction of largest variation of
# one component.

steps = np.linspace(-2, 2, 7)
axes = []
for k in order[::4]:
    direction = model.loadings_[k] @ np.linalg.svd(model.loadings_[k])[2][0]  # direction of largest variation
    axes.append(model.means_[k] + steps[:, None] * direction)
display = ImageGridDisplay(np.concatenate(axes).clip(0, 1), (8, 8), scale=None, n_columns=7).plot()
