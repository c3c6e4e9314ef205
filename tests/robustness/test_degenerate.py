"""Data on which a naive mixture divides by zero, overflows or falls in likelihood.

Every fit must end in a sane model (`assert_sane`), whatever the rows look like.
"""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture

MODELS = {
    "full": lambda K, q, **kw: GaussianMixture(K, covariance_type="full", **kw),
    "tied": lambda K, q, **kw: GaussianMixture(K, covariance_type="tied", **kw),
    "diag": lambda K, q, **kw: GaussianMixture(K, covariance_type="diag", **kw),
    "spherical": lambda K, q, **kw: GaussianMixture(K, covariance_type="spherical", **kw),
    "fa": lambda K, q, **kw: FactorAnalysis(q, **kw),
    "ppca": lambda K, q, **kw: PPCA(q, **kw),
    "mfa": lambda K, q, **kw: MFA(K, q, **kw),
    "mfa-shared": lambda K, q, **kw: MFA(K, q, shared_noise=True, **kw),
    "mppca": lambda K, q, **kw: MPPCA(K, q, **kw),
    "mppca-shared": lambda K, q, **kw: MPPCA(K, q, shared_noise=True, **kw),
    "mcfa": lambda K, q, **kw: MCFA(K, max(1, q), **kw),
}
PARAMETERS = ("weights_", "means_", "mean_", "covariances_", "loadings_", "noise_variance_")
PARAMETERS += ("latent_means_", "latent_covariances_")
QUICK = dict(random_state=0, n_init=2, max_iter=60)  # enough steps to reach the trouble


def make(name, K, q, D, **kw):
    return MODELS[name](K, min(q, D), **{**QUICK, **kw})


def fitted(model, X, sample_weight=None, *, constant=False):
    """The model fitted; only a warning of too few iterations, or of constant features, may be raised."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if constant:
            warnings.filterwarnings("ignore", message="X has constant features")
        return model.fit(X, sample_weight=sample_weight)


def falls(model):
    """The deepest fall of the history beyond 1e-9 of its size; negative where there is none."""
    before, after = model.history_[:-1], model.history_[1:]
    return np.max(before - after - 1e-9 * (1 + np.abs(before)), initial=-1.0)


def assert_sane(model, X, tmp_path, sample_weight=None):
    X = np.asarray(X, dtype=np.float64)
    for name in PARAMETERS:
        if hasattr(model, name):
            assert np.all(np.isfinite(getattr(model, name))), f"{name} is not finite"
    if hasattr(model, "weights_"):
        assert np.all(model.weights_ >= 0)
        assert abs(model.weights_.sum() - 1) < 1e-9
    if hasattr(model, "noise_variance_"):
        assert np.all(model.noise_variance_ > 0)
    else:
        cov = model.covariances_
        if model.covariance_type in ("diag", "spherical"):
            assert np.all(cov > 0)
        else:
            assert np.all(np.diagonal(cov, axis1=-2, axis2=-1) > 0)
    assert np.all(np.isfinite(model.history_))
    assert len(model.history_) == model.n_iter_ + 1 or isinstance(model, PPCA)
    assert falls(model) <= 0, f"history_ falls by {falls(model)} beyond rounding"

    scores = model.score_samples(X)
    assert np.all(np.isfinite(scores))
    score = model.score(X, sample_weight=sample_weight)
    beyond = score - model.history_[-1] if model.prior is None else min(0.0, score - model.history_[-1])
    assert abs(beyond) < 1e-4 * (1 + abs(score)), "history_ ends at another score, or one below its own"
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)
    for criterion in (model.bic, model.aic, model.icl):
        assert np.isfinite(criterion(X))
    if hasattr(model, "transform"):
        assert np.all(np.isfinite(model.transform(X)))
        if model.n_factors:  # without factors: test_without_factors
            assert np.all(np.isfinite(model.reconstruct(X)))
    drawn, components = model.sample(20, random_state=0)
    assert drawn.shape == (20, X.shape[1]) and components.shape == (20,)
    assert np.all(np.isfinite(drawn))

    model.save(tmp_path / "model")
    again = latently.load(tmp_path / "model")
    np.testing.assert_array_equal(again.score_samples(X), scores)


def _isotropic(name):
    return name in ("spherical", "ppca", "mppca", "mppca-shared")


# -- the data ---------------------------------------------------------------------------------------


def blobs(N=40, D=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((N, D)) + 4.0 * rng.integers(3, size=(N, 1))


def with_column(X, j, values):
    X = X.copy()
    X[:, j] = values
    return X


def with_row(X, i, values):
    X = X.copy()
    X[i] = values
    return X


rng = np.random.default_rng(7)
DATA = {  # name -> (X, K, q)
    "plain": (blobs(), 3, 2),
    "duplicates": (np.repeat(blobs(4), 10, axis=0), 6, 2),
    "two distinct rows": (np.repeat([[0.0, 1.0, 2.0], [5.0, 4.0, 1.0]], 10, axis=0), 5, 2),
    "one-point cluster": (with_row(blobs(), 0, 1e3), 3, 2),
    "three one-point clusters": (np.vstack([blobs(30), np.diag([1e4, -1e4, 1e4, 1e5])[:3]]), 4, 2),
    "tight and wide": (np.vstack([1e-6 * blobs(20), 1e3 * blobs(20, seed=1)]), 3, 2),
    "outlier 1e8": (with_row(blobs(), 0, 1e8), 3, 2),
    "outlier 1e8 in one feature": (with_row(blobs(), 0, [1e8, 0, 0, 0]), 3, 2),
    "offset 1e8": (blobs() + 1e8, 3, 2),
    "offset 1e8, small spread": (1e-3 * blobs() + 1e8, 3, 2),
    "offset 1e12": (blobs() + 1e12, 3, 2),
    "scale 1e-150": (1e-150 * blobs(), 3, 2),
    "scale 1e150": (1e150 * blobs(), 3, 2),
    "mixed scales": (blobs() * [1e-100, 1e100, 1.0, 1e-5], 3, 2),
    "mixed scales, extreme": (blobs() * [1e-150, 1e150, 1.0, 1e-5], 3, 2),
    "mixed offsets": (blobs() + [1e10, -1e6, 0.0, 1e-3], 3, 2),
    "N < D": (blobs(10, 200), 2, 3),
    "N = D": (blobs(12, 12), 2, 3),
    "N = K": (blobs(5), 5, 2),
    "N = 2": (blobs(2), 2, 2),
    "N = 2, K = 1": (blobs(2), 1, 1),
    "N = 3, D = 20": (blobs(3, 20), 2, 5),
    "D = 1": (blobs(D=1), 3, 1),
    "D = 1, N = 2": (np.array([[0.0], [1.0]]), 2, 1),
    "K large": (blobs(60), 30, 1),
    "q = D": (blobs(), 2, 4),
    "ties": (rng.integers(0, 3, (50, 4)).astype(float), 4, 2),
    "binary": (rng.integers(0, 2, (50, 6)).astype(float), 5, 3),
    "sparse counts": (rng.poisson(0.1, (80, 8)) + np.eye(80, 8), 4, 3),
    "two identical features": (np.column_stack([blobs(), blobs()[:, 0]]), 3, 2),
    "a feature and its multiple": (np.column_stack([blobs(), 1e6 * blobs()[:, 0]]), 3, 2),
    "rank 1": (blobs(D=1) @ rng.standard_normal((1, 5)), 3, 2),
    "rank 1, offset": (blobs(D=1) @ rng.standard_normal((1, 5)) + 1e4, 3, 2),
    "rank 2, q = 2": (rng.standard_normal((40, 2)) @ rng.standard_normal((2, 6)), 2, 2),
    "grid": (np.array([[i, j] for i in range(6) for j in range(6)], dtype=float), 4, 1),
    "on a line, equally spaced": (np.arange(40.0)[:, None] * [1.0, 2.0, 3.0], 4, 2),
    "heavy tails": (np.random.default_rng(3).standard_cauchy((60, 4)) ** 3, 3, 2),
    "geometric": (10.0 ** np.arange(-20.0, 20.0)[:, None] * [1.0, -1.0, 2.0], 3, 2),
    "nearly constant feature": (with_column(blobs(), 1, 1.0 + 1e-15 * np.arange(40)), 3, 2),
    "one row differs": (with_row(np.ones((30, 4)), 3, 2.0), 3, 2),
    "smallest numbers": (np.full((20, 3), 5e-150) * rng.integers(0, 2, (20, 3)), 3, 2),
}
CONSTANT = {
    "one": (with_column(blobs(), 2, 3.5), 3, 2),
    "zero": (with_column(blobs(), 0, 0.0), 3, 2),
    "huge": (with_column(blobs(), 1, 1e150), 3, 2),
    "tiny": (with_column(blobs(), 1, 1e-300), 3, 2),
    "all but one": (with_column(np.full((40, 4), 7.0), 1, blobs()[:, 0]), 3, 2),
    "all": (np.full((20, 3), 7.0), 3, 2),
    "all zero": (np.zeros((20, 3)), 3, 2),
    "all, offset 1e8": (np.full((20, 3), 1e8 + 0.1), 2, 1),
    "with scale 1e-150": (with_column(1e-150 * blobs(), 2, 1.0), 3, 2),
    "with scale 1e150": (with_column(1e150 * blobs(), 2, 1.0), 3, 2),
    "large against the others": (with_column(1e-8 * blobs(), 1, 1e5), 3, 2),
    "D = 1": (np.full((10, 1), 2.0), 2, 1),
    "and N < D": (with_column(blobs(8, 30), 2, 1.0), 2, 2),
}


# a feature is more than 1e12 deviations from the origin, of its own or of all others: too far for a mean A xi
TOO_FAR = {"nearly constant feature", "huge", "with scale 1e-150", "large against the others"}


def sane_or_too_far(name, data, X, K, q, tmp_path, constant=False):
    try:
        model = fitted(make(name, K, q, X.shape[1]), X, constant=constant)
    except ValueError as error:
        assert name == "mcfa" and data in TOO_FAR and "origin" in str(error)
    else:
        assert_sane(model, X, tmp_path)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", MODELS)
def test_fit_is_sane(name, data, tmp_path):
    sane_or_too_far(name, data, *DATA[data], tmp_path)


@pytest.mark.parametrize("data", CONSTANT)
@pytest.mark.parametrize("name", MODELS)
def test_constant_features(name, data, tmp_path):
    sane_or_too_far(name, data, *CONSTANT[data], tmp_path, constant=True)


@pytest.mark.parametrize("name", [name for name in MODELS if not _isotropic(name)])
def test_constant_features_warn_and_need_a_floor(name):
    X, K, q = CONSTANT["one"]
    with pytest.warns(UserWarning, match=r"constant features \(2\)"):
        fitted(make(name, K, q, 4), X)
    with pytest.raises(ValueError, match="noise_floor"):
        fitted(make(name, K, q, 4, noise_floor=0, prior=None), X)


@pytest.mark.parametrize("name", MODELS)
def test_rows_all_equal_without_a_floor(name):
    with pytest.raises(ValueError, match="noise_floor"):
        fitted(make(name, 2, 1, 3, noise_floor=0, prior=None), np.full((20, 3), 7.0), constant=True)


@pytest.mark.parametrize("data", ["plain", "duplicates", "rank 1", "N < D", "one-point cluster", "ties"])
@pytest.mark.parametrize("name", MODELS)
def test_without_a_floor_a_sane_fit_or_a_clear_error(name, data, tmp_path):
    X, K, q = DATA[data]
    try:
        model = fitted(make(name, K, q, X.shape[1], noise_floor=0, prior=None, tol=1e-12), X)
    except ValueError as error:
        assert "noise_floor" in str(error)
    else:
        assert_sane(model, X, tmp_path)


@pytest.mark.parametrize("name", ["full", "fa", "mppca-shared", "mcfa"])
def test_history_never_falls_without_a_floor(name):
    """Noise that shrinks towards zero: the likelihood may not fall before the clear error comes."""
    for seed in range(12):
        X = blobs(12, 4, seed) @ np.diag([1.0, 1.0, 1e-3, 1e-6])
        try:
            model = fitted(make(name, 4, 2, 4, noise_floor=0, prior=None, tol=1e-12, max_iter=200), X)
        except ValueError as error:
            assert "noise_floor" in str(error)
        else:
            assert falls(model) <= 0, f"history_ falls by {falls(model)} beyond rounding"


WEIGHTS = {
    "all 1e-12": np.full(40, 1e-12),
    "all 1e12": np.full(40, 1e12),
    "all 1e-300": np.full(40, 1e-300),
    "all 1e300": np.full(40, 1e300),
    "1e-12 and one": np.where(np.arange(40) % 2, 1e-12, 1.0),
    "1e-12 and 1e12": np.where(np.arange(40) % 2, 1e-12, 1e12),
    "one row has nearly all": np.where(np.arange(40) == 3, 1e12, 1.0),
    "five rows have any": np.where(np.arange(40) < 5, 0.3, 0.0),
    "the smallest number": np.where(np.arange(40) < 5, 1.0, 5e-324),
}


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_extreme_weights(name, weights, tmp_path):
    X, w = blobs(), WEIGHTS[weights]
    assert_sane(fitted(make(name, 3, 2, 4), X, w), X, tmp_path, w)


@pytest.mark.parametrize("factor", [1e-12, 1e12])
@pytest.mark.parametrize("name", MODELS)
def test_units_of_the_weights_do_not_matter(name, factor):
    """The maximum of the likelihood is the same, so the fit from our own start should be."""
    X, w = blobs(), np.random.default_rng(2).uniform(0.5, 2.0, 40)
    one, other = (fitted(make(name, 3, 2, 4, prior=None), X, weights) for weights in (w, factor * w))
    assert other.score(X, sample_weight=w) == pytest.approx(one.score(X, sample_weight=w), abs=0.05)


@pytest.mark.parametrize("name", MODELS)
def test_rows_far_from_a_fitted_model(name):
    """Squares that overflow: the density is zero or tiny, never NaN, and nothing warns."""
    model = fitted(make(name, 3, 2, 4), blobs())
    for far in (1e10, 1e100, 1e160, 1e300):
        rows = np.array([[far, 0.0, 0.0, 0.0], [far, -far, far, far], [0.0, 0.0, 0.0, 0.0]])
        scores = model.score_samples(rows)
        assert not np.any(np.isnan(scores)) and np.isfinite(scores[2])
        assert np.all(scores[:2] < scores[2])
        proba = model.predict_proba(rows)
        np.testing.assert_allclose(proba.sum(axis=1), 1.0, atol=1e-9)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name not in ("full", "tied", "diag", "spherical")]
)
def test_factors_of_rows_far_from_a_fitted_model(name):
    model = fitted(make(name, 3, 2, 4), blobs())
    for far in (1e10, 1e100, 1e160):
        rows = np.array([[far, 0.0, 0.0, 0.0], [far, -far, far, far]])
        assert np.all(np.isfinite(model.transform(rows)))
        if model.n_factors:
            assert np.all(np.isfinite(model.reconstruct(rows)))


@pytest.mark.parametrize("name", ["fa", "ppca", "mfa", "mfa-shared", "mppca"])
def test_without_factors(name, tmp_path):
    """q = 0: the rows without their noise are the means of their components."""
    X = blobs()
    model = fitted(make(name, 3, 0, 4), X)
    assert_sane(model, X, tmp_path)
    means = model.means_ if hasattr(model, "means_") else model.mean_[None]
    np.testing.assert_allclose(model.reconstruct(X), model.predict_proba(X) @ means)
    assert model.transform(X).shape == (40, 0)
    assert model.inverse_transform(np.zeros((2, 0))).shape == (2, 4)


SINGLE = ["plain", "offset 1e8", "D = 1", "scale 1e-150", "scale 1e150", "mixed scales"]
# q = D leaves isotropic noise nothing to explain, so it falls to the floor
SINGLE_AT_THE_FLOOR = [
    "q = D",
    "duplicates",
    "N < D",
    "N = K",
    "K large",
    "binary",
    "sparse counts",
    "rank 1",
]


def assert_finite_and_repeatable(model, X):
    for attribute in PARAMETERS:
        assert np.all(np.isfinite(getattr(model, attribute, 0.0)))
    assert np.all(np.isfinite(model.score_samples(X)))


@pytest.mark.parametrize("data", SINGLE)
@pytest.mark.parametrize("name", MODELS)
def test_float32(name, data):
    X, K, q = DATA[data]
    model = fitted(make(name, K, q, X.shape[1], dtype="float32", prior=None), X)
    assert_finite_and_repeatable(model, X)
    last = model.history_[-1]
    assert np.min(np.diff(model.history_), initial=0.0) > -1e-3 * (1 + abs(last))
    assert abs(model.score(X) - last) < 1e-3 * (1 + abs(last))
    # the parameters found are worth their score in double precision too
    assert abs(model.set_params(dtype="float64").score(X) - last) < 1e-3 * (1 + abs(last))


@pytest.mark.parametrize("data", SINGLE_AT_THE_FLOOR)
@pytest.mark.parametrize("name", MODELS)
def test_float32_with_variances_at_the_floor(name, data):
    """Few digits are left there, but the score is the model's within 2 %, and no fall is larger."""
    X, K, q = DATA[data]
    model = fitted(make(name, K, q, X.shape[1], dtype="float32", prior=None), X)
    assert_finite_and_repeatable(model, X)
    last = model.history_[-1]
    assert np.min(np.diff(model.history_), initial=0.0) > -0.02 * (1 + abs(last))
    assert abs(model.set_params(dtype="float64").score(X) - last) < 0.02 * (1 + abs(last))


# -- random mixtures of all of the above ------------------------------------------------------------

TWISTS = ["round", "repeat", "scale", "offset", "outlier", "copy", "rank"]
EXPONENTS = st.integers(-60, 60)


@st.composite
def nasty(draw):
    """A small matrix put together from ordinary, repeated, constant, huge, tiny and dependent parts."""
    N, D = draw(st.integers(2, 12)), draw(st.integers(1, 5))
    X = np.random.default_rng(draw(st.integers(0, 999))).standard_normal((N, D))
    for twist in draw(
        st.lists(
            st.sampled_from(["round", "repeat", "scale", "offset", "outlier", "copy", "rank"]), max_size=4
        )
    ):
        j, i = draw(st.integers(0, D - 1)), draw(st.integers(0, N - 1))
        if twist == "round":
            X = np.round(X)
        elif twist == "repeat":
            X = X[np.arange(N) % (1 + i)]
        elif twist == "scale":
            X[:, j] *= 10.0 ** draw(EXPONENTS)
        elif twist == "offset":
            X[:, j] += 10.0 ** draw(st.integers(-3, 8)) * np.ptp(X[:, j])
        elif twist == "outlier":
            X[i] *= 10.0 ** draw(st.integers(0, 8))
        elif twist == "copy":
            X[:, j] = X[:, 0]
        else:
            X = X[:, :1] * np.arange(1.0, D + 1)
    return X


@pytest.mark.parametrize("name", MODELS)
@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(X=nasty(), K=st.integers(1, 5), q=st.integers(0, 5))
def test_nasty_matrices(name, X, K, q, tmp_path):
    model = make(name, min(K, len(X)), q, X.shape[1], max_iter=30)
    assert_sane(fitted(model, X, constant=True), X, tmp_path)
