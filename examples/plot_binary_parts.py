"""
Parts that are there or not
===========================

Images are sums of bars, each of which is there or not, with noise. BNMF is told how many bars there can be;
models with an Indian buffet process as prior find the number.
"""

import numpy as np
from matplotlib import pyplot as plt

from latently.datasets import load_bars
from latently.distributions import IndianBuffet, left_ordered_form
from latently.factorization import BNMF, MEIBP
from latently.plots import ImageGridDisplay

bars = load_bars(size=4, n_samples=500, random_state=0)
told = BNMF(8, random_state=0).fit(bars.X)
found = MEIBP(random_state=0).fit(bars.X)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
pictures = {
    "12 of 500 images": bars.X[:12],
    "BNMF(8)": told.components_,
    f"MEIBP found {len(found.components_)}": found.components_,
}
for ax, (title, images) in zip(axes, pictures.items(), strict=True):
    ImageGridDisplay(images, (4, 4), scale="together", n_columns=4).plot(ax)
    ax.set_title(title)

# %%
# Draws from the prior, with columns in left-ordered form. The larger the concentration, the more features
# there are:

rng = np.random.default_rng(0)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained")
for ax, concentration in zip(axes, [2.0, 5.0, 10.0], strict=True):
    Z = left_ordered_form(IndianBuffet(concentration=concentration).sample(40, rng))
    ax.imshow(Z, cmap="Greys", aspect="auto", interpolation="nearest")
    ax.set(title=f"concentration {concentration:g}", xlabel="feature", ylabel="row")
