"""Reproductions of documents 000, and 004: measures mean what they say, runs on small digits."""

from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_digits

from latently.datasets import load
from latently.factorization import NMF, PCA
from latently.generate import CodebookGenerator
from latently.mixture import GaussianMixture
from reproductions import available
from reproductions.document_000 import (
    _digits,
    _layers,
    figures_3_2_3_6,
    figures_3_7_3_22,
    figures_3_23_3_27,
    figures_3_28_3_45,
    figures_3_46_3_57,
    section_4_1,
    table_3_1,
)
from reproductions.document_000._digits import ALL, HELD_OUT, OTHERS, REBUILT, SHUFFLED, TWO, Parts, Real
from reproductions.document_004 import features
from tests.reproductions.checks import check_quick_run
from tests.reproductions.data_sets import skip_without

REPRODUCTIONS = {name: one for name, one in available().items() if name[:4] in ("000/", "004/")}
PRINTED_COUNTS = (5923, 6742, 5958, 6131, 5842, 5241, 5918, 6265, 5851, 5949)  # Table 3.1, training
CACHED = (
    _digits.images,
    _digits.recogniser,
    _digits.parts,
    figures_3_2_3_6.nmf,
    figures_3_7_3_22.generator,
    figures_3_23_3_27.models,
    figures_3_28_3_45.densities,
    figures_3_46_3_57.densities,
    features.models,
)


def small_digits(name):
    """scikit-learn's digits of 8 x 8 in the form of MNIST: each pixel three by three, within a border."""
    X, y = load_digits(return_X_y=True)
    large = np.kron(X.reshape(-1, 8, 8) * (255 / 16), np.ones((3, 3)))
    rows = np.pad(large, ((0, 0), (2, 2), (2, 2))).reshape(len(X), -1)
    return SimpleNamespace(X_train=rows[:1200], y_train=y[:1200], X_test=rows[1200:1500], y_test=y[1200:1500])


@pytest.fixture
def digits(monkeypatch):
    """Small digits in place of MNIST, and nothing remembered from other tests."""
    for function in CACHED:
        function.cache_clear()
    for module in (_digits, _layers, section_4_1, table_3_1):
        monkeypatch.setattr(module, "load", small_digits)
    yield small_digits("mnist")
    for function in CACHED:
        function.cache_clear()


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def network_that_says(monkeypatch, probabilities, usual=0.8):
    network = SimpleNamespace(predict_proba=lambda rows: np.asarray(probabilities))
    monkeypatch.setattr(_digits, "recogniser", lambda n_rows: (network, usual))


# -- what was printed, and the data -------------------------------------------------------------------


def test_all_are_listed():
    assert sorted(REPRODUCTIONS) == [
        "000/figures-3.2-3.6",
        "000/figures-3.23-3.27",
        "000/figures-3.28-3.45",
        "000/figures-3.46-3.57",
        "000/figures-3.7-3.22",
        "000/figures-5.35-5.48",
        "000/figures-5.6-5.34",
        "000/fine-tuned-layers",
        "000/layers-over-draws",
        "000/section-4.1",
        "000/table-3.1",
        "000/table-5.1",
        "000/tables-5.2-5.3",
        "004/features",
    ]


def test_printed_counts_of_digits_have_one_misprint():
    skip_without("mnist")
    counts = np.bincount(load("mnist").y_train)
    wrong = {digit: printed for digit, printed in enumerate(PRINTED_COUNTS) if printed != counts[digit]}
    assert wrong == {5: 5241}
    assert (counts[5], sum(PRINTED_COUNTS)) == (5421, 59820)


@pytest.mark.parametrize("digit", [TWO, ALL])
def test_images_are_some_of_the_digit(digits, digit):
    fitted, held_out = _digits.images(digit, 30, seed=0)
    known = [
        {row.tobytes(): label for row, label in zip(X / 255, y, strict=True)}
        for X, y in ((digits.X_train, digits.y_train), (digits.X_test, digits.y_test))
    ]
    labels = [{known[i][row.tobytes()] for row in rows} for i, rows in enumerate((fitted, held_out))]
    assert labels == ([{TWO}, {TWO}] if digit == TWO else [set(range(10))] * 2)
    assert fitted.shape == (30, 784)
    assert len(held_out) == (np.sum(digits.y_test == TWO) if digit == TWO else len(digits.y_test))
    assert fitted.min() == 0
    assert fitted.max() == 1
    other = _digits.images(digit, 30, seed=1)[0]
    assert not np.array_equal(fitted, other)


def test_no_number_of_rows_is_all_of_them(digits):
    assert len(_digits.images(TWO, None, seed=0)[0]) == np.sum(digits.y_train == TWO)


# -- quality ------------------------------------------------------------------------------------------


def test_shown_images_are_between_zero_and_one():
    shown = _digits.as_shown(np.array([[-1.0, 2.0, 4.0], [0.0, -3.0, 0.0]]))
    np.testing.assert_array_equal(shown, [[0, 0.5, 1], [0, 0, 0]])


def test_twos_are_counted(monkeypatch, rng):
    probabilities = np.full((4, 10), 0.01)
    probabilities[[0, 1, 2, 3], [2, 2, 2, 7]] = [0.91, 0.8, 0.5, 0.95]
    network_that_says(monkeypatch, probabilities)
    found = Real(TWO, None, None).recognised(np.ones((4, 9)), 0)
    assert found == pytest.approx({"called a 2": 0.75, "confidence": 0.79, "like a digit": 0.75})


@pytest.mark.parametrize(("seen", "classes"), [(range(10), 10), ([3] * 10, 1), ([0, 1] * 5, 2)])
def test_classes_are_counted_as_if_equally_frequent(monkeypatch, seen, classes):
    network_that_says(monkeypatch, np.eye(10)[list(seen)])
    found = Real(ALL, None, None).recognised(np.ones((10, 9)), 0)
    assert found == pytest.approx({"confidence": 1.0, "like a digit": 1.0, "classes": classes})


def test_most_real_digits_are_like_a_digit(digits):
    real = Real(ALL, None, None)
    network, usual = _digits.recogniser(1200)
    assert 0.1 < usual < 1
    assert real.recognised(digits.X_test, 1200)["like a digit"] == pytest.approx(0.95, abs=0.01)
    assert network.score(digits.X_test / 255, digits.y_test) > 0.8


def test_only_different_images_are_told_apart(rng):
    one, same, other = rng.random((150, 20)), rng.random((150, 20)), rng.random((150, 20)) ** 4
    assert _digits.told_apart(one, same) == pytest.approx(0.5, abs=0.12)
    assert _digits.told_apart(one, other) > 0.95


def test_distance_is_that_of_new_images(monkeypatch, rng):
    network_that_says(monkeypatch, np.eye(10)[[0] * 40])
    fitted, held_out = rng.random((60, 30)), rng.random((40, 30))
    real = Real(TWO, fitted, held_out)
    assert real.judge(fitted[:40], 0)["distance"] == pytest.approx(0, abs=1e-6)
    assert real.judge(held_out, 0)["distance"] == pytest.approx(1)
    assert real.judge(1 - fitted[:40] ** 6, 0)["distance"] > 1.1


def test_falls_are_those_beyond_rounding():
    assert _digits.falls([-5.0, -3.0, -3.5, -3.5 - 1e-12, -1.0]) == 1
    assert _digits.falls([1.0, 2.0, 3.0]) == 0


# -- sources ------------------------------------------------------------------------------------------


@pytest.fixture
def simple_parts(rng):
    """Two parts of four pixels, and a density with a rare component."""
    A = np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    sources = np.column_stack([rng.integers(0, 50, size=80), np.zeros(80)])
    sources[:, 1] = 2 * sources[:, 0]
    factorizer = NMF.from_parameters(components=A)
    return Parts(factorizer, sources, sources[:50], Real(ALL, sources @ A, sources[:50] @ A))


@pytest.fixture
def two_places():
    return GaussianMixture.from_parameters(
        weights=[0.02, 0.98], means=[[40.0, 0.0], [0.0, 40.0]], covariances=np.array([np.eye(2)] * 2)
    )


def test_drawn_images_are_of_their_components(simple_parts, two_places):
    drawn, components = simple_parts.draw(two_places, 500, seed=0)
    place = np.where(components == 0, 0, 2)
    assert np.all(np.abs(drawn[np.arange(500), place] - 40) < 6)
    np.testing.assert_allclose(drawn[:, 0], drawn[:, 1])
    assert len(np.unique(np.flatnonzero(components == 0) > 250)) == 2  # in no order


def test_lines_begin_with_the_mean(two_places):
    lines = _digits.component_lines("two", two_places, lambda rows: rows, seed=0, n_lines=2, n_images=9)
    assert list(lines) == ["two", "two (2)"]
    for line, mean in zip(lines.values(), ([0, 1], [1, 0]), strict=True):  # the heavier first
        assert line.shape == (9, 2)
        np.testing.assert_array_equal(line[0], mean)
        assert np.all(np.argmax(line, axis=1) == np.argmax(mean))


def test_shuffled_sources_know_nothing_of_one_another(monkeypatch, simple_parts):
    judged = []
    monkeypatch.setattr(Real, "recognised", lambda real, drawn, network_rows: {})
    monkeypatch.setattr(Real, "judge", lambda real, drawn, network_rows: judged.append(drawn) or {})
    found = simple_parts.references(0, seed=0)
    assert list(found) == [REBUILT, SHUFFLED]
    first, second = judged[0][:, 0], judged[0][:, 2]
    assert set(first) <= set(simple_parts.fitted[:, 0])
    assert set(second) <= set(simple_parts.fitted[:, 1])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.5
    assert np.corrcoef(*simple_parts.fitted.T)[0, 1] > 0.99


# -- what single reproductions measure ----------------------------------------------------------------


def test_errors_of_axes_are_those_of_pca(rng):
    X, new = rng.random((30, 8)), rng.random((12, 8))
    for d in (1, 3):
        expected = PCA(d).fit(X).squared_error(new)
        assert figures_3_2_3_6.left_by_axes(PCA(5).fit(X), new, d) == pytest.approx(expected)


def test_summary_of_parts_names_the_digits_of_largest_error():
    numbers = dict.fromkeys(("error", "error of PCA, held out", "per image", "called right", "empty"), 0.5)
    numbers["originals called right"] = 1.0
    rows = [{"digit": k, "parts": 10, "error, held out": k % 4, **numbers} for k in range(6)]
    (short,) = figures_3_2_3_6.summary(rows)
    assert short["largest error, held out"] == "3, 2, 1"
    assert short["error, held out"] == pytest.approx(7 / 6)


def test_groups_of_one_and_combinations_are_counted():
    strokes = np.array([[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0, 0, 1, 0], [0, 0, 0.9, 0.1], [0, 1, 0, 0]])
    model = CodebookGenerator(n_groups=3, random_state=0).fit(strokes)
    assert figures_3_7_3_22.about_groups([model, model]) == {"groups of one": 1, "combinations": 4.0}


def test_pixels_that_never_vary_are_drawn_as_zero():
    fitted = np.array([[0.0, 0.2, 0.0, 0.5], [0.0, 0.3, 0.0, 0.1]])
    varies = figures_3_23_3_27.varying(fitted)
    np.testing.assert_array_equal(figures_3_23_3_27.in_image(fitted[:, varies], varies), fitted)


def test_summary_of_mixtures_is_the_likeliest_on_held_out_images():
    common = {"digits": "2", "parts": 30, "covariance": "full", _digits.FITTED: 0.0}
    rows = [
        {"digits": "2", "parts": 30, "covariance": REBUILT, "K": None},
        common | {"K": 10, HELD_OUT: -3.0},
        common | {"K": 20, HELD_OUT: -2.0},
        common | {"K": 30, HELD_OUT: -9.0},
        common | {"K": 40, HELD_OUT: -1.0, "parts": 100},
    ]
    assert [(row["parts"], row["K"]) for row in figures_3_28_3_45.summary(rows)] == [(30, 20), (100, 40)]


def test_ink_is_the_share_of_even_pixels():
    components = np.array([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, 3.0, 0.0], [2.0, 2.0, 0.0, 0.0]])
    np.testing.assert_allclose(features.ink(components), [1, 0.25, 0.5])


# -- quick runs on small digits -----------------------------------------------------------------------


@lru_cache
def quick_run(name):
    """The result of a quick run, for all tests that look at it; small digits must be in place."""
    return REPRODUCTIONS[name].run(quick=True)


@pytest.mark.parametrize("name", REPRODUCTIONS)
def test_quick_run_on_small_digits(digits, name, tmp_path):
    result = quick_run(name)
    check_quick_run(result, tmp_path)
    assert all(record.get("falls", 0) == 0 for record in result.records)
    shares = ("called a 2", "like a digit", "told apart", "confidence", "called right")
    assert all(0 <= record[key] <= 1 for record in result.records for key in shares if record.get(key))


def test_seed_decides_the_result(digits):
    result = quick_run("000/figures-3.7-3.22")
    for function in CACHED:
        function.cache_clear()
    assert result.reproduction.measure(result.settings, seed=0) == result.records
    assert result.reproduction.measure(result.settings, seed=1) != result.records


def test_references_come_before_the_models_of_their_sources(digits):
    records = quick_run("000/figures-3.46-3.57").records
    assert [record["K"] for record in records] == [REBUILT, SHUFFLED, OTHERS, 10, 10, REBUILT, SHUFFLED, 2]
    assert [HELD_OUT in record for record in records] == [False] * 3 + [True] * 2 + [False] * 2 + [True]


def test_parts_make_better_held_out_digits_than_prototypes(digits):
    error = {record["components"]: record["error, held out"] for record in quick_run("004/features").records}
    assert error["eigenvectors"] < error["parts"] < error["prototypes"]
