"""Rotated factors: equal densities, criteria that never rise, and agreement with slow searches."""

import numpy as np
import pandas as pd
import pytest

from latently.distributions.rotations import criterion_value, procrustes, rotated
from latently.mixture import MCFA, MFA, FactorAnalysis

METHODS = ["varimax", "quartimax", "promax", "oblimin"]


def simple_structure(rng, D=12, q=3):
    """Loadings in which every feature has one factor, and some noise."""
    L = np.zeros((D, q))
    L[np.arange(D), np.arange(D) % q] = rng.uniform(0.5, 2.0, size=D)
    return L


def models(rng):
    X = rng.normal(size=(300, 3)) @ simple_structure(rng, 8, 3).T + 0.3 * rng.normal(size=(300, 8))
    X[:150] += 3.0
    few = {"max_iter": 20, "tol": 0.0, "n_init": 1, "random_state": 0}
    return X, [FactorAnalysis(3, **few), MFA(2, 2, **few), MCFA(2, 3, **few)]


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_the_density_stays_as_it_is(method, normalize):
    X, unfitted = models(np.random.default_rng(0))
    for model in unfitted:
        fitted = model.fit(X)
        before = fitted.loadings_.copy()
        turned = fitted.rotate(method, normalize=normalize)
        np.testing.assert_allclose(turned.score_samples(X), fitted.score_samples(X), rtol=1e-10, atol=1e-10)
        np.testing.assert_array_equal(fitted.loadings_, before)  # the model itself stays
        assert turned.n_iter_ == fitted.n_iter_ and type(turned) is type(fitted)
        np.testing.assert_allclose(turned.reconstruct(X), fitted.reconstruct(X), atol=1e-8)
        if method in ("varimax", "quartimax") and not isinstance(model, MCFA):
            np.testing.assert_allclose(turned.loadings_, fitted.loadings_ @ turned.rotation_, atol=1e-10)
        if method in ("promax", "oblimin"):
            P, Phi = turned.pattern_, turned.factor_correlations_
            np.testing.assert_allclose(np.diagonal(Phi, axis1=-2, axis2=-1), 1.0)
            if not isinstance(model, MCFA):
                L = fitted.loadings_
                np.testing.assert_allclose(
                    P @ Phi @ np.swapaxes(P, -1, -2), L @ np.swapaxes(L, -1, -2), atol=1e-9
                )


@pytest.mark.parametrize("method", METHODS)
def test_simple_structure_is_found(method):
    rng = np.random.default_rng(1)
    L = simple_structure(rng)
    mixed = L @ np.linalg.qr(rng.normal(size=(3, 3)))[0]
    P = rotated(mixed, method).loadings
    order = np.argsort(-np.sum(L**2, axis=0))
    np.testing.assert_allclose(P, L[:, order], atol=1e-5)


@pytest.mark.parametrize("method", ["varimax", "quartimax", "oblimin"])
def test_the_criterion_never_rises(method):
    for seed in range(5):
        history = rotated(np.random.default_rng(seed).normal(size=(9, 4)), method).history
        assert len(history) > 2 and np.all(np.diff(history) < 0)


@pytest.mark.parametrize("method", ["varimax", "quartimax", "oblimin"])
def test_no_angles_are_better(method):
    """All rotations of two factors, or all pairs of directions, on a grid."""
    L = np.random.default_rng(2).normal(size=(7, 2))
    found = rotated(L, method, normalize=False)
    assert criterion_value(found.loadings, method) == pytest.approx(found.history[-1])
    angles = np.linspace(0, np.pi, 181)
    values = []
    for a in angles:
        for b in [a + np.pi / 2] if method != "oblimin" else angles:
            T = np.array([[np.cos(a), np.cos(b)], [np.sin(a), np.sin(b)]])
            if abs(np.linalg.det(T)) > 0.05:
                values.append(criterion_value(L @ np.linalg.inv(T).T, method))
    assert found.history[-1] <= min(values) + 1e-9
    assert found.history[-1] >= min(values) - 1e-2 * abs(min(values))


def test_units_of_features_do_not_matter_with_normalisation():
    rng = np.random.default_rng(3)
    L, units = rng.normal(size=(8, 3)), 10.0 ** rng.uniform(-3, 3, size=(8, 1))
    for method in METHODS:
        one, other = rotated(L, method), rotated(units * L, method)
        T, U = one.matrix, other.matrix
        match = np.abs(T.T @ U) if method in ("varimax", "quartimax") else None
        if match is not None:
            np.testing.assert_allclose(np.sort(match.max(axis=0)), 1.0, atol=1e-4)


def test_components_are_aligned_by_the_best_rotation():
    X, (_, mfa, mcfa) = models(np.random.default_rng(4))
    fitted = mfa.fit(X)
    aligned = fitted.align_factors()
    np.testing.assert_allclose(aligned.score_samples(X), fitted.score_samples(X), rtol=1e-10)
    target = fitted.loadings_[0]
    np.testing.assert_allclose(aligned.loadings_[0], target, atol=1e-10)
    least = np.sum((aligned.loadings_[1] - target) ** 2)
    for a in np.linspace(0, 2 * np.pi, 400):
        turn = np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])
        for flip in (np.eye(2), np.diag([1.0, -1.0])):
            assert np.sum((fitted.loadings_[1] @ turn @ flip - target) ** 2) >= least - 1e-12
    Q = np.linalg.qr(np.random.default_rng(0).normal(size=(2, 2)))[0]
    np.testing.assert_allclose(procrustes(target, target @ Q), Q, atol=1e-10)
    with pytest.raises(ValueError, match="reference must be a component from 0 to 1"):
        fitted.align_factors(2)
    with pytest.raises(ValueError, match=r"reference must have shape \(8, 2\)"):
        fitted.align_factors(np.ones((2, 2)))
    with pytest.raises(ValueError, match="nothing to align"):
        mcfa.fit(X).align_factors()


def test_communalities_and_uniqueness_add_up():
    X, unfitted = models(np.random.default_rng(5))
    table = unfitted[0].fit(pd.DataFrame(X, columns=list("abcdefgh"))).communalities()
    model = unfitted[0]
    assert list(table.columns) == ["feature", "variance", "communality", "uniqueness"]
    assert table.feature.tolist() == list("abcdefgh")
    np.testing.assert_allclose(
        table.communality * table.variance, np.sum(model.loadings_**2, axis=1), rtol=1e-9
    )
    np.testing.assert_allclose(table.communality + table.uniqueness, 1.0)
    by_component = unfitted[1].fit(X).communalities()
    assert len(by_component) == 16 and by_component.component.tolist() == [0] * 8 + [1] * 8
    np.testing.assert_allclose(model.rotate().communalities().communality, table.communality, rtol=1e-9)


def test_one_factor_and_bad_names():
    X, (model, *_) = models(np.random.default_rng(6))
    one = FactorAnalysis(1).fit(X)
    np.testing.assert_allclose(np.abs(one.rotate("oblimin").loadings_), np.abs(one.loadings_))
    with pytest.raises(ValueError, match="method must be one of"):
        model.fit(X).rotate("equamax")
