"""The restricted Boltzmann machine as an estimator; `deep.boltzmann` has the model."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
import torch
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from latently.backend.namespace import to_numpy
from latently.deep.boltzmann import (
    LISTED_BITS,
    MOST_BITS,
    Boltzmann,
    ContrastiveDivergence,
    GaussianUnits,
    Machine,
)
from latently.deep.boltzmann_options import BoltzmannOptions, start_intercept, through_codes
from latently.deep.draws import RowDraws
from latently.estimators.checks import (
    check_choice,
    check_integer,
    check_matrix,
)
from latently.estimators.data import check_data
from latently.estimators.memory import check_draws
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, given_starts, set_given
from latently.estimators.rows import in_main_memory
from latently.training.generators import generator_of, seed_of
from latently.training.modules import set_module_arrays

_TABLE = (
    Parameter("components", "components_init", ("H", "D")),
    Parameter("intercept_visible", "intercept_visible_init", ("D",)),
    Parameter("intercept_hidden", "intercept_hidden_init", ("H",)),
)


@estimator
class RBM(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BoltzmannOptions):
    """Restricted Boltzmann machine: p(v, h) proportional to exp(h'Av + b'v + c'h).

    Parameters
    ----------
    n_components : int, default=256
        Number of hidden units H.
    label_units : int, default=0
        The last so many columns of X are one group of which exactly one is on, such as one-hot labels.
    components_init : array-like of shape (n_components, n_features), optional
    intercept_visible_init : array-like of shape (n_features,), optional
    intercept_hidden_init : array-like of shape (n_components,), optional
        Starting values. By default weights are small and random, the visible intercepts make the mean of the
        rows likely, and the hidden ones are zero.
    {options}

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        The weights A.
    intercept_visible_ : ndarray of shape (n_features,)
        b.
    intercept_hidden_ : ndarray of shape (n_components,)
        c.
    history_ : ndarray of shape (n_iter,)
        Mean pseudo-log-likelihood of the rows in each epoch while the parameters change, estimated from one
        random unit of each row; with Gaussian units ln p(v | E[h | v]). It is noisy.
    {attributes}

    Notes
    -----
    Missing entries are refused by all methods but `impute`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.deep import RBM
    >>> X = load_digits().data / 16
    >>> model = RBM(16, max_iter=5, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3, random_state=0)[0].shape
    ((1797, 16), (3, 64))
    >>> model.score(X) > RBM(16, max_iter=0, random_state=0).fit(X).score(X)
    True
    """

    n_components: int = option(default=256, check=check_integer, least=1)
    _: KW_ONLY
    label_units: int = option(default=0, check=check_integer, least=0)
    components_init: Any = None
    intercept_visible_init: Any = None
    intercept_hidden_init: Any = None

    @classmethod
    def from_parameters(cls, *, components, intercept_visible, intercept_hidden, **options):
        """A fitted machine with known parameters.

        Parameters
        ----------
        components : array-like of shape (n_components, n_features)
        intercept_visible : array-like of shape (n_features,)
        intercept_hidden : array-like of shape (n_components,)
        **options
            Options of the constructor.
        """
        check_matrix("components", components)
        H, D = np.shape(components)
        model = cls(H, **options)
        model._check_options()
        model._check_features(D)
        model._set_fitted_arrays()
        holder = _Holder()
        given = {
            "components": components,
            "intercept_visible": intercept_visible,
            "intercept_hidden": intercept_hidden,
        }
        set_given(holder, _TABLE, {"H": H, "D": D}, given)
        module = model._built(D, torch.Generator())
        set_module_arrays(module, {name: to_numpy(getattr(holder, f"{name}_")) for name in given})
        model.module_, model.n_features_in_, model.losses_ = module.eval(), D, {}
        return model

    # -- fitting --------------------------------------------------------------------------------------

    def _check_features(self, n_features):
        if self.label_units >= n_features:
            raise ValueError(
                f"label_units={self.label_units} must be fewer than the {n_features} columns of X, of which "
                "they are the last"
            )

    def _check_rows(self, X):
        super()._check_rows(X)
        if self.label_units:
            total = X[:, -self.label_units :].sum(dim=1)
            if bool((total - 1.0).abs().max() > 1e-3):
                raise ValueError(
                    f"the last label_units={self.label_units} columns of X must sum to one in every row, but "
                    f"sums reach from {float(total.min()):.6g} to {float(total.max()):.6g}"
                )

    def _module(self, n_features):
        return Machine(n_features, self.n_components, self._units(self.label_units))

    def _start(self, module, rows):
        given = given_starts(self, _TABLE, {"H": self.n_components, "D": rows.n_features})
        if "intercept_visible" not in given:
            given["intercept_visible"] = start_intercept(module.units, rows)
        for name, value in given.items():
            getattr(module, name).copy_(torch.as_tensor(value))

    def _training(self, module):
        return ContrastiveDivergence(module, self._n_chains())

    def _losses(self, module, batch):
        return module.step(batch.X, batch.weight, batch.generator, self._learning())[0]

    def _evaluation(self, module, batch):
        return module.evaluate(batch.X, batch.weight, batch.generator)

    def _finish(self, rows, generators):
        self.__dict__.pop("_partition", None)

    # -- the fitted machine ---------------------------------------------------------------------------

    @property
    def components_(self):
        return self._array("components")

    @property
    def intercept_visible_(self):
        return self._array("intercept_visible")

    @property
    def intercept_hidden_(self):
        return self._array("intercept_hidden")

    def _array(self, name):
        if "module_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name}_ before fit")
        return getattr(self.module_, name).detach().cpu().numpy().copy()

    @property
    def _n_features_out(self):
        return self.n_components

    def _sizes_in_words(self):
        return [f"{self.n_components} hidden units"]

    def transform(self, X, *, out=None):
        """Probabilities of the hidden units, p(h = 1 | v), (n_samples, n_components).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._exactly(Boltzmann.hidden, X, out)

    def inverse_transform(self, H):
        """Means of the visible units given hidden ones, p(v = 1 | h), (n_samples, n_features).

        Parameters
        ----------
        H : array-like of shape (n_samples, n_components)
        """
        check_is_fitted(self)
        return through_codes(self._machine, Boltzmann.visible, H, self.n_components)

    def reconstruct(self, X, *, out=None):
        """Rows reconstructed from the probabilities of their hidden units, (n_samples, n_features)."""
        return self._exactly(lambda machine, v: machine.visible(machine.hidden(v)), X, out)

    def free_energy(self, X, *, out=None):
        """F(v) = -b'v - sum softplus(c + Av) of each row, (n_samples,); p(v) = exp(-F(v)) / Z."""
        return self._exactly(Boltzmann.free_energy, X, out)

    def score_samples(self, X, *, out=None):
        """Log density of each row, -F(v) - ln Z, (n_samples,).

        ln Z is that of `log_partition`, found once for a fitted model; where it has to be estimated, the
        seed of the estimate is fixed. `estimate_log_partition` tells its standard error.
        """
        check_is_fitted(self)
        log_partition = self._remembered_partition()
        return self._exactly(lambda machine, v: -machine.free_energy(v) - log_partition.value, X, out)

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows, weighted if `sample_weight` is given."""
        return float(np.average(in_main_memory(self.score_samples(X)), weights=sample_weight))

    def pseudo_log_likelihood(self, X, *, random_state=None, out=None):
        """An unbiased estimate of sum_i ln p(v_i | the other units) for each row, (n_samples,).

        It takes one random unit of every row; the label units count as one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        random_state : int, Generator, RandomState or None
        out : path of a .npy file, optional
        """
        if self.visible == "gaussian":
            raise ValueError(
                'pseudo_log_likelihood needs visible="binary"; use free_energy, or score_samples'
            )
        seed = seed_of(random_state)

        def part(machine, v):
            drawn = RowDraws(v, seed).uniform()
            return machine.pseudo_log_likelihood(v, machine.hidden_logits(v), drawn)

        return self._exactly(part, X, out)

    def log_partition(self, method="auto", *, n_chains=100, n_steps=1000, random_state=None):
        """ln Z, the log of the sum over all states (an integral for Gaussian units).

        Parameters
        ----------
        method : {"auto", "exact", "ais"}, default="auto"
            "exact" lists the states of the smaller side, visible or hidden. "ais" is annealed importance
            sampling. "auto" is exact up to 2^20 states.
        n_chains, n_steps : int, default=100 and 1000
            Chains and temperatures of annealed importance sampling.
        random_state : int, Generator, RandomState or None
            Seed of annealed importance sampling.

        Returns
        -------
        float
        """
        return self.estimate_log_partition(
            method, n_chains=n_chains, n_steps=n_steps, random_state=random_state
        ).value

    def estimate_log_partition(self, method="auto", *, n_chains=100, n_steps=1000, random_state=None):
        """ln Z as `log_partition` has it, with its standard error.

        Returns
        -------
        LogPartition
            A record of `value`, `standard_error` (0.0 if exact) and `method`. The error is that of a mean of
            weights: it says nothing of chains that have all missed a mode.
        """
        check_is_fitted(self)
        check_choice("method", method, ("auto", "exact", "ais"))
        check_integer("n_chains", n_chains, least=2)
        check_integer("n_steps", n_steps, least=1)
        machine = self._machine
        if method == "auto":
            method = "exact" if machine.bits <= LISTED_BITS else "ais"
        with torch.no_grad():
            if method == "ais":
                generator = generator_of(random_state, machine.components.device)
                return machine.annealed_log_partition(n_chains, n_steps, generator)
            if machine.bits > MOST_BITS:
                raise ValueError(
                    f'method="exact" would list 2^{machine.bits:.0f} states; use "ais", which samples'
                )
            return machine.exact_log_partition()

    def _remembered_partition(self):
        if "_partition" not in vars(self):
            self._partition = self.estimate_log_partition(random_state=0)
        return self._partition

    # -- draws ----------------------------------------------------------------------------------------

    def gibbs(self, X, n_steps=1, *, random_state=None):
        """Rows after so many Gibbs steps from X: binary, or real for Gaussian units.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        n_steps : int, default=1
        random_state : int, Generator, RandomState or None

        Returns
        -------
        ndarray of shape (n_samples, n_features)
        """
        check_is_fitted(self)
        check_integer("n_steps", n_steps, least=1)
        data = check_data(self, X, reset=False)
        v = torch.cat([torch.as_tensor(to_numpy(block.X), dtype=torch.float64) for block in data.blocks()])
        self._check_rows(v)
        v = v.to(self.module_.components.device)
        with torch.no_grad():
            v, _ = self._machine.gibbs(v, n_steps, generator_of(random_state, v.device))
        return v.cpu().numpy()

    def sample(self, n_samples=1, *, n_steps=1000, random_state=None):
        """Draw rows by Gibbs sampling, from independent chains.

        Parameters
        ----------
        n_samples : int, default=1
        n_steps : int, default=1000
            Gibbs steps of every chain; more where the machine has well separated modes.
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        H : ndarray of shape (n_samples, n_components)
            The hidden units that the rows were drawn from.
        """
        check_is_fitted(self)
        check_draws(self, n_samples)
        check_integer("n_steps", n_steps, least=1)
        machine = self._machine
        generator = generator_of(random_state, machine.components.device)
        with torch.no_grad():
            v = machine.units.draw(machine.intercept_visible.expand(n_samples, -1), generator)
            v, h = machine.gibbs(v, n_steps, generator)
        return v.cpu().numpy(), h.cpu().numpy()

    def impute(self, X, *, method="mean_field", n_steps=100, random_state=0, out=None):
        """Rows with missing entries (NaN) replaced by their conditional means.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        method : {"mean_field", "gibbs"}, default="mean_field"
            "mean_field" alternates the means of hidden units and of missing visible ones. "gibbs" draws both
            in turn, with the observed units fixed, and averages the means over the second half of the steps:
            slower, but exact with enough steps.
        n_steps : int, default=100
        random_state : int, Generator, RandomState or None
            Seed of the draws of "gibbs".
        out : path of a .npy file, optional

        Returns
        -------
        array of shape (n_samples, n_features)
        """
        check_choice("method", method, ("mean_field", "gibbs"))
        check_integer("n_steps", n_steps, least=1)
        seed = seed_of(random_state)

        def part(machine, X):
            missing = torch.isnan(X)
            if not bool(missing.any()):
                self._check_rows(X)
                return X
            observed = torch.where(missing, 0.0, X)
            super(RBM, self)._check_rows(observed)
            v = torch.where(missing, machine.units.mean(machine.intercept_visible[None]), X)
            if method == "mean_field":
                for _ in range(n_steps):
                    v = torch.where(missing, machine.visible(machine.hidden(v)), X)
                return v
            draws, total, n_kept = RowDraws(X, seed), torch.zeros_like(X), 0
            for step in range(n_steps):
                h = (draws.uniform(machine.n_hidden) < machine.hidden(v)).to(X.dtype)
                field = machine.field(h)
                if step >= n_steps // 2:
                    total, n_kept = total + machine.units.mean(field), n_kept + 1
                v = torch.where(missing, drawn_units(machine.units, field, draws), X)
            return torch.where(missing, total / n_kept, X)

        return self._exactly(part, X, out, missing=True)

    @property
    def _machine(self):
        return self.module_.within(torch.float64)

    def _exactly(self, part, X, out, missing=False):
        """`part` of the machine and rows in float64."""

        def of_module(module, X):
            return part(module.within(X.dtype), X)

        return self.rows_through(of_module, X, out, dtype=torch.float64, missing=missing)


class _Holder:
    """Given parameters, validated."""


def drawn_units(units, field, draws):
    """Visible units from draws that belong to rows."""
    rest, labels = units.parted(field)
    if isinstance(units, GaussianUnits):
        drawn = rest + units.variance**0.5 * draws.normal(rest.shape[1])
    else:
        drawn = (draws.uniform(rest.shape[1]) < torch.sigmoid(rest)).to(field.dtype)
    if not units.n_labels:
        return drawn
    below = torch.cumsum(torch.softmax(labels, dim=1), dim=1)[:, :-1]
    chosen = (draws.uniform(1) > below).sum(dim=1)
    on = torch.nn.functional.one_hot(chosen, units.n_labels).to(field.dtype)
    return torch.cat([drawn, on], dim=1)
