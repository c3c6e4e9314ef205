"""Standard errors and intervals against formulas, and tests of the number of components."""

import numpy as np
import pandas as pd
import pytest
import sklearn.mixture
from scipy.spatial.transform import Rotation
from scipy.stats import kstest

from latently.deep import DMFA
from latently.factorization import NMF
from latently.mixture import (
    MCFA,
    MFA,
    PPCA,
    BayesianGaussianMixture,
    FactorAnalysis,
    GaussianMixture,
    MixedMixture,
    NestedMixture,
)
from latently.report import report
from latently.selection import bootstrap, likelihood_ratio_test
from latently.selection.refits import matched
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

QUICK = {"tol": 1e-4, "n_init": 2, "random_state": 0}


def two_groups(n=400, apart=8.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) * [1.0, 2.0] + apart * (rng.random(n) < 0.3)[:, None]


@pytest.mark.parametrize("method", ["weighted", "parametric"])
def test_errors_of_groups_far_apart_are_those_of_formulas(method):
    """Of each group alone: sd / sqrt(n) of means, var sqrt(2 / n) of variances, sqrt(w (1 - w) / N)."""
    X = two_groups()
    model = GaussianMixture(2, prior=None, **QUICK).fit(X)
    result = bootstrap(model, X, n_draws=150, method=method, n_jobs=1, random_state=0)
    table = result.intervals_.set_index(["parameter", "component"])
    n = 400 * model.weights_
    for k in (0, 1):
        found = float(table.loc[("weights", k)]["standard_error"])
        assert found == pytest.approx(np.sqrt(model.weights_[0] * model.weights_[1] / 400), rel=0.2)
        means = table.loc[("means", k)]["standard_error"].to_numpy()
        variances = np.diagonal(model.covariances_[k])
        np.testing.assert_allclose(means, np.sqrt(variances / n[k]), rtol=0.25)
        entries = table.loc[("covariances", k)]
        assert len(entries) == 3  # without the one above the diagonal
        own = entries[entries["feature"] == entries["feature_2"]]["standard_error"].to_numpy()
        np.testing.assert_allclose(own, variances * np.sqrt(2 / n[k]), rtol=0.3)
    assert (result.intervals_["low"] < result.intervals_["estimate"]).all()
    assert (result.intervals_["high"] > result.intervals_["estimate"]).all()
    assert result.n_failed_ == 0 and f"150 {method} bootstrap fits" in repr(result)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """In 100 tables of one Gaussian: a mean lies in about 90 % of the intervals for 90 %."""
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(100):
        X = rng.normal([1.0, 2.0], [1.0, 3.0], size=(60, 2))
        model = GaussianMixture(1, prior=None).fit(X)
        found = bootstrap(model, X, n_draws=60, level=0.9, n_jobs=1, random_state=rng).intervals_
        row = found[(found["parameter"] == "means") & (found["feature"] == "1")].iloc[0]
        inside.append(row["low"] <= 2.0 <= row["high"])
    assert 0.78 <= np.mean(inside) <= 0.97


def test_the_order_of_components_and_turns_of_factors_are_matched():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) + 6.0 * (np.arange(200) % 3)[:, None] * [1, 0, 1, 0, -1]
    model = MFA(3, 3, **QUICK).fit(X)
    order, turns = [2, 0, 1], Rotation.random(3, random_state=0).as_matrix()
    other = MFA.from_parameters(
        weights=model.weights_[order],
        means=model.means_[order],
        loadings=(model.loadings_ @ turns)[order],
        noise_variance=model.noise_variance_[order],
    )
    for name, array in matched(other, model, X).items():
        np.testing.assert_allclose(array, getattr(model, f"{name}_"), atol=1e-9, err_msg=name)
    model = MCFA(3, 3, **QUICK).fit(X)
    turn = turns[0]
    other = MCFA.from_parameters(
        weights=model.weights_[order],
        loadings=model.loadings_ @ turn,
        latent_means=(model.latent_means_ @ turn)[order],
        latent_covariances=(turn.T @ model.latent_covariances_ @ turn)[order],
        noise_variance=model.noise_variance_,
    )
    for name, array in matched(other, model, X).items():
        np.testing.assert_allclose(array, getattr(model, f"{name}_"), atol=1e-9, err_msg=name)


@pytest.mark.parametrize(
    "model",
    [
        MFA(2, 1, max_iter=20, **QUICK | {"tol": 1e-3}),
        MCFA(2, 1, **QUICK),
        PPCA(1),
        FactorAnalysis(1, tol=1e-4),
        GaussianMixture(2, covariance_type="tied", **QUICK),
        GaussianMixture(2, covariance_type="spherical", tails="t", **QUICK),
        GaussianMixture(2, noise_component=True, **QUICK),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'covariance_type', '')}",
)
def test_every_parameter_of_every_model_has_an_interval(model):
    X = pd.DataFrame(np.column_stack([two_groups(120), two_groups(120, seed=1)]), columns=list("abcd"))
    X.iloc[3, 1] = np.nan
    model.fit(X)
    for method in ("weighted", "parametric"):
        result = bootstrap(model, X, n_draws=4, method=method, n_jobs=1, random_state=0)
        table = result.intervals_
        assert set(result.draws_) == set(table["parameter"])
        for name, draws in result.draws_.items():
            assert draws.shape == (4, *np.shape(getattr(model, f"{name}_")))
        assert np.isfinite(table[["estimate", "standard_error", "low", "high"]].to_numpy()).all()
        assert set(table["feature"].dropna()) == set("abcd")
    again = bootstrap(model, X, n_draws=4, method="parametric", n_jobs=2, random_state=0).intervals_
    pd.testing.assert_frame_equal(again, table)


def test_wrong_arguments_are_told():
    X = two_groups(60)
    model = GaussianMixture(2, **QUICK).fit(X)
    for given, says in (
        ({"method": "jackknife"}, "method must be"),
        ({"n_draws": 1}, "n_draws must be an integer of at least 2"),
        ({"level": 1.0}, "level must be"),
        ({"sample_weight": [1.0]}, "sample_weight"),
    ):
        with pytest.raises(ValueError, match=says):
            bootstrap(model, X, **given)
    with pytest.raises(ValueError, match="with 2 columns"):
        bootstrap(model, X[:, :1])
    y = np.arange(60) % 2
    classifier = MJFAClassifier(1, 1, temperature=None, tol=1e-3).fit(X, y)
    with pytest.raises(ValueError, match="needs y"):
        bootstrap(classifier, X)
    with pytest.raises(ValueError, match="y holds classes"):
        bootstrap(model, X, y)
    plain = PerClass(sklearn.mixture.GaussianMixture(), temperature=None).fit(X, y)
    posterior = BayesianGaussianMixture(2, max_iter=3, tol=0).fit(X)
    deep = DMFA(2, 1, 2, 1, max_iter=3, random_state=0).fit(np.hstack([X, X**2]))
    for other, rows, says in (
        (plain, X, "bootstrap needs a fitted mixture"),
        (posterior, X, "has a posterior of its parameters already"),
        (deep, np.hstack([X, X**2]), "layers of DMFA are not unique"),
        (NMF(1).fit(X**2), X**2, "bootstrap needs a fitted mixture"),
    ):
        with pytest.raises(TypeError, match=says):
            bootstrap(other, rows, y if other is plain else None)
    with pytest.raises(ValueError, match="draw at least 99"):
        likelihood_ratio_test(GaussianMixture(), X, n_draws=50, level=0.01)
    with pytest.raises(TypeError, match="estimator must be a mixture"):
        likelihood_ratio_test(PPCA(1), X)


def test_groups_are_found_by_likelihood_ratios():
    X = two_groups(150, apart=7.0)[:, :1]
    quick = GaussianMixture(tol=1e-3, n_init=1, max_iter=50)
    found = likelihood_ratio_test(quick, X, n_draws=19, n_jobs=1, random_state=0)
    assert found.n_components_ == found.best_.n_components == 2
    assert found.table_["p_value"].tolist()[0] == 0.05 and found.table_["p_value"].iloc[1] > 0.05
    assert "2 components at level 0.05" in repr(found)
    with pytest.warns(UserWarning, match="give a larger most_components"):
        likelihood_ratio_test(quick, X, n_draws=19, most_components=2, n_jobs=1, random_state=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*give a larger most_components")
def test_p_values_of_one_group_are_uniform():
    rng = np.random.default_rng(0)
    quick = GaussianMixture(tol=1e-4, n_init=2, max_iter=100)
    values = [
        likelihood_ratio_test(
            quick, rng.normal(size=(60, 1)), n_draws=19, most_components=2, level=0.051, random_state=rng
        ).table_["p_value"][0]
        for _ in range(60)
    ]
    assert kstest(np.array(values) - rng.random(60) / 20, "uniform").pvalue > 1e-3


def test_chances_and_rates_of_mixed_columns_have_errors_of_formulas():
    """Of groups far apart: sqrt(p (1 - p) / N_k) for chances of levels, sqrt(rate / N_k) for counts."""
    rng = np.random.default_rng(0)
    z = rng.random(800) < 0.4
    table = pd.DataFrame(
        {
            "size": rng.normal(20.0 * z, 1.0),
            "town": np.where(rng.random(800) < np.where(z, 0.3, 0.6), "Oslo", "Bonn"),
            "visits": rng.poisson(np.where(z, 9.0, 4.0)),
        }
    )
    model = MixedMixture(2, columns={"visits": "count"}, count_model="poisson", random_state=0).fit(table)
    result = bootstrap(model, table, n_draws=150, random_state=0)
    found = result.intervals_
    count = 800 * model.weights_
    chances = found[found["parameter"] == "probabilities"]
    assert chances["feature"].tolist() == 2 * ["town = Bonn", "town = Oslo"]
    p = chances["estimate"].to_numpy().reshape(2, 2)
    expected = np.sqrt(p * (1 - p) / count[:, None]).ravel()
    np.testing.assert_allclose(chances["standard_error"], expected, rtol=0.25)
    rates = found[found["parameter"] == "rates"]
    np.testing.assert_allclose(
        rates["standard_error"], np.sqrt(rates["estimate"].to_numpy() / count), rtol=0.25
    )
    drawn = bootstrap(model, table, n_draws=150, method="parametric", random_state=0).intervals_
    np.testing.assert_allclose(
        drawn[drawn["parameter"] == "probabilities"]["standard_error"], expected, rtol=0.25
    )
    assert "weight of component 0" in result.summary() and "95 % interval" in result.summary()
    page = report(model, table, uncertainty=result).html
    text = page[page.index('id="intervals"') :]
    assert "town = Oslo" in text and "150 weighted bootstrap fits" in text
    with pytest.raises(TypeError, match="uncertainty must be"):
        report(model, table, uncertainty=found)


def test_names_of_intervals_can_be_given():
    rows = np.random.default_rng(0).normal(size=(80, 2))
    rows[:, 1] = rows[:, 1] > 0
    model = MixedMixture(1, columns={1: "category"}).fit(rows)
    names = {"feature_names": ["size", "town"], "levels": {"town": ["Bonn", "Oslo"]}}
    found = bootstrap(model, rows, n_draws=3, random_state=0, **names).intervals_
    assert set(found["feature"].dropna()) == {"size", "town = Bonn", "town = Oslo"}
    with pytest.raises(ValueError, match="feature_names must have 2 names"):
        bootstrap(model, rows, n_draws=3, feature_names=["size"])


def test_groups_of_mixed_columns_are_counted():
    rng = np.random.default_rng(0)
    z = rng.random(150) < 0.5
    table = pd.DataFrame({"size": rng.normal(8.0 * z, 1.0), "town": np.where(z, "Oslo", "Bonn")})
    found = likelihood_ratio_test(
        MixedMixture(n_init=3, tol=1e-4), table, n_draws=19, level=0.05, random_state=0, most_components=3
    )
    assert found.n_components_ == 2


@pytest.mark.parametrize("method", ["weighted", "parametric"])
def test_errors_of_nested_groups_are_those_of_formulas(method):
    """Four groups far apart, two by two: shares within components, and means and variances of each."""
    rng = np.random.default_rng(0)
    group = rng.choice(4, size=600, p=[0.1, 0.3, 0.2, 0.4])
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [60.0, 0.0], [60.0, 8.0]])
    X = centres[group] + rng.normal(size=(600, 2))
    start = {"means_init": [centres[:2], centres[2:]], "covariance_type": "diag", "prior": None}
    model = NestedMixture(2, 2, **start).fit(X)
    result = bootstrap(model, X, n_draws=150, method=method, random_state=0)
    table = result.intervals_

    def errors(name, k, j=None):
        here = (table["parameter"] == name) & (table["component"] == k)
        return table[here if j is None else here & (table["subcomponent"] == j)]["standard_error"].to_numpy()

    n = 600 * model.weights_[:, None] * model.subweights_
    for k in (0, 1):
        share = model.weights_[k]
        np.testing.assert_allclose(errors("weights", k), np.sqrt(share * (1 - share) / 600), rtol=0.2)
        for j in (0, 1):
            own, variances = model.subweights_[k, j], model.covariances_[k, j]
            expected = np.sqrt(own * (1 - own) / (600 * share))
            np.testing.assert_allclose(errors("subweights", k, j), expected, rtol=0.2)
            np.testing.assert_allclose(errors("means", k, j), np.sqrt(variances / n[k, j]), rtol=0.25)
            expected = variances * np.sqrt(2 / n[k, j])
            np.testing.assert_allclose(errors("covariances", k, j), expected, rtol=0.35)
    assert "weight of component 1, subcomponent 0" in result.summary()


@pytest.mark.parametrize("method", ["weighted", "parametric"])
def test_errors_of_densities_of_classes_are_those_of_formulas(method):
    rng = np.random.default_rng(0)
    y = np.where(rng.random(500) < 0.3, "tall", "low")
    X = pd.DataFrame(
        rng.normal(size=(500, 2)) * [1.0, 3.0] + 2.0 * (y == "tall")[:, None], columns=["a", "b"]
    )
    density = GaussianMixture(covariance_type="diag", prior=None)
    model = PerClass(density, shrinkage=None, temperature=None).fit(X, y)
    result = bootstrap(model, X, y, n_draws=150, method=method, random_state=0)
    table = result.intervals_.set_index(["parameter", "class"])
    for label, one, share in zip(model.classes_, model.densities_, model.class_prior_, strict=True):
        prior = float(table.loc[("class_prior", label)]["standard_error"])
        assert prior == pytest.approx(np.sqrt(share * (1 - share) / 500), rel=0.2)
        means = table.loc[("means", label)]
        assert means["feature"].tolist() == ["a", "b"]
        expected = np.sqrt(one.covariances_[0] / (500 * share))
        np.testing.assert_allclose(means["standard_error"], expected, rtol=0.25)
    assert "weight of class tall" in result.summary()
    page = report(model, X, labels=y, uncertainty=result).html
    text = page[page.index('id="intervals"') :]
    assert ">class<" in text and "class prior" in text and ">tall<" in text


def test_classes_that_borrow_have_shorter_intervals():
    """Draws borrow as the fit did; a density of a class that borrows much scatters less."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), np.arange(60) % 2
    spread = []
    for amount in (None, 60.0):
        model = PerClass(GaussianMixture(), shrinkage=amount, temperature=None).fit(X, y)
        found = bootstrap(model, X, y, n_draws=60, random_state=0).intervals_
        spread.append(found.loc[found["parameter"] == "covariances", "standard_error"].mean())
    assert spread[1] < 0.8 * spread[0]


def test_whole_numbers_name_classes_as_they_are():
    """Loadings belong to no class: beside missing ones the numbers of classes became 0.0 and 1.0."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) + 4.0 * y[:, None]
    model = MJFAClassifier(1, 1, temperature=None, shrinkage=None, **QUICK).fit(X, y)
    result = bootstrap(model, X, y, n_draws=10, random_state=0)
    assert "weight of class 1: " in result.summary()


def test_components_of_classes_are_matched_within_their_class():
    rng = np.random.default_rng(0)
    y = np.arange(240) % 2
    X = rng.normal(size=(240, 5)) + 4.0 * (np.arange(240) % 6)[:, None] * [1, 0, 1, 0, -1]
    model = MJFAClassifier(3, 3, temperature=None, **QUICK).fit(X, y)
    turn = Rotation.random(random_state=0).as_matrix()
    orders = np.array([[2, 0, 1], [1, 0, 2]])
    own = np.arange(2)[:, None], orders
    other = MJFAClassifier.from_parameters(
        class_prior=model.class_prior_,
        weights=model.weights_[own],
        loadings=model.loadings_ @ turn,
        latent_means=model.latent_means_[own] @ turn,
        latent_covariances=turn.T @ model.latent_covariances_[own] @ turn,
        noise_variance=model.noise_variance_,
    )
    for name, array in matched(other, model, X).items():
        np.testing.assert_allclose(array, getattr(model, f"{name}_"), atol=1e-8, err_msg=name)
    model = MFMClassifier(2, 2, temperature=None, **QUICK).fit(X, (y + (X[:, 0] > 4)) % 3)
    turn, order = turn[:2, :2] / np.linalg.norm(turn[:2, :2], axis=0), [1, 0]
    turn = np.linalg.qr(turn)[0]
    other = MFMClassifier.from_parameters(
        weights=model.weights_[order],
        means=model.means_[order],
        loadings=model.loadings_[order] @ turn,
        noise_variance=model.noise_variance_[order],
        coef=model.coef_ @ turn,
        intercept=model.intercept_,
    )
    for name, array in matched(other, model, X).items():
        np.testing.assert_allclose(array, getattr(model, f"{name}_"), atol=1e-7, err_msg=name)


@pytest.mark.parametrize("method", ["weighted", "parametric"])
def test_classifiers_have_intervals_with_unlabelled_rows(method):
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + 3.0 * np.eye(4)[y]
    told = np.where(np.arange(90) % 5 == 0, -1, y)
    for model in (
        MJFAClassifier(1, 2, unlabelled_weight=1.0, temperature=None, shrinkage=None, **QUICK),
        MFMClassifier(1, 2, unlabelled_weight=1.0, temperature=None, **QUICK),
    ):
        table = bootstrap(model.fit(X, told), X, told, n_draws=3, method=method, random_state=0).intervals_
        assert set(table["class"].dropna()) == {0, 1, 2}
        assert np.isfinite(table[["estimate", "standard_error", "low", "high"]].to_numpy()).all()


def test_errors_of_huge_variances_are_finite():
    rows = 1e80 * np.random.default_rng(0).normal(size=(50, 2))
    model = GaussianMixture(1, random_state=0).fit(rows)
    errors = bootstrap(model, rows, n_draws=4, random_state=0).intervals_["standard_error"]
    assert np.isfinite(errors).all()
