"""Mixtures of factor models with a label that depends on the factors.

    l ~ pi      y ~ N(0, I_d)      x | y, l ~ N(mu_l + G_l y, sigma_l^2 I)      P(z = 1 | y) = Phi(w'y + b)

With more than two classes there is one binary question per class, "is it class j?", answered yes with
probability Phi(w_j'y + b_j). A label answers all of them. The objective is the mean over questions of
ln p(x, answer), and the probability of a class is the normalised product over its answers:

    P(z = c | x)  proportional to  P(yes to c | x)  prod_{j != c} P(no to j | x)

For two classes, w_2 = -w_1 and b_2 = -b_1 give the formulas of one question (J = 1), which is sufficient.
All integrals over y have closed forms, because a Gaussian y given x and an answer is squashed normal.

An answer is yes where v = w'y + b + e > 0, e ~ N(0, 1). With v latent as well, EM also updates the
classifier: it is the regression of E[v] on y. The variance of e is free in the M-step and then rescaled to
one, which converges faster with the same guarantees (parameter expansion; Liu, Rubin & Wu, 1998, Biometrika
85).

With an emphasis a the objective is ln p(x) + a ln P(z | x), that is a ln p(x, z) + (1 - a) ln p(x): EM for a
<= 1, with a convex combination of the statistics of rows with and without their labels. For a > 1 one
coefficient is negative; expected statistics of the current parameters are added, with as much weight as
needed for the objective to increase (extended Baum-Welch).

EM, in which y is latent as well, moves w ever more slowly if the classes are well separated. `newton`
replaces its step of the classifier by a Gauss-Newton step at fixed components: t = (w'M + b) / s, the
argument of Phi, is linearised in (w, b), in which ln Phi(t) is concave. Both use the same pass over the rows.
As both move towards the same goal, they may go too far together, so these steps are checked.

Formulas: docs/mfm.md.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from scipy import special

from latently.backend import packed
from latently.backend.linalg import transpose
from latently.backend.namespace import Array, Floats, eye, log_ndtr, namespace, ones, zeros
from latently.core.block import Block
from latently.core.tree import add, mapped
from latently.distributions import low_rank_missing
from latently.distributions.low_rank import LowRankDensity, Projected
from latently.distributions.low_rank_missing import WithMissing
from latently.distributions.mixture import Mixture, MixtureParams, MixtureStats
from latently.distributions.responsibilities import Responsibilities, has_rows, normalise, respond
from latently.distributions.squashed_normal import hazards

_LARGEST = 1e8  # a larger norm of w makes no difference: the label is deterministic
_LONGEST = 1e6  # norm of w that a Gauss-Newton step or an extrapolation may reach
_RIDGE = 1e-6  # added to the curvature of a Gauss-Newton step, relative to its trace; grows with caution


@dataclass(frozen=True)
class LabelledParams(MixtureParams):
    coef: Array  # (J, d): w
    intercept: Array  # (J,): b


@dataclass(frozen=True)
class LabelledDensity(LowRankDensity):
    coef: Array  # (J, d)
    intercept: Array  # (J,)

    @property
    def n_questions(self) -> int:
        return int(self.coef.shape[0])


@dataclass(frozen=True)
class Answers:
    """Expectations of y and v given x and the component, before the label is used."""

    mean: Array  # (L, J, n): E[v], called a
    deviation: Array  # (L, J, n) or (L, J, 1): s, the root of 1 + w'R w
    gain: Array  # (L, J, n, d) or (L, J, 1, d): g = R w / s^2, so that E[y | v] = M + g (v - a)


@dataclass(frozen=True)
class AnswerSums:
    """Sums for the regression of v on (y, 1), over rows with a label, weighted with r."""

    weight: Array  # (J,)
    sum_yy: Array  # (J, d + 1, d + 1)
    sum_yv: Array  # (J, d + 1)
    sum_vv: Array  # (J,)


@dataclass(frozen=True)
class LabelledSums(MixtureStats):
    answers: Any  # AnswerSums, or None if no row has a label
    pull: Array | None  # (L, J): sum of r (E[v | z] - a), over complete rows
    pull_x: Array | None  # (L, J, D): the same times x
    slopes: Any = None  # Slopes


@dataclass(frozen=True)
class LabelledStats(MixtureStats):
    answers: Any
    slopes: Any = None


@dataclass(frozen=True)
class Slopes:
    """First and approximate second derivatives of the objective by (w, b), per question."""

    gradient: Array  # (J, d + 1)
    curvature: Array  # (J, d + 1, d + 1), positive semidefinite


@dataclass(frozen=True)
class LabelledMixture(Mixture):
    """The kernel; its family is a LowRankGaussian. `allowed` of a block contains classes, not components."""

    n_classes: int = 2
    emphasis: float = 1.0
    newton: bool = False  # whether the classifier takes Gauss-Newton steps
    labels_are_components = False

    @property
    def n_questions(self) -> int:
        return 1 if self.n_classes == 2 else self.n_classes

    @property
    def checked(self) -> bool:
        return self.newton or not self.sure

    @property
    def sure(self) -> bool:
        return self.emphasis <= 1.0

    def floats_per_row(self, K: int, D: int, missing: bool) -> int:
        d = self.family.n_factors
        each = 6 + d * (d if missing else 1)
        return super().floats_per_row(K, D, missing) + K * self.n_questions * int(each)

    def prepare(self, params: Any) -> LabelledDensity:
        density = super().prepare(params)
        shared = {field.name: getattr(density, field.name) for field in fields(density)}
        return LabelledDensity(**shared, coef=params.coef, intercept=params.intercept)

    # -- E-step -------------------------------------------------------------------------------------

    def e_step(self, density: LabelledDensity, block: Block) -> LabelledSums:
        xp = namespace(block.X)
        parts: list[Block | None] = [None, block]
        if block.allowed is not None:
            parts = list(block.apart(~xp.all(block.allowed, axis=1)))
        total: Any = None
        for part, with_labels in zip(parts, (True, False), strict=True):
            if part is None:
                continue
            if part.observed is None:
                total = add(total, self._sums(density, part, with_labels))
                continue
            complete, incomplete = part.apart(xp.all(part.observed, axis=1))
            if complete is not None:
                total = add(total, self._sums(density, replace(complete, observed=None), with_labels))
            if incomplete is not None:
                total = add(total, self._sums(density, incomplete, with_labels))
        sums: LabelledSums = total
        return sums

    def _sums(self, density: LabelledDensity, block: Block, with_labels: bool) -> LabelledSums:
        xp = namespace(block.X)
        if not with_labels:
            block = replace(
                block, allowed=None
            )  # drop classes, which the family would interpret as components
            log_joint, latent = self.family.evaluate(density, block, rough=True)
            log_norm, resp = respond(
                log_joint, block.weight, None, self.family.most_per_row(log_joint.shape[0])
            )
            sums = self.family.sums(density, block, latent, resp)
            return LabelledSums(xp.sum(resp.by_row * log_norm), xp.sum(resp.by_row), sums, None, None, None)
        alpha = self.emphasis
        log_joint, latent = self.family.evaluate(density, block)
        answers = answers_of(density, latent)
        signs = self._told(block.allowed)
        log_norm, r = self._by_question(log_joint, answers, signs, block.weight)
        L, J, n = r.shape
        by_question = alpha * r
        by_component = xp.sum(by_question, axis=1)
        if alpha != 1.0:
            log_plain, plain = respond(log_joint, block.weight, None, 0.0)
            by_component = by_component + (1.0 - alpha) * plain.full()
            log_norm = alpha * log_norm + (1.0 - alpha) * log_plain
        weight = ones((n,), log_norm) if block.weight is None else block.weight
        resp = Responsibilities(xp.sum(by_component, axis=1), weight, by_component, None)
        told = xp.sum(weight * log_norm), xp.sum(weight)
        hazard, beyond, _ = hazards(signs * answers.mean / answers.deviation)
        delta = signs * answers.deviation * hazard  # E[v | z] - a
        M = xp.permute_dims(self.family.factor_means(density, latent), (1, 0, 2))  # (L, n, d)
        slopes = None
        if self.newton:
            slopes = _slopes(answers, M, by_question * signs * hazard, by_question * hazard * beyond)
        if isinstance(latent, WithMissing):
            R = xp.permute_dims(self.family.factor_covariances(density, latent, n), (1, 0, 2, 3))
            regression = self._regression_by_row(answers, by_question, delta, M, R)
            sums = self._missing_sums(density, block, resp, answers, by_question * delta, M, R)
            return LabelledSums(*told, sums, regression, None, None, slopes)
        pulled = by_question * delta
        regression = self._regression(density, answers, by_question, pulled, M)
        sums = self.family.sums(density, block, latent, resp)
        pull_x = xp.reshape(xp.reshape(pulled, (L * J, n)) @ block.X, (L, J, block.X.shape[1]))
        return LabelledSums(*told, sums, regression, xp.sum(pulled, axis=2), pull_x, slopes)

    def _told(self, allowed: Array) -> Array:
        """(J, n) whether the answer to each question was yes (1) or no (-1)."""
        xp = namespace(allowed)
        yes = allowed[:, 1:] if self.n_questions == 1 else allowed
        return xp.where(yes.T, 1.0, zeros((1,), allowed) - 1.0)

    @staticmethod
    def _by_question(
        log_joint: Array, answers: Answers, signs: Array, weight: Array | None
    ) -> tuple[Array, Array]:
        """The mean over questions of ln p(x, answer) (n,), and responsibilities given each answer (L, J, n).

        They distribute the weight of the row over the questions.
        """
        xp = namespace(log_joint)
        log_full = log_joint[:, None, :] + log_ndtr(signs * answers.mean / answers.deviation)
        L, J, n = log_full.shape
        each = (ones((n,), log_joint) if weight is None else weight) / J
        each = xp.reshape(xp.broadcast_to(each, (J, n)), (J * n,))
        log_norm, r = respond(xp.reshape(log_full, (L, J * n)), each, None, 0.0)
        return xp.mean(xp.reshape(log_norm, (J, n)), axis=0), xp.reshape(r.full(), (L, J, n))

    def _regression(
        self, density: LabelledDensity, answers: Answers, r: Array, pulled: Array, M: Array
    ) -> AnswerSums:
        """Sums over complete rows, whose y have the common covariance R_l: E[yy'] and E[yv] in closed form.

        E[y v | z] = M E[v | z] + R w, E[yy' | z] = R + M M' + delta (M g' + g M' - a g g') and
        E[v^2 | z] = s^2 + a E[v | z].
        """
        xp = namespace(M)
        g, w, b = answers.gain[:, :, 0, :], density.coef, density.intercept
        L, J, d = g.shape
        n_r = xp.sum(r, axis=2)  # (L, J)
        sum_m = r @ M  # (L, J, d)
        sum_mm = xp.reshape(transpose(r[..., None] * M[:, None, :, :]) @ M[:, None, :, :], (L, J, d, d))
        n_u, sum_um = xp.sum(pulled, axis=2), pulled @ M
        sum_a = xp.sum(sum_m * w, axis=2) + n_r * b
        sum_ua = xp.sum(sum_um * w, axis=2) + n_u * b
        sum_aa = xp.sum(r * answers.mean**2, axis=2)
        outer = sum_um[..., :, None] * g[..., None, :]
        yy = (
            n_r[..., None, None] * density.factor_covariances[:, None, :, :]
            + sum_mm
            + outer
            + transpose(outer)
            - sum_ua[..., None, None] * g[..., :, None] * g[..., None, :]
        )
        y = sum_m + n_u[..., None] * g
        s2 = answers.deviation[:, :, 0] ** 2
        # sum of r M a = (sum of r M M') w + b sum of r M
        ma = xp.sum(sum_mm * w[:, None, :], axis=-1) + b[:, None] * sum_m
        yv = ma + sum_um + (n_r * s2)[..., None] * g
        vv = n_r * s2 + sum_aa + sum_ua
        return _summed_over_components(n_r, y, yy, sum_a + n_u, yv, vv)

    def _regression_by_row(self, answers: Answers, r: Array, delta: Array, M: Array, R: Array) -> AnswerSums:
        """The same for rows with missing entries, each with its own R (L, n, d, d)."""
        xp = namespace(M)
        a, s2, g = answers.mean, answers.deviation**2, answers.gain
        M = M[:, None, :, :]
        v = a + delta
        y = M + delta[..., None] * g  # E[y | z]
        bent = M[..., :, None] * g[..., None, :]
        yy = (
            R[:, None, ...]
            + M[..., :, None] * M[..., None, :]
            + delta[..., None, None]
            * (bent + transpose(bent) - a[..., None, None] * g[..., :, None] * g[..., None, :])
        )
        yv = M * v[..., None] + s2[..., None] * g
        return _summed_over_components(
            xp.sum(r, axis=2),
            xp.sum(r[..., None] * y, axis=2),
            xp.sum(r[..., None, None] * yy, axis=2),
            xp.sum(r * v, axis=2),
            xp.sum(r[..., None] * yv, axis=2),
            xp.sum(r * (s2 + a * v), axis=2),
        )

    def _missing_sums(
        self,
        density: LabelledDensity,
        block: Block,
        resp: Responsibilities,
        answers: Answers,
        pulled: Array,
        M: Array,
        R: Array,
    ) -> Any:
        """Sums of rows with missing entries, with moments of y given the label."""
        xp = namespace(M)
        L, n, d = M.shape
        g, a, r = answers.gain, answers.mean, resp.full()
        m = r[..., None] * M + xp.sum(pulled[..., None] * g, axis=1)  # (L, n, d)
        bent = xp.sum(pulled[..., None] * g, axis=1)[..., :, None] * M[..., None, :]
        ahead = xp.sum((pulled * a)[..., None, None] * g[..., :, None] * g[..., None, :], axis=1)
        zz = r[..., None, None] * (R + M[..., :, None] * M[..., None, :]) + bent + transpose(bent) - ahead
        packed_zz = [zz[..., i, j] for i, j in packed.pairs(d)]
        weighted = xp.stack([r, *(m[..., i] for i in range(d)), *packed_zz])  # (1 + d + T, L, n)
        weighted = xp.reshape(weighted, (weighted.shape[0], L * n))
        incomplete = low_rank_missing.sums_of_moments(
            self.family, block, weighted, None, [k * n for k in range(L + 1)]
        )
        return self.family.no_sums(density, incomplete)

    def stats(self, density: LabelledDensity, sums: Any) -> LabelledStats:
        """Statistics of a sweep, including the effect of the labels on the factors."""
        components = self.family.stats(density, sums.components)
        if sums.pull is not None:
            xp = namespace(sums.pull)
            u, ux = sums.pull, sums.pull_x
            g = gains(density)[0]  # (L, J, d)
            centred = ux - u[..., None] * density.means[:, None, :]
            um = centred @ density.projections @ density.to_factors  # (L, J, d): sum of r delta M
            ua = xp.sum(um * density.coef, axis=2) + u * density.intercept
            outer = transpose(um) @ g
            components = replace(
                components,
                sum_z=components.sum_z + xp.sum(u[..., None] * g, axis=1),
                sum_zx=components.sum_zx + transpose(g) @ ux,
                sum_zz=components.sum_zz + outer + transpose(outer) - transpose(ua[..., None] * g) @ g,
            )
        return LabelledStats(sums.log_likelihood, sums.total_weight, components, sums.answers, sums.slopes)

    # -- M-step -------------------------------------------------------------------------------------

    def m_step(self, stats: Any, params: Any) -> Any:
        """Components as in any mixture, and the classifier by regression."""
        moved: Any = super().m_step(stats, params)
        if stats.answers is None:
            return moved
        xp = namespace(params.coef)
        of = stats.answers
        filled = has_rows(of.weight)
        one = eye(of.sum_yv.shape[1], of.sum_yy)
        yy = xp.where(filled[:, None, None], of.sum_yy, one)
        n = xp.where(filled, of.weight, 1.0)
        ridge = 1e-14 * xp.maximum(xp.linalg.diagonal(yy), n[:, None])  # far factors are large ones
        beta = xp.linalg.solve(yy + ridge[:, None, :] * one, of.sum_yv[..., None])[..., 0]
        noise = (of.sum_vv - xp.sum(beta * of.sum_yv, axis=1)) / n
        beta = _at_most(_LARGEST, beta / xp.sqrt(xp.where(noise > 0, noise, 1.0))[:, None])
        beta = xp.where((filled & (noise > 0))[:, None], beta, self._joined(params))
        return replace(moved, coef=beta[:, :-1], intercept=beta[:, -1])

    def attempt(self, stats: Any, params: Any, caution: float) -> Any:
        if not self.sure:
            stats = self._damped(stats, params, 0.5 * (self.emphasis - 1.0) * caution**0.3)
        moved: Any = self.m_step(stats, params)
        if stats.slopes is None:
            return moved
        xp = namespace(params.coef)
        gradient, curvature = stats.slopes.gradient, stats.slopes.curvature
        one = eye(curvature.shape[1], curvature)
        ridge = _RIDGE * caution * xp.sum(curvature * one, axis=(1, 2)) + 1e-300
        step = xp.linalg.solve(curvature + ridge[:, None, None] * one, gradient[..., None])[..., 0]
        beta = _at_most(_LONGEST, self._joined(params) + step)
        return replace(moved, coef=beta[:, :-1], intercept=beta[:, -1])

    def _damped(self, stats: LabelledStats, params: LabelledParams, damping: float) -> LabelledStats:
        """The statistics plus `damping` times expected statistics of the parameters per row."""
        implied = self.implied_stats(params)
        implied = replace(implied, answers=None if stats.answers is None else implied.answers)
        weight = damping * float(stats.total_weight)
        copy = mapped(lambda field: field * 1.0, stats)
        mixed: LabelledStats = add(copy, mapped(lambda field: field * weight, implied))
        return mixed

    def implied_stats(self, params: Any) -> LabelledStats:
        xp = namespace(params.coef)
        plain = super().implied_stats(params)
        (J, d), beta = params.coef.shape, self._joined(params)
        each = zeros((J,), params.coef) + self.emphasis / J
        answers = AnswerSums(
            weight=each,
            sum_yy=each[:, None, None] * eye(d + 1, params.coef),
            sum_yv=each[:, None] * beta,
            sum_vv=each * (1.0 + xp.sum(beta**2, axis=1)),
        )
        return LabelledStats(plain.log_likelihood, plain.total_weight, plain.components, answers)

    @staticmethod
    def _joined(params: LabelledParams) -> Array:
        """(J, d + 1): coefficients and intercept."""
        return namespace(params.coef).concat([params.coef, params.intercept[:, None]], axis=1)

    def to_vector(self, params: Any) -> Array:
        """(w, b) divided by (1 + |w|^2)^1/2, so that an ever longer w converges, and the other parameters."""
        xp = namespace(params.coef)
        size = xp.sqrt(1.0 + xp.sum(params.coef**2, axis=1, keepdims=True))
        beta = self._joined(params) / size
        return xp.concat([xp.reshape(beta, (-1,)), super().to_vector(params)])

    def from_vector(self, vector: Array, like: Any) -> LabelledParams:
        xp = namespace(vector)
        J, d = like.coef.shape
        beta = xp.reshape(vector[: J * (d + 1)], (J, d + 1))
        square = xp.sum(beta[:, :-1] ** 2, axis=1, keepdims=True)
        largest = 1.0 - 1.0 / (1.0 + _LONGEST**2)
        shorter = xp.sqrt(largest / xp.clip(square, min=largest))
        beta = xp.concat([shorter * beta[:, :-1], beta[:, -1:]], axis=1)
        beta = beta / xp.sqrt(1.0 - xp.clip(square, max=largest))
        plain = super().from_vector(vector[J * (d + 1) :], like)
        return LabelledParams(plain.weights, plain.components, beta[:, :-1], beta[:, -1])

    # -- initialisation and sampling, in main memory ------------------------------------------------

    def from_partition(
        self, X: Floats, weight: Floats, labels: Array, means: Floats, allowed: Array | None = None
    ) -> LabelledParams:
        """Initialised as any mixture, with a classifier that predicts the class frequencies only.

        The factors of a component can be rotated freely, but one classifier serves all components. Therefore
        each is rotated so that the classes lie as in the factors of the largest part.
        """
        plain = super().from_partition(X, weight, labels, means)
        d, J, C = self.family.n_factors, self.n_questions, self.n_classes
        if allowed is None:
            return LabelledParams(plain.weights, plain.components, np.zeros((J, d)), np.zeros(J))
        known = ~np.all(allowed, axis=1)
        shares = weight[known] @ allowed[known] / max(weight[known].sum(), 1e-300)
        shares = (shares + 1e-3) / (1 + 1e-3 * C)
        intercept = special.ndtri(shares[1:2] if J == 1 else shares)
        loadings, components = np.array(plain.components.loadings), plain.components
        density = Mixture(self.family).prepare(plain)
        patterns = np.zeros((len(means), C, d))
        for k in range(len(means)):
            own = known & (labels == k)
            M = (X[own] - means[k]) @ density.projections[k] @ density.to_factors[k]
            for c in range(C):
                rows = allowed[own, c]
                if rows.any():
                    patterns[k, c] = weight[own][rows] @ M[rows] / np.sqrt(weight[own][rows].sum())
        largest = np.argmax(plain.weights)
        for k in range(len(means)):
            alike = patterns[k].T @ patterns[largest]
            # directions in which classes do not differ stay as they are: rounding must not turn them
            u, _, vt = np.linalg.svd(alike + 1e-6 * np.linalg.norm(alike) * np.eye(d))
            loadings[k] = loadings[k] @ (u @ vt)
        components = replace(components, loadings=loadings)
        return LabelledParams(plain.weights, components, np.zeros((J, d)), intercept)

    def sample(self, params: Any, n_samples: int, rng: np.random.Generator) -> tuple[Floats, Array]:
        """Rows (n, D) and their classes (n,)."""
        labels = rng.choice(len(params.weights), size=n_samples, p=params.weights / params.weights.sum())
        c = params.components
        y = rng.standard_normal((n_samples, c.loadings.shape[2]))
        X = c.means[labels] + np.einsum("ndq,nq->nd", c.loadings[labels], y)
        X += np.sqrt(c.noise_variance[labels]) * rng.standard_normal(X.shape)
        if self.n_questions == 1:
            return X, (y @ params.coef[0] + params.intercept[0] + rng.standard_normal(n_samples) > 0).astype(
                int
            )
        log_joint = class_log_joint(self, self.prepare(params), Block(X))
        cumulated = np.cumsum(special.softmax(log_joint, axis=1), axis=1)
        return X, np.sum(cumulated < rng.random((n_samples, 1)), axis=1)


def class_log_joint(kernel: LabelledMixture, density: LabelledDensity, block: Block) -> Array:
    """(n, C) ln p(x, z = c)."""
    log_joint, latent = kernel.family.evaluate(density, block)
    xp = namespace(log_joint)
    answers = answers_of(density, latent)
    t = answers.mean / answers.deviation
    no, yes = (
        xp.stack([normalise(log_joint + log_ndtr(sign * t[:, j, :]))[0] for j in range(t.shape[1])])
        for sign in (-1.0, 1.0)
    )  # (J, n): ln p(x, answer)
    if kernel.n_questions == 1:
        return xp.concat([no, yes]).T
    log_density = normalise(log_joint)[0]
    lost = log_density == -xp.inf  # so far away that all densities underflow
    no, yes = (xp.where(lost, 0.0, answer - xp.where(lost, 0.0, log_density)) for answer in (no, yes))
    return (log_density + _put_together(no, yes)).T


def class_probabilities(coef: Floats, intercept: Floats, n_classes: int, y: Floats) -> Floats:
    """(n, C) P(z = c | y) for factors (n, d)."""
    t = (y @ coef.T + intercept).T
    no, yes = special.log_ndtr(-t), special.log_ndtr(t)
    found = np.concatenate([no, yes]) if n_classes == 2 else _put_together(no, yes)
    return np.asarray(np.exp(found).T)


def _put_together(no: Array, yes: Array) -> Array:
    """(C, n) ln P(class) from the log probabilities of no and yes to each question."""
    xp = namespace(no)
    score = yes - no + xp.sum(no, axis=0)
    score = score - xp.max(score, axis=0)
    return score - xp.log(xp.sum(xp.exp(score), axis=0))


def gains(density: LabelledDensity) -> tuple[Array, Array]:
    """g = R w / s^2 (L, J, d) and s (L, J) for complete rows."""
    xp = namespace(density.coef)
    Rw = density.coef @ density.factor_covariances  # (L, J, d)
    s2 = 1.0 + xp.sum(Rw * density.coef, axis=2)
    return Rw / s2[..., None], xp.sqrt(s2)


def answers_of(density: LabelledDensity, latent: Projected | WithMissing) -> Answers:
    xp = namespace(density.coef)
    w, b = density.coef, density.intercept
    if isinstance(latent, WithMissing):
        M = low_rank_missing.factor_means(latent)  # (n, L, d)
        R = low_rank_missing.factor_covariances(latent)
        Rw = xp.permute_dims(w @ R, (1, 2, 0, 3))  # (L, J, n, d)
        s2 = 1.0 + xp.sum(Rw * w[:, None, :], axis=3)
        mean = xp.permute_dims(M @ w.T, (1, 2, 0)) + b[:, None]
        return Answers(mean, xp.sqrt(s2), Rw / s2[..., None])
    g, s = gains(density)
    mean = (w @ transpose(density.to_factors)) @ latent.y + b[:, None]
    return Answers(mean, s[..., None], g[:, :, None, :])


def _slopes(answers: Answers, M: Array, gradient: Array, curvature: Array) -> Slopes:
    """Derivatives by (w, b), from those of every ln Phi(t) by its t (L, J, n), times the responsibilities."""
    xp = namespace(M)
    by_t = M[:, None, :, :] - answers.mean[..., None] * answers.gain
    by_t = xp.concat([by_t, xp.ones_like(by_t[..., :1])], axis=3) / answers.deviation[..., None]
    bent = transpose(curvature[..., None] * by_t) @ by_t
    return Slopes(xp.sum(gradient[..., None] * by_t, axis=(0, 2)), xp.sum(bent, axis=0))


def _at_most(longest: float, beta: Array) -> Array:
    """(J, d + 1) shortened to this length."""
    xp = namespace(beta)
    length = xp.linalg.vector_norm(beta, axis=1, keepdims=True)
    return beta * xp.where(length > longest, longest / xp.where(length > 0, length, 1.0), 1.0)


def _summed_over_components(n: Array, y: Array, yy: Array, v: Array, yv: Array, vv: Array) -> AnswerSums:
    """Sums over rows per component and question, assembled for (y, 1) and summed over components."""
    xp = namespace(n)
    n, y, yy, v, yv, vv = (xp.sum(part, axis=0) for part in (n, y, yy, v, yv, vv))
    top = xp.concat([yy, y[..., None]], axis=2)
    bottom = xp.concat([y, n[:, None]], axis=1)
    sum_yy = xp.concat([top, bottom[:, None, :]], axis=1)
    return AnswerSums(n, sum_yy, xp.concat([yv, v[:, None]], axis=1), vv)
