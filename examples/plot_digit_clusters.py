"""
Digits as a mixture of flat pieces
==================================

Images of digits lie on a curved surface. A mixture of factor analysers covers it with flat pieces: each
component has a mean, and a few directions in which its images differ. New images are drawn from it in no
time.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from latently.mixture import MFA
from latently.plots import ImageGridDisplay

X, y = load_digits(return_X_y=True)
X = X / 16  # 1797 images of 8 x 8 pixels

# All pixels are measured alike, so they have the same noise.
model = MFA(n_components=20, n_factors=5, noise="isotropic", n_init=2, tol=1e-5, random_state=0).fit(X)

# %%
# Means, in the order of the digit that most of their images show. No label was used for the fit.

component = model.predict(X)
digit = np.array([np.bincount(y[component == k], minlength=10).argmax() for k in range(20)])
order = np.argsort(digit, kind="stable")

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
ImageGridDisplay(model.means_[order], (8, 8), scale="single", n_columns=5).plot(left)
left.set_title("means of 20 components")

drawn, _ = model.sample(20, random_state=1)
ImageGridDisplay(drawn.clip(0, 1), (8, 8), scale=None, n_columns=5).plot(right)
right.set_title("20 images drawn from the mixture")

# %%
# Within a component images differ along its factors: from one end to the other of the first one, for five
# components.

steps = np.linspace(-2, 2, 7)
axes = []
for k in order[::4]:
    direction = model.loadings_[k] @ np.linalg.svd(model.loadings_[k])[2][0]  # the one that changes most
    axes.append(model.means_[k] + steps[:, None] * direction)
display = ImageGridDisplay(np.concatenate(axes).clip(0, 1), (8, 8), scale=None, n_columns=7).plot()
