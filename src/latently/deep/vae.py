"""Variational autoencoders.

    z ~ N(0, I_q)    x | z ~ N(g(z), s2 I) or Bernoulli(g(z))    q(z | x) = N(m(x), diag v(x))

    ELBO(x)  = E_q[ln p(x | z)] - KL(q(z | x) || p(z)),     KL = 1/2 sum_j (m_j^2 + v_j - 1 - ln v_j)
    ln p(x) ~= ln 1/S sum_s p(x | z_s) p(z_s) / q(z_s | x),  z_s ~ q(z | x)

After training, p(z) may be replaced by a mixture fitted to one draw of q for each row, which is meant to
raise ln p(x); the ELBO may fall, as a large mixture overfits these draws. Rows of the Gaussian likelihood are
centred and divided by one common scale inside; densities are in the units of X. A row costs a pass through
the encoder and, for each draw, one through the decoder.
Kingma and Welling (2014), ICLR; Burda, Grosse and Salakhutdinov (2016), ICLR; Tomczak and Welling (2018),
AISTATS.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from latently.core.drivers import Objective
from latently.deep.coders import CODERS, LOG_2PI, divergence
from latently.deep.coding import CodingEstimator
from latently.deep.draws import RowDraws
from latently.estimators.checks import (
    check_choice,
    check_flag,
    check_integer,
    check_number,
)
from latently.estimators.memory import check_draws
from latently.estimators.options import estimator, option
from latently.estimators.randomness import draw_from
from latently.estimators.rejection import Rejecting
from latently.estimators.rows import in_main_memory
from latently.mixture import GaussianMixture
from latently.training.generators import generator_of, seed_of

_SAMPLES_AT_A_TIME = 50
_PRIOR_COMPONENTS = 20


@dataclass(frozen=True)
class LogDensity:
    """Log densities of rows by importance sampling."""

    value: NDArray[Any]  # (n,)
    standard_error: NDArray[Any]  # (n,), to first order
    effective_samples: NDArray[Any]  # (n,), of the draws: few where q is far from the posterior


# -- options ----------------------------------------------------------------------------------------------


def _check_prior(name, value):
    if isinstance(value, str) and value in ("normal", "mixture"):
        return
    usable = all(hasattr(value, method) for method in ("get_params", "fit", "score_samples", "sample"))
    if not usable or isinstance(value, type):
        raise ValueError(f'{name} must be "normal", "mixture" or a density such as MFA(10, 5), not {value!r}')


@estimator
class VAE(Rejecting, CodingEstimator):
    """Variational autoencoder: p(x) = integral of p(x | z) p(z) with a network for the mean of x given z.

    Parameters
    ----------
    n_factors : int, default=2
        Number of latent variables q.
    likelihood : {"gaussian", "bernoulli"}, default="gaussian"
        Gaussian with one learnt variance, or Bernoulli for rows in [0, 1].
    encoder, decoder : torch.nn.Module, optional
        Networks of your own: rows (n, n_features) to (n, 2 n_factors), means and log variances; and codes
        (n, n_factors) to (n, n_features), means or, for "bernoulli", log odds. Copies are trained, from the
        parameters that they have. A saved file holds their parameters, but `latently.load` needs both.
    prior : {"normal", "mixture"} or density, default="normal"
        p(z). A mixture is fitted to draws of q(z | x) after training; "mixture" has 20 Gaussian components
        (fewer for few rows), and any density of latently may be given, such as `MFA(10, 5)`.
    binarize : bool, default=False
        Whether fractions in the rows are drawn as 0 or 1, anew in each epoch; for "bernoulli".
    warm_up : int, default=0
        Epochs over which the weight of the KL divergence in the loss rises to one.
    learning_rate : float, default=5e-3
        Step size of Adam; for large nets and long trainings 1e-3 is better.
    {options}

    Attributes
    ----------
    noise_variance_ : float
        Variance of x given z, in the units of X; only for the Gaussian likelihood.
    prior_ : density or None
        The fitted density of codes; None for N(0, I).
    history_ : ndarray of shape (n_iter,)
        Mean ELBO of the rows in each epoch, with one draw for each row, while the parameters change; it is
        noisy.
    {attributes}

    Notes
    -----
    Missing entries are refused by all methods but `impute`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.deep import VAE
    >>> X = load_digits().data / 16
    >>> model = VAE(2, hidden_layer_sizes=(30,), likelihood="bernoulli", max_iter=5, random_state=0).fit(X)
    >>> model.transform(X).shape, model.sample(3, random_state=0)[0].shape
    ((1797, 2), (3, 64))
    >>> bool(model.bound(X).mean() < model.score_samples(X, n_samples=100).mean())
    True
    """

    n_factors: int = option(default=2, check=check_integer, least=1)
    _: KW_ONLY
    likelihood: str = option(default="gaussian", check=check_choice, choices=tuple(CODERS))
    prior: Any = option(default="normal", check=_check_prior)
    binarize: bool = option(default=False, check=check_flag)
    warm_up: int = option(default=0, check=check_integer, least=0)
    learning_rate: float = option(default=5e-3, check=check_number, least=0)

    objective: ClassVar[Objective] = Objective("ELBO per row")
    watched: ClassVar[str] = "ELBO"

    # -- fitting --------------------------------------------------------------------------------------

    def _check_options(self):
        super()._check_options()
        if self.binarize and self.likelihood != "bernoulli":
            raise ValueError(f'binarize=True needs likelihood="bernoulli", not {self.likelihood!r}')

    def _check_rows(self, X):
        if self.likelihood == "bernoulli":
            low, high = float(X.min()), float(X.max())
            if low < 0.0 or high > 1.0:
                raise ValueError(
                    f'likelihood="bernoulli" needs X in [0, 1], but it is from {low:.6g} to {high:.6g}; '
                    'rescale X, or use likelihood="gaussian"'
                )

    def _module(self, n_features):
        encoder, decoder = self._networks(n_features, 2 * self.n_factors)
        return CODERS[self.likelihood](encoder, decoder, n_features)

    @property
    def static_steps(self):  # type: ignore[override]
        """Networks of the user may do anything."""
        return self.encoder is None and self.decoder is None

    def _losses(self, module, batch):
        X = batch.X
        if self.binarize:
            X = torch.empty_like(X).uniform_(generator=batch.generator).lt_(X)
        m, log_v = module.posterior(X)
        noise = torch.empty_like(m).normal_(generator=batch.generator)
        Z = m + torch.exp(0.5 * log_v) * noise
        found = batch.mean(module.log_likelihood(X, Z[:, None])[:, 0])
        kl = batch.mean(divergence(m, log_v))
        share = 1.0 if self.warm_up == 0 else min(1.0, (batch.epoch + 1) / self.warm_up)
        return {"loss": share * kl - found, "ELBO": (found - kl).detach(), "KL": kl.detach()}

    def _finish(self, rows, generators):
        self.prior_ = None
        if isinstance(self.prior, str) and self.prior == "normal":
            return
        codes, weights = [], []
        module = self.module_
        with torch.no_grad():
            for batch in rows.batches(generators.sampling):
                m, log_v = module.posterior(batch.X)
                noise = torch.empty_like(m).normal_(generator=batch.generator)
                codes.append((m + torch.exp(0.5 * log_v) * noise).double().cpu())
                weights.append(batch.weight)
        Z = torch.cat(codes).numpy()
        weight = None if weights[0] is None else torch.cat(weights).double().cpu().numpy()
        seed = int(generators.shuffling.integers(2**31))
        if isinstance(self.prior, str):
            K = max(1, min(_PRIOR_COMPONENTS, len(Z) // (10 * self.n_factors)))
            prior = GaussianMixture(K, max_iter=500, tol=1e-5, n_init=1, random_state=seed)
        else:
            prior = clone(self.prior)
            if "random_state" in prior.get_params() and prior.random_state is None:
                prior.set_params(random_state=seed)
        self.prior_ = prior.fit(Z) if weight is None else prior.fit(Z, sample_weight=weight)

    # -- codes ----------------------------------------------------------------------------------------

    @property
    def noise_variance_(self):
        if "module_" not in vars(self) or self.likelihood != "gaussian":
            raise AttributeError('noise_variance_ exists after fit with likelihood="gaussian"')
        return self.module_.noise_variance

    def factor_posterior(self, X):
        """Means and variances of q(z | x), (n_samples, n_factors) each.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        """

        def part(module, X):
            m, log_v = module.posterior(X)
            return torch.cat([m, torch.exp(log_v)], dim=1)

        both = self._exactly(part, X)
        return both[:, : self.n_factors], both[:, self.n_factors :]

    def impute(self, X, *, n_steps=10, n_samples=200, random_state=0, out=None):
        """Rows with missing entries (NaN) replaced by their conditional means.

        Missing entries, at first the means of their columns, are encoded and decoded `n_steps` times, which
        tells where codes are to be drawn; these, and as many drawn from the prior, are then weighted by the
        observed entries alone.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        n_steps : int, default=10
        n_samples : int, default=200
            Codes drawn for each row from either.
        random_state : int, Generator, RandomState or None, default=0
            Seed of the draws, which depend on it and the row alone.
        out : path of a .npy file, optional
        """
        check_is_fitted(self)
        check_integer("n_steps", n_steps, least=1)
        check_integer("n_samples", n_samples, least=1)
        seed, density = seed_of(random_state), self._prior_density()
        log_prior = density or (lambda Z: -0.5 * (Z**2 + LOG_2PI).sum(dim=2))
        others = self._prior_codes(n_samples, seed)  # (S, q), the same for all rows

        def part(module, X):
            missing = torch.isnan(X)
            filled = torch.where(missing, module.mean, X)
            self._check_rows(filled)
            if not bool(missing.any()):
                return filled
            for _ in range(n_steps):
                filled = torch.where(missing, module.expected(module.posterior(filled)[0]), X)
            m, log_v = module.posterior(filled)
            noise = RowDraws(X, seed).normal(n_samples, m.shape[1])
            drawn = m[:, None] + torch.exp(0.5 * log_v)[:, None] * noise
            Z = torch.cat([drawn, others.to(X).expand(len(X), -1, -1)], dim=1)
            apart = (Z - m[:, None]) * torch.exp(-0.5 * log_v)[:, None]
            log_q = -0.5 * (apart**2 + LOG_2PI + log_v[:, None]).sum(dim=2)
            log_p = log_prior(Z)
            observed = (~missing).to(X.dtype)
            given = torch.where(missing, 0.0, X)
            log_w = module.log_likelihood(given, Z, observed) + log_p - torch.logaddexp(log_q, log_p)
            w = torch.softmax(log_w, dim=1)
            expected = module.expected(Z.reshape(-1, Z.shape[2])).reshape(*Z.shape[:2], -1)
            return torch.where(missing, torch.einsum("ns,nsd->nd", w, expected), X)

        floats = 2 * n_samples * (self.n_features_in_ + sum(self.hidden_layer_sizes) + 4 * self.n_factors)
        return self.rows_through(part, X, out, dtype=torch.float64, missing=True, floats_per_row=2 * floats)

    # -- densities ------------------------------------------------------------------------------------

    def kl_divergence(self, X, *, out=None):
        """KL of q(z | x) from N(0, I) in closed form, (n_samples,), whatever the prior."""
        return self._exactly(lambda module, X: divergence(*module.posterior(X)), X, out)

    def bound(self, X, *, n_samples=100, random_state=0, out=None):
        """The ELBO of each row, (n_samples,), from draws of q(z | x); the KL of N(0, I) is in closed form.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        n_samples : int, default=100
            Draws for each row.
        random_state : int, Generator, RandomState or None, default=0
            Seed of the draws, which depend on it and the row alone.
        out : path of a .npy file, optional
        """
        check_is_fitted(self)
        check_integer("n_samples", n_samples, least=1)
        seed, prior = seed_of(random_state), self._prior_density()

        def part(module, X):
            m, log_v = module.posterior(X)
            total = torch.zeros(len(X), dtype=X.dtype, device=X.device)
            for Z, _ in _drawn_codes(X, m, log_v, seed, n_samples):
                total += module.log_likelihood(X, Z).sum(dim=1)
                if prior is not None:
                    total += prior(Z).sum(dim=1)
            if prior is None:
                return total / n_samples - divergence(m, log_v)
            return total / n_samples + 0.5 * (1.0 + LOG_2PI + log_v).sum(dim=1)

        return self._by_draws(part, X, out)

    def score_samples(self, X, *, n_samples=1000, random_state=0, out=None):
        """Log density of each row by importance sampling from q(z | x), (n_samples,).

        On average it is below the truth and above `bound`, and rises with `n_samples`;
        `estimate_log_density` has its standard error.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        n_samples : int, default=1000
            Draws for each row.
        random_state : int, Generator, RandomState or None, default=0
            Seed of the draws, which depend on it and the row alone.
        out : path of a .npy file, optional
        """
        part = self._importance(n_samples, random_state)
        return self._by_draws(lambda module, X: part(module, X)[:, 0], X, out)

    def estimate_log_density(self, X, *, n_samples=1000, random_state=0):
        """`score_samples` with its standard error.

        Returns
        -------
        LogDensity
            A record of `value`, `standard_error` and `effective_samples`, each (n_samples,).
        """
        found = in_main_memory(self._by_draws(self._importance(n_samples, random_state), X, None))
        return LogDensity(found[:, 0], found[:, 1], found[:, 2])

    def _importance(self, n_samples, random_state):
        check_is_fitted(self)
        check_integer("n_samples", n_samples, least=1)
        seed, prior = seed_of(random_state), self._prior_density()

        def part(module, X):
            m, log_v = module.posterior(X)
            log_sum = torch.full((len(X),), -math.inf, dtype=X.dtype, device=X.device)
            log_squares = log_sum.clone()
            for Z, noise in _drawn_codes(X, m, log_v, seed, n_samples):
                log_prior = -0.5 * (Z**2 + LOG_2PI).sum(dim=2) if prior is None else prior(Z)
                log_q = -0.5 * (noise**2 + LOG_2PI + log_v[:, None]).sum(dim=2)
                log_w = module.log_likelihood(X, Z) + log_prior - log_q
                log_sum = torch.logaddexp(log_sum, torch.logsumexp(log_w, dim=1))
                log_squares = torch.logaddexp(log_squares, torch.logsumexp(2.0 * log_w, dim=1))
            effective = torch.exp(2.0 * log_sum - log_squares)
            error = torch.sqrt((1.0 / effective - 1.0 / n_samples).clamp(min=0.0))
            return torch.stack([log_sum - math.log(n_samples), error, effective], dim=1)

        return part

    def score(self, X, y=None, sample_weight=None):
        """Mean log density of the rows, weighted if `sample_weight` is given."""
        return float(np.average(in_main_memory(self.score_samples(X)), weights=sample_weight))

    def _prior_density(self):
        """ln p(z) of codes (n, S, q), (n, S); None for N(0, I)."""
        if self.prior_ is None:
            return None
        device = self.module_.mean.device
        on_cpu = device.type == "cpu" or not hasattr(self.prior_, "to")
        density = self.prior_ if on_cpu else self.prior_.to(device)
        if not on_cpu:  # torch loads its linear algebra at the first call: not in two threads at once
            density.score_samples(torch.zeros((1, self.n_factors), dtype=torch.float64, device=device))

        def log_prior(Z):
            flat = Z.reshape(-1, Z.shape[2])
            if on_cpu:
                found = torch.from_numpy(np.asarray(density.score_samples(flat.cpu().numpy())))
            else:
                found = density.score_samples(flat)
            return found.to(Z).reshape(Z.shape[:2])

        return log_prior

    def sample(self, n_samples=1, *, random_state=None):
        """Draw rows from the model, with their noise.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, Generator, RandomState or None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        Z : ndarray of shape (n_samples, n_factors)
            The codes that the rows were drawn from.
        """
        check_is_fitted(self)
        check_draws(self, n_samples)
        device = self.module_.mean.device
        generator = generator_of(random_state, device)
        Z = self._prior_codes(n_samples, generator.initial_seed()).to(device)
        with torch.no_grad():
            X = self._double().draw(Z, generator)
        return X.cpu().numpy(), Z.cpu().numpy()

    def _prior_codes(self, n, seed):
        """Codes drawn from the prior, (n, q), in main memory."""
        rng = np.random.default_rng(seed)
        if self.prior_ is None:
            return torch.from_numpy(rng.standard_normal((n, self.n_factors)))
        return torch.from_numpy(draw_from(self.prior_, n, rng)[0])

    def _by_draws(self, part, X, out):
        widths = self.n_features_in_ if hasattr(self, "n_features_in_") else 0
        floats = _SAMPLES_AT_A_TIME * (widths + sum(self.hidden_layer_sizes) + 4 * self.n_factors)
        return self.rows_through(part, X, out, dtype=torch.float64, floats_per_row=floats)

    # -- files ----------------------------------------------------------------------------------------

    def _parts(self):
        return super()._parts() | {"prior": self.prior_}

    def _set_parts(self, *, module, prior):  # type: ignore[override]
        super()._set_parts(module=module)
        self.prior_ = prior
        if prior is not None and getattr(prior, "n_features_in_", None) != self.n_factors:
            raise ValueError(f"the prior must be a density of {self.n_factors} factors")


def _drawn_codes(X, m, log_v, seed, n_samples):
    """Codes (n, S, q) drawn from q(z | x), a few at a time, with the noise that they were made of."""
    draws = RowDraws(X, seed)
    for start in range(0, n_samples, _SAMPLES_AT_A_TIME):
        noise = draws.normal(min(_SAMPLES_AT_A_TIME, n_samples - start), m.shape[1])
        yield m[:, None] + torch.exp(0.5 * log_v)[:, None] * noise, noise
