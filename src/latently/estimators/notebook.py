"""Display of fitted models in notebooks: scikit-learn's diagram, and a small summary table below it."""

from __future__ import annotations

from html import escape

import numpy as np
from sklearn.base import BaseEstimator

from latently.core.drivers import LOG_LIKELIHOOD

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


def html(self):
    """scikit-learn's diagram of an estimator and, once it is fitted, a summary below it."""
    return BaseEstimator._repr_html_inner(self) + summary_html(self)


def mimebundle(self, **kwargs):
    """The same in the form that notebooks request."""
    bundle = BaseEstimator._repr_mimebundle_(self, **kwargs)
    if "text/html" in bundle:
        bundle["text/html"] = html(self)
    return bundle


def summary_html(model):
    if not hasattr(model, "n_features_in_"):  # not fitted yet
        return ""
    lines = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(text)}</td></tr>'
        for name, text in summary(model).items()
    )
    return f'<style>{_STYLE}</style><table class="latently-summary"><tbody>{"".join(lines)}</tbody></table>'


def summary(model):
    """Summary of a fitted model: text by title."""
    facts = {"size": ", ".join(_sizes(model))}
    if hasattr(model, "feature_names_in_"):
        facts["features"] = _listed(model.feature_names_in_)
    if hasattr(model, "classes_"):
        shares = getattr(model, "class_prior_", None)
        names = [str(label) for label in model.classes_]
        facts["classes"] = _listed(
            names
            if shares is None
            else [f"{name} ({float(share):.3g})" for name, share in zip(names, shares, strict=True)]
        )
    if np.ndim(getattr(model, "weights_", 0.0)) == 1:
        facts["weights"] = _listed([f"{float(weight):.3g}" for weight in model.weights_])
    if hasattr(model, "history_"):
        facts["fit"] = _how_it_went(model)
        if len(model.history_):
            penalised = model.objective is LOG_LIKELIHOOD and getattr(model, "prior", None) is not None
            name = ("penalised " if penalised else "") + model.objective.name
            facts[name] = f"{float(model.history_[-1]):.6g}"
    limits = np.atleast_1d(getattr(model, "reject_below_", -np.inf))
    if np.any(limits > -np.inf):
        of = "" if len(limits) == 1 else " of every class"
        facts["rejection"] = f"rows with a score below {_listed([f'{limit:.6g}' for limit in limits])}{of}"
    methods = (f"{name}({given})" for name, given in _TO_CALL.items() if hasattr(model, name))
    facts["methods"] = ", ".join(methods)
    return facts


def _sizes(model):
    """Sizes of the model in words; an estimator may define its own."""
    if hasattr(model, "_sizes_in_words"):
        return [*model._sizes_in_words(), _counted(model.n_features_in_, "feature")]
    sizes = []
    if hasattr(model, "classes_"):
        sizes.append(_counted(len(model.classes_), "class"))
    if hasattr(model, "weights_"):
        of_each = " of each class" if np.ndim(model.weights_) == 2 else ""
        sizes.append(_counted(np.shape(model.weights_)[-1], "component") + of_each)
    elif hasattr(model, "components_"):
        sizes.append(_counted(len(model.components_), "component"))
    if hasattr(model, "loadings_"):
        sizes.append(_counted(np.shape(model.loadings_)[-1], "factor"))
    return [*sizes, _counted(model.n_features_in_, "feature")]


def _how_it_went(model):
    if len(model.history_) == 0:
        return "none: the parameters were given"
    steps = _counted(model.n_iter_, "iteration")
    return f"converged after {steps}" if model.converged_ else f"ended after {steps}, before it converged"


def _counted(number, what):
    plural = "es" if what.endswith("s") else "s"
    return f"{number} {what}{'' if number == 1 else plural}"


def _listed(texts):
    texts = [str(text) for text in texts]
    more = f", ... ({len(texts)} in all)" if len(texts) > _MOST else ""
    return ", ".join(texts[:_MOST]) + more
