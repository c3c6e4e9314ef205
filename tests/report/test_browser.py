"""Reports in a real browser: what is seen, what can be done, and that nothing else happens."""

import base64
import re
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from latently.mixture import MCFA, MFA
from latently.report import write_report
from latently.report._still import COLOURS
from tests.report.cases import NASTY, digits, mcfa, search, wine
from tests.report.conftest import CHROMIUM, FLAGS

WORD = r'yMin="([\d.]+)"[^>]*>([^<]*)<'  # in the boxes of pdftotext


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def wine_page(folder):
    X, y, names = wine()
    path = folder / "wine.html"
    return write_report(path, mcfa(), X, feature_names=names, labels=y, selection=search(), title="Wine")


def places(page):
    """(n, 2) where the points are on the screen, and their components."""
    data = page.evaluate("JSON.parse(document.getElementById('rows').textContent)")
    box = page.locator("#points").bounding_box()
    across, up = (
        np.frombuffer(base64.b64decode(data["axes"][i]["data"]), "<u2") / 65534 for i in data["first"]
    )
    x = box["x"] + (across + 0.04) / 1.08 * box["width"]
    y = box["y"] + (1 - (up + 0.04) / 1.08) * box["height"]
    return np.stack([x, y], axis=1), np.frombuffer(base64.b64decode(data["groups"][0]["data"]), "u1")


def alone(where):
    """A row whose point is far from all others."""
    apart = np.linalg.norm(where[:, None] - where, axis=2) + 1e9 * np.eye(len(where))
    return int(np.argmax(apart.min(axis=1)))


def painted(page):
    """How many pixels the points cover well, and the colours there."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page.evaluate(
        """() => {
          const source = document.getElementById("points");
          const copy = document.createElement("canvas");
          [copy.width, copy.height] = [source.width, source.height];
          const context = copy.getContext("2d");
          context.drawImage(source, 0, 0);
          const pixels = context.getImageData(0, 0, copy.width, copy.height).data;
          const colours = new Set();
          let covered = 0;
          for (let i = 0; i < pixels.length; i += 4)
            if (pixels[i + 3] > 120) {
              covered++;
              colours.add([pixels[i] >> 4, pixels[i + 1] >> 4, pixels[i + 2] >> 4].join());
            }
          return [covered, [...colours].sort()];
        }"""
    )


# -- what is seen -------------------------------------------------------------------------------------------


def test_content_can_be_read(visit, wine_page):
    page = visit(wine_page)
    assert page.title() == "Wine" and page.locator("h1").inner_text() == "Wine"
    headings = page.locator("h2").all_inner_texts()
    assert "Distinguishing features of each component" in headings and "Next steps" in headings
    for chart in page.locator("svg.chart:visible").all():
        assert chart.bounding_box()["width"] > 100
    assert page.locator("nav a").count() == len(headings)
    assert page.get_by_role("img", name="Convergence").count() == 1


def test_points_are_drawn_by_webgl(visit, wine_page):
    page = visit(wine_page)
    assert page.locator("#frame").get_attribute("data-painter") == "webgl2"
    covered, colours = painted(page)
    assert covered > 178 * 10 and len(colours) >= 3


def test_points_lie_where_the_data_say(visit, wine_page):
    page = visit(wine_page)
    where, _ = places(page)
    i = alone(where)
    box = page.locator("#points").bounding_box()
    alpha = page.evaluate(
        """([x, y]) => {
          const source = document.getElementById("points"), copy = document.createElement("canvas");
          [copy.width, copy.height] = [source.width, source.height];
          copy.getContext("2d").drawImage(source, 0, 0);
          return copy.getContext("2d").getImageData(Math.floor(x), Math.floor(y), 1, 1).data[3];
        }""",
        [where[i][0] - box["x"], where[i][1] - box["y"]],
    )
    assert alpha > 120


def test_without_webgl_points_are_drawn_all_the_same(visit, wine_page):
    none = "const old = HTMLCanvasElement.prototype.getContext;"
    none += "HTMLCanvasElement.prototype.getContext = function (kind, ...more) {"
    none += "return kind === 'webgl2' ? null : old.call(this, kind, ...more); };"
    page = visit(wine_page, before=none)
    assert page.locator("#frame").get_attribute("data-painter") == "canvas"
    covered, colours = painted(page)
    assert covered > 178 * 10 and len(colours) >= 3


def test_dark_follows_the_system_and_the_button(visit, wine_page):
    paper = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(wine_page, color_scheme="light"), visit(wine_page, color_scheme="dark")
    white, black = light.evaluate(paper), dark.evaluate(paper)
    assert white == "rgb(255, 255, 255)" and black != white
    before = painted(light)[1]
    light.get_by_role("button", name="Dark", exact=True).click()
    assert light.evaluate(paper) == black and painted(light)[1] != before
    light.get_by_role("button", name="Light", exact=True).click()
    assert light.evaluate(paper) == white and painted(light)[1] == before


@pytest.mark.parametrize("width", [360, 820, 1600])
def test_pages_fit_the_screen(visit, wine_page, width):
    page = visit(wine_page, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_prints_whole_and_light(visit, wine_page):
    page = visit(wine_page, color_scheme="dark")
    dark = painted(page)
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert painted(page) == dark and page.locator("details:not([open])").count() > 0
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    for gone in ("nav", "#plot", "#legend", ".controls"):
        assert not page.locator(gone).first.is_visible()
    assert page.locator(".still").is_visible()


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium on the path")
@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="pdftoppm (poppler-utils) is not installed")
def test_the_points_are_on_the_printed_page(wine_page, folder):
    """Printed by the browser itself, as a user would; canvases come out empty there."""
    run = lambda *command: subprocess.run(command, check=True, capture_output=True, timeout=60)
    pdf = folder / "printed.pdf"
    run(CHROMIUM, *FLAGS, "--no-pdf-header-footer", f"--print-to-pdf={pdf}", wine_page.as_uri())
    pages = run("pdftotext", "-bbox", pdf, "-").stdout.decode().split("<page ")[1:]
    words = [(n, float(y), word) for n, page in enumerate(pages, 1) for y, word in re.findall(WORD, page)]
    texts = [word for *_, word in words]
    first = next(i for i in range(len(words)) if texts[i : i + 5] == "Each point is a row,".split())
    last = next(i for i in range(first, len(words)) if texts[i : i + 3] == "Positions of the".split())
    page, end, _ = words[last]  # the picture is above the table of positions, on its page
    start = words[first][1] if words[first][0] == page else 0.0
    one = ["-singlefile", "-f", str(page), "-l", str(page)]
    run("pdftoppm", "-r", "144", "-png", *one, pdf, pdf.with_suffix(""))
    pixels = np.asarray(Image.open(pdf.with_suffix(".png")).convert("RGB"), dtype=int)
    picture = pixels[int(2 * start) : int(2 * end)].reshape(-1, 3)
    palette = [[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in COLOURS["c"][:3]]
    seen = np.array([np.count_nonzero(np.abs(picture - c).sum(axis=1) < 60) for c in palette])
    assert np.all(seen > 3 * mcfa().weights_ * 178), seen  # the key alone has some 100 of each


def test_without_scripts_the_picture_stands_still(browser, wine_page):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(wine_page.as_uri())
    assert page.locator(".still").is_visible() and not page.locator("#plot").is_visible()
    context.close()


# -- what can be done ---------------------------------------------------------------------------------------


def test_hovering_tells_of_a_row(visit, wine_page):
    page = visit(wine_page)
    page.locator("#plot").scroll_into_view_if_needed()
    where, components = places(page)
    i = alone(where)
    page.mouse.move(*where[i])
    tip = page.locator("#tip")
    assert tip.is_visible()
    text = tip.inner_text()
    assert text.startswith(f"row {i + 1}\n") and f"component {components[i]} (" in text
    assert wine()[1][i] in text and "log density" in text
    page.mouse.move(5, 5)
    assert not tip.is_visible()


def test_every_row_can_be_found(visit, wine_page):
    page = visit(wine_page)
    page.locator("#plot").scroll_into_view_if_needed()
    where, _ = places(page)
    names = []
    for place in where[:40]:
        page.mouse.move(*place)
        names.append(page.locator("#frame").get_attribute("data-row"))
    near = [np.flatnonzero(np.linalg.norm(where - place, axis=1) < 1.5) for place in where[:40]]
    assert all(int(name.removeprefix("row ")) - 1 in rows for name, rows in zip(names, near, strict=True))


def test_a_component_can_be_seen_alone(visit, wine_page):
    page = visit(wine_page)
    everything, _ = painted(page)
    button = page.locator("#legend button[data-code='1']")
    button.click()
    n = int(np.count_nonzero(mcfa().predict(wine()[0]) == 1))
    assert button.get_attribute("aria-pressed") == "true"
    assert page.locator("#told").inner_text() == f"Only component 1: {n} of 178 rows."
    part, _ = painted(page)
    assert 0 < part < 0.7 * everything
    button.click()
    assert button.get_attribute("aria-pressed") == "false" and painted(page)[0] == everything


def test_a_click_on_a_point_picks_its_row(visit, wine_page):
    page = visit(wine_page)
    page.locator("#plot").scroll_into_view_if_needed()
    where, components = places(page)
    i = alone(where)
    page.mouse.click(*where[i])
    assert page.locator("#told").inner_text() == f"Picked row {i + 1}."
    assert page.locator("#row-told strong").inner_text() == f"row {i + 1}"
    assert f"component {components[i]} (" in page.locator("#row-told").inner_text()


def test_colours_follow_the_menu(visit, wine_page):
    page = visit(wine_page)
    seen = [painted(page)[1]]
    for choice in ("by class", "by log density", "by alcohol"):
        page.select_option("#colour", label=choice)
        seen.append(painted(page)[1])
    assert page.locator("#scale").inner_text().startswith("alcohol:")
    assert len(seen[2]) > len(seen[0]) and seen[2] != seen[3]
    page.select_option("#colour", label="by class")
    assert page.get_by_role("button", name="class_2").is_visible() and not page.locator("#scale").is_visible()


def test_axes_follow_the_menus(visit, wine_page):
    page = visit(wine_page)
    first = painted(page)
    page.select_option("#across", label="principal axis 1")
    page.select_option("#up", label="principal axis 2")
    assert painted(page) != first


def test_zoom_and_drag_and_back(visit, wine_page):
    page = visit(wine_page)
    page.locator("#plot").scroll_into_view_if_needed()
    first = painted(page)
    page.get_by_role("button", name="Zoom in").click()
    closer = painted(page)
    assert closer != first
    box = page.locator("#frame").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.down()
    page.mouse.move(box["x"] + 420, box["y"] + 260, steps=4)
    page.mouse.up()
    assert painted(page) != closer
    page.get_by_role("button", name="Show all").click()
    assert painted(page) == first


def test_all_of_it_works_by_keys(visit, wine_page):
    page = visit(wine_page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "frame":
            break
    page.keyboard.press("ArrowRight")
    first = page.locator("#frame").get_attribute("data-row")
    page.keyboard.press("ArrowRight")
    second = page.locator("#frame").get_attribute("data-row")
    assert first.startswith("row ") and second.startswith("row ") and first != second
    assert page.locator("#told").inner_text().startswith(f"{second}.")
    page.keyboard.press("Enter")
    assert page.locator("#told").inner_text().startswith("Only component")
    page.keyboard.press("Escape")
    assert page.locator("#told").inner_text() == "All 178 rows." and not page.locator("#tip").is_visible()
    page.keyboard.press("Tab")  # the legend comes next
    page.keyboard.press("Space")
    assert page.locator("#told").inner_text().startswith("Only component 0")


def test_moving_the_page_does_not_zoom(visit, wine_page):
    page = visit(wine_page)
    page.locator("#plot").scroll_into_view_if_needed()
    first = painted(page)
    box = page.locator("#frame").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.mouse.wheel(0, -200)
    assert painted(page) == first
    page.wait_for_timeout(300)  # the page has moved below the mouse
    box = page.locator("#frame").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 200)
    page.keyboard.down("Control")
    page.mouse.wheel(0, -200)
    page.keyboard.up("Control")
    page.wait_for_timeout(100)
    assert painted(page) != first


# -- what is unusual ----------------------------------------------------------------------------------------


def test_nasty_text_is_shown_and_never_runs(visit, folder):
    X, y, names = wine()
    path = write_report(
        folder / "nasty.html",
        mcfa(),
        X,
        feature_names=[name + NASTY for name in names],
        labels=[label + NASTY for label in y],
        row_names=[f"{i}{NASTY}" for i in range(len(X))],
        selection=search(),
        title=NASTY,
        data_summary={NASTY: NASTY},
    )
    page = visit(path)
    assert page.locator("h1").text_content() == NASTY
    assert page.locator("img").count() == 0
    page.select_option("#colour", label="by class")
    assert page.locator("#legend button").first.text_content().startswith(f"class_0{NASTY}")
    page.locator("#plot").scroll_into_view_if_needed()
    where, _ = places(page)
    page.mouse.move(*where[alone(where)])
    assert page.locator("#tip strong").text_content() == f"{alone(where)}{NASTY}"
    page.select_option("#colour", index=5)
    assert page.locator("#scale").text_content().count(NASTY) == 1 and page.locator("img").count() == 0


@pytest.mark.parametrize(
    ("markup", "directive"),
    [
        ("<style>body { color: red }</style>", "style-src-elem"),
        ("<img src=x onerror=alert(1)>", "img-src"),
        ("<img src='data:,' onerror=alert(1)>", "script-src-attr"),
        ("<iframe src='data:text/html,x'></iframe>", "frame-src"),
    ],
)
def test_the_policy_blocks_what_is_put_in(browser, wine_page, markup, directive):
    page = browser.new_page()
    opened = []
    page.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    page.goto(wine_page.as_uri())
    blocked = page.evaluate(
        """(markup) => new Promise((done) => {
          const blocked = [];
          document.addEventListener("securitypolicyviolation", (event) => {
            blocked.push(event.effectiveDirective);
            setTimeout(() => done(blocked), 200);  // one markup may violate two directives, in any order
          });
          document.body.insertAdjacentHTML("beforeend", markup);
          setTimeout(() => done(blocked), 2000);
        })""",
        markup,
    )
    page.close()
    assert directive in blocked and not opened


def test_pictures_of_rows_are_shown_on_hovering(visit, folder):
    X, y = digits()
    model = MFA(3, 1, random_state=0, n_init=1, max_iter=20, tol=1e-3).fit(X)
    page = visit(write_report(folder / "digits.html", model, X, labels=y, image_shape=(8, 8)))
    for image in page.locator("img").all():
        assert image.evaluate("(image) => image.complete && image.naturalWidth > 8")
    page.locator("#plot").scroll_into_view_if_needed()
    where, _ = places(page)
    i = alone(where)
    page.mouse.move(*where[i])
    levels = page.locator("#tip canvas").evaluate(
        "(c) => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, j) => !(j % 4))"
    )
    assert np.corrcoef(levels, X[i])[0, 1] > 0.999


def test_fifty_thousand_points_are_drawn_and_found(visit, folder):
    rng = np.random.default_rng(0)
    codes = rng.integers(4, size=50_000)
    X = 4 * rng.normal(size=(4, 6))[codes] + rng.normal(size=(50_000, 6))
    model = MCFA(4, 2, random_state=0, n_init=1, max_iter=3, tol=1e-3, prior=None)
    path = write_report(folder / "many.html", model.fit(X[:2000]), X, labels=codes)
    assert path.stat().st_size < 2e6
    page = visit(path)
    assert page.locator("#frame").get_attribute("data-drawn") == "50000"
    assert painted(page)[0] > 3_000
    page.locator("#plot").scroll_into_view_if_needed()
    where, _ = places(page)
    i = int(np.argmax(np.abs(where - where.mean(axis=0)).sum(axis=1)))  # at the rim, where few are
    page.mouse.move(*where[i])
    assert page.locator("#frame").get_attribute("data-row") == f"row {i + 1}"
    page.locator("#legend button[data-code='2']").click()
    assert page.locator("#told").inner_text().endswith("of 50000 rows.")
