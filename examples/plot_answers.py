"""
Kinds of answers in one table
=============================

A mixture of mixed columns finds groups of rows by numbers, categories and counts at once. Here are 300
trips of commuters and tourists, which the model does not know of.
"""

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt

from latently.mixture import MixedMixture

rng = np.random.default_rng(0)
tourist = rng.random(300) < 0.4
trips = pd.DataFrame(
    {
        "distance": rng.normal(np.where(tourist, 30.0, 15.0), 6.0),
        "ticket": np.where(rng.random(300) < np.where(tourist, 0.8, 0.2), "day", "month"),
        "bags": rng.poisson(np.where(tourist, 2.5, 0.3)),
    }
)
trips.loc[::7, "ticket"] = None  # some cells are empty
model = MixedMixture(2, random_state=0).fit(trips)
component = model.predict(trips)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
chances = model.level_probabilities("ticket")
for k in range(2):
    own = trips[component == k]
    axes[0].hist(own["distance"], bins=20, range=(0, 50), alpha=0.6, label=f"component {k}")
    axes[1].bar(np.arange(chances.shape[1]) + 0.4 * k, chances.iloc[k], width=0.4)
    axes[2].hist(own["bags"] + 0.4 * k, bins=np.arange(0, 9, 0.4) - 0.2, alpha=0.6)
axes[0].set(title="distance", ylabel="rows")
axes[0].legend()
axes[1].set_xticks(np.arange(chances.shape[1]) + 0.2, chances.columns)
axes[1].set_title("probability of a ticket")
axes[2].set_title("bags")
