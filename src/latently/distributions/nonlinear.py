"""X ~ f(S) A + 1 b': what a block of rows contributes, and what components follow from it.

    E = |X - f(S) A - 1 b'|^2 / (2 sigma^2) + alpha |S| + beta |A|
        + sum_n [ln sum_c exp v_nc - v_n,c(n)] + gamma |W|,      v = f(S) W' + w0

n rows x, D features, r components, C classes: A (r, D), b (D,), S (n, r), W (C, r), w0 (C,). The second line
is there with a classifier; a row without label leaves out its cross-entropy. The offset is added after the
map; neither b nor w0 is penalised. F = f(S), and F~ = [F, 1] stands over A~ = [A; b].

Rows enter through y = x - b: through y A' in the step of S, and through sums of f~ f~' and f~ y' in that of
A, the two wide products of a sweep, O(n D r). Centred on b, the squares lose few digits. Missing entries are
left out of the sum. Document 000, chapter 4; formulas as corrected in docs/nlmf.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

from latently.backend.namespace import Array, device, double, namespace, ones, zeros
from latently.backend.packed import pairs, unpacked
from latently.core.block import Block
from latently.core.tree import add
from latently.distributions.convex_rows import (
    INNER,
    Rows,
    Shape,
    Softmax,
    cross_entropy,
    descended,
    inverse_of,
    minimised,
    minimised_from,
    squares,
)
from latently.distributions.mappings import Mapping

EXACT = 1e-13  # of a row's cost: where an exact step ends
_NEARLY = 1e-6  # the same in sweeps that need not be exact
_PASSES_OF_COMPONENTS = 5
_AT_THE_END = 1e-9  # of the range of the map: nearer, digits of s are lost
_SINGULAR = 1e-12  # eigenvalues below it are rounding


@dataclass(frozen=True)
class Layer:
    """What all rows share."""

    components: Array  # (r, D): A
    offset: Array  # (D,): b
    coef: Array | None = None  # (C, r): W
    intercept: Array | None = None  # (C,): w0


@dataclass(frozen=True)
class Terms:
    """The terms of the cost and its constraints."""

    mapping: Mapping
    alpha: float
    beta: float
    gamma: float
    sigma2: float
    positive_sources: bool  # S >= 0
    positive_parts: bool  # A, b, W, w0 >= 0

    @property
    def least_source(self) -> float:
        """The lower end of f(S)."""
        return self.mapping.zero if self.positive_sources else self.mapping.low

    def shape(self) -> Shape:
        """Of the problem of a row, multiplied by sigma^2."""
        weight = self.alpha * self.sigma2
        return Shape(
            self.mapping, weight, weight > 0, not self.positive_sources, self.least_source, self.mapping.high
        )


# -- a layer as blocks need it ------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A layer with what a sweep needs of it."""

    layer: Layer
    gram: Array  # (r, r): A A'
    inverse: Array  # (r, r): about its inverse

    def table(self) -> Array:
        """(r (r + 1) / 2, D) products of any two components, for rows with missing entries."""
        A = self.layer.components
        xp = namespace(A)
        first, second = (xp.asarray(i, device=device(A)) for i in zip(*pairs(A.shape[0]), strict=True))
        return xp.take(A, first, axis=0) * xp.take(A, second, axis=0)


def prepared(layer: Layer, terms: Terms) -> Prepared:
    A = layer.components
    gram = A @ A.T
    middle = 0.5 * (terms.mapping.zero + min(terms.mapping.high, 1e3))
    bend = terms.alpha * terms.sigma2 * float(terms.mapping.bend(zeros((), A) + middle))
    return Prepared(layer, gram, inverse_of(gram, bend))


@dataclass(frozen=True)
class _System:
    """The rows of a block in terms of their sources."""

    Y: Array  # (n, D): x - b, zero where missing
    level: Array  # (n,): |y|^2 / 2
    pull: Array  # (n, r): y A'
    gram: Array  # (r, r), or (n, r, r) for rows with missing entries
    seen: Array | None  # (n, D): ones where observed
    targets: Array | None  # (n, C): one for the class of a row, zeros without label


def _system(known: Prepared, block: Block) -> _System:
    A, b = known.layer.components, known.layer.offset
    xp = namespace(A)
    Y, gram, seen = double(block.X) - b, known.gram, None
    if block.observed is not None:
        Y = xp.where(block.observed, Y, 0.0)
        seen = xp.astype(block.observed, xp.float64)
        gram = unpacked(known.table() @ seen.T, A.shape[0])
    return _System(Y, 0.5 * squares(Y, Y), Y @ A.T, gram, seen, targets_of(known.layer, block))


def targets_of(layer: Layer, block: Block) -> Array | None:
    """(n, C) one for the class of a row, zeros for a row without label; None without a classifier."""
    if layer.coef is None:
        return None
    xp, C = namespace(layer.coef), layer.coef.shape[0]
    if block.allowed is None:  # no row has a label
        return zeros((len(block), C), layer.coef)
    allowed = xp.astype(block.allowed, xp.float64)
    return xp.where(xp.sum(allowed, axis=1, keepdims=True) == 1.0, allowed, 0.0)


def _problems(terms: Terms, known: Prepared, system: _System, labels: bool) -> Rows:
    xp = namespace(system.pull)
    softmax, layer = None, known.layer
    if labels and system.targets is not None and bool(xp.any(system.targets > 0)):
        softmax = Softmax(layer.coef, layer.intercept, system.targets, terms.sigma2)
    return Rows(terms.shape(), system.gram, known.inverse, system.pull, system.level, softmax)


# -- inference of sources -----------------------------------------------------------------------------


def inferred(terms: Terms, known: Prepared, block: Block) -> Array:
    """(n, r) the sources S that minimise the cost of each row, without its label."""
    return _split(known, block, lambda part: _inferred(terms, known, part))


def _inferred(terms: Terms, known: Prepared, block: Block) -> Array:
    rows, start, _ = problems_of(terms, known, block)
    return sources(terms, minimised(rows, start, tolerance=EXACT))


def problems_of(terms: Terms, known: Prepared, block: Block) -> tuple[Rows, Array, Array]:
    """The problems of rows without their labels, starting values in f(s), and y = x - b."""
    system = _system(known, block)
    rows = _problems(terms, known, system, labels=False)
    return rows, _first(terms, known, rows), system.Y


def _first(terms: Terms, known: Prepared, rows: Rows) -> Array:
    """(n, r) starting values: the minimum without constraints, drawn into the range."""
    xp = namespace(rows.pull)
    if rows.gram.ndim == 2:
        U = rows.pull @ known.inverse
    else:
        U = xp.zeros_like(rows.pull) + terms.mapping.zero
    return inside(terms, U)


def inside(terms: Terms, U: Array) -> Array:
    """U within the range and, where the penalty is infinite at its ends, away from them."""
    xp, f = namespace(U), terms.mapping
    if f.high == float("inf"):
        return xp.clip(U, min=terms.least_source)
    margin = 0.0 if terms.alpha == 0 else 1e-3
    low = terms.least_source + (0.0 if terms.positive_sources else margin)
    return xp.clip(U, min=low, max=f.high - margin)


def sources(terms: Terms, U: Array) -> Array:
    """(n, r) S of features U; at an end of the range, up to what rounding of U can tell, it is at its
    limit.
    """
    return _both(terms, U)[0]


def _both(terms: Terms, U: Array, S: Array | None = None) -> tuple[Array, Array]:
    """S of features U, if it is not known, and f(S): U but where that is taken to the end of the range."""
    xp, f = namespace(U), terms.mapping
    if f.high == float("inf"):
        return U, U
    low, high = at_the_ends(terms, U)
    U = xp.where(high, f.high, xp.where(low, f.low, U))
    S = f.inverse(U) if S is None else S
    S = xp.clip(S, min=0.0 if terms.positive_sources else -f.limit, max=f.limit)
    return S, U


def at_the_ends(terms: Terms, U: Array) -> tuple[Array, Array]:
    """(n, r), twice: whether u is taken to the lower and to the upper end of the range, where s stays at its
    limit.
    """
    f = terms.mapping
    margin = -1.0 if terms.alpha else _AT_THE_END  # a penalty keeps s from its limit
    low = f.low + (-1.0 if terms.positive_sources else margin)
    return low >= U, f.high - margin <= U


def row_costs(terms: Terms, layer: Layer, S: Array, block: Block) -> Array:
    """(n, 2): squared error over 2 sigma^2, and alpha |s|, of each row with sources S."""
    xp = namespace(S)
    R = double(block.X) - layer.offset - terms.mapping.value(S) @ layer.components
    squares = R * R if block.observed is None else xp.where(block.observed, R * R, 0.0)
    error = xp.sum(squares, axis=1) / (2.0 * terms.sigma2)
    return xp.stack([error, terms.alpha * xp.sum(xp.abs(S), axis=1)], axis=1)


# -- steps of the sources in a fit --------------------------------------------------------------------


Moved = tuple[Array, Array]


class Move(Protocol):
    """How a sweep moves the sources of a block."""

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        """S (n, r), and f(S)."""


@dataclass(frozen=True)
class Newton:
    """Projected Newton steps in u = f(s); many of them with a small tolerance find the minimum."""

    n_steps: int = 1000
    tolerance: float = EXACT
    inner: float = INNER  # what conjugate gradients leave of the Newton equations

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        rows = _problems(terms, known, system, labels=True)
        start = _first(terms, known, rows) if S is None else terms.mapping.value(S)
        cold = S is None and self.n_steps < 1000
        n_steps = max(self.n_steps, _COLD_STEPS) if cold else self.n_steps
        U, S = minimised_from(rows, start, S, tolerance=self.tolerance, most_steps=n_steps, inner=self.inner)
        return _both(terms, U, S)


@dataclass(frozen=True)
class Coordinates:
    """Passes of coordinate descent in u = f(s), for sources that must not be negative."""

    n_passes: int

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        rows = _problems(terms, known, system, labels=True)
        if rows.gram.ndim == 3:
            return Newton(n_steps=2, tolerance=1e-7)(terms, known, system, S)
        start = _first(terms, known, rows) if S is None else terms.mapping.value(S)
        return _both(terms, descended(rows, start, _COLD_PASSES if S is None else self.n_passes))


_COLD_STEPS, _COLD_PASSES = 20, 40


@dataclass(frozen=True)
class Multiply:
    """The multiplicative step, with an exponent."""

    exponent: float = 1.0

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        assert S is not None
        layer, xp, f = known.layer, namespace(S), terms.mapping
        A, F = layer.components, f.value(S)
        image = F @ system.gram if system.gram.ndim == 2 else (system.gram @ F[:, :, None])[:, :, 0]
        of_offset = A @ layer.offset if system.seen is None else (system.seen * layer.offset) @ A.T
        above, below = (system.pull + of_offset) / terms.sigma2, (image + of_offset) / terms.sigma2
        if system.targets is not None:
            _, P = cross_entropy(layer.coef, layer.intercept, system.targets, F)
            labelled = xp.sum(system.targets, axis=1)[:, None]
            above, below = above + system.targets @ layer.coef, below + (labelled * P) @ layer.coef
        if terms.alpha:
            slope = f.derivative(S)
            below = below + terms.alpha / xp.where(slope > 0, slope, 1e-300)
        S = xp.clip(S * powered(above, below, self.exponent), max=f.limit)
        return S, f.value(S)


@dataclass(frozen=True)
class Descend:
    """A step along the gradient, in s."""

    rate: float

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        assert S is not None
        layer, xp, f = known.layer, namespace(S), terms.mapping
        F = f.value(S)
        image = F @ system.gram if system.gram.ndim == 2 else (system.gram @ F[:, :, None])[:, :, 0]
        slope = (image - system.pull) / terms.sigma2
        if system.targets is not None:
            _, P = cross_entropy(layer.coef, layer.intercept, system.targets, F)
            labelled = xp.sum(system.targets, axis=1)[:, None]
            slope = slope + (labelled * P - system.targets) @ layer.coef
        slope = steepest(slope * f.derivative(S), S, terms.alpha)
        S = xp.clip(S - self.rate * slope, min=-f.limit, max=f.limit)
        return S, f.value(S)


@dataclass(frozen=True)
class Stay:
    """No step; sources that are not known yet are inferred."""

    def __call__(self, terms: Terms, known: Prepared, system: _System, S: Array | None) -> Moved:
        if S is not None:
            return S, terms.mapping.value(S)
        cold: Move = Coordinates(_COLD_PASSES) if terms.positive_sources else Newton(_COLD_STEPS, 1e-6)
        return cold(terms, known, system, None)


def powered(above: Array, below: Array, exponent: float) -> Array:
    """(above / below)^exponent of the multiplicative rules; one where both are zero."""
    xp = namespace(above)
    positive = below > 0
    ratio = xp.where(positive, xp.clip(above, min=0.0) / xp.where(positive, below, 1.0), 1.0)
    return ratio if exponent == 1.0 else ratio**exponent


def steepest(slope: Array, at: Array, penalty: float) -> Array:
    """The gradient with a penalty |at|; where that has its kink, the smallest of its subgradients."""
    if not penalty:
        return slope
    xp = namespace(slope)
    shrunk = xp.sign(slope) * xp.clip(xp.abs(slope) - penalty, min=0.0)
    return xp.where(at == 0, shrunk, slope + penalty * xp.sign(at))


# -- a sweep ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sums:
    """Sums over rows, each counted with its weight; f~ = [f(s), 1] after the step of the sources."""

    level: Array  # (): |y|^2 / 2
    gram: Array  # (r + 1, r + 1): f~ f~', of complete rows
    cross: Array  # (r + 1, D): f~ y'
    grams: Array | None  # ((r + 1) (r + 2) / 2, D): packed f~ f~ of incomplete rows, over what was observed
    size: Array  # (): |s|
    entropy: Array  # (): cross-entropy of the labels


def swept_rows(terms: Terms, move: Move, known: Prepared, block: Block) -> tuple[Sums, list[Array]]:
    """Sums of a block after a step of its sources, and the sources."""
    if block.observed is None:
        return _swept(terms, move, known, block)
    xp = namespace(block.X)
    complete, incomplete = block.apart(xp.all(block.observed, axis=1))
    if incomplete is None:
        return _swept(terms, move, known, replace(block, observed=None))
    if complete is None:
        return _swept(terms, move, known, block)
    first, [one] = _swept(terms, move, known, replace(complete, observed=None))
    second, [other] = _swept(terms, move, known, incomplete)
    return add(second, first), [_in_order(block, one, other)]


def _swept(terms: Terms, move: Move, known: Prepared, block: Block) -> tuple[Sums, list[Array]]:
    layer = known.layer
    xp = namespace(layer.components)
    system = _system(known, block)
    has_state = block.state is not None and block.state.shape[1] > 0
    S, F = move(terms, known, system, block.state if has_state else None)
    extended = xp.concat([F, ones((F.shape[0], 1), F)], axis=1)
    weight = block.weight
    counted = extended if weight is None else extended * weight[:, None]
    sizes = xp.sum(xp.abs(S), axis=1)
    entropy = zeros((F.shape[0],), F)
    if system.targets is not None:
        entropy = cross_entropy(layer.coef, layer.intercept, system.targets, F)[0]
    told = xp.stack([system.level, sizes, entropy])
    told = xp.sum(told if weight is None else told * weight, axis=1)
    cross = counted.T @ system.Y
    if system.seen is None:
        gram, grams = counted.T @ extended, None
    else:
        first, second = (xp.asarray(i, device=device(F)) for i in zip(*pairs(F.shape[1] + 1), strict=True))
        products = xp.take(counted, first, axis=1) * xp.take(extended, second, axis=1)
        gram, grams = zeros((F.shape[1] + 1, F.shape[1] + 1), F), products.T @ system.seen
    return Sums(told[0, ...], gram, cross, grams, told[1, ...], told[2, ...]), [S]


def _split(known: Prepared, block: Block, fn: Any) -> Array:
    """`fn` of complete rows and of those with missing entries apart, in the order of the rows."""
    if block.observed is None:
        return fn(block)
    xp = namespace(block.X)
    complete, incomplete = block.apart(xp.all(block.observed, axis=1))
    if incomplete is None:
        return fn(replace(block, observed=None))
    if complete is None:
        return fn(block)
    return _in_order(block, fn(replace(complete, observed=None)), fn(incomplete))


def _in_order(block: Block, one: Array, other: Array) -> Array:
    """Rows of complete and of incomplete rows, in the order of the block."""
    xp = namespace(block.X)
    complete = xp.all(block.observed, axis=1)
    places = xp.concat([xp.nonzero(complete)[0], xp.nonzero(~complete)[0]])
    return xp.take(xp.concat([one, other]), xp.argsort(places), axis=0)


# -- components ---------------------------------------------------------------------------------------


def extended_gram(sums: Sums) -> Array:
    """(r + 1, r + 1), or (D, r + 1, r + 1) with missing entries: sums of f~ f~'."""
    if sums.grams is None:
        return sums.gram
    return sums.gram + unpacked(sums.grams, sums.gram.shape[0])


def squared_error(sums: Sums, moved: Array) -> float:
    """Half the squared error of A~ - [0; b] = `moved` (r + 1, D), b being the offset of the sweep."""
    xp = namespace(moved)
    image = _image(extended_gram(sums), moved)
    return float(sums.level) + float(xp.sum(moved * (0.5 * image - sums.cross)))


def _image(gram: Array, moved: Array) -> Array:
    """(r + 1, D): the gram, of all features or of each, times components."""
    return gram @ moved if gram.ndim == 2 else (gram @ moved.T[:, :, None])[:, :, 0].T


def from_offset(layer: Layer, offset: Array) -> Array:
    """(r + 1, D): components over the offset, as measured from another offset."""
    xp = namespace(layer.components)
    return xp.concat([layer.components, (layer.offset - offset)[None, :]])


def with_moved(layer: Layer, moved: Array, terms: Terms) -> Layer:
    """The layer with components and an offset that was measured from its own."""
    b = layer.offset + moved[-1, :]
    if terms.positive_parts:
        b = namespace(b).clip(b, min=0.0)  # rounding
    return replace(layer, components=moved[:-1, :], offset=b)


def best_components(sums: Sums, layer: Layer, terms: Terms, penalty: float | None = None) -> Layer:
    """The minimum of the cost over components and offset, the sources being given.

    `penalty` is beta, per unit of the weight of the sums.
    """
    beta = terms.sigma2 * (terms.beta if penalty is None else penalty)
    if not beta and not terms.positive_parts:
        gram, at = extended_gram(sums), from_offset(layer, layer.offset)
        return with_moved(layer, at + _least_squares(gram, sums.cross - _image(gram, at)), terms)
    rows, at = _problems_of_components(sums, layer, terms, beta)
    return with_moved(layer, minimised(rows, at, tolerance=EXACT).T, terms)


def better_components(sums: Sums, layer: Layer, terms: Terms) -> Layer:
    """The minimum, or nearly so where it takes longer than it is worth before the next sweep."""
    if terms.positive_parts and sums.grams is None:
        rows, at = _problems_of_components(sums, layer, terms, terms.sigma2 * terms.beta)
        return with_moved(layer, descended(rows, at, _PASSES_OF_COMPONENTS).T, terms)
    if terms.beta:
        rows, at = _problems_of_components(sums, layer, terms, terms.sigma2 * terms.beta)
        return with_moved(layer, minimised(rows, at, tolerance=_NEARLY, inner=_NEARLY).T, terms)
    return best_components(sums, layer, terms)


def _problems_of_components(sums: Sums, layer: Layer, terms: Terms, beta: float) -> tuple[Rows, Array]:
    """A problem for each feature, and (D, r + 1) where its components are."""
    gram, at = extended_gram(sums), from_offset(layer, layer.offset)
    xp, (m, D) = namespace(at), at.shape
    in_rows = xp.concat([ones((m - 1,), at), zeros((1,), at)])
    lower: Any = -float("inf")
    if terms.positive_parts:
        lower = xp.concat([zeros((D, m - 1), at), -layer.offset[:, None]], axis=1)
    shape = Shape(penalty=beta * in_rows, penalised=beta > 0, signed=not terms.positive_parts, lower=lower)
    inverse = inverse_of(gram, 0.0) if gram.ndim == 2 else None
    level = xp.zeros_like(sums.cross[0, :]) + float(sums.level) / D
    return Rows(shape, gram, inverse, sums.cross.T, level), at.T


def _least_squares(gram: Array, missing: Array) -> Array:
    """(r + 1, D): the smallest step that solves the normal equations, in units in which features f~ have
    unit size.
    """
    xp = namespace(gram)
    diagonal = xp.linalg.diagonal(gram)
    unit = xp.where(diagonal > 0, 1.0 / xp.sqrt(xp.where(diagonal > 0, diagonal, 1.0)), 0.0)  # (..., r + 1)
    values, vectors = xp.linalg.eigh(gram * unit[..., :, None] * unit[..., None, :])
    least = _SINGULAR * values[..., -1:]
    inverse = xp.where(values > least, 1.0 / xp.where(values > least, values, 1.0), 0.0)
    if gram.ndim == 2:
        return unit[:, None] * (vectors @ (inverse[:, None] * (vectors.T @ (unit[:, None] * missing))))
    turned = xp.matrix_transpose(vectors) @ (unit * missing.T)[:, :, None]
    return (unit * (vectors @ (inverse[:, :, None] * turned))[:, :, 0]).T


def multiplied_components(sums: Sums, layer: Layer, terms: Terms, exponent: float) -> Layer:
    """The multiplicative step of components and offset."""
    xp, gram = namespace(layer.components), extended_gram(sums)
    b = layer.offset
    at = xp.concat([layer.components, b[None, :]])
    of_offset = gram[..., -1] * (b[:, None] if gram.ndim == 3 else 1.0)
    of_offset = of_offset.T if gram.ndim == 3 else gram[:, -1:] * b
    below = _image(gram, at)
    penalty = terms.sigma2 * terms.beta
    if penalty:
        below = below + penalty * xp.concat([ones((at.shape[0] - 1, 1), at), zeros((1, 1), at)])
    at = at * powered(sums.cross + of_offset, below, exponent)
    return replace(layer, components=at[:-1, :], offset=at[-1, :])


def descended_components(sums: Sums, layer: Layer, terms: Terms, rate: float) -> Layer:
    """A step of components and offset along the gradient."""
    xp, gram = namespace(layer.components), extended_gram(sums)
    at = from_offset(layer, layer.offset)
    slope = (_image(gram, at) - sums.cross) / terms.sigma2
    slope = xp.concat([steepest(slope[:-1, :], layer.components, terms.beta), slope[-1:, :]])
    return with_moved(layer, at - rate * slope, terms)


def explained(sums: Sums, layer: Layer) -> Sums:
    """The sums of the same sources, had the layer made the rows."""
    moved = from_offset(layer, layer.offset)
    gram = extended_gram(sums)
    image = _image(gram, moved)
    level = 0.5 * namespace(moved).sum(moved * image)
    return replace(sums, cross=image, level=level)


def measured_from(sums: Sums, before: Array, after: Array) -> Sums:
    """Sums of y = x - `before` as those of x - `after`."""
    xp, moved = namespace(sums.cross), before - after
    gram = extended_gram(sums)
    seen = (
        gram[:, -1][:, None] if gram.ndim == 2 else gram[:, :, -1].T
    )  # sums of f~, of all rows or by feature
    cross = sums.cross + seen * moved
    level = sums.level + xp.sum(moved * (sums.cross[-1, :] + 0.5 * seen[-1, ...] * moved))
    return replace(sums, cross=cross, level=level)
