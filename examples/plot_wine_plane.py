"""
Clusters in a plane
===================

A mixture of common factor analysers estimates three clusters of 178 wines with thirteen measurements, and the
plane in which they lie, jointly. Colours show the true cultivars, which the model does not use; ellipses and
decision boundaries are those of the model.
"""

from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.metrics import error_rate
from latently.mixture import MCFA
from latently.plots import LatentDisplay, LoadingsDisplay

wine = load_wine(as_frame=True)
plane = make_pipeline(StandardScaler(), MCFA(3, n_factors=2, shared_covariance=True, random_state=0))
plane.set_output(transform="pandas").fit(wine.data)  # data frames between the steps keep the feature names

cultivar = wine.target_names[wine.target]
display = LatentDisplay.from_estimator(plane, wine.data, labels=cultivar).plot()

# %%
# The loadings of the two factors:

display = LoadingsDisplay.from_estimator(plane).plot()

# %%
# A plane is useful for visualisation. Clusters are found more accurately with a few more factors:

space = make_pipeline(StandardScaler(), MCFA(3, n_factors=4, random_state=0)).fit(wine.data)
for name, model in {"plane": plane, "four dimensions": space}.items():
    print(
        f"{name}: {error_rate(wine.target, model.predict(wine.data)):.1%} of the wines in the wrong cluster"
    )
