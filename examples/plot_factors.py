"""
Factors behind correlations
===========================

Thirteen measurements of 178 wines are correlated. Factor analysis explains this by a few common factors,
and leaves each measurement a noise variance of its own; probabilistic PCA has one noise variance for all.
"""

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import StandardScaler

from latently.mixture import PPCA, FactorAnalysis
from latently.plots import LoadingsDisplay

wine = load_wine()
X = StandardScaler().fit_transform(wine.data)
factors = FactorAnalysis(2).fit(X)
display = LoadingsDisplay.from_estimator(factors, feature_names=wine.feature_names).plot()

# %%
# What the factors leave over of each measurement, as a share of its variance:

common = PPCA(2).fit(X)
lines = np.arange(X.shape[1])
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
ax.barh(lines, factors.noise_variance_, color="C0", label="FactorAnalysis(2)")
ax.axvline(np.mean(common.noise_variance_), color="C1", label="PPCA(2)")
ax.set_yticks(lines, wine.feature_names)
ax.invert_yaxis()
ax.set(xlabel="noise variance", xlim=(0, 1))
ax.legend()
