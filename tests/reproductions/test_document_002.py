"""Reproductions of document 002: faithful transcription, measures that mean what they say, pictures."""

import math
from itertools import combinations

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.svm import SVC

from latently.datasets import load
from reproductions import available
from reproductions.document_002 import _comparison, tables_5_2_5_3, tables_5_4_5_5
from reproductions.document_002._comparison import BY_CHANCE, BY_KMEANS, FITTED_DENSITY, ONLY, SVM, WORST
from reproductions.plots.planes import image_lines, latent_planes, two_measures
from tests.reproductions.data_sets import skip_without

REPRODUCTIONS = {name: one for name, one in available().items() if name.startswith("002/")}
TABLES = [name for name in REPRODUCTIONS if "tables" in name]


@pytest.fixture
def rows():
    """Two classes along the first of six features, three clusters that overlap."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    X = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 6)) + 0.5 * rng.normal(size=(60, 6)) + 5
    X[:, 0] += 3 * y
    X[:, 1] += 4 * (np.arange(60) % 3)
    return X, y


def fit(method, L, d, rows, **more):
    return _comparison.fitted(method, _comparison.starts_of(L)[0], L, d, *rows, n_starts=2, seed=0, **more)


# -- what was printed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_printed_grids_are_complete(name):
    reproduction = REPRODUCTIONS[name]
    keys = [tuple(record[key] for key in _comparison.KEYS) for record in reproduction.published]
    assert len(set(keys)) == len(keys)
    settings = reproduction.settings
    assert set(keys) == set(_comparison.entries(settings["components"], settings["factors"]))
    assert len(keys) == 9 * 2 + 6 * 2 + 1  # L > 1 stands beside two kinds of starts


@pytest.mark.parametrize("name", TABLES)
def test_printed_numbers_have_the_pattern_the_text_speaks_of(name):
    printed = {(r["method"], r["L"], r["d"]): r for r in REPRODUCTIONS[name].published if r["L"]}
    for (method, L, d), record in printed.items():
        further = [printed.get((method, L, d + step)) for step in (3, 6)]
        assert all(record["SER"] < other["SER"] for other in further if other)
        more = printed.get(({"PPCA": "MPPCA"}.get(method, method), L + 1, d))
        assert more is None or record["SER"] < more["SER"]
        assert (record["R_clus"] == 0) == (L == 1)
        if method == "MFM":
            assert record["R_clas by y"] <= record["R_clas by x"]
        assert abs(record["SER"] - printed["MFM", L, d]["SER"]) < (0.03 if L == 1 else 0.9)


def test_printed_shares_of_faces_are_multiples_of_one_in_372():
    for record in available()["002/tables-5.4-5.5"].published:
        for name in ("P_cc by x", "P_cc by y"):
            wrong = 372 * (1 - record.get(name, 1))
            assert abs(wrong - round(wrong)) < 0.0005 * 372
            assert round(wrong) in (0, 1, 2)


def test_only_the_weight_of_the_source_has_printed_numbers():
    published = REPRODUCTIONS["002/discriminative-weight"].published
    assert {record["weight"] for record in published} == {1}
    assert len({(record["L"], record["d"]) for record in published}) == len(published) == 9
    assert next(r["SER"] for r in published if (r["L"], r["d"]) == (3, 9)) == 23.14


def test_every_model_has_its_starts():
    assert _comparison.entries((1, 2), (3,)) == [
        ("PPCA", ONLY, 1, 3),
        ("MFM", ONLY, 1, 3),
        ("MPPCA", BY_KMEANS, 2, 3),
        ("MFM", BY_KMEANS, 2, 3),
        ("MPPCA", BY_CHANCE, 2, 3),
        ("MFM", BY_CHANCE, 2, 3),
        (SVM, ONLY, None, None),
    ]


# -- measures -----------------------------------------------------------------------------------------


def test_measures_of_ppca_are_those_of_its_closed_form(rows):
    X, y = rows
    found = _comparison.measures(fit("PPCA", 1, 3, rows), X, y, seed=0)
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    values, vectors = values[::-1], vectors[:, ::-1][:, :3]
    noise = values[3:].mean()
    assert found["R_dim"] == pytest.approx(np.mean(noise / values[:3]), rel=1e-6)
    centred = X - X.mean(axis=0)
    for name, shrunken in (("SER", 1 - noise / values[:3]), ("SER, least squares", 1.0)):
        errors = (centred @ vectors * shrunken) @ vectors.T - centred
        ratios = np.linalg.norm(X, axis=1) / np.linalg.norm(errors, axis=1)
        assert found[name] == pytest.approx(20 * math.log10(ratios.mean()), rel=1e-6)
    determinant = np.sum(np.log(values[:3])) + 3 * math.log(noise)
    assert found["ln p(x)"] == pytest.approx(-0.5 * (6 * math.log(2 * math.pi) + determinant + 6), rel=1e-6)
    assert found["R_clus"] == 0
    assert found["purity"] == 0.5
    assert not {"P_cc by x", "R_clas by x"} & set(found)


def test_labels_are_judged_where_the_model_knows_of_them(rows):
    X, y = rows
    model = fit("MFM", 2, 3, rows)
    found = _comparison.measures(model, X, y, seed=0)
    assert found["P_cc by x"] == model.score(X, y)
    assert found["P_cc by x"] > 0.8
    assert found["R_clas by x"] == pytest.approx(1 - model.predict_proba(X).max(axis=1).mean())


@pytest.mark.parametrize("method", ["MPPCA", "MFM"])
def test_turned_factors_have_the_same_density(method, rows):
    X, y = rows
    model = fit(method, 3, 4, rows)
    other = _comparison.turned(model, seed=1)
    np.testing.assert_allclose(other.score_samples(X, y), model.score_samples(X, y), rtol=1e-9)
    np.testing.assert_allclose(
        other.reconstruct(X, least_squares=True), model.reconstruct(X, least_squares=True), rtol=1e-8
    )
    assert np.abs(other.loadings_ - model.loadings_).max() > 0.1
    risk, turned = model.risks(X), other.risks(X)
    np.testing.assert_allclose(turned.clustering, risk.clustering, atol=1e-9)
    assert np.abs(turned.dimension - risk.dimension).max() > 1e-3  # not a property of the density


def test_rows_that_are_judged_were_not_fitted(rows):
    y = rows[1]
    noise = np.random.default_rng(0).normal(size=(60, 40))  # labels can be learnt by heart only
    cuts = StratifiedKFold(2, shuffle=True, random_state=4)
    expected = cross_val_score(SVC(kernel="linear"), noise, y, cv=cuts).mean()
    assert _comparison.cross_validated(SVM, ONLY, None, None, noise, y, 1, 4)["P_cc by x"] == expected < 0.7
    found = _comparison.cross_validated("MFM", ONLY, 1, 20, noise, y, 1, 0)
    assert found["P_cc by x"] < 0.7
    assert found[FITTED_DENSITY] > found["ln p(x)"] + 10
    assert fit("MFM", 1, 20, (noise, y)).score(noise, y) > 0.8


def test_pairs_are_averaged(rows):
    X, y = rows
    other = X.copy()
    other[:, 0] -= 3 * y  # nothing tells the classes apart
    grid = {"components": (1,), "factors": (3,), "starts": 1, "n_jobs": 1, "seed": 0}
    both = _comparison.compare([(X, y), (other, y)], **grid)
    first, second = (_comparison.compare([pair], **grid) for pair in ((X, y), (other, y)))
    assert [record["method"] for record in both] == ["PPCA", "MFM", SVM]
    for mean, one, two in zip(both, first, second, strict=True):
        for name in set(mean) - set(_comparison.KEYS) - {WORST}:
            assert mean[name] == pytest.approx((one[name] + two[name]) / 2)
        if "P_cc by x" in mean:
            assert mean[WORST] == min(one["P_cc by x"], two["P_cc by x"]) < mean["P_cc by x"]
            assert WORST not in one


def test_a_weight_on_labels_tells_more_rows_apart(rows):
    rng = np.random.default_rng(1)
    y = np.arange(200) % 2
    X = rng.normal(size=(200, 4)) * [5.0, 4.0, 3.0, 1.0]
    X[:, 3] += 1.5 * y  # the classes differ where rows vary least
    accuracy = {weight: fit("MFM", 1, 2, (X, y), weight=weight).score(X, y) for weight in (1.0, 100.0)}
    assert accuracy[100.0] > accuracy[1.0] + 0.1


# -- pictures -----------------------------------------------------------------------------------------


def test_border_of_a_plane_is_where_labels_change(rows):
    X, y = rows
    model = fit("MFM", 2, 3, rows)
    points, border = _comparison.plane(model, X, y, X)
    assert points.shape == (60, 2)
    np.testing.assert_array_equal(points[:, 0] > border, model.predict_from_factors(X) == 1)
    across = points[:, 1] - points[:, 1].mean()
    factors = model.transform(X)
    w = model.coef_[0] / np.linalg.norm(model.coef_)
    rest = factors - np.outer(factors @ w, w)
    assert np.sum(across**2) == pytest.approx(np.linalg.norm(rest - rest.mean(axis=0), 2) ** 2)


def test_plane_without_labels_is_that_of_an_svm(rows):
    X, y = rows
    model = fit("PPCA", 1, 3, rows)
    points, border = _comparison.plane(model, X, y, X)
    factors = model.transform(X)
    np.testing.assert_array_equal(
        points[:, 0] > border, SVC(kernel="linear").fit(factors, y).predict(factors) == 1
    )


def test_planes_show_all_points_and_near_borders():
    points = np.random.default_rng(0).normal(size=(20, 2))
    panels = {"near": (points, 0.0), "far": (points, 1e6), "one more": (points, 0.1)}
    figure = latent_planes(panels, np.arange(20) % 2, class_names=("a", "b"), title="t", n_lines=2)
    near, far, third, empty = figure.axes
    assert [len(ax.lines) for ax in (near, far, third)] == [3, 2, 3]
    assert sum(len(line.get_xdata()) for line in far.lines) == 20
    assert far.get_xlim()[1] < 100
    assert not empty.axison


def test_images_lie_in_their_lines():
    lines = {name: np.full((3, 20), shade) for name, shade in (("dark", 0.1), ("light", 0.8))}
    lines["light"][2] = 0.5
    ax = image_lines(lines, (4, 5), title="t").axes[0]
    canvas = np.asarray(ax.images[0].get_array())
    assert canvas.shape == (2 * 6, 3 * 7)
    assert np.all(canvas[1:5, 1:6] == 0.1)
    assert np.all(canvas[7:11, 8:13] == 0.8)
    assert np.all(canvas[7:11, 15:20] == 0.5)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["dark", "light"]


def test_points_of_two_measures_have_their_names():
    lines = {"one": [(1.0, 2.0, "a"), (2.0, 1.0, "b")], "two": [(3.0, 3.0, "c")]}
    ax = two_measures(lines, x="x", y="y", title="t").axes[0]
    assert [text.get_text() for text in ax.texts] == ["a", "b", "c"]
    assert [len(line.get_xdata()) for line in ax.lines] == [2, 1]


# -- data ---------------------------------------------------------------------------------------------


def nearest(X, y, classes):
    """The two classes whose mean rows are nearest."""
    means = {label: X[y == label].mean(axis=0) for label in classes}
    return set(min(combinations(classes, 2), key=lambda pair: np.sum((means[pair[0]] - means[pair[1]]) ** 2)))


def test_pairs_of_objects_are_those_that_are_told():
    skip_without("coil20")
    views = load("coil20")
    assert nearest(views.X_64.astype(float), views.y, range(20)) == set(tables_5_2_5_3.PAIRS[2])
    X, y = tables_5_2_5_3.rows((2, 3))
    np.testing.assert_array_equal(np.bincount(y), [72, 72])
    assert (X.min(), X.max()) >= (0, 0.5)
    assert X.max() <= 1
    assert X.shape[1] == math.prod(tables_5_2_5_3.IMAGE_SHAPE)


def test_pairs_of_people_are_those_that_are_told():
    skip_without("umist")
    X, people = tables_5_4_5_5.faces()
    assert len(X) == 565 == len(np.unique(X, axis=0))
    counts = np.bincount(people)
    assert set(np.argsort(-counts, kind="stable")[:4]) == {*tables_5_4_5_5.PAIRS[0], *tables_5_4_5_5.PAIRS[1]}
    often = np.flatnonzero(counts >= 30).tolist()
    assert nearest(X, people, often) == set(tables_5_4_5_5.PAIRS[2])
    assert [len(tables_5_4_5_5.rows(pair)[0]) for pair in tables_5_4_5_5.PAIRS] == [86, 68, 68]
    image = load("umist").X_full[0].reshape(112, 92) / 255
    small = X[0].reshape(56, 46)
    assert small[3, 5] == pytest.approx(image[6:8, 10:12].mean())
