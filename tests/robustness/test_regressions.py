"""Faults that attacks once found, one small test each."""

import warnings
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import latently
from latently.core import io
from latently.deep import DMCFA, DMFA
from latently.factorization import NLMF, NMF, PCA, BinarySparseCoding, LinearGaussianIBP, VectorQuantizer
from latently.generate import CodebookGenerator
from latently.mixture import MCFA, MFA, BayesianMCFA, GaussianMixture, MixedMixture
from latently.supervised import PerClass

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4)) + 4 * (np.arange(60) % 3)[:, None]


def again(model, tmp_path):
    model.save(tmp_path / "model.latently")
    return latently.load(tmp_path / "model.latently")


@pytest.mark.parametrize("kind", [DMFA, DMCFA])
def test_a_deep_model_without_iterations_is_saved(kind, tmp_path):
    model = kind(2, 2, 2, 1, max_iter=0, tol=0.0, random_state=0).fit(X)
    np.testing.assert_array_equal(again(model, tmp_path).score_samples(X), model.score_samples(X))


def test_a_classifier_of_deep_models_is_saved(tmp_path):
    model = PerClass(DMFA(1, 1, 1, 1, max_iter=3, tol=0.0, random_state=0), temperature=None)
    model.fit(X, np.arange(60) % 2)
    np.testing.assert_array_equal(again(model, tmp_path).predict_proba(X), model.predict_proba(X))


@pytest.mark.filterwarnings("ignore:Number of distinct clusters")
def test_a_codebook_without_elements_for_a_group_is_refused():
    """It could neither be sampled from nor saved. Of nine elements, three each are equal but for rounding."""
    elements = np.random.default_rng(1).normal(size=(3, 2)).repeat(3, axis=0)
    elements *= 1 + 1e-12 * rng.normal(size=elements.shape)
    with pytest.raises(ValueError, match=r"cannot be split into n_groups=5 groups: only \d have elements"):
        CodebookGenerator(n_groups=5, n_init=1, random_state=0).fit(elements)


@pytest.mark.parametrize(
    "model", [PCA(2), VectorQuantizer(2, random_state=0)], ids=["PCA", "VectorQuantizer"]
)
@pytest.mark.parametrize(
    "bad", [np.full((9, 4), np.nan), np.zeros((1, 3)), "no rows"], ids=["NaN", "few", "text"]
)
def test_a_failed_fit_leaves_the_one_before(model, bad):
    before = model.fit(X).transform(X)
    with pytest.raises((ValueError, TypeError, FileNotFoundError)):
        model.fit(bad)
    np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.parametrize("spread", [1e-17, 1e-12, 1e-8, 1e-5])
def test_the_history_of_binary_sparse_coding_never_falls_on_columns_that_hardly_vary(spread):
    rows = X[:, :3].copy()
    rows[:, 1] = 5.0 + spread * rng.normal(size=60)
    model = BinarySparseCoding(2, max_iter=30, tol=0.0, random_state=0).fit(rows)
    assert np.all(np.diff(model.history_) >= -1e-9 * np.abs(model.history_[1:]))
    assert np.all(np.isfinite(model.score_samples(rows)))


def test_weights_that_are_none_beside_others_do_not_hide_missing_entries():
    """A row with NaN and weight 1e-17 was lost in the sums that told whether any entry is missing."""
    rows, weight = X.copy(), np.ones(60)
    rows[0, 0], weight[0] = np.nan, 1e-17
    model = MCFA(2, 1, max_iter=3, tol=0.0, random_state=0).fit(rows, sample_weight=weight)
    assert np.all(np.isfinite(model.score_samples(rows)))


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-x", "@sum"])
def test_text_that_spreadsheets_take_for_formulas_is_told(cell, tmp_path):
    pandas = pytest.importorskip("pandas")
    from latently.cli.writing import _as_text

    with pytest.warns(UserWarning, match="begins as formulas of spreadsheets do"):
        assert cell in _as_text(pandas.DataFrame({"label": ["a", cell]}), True, ",", ".")


def test_rows_beside_which_all_others_are_rounding_are_told():
    far = np.zeros((15, 5), dtype=np.float32)
    far[3] = 1e12
    priors = {"concentration_prior": [1, 1], "noise_prior": [1, 1e-3], "component_prior": [1, 1e-3]}
    with pytest.raises(ValueError, match="X holds values so far from the others"):
        LinearGaussianIBP(**priors, max_iter=9, random_state=0).fit(far)


# -- forged files ---------------------------------------------------------------------------------------


def forged(model, path, **arrays):
    """The saved model with other fitted arrays, and a checksum to match."""
    model.save(path)
    header, held = io.read(path)
    held |= {f"fitted.{name}": np.full_like(held[f"fitted.{name}"], value) for name, value in arrays.items()}
    io.write(path, {key: value for key, value in header.items() if key != "format_version"}, held)
    return path


def test_components_whose_squares_overflow_are_refused(tmp_path):
    path = forged(NMF(2, max_iter=3, tol=0.0).fit(np.abs(X)), tmp_path / "m.latently", components=1e300)
    with pytest.raises(ValueError, match="components must not exceed"):
        latently.load(path)


@pytest.mark.parametrize("size", [1e-130, 1e-150, 1e-160, 5e-324])
def test_components_whose_squares_vanish_give_numbers(size, tmp_path):
    model = NLMF(2, mapping="tanh", sigma2=0.5, max_iter=3, tol=0.0, random_state=0).fit(X)
    path = forged(model, tmp_path / "m.latently", components=size)
    assert np.all(np.isfinite(latently.load(path).transform(X)))


class Killed(Exception):
    pass


def kill(iteration):
    if iteration.number == 2:
        raise Killed


def left_by(model, path, *rows):
    """The header and arrays of the checkpoint that a killed fit leaves."""
    model.set_params(checkpoint=path, checkpoint_every=1)
    with pytest.raises(Killed):
        clone(model).set_params(callbacks=[kill]).fit(*rows)
    header, arrays = io.read(path)
    return {key: value for key, value in header.items() if key != "format_version"}, arrays


def test_arrays_of_a_checkpoint_have_the_dtype_of_the_fit(tmp_path):
    model, path = NMF(2, max_iter=5, tol=0.0, accelerate=None, random_state=0), tmp_path / "c"
    header, arrays = left_by(model, path, np.abs(X))
    name = next(name for name in arrays if name.startswith("params") and arrays[name].ndim == 2)
    io.write(path, header, arrays | {name: arrays[name].astype(np.uint8)})
    with pytest.raises(ValueError, match=r"checkpoint=.*c'.*dtype float"):
        model.fit(np.abs(X))


def test_an_error_after_the_last_step_names_the_checkpoint(tmp_path):
    model, path = MCFA(2, 2, max_iter=5, tol=0.0, accelerate=None, random_state=0), tmp_path / "c"
    header, arrays = left_by(model, path, X)
    (name,) = (name for name in arrays if name.startswith("params") and name.endswith("basis"))
    io.write(path, header, arrays | {name: np.zeros_like(arrays[name])})
    with pytest.raises(ValueError, match=r"went on from checkpoint=.*c'"):
        model.fit(X)


def test_a_network_that_fails_after_a_checkpoint_names_it(tmp_path):
    deep = pytest.importorskip("latently.deep")
    model = deep.JointAutoencoder(2, hidden_layer_sizes=[4], variational=True, max_iter=4, random_state=0)
    y, path = np.arange(60) % 3, tmp_path / "c"
    header, arrays = left_by(model, path, X, y)
    changed = {name: np.full_like(array, 1e30) for name, array in arrays.items() if name.startswith("module")}
    io.write(path, header, arrays | changed)
    with pytest.raises(ValueError, match=r"checkpoint=.*c'"):
        model.fit(X, y)


# -- tables of several kinds ----------------------------------------------------------------------------


@pytest.fixture
def counts():
    table = rng.poisson(3.0, size=(60, 3)).astype(float)
    table[:, 1] = np.arange(60) % 2
    return table


def of_kinds():
    kinds = {0: "count", 1: "category", 2: "number"}
    return MixedMixture(2, columns=kinds, unseen="missing", max_iter=4, tol=0.0, random_state=0)


@pytest.mark.filterwarnings("ignore:X has feature names, but MixedMixture was fitted without")
@pytest.mark.parametrize("names", [["a", "b", "c"], [0, 1, 2], [("u", "a"), ("u", "b"), ("v", "a")]], ids=str)
def test_a_table_is_imputed_whatever_its_columns_are_called(names, counts):
    pandas = pytest.importorskip("pandas")
    holes = counts.copy()
    holes[3, 0] = np.nan
    table = pandas.DataFrame(holes)
    table.columns = pandas.MultiIndex.from_tuples(names) if isinstance(names[0], tuple) else names
    expected = of_kinds().fit(holes).impute(holes)
    for model in (of_kinds().fit(holes), of_kinds().fit(table)):
        np.testing.assert_array_equal(np.asarray(model.impute(table), dtype=float), expected)


def test_categories_in_order_are_imputed_with_those_of_the_table():
    """Two levels in order, or levels the fit had not seen, stopped imputation with unseen="missing"."""
    levels = pd.CategoricalDtype(["low", "mid"], ordered=True)
    table = pd.DataFrame({"a": pd.Categorical(["low", "mid", None] * 9, dtype=levels), "b": range(27)})
    model = MixedMixture(1, unseen="missing").fit(table)
    whole = model.impute(table)
    assert whole["a"].dtype == levels and whole["a"].notna().all()
    fewer = pd.DataFrame({"a": pd.Categorical([None, "new"]), "b": [1, 2]})
    assert model.impute(fewer)["a"].tolist() in (["low", "new"], ["mid", "new"])


def test_missing_integers_are_imputed_by_fractions():
    """Integers of pandas that may be missing stopped imputation with unseen="missing"."""
    table = pd.DataFrame({"a": pd.array([100, 203, None] * 9, dtype="UInt8"), "b": range(27)})
    model = MixedMixture(1, columns={"a": "number"}, unseen="missing").fit(table)
    whole = model.impute(table)["a"]
    assert whole.notna().all() and whole[0] == 100 and 100 < whole[2] < 203


def test_a_column_without_any_of_its_levels_is_told():
    table = pd.DataFrame({"a": ["x", "y"] * 9, "b": range(18)})
    with pytest.raises(ValueError, match="'a' holds none of its levels"):
        MixedMixture(columns={"a": [0, 1]}, unseen="missing").fit(table)


def test_lists_are_not_taken_for_numbers_where_columns_are_named(counts):
    with pytest.raises(TypeError, match="cannot have columns of several kinds"):
        of_kinds().fit(counts.tolist())


def test_no_rows_of_several_kinds_are_told_as_by_all_models(counts):
    with pytest.raises(ValueError, match="0 sample"):
        of_kinds().fit(counts).predict(counts[:0])


def test_columns_of_one_name_are_refused(counts):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="several columns named 'a'"):
        of_kinds().fit(pandas.DataFrame(counts, columns=["a", "b", "a"]))


# -- masks ----------------------------------------------------------------------------------------------


def test_a_mask_over_weights_or_labels_is_an_error():
    hidden = np.ma.array(np.ones(60), mask=np.arange(60) == 3)
    with pytest.raises(ValueError, match="sample_weight contains NaN"):
        GaussianMixture(2).fit(X, sample_weight=hidden)
    with pytest.raises(ValueError, match="y contains NaN"):
        PerClass(GaussianMixture()).fit(X, np.ma.array(np.arange(60) % 2, mask=np.arange(60) == 3))
    with pytest.raises(ValueError, match="means_init must hold finite numbers"):
        means = np.ma.array(X[:2], mask=False)
        means[0, 0] = np.ma.masked
        GaussianMixture(2, means_init=means).fit(X)


# -- arguments of other kinds ---------------------------------------------------------------------------


@pytest.mark.parametrize("model", [GaussianMixture(2), NMF(2), PCA(2)], ids=str)
@pytest.mark.parametrize(
    "weight",
    [["a"] * 60, "balanced", {0: 1.0}, np.ones(60, "datetime64[s]"), np.ones(60, "m8[s]"), [10**400] * 60],
    ids=["text", "word", "dict", "dates", "durations", "huge"],
)
def test_weights_that_are_no_numbers_are_named(model, weight):
    with pytest.raises((ValueError, TypeError), match="sample_weight"):
        model.fit(np.abs(X), sample_weight=weight)


@pytest.mark.parametrize("n", [2**63, 10**30])
def test_integers_beyond_any_index_are_named(n):
    with pytest.raises(ValueError, match="n_components must be an integer"):
        GaussianMixture(n).fit(X)
    with pytest.raises(ValueError, match="n_samples must be an integer"):
        GaussianMixture(2, max_iter=2, tol=0.0).fit(X).sample(n)


@pytest.mark.parametrize("name", ["PCA", "NMF", "NLMF", "RBM", "VAE", "DAGMM"])
def test_factors_that_are_no_numbers_are_named(name):
    factorization, deep = vars(latently.factorization), pytest.importorskip("latently.deep")
    options = {} if name == "PCA" else {"max_iter": 1}
    model = (factorization.get(name) or getattr(deep, name))(2, **options)
    rows = X / (1 + X.max()) - X.min() if name != "RBM" else (X > 1).astype(float)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        q = model.fit(rows).transform(rows).shape[1]
    zeros = np.zeros((3, q))
    for factors in (zeros.astype("m8[s]"), np.ma.array(zeros, mask=True), 1j * zeros, [["a"] * q] * 3):
        with pytest.raises((ValueError, TypeError), match=r"\b(X|Z|codes)\b"):
            model.inverse_transform(factors)


@pytest.mark.parametrize(
    "option", [{"n_components": 2**40}, {"persistent": True, "batch_size": 2**40}], ids=str
)
def test_memory_of_networks_is_told(option):
    deep = pytest.importorskip("latently.deep")
    with pytest.raises(MemoryError, match=f"reduce .*{list(option)[-1]}"):
        deep.RBM(max_iter=1, **option).fit((X > 1).astype(float))


@pytest.mark.parametrize("loadings", [-1.0, 0.0])
def test_given_loadings_that_do_not_span_the_factors(loadings):
    """Computed factors had no variance in directions that the loadings lack: a LinAlgError."""
    rows = np.random.default_rng(0).normal(size=(60, 4))
    assert np.isfinite(BayesianMCFA(2, 2, loadings_init=loadings, random_state=0).fit(rows).score(rows))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16])
@pytest.mark.parametrize("option", ["n_components", "n_factors", "batch_size", "block_size"])
def test_products_of_small_integers_do_not_overflow(option, kind):
    """Of 3 factors as np.int8 and 50 features n_parameters was a wrong number, without an error."""
    rows = np.random.default_rng(0).normal(size=(200, 50))
    options = {"n_components": 3, "n_factors": 3, "max_iter": 2, "random_state": 0}
    plain, model = (MFA(**options | {option: of(3)}).fit(rows) for of in (int, kind))
    assert model.n_parameters() == plain.n_parameters()
    np.testing.assert_array_equal(model.means_, plain.means_)


def test_a_fraction_is_a_number():
    model = DMCFA(2, 2, 2, 1, max_iter=3, tol=0.0, noise_floor=Fraction(1, 2), random_state=0).fit(X)
    plain = DMCFA(2, 2, 2, 1, max_iter=3, tol=0.0, noise_floor=0.5, random_state=0).fit(X)
    np.testing.assert_array_equal(model.score_samples(X), plain.score_samples(X))


def test_sizes_may_be_integers_of_numpy():
    """A grid of sizes is an array: searches for starts took such a number of factors for an array of rows."""
    model = MCFA(np.int64(2), np.int64(2), max_iter=3, tol=0.0, random_state=0).fit(X)
    plain = MCFA(2, 2, max_iter=3, tol=0.0, random_state=0).fit(X)
    np.testing.assert_array_equal(model.means_, plain.means_)


HOSTILE = {
    "far": lambda X: np.where(X.max() == X, 1e80, X),
    "huge": lambda X: 1e150 * X,
    "of all sizes": lambda X: X * 10.0 ** np.linspace(-150, 90, 5),
    "tiny": lambda X: 1e-200 * X,
    "partly tiny": lambda X: np.where(np.median(X) > X, 1e-310, X),
    "constant but for rounding": lambda X: 1 + 1e-15 * X,
    "equal": lambda X: np.ones_like(X),
    "zero in places": lambda X: np.where(np.arange(5) == 1, 0.0, X) * (np.arange(12) != 3)[:, None],
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("loss", ["frobenius", "kl"])
@pytest.mark.parametrize("hostile", HOSTILE)
def test_nmf_has_numbers_or_refuses_rows(hostile, loss):
    """Some ended in "Eigenvalues did not converge" or "the log-likelihood became nan"."""
    draws = np.random.default_rng(1)
    X = HOSTILE[hostile](draws.gamma(0.5, size=(12, 5)))
    for rows in (X, np.where(draws.random(X.shape) < 0.3, np.nan, X)):
        model = NMF(2, loss=loss, max_iter=10, random_state=0)
        if hostile in ("huge", "tiny"):
            with pytest.raises(ValueError, match="rescale X"):
                model.fit(rows)
        else:
            model.fit(rows)
            assert np.all(np.isfinite(model.history_)) and np.all(np.isfinite(model.components_))
            assert np.all(np.isfinite(model.transform(rows)))
