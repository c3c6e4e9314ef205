"""Parts of docstrings that all mixtures have in common, written once."""

from __future__ import annotations

import inspect

_SHARED = """
    max_iter : int, default=1000
        Most EM iterations.
    tol : float, default=5e-8
        EM ends when the log-likelihood per row gains less than `tol` times its size (or `tol`, if its size
        is below one). With 0 exactly `max_iter` steps are taken.
    n_init : int or "auto", default="auto"
        Starts that are tried: after four EM steps the better half goes on, and so forth until one is left.
        With more than 10000 rows (or 50 per component) they see a sample. "auto" is 8, and up to 24 for small
        tables (48 of MCFA). One component has one start.
    init : {"kmeans", "k-means++", "random"}, default="kmeans"
        How rows are first shared out among components. Every second start sees standardised features, and
        from the third on features count in random proportion, so that no start is like another. Some starts
        of MCFA are made in principal dimensions and some by chance.
    {starts}
        Starting values in the shape of the fitted attributes, or anything that broadcasts to it. Those
        given replace our own; if all are given, EM begins from exactly these.
    noise_floor : float, default=1e-6
        No variance falls below this fraction of the feature's variance in the data (of the mean variance,
        if the variance is isotropic). Variances at the floor maximise the likelihood under that bound.
    accelerate : {"squarem", None}, default="squarem"
        "squarem" takes longer steps where EM creeps; an iteration is then up to three passes over the data
        (nine of MCFA, whose steps go in threes).
        The likelihood never falls and the fixed points are those of EM. None is plain EM.
    batch_size : int, optional
        Fit by stepwise EM: the parameters move after every so many rows, in an order drawn anew each pass.
        An iteration is then a pass over the data, `history_` holds the log-likelihood as it was met on the
        way and, as its last entry, that of the fitted parameters; a `tol` below 1e-5 is taken for that.
        For very many rows.
    learning_decay, learning_offset : float, default=0.7 and 10.0
        Of stepwise EM (`batch_size`, `partial_fit`): batch t has the share (t + offset)^-decay in what the
        parameters are made of. A decay between 0.5 and 1 makes it converge; 0 forgets all but the last batch.
    checkpoint : path, optional
        A file that keeps the state of the fit: `fit` with the same data and settings goes on from it after
        the process was killed, and ends where the undisturbed fit would have, bit for bit. It is removed when
        the fit has ended.
    checkpoint_every : int, default=10
        Iterations between two checkpoints.
    block_size : int, optional
        Rows in a block; by default what fits in a few megabytes.
    dtype : {"float64", "float32"}, default="float64"
        What matrix products are done in; sums are float64 always.
    random_state : int, RandomState or None
        Seed of the starts.
    warm_start : bool, default=False
        Whether `fit` begins where the last one ended.
    verbose : int, default=0
        Whether to show progress.
    callbacks : list of callables, optional
        Each is told of every iteration (an object with `number`, `objective`, `gain`, `max_iter`) and may
        return True to end the fit.
"""

_FITTED = """
    n_iter_ : int
        EM steps taken.
    n_passes_ : int
        Passes over the data that these took; with "squarem" a step takes up to three (MCFA: nine).
    converged_ : bool
    history_ : ndarray of shape (n_iter + 1,)
        Log-likelihood per row of the starting values and after every step; it never falls.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        If X had string column names.
"""


def shares_docs(cls):
    """Fills {shared} and {fitted} in the docstring of an estimator."""
    starts = ", ".join(cls._PARAMETERS.values()) + " : array-like, optional"
    shared = inspect.cleandoc(_SHARED.replace("{starts}", starts))
    doc = inspect.cleandoc(cls.__doc__)
    cls.__doc__ = doc.replace("{shared}", shared).replace("{fitted}", inspect.cleandoc(_FITTED))
    return cls
