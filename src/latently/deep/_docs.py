"""Parts of docstrings that deep mixtures have in common, written once."""

from __future__ import annotations

import inspect

_SIZES = """
    Parameters
    ----------
    n_components : int, default=1
        Number of components C of the first layer.
    n_factors : int, default=1
        Number of factors q of the first layer.
    n_subcomponents : int or sequence, default=2
        Number of sub-components of each component: one for all, or one for each. With several layers above
        the first, one such entry for each of these.
    n_subfactors : int or sequence of int, default=1
        Number of factors of the second layer; a sequence makes as many layers above the first. No layer has
        more factors than the one below.
    fine_tune : bool, default=False
        Whether EM over all layers together follows the training of one after the other. It never lowers the
        log-likelihood of the rows.
    inputs : {"expected", "sampled"}, default="expected"
        What a layer learns from: the posterior of the factors below it, with its uncertainty and with the
        share that each component has in a row; or one draw from the posterior in the most probable
        component.
    prior_rows : float or "auto", default="auto"
        So many rows from the prior that it replaces are added to those of each sub-component. More keep a
        layer nearer to a model without it, for rows that are few. "auto" is two more than there are
        factors below, the fewest for which the inverse of their covariance has an expectation; and
        components of DMFA with fewer rows than twice the factors below keep their prior. With 0 the bound
        alone is raised.
"""

_SHARED = """
    max_iter : int, default=1000
        Most EM iterations, of each mixture of each layer and of fine-tuning.
    tol : float, default=5e-8
        EM ends when what it raises, per row, gains less than `tol` times its size (or `tol`, if its size is
        below one).
    n_init, init, noise_floor, accelerate, block_size, dtype, verbose, callbacks
        As for one layer. `noise_floor` also holds for the noise of factors, as a fraction of their variance;
        `verbose` and `callbacks` tell of the first layer and of fine-tuning.
    random_state : int, RandomState or None
        Seed of the starts, and of draws.
"""

_FITTED = """
    weights_ : ndarray of shape (n_leaves,)
        Probabilities of the components of the last layer, the leaves.
    component_of_ : ndarray of shape (n_leaves,)
        The component of the first layer that each leaf belongs to.
    history_ : ndarray
        Log-likelihood per row of the first layer alone, with every further layer, and after every step of
        fine-tuning.
    bound_history_ : list of ndarray
        For every layer above the first, the lower bound of the log-likelihood per row that its training
        raised, less what `prior_rows` cost, after every step; it never falls. With inputs="sampled", which
        raises no bound, that before and after.
    n_iter_ : int
        EM steps taken, over all layers.
    n_passes_ : int
        Passes over the rows that first layer and fine-tuning took.
    converged_ : bool
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
"""


def shares_deep_docs(cls):
    """Fills {sizes}, {shared} and {fitted} in the docstring of an estimator."""
    doc = inspect.cleandoc(cls.__doc__)
    for name, text in (("sizes", _SIZES), ("shared", _SHARED), ("fitted", _FITTED)):
        doc = doc.replace(f"{{{name}}}", inspect.cleandoc(text))
    cls.__doc__ = doc
    return cls
