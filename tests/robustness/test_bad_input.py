"""What a user may get wrong: every mistake is an error that names the argument, or is harmless."""

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from latently.mixture import MCFA, MFA, MPPCA, PPCA, FactorAnalysis, GaussianMixture

K, Q, D, N = 2, 2, 4, 40
MODELS = {
    "full": lambda **kw: GaussianMixture(K, covariance_type="full", **kw),
    "tied": lambda **kw: GaussianMixture(K, covariance_type="tied", **kw),
    "diag": lambda **kw: GaussianMixture(K, covariance_type="diag", **kw),
    "spherical": lambda **kw: GaussianMixture(K, covariance_type="spherical", **kw),
    "fa": lambda **kw: FactorAnalysis(Q, **kw),
    "ppca": lambda **kw: PPCA(Q, **kw),
    "mfa": lambda **kw: MFA(K, Q, **kw),
    "mfa-shared": lambda **kw: MFA(K, Q, shared_noise=True, **kw),
    "mppca": lambda **kw: MPPCA(K, Q, **kw),
    "mcfa": lambda **kw: MCFA(K, Q, **kw),
}
MIXTURES = [name for name in MODELS if name not in ("fa", "ppca")]
MIXTURES_OF_MEANS = [name for name in MIXTURES if name != "mcfa"]


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


@pytest.fixture
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)) + 5.0 * rng.integers(2, size=(N, 1))


def make(name, **kw):
    return MODELS[name](**{"random_state": 0, "tol": 1e-3, "n_init": 3, **kw})


def with_entry(X, value):
    X = X.copy()
    X[3, 1] = value
    return X


# -- rows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [1e200, -1e300, np.finfo(float).max])
def test_values_whose_squares_overflow(name, X, value):
    with pytest.raises(ValueError, match=r"X holds values.*overflow.*rescale"):
        make(name).fit(with_entry(X, value))
    with pytest.raises(ValueError, match=r"X holds values.*overflow.*rescale"):
        make(name).fit(X / np.abs(X).max() * value)


def test_values_that_vanish(name, X):
    with pytest.raises(ValueError, match=r"varies so little.*rescale"):
        make(name).fit(X * 1e-200)


def test_long_doubles_beyond_float64(name, X):
    with pytest.raises(ValueError, match="X"):
        make(name).fit(with_entry(X.astype(np.longdouble), np.longdouble("1e400")))


def test_columns_of_text_are_named(X):
    table = pd.DataFrame(X).assign(colour=["red", "blue"] * (N // 2))
    with pytest.raises(ValueError, match=r"text in 'colour'.*MixedMixture or TableModel"):
        GaussianMixture(2).fit(table.rename(columns=str))
    with pytest.raises(ValueError, match="convert string to float: 'red'; leave columns"):
        GaussianMixture(2).fit(table.to_numpy())


@pytest.mark.parametrize("cells", ["categories", "periods", "polars"])
def test_words_in_columns_that_are_no_objects(cells, X):
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    if cells == "categories":
        table["c0"] = pd.Categorical(["a", *["b"] * (len(X) - 1)])
    elif cells == "periods":
        table["c0"] = pd.period_range("2020-01", periods=len(X), freq="M")
    else:
        table = pl.from_pandas(table).with_columns(c0=pl.lit("a"))
    with pytest.raises((ValueError, TypeError), match="X: .*take them" if cells != "periods" else "X: "):
        make("mfa").fit(table)


def test_too_few_rows(X):
    with pytest.raises(ValueError, match=r"n_components=41.*n_samples=40"):
        GaussianMixture(41).fit(X)
    with pytest.raises(ValueError, match=r"n_components=41.*n_samples=40"):
        MFA(41, 1).fit(X)
    with pytest.raises(ValueError, match=r"n_components=3.*n_samples=2"):  # rows of weight zero do not count
        MFA(3, 1).fit(X, sample_weight=np.arange(N) < 2)


@pytest.mark.parametrize("model", [FactorAnalysis(5), PPCA(5), MFA(2, 5), MPPCA(2, 5), MCFA(2, 5)])
def test_too_many_factors(model, X):
    with pytest.raises(ValueError, match=r"n_factors=5.*n_features=4"):
        model.fit(X)


def test_one_row_left_by_the_weights(name, X):
    """As one row alone: an error, not a model of nothing."""
    with pytest.raises(ValueError, match=r"n_samples|sample_weight|minimum of 2|constant|noise_floor"):
        MODELS[name](random_state=0).set_params(noise_floor=0, prior=None).fit(
            X, sample_weight=np.arange(N) == 4
        )


# -- weights of rows --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "weights",
    [-np.ones(N), np.zeros(N), np.full(N, np.nan), np.ones(N - 1), np.ones((N, 1))],
    ids="negative zero nan short column".split(),
)
@pytest.mark.parametrize("name", ["full", "fa", "mfa"])
def test_weights_of_score(name, X, weights):
    with pytest.raises(ValueError, match="sample_weight"):
        make(name).fit(X).score(X, sample_weight=weights)


def test_weights_of_other_dtypes(name, X):
    expected = make(name).fit(X).score(X)
    for weights in (
        [1] * N,
        np.ones(N, bool),
        np.ones(N, np.float32),
        pd.Series(np.ones(N), index=range(N, 0, -1)),
    ):
        assert make(name).fit(X, sample_weight=weights).score(X) == expected


# -- hyper-parameters -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, parameter",
    [
        (GaussianMixture(2, covariance_type="fulll"), "covariance_type"),
        (GaussianMixture(2, covariance_type=None), "covariance_type"),
        (GaussianMixture(2, covariance_type=["full"]), "covariance_type"),
        (MFA(2, 1, noise="diag"), "noise"),
        (MFA(2, 1, noise=None), "noise"),
        (MFA(2, 1, shared_noise="no"), "shared_noise"),
        (MFA(2, 1, shared_noise=None), "shared_noise"),
        (MPPCA(2, 1, shared_noise=2), "shared_noise"),
    ],
)
def test_choices_name_what_is_allowed(model, parameter, X):
    value = re.escape(repr(getattr(model, parameter)))
    with pytest.raises(
        ValueError, match=rf"{parameter} must be (one of .*|True, .*|True or False, )not {value}"
    ):
        model.fit(X)


def test_numpy_scalars_are_fine(X):
    """As they come out of a grid."""
    expected = MFA(2, 1, shared_noise=True, random_state=3, max_iter=50, tol=1e-3, n_init=4)
    expected = expected.fit(X).score(X)
    model = MFA(
        np.int64(2),
        np.int32(1),
        noise=np.str_("diagonal"),
        shared_noise=np.True_,
        random_state=np.int64(3),
        max_iter=np.int16(50),
        tol=np.float64(1e-3),
        noise_floor=np.float64(1e-6),
        n_init=np.uint8(4),
        block_size=np.int64(1000),
        init=np.str_("kmeans"),
        dtype=np.str_("float64"),
    )
    assert model.fit(X).score(X) == expected


@pytest.mark.parametrize("floor", [1.0, 1e3, 1e300])
def test_a_large_floor_is_finite_or_an_error(name, X, floor):
    try:
        model = make(name, noise_floor=floor).fit(X)
    except ValueError as error:
        assert "noise_floor" in str(error)
    else:
        assert np.isfinite(model.score(X))


# -- starting values --------------------------------------------------------------------------------

GOOD = {
    "weights_init": np.array([0.5, 0.5]),
    "means_init": np.arange(2.0 * D).reshape(2, D),
    "loadings_init": np.ones((2, D, Q)),
    "noise_init": np.ones((2, D)),
}
BAD_STARTS = [
    ("weights_init", [0.5, 0.6]),
    ("weights_init", [1.5, -0.5]),
    ("weights_init", [0.2, 0.3, 0.5]),
    ("weights_init", [np.nan, 1.0]),
    ("weights_init", "half"),
    ("weights_init", [[0.5, 0.5]] * 2),
    ("weights_init", [0.0, 0.0]),
    ("means_init", np.zeros((3, D))),
    ("means_init", np.zeros((2, D + 1))),
    ("means_init", np.full((2, D), np.nan)),
    ("means_init", np.full((2, D), np.inf)),
    ("means_init", [["a"] * D] * 2),
    ("means_init", [[1.0, 2.0], [3.0]]),
    ("means_init", np.zeros((2, D)) * 1j),
    ("loadings_init", np.zeros((2, D, Q + 1))),
    ("loadings_init", np.zeros((3, D, Q))),
    ("loadings_init", np.full((2, D, Q), np.nan)),
    ("noise_init", -1.0),
    ("noise_init", 0.0),
    ("noise_init", np.ones((2, D + 1))),
    ("noise_init", [np.nan] * D),
    ("noise_init", "small"),
    ("noise_init", {}),
]


@pytest.mark.parametrize("start, value", BAD_STARTS, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BAD_STARTS)])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "with-others"])
@pytest.mark.parametrize("model", ["mfa", "mfa-shared"])
def test_starting_values(model, start, value, others, X):
    given = {**(GOOD if others else {}), start: value}
    with pytest.raises((ValueError, TypeError), match=start):
        make(model, **given).fit(X)


GOOD_COMMON = {
    "weights_init": np.array([0.5, 0.5]),
    "loadings_init": np.eye(D, Q) + 1.0,
    "latent_means_init": np.arange(2.0 * Q).reshape(2, Q),
    "latent_covariances_init": np.eye(Q),
    "noise_init": np.ones(D),
}
BAD_COMMON_STARTS = [
    ("weights_init", [0.5, 0.6]),
    ("weights_init", [0.2, 0.3, 0.5]),
    ("loadings_init", np.zeros((D, Q + 1))),
    ("loadings_init", np.ones((2, D, Q))),
    ("loadings_init", np.full((D, Q), np.nan)),
    ("loadings_init", "a"),
    ("latent_means_init", np.zeros((3, Q))),
    ("latent_means_init", np.zeros((2, D))),
    ("latent_means_init", np.full((2, Q), np.inf)),
    ("latent_means_init", [["a"] * Q] * 2),
    ("latent_covariances_init", np.eye(Q + 1)),
    ("latent_covariances_init", np.ones((3, Q, Q))),
    ("latent_covariances_init", -np.eye(Q)),
    ("latent_covariances_init", np.array([[1.0, 2.0], [2.0, 1.0]])),
    ("latent_covariances_init", np.array([[1.0, 0.5], [0.0, 1.0]])),
    ("latent_covariances_init", np.full((Q, Q), np.nan)),
    ("noise_init", -1.0),
    ("noise_init", 0.0),
    ("noise_init", np.ones((2, D))),  # all components share it
    ("noise_init", np.ones(D + 1)),
]


@pytest.mark.parametrize(
    "start, value", BAD_COMMON_STARTS, ids=[f"{p}-{i}" for i, (p, _) in enumerate(BAD_COMMON_STARTS)]
)
@pytest.mark.parametrize("others", [False, True], ids=["alone", "with-others"])
def test_starting_values_of_common_loadings(start, value, others, X):
    given = {**(GOOD_COMMON if others else {}), start: value}
    with pytest.raises((ValueError, TypeError), match=start):
        make("mcfa", **given).fit(X)


@pytest.mark.parametrize("start", ["means_init", "loadings_init", "noise_init"])
@pytest.mark.parametrize("model", ["fa", "ppca"])
def test_starting_values_of_one_component(model, start, X):
    for value in (np.nan, np.ones((3, 3, 3)), "a"):
        with pytest.raises((ValueError, TypeError), match=start):
            make(model, **{start: value}).fit(X)


def test_noise_that_is_not_what_the_model_says(X):
    uneven = np.array([[1.0, 2.0, 3.0, 4.0]] * 2)
    for model in (MFA(K, Q, noise="isotropic"), MPPCA(K, Q), MPPCA(K, Q, shared_noise=True)):
        with pytest.raises(ValueError, match="noise_init must be the same for all features"):
            model.set_params(noise_init=uneven).fit(X)
    with pytest.raises(ValueError, match="noise_init must be the same for all components"):
        make("mfa-shared", noise_init=uneven * [[1.0], [2.0]]).fit(X)


NOT_SYMMETRIC = np.eye(D) + 0.5 * np.eye(D, k=1)
INDEFINITE = np.diag([1.0, 1.0, 1.0, -1.0])
SINGULAR = np.ones((D, D))


@pytest.mark.parametrize(
    "covariance, message",
    [
        (NOT_SYMMETRIC, "covariances_init.*symmetric"),
        (INDEFINITE, "covariances_init.*positive definite"),
        (SINGULAR, "covariances_init.*positive definite"),
        (np.zeros((D, D)), "covariances_init.*positive definite"),
        (np.full((D, D), np.nan), "covariances_init.*finite"),
        (np.eye(D + 1), "covariances_init.*shape"),
        ("identity", "covariances_init"),
    ],
)
@pytest.mark.parametrize("model", ["full", "tied"])
def test_starting_covariances(model, covariance, message, X):
    with pytest.raises((ValueError, TypeError), match=message):
        make(model, covariances_init=covariance).fit(X)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf, np.ones((3, 3)), "one"])
@pytest.mark.parametrize("model", ["diag", "spherical"])
def test_starting_variances(model, value, X):
    with pytest.raises((ValueError, TypeError), match="covariances_init"):
        make(model, covariances_init=value).fit(X)


@pytest.mark.parametrize("name", MIXTURES_OF_MEANS)
def test_starting_means_beyond_reach(name, X):
    """So far away that a distance has no digits left: an error, not a fit of rounding."""
    with pytest.raises(ValueError, match=r"means_init .*standard deviations away"):
        make(name, means_init=np.array([[0.0] * D, [1e10] * D])).fit(X)


@pytest.mark.parametrize("far", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("name", MIXTURES_OF_MEANS)
def test_starting_means_far_away_from_all_rows(name, far, X):
    """A component that no row belongs to stays where it was put; nothing becomes NaN."""
    model = make(name, means_init=np.array([[0.0] * D, [far] * D])).fit(X)
    assert np.isfinite(model.score(X)) and np.all(np.isfinite(model.means_))
    model = make(name, means_init=np.full((2, D), far)).fit(X)
    assert np.isfinite(model.score(X)) and np.all(np.isfinite(model.means_))


@pytest.mark.parametrize("far", [1e2, 1e4, 1e6])
def test_starting_factors_far_away_from_all_rows(far, X):
    for means in (np.array([[0.0] * Q, [far] * Q]), np.full((2, Q), far)):
        model = make("mcfa", loadings_init=np.eye(D, Q) + 0.1, latent_means_init=means).fit(X)
        assert np.isfinite(model.score(X)) and np.all(np.isfinite(model.means_))


@pytest.mark.parametrize("name", MIXTURES)
def test_a_component_of_weight_zero(name, X):
    model = make(name, weights_init=[1.0, 0.0]).fit(X)
    assert np.isfinite(model.score(X)) and np.all(np.isfinite(model.means_))
    assert np.all(model.predict(X) == 0)
    assert np.isfinite(model.icl(X))


# -- a fitted model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", ["seed", -1, 1.5])
@pytest.mark.parametrize("name", ["full", "mfa"])
def test_sample_seeds(name, seed, X):
    with pytest.raises((ValueError, TypeError), match="random_state"):
        make(name).fit(X).sample(3, random_state=seed)


@pytest.mark.parametrize("model", ["fa", "ppca", "mfa", "mppca", "mcfa"])
def test_inverse_transform(model, X):
    fitted = make(model).fit(X)
    Z = fitted.transform(X)
    with pytest.raises(ValueError, match="n_factors=2"):
        fitted.inverse_transform(Z[:, :1])
    with pytest.raises(ValueError, match="n_factors=2"):
        fitted.inverse_transform(X)
    with pytest.raises(ValueError, match="2D array"):
        fitted.inverse_transform(Z[0])
    with pytest.raises(ValueError, match="X contains NaN"):
        fitted.inverse_transform(np.full_like(Z, np.nan))
    if model == "mcfa":  # components have no say in it
        return
    for wrong in (
        np.zeros(N - 1, int),
        np.zeros(N),
        np.full(N, 2),
        np.full(N, -1),
        ["a"] * N,
        0,
        np.zeros((N, 1), int),
    ):
        with pytest.raises(ValueError, match="components"):
            fitted.inverse_transform(Z, components=wrong)


# -- models made from parameters --------------------------------------------------------------------

GMM = dict(weights=[0.5, 0.5], means=np.zeros((2, 3)), covariances=np.eye(3))
FACTOR = dict(
    weights=[0.5, 0.5], means=np.zeros((2, 3)), loadings=np.ones((2, 3, 1)), noise_variance=np.ones((2, 3))
)
ONE = dict(mean=np.zeros(3), loadings=np.ones((3, 1)), noise_variance=np.ones(3))
COMMON = dict(
    weights=[0.5, 0.5],
    loadings=np.eye(3, 2),
    latent_means=np.zeros((2, 2)),
    latent_covariances=np.tile(np.eye(2), (2, 1, 1)),
    noise_variance=np.ones(3),
)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": [[0.5, 0.5]]}, "weights"),
        ({"weights": []}, "weights|n_components"),
        ({"weights": 1.0}, "weights|means"),
        ({"weights": [np.nan, 1.0]}, "weights"),
        ({"weights": [1.2, -0.2]}, "weights"),
        ({"means": np.zeros((3, 3))}, "means"),
        ({"means": np.zeros((2, 0))}, "means"),
        ({"means": np.zeros((2, 2, 3))}, "means"),
        ({"means": 0.0}, "means"),
        ({"means": "zero"}, "means"),
        ({"means": np.full((2, 3), np.inf)}, "means"),
        ({"covariances": np.eye(4)}, "covariances"),
        ({"covariances": -np.eye(3)}, "covariances"),
        ({"covariances": np.ones((3, 3))}, "covariances"),
        ({"covariances": np.full((3, 3), np.nan)}, "covariances"),
        ({"covariance_type": "fulll"}, "covariance_type"),
        ({"covariance_type": "diag", "covariances": np.zeros((2, 3))}, "covariances"),
        ({"covariance_type": "spherical", "covariances": np.ones((2, 3))}, "covariances"),
    ],
)
def test_gaussian_mixture_from_parameters(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        GaussianMixture.from_parameters(**{**GMM, **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": 1.0}, "weights"),
        ({"weights": []}, "weights|n_components"),
        ({"weights": None}, "weights"),
        ({"means": np.zeros((3, 3))}, "means"),
        ({"means": np.zeros((2, 4))}, "means|loadings"),
        ({"means": None}, "means"),
        ({"loadings": np.ones((3, 3, 1))}, "loadings"),
        ({"loadings": np.ones(3)}, "loadings"),
        ({"loadings": np.ones((2, 3, 4))}, "n_factors|loadings"),  # more factors than features
        ({"loadings": np.full((2, 3, 1), np.nan)}, "loadings"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"noise_variance": -1.0}, "noise_variance"),
        ({"noise_variance": np.ones((2, 4))}, "noise_variance"),
        ({"noise_variance": np.nan}, "noise_variance"),
        ({"shared_noise": True, "noise_variance": [[1.0], [2.0]]}, "noise_variance"),
        ({"shared_noise": "yes"}, "shared_noise"),
    ],
)
@pytest.mark.parametrize("cls", [MFA, MPPCA])
def test_mfa_from_parameters(cls, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cls.from_parameters(**{**FACTOR, **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"mean": np.zeros((2, 3))}, "mean"),
        ({"mean": np.zeros(4)}, "mean|loadings"),
        ({"mean": 0.0}, "mean"),
        ({"mean": [np.nan] * 3}, "mean"),
        ({"loadings": np.ones((1, 3, 1))}, "loadings"),
        ({"loadings": np.ones(3)}, "loadings"),
        ({"loadings": np.ones((3, 4))}, "n_factors|loadings"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"noise_variance": np.ones(4)}, "noise_variance"),
    ],
)
@pytest.mark.parametrize("cls", [FactorAnalysis, PPCA])
def test_one_component_from_parameters(cls, change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cls.from_parameters(**{**ONE, **change})


@pytest.mark.parametrize(
    "change, message",
    [
        ({"weights": [0.5, 0.6]}, "weights"),
        ({"weights": [0.2, 0.3, 0.5]}, "weights|latent_means"),
        ({"loadings": np.ones(3)}, "loadings"),
        ({"loadings": np.ones((2, 3, 2))}, "loadings"),
        ({"loadings": np.zeros((3, 0))}, "loadings|n_factors"),
        ({"loadings": np.ones((3, 4))}, "n_factors|loadings"),  # more factors than features
        ({"loadings": np.full((3, 2), np.nan)}, "loadings"),
        ({"latent_means": np.zeros((2, 3))}, "latent_means"),
        ({"latent_means": np.zeros((3, 2))}, "latent_means"),
        ({"latent_means": None}, "latent_means"),
        ({"latent_means": np.full((2, 2), np.inf)}, "latent_means"),
        ({"latent_covariances": np.tile(np.eye(3), (2, 1, 1))}, "latent_covariances"),
        ({"latent_covariances": -np.tile(np.eye(2), (2, 1, 1))}, "latent_covariances"),
        ({"latent_covariances": np.tile([[1.0, 0.5], [0.0, 1.0]], (2, 1, 1))}, "latent_covariances"),
        ({"latent_covariances": np.full((2, 2, 2), np.nan)}, "latent_covariances"),
        ({"noise_variance": 0.0}, "noise_variance"),
        ({"noise_variance": np.ones(4)}, "noise_variance"),
        ({"noise_variance": [np.nan] * 3}, "noise_variance"),
    ],
)
def test_mcfa_from_parameters(change, message):
    with pytest.raises((ValueError, TypeError), match=message):
        MCFA.from_parameters(**{**COMMON, **change})


@pytest.mark.parametrize("scale", [1e-160, 1e-150, 1e150, 1e160])
def test_extreme_parameters_score_or_say_why_not(scale):
    """Never NaN: a model of parameters whose squares a float cannot hold is an error."""
    X = scale * np.random.default_rng(0).standard_normal((5, 3))
    try:
        with np.errstate(over="ignore", under="ignore"):
            models = [
                MFA.from_parameters(
                    weights=[0.5, 0.5],
                    means=scale * np.array([[0.0, 1.0, 2.0], [1.0, 0.0, -1.0]]),
                    loadings=scale * np.ones((2, 3, 1)),
                    noise_variance=scale**2,
                ),
                MCFA.from_parameters(
                    weights=[0.5, 0.5],
                    loadings=scale * np.eye(3, 2),
                    latent_means=np.array([[0.0, 1.0], [1.0, -1.0]]),
                    latent_covariances=np.tile(np.eye(2), (2, 1, 1)),
                    noise_variance=np.full(3, scale**2),
                ),
            ]
    except (ValueError, OverflowError):
        return
    for model in models:
        assert np.all(np.isfinite(model.score_samples(X)))
        assert np.all(np.isfinite(model.sample(3, random_state=0)[0]))


def test_covariances_symmetric_but_for_rounding(X):
    """Entries near zero may differ in all their digits; that is no asymmetry."""
    covariances = np.tile(np.eye(D), (2, 1, 1))
    covariances[:, 0, 1] = 1e-17
    model = GaussianMixture(2, covariances_init=covariances, max_iter=2, tol=0, random_state=0).fit(X)
    assert np.isfinite(model.score(X))
