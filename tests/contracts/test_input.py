"""What a user may get wrong, and rows that are hard: a clear error or a sane model, for every estimator."""

import dataclasses
import warnings

import numpy as np
import pytest
from scipy import sparse

from latently.mixture import MixedMixture
from tests.contracts.cases import CASES, ROW_METHODS, D, answers, assert_equal, every_case, fitted, numbers

# -- options ------------------------------------------------------------------------------------------

WRONG = {
    "max_iter": [-1, 1.5, "10", None, np.nan, True, [3]],
    "tol": [-1e-3, "small", None, np.nan, np.inf, True],
    "n_init": [0, -1, 1.5, "4", None],
    "init": ["kmean", None, 3, ["kmeans"], np.zeros(3)],
    "noise_floor": [-1e-6, "none", None, np.nan, np.inf],
    "accelerate": ["faster", True, 1],
    "batch_size": [0, -1, 2.5, "many"],
    "block_size": [0, -5, 1.5, "all"],
    "learning_decay": [-0.1, 1.1, None, "slow"],
    "learning_offset": [0.5, None, "far"],
    "checkpoint": [3, [1]],
    "checkpoint_every": [0, 1.5, None],
    "dtype": ["float16", "int64", "double", None, 64],
    "random_state": ["seed", -1, 1.5, [1, "a"]],
    "warm_start": ["yes", 3, None],
    "callbacks": [5, "print", [5], ["print"], print, [None]],
    "verbose": ["loud", None],
    "n_components": [0, -1, 1.5, "2", True, np.nan, [[2]]],
    "n_factors": [-1, 1.5, "2", None, True, np.nan, [2]],
    "n_subcomponents": [0, -1, 1.5, "2", None],
    "n_groups": [0, -1, 1.5, "2", None],
    "covariance_type": ["fulll", None, ["full"]],
    "noise": ["diag", None],
    "shared_noise": ["no", None, 2],
    "shared_covariance": ["no", None, 2],
    "fine_tune": ["yes", None],
    "unit_length": ["yes", None],
    "reject_below": ["low", np.nan, [1.0]],
    "discriminative_weight": [0, -1.0, "much", np.nan],
    "loss": ["l2", None],
    "solver": ["cd", None],
    "visible": ["real", None, 1],
    "visible_variance": [0.0, -1.0, None, "one"],
    "n_gibbs": [0, 1.5, None],
    "momentum": [-0.1, 1.1, None],
    "weight_decay": [-1.0, None, np.nan],
    "learning_rate": [-1.0, None, np.inf],
    "label_units": [-1, 1.5, None],
    "persistent": ["no", None],
    "validation_fraction": [0.0, 1.0, -0.5, "half"],
    "patience": [0, 1.5, "long"],
    "device": ["gpu", None, 3],
    "tied_start": ["yes", None],
    "hidden_layer_sizes": [(0,), 3, "3", None, (1.5,)],
    "likelihood": ["poisson", None],
    "architecture": ["rnn", None],
    "image_shape": [(3,), 4, (1, 2, 2, 1), (2, 3)],
    "activation": ["step", None],
    "prior": ["flat"],
    "binarize": ["yes", None],
    "warm_up": [-1, 1.5, None],
}


@every_case
def test_options_that_make_no_sense_are_named(case):
    X, y = case.data()
    for name in sorted(case.options & WRONG.keys()):
        for value in WRONG[name]:
            if isinstance(value, list) and value == [2] and case.cls.__name__ == "DBN":  # one layer
                continue
            with pytest.raises((ValueError, TypeError), match=name):
                case.make().set_params(**{name: value}).fit(X, y)


@every_case
def test_no_option_takes_anything_at_all(case):
    X, y = case.data()
    for name in sorted(case.options - {"n_jobs"}):
        with pytest.raises((ValueError, TypeError), match=name):
            case.make().set_params(**{name: object()}).fit(X, y)


@every_case
def test_options_are_held_to_the_check_they_are_declared_with(case):
    """Before rows are looked at."""
    values = (None, True, -1, 0, 1.5, np.nan, np.inf, "no such choice", [], [object()])
    for option in dataclasses.fields(case.cls):
        if not option.init or "check" not in option.metadata:
            continue
        check = option.metadata["check"]
        check(option.name, case.make().get_params(deep=False)[option.name])
        for value in values:
            try:
                check(option.name, value)
            except (ValueError, TypeError):
                with pytest.raises((ValueError, TypeError), match=option.name):
                    case.make().set_params(**{option.name: value}).fit(None, [0, 1])


# -- rows ---------------------------------------------------------------------------------------------

BAD = {
    "1-D": (np.zeros(5), "2D array"),
    "3-D": (np.zeros((3, 3, 3)), "dim 3|2D array|3 dim"),
    "scalar": (np.float64(3.0), "2D array"),
    "no rows": (np.zeros((0, D)), "0 sample"),
    "no columns": (np.zeros((5, 0)), "0 feature"),
    "empty": ([], "2D array|0 sample"),
    "text": ([["a", "b"], ["c", "d"]], "numeric|convert|could not|dtype"),
    "objects": (np.array([[object(), 1.0], [2.0, 3.0]]), "float"),
    "complex": (np.ones((5, D)) * 1j, "[Cc]omplex"),
    "dates": (np.zeros((5, D), "datetime64[s]"), "times"),
    "durations": (np.zeros((5, D), "timedelta64[ms]"), "times|timedelta"),
    "huge integers": (np.array([[10**400, 1], [2, 3]], dtype=object), "X holds numbers that float64 cannot"),
    "ragged": ([[1.0, 2.0], [3.0]], "inhomogeneous|sequence"),
    "None": (None, "None|2D array|NoneType|scalar"),
}


@every_case
@pytest.mark.parametrize("what", BAD)
def test_rows_that_are_none(case, what):
    bad, message = BAD[what]
    if what == "dates" and case.cls is MixedMixture:
        return  # which has columns of dates
    y = np.arange(len(bad) if hasattr(bad, "__len__") else 2) % case.n_classes if case.is_classifier else None
    with pytest.raises((ValueError, TypeError), match=message):
        case.make().fit(bad, y)
    if what != "ragged":
        for name in answers(fitted(case), case.data()[0]):
            with pytest.raises((ValueError, TypeError)):
                getattr(fitted(case), name.partition(".")[0])(bad)


@every_case
def test_entries_behind_a_mask_are_missing(case):
    """NumPy shows what lies behind a mask, here a number far from all others."""
    X, y = case.data()
    X[3, 1] = np.nan
    hidden = np.ma.masked_invalid(X)
    hidden.data[3, 1] = 1e9
    if not case.takes_nan:
        uses = [getattr(fitted(case), name) for name in ROW_METHODS if case.has(name) and name != "impute"]
        for use in (lambda rows: case.make().fit(rows, y), *uses):
            with pytest.raises(ValueError, match="NaN"):
                use(hidden)
        return
    model = case.fit(hidden, y)
    assert_equal(answers(model, hidden), answers(case.fit(X, y), X))


@every_case
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_infinity(case, dtype):
    X, y = case.data()
    X[3, 1] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        case.make().fit(X.astype(dtype), y)
    for name in answers(fitted(case), case.data()[0]):
        with pytest.raises(ValueError, match="infinity"):
            getattr(fitted(case), name.partition(".")[0])(X.astype(dtype))


@pytest.mark.parametrize("case", [case for case in CASES if not case.tags.input_tags.sparse], ids=str)
def test_sparse_matrices_are_refused_by_name(case):
    X, y = case.data()
    with pytest.raises((ValueError, TypeError), match=r"[Ss]parse"):
        case.make().fit(sparse.csr_array(np.nan_to_num(X)), y)


# -- rows that are hard -------------------------------------------------------------------------------


def blobs(n=40, n_features=D, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features)) + 4.0 * rng.integers(3, size=(n, 1))


def changed(X, index, value):
    X = X.copy()
    X[index] = value
    return X


HARD = {
    "constant column": changed(blobs(), (slice(None), 1), 3.5),
    "all constant": np.full((20, D), 7.0),
    "all zero": np.zeros((20, D)),
    "duplicates": np.repeat(blobs(4), 10, axis=0),
    "one-point cluster": changed(blobs(), 0, 1e3),
    "outlier": changed(blobs(), 0, 1e8),
    "offset 1e8": blobs() + 1e8,
    "scale 1e-150": 1e-150 * blobs(),
    "scale 1e150": 1e150 * blobs(),
    "scale 1e200": 1e200 * blobs(),
    "mixed scales": blobs() * [1e-100, 1e100, 1.0, 1e-5],
    "N < D": blobs(10, 40),
    "N < K": blobs(2),
    "N = 1": blobs(1),
    "D = 1": blobs(n_features=1),
    "rank 1": blobs(n_features=1) * [1.0, 2.0, -1.0, 0.5],
    "binary": (blobs() > 2).astype(float),
}


_TOLD = (
    "X has constant features|X holds numbers|too few rows for|the cost of NMF is lost in rounding|"
    ".*which float32, in which networks compute|.*is less than the scale of noise_prior"
)


@every_case
@pytest.mark.parametrize("what", HARD)
def test_hard_rows_give_a_sane_model_or_a_clear_error(case, what):
    X = case.like(HARD[what])[0]
    y = np.arange(len(X)) % case.n_classes if case.is_classifier else None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=_TOLD)
        try:
            model = case.fit(X, y)
        except ValueError as error:
            assert str(error)
            return
    assert all(np.all(np.isfinite(array)) for array in numbers(model))
    for method in ROW_METHODS:
        try:
            said = answers(model, X, (method,))
        except ValueError as error:
            assert str(error)
        else:
            assert not any(np.any(np.isnan(array)) for array in said.values() if array.dtype.kind == "f"), (
                method
            )


@every_case
@pytest.mark.parametrize("far", [1e10, 1e100, 1e300])
def test_rows_far_from_a_fitted_model(case, far):
    """Squares that overflow: densities are zero or tiny, never NaN, and nothing warns."""
    X = np.array([[far, 0.0, 0.0, 0.0], [far, far, far, far], [1.0, 1.0, 1.0, 1.0]])
    if case.rows == "unit":
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            fitted(case).transform(X)
        return
    for name in ("score_samples", "predict_proba", "predict"):
        if case.has(name):
            said = getattr(fitted(case), name)(X)
            assert not np.any(np.isnan(said)), name
            if name == "predict_proba":
                np.testing.assert_allclose(said.sum(axis=1), 1.0, rtol=1e-9)
