"""
Rejecting unknown classes
=========================

A classifier trained on the digits 0 to 4 is applied to the digits 5 to 9. Posterior probabilities compare
only the known classes, and are often close to one. The density of an image shows whether it belongs to any of
them.
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from latently.mixture import MFA
from latently.plots import ImageGridDisplay, LikelihoodDisplay
from latently.supervised import PerClass

X, y = load_digits(return_X_y=True)
X = X / 16
known = y < 5
X_fit, X_held_out, y_fit, y_held_out = train_test_split(X[known], y[known], test_size=0.4, random_state=0)

classifier = PerClass(MFA(n_components=1, n_factors=8, noise="isotropic")).fit(X_fit, y_fit)
classifier = classifier.calibrate_rejection(X_held_out[::2], acceptance=0.95)

# %%
# Log densities of held-out digits, and the threshold that accepts 95 % of the known digits:

rows = {"0 to 4": X_held_out[1::2], "5 to 9": X[~known]}
display = LikelihoodDisplay.from_estimator(classifier, rows).plot()

# %%
# How often the classifier is certain about unknown digits, and which of them it accepts nevertheless:

sure = classifier.predict_proba(X[~known]).max(axis=1) > 0.99
accepted = classifier.accepts(X[~known])
print(f"{sure.mean():.0%} of unknown digits have a posterior above 0.99; {accepted.mean():.0%} are accepted")

taken = np.flatnonzero(accepted)[:20]
labels = [f"as {label}" for label in classifier.predict(X[~known][taken])]
display = ImageGridDisplay(X[~known][taken], (8, 8), scale=None, labels=labels).plot()
