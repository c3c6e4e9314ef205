"""What makes a row from a code, as arrays that travel with the page.

Gaussian models with low-rank covariances are one form, with components k and latent u ~ N(0, I):

    x = centre + base_k + map_k (shift_k + spread_k u) + noise,    code z = origin + shift_k + spread_k u

with u ~ t for heavy tails, and everything else is a chain of layers, from the code to the row. Rows are in
the units of the model. Small arrays travel as 4-byte floats and large ones as 2-byte floats in units of the
largest weight, whose rounding error is 5e-4 of a weight.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp

from latently.report._discrete import Discrete, discrete_columns, numbers_of
from latently.report._points import encoded

_MOST_EXACT = 450_000  # numbers that travel as 4-byte floats
_MOST_NUMBERS = 1_300_000  # of a model that can be explored
_CHECKED = 3  # rows whose log densities are compared with those of the model
_MOST_AXES = 8  # of Gaussians whose covariances are too large to travel


@dataclass(frozen=True)
class Gaussians:
    """A mixture of low-rank Gaussians; `common` if one code serves all components."""

    weights: np.ndarray  # (K,)
    base: np.ndarray  # (K, D) or (1, D)
    maps: np.ndarray  # (K, D, q) or (1, D, q)
    shift: np.ndarray  # (K, q)
    spread: np.ndarray | None  # (K, q, q); None for identities
    noise: np.ndarray  # (K, D) or (1, D)
    origin: np.ndarray  # (q,)
    noun: str = "factor"
    has_density: bool = True
    degrees: np.ndarray | None = None  # (K,) degrees of freedom of t distributions; None for Gaussians
    class_of: np.ndarray | None = None  # (K,) the class that each component belongs to, if any
    discrete: tuple[Discrete, ...] = ()  # columns that are no numbers; their base is the likeliest value

    @property
    def common(self):
        return len(self.maps) == 1

    @property
    def n_codes(self):
        return self.maps.shape[2]

    @property
    def size(self):
        return self.base.size + self.maps.size + self.noise.size

    def log_density(self, x):
        """Of one row, of which entries may be missing."""
        others = [column for column in self.discrete if not np.isnan(x[column.place])]
        seen = ~np.isnan(x)
        seen[[column.place for column in self.discrete]] = False
        n, q = np.count_nonzero(seen), self.n_codes
        terms = []
        for k, weight in enumerate(self.weights):
            base, L, noise = (part[k % len(part)][seen] for part in (self.base, self.maps, self.noise))
            centre = base + L @ self.shift[k]
            L = L if self.spread is None else L @ self.spread[k]
            scaled = L / noise[:, None]
            M, gap = np.eye(q) + L.T @ scaled, x[seen] - centre
            pull = scaled.T @ gap
            distance = gap @ (gap / noise) - pull @ np.linalg.solve(M, pull)
            log_det = np.log(noise).sum() + np.linalg.slogdet(M)[1]
            if self.degrees is None:
                log_density = -0.5 * (distance + n * np.log(2 * np.pi))
            else:
                nu = self.degrees[k]
                log_density = gammaln((nu + n) / 2) - gammaln(nu / 2) - n / 2 * np.log(nu * np.pi)
                log_density -= (nu + n) / 2 * np.log1p(distance / nu)
            log_others = sum(column.log_probabilities(x[column.place])[k] for column in others)
            terms.append(np.log(weight) + log_density - 0.5 * log_det + log_others)
        return float(logsumexp(terms))


@dataclass(frozen=True)
class Chain:
    """Layers that are applied one after the other, as (kind, arrays and numbers)."""

    layers: list[tuple[str, dict[str, Any]]]
    n_codes: int
    noun: str

    @property
    def size(self):
        return sum(part.size for _, parts in self.layers for part in parts.values() if hasattr(part, "size"))


def maker_of(facts):
    """What makes rows; None if the model has neither components nor factors, or is too large for a page."""
    found = _gaussians(facts) or _chain(facts)
    if found is None or found.size > _MOST_NUMBERS:
        return None
    if isinstance(found, Gaussians) and found.has_density and not _agrees(found, facts):
        return replace(found, has_density=False)
    return found


def _agrees(maker, facts):
    """Whether the log densities of a few rows are those of the model, which may have more than Gaussians."""
    if facts.scores is None:
        return False
    rows = np.unique(np.linspace(0, len(facts.X) - 1, _CHECKED).astype(int))
    expected = facts.scores[rows] + facts.log_volume(facts.X[rows])
    found = np.array([maker.log_density(x) for x in facts.X[rows]])
    return bool(np.all(np.abs(found - expected) <= 1e-4 * (1.0 + np.abs(expected))))


# -- Gaussian models ---------------------------------------------------------------------------------------


def _gaussians(facts):
    D = facts.X.shape[1]
    densities = getattr(facts.model, "densities_", None)
    if densities is not None:
        return _of_classes(densities, np.asarray(facts.model.class_prior_), D)
    if hasattr(facts.model, "columns_"):
        return _of_kinds(facts.model, facts.X)
    found = _of_one(facts.flat, D)
    C = len(facts.model.classes_) if facts.is_classifier else 0
    if found is None or C == 0 or len(found.weights) % C:
        return found
    return replace(found, class_of=np.repeat(np.arange(C), len(found.weights) // C))


def _of_classes(densities, prior, D):
    """The components of the densities of all classes, each with a map of its own."""
    flat = [density.collapse() if hasattr(density, "collapse") else density for density in densities]
    parts = [_of_one(density, D) for density in flat]
    if any(part is None or part.degrees is not None for part in parts):
        return None
    q = max(part.n_codes for part in parts)
    found = [_widened(part, q) for part in parts]
    sizes = [len(part.weights) for part in parts]

    def together(name):
        return np.concatenate([getattr(part, name) for part in found])

    return Gaussians(
        weights=np.concatenate([p * part.weights for p, part in zip(prior, parts, strict=True)]),
        base=together("base"),
        maps=together("maps"),
        shift=together("shift"),
        spread=together("spread"),
        noise=together("noise"),
        origin=np.zeros(q),
        noun=parts[0].noun if len({part.noun for part in parts}) == 1 else "factor",
        has_density=all(part.has_density for part in parts),
        class_of=np.repeat(np.arange(len(parts)), sizes),
    )


def _widened(part, q):
    """The same components with q codes, of which the last have no effect, and nothing in common."""
    K, (_, D, own) = len(part.weights), part.maps.shape
    spread = np.tile(np.eye(q), (K, 1, 1))
    spread[:, :own, :own] = np.eye(own) if part.spread is None else part.spread
    more = [(0, 0), (0, q - own)]
    maps = np.broadcast_to(np.pad(part.maps, [(0, 0), *more]), (K, D, q))
    base = np.broadcast_to(part.base, (K, D)) - part.maps @ part.origin
    noise = np.broadcast_to(part.noise, (K, D))
    return replace(
        part,
        base=base,
        maps=maps,
        shift=np.pad(part.shift + part.origin, more),
        spread=spread,
        noise=noise,
        origin=np.zeros(q),
    )


def _of_kinds(m, X):
    """A mixture of columns of several kinds: Gaussians of its numbers, and the other columns beside them."""
    are_numbers, weights = numbers_of(m), np.asarray(m.weights_)
    K, D = len(weights), len(are_numbers)
    loadings = np.asarray(getattr(m, "loadings_", np.zeros((K, int(are_numbers.sum()), 0))))
    q = loadings.shape[2]
    base, maps, noise = np.zeros((K, D)), np.zeros((K, D, q)), np.ones((K, D))
    if are_numbers.any():
        base[:, are_numbers], maps[:, are_numbers] = m.means_, loadings
        noise[:, are_numbers] = m.noise_variance_
    discrete = discrete_columns(m, X)
    for column in discrete:
        base[:, column.place] = column.likeliest
    return Gaussians(weights, base, maps, np.zeros((K, q)), None, noise, np.zeros(q), discrete=discrete)


def _of_one(m, D):
    found = _by_loadings(m, D)
    degrees = getattr(m, "degrees_of_freedom_", None)
    return found if found is None or degrees is None else replace(found, degrees=np.asarray(degrees))


def _by_loadings(m, D):
    noise = getattr(m, "noise_variance_", None)
    loadings = getattr(m, "loadings_", None)
    weights = _weights(m)
    if loadings is None or noise is None or np.shape(loadings)[-2] != D:
        return _of_covariances(m, weights, D)
    loadings, noise = np.asarray(loadings), np.asarray(noise)
    K, q = len(weights), loadings.shape[-1]
    noise = noise.reshape(-1, noise.shape[-1])
    if hasattr(m, "latent_means_"):
        means = np.reshape(m.latent_means_, (-1, q))
        origin = weights @ means  # so that what is added up in 4-byte floats is small
        values, vectors = np.linalg.eigh(np.reshape(m.latent_covariances_, (-1, q, q)))
        spread = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]  # covariances may be singular
        return Gaussians(
            weights, (loadings @ origin)[None], loadings[None], means - origin, spread, noise, origin
        )
    means = np.asarray(m.means_ if hasattr(m, "means_") else m.mean_).reshape(-1, D)
    loadings = loadings[None] if loadings.ndim == 2 else loadings
    if len(means) != K or len(loadings) != K:
        return None
    return Gaussians(weights, means, loadings, np.zeros((K, q)), None, noise, np.zeros(q))


def _weights(m):
    weights = np.asarray(getattr(m, "weights_", [1.0]), dtype=float)
    if weights.ndim == 2 and hasattr(m, "class_prior_"):
        weights = weights * np.asarray(m.class_prior_)[:, None]
    return weights.ravel() / weights.sum()


def _of_covariances(m, weights, D):
    """Gaussians with covariances: S = s I + V (E - s I) V', with s the least eigenvalue."""
    if not (hasattr(m, "covariances_") and hasattr(m, "means_")):
        return None
    K, means = len(weights), np.asarray(m.means_)
    if means.shape != (K, D):
        return None
    covariances = np.asarray(m.covariances_)
    if getattr(m, "covariance_type", "full") in ("diag", "spherical"):
        noise = covariances.reshape(K, -1) * np.ones((K, D))
        return Gaussians(
            weights, means, np.zeros((K, D, 0)), np.zeros((K, 0)), None, noise, np.zeros(0), "axis"
        )
    whole = np.broadcast_to(covariances, (K, D, D))
    values, vectors = np.linalg.eigh(whole)  # ascending
    values, vectors = values[:, ::-1], vectors[:, :, ::-1]
    q = D - 1 if K * D * D <= _MOST_EXACT else min(_MOST_AXES, D - 1)
    least = np.maximum(values[:, -1:], 0.0)
    maps = vectors[:, :, :q] * np.sqrt(np.maximum(values[:, None, :q] - least[:, None], 0.0))
    # the largest entry of an axis is positive, as its sign is arbitrary
    at = np.argmax(np.abs(maps), axis=1)[:, None]
    maps = maps * np.where(np.take_along_axis(maps, at, axis=1) < 0, -1.0, 1.0)
    noise, exact = least * np.ones((K, D)), q == D - 1
    return Gaussians(
        weights, means, maps, np.zeros((K, q)), None, noise, np.zeros(q), "axis", has_density=exact
    )


# -- layers --------------------------------------------------------------------------------------------------


def _chain(facts):
    if facts.factors is None or not np.isfinite(facts.factors).all():
        return None
    layers = _torch_layers(facts.model) or _belief_layers(facts.model) or _part_layers(facts)
    if not layers or _width(layers, facts.factors.shape[1]) != facts.X.shape[1]:
        return None
    noun = (
        "unit" if layers[-1][0] == "logistic" and hasattr(facts.model, "components_") else facts.factor_noun
    )
    return Chain(layers, facts.factors.shape[1], noun)


def _width(layers, n):
    """Number of outputs of layers with n inputs; None if they do not fit together."""
    for _, parts in layers:
        weights = parts.get("weights")
        if weights is None:
            continue
        if "to" in parts:  # a convolution
            if n != int(np.prod(parts["from"])):
                return None
            n = int(np.prod(parts["to"]))
        elif weights.shape[0] != n:
            return None
        else:
            n = weights.shape[1]
    return n


def _linear(weights, offset=None):
    """Inputs (n_in,) times weights (n_in, n_out), plus an offset."""
    weights = np.asarray(weights, dtype=float)
    offset = np.zeros(weights.shape[1]) if offset is None else np.asarray(offset, dtype=float)
    return "linear", {"weights": weights, "offset": offset}


def _part_layers(facts):
    """From the top layer of a factorisation down to the rows: f(s) A + b."""
    found: list[tuple[str, dict[str, Any]]] = []
    for layer in reversed(facts._layers):
        parts: Any = getattr(layer, "components_", None)
        if parts is None or np.ndim(parts) != 2 or not hasattr(layer, "transform"):
            return None
        mapping = str(getattr(layer, "mapping", "identity"))
        if mapping not in ("identity", "tanh", "logistic", "ratio"):
            return None
        found += [] if mapping == "identity" else [(mapping, {})]
        offset: Any = getattr(layer, "offset_", getattr(layer, "mean_", None))
        found.append(_linear(parts, offset if np.shape(offset) == (np.shape(parts)[1],) else None))
    return found


def _belief_layers(model):
    """From the hidden units of a Boltzmann machine, or the top ones of a stack, down to the visible ones."""
    layers = getattr(model, "layers_", None) or [model]
    if not all(hasattr(layer, "intercept_visible_") for layer in layers):
        return None
    found: list[tuple[str, dict[str, Any]]] = []
    n_above = None
    for layer in reversed(list(layers)):
        weights, offset = np.asarray(layer.components_), np.asarray(layer.intercept_visible_)
        n_labels = int(getattr(layer, "label_units", 0) or 0)
        kept = weights.shape[1] - n_labels
        if n_above is not None and weights.shape[0] != n_above:
            return None
        found += [_linear(weights[:, :kept], offset[:kept]), ("logistic", {})]
        n_above = kept
    return found


_ACTIVATIONS = {"Tanh": "tanh", "ReLU": "relu", "Softplus": "softplus", "ELU": "elu", "Sigmoid": "logistic"}


def _torch_layers(model):
    """The decoder of a network, and what turns its output into a row."""
    module: Any = getattr(model, "module_", None)
    decoder = getattr(module, "decoder", None)
    if decoder is None or not hasattr(module, "expected"):
        return None
    found = _decoder_layers(decoder)
    if found is None:
        return None
    if hasattr(module, "scale"):
        scale, mean = _array(module.scale), _array(module.mean)
        return [*found, ("scale", {"scale": np.broadcast_to(scale, mean.shape), "offset": mean})]
    return [*found, ("logistic", {})]


def _decoder_layers(decoder):
    """Layers of a perceptron, or of a network of convolutions; None for others, such as the user's own."""
    found: list[tuple[str, dict[str, Any]]] = []
    if hasattr(decoder, "convolutions") and hasattr(decoder, "smallest"):
        found.append(_linear(_array(decoder.linear.weight).T, _array(decoder.linear.bias)))
        shape, inner = tuple(decoder.smallest), decoder.convolutions
    else:
        shape, inner = None, decoder if hasattr(decoder, "__iter__") else [decoder]
    for layer in inner:
        kind = type(layer).__name__
        if kind in _ACTIVATIONS:
            found.append((_ACTIVATIONS[kind], {}))
        elif kind == "Linear":
            offset = None if layer.bias is None else _array(layer.bias)
            found.append(_linear(_array(layer.weight).T, offset))
        elif kind == "ConvTranspose2d" and shape is not None:
            height, width = (
                2 * side - 1 + more for side, more in zip(shape[1:], layer.output_padding, strict=True)
            )
            to = (layer.out_channels, height, width)
            parts = {"weights": _array(layer.weight), "offset": _array(layer.bias), "from": shape, "to": to}
            found.append(("enlarge", parts))  # stride 2, kernel 3, padding 1
            shape = to
        else:
            return None
    return found


def _array(tensor):
    return np.asarray(tensor.detach().cpu().double().numpy())


# -- encoding ------------------------------------------------------------------------------------------------


def packed(array, exact=True):
    """An array for the script: kind of its numbers, shape and data."""
    array = np.asarray(array)
    kind = "<f4" if exact else "<f2"
    if array.dtype == np.float64 and array.size <= 4096:
        kind = "<f8"
    told: dict[str, Any] = {"kind": kind[1:], "shape": list(array.shape)}
    if kind == "<f2":  # which ends at 65504 and knows little below 6e-5
        told["unit"] = float(np.max(np.abs(array))) or 1.0
        array = array / told["unit"]
    return told | {"data": encoded(array.astype(kind))}


def as_plain(maker, centre):
    """The maker as plain values for the script; `centre` (D,) is subtracted from rows there."""
    exact = maker.size <= _MOST_EXACT
    if isinstance(maker, Chain):
        return {
            "kind": "chain",
            "noun": maker.noun,
            "layers": [{"kind": kind, **_plain_parts(parts, exact)} for kind, parts in maker.layers],
        }
    return {
        "kind": "gaussians",
        "noun": maker.noun,
        "common": maker.common,
        "density": maker.has_density,
        "weights": packed(maker.weights),
        "base": packed(maker.base - centre),
        "maps": packed(maker.maps, exact),
        "shift": packed(maker.shift),
        "spread": None if maker.spread is None else packed(maker.spread),
        "noise": packed(maker.noise),
        "origin": packed(maker.origin),
        "degrees": None if maker.degrees is None else packed(maker.degrees),
        "discrete": [
            {"place": column.place, "values": packed(column.values), "logs": packed(column.logs)}
            for column in maker.discrete
        ],
    }


def _plain_parts(parts, exact):
    large = {name: packed(part, exact) for name, part in parts.items() if name == "weights"}
    small = {name: packed(part) for name, part in parts.items() if name in ("offset", "scale")}
    shapes = {name: list(part) for name, part in parts.items() if name in ("from", "to")}
    return large | small | shapes
