"""A stack of non-linear layers: its total cost as a function of all parameters, and the gradient.

    s^0 = x,      s^l = argmin over s of |s^(l-1) - f(s) A_l - b_l|^2 / (2 sigma_l^2) + alpha_l |s|
    J = sum of the costs of all layers at these sources, with the cross-entropies of the classifiers they have

n rows, layer l with r_l components on r_(l-1) features. Sources depend on parameters: with R = z - b - u A
what a layer leaves of its input z, and u = f(s) at its minimum, a change of R A' moves u by H^-1 times it, H
= A A' + the curvature of the penalty, over those coordinates that neither a bound nor a kink holds; nor the
end of the range of f, where s stays at its limit and ds/du would be a number without meaning. So the
part v of dJ/du that the layer does not minimise itself (its classifier, and layers above) gives p = H^-1 v
and

    dz = R / sigma^2 + p A,    dA = -u'dz + p'R,    db = -sum dz.

A row costs a few inferences, O(r D) for each layer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from latently.backend.namespace import Array, double, namespace, ones
from latently.core.block import Block
from latently.distributions.convex_rows import Rows, cross_entropy, minimised, response
from latently.distributions.nonlinear import (
    EXACT,
    Layer,
    Prepared,
    Terms,
    at_the_ends,
    problems_of,
    sources,
    targets_of,
)


@dataclass(frozen=True)
class StackSums:
    """Sums over rows, each counted with its weight."""

    cost: Array  # ()
    gradient: Array  # (p,): by the parameters of the layers, one after the other


@dataclass(frozen=True)
class _Passed:
    """A layer after inference."""

    rows: Rows
    Z: Array  # (n, D): its input
    U: Array  # (n, r)
    S: Array  # (n, r)
    R: Array  # (n, D): what it leaves


def climbed(stack: tuple[tuple[Terms, Prepared], ...], block: Block) -> tuple[StackSums, list[Array]]:
    """Cost and gradient of a block, and the sources of all layers side by side."""
    first = stack[0][1].layer.components
    xp = namespace(first)
    passed: list[_Passed] = []
    below, start = block, 0
    for terms, known in stack:
        r = known.layer.components.shape[0]
        known_start = None
        if block.state is not None and block.state.shape[1] > 0:
            known_start = terms.mapping.value(block.state[:, start : start + r])
        passed.append(_inferred(terms, known, below, known_start))
        start += r
        below = replace(block, X=passed[-1].S, observed=None)
    cost = xp.zeros_like(double(block.X)[:, 0])
    gradients: list[Array] = []
    upward: Array | None = None  # the derivative by the sources of a layer, from those above it
    for number in reversed(range(len(stack))):
        (terms, known), at = stack[number], passed[number]
        seen = block.observed if number == 0 else None
        own, upward, gradient = _backward(terms, known, at, block, seen, upward)
        cost = cost + own
        gradients = [gradient, *gradients]
    weighted = cost if block.weight is None else cost * block.weight
    states = xp.concat([at.S for at in passed], axis=1)
    return StackSums(xp.sum(weighted), xp.concat(gradients)), [states]


def _inferred(terms: Terms, known: Prepared, block: Block, start: Array | None) -> _Passed:
    rows, first, Y = problems_of(terms, known, block)
    U = minimised(rows, first if start is None else start, tolerance=EXACT)
    S = sources(terms, U)
    U = terms.mapping.value(S)
    R = Y - U @ known.layer.components
    if block.observed is not None:
        R = namespace(R).where(block.observed, R, 0.0)
    return _Passed(rows, Y, U, S, R)


def _backward(
    terms: Terms, known: Prepared, at: _Passed, block: Block, seen: Array | None, upward: Array | None
) -> tuple[Array, Array, Array]:
    """(n,) cost of a layer, (n, D) the derivative by its input, and (p,) by its parameters."""
    layer, U = known.layer, at.U
    xp = namespace(U)
    cost = xp.sum(at.R * at.R, axis=1) / (2.0 * terms.sigma2) + terms.alpha * xp.sum(xp.abs(at.S), axis=1)
    moved = xp.zeros_like(U)
    classes: list[Array] = []
    if layer.coef is not None:
        targets = targets_of(layer, block)
        entropy, P = cross_entropy(layer.coef, layer.intercept, targets, U)
        wrong = P * xp.sum(targets, axis=1)[:, None] - targets
        cost, moved = cost + entropy, moved + wrong @ layer.coef
        counted = wrong if block.weight is None else wrong * block.weight[:, None]
        classes = [xp.reshape(counted.T @ U, (-1,)), xp.sum(counted, axis=0)]
    if upward is not None:
        moved = moved + upward * terms.mapping.steepness(U)
    low, high = at_the_ends(terms, U)
    p = response(at.rows, U, moved, ~(low | high))
    through = p @ layer.components
    if seen is not None:
        through = xp.where(seen, through, 0.0)
    downward = at.R / terms.sigma2 + through
    weight = ones((U.shape[0], 1), U) if block.weight is None else block.weight[:, None]
    of_components = (weight * p).T @ at.R - (weight * U).T @ downward
    of_offset = -xp.sum(weight * downward, axis=0)
    return cost, downward, xp.concat([xp.reshape(of_components, (-1,)), of_offset, *classes])


def flattened(layers: tuple[Layer, ...]) -> Array:
    """(p,) all parameters, in the order of the gradient."""
    xp = namespace(layers[0].components)
    parts = []
    for layer in layers:
        arrays = (layer.components, layer.offset, layer.coef, layer.intercept)
        parts += [xp.reshape(array, (-1,)) for array in arrays if array is not None]
    return xp.concat(parts)


def unflattened(vector: Array, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Layers with the shapes of these and other parameters."""
    xp, start, found = namespace(vector), 0, []
    for layer in layers:
        arrays: list[Array | None] = []
        for array in (layer.components, layer.offset, layer.coef, layer.intercept):
            if array is None:
                arrays.append(None)
                continue
            size = 1
            for n in array.shape:
                size *= int(n)
            arrays.append(xp.reshape(vector[start : start + size], tuple(array.shape)))
            start += size
        found.append(Layer(*arrays))
    return tuple(found)
