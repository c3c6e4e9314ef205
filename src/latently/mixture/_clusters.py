"""What one asks of a mixture whose components are clusters."""

from __future__ import annotations

from latently.backend.namespace import namespace
from latently.distributions.mixture import responsibilities
from latently.mixture._engine import for_method, information_criteria


class Clusters:
    """For mixtures whose rows are to be told apart by their components."""

    def predict_proba(self, X, *, out=None):
        """Posterior probability of each component, (n_samples, n_components)."""
        return self._rows_of(X, probabilities, out=out)

    def predict(self, X, *, out=None):
        """The most probable component of each row."""
        return self._rows_of(X, most_probable, out=out)

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the model, then `predict` the same rows."""
        return self.fit(X, y, sample_weight=sample_weight).predict(X)

    def icl(self, X):
        """BIC plus twice the entropy of the responsibilities (integrated completed likelihood)."""
        return information_criteria(self, X, with_icl=True)["icl"]


@for_method("predict_proba")
def probabilities(kernel, density, frame, block):
    return responsibilities(kernel, density, frame.enter(block))


@for_method("predict")
def most_probable(kernel, density, frame, block):
    resp = probabilities(kernel, density, frame, block)
    return namespace(resp).argmax(resp, axis=1)
