"""
Clusters in a plane
===================

178 wines, thirteen measurements of each, and no word about who grew them. A mixture of common factor
analysers finds three clusters and the plane in which they lie, both at once. Colours are the true
cultivars, which the model has not seen; ellipses and the lines between them are its own.
"""

from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.metrics import error_rate
from latently.mixture import MCFA
from latently.plots import LatentDisplay, LoadingsDisplay

wine = load_wine(as_frame=True)
plane = make_pipeline(StandardScaler(), MCFA(3, n_factors=2, shared_covariance=True, random_state=0))
plane.set_output(transform="pandas").fit(wine.data)  # tables between the steps keep the names of the features

cultivar = wine.target_names[wine.target]
display = LatentDisplay.from_estimator(plane, wine.data, labels=cultivar).plot()

# %%
# What the two directions of the plane mean:

display = LoadingsDisplay.from_estimator(plane).plot()

# %%
# A plane is for looking at. Clusters themselves are found better in a few dimensions more:

space = make_pipeline(StandardScaler(), MCFA(3, n_factors=4, random_state=0)).fit(wine.data)
for name, model in {"plane": plane, "four dimensions": space}.items():
    print(
        f"{name}: {error_rate(wine.target, model.predict(wine.data)):.1%} of the wines in the wrong cluster"
    )
