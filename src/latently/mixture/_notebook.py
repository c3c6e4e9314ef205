"""Fitted models in notebooks: scikit-learn's diagram of the parameters, and a small table below it."""

from __future__ import annotations

from html import escape
from typing import ClassVar

import numpy as np

_MOST = 8  # entries of a list that are shown
_TO_CALL = {
    "predict": "X",
    "predict_proba": "X",
    "transform": "X",
    "reconstruct": "X",
    "score_samples": "X",
    "impute": "X",
    "sample": "n",
    "save": "path",
}
_STYLE = """
.latently-summary { border-collapse: collapse; font-size: 0.9em; margin-top: 0.4em; }
.latently-summary th, .latently-summary td { padding: 0.2em 0.7em; text-align: left; color: inherit;
  vertical-align: top; border-bottom: 1px solid rgba(128, 128, 128, 0.35); }
.latently-summary th { font-weight: 600; white-space: nowrap; }
"""


class NotebookMixin:
    """A summary below the diagram, once the model is fitted; to be put before scikit-learn's base."""

    _OBJECTIVE: ClassVar = "log-likelihood per row"  # what `history_` holds

    # Both ways to the diagram are taken, since notebooks ask for the second and other pages for the first.

    def _repr_html_inner(self):
        return super()._repr_html_inner() + self._summary_html()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _summary_html(self):
        if not hasattr(self, "n_features_in_"):  # not fitted yet
            return ""
        lines = (
            f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
            for name, text in self._facts().items()
        )
        return (
            f'<style>{_STYLE}</style><table class="latently-summary"><tbody>{"".join(lines)}</tbody></table>'
        )

    def _facts(self):
        """What the summary says of the fitted model, by name."""
        facts = {"size": ", ".join(self._sizes())}
        if hasattr(self, "feature_names_in_"):
            facts["features"] = _listed(self.feature_names_in_)
        if hasattr(self, "classes_"):
            shares = getattr(self, "class_prior_", None)
            names = [str(label) for label in self.classes_]
            facts["classes"] = _listed(
                names
                if shares is None
                else [f"{name} ({float(share):.3g})" for name, share in zip(names, shares, strict=True)]
            )
        if np.ndim(getattr(self, "weights_", 0.0)) == 1:
            facts["weights"] = _listed([f"{float(weight):.3g}" for weight in self.weights_])
        if hasattr(self, "history_"):
            facts["fit"] = self._how_it_went()
            if len(self.history_):
                facts[self._OBJECTIVE] = f"{float(self.history_[-1]):.6g}"
        if getattr(self, "reject_below_", -np.inf) > -np.inf:
            facts["rejection"] = f"rows with a log density below {self.reject_below_:.6g}"
        methods = (f"{name}({given})" for name, given in _TO_CALL.items() if hasattr(self, name))
        facts["to call next"] = ", ".join(methods)
        return facts

    def _sizes(self):
        """How many there are of what."""
        sizes = []
        if hasattr(self, "classes_"):
            sizes.append(_counted(len(self.classes_), "class"))
        if hasattr(self, "weights_"):
            of_each = " of each class" if np.ndim(self.weights_) == 2 else ""
            sizes.append(_counted(np.shape(self.weights_)[-1], "component") + of_each)
        elif hasattr(self, "components_"):
            sizes.append(_counted(len(self.components_), "component"))
        if hasattr(self, "loadings_"):
            sizes.append(_counted(np.shape(self.loadings_)[-1], "factor"))
        return [*sizes, _counted(self.n_features_in_, "feature")]

    def _how_it_went(self):
        if len(self.history_) == 0:
            return "none: the parameters were given"
        steps = _counted(self.n_iter_, "iteration")
        return f"converged after {steps}" if self.converged_ else f"ended after {steps}, before it converged"


def _counted(number, what):
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"


def _listed(texts):
    texts = [str(text) for text in texts]
    more = f", ... ({len(texts)} in all)" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more
