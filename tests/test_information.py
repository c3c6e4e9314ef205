"""Standard errors by the information matrix: against differences, formulas and draws."""

import numpy as np
import pandas as pd
import pytest

from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture, MixedMixture
from latently.report import report
from latently.selection import bootstrap, standard_errors
from latently.selection.information import Vector, _conditions, _covariance, _kind_of
from latently.selection.refits import arrays_of, shapes_of
from latently.selection.row_scores import Passes

START = {"max_iter": 3, "tol": 0.0, "n_init": 1, "random_state": 0}
MODELS = [
    GaussianMixture(2, **START),
    GaussianMixture(3, covariance_type="tied", **START),
    GaussianMixture(3, covariance_type="diag", **START),
    GaussianMixture(2, covariance_type="spherical", **START),
    FactorAnalysis(2, **START),
    PPCA(1),
    MFA(2, 2, **START),
    MFA(2, 1, shared_noise=True, **START),
    MPPCA(2, 1, shared_noise=True, **START),
    MCFA(2, 2, **START),
    MCFA(2, 2, shared_covariance=True, **START),
]


def some_rows(n=60, holes=True):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3)) + 1.5 * (np.arange(n) % 2)[:, None]
    if holes:
        X[rng.random(X.shape) < 0.15] = np.nan
        X[np.isnan(X).all(axis=1)] = 0.0
    return X


def log_densities(model, X):
    """By the parameters as a vector: that of every row, of the model with these parameters."""

    def at(arrays):
        weights = arrays.get("weights", np.ones(1))
        total = weights.sum()  # the library's own weights sum to one
        given = {**arrays, **({"weights": weights / total} if "weights" in arrays else {})}
        options = {"covariance_type": model.covariance_type} if isinstance(model, GaussianMixture) else {}
        made = type(model).from_parameters(**given, **options)
        return made.score_samples(X) + np.log(total)

    return at


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model)[:40])
def test_scores_are_derivatives_of_log_densities(model):
    """Of every row and of all rows, with missing entries, by central differences of `score_samples`."""
    X, weight = some_rows(), np.random.default_rng(1).uniform(0.5, 2.0, 60)
    model.fit(X)
    arrays, shapes = arrays_of(model), shapes_of(model)
    free = {name: array.copy() for name, array in arrays.items()}
    vector, passes, density = (
        Vector(free, shapes),
        Passes(X, weight, _kind_of(model)),
        log_densities(model, X),
    )
    here = np.concatenate([np.ravel(array[vector.index[name]]) for name, array in arrays.items()])
    tied = len(_conditions(model._structure(), arrays, vector)) and isinstance(model, MPPCA | PPCA)
    found = [vector.derivatives(by_row) for _, by_row in passes.by_row(arrays)]
    rows = np.concatenate([rows for rows, _ in passes.groups])
    by_row = np.concatenate(found)[np.argsort(rows)]
    np.testing.assert_allclose(
        weight @ by_row, vector.derivatives(passes.total(arrays)), rtol=1e-9, atol=1e-9
    )
    directions = list(np.eye(vector.size))
    if tied or getattr(model, "shared_noise", False) or getattr(model, "shared_covariance", False):
        from scipy.linalg import null_space  # only along these is there such a model

        directions = null_space(_conditions(model._structure(), arrays, vector)).T
    for direction in directions:
        step = 1e-5
        after, before = (density(vector.arrays(here + sign * step * direction)) for sign in (1, -1))
        np.testing.assert_allclose(by_row @ direction, (after - before) / (2 * step), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:the likelihood is largest")  # fits of three steps
@pytest.mark.parametrize("model", MODELS[4:], ids=lambda model: repr(model)[:40])
def test_turns_of_factors_have_no_part(model):
    """Conditions leave out all changes of parameters that do not change the density, and no others."""
    X = planted(500, apart=2.0)
    model.fit(X)
    arrays = arrays_of(model)
    vector = Vector(arrays, shapes_of(model))
    conditions = _conditions(model._structure(), arrays, vector)
    n_free = vector.size - np.linalg.matrix_rank(conditions)
    assert n_free == model.n_parameters()
    found = _covariance(Passes(X, np.ones(len(X)), _kind_of(model)), vector, conditions, "scores")
    unit = 1.0 / np.sqrt(np.diag(found))
    assert np.linalg.matrix_rank(found * unit[:, None] * unit, hermitian=True, tol=1e-9) == n_free


def test_errors_are_those_of_formulas():
    """Of one Gaussian: sd / sqrt(n) of means, (S_ii S_jj + S_ij^2) / n of covariances, 1 / n of weights."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    model = GaussianMixture(1, prior=None, noise_floor=0).fit(X)
    S = model.covariances_[0]
    for method in ("hessian", "sandwich", "scores"):
        table = standard_errors(model, X, method=method).intervals_.set_index("parameter")["standard_error"]
        rtol = 1e-5 if method == "hessian" else 1e-5 if method == "sandwich" else 0.15
        np.testing.assert_allclose(table["means"], np.sqrt(np.diag(S) / 500), rtol=rtol)
        i, j = np.tril_indices(3)
        expected = np.sqrt((S[i, i] * S[j, j] + S[i, j] ** 2) / 500)
        np.testing.assert_allclose(
            table["covariances"], expected, rtol=max(rtol, 0.2 * (method != "hessian"))
        )
        assert table["weights"] < 1e-9


def test_the_sandwich_holds_for_rows_that_are_not_normal():
    """Of a variance: the deviation of squares over the root of n, which depends on the kurtosis."""
    X = np.random.default_rng(0).exponential(size=(400, 2))
    model = GaussianMixture(1, covariance_type="diag", prior=None, noise_floor=0).fit(X)
    table = standard_errors(model, X).intervals_.set_index("parameter")["standard_error"]
    squares = (X - X.mean(axis=0)) ** 2
    np.testing.assert_allclose(table["means"], X.std(axis=0) / 20, rtol=1e-5)
    np.testing.assert_allclose(table["covariances"], squares.std(axis=0) / 20, rtol=1e-5)


def planted(n=600, seed=0, apart=4.0):
    """Two groups in a space of two factors."""
    rng = np.random.default_rng(seed)
    group = rng.random(n) < 0.35
    loadings = np.array([[1.0, 0.9, 0.8, 0.6, 0.0, 0.2], [0.0, 0.3, 0.5, 0.7, 1.0, 0.9]]).T
    z = rng.normal(size=(n, 2)) * [1.2, 1.0] + apart * group[:, None] * [1.0, -0.6]
    return z @ loadings.T + 0.6 * rng.normal(size=(n, 6)) + 3.0


@pytest.mark.parametrize(
    "model",
    [
        GaussianMixture(2, covariance_type="diag", random_state=0),
        MFA(2, 1, random_state=0),
        MCFA(2, 2, random_state=0),
        FactorAnalysis(2),
    ],
    ids=lambda model: repr(model)[:30],
)
def test_errors_agree_with_those_of_draws(model):
    """The sandwich with the weighted bootstrap, whether or not the model is right."""
    X = planted(apart=0.0 if isinstance(model, FactorAnalysis) else 8.0)
    X[::7, 2] = np.nan
    model = model.set_params(prior=None, tol=1e-12, max_iter=20_000).fit(X)
    ours = standard_errors(model, X).intervals_
    drawn = bootstrap(model.set_params(tol=1e-6), X, n_draws=80, n_jobs=1, random_state=0).intervals_
    pd.testing.assert_frame_equal(ours.iloc[:, :-3], drawn.iloc[:, :-3])
    for name, own in ours.groupby("parameter"):
        ratio = own["standard_error"] / drawn.loc[own.index, "standard_error"]
        assert 0.8 < np.median(ratio) < 1.25, (name, ratio)


@pytest.mark.slow
def test_intervals_cover_the_truth():
    """In 200 tables of two groups: means lie in about 90 % of the intervals for 90 %."""
    rng, inside = np.random.default_rng(1), []
    for _ in range(200):
        z = rng.random(300) < 0.4
        X = rng.normal(size=(300, 2)) + 3.5 * z[:, None]
        start = {"means_init": [[0, 0], [3.5, 3.5]], "prior": None, "tol": 1e-8}
        found = standard_errors(GaussianMixture(2, **start).fit(X), X, level=0.9).intervals_
        means = found[found["parameter"] == "means"]
        truth = np.repeat([0.0, 3.5], 2)
        inside.append((means["low"] <= truth) & (truth <= means["high"]))
    assert 0.86 <= np.mean(inside) <= 0.94


def test_weights_are_copies():
    X = planted(200)
    model = GaussianMixture(2, covariance_type="diag", prior=None, tol=1e-9, random_state=0)
    weight = np.random.default_rng(0).integers(1, 4, 200)
    model.fit(np.repeat(X, weight, axis=0))
    for method in ("scores", "sandwich"):
        once = standard_errors(model, X, sample_weight=weight, method=method)
        copies = standard_errors(model, np.repeat(X, weight, axis=0), method=method)
        np.testing.assert_allclose(once.covariance_, copies.covariance_, rtol=1e-6, atol=1e-12)


def test_the_table_and_its_covariance():
    X = pd.DataFrame(planted(300), columns=list("abcdef"))
    model = MFA(2, 1, prior=None, tol=1e-9, random_state=0).fit(X)
    found = standard_errors(model, X, level=0.9)
    table = found.intervals_
    np.testing.assert_allclose(np.sqrt(np.diag(found.covariance_)), table["standard_error"])
    assert set(table["feature"].dropna()) == set("abcdef")
    width = (table["high"] - table["low"]) / table["standard_error"]
    np.testing.assert_allclose(width, 2 * 1.6448536, rtol=1e-6)
    assert "90 % are normal" in repr(found) and "weight of component 0" in found.summary()
    page = report(model, X, uncertainty=found).html
    assert "the sandwich estimator" in page[page.index('id="intervals"') :]
    weights = np.flatnonzero(table["parameter"] == "weights")
    np.testing.assert_allclose(found.covariance_[weights].sum(axis=0), 0, atol=1e-12)  # they sum to one


def test_what_rows_do_not_determine_is_told():
    X = planted(12)
    with pytest.warns(UserWarning, match="do not determine"):
        found = standard_errors(GaussianMixture(2, random_state=0, n_init=1).fit(X), X, method="scores")
    assert found.intervals_["standard_error"].isna().any()
    rough = GaussianMixture(2, max_iter=1, tol=0.0, n_init=1, init="random", random_state=0).fit(planted())
    with pytest.warns(UserWarning, match="standard errors away from these parameters"):
        standard_errors(rough, planted(), method="scores")


@pytest.mark.parametrize("method", ["sandwich", "hessian"])
@pytest.mark.filterwarnings("ignore:the rows do not determine", "ignore:the likelihood is largest")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*constant")
def test_variances_that_vanish_are_told(method):
    """They stopped with a LinAlgError, or had errors of 1e-150."""
    rows = np.random.default_rng(0).normal(size=(23, 2))
    model = GaussianMixture(2, random_state=0).fit(rows * [1.0, 0.0])
    errors = standard_errors(model, rows * [1.0, 0.0], method=method).intervals_["standard_error"]
    assert not ((errors > 0) & (errors < 1e-100)).any()
    model = GaussianMixture(2, covariance_type="spherical", max_iter=2, random_state=0).fit(rows)
    model.covariances_[:] = 1e-300
    with pytest.raises(ValueError, match="bootstrap"):
        standard_errors(model, rows, method=method)


def test_models_without_scores_are_told():
    X = planted(60)
    for model in (
        GaussianMixture(2, covariance_type="VVE", **START),
        GaussianMixture(2, tails="t", **START),
        MFA(2, 1, noise_component=True, **START),
        MFA(2, 1, shared_loadings=True, **START),
        MixedMixture(2, **START),
    ):
        with pytest.raises(TypeError, match="use bootstrap"):
            standard_errors(model.fit(X), X)
    model = GaussianMixture(2, **START).fit(X)
    with pytest.raises(ValueError, match="method must be"):
        standard_errors(model, X, method="delta")
    with pytest.raises(ValueError, match="with 6 columns"):
        standard_errors(model, X[:, :2])
