"""Pictures of parts, rows on principal axes and convergence: their numbers, and that they can be drawn."""

import matplotlib

matplotlib.use("Agg")

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from sklearn import mixture as sklearn_mixture
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from latently.factorization import PCA, VectorQuantizer
from latently.generate import CodebookGenerator, SourceDensity
from latently.mixture import MCFA, MFA, FactorAnalysis, GaussianMixture, NestedMixture
from latently.plots import ConvergenceDisplay, ImageGridDisplay, PrincipalAxesDisplay, image_grid

FAST = {"random_state": 0, "tol": 1e-2, "n_init": 1}
X = np.random.default_rng(0).normal(size=(80, 6)) @ np.random.default_rng(1).normal(size=(6, 6)) + 3.0


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


# -- images -----------------------------------------------------------------------------------------

IMAGES = np.random.default_rng(0).normal(size=(7, 12)) * np.arange(1, 8)[:, None]


def test_pictures_lie_on_the_canvas_as_they_are():
    display = ImageGridDisplay(IMAGES, (4, 3), n_columns=3, scale="single")
    assert display.ink.shape == (7, 4, 3)
    for image, ink, (top, left) in zip(IMAGES, display.ink, display.corners, strict=True):
        low, high = image.min(), image.max()
        np.testing.assert_allclose(ink, ((image - low) / (high - low)).reshape(4, 3), rtol=1e-12)
        np.testing.assert_array_equal(display.canvas[top : top + 4, left : left + 3], ink)
    assert np.isfinite(display.canvas).sum() == 7 * 12  # nothing else, and no picture over another
    tops = sorted({top for top, _ in display.corners})
    assert len(tops) == 3 and len({left for _, left in display.corners}) == 3


def test_scaled_together_pictures_can_be_compared():
    together = ImageGridDisplay(IMAGES, (4, 3), scale="together").ink.reshape(7, -1)
    inside = (together > 0) & (together < 1)
    slope, offset = np.polyfit(IMAGES[inside], together[inside], 1)
    np.testing.assert_allclose(together[inside], slope * IMAGES[inside] + offset, atol=1e-12)
    assert slope > 0 and np.mean(inside) > 0.9
    single = ImageGridDisplay(IMAGES, (4, 3), scale="single").ink.reshape(7, -1)
    np.testing.assert_array_equal(single.min(axis=1), 0.0)
    np.testing.assert_array_equal(single.max(axis=1), 1.0)
    as_they_are = ImageGridDisplay(IMAGES, (4, 3), scale=None).ink.reshape(7, -1)
    np.testing.assert_array_equal(as_they_are, np.clip(IMAGES, 0, 1))


def test_a_picture_of_one_value_is_blank():
    assert np.all(ImageGridDisplay(np.full((2, 4), 5.0), (2, 2), scale="single").ink == 0.0)
    assert np.all(np.isfinite(ImageGridDisplay(np.zeros((2, 4)), (2, 2)).ink))


def test_groups_stand_together_with_lines_between():
    groups = [1, 0, 2, 1, 0, 0, 2]
    display = ImageGridDisplay(IMAGES, (4, 3), n_columns=4, groups=groups)
    np.testing.assert_array_equal(display.order, [1, 4, 5, 0, 3, 2, 6])
    plain = ImageGridDisplay(IMAGES[display.order], (4, 3), n_columns=4)
    np.testing.assert_array_equal(display.canvas, plain.canvas)
    assert len(display.separators) == 2 and plain.separators == []
    for number, ((x, _), (y, _)) in zip((3, 5), display.separators, strict=True):  # the first of its group
        top, left = display.corners[number]
        assert left - display.gap - 0.5 <= x <= left - 0.5 and y < top
    display.plot()
    assert len(display.axes_[0].lines) == 2


def test_labels_have_room_where_there_are_any():
    labels = ["a", "", "b", "", "", "", ""]
    display = ImageGridDisplay(IMAGES, (4, 3), n_columns=3, labels=labels)
    plain = ImageGridDisplay(IMAGES, (4, 3), n_columns=3)
    assert display.corners[0][0] > plain.corners[0][0]
    assert display.corners[3][0] - display.corners[0][0] == plain.corners[3][0] - plain.corners[0][0]
    display.plot()
    assert [text.get_text() for text in display.axes_[0].texts] == labels


def test_image_grid_is_a_figure_without_pyplot():
    figure = image_grid(IMAGES, (4, 3), title="parts", labels=list("abcdefg"), groups=np.arange(7) // 4)
    assert isinstance(figure, Figure) and not plt.get_fignums()
    assert figure.get_suptitle() == "parts"


def test_images_of_estimators():
    codebook = CodebookGenerator(n_groups=3, random_state=0).fit(X[:10])
    display = ImageGridDisplay.from_estimator(codebook, (2, 3))
    np.testing.assert_array_equal(np.sort(display.groups), np.sort(codebook.labels_))
    assert len(display.separators) == 2
    for model, n in (
        (PCA(4).fit(X), 4),
        (GaussianMixture(3, **FAST).fit(X), 3),
        (NestedMixture(2, 2, **FAST).fit(X), 4),
    ):
        assert ImageGridDisplay.from_estimator(model, (3, 2), scale="single").ink.shape == (n, 3, 2)
    with pytest.raises(TypeError, match="StandardScaler has no components_"):
        ImageGridDisplay.from_estimator(StandardScaler(), (3, 2))


@pytest.mark.parametrize(
    "options, says",
    [
        ({"image_shape": (4, 4)}, "images must be rows"),
        ({"scale": "both"}, "scale must be"),
        ({"labels": ["a"]}, "labels must have one entry"),
        ({"groups": [0, 1]}, "groups must have one entry"),
    ],
)
def test_images_that_cannot_be_shown(options, says):
    with pytest.raises(ValueError, match=says):
        ImageGridDisplay(IMAGES, **{"image_shape": (4, 3), **options})


# -- principal axes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [X, X[:4]], ids=["many rows", "few rows"])
def test_axes_are_those_of_pca(rows):
    display = PrincipalAxesDisplay(rows)
    pca = PCA(2).fit(rows)
    np.testing.assert_allclose(np.abs(display.principal_axes @ pca.components_.T), np.eye(2), atol=1e-9)
    np.testing.assert_allclose(
        display.points, (rows - rows.mean(axis=0)) @ display.principal_axes.T, atol=1e-12
    )
    total = rows.var(axis=0, ddof=1).sum()
    np.testing.assert_allclose(display.variance_shares, pca.explained_variance_ / total, rtol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        *(GaussianMixture(6, covariance_type=kind, **FAST) for kind in ("full", "tied", "diag", "spherical")),
        MFA(2, 2, **FAST),
        MCFA(2, 2, **FAST),
        FactorAnalysis(2, tol=1e-2),
        sklearn_mixture.GaussianMixture(2, covariance_type="diag", random_state=0),
        NestedMixture(2, 2, **FAST),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'covariance_type', '')}",
)
def test_ellipses_are_the_projected_gaussians(model):
    """Against draws: those of a component, projected, have its projected mean and covariance."""
    model.fit(X)
    display = PrincipalAxesDisplay.from_estimator(model, X)
    flat = model.collapse() if isinstance(model, NestedMixture) else model
    drawn, components = (
        flat.sample(60_000, random_state=0) if "latently" in type(flat).__module__ else flat.sample(60_000)
    )
    shown = display.project(drawn)
    assert len(display.means) == len(np.unique(components))
    for k, (mean, covariance) in enumerate(zip(display.means, display.covariances, strict=True)):
        own = shown[components == k]
        size = np.sqrt(np.trace(covariance))
        np.testing.assert_allclose(own.mean(axis=0), mean, atol=0.1 * size)
        np.testing.assert_allclose(np.cov(own.T), covariance, atol=0.1 * size**2)


def test_sources_and_prototypes_and_codebooks():
    density = SourceDensity(PCA(3), GaussianMixture(2, **FAST)).fit(X)
    of_sources = PrincipalAxesDisplay.from_estimator(density, X)
    assert of_sources.principal_axes.shape == (2, 3) and of_sources.covariances.shape == (2, 2, 2)
    prototypes = VectorQuantizer(4, random_state=0).fit(X)
    shown = PrincipalAxesDisplay.from_estimator(prototypes, X)
    np.testing.assert_allclose(shown.means, shown.project(prototypes.components_))
    np.testing.assert_allclose(shown.marks["start"], shown.project(prototypes.starts_))
    codebook = CodebookGenerator(n_groups=3, random_state=0).fit(X[:12])
    elements = PrincipalAxesDisplay.from_estimator(codebook)
    assert elements.group_names == ["group 0", "group 1", "group 2"] and elements.points.shape == (12, 2)
    np.testing.assert_array_equal(elements.groups, codebook.labels_)
    for display in (of_sources, shown, elements):
        assert display.plot().figure_ is display.axes_[0].figure
    scaled = make_pipeline(StandardScaler(), GaussianMixture(2, **FAST)).fit(X)
    inside = PrincipalAxesDisplay.from_estimator(scaled, X)
    np.testing.assert_allclose(inside.center, 0.0, atol=1e-12)


def test_as_many_ellipses_as_components():
    display = PrincipalAxesDisplay.from_estimator(
        GaussianMixture(3, **FAST).fit(X), X, labels=np.arange(80) % 2
    )
    assert display.group_names == ["0", "1"]
    ax = Figure().subplots()
    assert display.plot(ax).axes_ == [ax]
    assert len(ax.lines) == 2 + 3 + 1  # groups, ellipses, means


def test_rows_that_cannot_be_shown():
    with pytest.raises(ValueError, match="at least two rows and two features"):
        PrincipalAxesDisplay(X[:, :1])
    with pytest.raises(ValueError, match="finite numbers"):
        PrincipalAxesDisplay(np.where(X > 4, np.nan, X))
    with pytest.raises(ValueError, match="labels must have one entry"):
        PrincipalAxesDisplay(X, labels=[1, 2])
    with pytest.raises(ValueError, match="X must be given"):
        PrincipalAxesDisplay.from_estimator(GaussianMixture().fit(X))
    with pytest.raises(TypeError, match="no means_"):
        PrincipalAxesDisplay.from_estimator(sklearn_mixture.GaussianMixture(), X)


# -- convergence ------------------------------------------------------------------------------------


def test_convergence():
    models = {K: GaussianMixture(K, **FAST).fit(X) for K in (1, 3)}
    display = ConvergenceDisplay.from_estimator(models).plot()
    assert list(display.histories) == ["1", "3"]
    curves = display.axes_[0].lines[::2]
    for curve, model in zip(curves, models.values(), strict=True):
        np.testing.assert_array_equal(curve.get_ydata(), model.history_)
    one = ConvergenceDisplay.from_estimator(make_pipeline(StandardScaler(), models[3]), label="cost")
    assert list(one.histories) == ["GaussianMixture"] and one.plot().axes_[0].get_ylabel() == "cost"


def test_nothing_converged():
    known = GaussianMixture.from_parameters(weights=[1.0], means=np.zeros((1, 2)), covariances=np.eye(2))
    with pytest.raises(ValueError, match="contains no objectives"):
        ConvergenceDisplay.from_estimator(known)
    with pytest.raises(TypeError, match="no history_"):
        ConvergenceDisplay.from_estimator(PCA(2).fit(X))
    with pytest.raises(ValueError, match="at least one history"):
        ConvergenceDisplay({})
