"""Selections, searches and files of a report, in a real browser: what one part selects, all parts show."""

import csv
import io
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from latently.mixture import MCFA
from latently.report import write_report
from tests.report.cases import mcfa, wine
from tests.report.test_browser import places

FORMULA = "=1+1"


@pytest.fixture(scope="module")
def wine_page(tmp_path_factory):
    X, y, names = wine()
    names = [FORMULA, *names[1:]]
    return write_report(
        tmp_path_factory.mktemp("linked") / "w.html", mcfa(), X, feature_names=names, labels=y
    )


@pytest.fixture
def page(visit, wine_page):
    return visit(wine_page, viewport={"width": 1200, "height": 1000})


def selected(page):
    found = page.evaluate("rows.selected && [...rows.selected]")
    return None if found is None else np.flatnonzero(found)


def saved(page, button):
    with page.expect_download() as waiting:
        button.click()
    return waiting.value.suggested_filename, Path(waiting.value.path()).read_bytes()


def drag(page, start, end, keys=()):
    for key in keys:
        page.keyboard.down(key)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*((a + b) / 2 for a, b in zip(start, end, strict=True)))
    page.mouse.move(*end)
    page.mouse.up()
    for key in keys:
        page.keyboard.up(key)


def test_a_component_is_selected_everywhere(page):
    own = np.flatnonzero(mcfa().predict(wine()[0]) == 2)
    page.locator("tr[data-code='2'] button").click()
    np.testing.assert_array_equal(selected(page), own)
    assert page.locator("#selected-told").inner_text().startswith(f"{len(own)} of 178 rows selected")
    assert page.locator("#selected-rows tbody tr").count() == min(len(own), 50)
    assert page.locator("tr[data-code='2'] small").inner_text() == f"{len(own)} selected"
    assert page.locator("tr[data-code='1'] small").inner_text() == ""
    assert page.locator(".cells .dim").count() == 2 * page.locator(".cells [data-group='2']").count()
    assert page.locator("path.chosen[d^=M]").count() >= 13  # a part of every histogram
    page.get_by_role("button", name="Select none").click()
    assert selected(page) is None and page.locator("path.chosen[d^=M]").count() == 0


def test_the_lasso_selects_what_is_inside(page):
    page.locator("#plot").scroll_into_view_if_needed()
    where, _ = places(page)
    middle, (left, top) = np.median(where[:, 1]), where.min(axis=0) - 8
    box = page.locator("#frame").bounding_box()
    corners = [
        (left, top),
        (box["x"] + box["width"] - 15, top),
        (box["x"] + box["width"] - 15, middle),
        (left, middle),
    ]
    page.get_by_role("button", name="Lasso").click()
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in corners[1:]:
        page.mouse.move(*corner)
    page.mouse.up()
    np.testing.assert_array_equal(selected(page), np.flatnonzero(where[:, 1] < middle))
    page.keyboard.press("Escape")


def test_a_histogram_selects_a_range(page):
    spark = page.locator("svg.spark[data-column='12']")
    spark.scroll_into_view_if_needed()
    box, given = spark.bounding_box(), spark.evaluate("(s) => ({...s.dataset})")
    low, high = float(given["low"]), float(given["high"])
    y = box["y"] + box["height"] / 2
    drag(page, (box["x"] + 0.5 * box["width"], y), (box["x"] + box["width"] + 9, y))
    found, proline = selected(page), wine()[0][:, 12]
    at = low + 0.5 * (high - low)
    clear = np.abs(proline - at) > 0.02 * (high - low)
    np.testing.assert_array_equal(np.isin(np.arange(178), found)[clear], (proline >= at)[clear])
    assert "high proline (+" in page.locator("#selected-traits").inner_text()


def test_a_pair_of_features_selects_a_rectangle(page):
    box = page.locator(".pair").first
    box.scroll_into_view_if_needed()
    place = box.bounding_box()
    drag(
        page,
        (place["x"] + 2, place["y"] + 2),
        (place["x"] + place["width"] - 2, place["y"] + 0.5 * place["height"]),
    )
    name = box.locator("canvas").get_attribute("aria-label").split(" against ")[0]
    values = wine()[0][:, wine()[2].index(name)]
    found = np.isin(np.arange(178), selected(page))
    middle = 0.5 * (values.min() + values.max())
    clear = np.abs(values - middle) > 0.03 * np.ptp(values)
    np.testing.assert_array_equal(found[clear], (values > middle)[clear])


def test_conditions_select_rows(page):
    X, y, _ = wine()
    expected = {
        "proline > 4": X[:, 12] > 4,
        "log density < -20": mcfa().score_samples(X) < -20,
        "class = class_1": y == "class_1",
        "component = 0": mcfa().predict(X) == 0,
    }
    for text, rows in expected.items():
        page.fill("#find-row", text)
        page.locator("#find-row").press("Enter")
        np.testing.assert_array_equal(selected(page), np.flatnonzero(rows))


def test_a_row_is_found_by_its_number(page):
    page.fill("#find-row", "122")
    page.get_by_role("button", name="Find", exact=True).click()
    assert page.evaluate("rows.picked") == 121
    assert page.locator("tr.picked th").first.inner_text() == "row 122"  # the least probable one
    for nonsense in ("9999", "nothing < 3", "proline > many"):
        page.fill("#find-row", nonsense)
        page.keyboard.press("Enter")
        assert page.locator("#selected-told").inner_text().startswith(("There is no", "This page has no"))
    assert page.evaluate("rows.picked") == 121


def test_the_selection_is_saved_as_csv(page):
    X, y, _ = wine()
    page.fill("#find-row", "proline > 4")
    page.keyboard.press("Enter")
    name, content = saved(page, page.get_by_role("button", name="Save these rows as CSV"))
    lines = list(csv.DictReader(io.StringIO(content.decode())))
    chosen = np.flatnonzero(X[:, 12] > 4)
    assert name == "selected-rows.csv" and [int(line["row"]) for line in lines] == (chosen + 1).tolist()
    np.testing.assert_allclose([float(line["proline"]) for line in lines], X[chosen, 12], rtol=1e-6)
    assert [line["class"] for line in lines] == y[chosen].tolist()
    assert [int(line["component"]) for line in lines] == mcfa().predict(X[chosen]).tolist()
    assert "'" + FORMULA in lines[0] and FORMULA not in lines[0]  # spreadsheets do not run it


def test_pictures_are_saved(page):
    figure = page.locator("#convergence figure").first
    name, content = saved(page, figure.get_by_role("button", name="SVG"))
    root = ElementTree.fromstring(content)
    assert name == "convergence.svg" and root.tag.endswith("svg")
    curve = next(part for part in root.iter() if part.tag.endswith("path"))
    assert curve.get("stroke").startswith("rgb") and "class" not in curve.attrib
    name, content = saved(page, figure.get_by_role("button", name="PNG"))
    assert name == "convergence.png" and Image.open(io.BytesIO(content)).size == (1480, 500)
    page.locator("#plot").scroll_into_view_if_needed()
    name, content = saved(page, page.locator("#scatter-figure .save").get_by_role("button", name="PNG"))
    colours = np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).reshape(-1, 3)
    assert len(np.unique(colours // 16, axis=0)) > 8


def test_classes_never_have_the_colours_of_components(page):
    fills = lambda where: set(
        page.evaluate(f"[...document.querySelectorAll('{where}')].map((e) => getComputedStyle(e).fill)")
    )
    components = fills("#components tr[data-code] th .swatch path")
    classes = fills("#components ul.key .swatch path")
    assert len(components) == len(classes) == 3 and not components & classes
    page.select_option("#colour", label="by class")
    assert fills("#legend .swatch path") == classes
    page.select_option("#colour", label="by component")
    assert fills("#legend .swatch path") == components


@pytest.mark.slow
def test_fifty_thousand_points_move_smoothly(visit, tmp_path):
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=50_000)
    X = 4 * rng.normal(size=(4, 6))[codes] + rng.normal(size=(50_000, 6))
    model = MCFA(4, 2, random_state=0, n_init=1, max_iter=3, tol=1e-3, prior=None).fit(X[:2000])
    page = visit(write_report(tmp_path / "many.html", model, X, labels=codes))
    page.locator("#plot").scroll_into_view_if_needed()
    cost = page.evaluate(
        """() => new Promise((done) => {
          const frame = document.getElementById("frame"), costs = [];
          let last = performance.now();
          const step = (now) => {
            costs.push(now - last);
            last = now;
            if (costs.length > 25) return done(costs.slice(5).sort((a, b) => a - b)[10]);
            frame.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft", shiftKey: true }));
            requestAnimationFrame(step);
          };
          requestAnimationFrame(step);
        })"""
    )
    assert cost < 200  # 20 frames a second, 50 ms, on a quiet machine; tests share theirs
    started = time.process_time()
    page.evaluate("rows.selectWhere((i) => rows.axes[0].at(i) > 5, 'a half')")
    assert page.locator("#selected-told").inner_text().endswith("The first 50 are listed.")
    assert time.process_time() - started < 5
