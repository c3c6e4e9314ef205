"""The numbers behind a report, against slow and independent ones."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from latently.factorization import NMF, DeepNLMF
from latently.metrics import clustering_accuracy, purity
from latently.mixture import FactorAnalysis, GaussianMixture
from latently.report._facts import Facts
from latently.report._groups import MOST_DIFFERENT, NO_LABEL, labelled, profiles
from latently.report._points import column, drawn_rows, points
from latently.report._rare import rare_score
from tests.report.cases import MODELS, digits, fitted, holed, mcfa, wine


def facts_of(model, X, **given):
    return Facts(
        model, X, **{"feature_names": None, "labels": None, "row_names": None, "image_shape": None} | given
    )


@pytest.fixture
def rng():
    return np.random.default_rng(3)


# -- profiles ---------------------------------------------------------------------------------------------


def test_profiles_are_means_and_deviations_of_observed_cells(rng):
    X = rng.normal(size=(60, 4)) * [1, 5, 0.1, 20] + 3
    X[rng.random(X.shape) < 0.2] = np.nan
    codes = rng.integers(3, size=60)
    found = profiles(X, np.eye(3)[codes])
    within = np.concatenate([X[codes == k] - np.nanmean(X[codes == k], axis=0) for k in range(3)])
    pooled = np.sqrt(np.nanmean(within**2, axis=0))
    for k in range(3):
        own, rest = X[codes == k], X[codes != k]
        np.testing.assert_allclose(found.means[k], np.nanmean(own, axis=0))
        np.testing.assert_allclose(found.deviations[k], np.nanstd(own, axis=0))
        gap = np.nanmean(own, axis=0) - np.nanmean(rest, axis=0)
        np.testing.assert_allclose(found.differences[k], gap / pooled)


def test_profiles_weigh_rows_as_copies(rng):
    X, codes = rng.normal(size=(20, 3)), rng.integers(2, size=20)
    weights = rng.integers(1, 4, size=20)
    once = profiles(X, np.eye(2)[codes] * weights[:, None])
    copied = profiles(np.repeat(X, weights, axis=0), np.eye(2)[np.repeat(codes, weights)])
    np.testing.assert_allclose(once.differences, copied.differences)


def test_profiles_do_not_depend_on_units(rng):
    X, belongs = rng.normal(size=(50, 3)), rng.dirichlet(np.ones(3), size=50)
    plain, moved = profiles(X, belongs), profiles(1000 * X + 1e7, belongs)
    np.testing.assert_allclose(moved.differences, plain.differences, rtol=1e-4)


def test_profiles_of_features_that_do_not_vary_are_finite():
    X = np.array([[1.0, 0.0, 7.0], [1.0, 0.0, 7.0], [2.0, 0.0, 7.0], [2.0, 0.0, 7.0]])
    found = profiles(X, np.eye(2)[[0, 0, 1, 1]])
    np.testing.assert_array_equal(found.differences[:, 0], [-MOST_DIFFERENT, MOST_DIFFERENT])
    np.testing.assert_array_equal(found.differences[:, 1:], 0)


def test_profiles_in_blocks_are_those_of_the_whole(rng, monkeypatch):
    X, belongs = rng.normal(size=(50, 3)), rng.dirichlet(np.ones(3), size=50)
    whole = profiles(X, belongs)
    monkeypatch.setattr("latently.report._groups._BLOCK", 20)
    np.testing.assert_allclose(profiles(X, belongs).deviations, whole.deviations)


# -- labels -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (["b", "a", "b"], ["a", "b"]),
        ([10, 9, 10], ["9", "10"]),
        ([2.0, 0.5, 2.0], ["0.5", "2"]),
        (["b", None, ""], ["b", NO_LABEL]),
        ([1.0, float("nan"), 1.0], ["1", NO_LABEL]),
        (np.array(["x", "x", "y"]), ["x", "y"]),
    ],
)
def test_labels_are_named_in_order(labels, names):
    assert labelled(labels, 3).names == names
    assert labelled(labels, 3).sizes.sum() == 3


def test_rows_without_labels_do_not_count_against_a_model():
    X, y, _ = wine()
    some = [label if i % 3 else None for i, label in enumerate(y)]
    facts = facts_of(mcfa(), X, labels=some)
    kept = [i for i in range(len(y)) if i % 3]
    part = facts_of(mcfa(), X[kept], labels=y[kept])
    assert facts.agreement == part.agreement


# -- density ----------------------------------------------------------------------------------------------


def test_unusual_rows_come_first_and_are_counted():
    X, _, _ = wine()
    with_outlier = np.concatenate([X, X.mean(axis=0, keepdims=True) + 40])
    found = facts_of(mcfa(), with_outlier).unusual
    assert found.rows[0] == len(X)
    scores = mcfa().score_samples(with_outlier)
    assert np.all(np.diff(scores[found.rows]) >= 0)
    assert found.n_below == np.count_nonzero(scores < found.threshold) >= 1


def test_one_row_in_a_thousand_that_the_model_draws_is_below_the_threshold():
    X, n = wine()[0], 40_000
    threshold = facts_of(mcfa(), X).unusual.threshold
    drawn = mcfa().sample(n, random_state=7)[0]
    below = np.count_nonzero(mcfa().score_samples(drawn) < threshold)
    assert 1 / 4 < below / (n * 1e-3) < 4  # the threshold itself is known from ten rows or so below it


def test_rows_with_missing_cells_are_not_compared_with_others():
    model, X = fitted("MFA")
    found = facts_of(model, X).unusual
    assert not np.isnan(X[found.rows]).any()
    assert found.n_left_out == np.count_nonzero(np.isnan(X).any(axis=1)) > 0


def test_where_most_rows_have_missing_cells_all_are_compared_without_a_threshold():
    model, X = fitted("MFA")
    X = np.where(np.arange(4) == 0, np.nan, X)
    found = facts_of(model, X).unusual
    assert len(found.rows) == len(X) and found.threshold is None and found.n_left_out == 0


# -- axes and factors -------------------------------------------------------------------------------------


def test_principal_axes_are_those_of_standardised_features():
    X, _, _ = wine()
    units = np.arange(1.0, 14.0) ** 3
    model = GaussianMixture(2, covariance_type="diag", random_state=0).fit(X * units)
    ours = facts_of(model, X * units).principal
    theirs = PCA(2).fit_transform(StandardScaler().fit_transform(X))
    for j in range(2):
        assert abs(np.corrcoef(ours[:, j], theirs[:, j])[0, 1]) > 1 - 1e-9


def test_loadings_of_factor_analysis_and_noise_make_up_the_variance():
    X, _, _ = wine()
    model = FactorAnalysis(3, tol=1e-12, prior=None).fit(
        X * 7
    )  # at a maximum of the likelihood, variances are met exactly
    facts = facts_of(model, X * 7)
    explained = np.sum(facts.loadings.tables[""] ** 2, axis=1)
    np.testing.assert_allclose(explained + model.noise_variance_ / facts.deviation**2, 1, atol=1e-4)
    assert facts.noise_share == pytest.approx(np.mean(1 - explained), abs=1e-4)


def test_loadings_of_common_factors_do_not_depend_on_the_scale_of_these():
    X, _, _ = wine()
    model, scale = mcfa(), np.arange(2.0, 2.0 + mcfa().n_factors)
    other = type(model).from_parameters(
        weights=model.weights_,
        loadings=model.loadings_ / scale,
        latent_means=model.latent_means_ * scale,
        latent_covariances=model.latent_covariances_ * np.outer(scale, scale),
        noise_variance=model.noise_variance_,
    )
    ours, theirs = (facts_of(m, X).loadings.tables[""] for m in (model, other))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)


class TwoLayers(GaussianMixture):
    """A stand-in for models of several layers, which amount to one of a single layer."""

    def collapse(self):
        return fitted("MPPCA")[0]


def test_factors_of_models_with_layers_are_those_of_the_one_they_amount_to():
    X, _, _ = wine()
    facts = facts_of(TwoLayers(2, covariance_type="diag", random_state=0).fit(X), X)
    np.testing.assert_array_equal(facts.factors, fitted("MPPCA")[0].transform(X))
    assert list(facts.loadings.tables) == ["sub-component 0", "sub-component 1"]
    assert facts.each_has_its_own_factors and facts.noise_share is not None


def test_a_model_without_density_for_these_rows_has_none():
    class Refusing(GaussianMixture):
        def score_samples(self, X, *, out=None):
            raise ValueError("not for these")

    facts = facts_of(Refusing(2, covariance_type="diag", random_state=0).fit(wine()[0]), wine()[0])
    assert facts.scores is None and facts.unusual is None


# -- points -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2])
def test_values_come_back_from_their_codes(width, rng):
    import base64

    values = rng.normal(size=500) * 100
    values[3] = np.nan
    packed = column("x", values, width)
    codes = np.frombuffer(base64.b64decode(packed["data"]), dtype="<u2" if width == 2 else "u1")
    levels = 256**width - 2
    back = packed["low"] + (packed["high"] - packed["low"]) * codes / levels
    there = ~np.isnan(values)
    assert np.max(np.abs(back - values)[there]) <= np.ptp(values[there]) / levels / 2 * 1.01
    assert codes[3] == levels + 1 and np.all(codes[there] <= levels)


def test_of_very_many_rows_a_sample_with_the_most_unusual_is_drawn(monkeypatch):
    X, _, _ = wine()
    monkeypatch.setattr("latently.report._points.MOST_POINTS", 100)
    facts = facts_of(mcfa(), X)
    rows = drawn_rows(facts)
    assert len(rows) == 100 == len(set(rows.tolist()))
    assert set(facts.unusual.rows[:2].tolist()) <= set(rows.tolist())
    payload, _ = points(facts)
    assert payload["count"] == 100 and payload["rows"] is not None


def test_first_axes_are_the_two_factors_that_tell_groups_apart():
    X, _, _ = wine()
    facts = facts_of(mcfa(), X)
    payload, _ = points(facts)
    Z, codes = facts.factors, facts.groups.codes

    def explained(z):
        return 1 - sum(np.sum((z[codes == k] - z[codes == k].mean()) ** 2) for k in set(codes)) / np.sum(
            (z - z.mean()) ** 2
        )

    shares = [explained(z) for z in Z.T]
    assert sorted(payload["first"]) == sorted(np.argsort(shares)[-2:].tolist())


@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_two_axes_of_finite_numbers(name):
    model, X = fitted(name)
    payload, rows = points(facts_of(model, X))
    assert len(payload["axes"]) >= 2 and len(set(payload["first"])) == 2 and len(rows) == len(X)
    assert all(np.isfinite([axis["low"], axis["high"]]).all() for axis in payload["axes"])


# -- what the user gave -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"feature_names": ["a"]}, "feature_names must have 4 names, not 1"),
        ({"row_names": ["a"]}, "row_names must have 150 names, not 1"),
        ({"labels": ["a"]}, "labels must have one label for each of the 150 rows"),
        ({"image_shape": (3, 3)}, "image_shape must be"),
        ({"image_shape": (2, 1, 2)}, "image_shape must be"),
    ],
)
def test_what_does_not_fit_is_named(given, message):
    with pytest.raises(ValueError, match=message):
        facts_of(fitted("MFA")[0], holed(), **given)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((3, 5)), "X has 5 features, but MFA was fitted to 4"),
        (np.zeros((0, 4)), "at least one row"),
        (np.zeros(4), "at least one row"),
        (np.full((3, 4), np.inf), "X contains infinity"),
    ],
)
def test_rows_that_do_not_fit_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        facts_of(fitted("MFA")[0], X)


def test_a_model_that_is_not_fitted_is_named():
    with pytest.raises(ValueError, match="GaussianMixture is not fitted yet"):
        facts_of(GaussianMixture(), np.zeros((3, 4)))


def test_names_of_the_fit_are_taken_without_a_warning():
    import pandas as pd

    X, _, names = wine()
    model = GaussianMixture(2, random_state=0).fit(pd.DataFrame(X, columns=names))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        facts = facts_of(model, X)
        assert facts.feature_names == list(names) and facts.scores is not None


# -- factorisations ---------------------------------------------------------------------------------------


def test_class_weights_and_parts_of_the_cost_of_a_stack(rng):
    X, y = rng.random((60, 6)), np.arange(60) % 3
    stack = DeepNLMF((4, 2), sigma2=0.1, max_iter=5, tol=0.0, random_state=0).fit(X, y)
    first, top = stack.layers_
    found = facts_of(stack, X)
    expected = np.einsum("ck,kj,jd->cd", top.coef_, top.components_, first.components_)
    np.testing.assert_allclose(found.class_features, expected)
    np.testing.assert_allclose(found.sources.mapped, np.tanh(stack.transform(X)))
    np.testing.assert_allclose(sum(found.parts_of_cost.values()), top.history_)
    np.testing.assert_allclose(found.loadings.raw, first.components_.T)
    np.testing.assert_allclose(found.offset_image[0], first.offset_)


def test_thresholds_of_estimated_densities_are_those_of_all_draws():
    """A VAE estimates each log density by a thousand draws, which only the lowest rows need."""

    class Estimated(GaussianMixture):
        n_draws = 0

        def score_samples(self, X, *, n_samples=1000):
            Estimated.n_draws += len(X) * n_samples
            noise = np.sin(1e4 * X[:, 0]) ** 2 * 30 / n_samples**0.5  # of the row alone, and of both signs
            return super().score_samples(X) - noise + 0.2 * np.cos(1e5 * X[:, 0]) / n_samples**0.5

    X = np.random.default_rng(0).normal(size=(300, 3))
    model = Estimated(1).fit(X)
    facts = Facts(model, X, units=(np.ones(3), np.full(3, 2.0)))
    expected = np.quantile(model.score_samples(facts.drawn(10_000)) - 3 * np.log(2), 1e-3)
    Estimated.n_draws = 0
    assert rare_score(facts) == pytest.approx(expected, abs=1e-9)
    assert Estimated.n_draws < 10_000 * 1000 / 5


def test_agreement_of_unequal_numbers_is_purity():
    """As the command line says it: a one-to-one matching would leave some out."""
    X, y, _ = wine()
    for K, equal in ((2, False), (3, True)):
        model = GaussianMixture(K, covariance_type="diag", random_state=0).fit(X)
        found = Facts(model, X, labels=y).agreement
        components = model.predict(X)
        assert found.purity == purity(y, components)
        assert found.accuracy == (clustering_accuracy(y, components) if equal else None)
        assert found.in_words[1] == (found.accuracy if equal else found.purity)


def test_rows_without_groups_are_coloured_by_what_varies():
    """Not by the first pixel, which is always zero."""
    X, _ = digits()
    X = X * (np.arange(64) != 0)
    payload, _ = points(Facts(NMF(3, random_state=0, max_iter=5, tol=0).fit(X), X, image_shape=(8, 8)))
    chosen = payload["values"][payload["coloured"]]
    assert chosen["feature"] == np.argmax(X.std(axis=0)) and chosen["high"] > chosen["low"]
