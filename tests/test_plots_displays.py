"""Displays: the numbers they hold are those of the model, and the drawing shows these numbers."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.path import Path
from scipy.sparse import csr_array
from sklearn.datasets import load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.factorization import BNMF, DeepNLMF, FastNMTF, NLMFClassifier
from latently.mixture import MCFA, MFA, FactorAnalysis, GaussianMixture
from latently.plots import (
    BlocksDisplay,
    ConvergenceDisplay,
    ImageGridDisplay,
    LatentDisplay,
    LikelihoodDisplay,
    LoadingsDisplay,
    ResponsibilitiesDisplay,
    SourcesDisplay,
    blocks,
)
from latently.plots.latent import draw_boundaries, ellipse
from latently.supervised import MFMClassifier, MJFAClassifier, PerClass

SETTINGS = {"random_state": 0, "tol": 1e-4}


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def wine():
    data = load_wine(as_frame=True)
    return data.data / data.data.std(), data.target.to_numpy()


def two_clusters(noise, shared_covariance=False):
    """Two components in a plane of factors, seen in four features."""
    second = np.diag([1.0, 1.0]) if shared_covariance else np.diag([4.0, 0.3])
    return MCFA.from_parameters(
        weights=[0.4, 0.6],
        loadings=[[1.0, 0.0], [0.0, 1.0], [0.5, 0.5], [0.3, -0.4]],
        latent_means=[[-1.0, 1.0], [1.5, 2.5]],
        latent_covariances=[np.diag([1.0, 1.0]), second],
        noise_variance=[noise, 2 * noise, noise, noise],
        shared_covariance=shared_covariance,
    )


def crossings(start, end, lines):
    """(n,) how often the way from each start (n, 2) to its end crosses the lines."""
    cross = lambda a, b: a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]
    total = np.zeros(len(start), dtype=int)
    for line in lines:
        first, last = line[None, :-1], line[None, 1:]
        a, b = start[:, None], end[:, None]
        apart = cross(last - first, a - first) * cross(last - first, b - first) < 0
        total += np.sum(apart & (cross(b - a, first - a) * cross(b - a, last - a) < 0), axis=1)
    return total


# -- factors ------------------------------------------------------------------------------------------


def test_points_are_the_factors_asked_for(wine):
    X, y = wine
    model = MCFA(3, 3, **SETTINGS).fit(X)
    display = LatentDisplay.from_estimator(model, X, axes=(2, 0))
    np.testing.assert_array_equal(display.points, model.transform(X)[:, [2, 0]])
    np.testing.assert_array_equal(display.groups, model.predict(X))
    np.testing.assert_array_equal(display.means, model.latent_means_[:, [2, 0]])
    for k in range(3):
        omega = model.latent_covariances_[k]
        np.testing.assert_array_equal(
            display.covariances[k], [[omega[2, 2], omega[2, 0]], [omega[0, 2], omega[0, 0]]]
        )
    assert display.boundaries == []  # there is a third factor
    assert display.axis_names == ("factor 2", "factor 0")
    by_cultivar = LatentDisplay.from_estimator(model, X, labels=np.array(["a", "b", "c"])[y])
    assert by_cultivar.group_names == ["a", "b", "c"]
    np.testing.assert_array_equal(by_cultivar.groups, y)


def test_ellipses_of_models_without_components_among_the_factors_are_those_of_the_rows(wine):
    X, _ = wine
    model = MFA(2, 2, **SETTINGS).fit(X)
    display = LatentDisplay.from_estimator(model, X)
    for k in range(2):
        own = model.transform(X)[model.predict(X) == k]
        np.testing.assert_allclose(display.means[k], own.mean(axis=0))
        np.testing.assert_allclose(display.covariances[k], np.cov(own.T))
    assert display.boundaries == []
    few = LatentDisplay.from_estimator(model, X, labels=np.arange(len(X)) < 2)
    assert few.ellipse_names == ["False"]  # two rows have no covariance


def test_ellipses_of_classes_have_the_colours_of_their_points(wine):
    X, y = wine
    model = MJFAClassifier(2, 2, **SETTINGS).fit(X, y)
    display = LatentDisplay.from_estimator(model, X)
    assert display.group_names == ["0", "1", "2"]
    assert display.ellipse_names == ["0", "0", "1", "1", "2", "2"]
    np.testing.assert_array_equal(display.means, model.latent_means_.reshape(6, 2))
    lines = display.plot().axes_[0].lines
    of_group = [line.get_color() for line in lines[:3]]
    assert [line.get_color() for line in lines[3:9]] == [of_group[c] for c in (0, 0, 1, 1, 2, 2)]
    assert len(set(of_group)) == 3
    others = LatentDisplay.from_estimator(model, X, labels=np.full(len(X), "wine")).plot().axes_[0]
    assert [line.get_color() for line in others.lines[1:7]] == ["black"] * 6
    assert [text.get_text() for text in others.texts] == ["0", "0", "1", "1", "2", "2"]


def test_ellipse_holds_95_percent():
    rng = np.random.default_rng(0)
    mean, covariance = np.array([3.0, -1.0]), np.array([[2.0, 0.9], [0.9, 0.5]])
    rows = rng.multivariate_normal(mean, covariance, size=20_000)
    inside = Path(ellipse(mean, covariance, 1001)).contains_points(rows).mean()
    assert abs(inside - 0.95) < 5 * np.sqrt(0.95 * 0.05 / 20_000)


@pytest.mark.parametrize("noise", [0.01, 3.0])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("axes", [(0, 1), (1, 0)])
def test_rows_lie_on_the_side_that_predict_tells(noise, shared, axes):
    model = two_clusters(noise, shared)  # with much noise factors are drawn far to the components
    X, _ = model.sample(300, random_state=0)
    display = LatentDisplay.from_estimator(model, X, axes=axes)
    sure = model.predict_proba(X).max(axis=1) > 0.52
    points, component = display.points[sure], model.predict(X)[sure]
    n = len(points) // 2
    n_crossed = crossings(points[:n], points[n : 2 * n], display.boundaries)
    np.testing.assert_array_equal(n_crossed % 2, component[:n] != component[n : 2 * n])


@pytest.mark.parametrize("n_classes", [2, 3])
def test_rows_lie_on_the_side_that_their_factors_tell(n_classes, wine):
    X, y = (part[wine[1] < n_classes] for part in wine)
    model = MFMClassifier(2, 2, **SETTINGS).fit(X, y)
    display = LatentDisplay.from_estimator(model, X)
    highest = np.sort(model._latent_probabilities(X), axis=1)[:, -2:]
    sure = highest[:, 1] - highest[:, 0] > 0.04  # boundaries are found on a grid
    points, decided = display.points[sure], model.predict_from_factors(X)[sure]
    n = len(points) // 2
    pairs = np.random.default_rng(0).permutation(len(points))[: 2 * n].reshape(2, n)
    n_crossed = crossings(points[pairs[0]], points[pairs[1]], display.boundaries)
    differ = decided[pairs[0]] != decided[pairs[1]]
    assert np.all(n_crossed[differ] > 0)
    # regions of three classes need not be convex, and where all three meet the drawn lines leave a gap: a few
    # lines between rows of one class may touch another
    assert np.mean(n_crossed[~differ] > 0) <= (0.0 if n_classes == 2 else 0.05)


def test_lines_far_away_do_not_push_points_together():
    ax = Figure().subplots()
    ax.plot([0.0, 1.0], [0.0, 1.0])
    view = ax.get_xlim(), ax.get_ylim()
    lines = [np.array([[9.0, 0.0], [9.0, 1.0]]), np.array([[-50.0, -50.0], [50.0, 51.0]])]
    draw_boundaries(ax, lines)
    assert len(ax.lines) == 2
    assert (ax.get_xlim(), ax.get_ylim()) == view


def test_pipelines_show_what_their_parts_show(wine):
    X, _ = wine
    pipeline = make_pipeline(StandardScaler(), MCFA(2, 2, **SETTINGS)).fit(X)
    Z = StandardScaler().fit_transform(X)
    whole, part = (LatentDisplay.from_estimator(*pair) for pair in ((pipeline, X), (pipeline[-1], Z)))
    np.testing.assert_array_equal(whole.points, part.points)
    np.testing.assert_array_equal(whole.boundaries[0], part.boundaries[0])
    np.testing.assert_array_equal(
        ResponsibilitiesDisplay.from_estimator(pipeline, X).responsibilities, pipeline[-1].predict_proba(Z)
    )
    display = LoadingsDisplay.from_estimator(pipeline)
    assert display.feature_names == list(X.columns)
    alone = LoadingsDisplay.from_estimator(make_pipeline(pipeline[-1]))
    assert alone.feature_names[:2] == ["x0", "x1"]


def test_models_that_share_nothing_out_have_one_group(wine):
    X, _ = wine
    model = StandardScaler().fit(X)
    display = LatentDisplay.from_estimator(model, X)
    assert display.group_names == ["rows"]
    assert display.plot().axes_[0].get_legend() is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"axes": (0, 2)}, "axes must be two different factors from 0 to 1"),
        ({"axes": (1, 1)}, "axes must be two different factors"),
        ({"axes": (0, 1, 1)}, "axes must be two different factors"),
        ({"labels": [0, 1]}, "labels must have one entry for each of the 5 rows"),
    ],
)
def test_wrong_arguments_of_factors_are_told(arguments, message):
    with pytest.raises(ValueError, match=message):
        LatentDisplay.from_estimator(two_clusters(0.1), np.ones((5, 4)), **arguments)


def test_one_factor_makes_no_plane(wine):
    with pytest.raises(ValueError, match="at least two factors, but this one has 1"):
        LatentDisplay.from_estimator(FactorAnalysis(1).fit(wine[0]), wine[0])


# -- loadings -----------------------------------------------------------------------------------------


def test_loadings_are_those_of_the_model(wine):
    X, _ = wine
    model = MFA(2, 3, **SETTINGS).fit(X)
    display = LoadingsDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.loadings, model.loadings_)
    assert display.feature_names == list(X.columns)
    assert display.titles == ["component 0", "component 1"]
    display.plot()
    for ax, loadings in zip(display.axes_, model.loadings_, strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array(), loadings)
        low, high = ax.images[0].get_clim()
        assert low == -high  # so that white is zero
        assert len(ax.texts) == loadings.size
    assert [label.get_text() for label in display.axes_[0].get_yticklabels()] == list(X.columns)
    common = LoadingsDisplay.from_estimator(MCFA(2, 2, **SETTINGS).fit(X.to_numpy()))
    assert common.loadings.shape == (1, 13, 2)
    assert common.feature_names[-1] == "x12"


def test_components_of_factorisations_are_loadings_too():
    model = BNMF.from_parameters(components=np.arange(1.0, 7.0).reshape(2, 3), activation_probability=0.2)
    display = LoadingsDisplay.from_estimator(model, feature_names="abc")
    np.testing.assert_array_equal(display.loadings[0], model.components_.T)
    assert display.feature_names == ["a", "b", "c"]


def test_many_features_are_named_now_and_then():
    rng = np.random.default_rng(0)
    display = LoadingsDisplay(rng.normal(size=(30, 300, 2))).plot()
    assert len(display.axes_) == 30
    labels = [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert len(labels) <= 40
    assert labels[:2] == ["x0", "x8"]
    assert not display.axes_[0].texts
    LoadingsDisplay(np.zeros((1, 2, 1))).plot()  # nothing to colour


def test_wrong_loadings_are_told(wine):
    X, _ = wine
    with pytest.raises(TypeError, match="GaussianMixture has neither"):
        LoadingsDisplay.from_estimator(GaussianMixture(1).fit(X))
    with pytest.raises(ValueError, match="no factors"):
        LoadingsDisplay.from_estimator(MFA(1, 0).fit(X))
    with pytest.raises(ValueError, match="feature_names must have 13 entries, not 2"):
        LoadingsDisplay.from_estimator(FactorAnalysis(1).fit(X), feature_names=["a", "b"])
    with pytest.raises(ValueError, match="ax must be 3 axes"):
        LoadingsDisplay(np.zeros((3, 2, 1))).plot(Figure().subplots())


# -- responsibilities ---------------------------------------------------------------------------------


def test_rows_stand_by_component_with_the_surest_first(wine):
    X, _ = wine
    model = GaussianMixture(3, covariance_type="diag", **SETTINGS).fit(X)
    display = ResponsibilitiesDisplay.from_estimator(model, X, sure_from=0.95)
    resp = model.predict_proba(X)
    np.testing.assert_array_equal(display.responsibilities, resp)
    np.testing.assert_array_equal(np.sort(display.order), np.arange(len(X)))
    ordered = resp[display.order]
    component, surest = ordered.argmax(axis=1), ordered.max(axis=1)
    assert np.all(np.diff(component) >= 0)
    assert np.all((np.diff(surest) <= 0) | (np.diff(component) > 0))
    np.testing.assert_array_equal(display.uncertain, resp.max(axis=1) < 0.95)
    ax = display.plot().axes_[0]
    np.testing.assert_allclose(ax.images[0].get_array(), ordered.T)
    marks = ax.lines[-1].get_xdata()
    np.testing.assert_array_equal(marks, np.flatnonzero(surest < 0.95))
    assert ax.get_title().startswith(f"{len(marks)} of {len(X)} rows")


def test_rows_too_many_for_a_picture_are_averaged():
    resp = np.random.default_rng(0).dirichlet([0.2, 0.2, 0.2], size=7_003)
    ax = ResponsibilitiesDisplay(resp, names="abc").plot().axes_[0]
    image = np.asarray(ax.images[0].get_array())
    assert image.shape == (3, 500)
    np.testing.assert_allclose(image.sum(axis=0), 1.0)
    np.testing.assert_allclose(image.mean(axis=1), resp.mean(axis=0), atol=1e-3)
    assert ax.get_xlim() == (-0.5, 7_002.5)


def test_classes_are_named_with_their_rows(wine):
    X, y = wine
    model = PerClass(MFA(1, 1)).fit(X, np.array(["a", "b", "c"])[y])
    display = ResponsibilitiesDisplay.from_estimator(model, X).plot()
    counts = np.bincount(display.components)
    labels = [label.get_text() for label in display.axes_[0].get_yticklabels()]
    assert labels == [f"{name} ({count})" for name, count in zip("abc", counts, strict=True)]


def test_wrong_responsibilities_are_told(wine):
    with pytest.raises(TypeError, match="StandardScaler has none"):
        ResponsibilitiesDisplay.from_estimator(StandardScaler().fit(wine[0]), wine[0])
    with pytest.raises(ValueError, match="one column for each of the 3 names"):
        ResponsibilitiesDisplay(np.ones((4, 2)), names="abc")
    with pytest.raises(ValueError, match="sure_from must be a probability"):
        ResponsibilitiesDisplay(np.ones((4, 1)), names="a", sure_from=90)


# -- log densities ------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 0.5, 0.9, 0.95])
def test_threshold_is_the_one_that_classifiers_calibrate(rate, wine):
    X, y = wine
    model = PerClass(MFA(1, 1)).fit(X[::2], y[::2])
    held_out = {"known": X[1::2], "moved": X + 1.0}
    display = LikelihoodDisplay.from_estimator(model, held_out, acceptance=rate)
    assert display.accepted["known"] >= rate - 1e-12
    model.calibrate_rejection(X[1::2], acceptance=rate)
    assert display.threshold == model.reject_below_
    rejecting = LikelihoodDisplay.from_estimator(model, held_out)  # goes by the classifier's own
    assert rejecting.threshold == model.reject_below_
    for name, rows in held_out.items():
        assert rejecting.accepted[name] == model.accepts(rows).mean()


def test_every_row_is_in_its_histogram():
    rng = np.random.default_rng(0)
    sets = {"known": rng.normal(size=200), "unknown": rng.normal(-4.0, 2.0, size=50)}
    sets["lost"] = np.array([-np.inf, -1e6, 0.0, 1e6])
    ax = LikelihoodDisplay(sets, threshold=-2.0).plot().axes_[0]
    filled = [patch for patch in ax.patches if patch.get_fill()]
    assert len(filled) == 3
    for patch, values in zip(filled, sets.values(), strict=True):
        heights, edges, _ = patch.get_data()
        assert heights.sum() == pytest.approx(1.0)
        below = np.searchsorted(edges, -2.0, side="right") - 1
        assert heights[:below].sum() <= np.mean(values < -2.0) <= heights[: below + 1].sum() + 1e-12
    assert ax.lines[0].get_xdata()[0] == -2.0
    low, high = ax.get_xlim()
    assert -20 < low < high < 20
    beyond = sum(np.count_nonzero(values < low) for values in sets.values())
    assert f"{beyond} rows are lower" in ax.get_xlabel()


def test_without_threshold_all_rows_are_accepted(wine):
    X, _ = wine
    display = LikelihoodDisplay.from_estimator(MFA(1, 1).fit(X), X).plot()
    assert display.accepted == {"rows": 1.0}
    assert not display.axes_[0].lines
    np.testing.assert_array_equal(display.log_densities["rows"], MFA(1, 1).fit(X).score_samples(X))
    for values in ([-np.inf, -np.inf], [2.0]):  # no range to draw over
        LikelihoodDisplay({"rows": values}).plot()


def test_wrong_arguments_of_log_densities_are_told(wine):
    model = MFA(1, 1).fit(wine[0])
    with pytest.raises(ValueError, match="acceptance must be a number between 0 and 1"):
        LikelihoodDisplay.from_estimator(model, wine[0], acceptance=95)
    with pytest.raises(ValueError, match="at least one set"):
        LikelihoodDisplay.from_estimator(model, {})
    with pytest.raises(ValueError, match="'rows' must be numbers"):
        LikelihoodDisplay({"rows": [0.0, np.nan]})


# -- all of them --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda model, X: LatentDisplay.from_estimator(model, X),
        lambda model, X: LoadingsDisplay.from_estimator(model),
        lambda model, X: ResponsibilitiesDisplay.from_estimator(model, X),
        lambda model, X: LikelihoodDisplay.from_estimator(model, X, acceptance=0.9),
    ],
    ids=["latent", "loadings", "responsibilities", "likelihood"],
)
def test_drawing_goes_where_it_is_told(make, wine):
    X, _ = wine  # a table with names, which must not be missed anywhere
    display = make(MCFA(2, 2, **SETTINGS).fit(X), X)
    assert not hasattr(display, "figure_")
    assert not plt.get_fignums()
    assert display.plot() is display
    assert plt.get_fignums() == [display.figure_.number]
    figure = Figure()
    ax = figure.subplots()
    display.plot(ax)
    assert display.axes_ == [ax]
    assert display.figure_ is figure
    assert ax.has_data()
    assert len(plt.get_fignums()) == 1
    figure.canvas.draw()


# -- non-linear factorisations ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def layer():
    rng = np.random.default_rng(0)
    X, y = rng.random((40, 6)), np.arange(40) % 3
    return NLMFClassifier(4, sigma2=0.1, max_iter=4, tol=0.0, random_state=0).fit(X, y)


def test_components_are_shown_with_their_offset_and_classes_as_images(layer):
    display = ImageGridDisplay.from_estimator(layer, (2, 3), scale=None)
    assert display.labels == ["", "", "", "", "offset"]
    np.testing.assert_allclose(display.ink[4].ravel(), np.clip(layer.offset_, 0, 1))
    classes = ImageGridDisplay.from_classes(layer, (2, 3), scale=None)
    np.testing.assert_allclose(classes.ink[1].ravel(), np.clip(layer.coef_[1] @ layer.components_, 0, 1))
    assert classes.labels == ["0", "1", "2"]
    stack = DeepNLMF((4, 2), max_iter=2, tol=0.0).fit(
        np.random.default_rng(0).random((40, 6)), np.arange(40) % 3
    )
    first, second = stack.layers_
    through = ImageGridDisplay.from_classes(stack, (2, 3), scale=None).ink[0].ravel()
    np.testing.assert_allclose(
        through, np.clip(second.coef_[0] @ second.components_ @ first.components_, 0, 1)
    )
    with pytest.raises(TypeError, match="no coef_ and components_"):
        ImageGridDisplay.from_classes(BNMF(), (2, 3))


def test_both_parts_of_the_cost_add_up(layer):
    display = ConvergenceDisplay.from_parts(layer)
    np.testing.assert_allclose(sum(display.histories.values()), layer.history_)
    assert len(display.plot().axes_[0].lines) == 4  # a line and its end for each part


def test_sources_are_shown_beside_their_map(layer):
    display = SourcesDisplay.from_estimator(layer, n_bins=20)
    assert np.sum(display.density * np.diff(display.edges)) == pytest.approx(1.0)
    s, f = display.curve
    np.testing.assert_allclose(f, np.tanh(s))
    assert s[0] == pytest.approx(layer.activations_.min())
    display.plot()


# -- co-clusters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_are_sorted_and_have_borders(sparse, monkeypatch):
    rng = np.random.default_rng(0)
    z, c = rng.integers(3, size=40), rng.integers(2, size=30)
    X = 1.0 + z[:, None] + 3.0 * c
    model = FastNMTF(3, 2, random_state=0).fit(X)
    given = csr_array(X) if sparse else X
    display = BlocksDisplay.from_estimator(model, given)
    rows, columns = model.row_labels_, model.column_labels_
    np.testing.assert_array_equal(display.row_borders, np.cumsum(np.bincount(rows))[:-1])
    np.testing.assert_array_equal(display.column_borders, np.cumsum(np.bincount(columns))[:-1])
    by_row, by_column = np.argsort(rows, kind="stable"), np.argsort(columns, kind="stable")
    np.testing.assert_array_equal(display.image, X[by_row][:, by_column])
    drawn = display.plot()
    assert len(drawn.axes_[0].lines) == 3
    monkeypatch.setattr(blocks, "_MOST", 7)
    small = BlocksDisplay(given, rows, columns).image
    down, across = (np.linspace(0, size, 8).astype(int)[1] for size in (40, 30))
    corner = X[display.row_order][:, display.column_order][:down, :across]
    assert small.shape == (7, 7)
    assert small[0, 0] == pytest.approx(corner.mean())
    with pytest.raises(TypeError, match="no clusters of columns"):
        BlocksDisplay.from_estimator(BNMF(), X)
    with pytest.raises(ValueError, match="one row for each of row_labels"):
        BlocksDisplay(X, rows[:-1], columns)


def test_signs_have_the_colours_of_reports():
    from latently.plots.loadings import SIGNED
    from latently.report._images import sprite

    for value in (-1.0, 1.0):
        drawn = sprite([[value, -value]], (1, 2), n_columns=1, limits=None)[0, 0, :3] / 255
        assert np.allclose(SIGNED((value + 1) / 2)[:3], drawn, atol=0.01)
