"""Autoencoders that classify, generate and reject, with a Gaussian of codes for each class.

    z = h(x)    x | z ~ N(g(z), s2 I)    l_c(z) = ln p_c + ln N(z; mu_c, S_c)

    loss = mean b [-ln p(x | z) - l_y(z)] + a [ln sum_c exp l_c(z) - l_y(z)]
    p(c | x) = softmax l_c(z)      score = ln sum_c exp l_c(z) + ln p(x | z)

Deterministic codes have unit variance (batch normalisation without parameters), and S_c is at least a floor,
or the loss would fall for ever as codes shrink. In the variational model q(z | x) = N(m, diag v), and
KL(q || N(mu_y, S_y)) replaces -ln N. Rows without a label have ln sum_c exp l_c in place of l_y.
Gaussians learnt by gradients lag behind the codes: after training a pass over all rows sets p, mu, S, s2.
C classes, q factors; a row costs a pass through the networks and O(C q^2).
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from latently.core.drivers import Objective
from latently.deep.coders import LOG_2PI
from latently.deep.coding import CodingEstimator
from latently.deep.joint_coder import JointCoder
from latently.deep.latent_gaussians import Sums, as_array, log_joint, squared_distances
from latently.deep.source_nets import source_networks
from latently.estimators.checks import (
    check_choice,
    check_covariances,
    check_flag,
    check_integer,
    check_layer_sizes,
    check_mixing_weights,
    check_non_negative,
    check_number,
    check_positive,
)
from latently.estimators.classifier import DensityClassifier
from latently.estimators.labels import UNLABELLED, class_labels, classes_to_come
from latently.estimators.messages import unchanged_on_failure
from latently.estimators.options import estimator, option
from latently.estimators.parameters import Parameter, check_names, fitted_arrays, set_given, store
from latently.estimators.randomness import as_generator
from latently.estimators.rejection import remember_rows
from latently.estimators.rows import in_main_memory
from latently.mixture import GaussianMixture

_LEAST_NOISE = 1e-12  # as a fraction of the variance of the rows
_MEMORY = 0.9  # what a batch of `partial_fit` leaves of the rows before
_TINY = np.finfo(np.float64).tiny


def _prior(name, array):
    check_mixing_weights(name, array)
    return array


def _noise(name, array):
    check_positive(name, array)
    return array


_TABLE = (
    Parameter("class_count", None, ("C",), check_non_negative),
    Parameter("class_prior", None, ("C",), _prior),
    Parameter("means", None, ("C", "q")),
    Parameter("covariances", None, ("C", "q", "q"), check_covariances),
    Parameter("noise_variance", None, (), _noise),
)


@estimator
class JointAutoencoder(DensityClassifier, CodingEstimator):
    """An autoencoder that classifies, generates and rejects: the codes of each class are Gaussian.

    Parameters
    ----------
    n_factors : int, default=8
        Number of latent variables q.
    hidden_layer_sizes : sequence of int, default=(128, 64)
        Sizes of the hidden layers of the encoder, or numbers of channels of its convolutions; the decoder
        mirrors it. () is linear.
    architecture : {"auto", "mlp", "conv", "source"}, default="auto"
        Multilayer perceptrons or convolutional nets; "auto" is "conv" if `image_shape` is given. "source" has
        the layers of the source document, whatever `hidden_layer_sizes`; images must then be in [0, 1].
    encoder, decoder : torch.nn.Module, optional
        Networks of your own: rows (n, n_features) to codes (n, n_factors), or to means and log variances
        (n, 2 n_factors) if variational; and codes to rows, both centred and divided by one common scale.
        Copies are trained. A saved file holds their parameters, but `latently.load` needs both.
    variational : bool, default=False
        Whether codes are distributions q(z | x) = N(m, diag v) instead of points.
    classification_weight : float, default=1.0
        Weight a of the cross-entropy in the loss.
    generation_weight : float, default=0.1
        Weight b of the joint log density of rows, codes and labels in the loss.
    covariance_shrinkage : float, default=0.05
        Share of the covariance of every class that is replaced by a multiple of the identity with the same
        trace.
    learning_rate : float, default=3e-3
        Step size of Adam.
    max_iter : int, default=50
        Number of epochs.
    {options}

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
    class_count_ : ndarray of shape (n_classes,)
        Number, or weight, of the labelled rows of each class.
    means_ : ndarray of shape (n_classes, n_factors)
    covariances_ : ndarray of shape (n_classes, n_factors, n_factors)
        The Gaussians of the codes of each class, from a pass over all rows after the training; covariances
        are shrunken.
    noise_variance_ : float
        Mean squared error of the reconstructions per feature, in the units of X.
    latent_mixture_ : GaussianMixture
        The Gaussians of the classes as a model of codes.
    history_ : ndarray of shape (n_iter,)
        Mean loss in each epoch, while the parameters change; it is noisy.
    {attributes}

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from latently.deep import JointAutoencoder
    >>> X, y = load_digits(return_X_y=True)
    >>> model = JointAutoencoder(hidden_layer_sizes=(64,), max_iter=20, random_state=0)
    >>> model = model.fit(X[:1200], y[:1200])
    >>> model.score(X[1200:], y[1200:]) > 0.9
    True
    >>> model.generate([3, 8], random_state=0).shape
    (2, 64)
    >>> model = model.calibrate_rejection(X[1200:], acceptance=0.95)
    >>> bool(model.accepts(16 - X[1200:]).mean() < 0.1)  # dark digits on light paper
    True
    """

    n_factors: int = option(default=8, check=check_integer, least=1)
    _: KW_ONLY
    hidden_layer_sizes: Any = option(default=(128, 64), check=check_layer_sizes, fewest=0)
    architecture: str = option(default="auto", check=check_choice, choices=("auto", "mlp", "conv", "source"))
    variational: bool = option(default=False, check=check_flag)
    classification_weight: float = option(default=1.0, check=check_number, least=0)
    generation_weight: float = option(default=0.1, check=check_number, least=0)
    covariance_shrinkage: float = option(default=0.05, check=check_number, least=0, most=1)
    learning_rate: float = option(default=3e-3, check=check_number, least=0)
    max_iter: int = option(default=50, check=check_integer, least=0)

    objective: ClassVar[Objective] = Objective("loss per row", direction=-1)
    min_batch_size: ClassVar[int] = 2  # batch normalisation
    least_classes: ClassVar = 2

    # -- fitting --------------------------------------------------------------------------------------

    def fit(self, X, y=None, sample_weight=None):
        """Train the networks.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
            The rows, without missing entries. Accepts what the other networks accept.
        y : array-like of shape (n_samples,)
            The class of each row, as numbers or text; -1 for unlabelled rows, which only count for the
            density. If y holds only two labels and one of them is -1, it is a class.
        sample_weight : array-like of shape (n_samples,), optional
            Weight of each row.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            data = self._data(X, y, sample_weight, reset=True)
            codes = self._encoded(y, data.count_rows())
            self._check_labelled(data, codes)
            self._check_enough(data, self.n_factors)
            self.__dict__.pop("class_count_", None)
            self._fit(data, codes)
            if not self.variational:
                self._normalise_codes(data)
            self._pass_over(data, codes)
            remember_rows(self, data)
        return self

    def partial_fit(self, X, y=None, sample_weight=None, classes=None):
        """Train the networks for one epoch over a batch of rows.

        The Gaussians of the classes are those of the rows of this call and, with weights that fade, of the
        calls before. Every call should hold rows of several classes, as it decides on the unit of codes.

        Parameters
        ----------
        X, y, sample_weight
            As for `fit`.
        classes : array-like of shape (n_classes,), optional
            All classes that will come, in the first call; by default those of its y.

        Returns
        -------
        self
        """
        self._check_options()
        with unchanged_on_failure(self):
            known = hasattr(self, "module_")
            data = self._data(X, y, sample_weight, reset=not known)
            if not known and classes is not None:
                self.classes_ = classes_to_come(classes)
            given = self.classes_ if known or classes is not None else None
            codes = self._encoded(y, data.count_rows(), given)
            self._partial_fit(data, codes)
            self._pass_over(data, codes)
        return self

    def _check_options(self):
        super()._check_options()
        if self.generation_weight == 0 and self.classification_weight == 0:
            raise ValueError(
                "generation_weight and classification_weight are both 0, so there is nothing to learn"
            )

    def _check_labelled(self, data, codes):
        weight = data.field("weight")
        counted = np.ones(len(codes), dtype=bool) if weight is None else in_main_memory(weight) > 0
        counts = np.bincount(codes[(codes >= 0) & counted], minlength=len(self.classes_))
        if len(counts) > 1 and np.any(counts < 2):
            c = int(np.argmin(counts))
            raise ValueError(
                f"the class {self.classes_[c].item()!r} has {counts[c]} row(s), but the Gaussian of a class "
                "needs at least 2; add rows of this class, or leave it out"
            )
        if np.count_nonzero(counts) < 2:
            raise ValueError("only one class has rows with a positive weight; at least 2 are needed")

    def _networks(self, n_features, n_out):
        if self.architecture != "source":
            return super()._networks(n_features, n_out)
        return source_networks(n_features, self._channels_first(), self.n_factors, n_out)

    def _check_rows(self, X):
        if self.architecture == "source" and self.image_shape is not None:
            low, high = float(X.min()), float(X.max())
            if low < 0.0 or high > 1.0:
                raise ValueError(
                    f'architecture="source" needs images in [0, 1], but X is from {low:.6g} to {high:.6g}; '
                    'rescale X, or use architecture="conv"'
                )

    def _module(self, n_features):
        encoder, decoder = self._networks(n_features, self.n_factors * (2 if self.variational else 1))
        n_classes = len(self.classes_)
        return JointCoder(encoder, decoder, n_features, self.n_factors, n_classes, bool(self.variational))

    def _start(self, module, rows):
        super()._start(module, rows)
        counts = torch.zeros(len(self.classes_), dtype=torch.float64, device=rows.device)
        for batch in rows.batches(torch.Generator(rows.device)):
            weight = torch.ones_like(batch.X[:, 0]) if batch.weight is None else batch.weight
            known = batch.y >= 0
            counts.index_add_(0, batch.y[known], weight[known].double())
        module.log_prior.copy_(torch.log_softmax(torch.log(counts.clamp(min=0.5)), dim=0))

    def _losses(self, module, batch):
        X, known = batch.X, batch.y >= 0
        own_class = batch.y.clamp(min=0)[:, None]

        def of_label(values):  # (n, C) -> (n,)
            return torch.where(known, values.gather(1, own_class)[:, 0], torch.logsumexp(values, dim=1))

        if module.variational:
            m, log_v = module.posterior(X)
            Z = m + torch.exp(0.5 * log_v) * torch.empty_like(m).normal_(generator=batch.generator)
            latent = of_label(module.log_prior - module.class_divergences(m, log_v))
        else:
            Z = module.codes(X)
        joint = log_joint(Z, module.log_prior, module.means, module.covariances())
        own = of_label(joint)
        likelihood = batch.mean(module.log_likelihood(X, Z[:, None])[:, 0])
        density = batch.mean(latent if module.variational else own)
        entropy = batch.mean(torch.logsumexp(joint, dim=1) - own)
        loss = self.classification_weight * entropy - self.generation_weight * (likelihood + density)
        return {
            "loss": loss,
            "cross-entropy": entropy.detach(),
            "log density of codes": density.detach(),
            "log density of rows": likelihood.detach(),
        }

    def _pass_over(self, data, labels):
        """What the final networks make of all rows: prior, Gaussians of the codes, noise."""
        module, C = self._double(), len(self.classes_)
        found: Any = None
        errors, n = 0.0, 0.0
        with torch.no_grad():
            for X, weight, part in self._pieces(data):
                y = torch.from_numpy(labels[part]).to(X.device)
                resp = weight[:, None] * (y[:, None] == torch.arange(C, device=X.device))
                variance = None
                if module.variational:
                    Z, log_v = module.posterior(X)
                    variance = torch.exp(log_v)
                else:
                    Z = module.codes(X)
                more = Sums.of(Z, resp, variance)
                found = more if found is None else found + more
                errors += float(weight @ ((X - module.expected(Z)) ** 2).mean(dim=1))
                n += float(weight.sum())
        noise = max(errors / n, _LEAST_NOISE * float(module.scale) ** 2)
        self._blend(
            as_array(found.weight),
            as_array(found.means()),
            as_array(found.covariances(self.covariance_shrinkage)),
            noise,
        )

    def _blend(self, count, means, covariances, noise):
        """Set the statistics of a fit, or add those of a batch to those before, with weights that fade."""
        if hasattr(self, "class_count_"):
            before = _MEMORY * self.class_count_
            total = before + count
            share = np.divide(count, total, out=np.zeros_like(total), where=total > 0)
            apart = means - self.means_
            between = (share * (1.0 - share))[:, None, None] * apart[:, :, None] * apart[:, None, :]
            a = share[:, None, None]
            covariances = (1.0 - a) * self.covariances_ + a * covariances + between
            means = self.means_ + share[:, None] * apart
            b = count.sum() / max(total.sum(), _TINY)
            noise = (1.0 - b) * float(vars(self)["noise_variance_"]) + b * noise
            count = total
        prior = count / count.sum() if count.sum() > 0 else np.full(len(count), 1.0 / len(count))
        store(self, {"class_count": count, "class_prior": prior, "means": means, "covariances": covariances})
        self.noise_variance_ = np.float64(noise)

    def _normalise_codes(self, data):
        """Let codes of all rows have mean zero and unit variance; those of batches are but estimates."""
        module = self._double()
        n: Any = 0.0
        total: Any = 0.0
        squares: Any = 0.0
        centre = module.normalisation.running_mean
        with torch.no_grad():
            for X, weight, _ in self._pieces(data):
                apart = module.encoder(module.inside(X)) - centre
                n, total, squares = n + weight.sum(), total + weight @ apart, squares + weight @ apart**2
            mean = total / n
            self.module_.normalisation.running_mean.copy_(centre + mean)
            self.module_.normalisation.running_var.copy_((squares / n - mean**2).clamp(min=0.0))

    # -- classes --------------------------------------------------------------------------------------

    def _class_log_joint(self, X):
        return in_main_memory(self._of_codes(lambda module, X, Z, joint: joint, X))

    def _of_codes(self, part, X, out=None):
        """`part(module, X, Z, joint)` of rows, their codes and l_c(z) (n, C), for all rows."""
        check_is_fitted(self)
        mixture = [torch.from_numpy(array) for array in (self._log_prior(), self.means_, self.covariances_)]

        def of_rows(module, X):
            Z = module.codes(X)
            return part(module, X, Z, log_joint(Z, *(tensor.to(Z) for tensor in mixture)))

        floats = 2 * self.n_features_in_ + 3 * self.means_.size
        return self._exactly(of_rows, X, out, floats_per_row=floats)

    def _log_prior(self):
        return np.log(np.maximum(self.class_prior_, _TINY))

    # -- rejection ------------------------------------------------------------------------------------

    def score_samples(self, X, *, out=None):
        """The score by which rows are rejected, ln p(z) + ln p(x | z) at the code z of a row, (n_samples,).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features), path or blocks
        out : path of a .npy file, optional
        """

        def part(module, X, Z, joint):
            return torch.logsumexp(joint, dim=1) + self._log_likelihood(module, X, Z)

        return self._of_codes(part, X, out)

    def rejection_scores(self, X):
        """Scores of rows by which they may be rejected; the larger, the more usual a row is.

        Returns
        -------
        dict of ndarray of shape (n_samples,)
            "joint" is `score_samples`, the sum of the next two; "latent" the log density of codes,
            "reconstruction" that of rows given codes, "max_softmax" the largest posterior probability, and
            "mahalanobis" minus the smallest squared Mahalanobis distance of the code from a class.
        """
        check_is_fitted(self)
        means, roots = (
            torch.from_numpy(self.means_),
            torch.linalg.cholesky(torch.from_numpy(self.covariances_)),
        )

        def part(module, X, Z, joint):
            latent, rows = torch.logsumexp(joint, dim=1), self._log_likelihood(module, X, Z)
            distance = squared_distances(Z, means.to(Z), roots.to(Z)).amin(dim=1)
            softmax = torch.softmax(joint, dim=1).amax(dim=1)
            return torch.stack([latent + rows, latent, rows, softmax, -distance], dim=1)

        found = in_main_memory(self._of_codes(part, X))
        names = ("joint", "latent", "reconstruction", "max_softmax", "mahalanobis")
        return {name: found[:, column] for column, name in enumerate(names)}

    def _log_likelihood(self, module, X, Z):
        """ln N(x; g(z), noise I) of rows, (n,)."""
        noise = float(self.noise_variance_)
        error = ((X - module.expected(Z)) ** 2).sum(dim=1)
        return -0.5 * (error / noise + X.shape[1] * (LOG_2PI + np.log(noise)))

    # -- draws ----------------------------------------------------------------------------------------

    @property
    def latent_mixture_(self):
        """The Gaussians of the classes as a `GaussianMixture` of codes."""
        if not hasattr(self, "covariances_"):
            raise AttributeError("JointAutoencoder has no latent_mixture_ before fit")
        return GaussianMixture.from_parameters(
            weights=self.class_prior_, means=self.means_, covariances=self.covariances_
        )

    def generate(self, y, *, random_state=None):
        """One new row for each label, (len(y), n_features): the mean of rows given a code of that class.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Labels.
        random_state : int, Generator, RandomState or None
        """
        check_is_fitted(self)
        y = np.atleast_1d(np.asarray(y))
        codes, _ = class_labels(self, y, len(y), self.classes_)
        if np.any(codes == UNLABELLED):
            raise ValueError(f"y must hold labels among {self.classes_.tolist()}, not -1")
        noise = as_generator(random_state).standard_normal((len(codes), self.n_factors))
        roots = np.linalg.cholesky(self.covariances_)[codes]  # (n, q, q)
        return self.inverse_transform(self.means_[codes] + np.einsum("nij,nj->ni", roots, noise))

    # -- files ----------------------------------------------------------------------------------------

    def _fitted_arrays(self):
        return fitted_arrays(self, _TABLE)

    def _set_fitted_arrays(self, **given):
        check_names(_TABLE, given)
        CodingEstimator._set_fitted_arrays(self)
        n_classes = len(given["class_prior"])
        self._set_classes(None, n_classes)
        set_given(self, _TABLE, {"C": n_classes, "q": self.n_factors}, given)

    def _more_header(self):
        return CodingEstimator._more_header(self) | {"classifier": DensityClassifier._more_header(self)}

    def _set_more(self, *, classifier, **network):  # type: ignore[override]
        if not isinstance(classifier, dict):
            raise ValueError("the classes are not described")
        DensityClassifier._set_more(self, **classifier)
        CodingEstimator._set_more(self, **network)
