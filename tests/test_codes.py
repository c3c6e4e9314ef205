"""Pictures of binary codes, as plots and in reports."""

import numpy as np
import pytest

from latently.datasets import load_griffiths
from latently.distributions import left_ordered_form
from latently.factorization import MEIBP, NMF
from latently.plots import CodesDisplay
from latently.report import write_report


@pytest.fixture(scope="module")
def images():
    return load_griffiths(80, noise=0.3, random_state=0)


@pytest.fixture(scope="module")
def model(images):
    return MEIBP(init_components=6, n_init=1, max_iter=20, random_state=0).fit(images.X)


def test_the_picture_has_the_codes_sorted(model, images):
    display = CodesDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.image, left_ordered_form(display.image))
    sorted_rows = model.codes_[display.order]
    assert sorted(map(tuple, display.image.T)) == sorted(map(tuple, sorted_rows.T))
    changes = np.any(np.diff(display.image, axis=0) != 0, axis=1).sum()
    assert changes + 1 == len(np.unique(model.codes_, axis=0))  # equal codes stand together
    np.testing.assert_array_equal(np.sort(display.counts), np.sort(model.codes_.sum(axis=0)))
    assert display.plot().axes_[0].get_images()[0].get_array().shape == display.image.shape
    some = CodesDisplay.from_estimator(model, images.X[:10])
    assert some.image.shape == (10, model.codes_.shape[1])


def test_without_codes_there_is_no_picture():
    assert CodesDisplay(np.zeros((3, 0))).plot().image.shape == (3, 0)
    with pytest.raises(ValueError, match="codes must be an array of 0 and 1"):
        CodesDisplay([[0.5]])
    with pytest.raises(TypeError, match="NMF has no binary codes"):
        CodesDisplay.from_estimator(NMF(2).fit(np.ones((4, 3)) + np.eye(4, 3)))


def test_reports_show_the_codes(model, images, tmp_path):
    write_report(tmp_path / "r.html", model, images.X, image_shape=(6, 6))
    page = (tmp_path / "r.html").read_text()
    assert 'id="codes"' in page and "binary features" in page
    sizes = np.bincount(model.predict_codes(images.X).sum(axis=1))
    assert sizes.sum() == 80
    each = model.predict_codes(images.X).sum(axis=0)
    assert f"1: {each[0]}" in page and f"2: {each[1]}" in page
    own = page[page.index('id="codes"') :].partition("</section>")[0]
    assert own.count("data:image/png") == 2  # the codes and the features
