"""Deep autoencoding Gaussian mixtures, for anomalies.

    x~ = standardised row      c = h(x~)      x' = g(c)      r = softmax(MLP(z))
    z = [c, |x~ - x'| / max(|x~|, .01 sqrt D), cos(x~, x')], standardised over the training rows

    energy(x) = -ln sum_k w_k N(z; mu_k, S_k)
    loss = mean |x~ - x'|^2 + a mean energy + b sum_kj 1 / S_kjj

While training, z is standardised by the batch and w, mu, S are those of the batch. Afterwards passes over all
rows set them once and for all, in float64. n rows, q factors, d = q + 2, K components; a row costs a pass
through the networks and O(K d^2).
Zong et al. (2018), ICLR; what is changed and why: docs/dagmm.md.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.base import OutlierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from latently.core.drivers import Objective
from latently.deep.coding import CodingEstimator
from latently.deep.latent_gaussians import Sums, as_array, log_joint, weighted_mixture
from latently.deep.nets import mlp
from latently.estimators.checks import (
    check_covariances,
    check_integer,
    check_layer_sizes,
    check_mixing_weights,
    check_number,
    check_positive,
    numbers,
)
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, check_names, fitted_arrays, set_given, store
from latently.estimators.rejection import Rejecting
from latently.estimators.rows import in_main_memory
from latently.mixture import GaussianMixture

_ERROR_FEATURES = 2
_SMALLEST_ROW = 0.01  # norm per root of a feature, below which errors are not relative to the row


def _weights(name, array):
    check_mixing_weights(name, array)
    return array


def _scales(name, array):
    check_positive(name, array)
    return array


_TABLE = (
    Parameter("code_means", None, ("d",)),
    Parameter("code_scales", None, ("d",), _scales),
    Parameter("weights", None, ("K",), _weights),
    Parameter("means", None, ("K", "d")),
    Parameter("covariances", None, ("K", "d", "d"), check_covariances),
    Parameter("offset", None, ()),
)


class Compressor(nn.Module):
    """Autoencoder and estimation network; rows are in the units of X."""

    mean: Tensor
    scale: Tensor

    def __init__(self, encoder: nn.Module, decoder: nn.Module, estimator: nn.Module, n_features: int):
        super().__init__()
        self.encoder, self.decoder, self.estimator = encoder, decoder, estimator
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features))

    def start(self, mean: Tensor, variance: Tensor) -> None:
        self.mean.copy_(mean)
        deviation = torch.sqrt(variance)
        constant = deviation <= 1e-7 * mean.abs()  # what float32 leaves of a constant column
        self.scale.copy_(torch.where(constant | (deviation == 0), 1.0, deviation))

    def quick_parameters(self) -> list[nn.Parameter]:
        return []

    def inside(self, X: Tensor) -> Tensor:
        return (X - self.mean) / self.scale

    def codes(self, X: Tensor) -> Tensor:
        found: Tensor = self.encoder(self.inside(X))
        return found

    def expected(self, Z: Tensor) -> Tensor:
        found: Tensor = self.mean + self.scale * self.decoder(Z)
        return found

    def features(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Codes with the two features of the error, (n, d), not standardised; squared errors (n,)."""
        x = self.inside(X)
        c = self.encoder(x)
        y = self.decoder(c)
        length, rebuilt, error = _norm(x), _norm(y), _norm(x - y)
        relative = error / length.clamp(min=_SMALLEST_ROW * math.sqrt(x.shape[1]))
        one, other = x / length.clamp(min=1e-30)[:, None], y / rebuilt.clamp(min=1e-30)[:, None]
        cosine = (one * other).sum(dim=1)
        return torch.cat([c, relative[:, None], cosine[:, None]], dim=1), error**2

    def log_memberships(self, Z: Tensor) -> Tensor:
        """ln r of standardised features (n, d), (n, K)."""
        return torch.log_softmax(self.estimator(Z), dim=1)


def _norm(X: Tensor) -> Tensor:
    """Norms (n,) of rows, whose squares may overflow."""
    unit = X.detach().abs().amax(dim=1).clamp(min=1e-30)
    found: Tensor = unit * torch.linalg.vector_norm(X / unit[:, None], dim=1)
    return found


@estimator
class DAGMM(OutlierMixin, Rejecting, CodingEstimator):
    """Deep autoencoding Gaussian mixture model: anomalies are rows with a high energy.

    An autoencoder compresses rows to a few factors; these and how well the row is reconstructed are modelled
    by a Gaussian mixture, whose memberships a second network gives.

    Parameters
    ----------
    n_components : int, default=2
        Number of components K of the mixture.
    n_factors : int, default=2
        Number of latent variables q of the autoencoder.
    hidden_layer_sizes : sequence of int, default=(60, 30, 10)
        Sizes of the hidden layers of the encoder, or numbers of channels of its convolutions; the decoder
        mirrors it. () is linear.
    estimation_layer_sizes : sequence of int, default=(10,)
        Sizes of the hidden layers of the network of the memberships.
    energy_weight : float, default=0.1
        Weight of the mean energy in the loss.
    covariance_penalty : float, default=0.005
        Weight of the sum of inverse variances in the loss. Unlike in the paper it is not divided by the
        number of rows, with which it would vanish.
    covariance_shrinkage : float, default=0.01
        Share of every covariance that is replaced by a multiple of the identity with the same trace.
    contamination : float, default=0.1
        Share of the training rows that `predict` calls anomalies, above 0 and below 0.5.
    learning_rate : float, default=5e-3
        Step size of Adam.
    {options}

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_factors + 2)
    covariances_ : ndarray of shape (n_components, n_factors + 2, n_factors + 2)
        The mixture, from passes over all rows after the training; covariances are shrunken.
    code_means_, code_scales_ : ndarray of shape (n_factors + 2,)
        By which codes and features of the error are standardised.
    offset_ : float
        The quantile `contamination` of `score_samples` of the training rows.
    latent_mixture_ : GaussianMixture
        The mixture as a model: `latent_mixture_.score_samples(model.transform(X))` is `score_samples(X)`.
    history_ : ndarray of shape (n_iter,)
        Mean loss in each epoch, while the parameters change; it is noisy.
    {attributes}

    Examples
    --------
    >>> import numpy as np
    >>> from latently.deep import DAGMM
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 2)) @ rng.normal(size=(2, 8)) + 0.1 * rng.normal(size=(500, 8))
    >>> model = DAGMM(hidden_layer_sizes=(16,), contamination=0.05, max_iter=40, random_state=0).fit(X)
    >>> odd = rng.normal(size=(100, 8))
    >>> bool(np.mean(model.predict(odd) == -1) > 0.9), bool(np.mean(model.predict(X) == -1) < 0.1)
    (True, True)
    """

    n_components: int = option(default=2, check=check_integer, least=1)
    n_factors: int = option(default=2, check=check_integer, least=1)
    _: KW_ONLY
    hidden_layer_sizes: Any = option(default=(60, 30, 10), check=check_layer_sizes, fewest=0)
    estimation_layer_sizes: Any = option(default=(10,), check=check_layer_sizes, fewest=0)
    energy_weight: float = option(default=0.1, check=check_number, least=0)
    covariance_penalty: float = option(default=0.005, check=check_number, least=0)
    covariance_shrinkage: float = option(default=0.01, check=check_number, least=0, most=1)
    learning_rate: float = option(default=5e-3, check=check_number, least=0)
    contamination: float = option(default=0.1, check=check_number, least=0, most=0.5)

    objective: ClassVar[Objective] = Objective("loss per row", direction=-1)
    min_batch_size: ClassVar[int] = 2  # covariances of a batch

    # -- fitting --------------------------------------------------------------------------------------

    def _check_options(self):
        super()._check_options()
        if not 0 < self.contamination < 0.5:
            raise ValueError(
                f"contamination={self.contamination} must be above 0 and below 0.5: the share of the "
                "training rows to call anomalies"
            )

    @property
    def _code_size(self):
        return self.n_factors + _ERROR_FEATURES

    def _module(self, n_features):
        sizes = (self._code_size, *map(int, self.estimation_layer_sizes), self.n_components)
        encoder, decoder = self._networks(n_features, self.n_factors)
        return Compressor(encoder, decoder, mlp(sizes, "tanh"), n_features)

    def _losses(self, module, batch):
        raw, errors = module.features(batch.X)
        weight = torch.ones_like(errors) if batch.weight is None else batch.weight
        share = weight / weight.sum()
        mean = share @ raw
        variance = share @ (raw - mean) ** 2
        Z = (raw - mean) * torch.rsqrt(variance + 1e-5)
        log_resp = module.log_memberships(Z) + torch.log(share)[:, None]
        mixture = weighted_mixture(Z, log_resp, self.covariance_shrinkage)
        energy = batch.mean(-torch.logsumexp(log_joint(Z, *mixture), dim=1))
        error = batch.mean(errors)
        penalty = (1.0 / mixture[2].diagonal(dim1=-2, dim2=-1)).sum()
        loss = error + self.energy_weight * energy + self.covariance_penalty * penalty
        return {
            "loss": loss,
            "squared error": error.detach(),
            "energy": energy.detach(),
            "penalty": penalty.detach(),
        }

    def _fit(self, data, targets=None):
        self._check_enough(data, self._code_size)
        super()._fit(data, targets)
        self._pass_over(data)

    def _partial_fit(self, data, targets=None):
        super()._partial_fit(data, targets)
        self._pass_over(data)

    def _pass_over(self, data):
        """What the final networks make of all rows: the mixture, and the threshold."""
        module = self._double()
        n: Any = 0.0
        total: Any = 0.0
        squares: Any = 0.0
        centre: Any = None
        with torch.no_grad():
            kept: Any = None  # codes of rows in memory are small; else the networks run again in every pass

            def found():
                if kept is not None:
                    return kept
                return ((module.features(X)[0], weight) for X, weight, _ in self._pieces(data))

            kept = list(found()) if data.in_memory else None
            for raw, weight in found():
                if centre is None:
                    centre = raw.mean(dim=0)
                raw = raw - centre
                n, total, squares = n + weight.sum(), total + weight @ raw, squares + weight @ raw**2
            mean, variance = centre + total / n, (squares / n - (total / n) ** 2).clamp(min=0.0)
            scale = torch.sqrt(variance)
            flat = scale <= 1e-12 * (1.0 + mean.abs())  # rounding, not variation
            scale = torch.where(flat, 1.0, scale)
            sums: Any = None
            for raw, weight in found():
                Z = (raw - mean) / scale
                more = Sums.of(Z, weight[:, None] * torch.exp(module.log_memberships(Z)))
                sums = more if sums is None else sums + more
            weights, means = sums.weight / sums.weight.sum(), sums.means()
            covariances = sums.covariances(self.covariance_shrinkage)
            mixture = torch.log(weights), means, covariances
            scores = [torch.logsumexp(log_joint((raw - mean) / scale, *mixture), dim=1) for raw, _ in found()]
        named = {
            "code_means": mean,
            "code_scales": scale,
            "weights": weights,
            "means": means,
            "covariances": covariances,
        }
        store(self, {name: as_array(value) for name, value in named.items()})
        weight = data.field("weight")
        self.offset_ = np.float64(_quantile(as_array(torch.cat(scores)), self.contamination, weight))

    # -- codes ----------------------------------------------------------------------------------------

    @property
    def _n_features_out(self):
        return self._code_size

    def _sizes_in_words(self):
        return [f"{self.n_components} components", f"{self.n_factors} factors"]

    def transform(self, X, *, out=None):
        """Codes and the two features of the error, standardised, (n_samples, n_factors + 2).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
            Write the result to this file block by block and return the file, memory-mapped.
        """
        return self._of_features(lambda module, Z: Z, X, out)

    def inverse_transform(self, Z):
        """Means of the rows given `transform`, of which only the codes count, (n_samples, n_features)."""
        check_is_fitted(self)
        given = torch.is_tensor(Z)
        Z = Z if given else numbers("Z", Z)
        if Z.ndim != 2 or Z.shape[1] != self._code_size:
            raise ValueError(f"Z must have {self._code_size} columns, not shape {tuple(Z.shape)}")
        q = self.n_factors
        mean, scale = (
            torch.from_numpy(a[:q]).to(Z) if given else a[:q] for a in (self.code_means_, self.code_scales_)
        )
        return super().inverse_transform(Z[:, :q] * scale + mean)

    def memberships(self, X, *, out=None):
        """Memberships of the components, as the estimation network gives them, (n_samples, n_components)."""
        return self._of_features(lambda module, Z: torch.exp(module.log_memberships(Z)), X, out)

    # -- anomalies ------------------------------------------------------------------------------------

    def energy(self, X, *, out=None):
        """Minus the log density of the features of each row, (n_samples,): high for anomalies.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
        """
        return self._log_density(X, -1.0, out)

    def score_samples(self, X, *, out=None):
        """The log density of the features of each row, minus the energy, (n_samples,): low for anomalies.

        It is a density of `transform(X)`, not of the rows.
        """
        return self._log_density(X, 1.0, out)

    def score(self, X, y=None, sample_weight=None):
        """Mean of `score_samples`, weighted if `sample_weight` is given."""
        return float(np.average(in_main_memory(self.score_samples(X)), weights=sample_weight))

    def decision_function(self, X):
        """`score_samples` minus `offset_`, (n_samples,): negative for anomalies."""
        return self.score_samples(X) - float(self.offset_)

    def predict(self, X):
        """-1 for anomalies and 1 for all others, (n_samples,) int."""
        return np.where(in_main_memory(self.decision_function(X)) < 0, -1, 1)

    @property
    def latent_mixture_(self):
        """The mixture as a `GaussianMixture` of `transform(X)`."""
        if not hasattr(self, "covariances_"):
            raise AttributeError("DAGMM has no latent_mixture_ before fit")
        return GaussianMixture.from_parameters(
            weights=self.weights_, means=self.means_, covariances=self.covariances_
        )

    def _log_density(self, X, sign, out):
        check_is_fitted(self)
        log_weights = np.log(np.maximum(self.weights_, np.finfo(np.float64).tiny))
        mixture = [torch.from_numpy(a) for a in (log_weights, self.means_, self.covariances_)]

        def part(module, Z):
            there = [tensor.to(Z) for tensor in mixture]
            return sign * torch.logsumexp(log_joint(Z, *there), dim=1)

        return self._of_features(part, X, out)

    def _of_features(self, part, X, out):
        """`part(module, Z)` of standardised features, for all rows."""
        check_is_fitted(self)
        mean, scale = torch.from_numpy(self.code_means_), torch.from_numpy(self.code_scales_)

        def of_rows(module, X):
            return part(module, (module.features(X)[0] - mean.to(X)) / scale.to(X))

        floats = 2 * self.n_features_in_ + 3 * self.n_components * self._code_size
        return self._exactly(of_rows, X, out, floats_per_row=floats)

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        return fitted_arrays(self, _TABLE)

    def _set_fitted_arrays(self, **given):
        check_names(_TABLE, given)
        super()._set_fitted_arrays()
        set_given(self, _TABLE, {"d": self._code_size, "K": self.n_components}, given)


def _quantile(scores, share, weight):
    if weight is None:
        return np.quantile(scores, share)
    return np.quantile(scores, share, weights=np.asarray(weight), method="inverted_cdf")
