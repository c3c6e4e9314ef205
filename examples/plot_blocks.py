"""
Clusters of rows and of columns
===============================

A co-clustering groups the rows and the columns of a table at the same time. Sorted by their clusters,
blocks appear that the table does not show as it came.
"""

import numpy as np
from matplotlib import pyplot as plt

from latently.factorization import FastNMTF
from latently.plots import BlocksDisplay

rng = np.random.default_rng(0)
topics, words = rng.integers(3, size=150), rng.integers(4, size=80)
strength = np.array([[6.0, 0.0, 2.0, 0.0], [0.0, 5.0, 2.0, 1.0], [1.0, 0.0, 0.0, 7.0]])
X = rng.poisson(strength[np.ix_(topics, words)]).astype(float)
model = FastNMTF(3, 4, random_state=0).fit(X)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
left.imshow(X, cmap="cividis", aspect="auto", interpolation="nearest")
left.set(title="as it came", xlabel="column", ylabel="row")
display = BlocksDisplay.from_estimator(model, X).plot(right)
right.set_title("sorted by clusters")

# %%
# The core holds the means of blocks:

print(model.core_.round(1))
