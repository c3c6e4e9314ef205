"""The page as a file: whole, safe, the same each time, and with something to say for every model."""

import io
import re
import stat
import sys
import warnings
from base64 import b64decode
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import latently
from latently.factorization import NLMF, NMTF, DeepNLMF, FastNMTF, NLMFClassifier
from latently.mixture import MCFA, MFA, GaussianMixture
from latently.report import Report, report, write_report
from latently.report import _charts as charts
from latently.report._advice import next_steps
from latently.report._facts import Facts
from latently.report._grid import grid_of
from latently.report._images import data_uri, sprite
from latently.report._markup import Markup, element, script_data, source_hash
from latently.report._page import _asset
from latently.report._still import COLOURS, painted
from latently.selection import select
from tests.report.cases import MODELS, NASTY, Reader, counts, digits, fitted, mcfa, search, wine


def wine_report(**given):
    X, y, names = wine()
    return report(mcfa(), X, **{"feature_names": names, "labels": y, "selection": search()} | given)


@pytest.fixture(scope="module")
def page():
    return Reader(wine_report().html)


# -- the page -----------------------------------------------------------------------------------------------


def test_page_has_every_section(page):
    assert page.headings() == [
        "The data",
        "The model",
        "Model selection",
        "Convergence",
        "Projection of the rows",
        "Explorer",
        "Pairs of features",
        "Components",
        "Distinguishing features of each component",
        "Loadings",
        "Unusual rows",
        "Next steps",
    ]


def links_of(page):
    return [attributes["href"] for tag, attributes in page.elements if tag == "a"]


def test_links_and_descriptions_lead_somewhere(page):
    identifiers = page.all("id")
    assert len(identifiers) == len(set(identifiers))
    named = [name for attribute in ("aria-labelledby", "aria-describedby") for name in page.all(attribute)]
    wanted = {word for names in named for word in names.split()} | {href[1:] for href in links_of(page)}
    assert wanted and wanted <= set(identifiers)


def test_nothing_is_fetched_and_nothing_runs_that_is_not_in_the_file(page):
    assert all(href.startswith("#") for href in links_of(page))
    pictures = page.all("src") + [a["href"] for tag, a in page.elements if tag == "image"]
    assert all(source.startswith("data:image/png;base64,") for source in pictures)
    assert {tag for tag, _ in page.elements}.isdisjoint({"link", "iframe", "object", "embed", "base", "form"})
    for _, attributes in page.elements:  # the policy of the page would block both
        assert "style" not in attributes and not any(name.startswith("on") for name in attributes)


def test_policy_names_the_style_and_the_script_of_the_page():
    html = wine_report().html
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    (style,) = re.findall(r"<style>(.*?)</style>", html, re.DOTALL)
    (script,) = re.findall(r"<script>(.*?)</script>", html, re.DOTALL)
    policy = policy.replace("&#x27;", "'")
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert f"style-src {source_hash(style)};" in policy and f"script-src {source_hash(script)};" in policy


def test_images_and_charts_have_words(page):
    for tag, attributes in page.elements:
        if tag == "img":
            assert attributes["alt"]
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img" and (
                attributes.get("aria-label") or attributes.get("aria-labelledby")
            )
        if attributes.get("tabindex") == "0":
            assert attributes.get("aria-label") or tag == "pre"
    assert page.count("caption") == page.count("table")


def test_same_input_gives_the_same_bytes():
    assert wine_report().html == wine_report().html


def test_typical_files_are_small(tmp_path):
    X, y = digits()
    model = MFA(4, 1, random_state=0, n_init=1, max_iter=20, tol=1e-3).fit(X)
    path = write_report(tmp_path / "digits.html", model, X, labels=y, image_shape=(8, 8))
    assert path.stat().st_size < 1e6
    assert len(wine_report().html) < 3e5


def test_numbers_of_the_model_are_on_the_page(page):
    X, _, names = wine()
    text = page.text()
    for value in (mcfa().bic(X), mcfa().aic(X)):
        assert f"{value:.0f}" in text
    assert all(name in text for name in names)
    assert str(mcfa().n_parameters()) in text


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("with_labels", [False, True])
def test_every_model_has_a_page(name, with_labels):
    model, X = fitted(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = Reader(report(model, X, labels=np.arange(len(X)) % 2 if with_labels else None).html)
    assert {"The data", "The model", "Projection of the rows", "Next steps"} <= set(found.headings())
    assert "nan" not in re.findall(r"[a-z]+", found.text().lower())
    assert ("Loadings" in found.headings()) == (getattr(model, "n_factors", 0) > 0)
    several = hasattr(model, "predict") and len(np.unique(model.predict(X))) > 1
    assert ("Distinguishing features of each component" in found.headings()) == (
        several and name not in ("MJFAClassifier", "PerClass")
    )


@pytest.mark.parametrize("image_shape", [None, (8, 8)])
def test_factorisations_show_sources_and_what_classes_look_for(image_shape):
    X, y = digits()
    options = {"sigma2": 0.05, "max_iter": 4, "tol": 0.0, "random_state": 0}
    model = NLMFClassifier(5, **options).fit(X, y)
    stack = DeepNLMF((5, 3), **options).fit(X, y)
    for one in (model, stack):
        found = Reader(report(one, X, image_shape=image_shape).html)
        assert {"Convergence", "Parts", "Sources", "Class weights"} <= set(found.headings())
        text = found.text()
        assert "The two parts of the cost" in text and "the map tanh" in text
        assert ("The last image is the offset." in text) == (image_shape is not None)
    plain = Reader(report(NLMF(5, **options).fit(X), X, image_shape=image_shape).html)
    assert "Sources" in plain.headings() and "Class weights" not in plain.headings()
    assert "The two parts of the cost" not in plain.text()


@pytest.mark.parametrize("cls", [NMTF, FastNMTF])
def test_co_clusters_show_their_blocks(cls):
    X, _ = digits()
    model = cls(4, 3, n_init=1, max_iter=5, tol=0.0, random_state=0).fit(X)
    holes = X.copy()
    holes[:5, 3] = np.nan
    for rows in (X, holes):
        found = Reader(report(model, rows).html)
        assert {"Blocks", "Row clusters"} <= set(found.headings())
        assert "4 row clusters and 3 column clusters" in found.text()


def test_networks_show_their_training_samples_and_reconstructions():
    deep = pytest.importorskip("latently.deep.vae")
    X = np.clip(digits()[0][:120], 0.0, 1.0)
    options = {"hidden_layer_sizes": (8,), "likelihood": "bernoulli", "max_iter": 3, "random_state": 0}
    model = deep.VAE(2, validation_fraction=0.2, **options).fit(X)
    found = Reader(report(model, X, image_shape=(8, 8)).html)
    assert {"Training", "Projection of the rows"} <= set(found.headings())
    text = found.text()
    assert "trained for 3 epochs" in text and "of rows held out" in text and "ELBO per row" in text
    assert "econstruct" in text and "sample" in text.lower()


def test_outlier_detectors_and_joint_autoencoders_are_shown():
    pytest.importorskip("torch")
    from latently import deep

    X, y = digits()[0][:120], digits()[1][:120]
    options = {"hidden_layer_sizes": (8,), "max_iter": 3, "random_state": 0}
    text = Reader(report(deep.DAGMM(2, 2, **options).fit(X), X).html).text()
    assert "trained for 3 epochs" in text and "anomaly" in text and "loss per row" in text
    found = Reader(
        report(deep.JointAutoencoder(2, **options).fit(X, y), X, labels=y, image_shape=(8, 8)).html
    )
    assert {"Training", "Projection of the rows"} <= set(found.headings())


def test_one_row_is_enough():
    X, y, _ = wine()
    found = Reader(report(mcfa(), X[:1], labels=y[:1]).html)
    assert "1 rows" not in found.text() and "Unusual rows" not in found.headings()


def test_a_feature_that_was_never_observed_is_told():
    model, X = fitted("MFA")
    found = Reader(report(model, np.where(np.arange(4) == 2, np.nan, X)).html)
    assert "not observed in any row" in found.text()


def test_many_features_are_cut_and_it_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 100)) + 3 * (np.arange(60) % 2)[:, None] * (np.arange(100) < 5)
    model = MFA(2, 1, random_state=0, n_init=1, noise="isotropic").fit(X)
    text = Reader(report(model, X, feature_names=[f"gene{j}" for j in range(100)]).html).text()
    assert "40 of 100" in text and "gene4" in text


def test_a_model_elsewhere_is_brought_here():
    torch = pytest.importorskip("torch")
    X, _, _ = wine()
    assert report(mcfa().to("cpu"), X).html == report(mcfa(), X).html
    assert torch.is_tensor(mcfa().to("cpu").weights_)


def test_data_summary_is_told_in_words():
    summary = {
        "file": "a b.csv",
        "columns_left_out": {"id": "text"},
        "standardised": True,
        "more": ["x", None],
    }
    text = Reader(wine_report(data_summary=summary).html).text()
    for words in ("a b.csv", "columns left out", "id: text", "yes", "x, –"):
        assert words in text


# -- text that would be markup ------------------------------------------------------------------------------


def test_nasty_text_is_shown_as_text():
    X, y, names = wine()

    def made(odd):
        return report(
            mcfa(),
            X,
            feature_names=[name + odd for name in names],
            labels=[label + odd for label in y],
            row_names=[f"{i}{odd}" for i in range(len(X))],
            selection=search(),
            title=odd,
            data_summary={f"file{odd}": odd, "left out": {f"a{odd}": [odd]}},
        ).html

    harmless, nasty = Reader(made("x" * len(NASTY))), Reader(made(NASTY))
    assert [tag for tag, _ in nasty.elements] == [tag for tag, _ in harmless.elements]
    assert [sorted(a) for _, a in nasty.elements] == [sorted(a) for _, a in harmless.elements]
    assert nasty.text("title").startswith(NASTY) and nasty.text("h1") == NASTY
    assert f"alcohol{NASTY}" in nasty.text("th") and f"class_0{NASTY}" in nasty.text("li")


def test_nasty_classes_and_settings_are_shown_as_text():
    X, y, _ = wine()
    from latently.supervised import PerClass

    model = PerClass(GaussianMixture(1, covariance_type="diag")).fit(X, [label + NASTY for label in y])
    found = Reader(report(model, X).html)
    assert f"class_0{NASTY}" in found.text("p") and "img" not in {tag for tag, _ in found.elements}


def test_halves_of_characters_do_no_harm(tmp_path):
    X, _, _ = wine()
    path = write_report(tmp_path / "a.html", mcfa(), X, title="a\udc80b", row_names=["\ud800"] * len(X))
    assert "a?b" in path.read_text(encoding="utf-8")


def test_data_of_scripts_cannot_end_them():
    written = script_data("x", {"a": NASTY})
    inner = re.fullmatch(r'<script type="application/json" id="x">(.*)</script>', written).group(1)
    assert not set("<>&\u2028\u2029") & set(inner)
    import json

    assert json.loads(inner) == {"a": NASTY}


def test_text_is_escaped_and_markup_is_not():
    inner = element("b", "<", title='"')
    assert inner == '<b title="&quot;">&lt;</b>' and isinstance(inner, Markup)
    assert element("i", inner, hidden=True, id=None) == f"<i hidden>{inner}</i>"


# -- files --------------------------------------------------------------------------------------------------


def test_an_existing_file_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="disk full"):
        patched.setattr("latently.core.io.os.replace", fail)
        Report("after").save(path)
    assert path.read_text() == "before" and list(tmp_path.iterdir()) == [path]
    assert Report("after").save(str(path)) == path
    assert path.read_text() == "after" and list(tmp_path.iterdir()) == [path]


def test_a_new_file_can_be_read_by_those_who_may(tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    path = Report("x").save(tmp_path / "report.html")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_names_in_the_data_never_become_files(tmp_path):
    X, _, names = wine()
    odd = [f"../../{name}" for name in names]
    folder = tmp_path / "out"
    folder.mkdir()
    write_report(
        folder / "r.html", mcfa(), X, feature_names=odd, title="../x", data_summary={"file": "../../y"}
    )
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "r.html"]


def test_notebooks_show_the_page_in_a_frame_of_its_own():
    (frame,) = Reader(Report(f"<p>{NASTY}")._repr_html_()).elements
    assert (
        frame[0] == "iframe"
        and frame[1]["srcdoc"] == f"<p>{NASTY}"
        and frame[1]["sandbox"] == "allow-scripts"
    )


# -- the search ---------------------------------------------------------------------------------------------


def test_a_table_says_the_same_as_the_search():
    assert wine_report(selection=search().table_).html == wine_report().html


def test_the_best_cell_is_the_one_that_is_framed():
    grid = grid_of(search())
    group, at = grid.display.best
    found = dict(
        zip(
            (grid.display.y_name, grid.display.x_name),
            (grid.display.y_values[at[0]], grid.display.x_values[at[1]]),
            strict=True,
        )
    )
    assert found == search().best_params_ and group == ""
    assert grid.table.iloc[0][grid.parameters].to_dict() == search().best_params_


@pytest.mark.parametrize("criterion", ["bic", "aic", "icl", "log_likelihood"])
def test_criterion_of_a_bare_table_is_one_that_orders_it(criterion):
    X, _, _ = wine()
    grid = {"n_components": [1, 2], "covariance_type": ["diag", "spherical"]}
    found = select(GaussianMixture(n_init=1), X, grid, criterion=criterion, cv=2, random_state=0)
    bare = grid_of(found.table_)
    values = bare.table[bare.criterion.column].to_numpy()
    assert np.all(np.diff(values) <= 0 if bare.criterion.higher_is_better else np.diff(values) >= 0)
    assert grid_of(found).criterion.column.startswith(criterion[:3]) or criterion == "log_likelihood"
    assert found.best_params_.items() <= bare.table.iloc[0].to_dict().items()
    Reader(report(found.best_, X, selection=found).html)


def test_without_matplotlib_there_is_still_the_table(monkeypatch):
    monkeypatch.setitem(sys.modules, "latently.plots.selection", None)
    found = Reader(wine_report().html)
    assert "Model selection" in found.headings() and "grid0-title" not in found.all("id")


@pytest.mark.parametrize("wrong", [3, "table", {"a": 1}])
def test_a_wrong_selection_is_named(wrong):
    with pytest.raises(ValueError, match="selection must be the result"):
        wine_report(selection=wrong)


# -- what to do next ----------------------------------------------------------------------------------------


def steps_of(model, X, selection=None, labels=None):
    facts = Facts(model, X, feature_names=None, labels=labels, row_names=None, image_shape=None)
    return {step.title: step for step in next_steps(facts, grid_of(selection))}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name", ["GaussianMixture", "MFA", "MCFA", "MFMClassifier", "PerClass", "BNMF", "hasty"]
)
def test_code_of_every_step_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if name == "hasty":
        X = wine()[0]
        model = GaussianMixture(5, random_state=0, n_init=1, max_iter=2, tol=1e-12).fit(X)
    else:
        model, X = fitted(name)
    scope = {"X": X, "model": model, "latently": latently, "select": select, "write_report": write_report}
    scope |= {"y": wine()[1], "new_rows": X[:2], "MCFA": MCFA, "MFA": MFA, type(model).__name__: type(model)}
    scope |= vars(sys.modules["latently.mixture"])
    steps = steps_of(model, X, search() if name == "MCFA" else None)
    assert steps
    for step in steps.values():
        code = step.code.replace("n_init=50", "n_init=1")  # as quick as it can be
        exec(re.sub(r"\[(\d+), [\d, ]+\]", r"[\1]", code), scope)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_did_not_converge_is_to_go_on():
    X, _, _ = wine()
    hasty = GaussianMixture(3, random_state=0, n_init=1, max_iter=2, tol=1e-12).fit(X)
    assert "Continue the fit" in steps_of(hasty, X)
    assert "had not converged" in Reader(report(hasty, X).html).text("p")
    assert "Continue the fit" not in steps_of(mcfa(), X)


def test_steps_follow_from_what_was_found():
    X, _, _ = wine()
    far = np.concatenate([X, X[:3] + 30])
    assert "Check the unusual rows" in steps_of(mcfa(), far)
    drawn = mcfa().sample(500, random_state=1)[0]
    assert "Check the unusual rows" not in steps_of(mcfa(), drawn)
    assert "Impute the missing entries" in steps_of(*fitted("MFA"))
    assert "Impute the missing entries" not in steps_of(mcfa(), X)
    assert "Compare other model sizes" in steps_of(mcfa(), X)
    assert "Compare other model sizes" not in steps_of(mcfa(), X, search())
    large = MFA.from_parameters(
        weights=[0.99, 0.01], means=X[:2], loadings=np.zeros((2, 13, 1)), noise_variance=np.ones((2, 13))
    )
    assert "Inspect small components" in steps_of(large, large.sample(300, random_state=0)[0])
    near = MFA.from_parameters(
        weights=[0.5, 0.5], means=X[[0, 0]], loadings=np.zeros((2, 13, 1)), noise_variance=np.ones((2, 13))
    )
    assert "Components overlap" in steps_of(near, X)


def test_a_search_that_ends_at_its_edge_goes_on():
    assert search().best_params_["n_factors"] == 3  # the most that were tried
    step = steps_of(mcfa(), wine()[0], search())["Extend the search"]
    assert "'n_factors': [3, 4, 5, 6]" in step.code
    X = wine()[0][:, :3]
    all_factors = select(MFA(n_init=1), X, {"n_factors": [2, 3]}, random_state=0)
    if all_factors.best_params_["n_factors"] == 3:  # there are no more than features
        assert "Extend the search" not in steps_of(all_factors.best_, X, all_factors)


# -- charts and images --------------------------------------------------------------------------------------


def test_charts_are_well_formed():
    html = wine_report().html
    drawings = re.findall(r"<svg class=\"chart.*?</svg>", html, re.DOTALL)
    assert len(drawings) >= 5
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.get("viewBox").split())
        for text in root.iter("text"):
            assert -1 <= float(text.get("x")) <= width + 1 and 0 <= float(text.get("y")) <= height


@pytest.mark.parametrize("value", [1.0, 1e8, -3.0])
def test_values_that_differ_by_rounding_alone_have_a_histogram(value):
    values = np.where(np.arange(100) % 2, value, np.nextafter(value, 0))  # certainties of 1 and almost 1
    chart = charts.histogram("rows", values, name="certainty", threshold=None, threshold_name="")
    assert sum(int(count) for count in re.findall(r"<title>(\d+) rows between", str(chart))) == 100


def test_heat_map_shades_follow_sizes_and_signs():
    values = np.array([[0.0, -1.0], [2.0, np.nan]])
    drawn = charts.heat_map(
        "m", values, "ab", "cd", title="t", described="d", row_axis="r", column_axis="c", limit=2.0
    )
    cells = [group.find("rect") for group in ElementTree.fromstring(drawn).iter("g")]
    shades = [(cell.get("class"), float(cell.get("fill-opacity"))) for cell in cells]
    assert [kind for kind, _ in shades] == ["plus", "minus", "plus"]
    assert shades[0][1] < shades[1][1] < shades[2][1] == 1


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-1.5, "−1.5"),
        (1234.6, "1235"),
        (0.12345, "0.123"),
        (1e9, "1e+09"),
        (-12345.6, "−12\u202f346"),
        (-1e-9, "−1e−09"),
        (-np.inf, "-∞"),
    ],
)
def test_numbers_are_short(value, shown):
    assert charts.number(value) == shown


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3.2, 17), (1e-9, 2e-9), (5, 5.001), (-1e6, 1e6)])
def test_ticks_are_few_and_within(low, high):
    found = charts.ticks(low, high, 5)
    assert 2 <= len(found) <= 6 and all(low - 1e-12 <= tick <= high + 1e-12 * abs(high) for tick in found)


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-1.35012, -1.35), (-40, 3), (1e-9, 2e-9), (-1e7, 2e7)])
def test_ticks_can_be_told_apart(low, high):
    shown = charts.tick_labels(charts.ticks(low, high, 5))
    assert len(set(shown)) == len(shown) and max(map(len, shown)) <= 11


def test_two_numbers_that_differ_are_shown_to_differ():
    assert charts.apart(-1.3512345, -1.3498765) == ("−1.3512", "−1.3499")
    assert charts.apart(3, 3) == ("3.00", "3.00")


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 3)])
def test_png_files_hold_the_pixels(shape, tmp_path):
    rows = np.random.default_rng(0).random((5, int(np.prod(shape))))
    pixels = sprite(rows, shape, n_columns=3, limits=(0.0, 1.0))
    image = Image.open(io.BytesIO(b64decode(data_uri(pixels).partition(",")[2])))
    image.load()
    back = np.asarray(image.convert("RGBA"))
    np.testing.assert_array_equal(back, pixels)
    second = back[:4, 4:7, :3] / 255  # after one image of three pixels, and a gap
    assert np.all(back[:4, 3, 3] == 0) and np.all(back[:4, 4:7, 3] == 255)
    expected = rows[1].reshape(4, 3, -1) * np.ones(3)
    assert np.max(np.abs(second - expected)) <= 0.5 / 255 + 1e-9


def test_signed_images_are_white_at_zero():
    pixels = sprite([[0.0, 1.0, -1.0, 0.5]], (2, 2), n_columns=1, limits=None)
    assert pixels[0, 0].tolist() == [255, 255, 255, 255]
    assert pixels[0, 1, 2] > pixels[0, 1, 0] and pixels[1, 0, 0] > pixels[1, 0, 2]  # blue, then orange


def test_the_still_picture_has_the_points_where_they_belong():
    x, y = np.array([0.1, 0.5, 0.9]), np.array([0.2, 0.5, 0.8])
    pixels = painted(x, y, np.array([0, 1, 2]), (200, 400), COLOURS["c"])
    for k, place in enumerate(zip(x, y, strict=True)):
        r, g, b, alpha = pixels[int((1 - place[1]) * 200), int(place[0] * 400)]
        assert alpha > 200 and np.abs(np.array([r, g, b], dtype=int) - _rgb(COLOURS["c"][k])).max() <= 8
    assert np.count_nonzero(pixels[..., 3]) < 0.02 * 200 * 400


def test_the_still_picture_has_the_colours_of_the_page():
    for kind, colours in COLOURS.items():
        css = re.findall(rf"--{kind}\d: light-dark\((#\w+),", _asset("report.css"))
        assert css == colours and len(set(css)) == 8
    assert not set(COLOURS["c"]) & set(COLOURS["d"])  # classes never look like components


def _rgb(colour):
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def test_images_are_shown_for_rows_that_are_images():
    X, y = digits()
    model = MFA(3, 1, random_state=0, n_init=1, max_iter=20, tol=1e-3).fit(X)
    found = Reader(report(model, X, labels=y, image_shape=(8, 8)).html)
    assert "Images" in found.headings()
    alts = found.all("alt")
    for words in ("reconstructions", "sampled from the model", "least probable", "Means"):
        assert any(words in alt for alt in alts)
    assert found.count("img") == len(alts) >= 5


def test_parts_of_counts_are_images_too():
    model, X = fitted("BNMF")
    found = Reader(report(model, X, image_shape=(2, 3)).html)
    assert "Parts" in found.headings() and "Parts as images" in found.all("alt")
    assert X is counts()


def test_values_are_shown_in_the_units_that_readers_know():
    X, _, names = wine()
    offset, scale = X.mean(axis=0), X.std(axis=0)
    model = MCFA(2, 2, random_state=0).fit((X - offset) / scale)
    own = report(model, (X - offset) / scale, feature_names=names, units=(offset, scale)).html
    bare = report(model, (X - offset) / scale, feature_names=names).html
    highest = f">{charts.number(X[:, names.index('magnesium')].max())}<"
    assert highest in own and highest not in bare
    assert "before they were standardised" in own and "before they were standardised" not in bare
    assert "e−1" not in bare  # means that are zero but for rounding


@pytest.mark.parametrize(
    "units", [1.0, ([0.0, 0.0], 1.0), (0.0, 0.0), (np.nan, 1.0), (0.0, -1.0), ("a", 1.0)]
)
def test_units_must_be_offsets_and_positive_scales(units):
    with pytest.raises(ValueError, match="units"):
        wine_report(units=units)


# -- one numbering, one unit, one threshold -----------------------------------------------------------------


def test_rows_have_the_numbers_of_the_file():
    X, _, _ = wine()
    model = mcfa()
    least = int(np.argmin(model.score_samples(X)))
    assert f"row {least + 1}" in Reader(report(model, X).html).text("th")
    numbers = 1000 - 3 * np.arange(len(X))
    some = Reader(report(model, X, row_numbers=numbers, n_rows=5000).html)
    assert f"row {numbers[least]}" in some.text("th") and "178 of 5\u202f000" in some.text("dd")


def test_log_densities_are_in_the_units_of_the_file():
    X, _, _ = wine()
    offset, scale = X.mean(axis=0), np.linspace(0.5, 20.0, X.shape[1])
    rows = X * scale + offset
    raw = GaussianMixture(2, random_state=0, prior=None).fit(rows)
    inner = GaussianMixture.from_parameters(
        weights=raw.weights_,
        means=(raw.means_ - offset) / scale,
        covariances=raw.covariances_ / np.outer(scale, scale),
    )
    rows[3, 4] = X[3, 4] = np.nan
    own = Facts(inner, (rows - offset) / scale, units=(offset, scale))
    np.testing.assert_allclose(own.scores, raw.score_samples(rows), rtol=1e-9)
    np.testing.assert_allclose(own.unusual.threshold, Facts(raw, rows).unusual.threshold, atol=0.5)


def test_a_given_threshold_decides():
    X, _, _ = wine()
    scores = mcfa().score_samples(X)
    middle = float(np.median(scores))
    facts = Facts(mcfa(), X, threshold=middle)
    assert facts.unusual.n_below == 89 and facts.unusual.threshold == middle
    assert "89 of 178 rows" in Reader(report(mcfa(), X, threshold=middle).html).text("p")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"row_numbers": [1, 2]}, "row_numbers"),
        ({"row_numbers": np.zeros(178, dtype=int)}, "row_numbers"),
        ({"row_numbers": np.arange(1, 179) / 2}, "row_numbers"),
        ({"n_rows": 3}, "n_rows"),
        ({"threshold": np.nan}, "threshold"),
    ],
)
def test_wrong_numbers_are_named(given, message):
    with pytest.raises(ValueError, match=message):
        wine_report(**given)


# -- does it fit? -------------------------------------------------------------------------------------------


def test_a_calibration_is_shown():
    expected = np.linspace(0.01, 0.99, 99)
    page = wine_report(verdict="It does <not> fit.", probability_plot=[expected, np.sqrt(expected)])
    found = Reader(page.html)
    assert "Does the model fit?" in found.headings() and "It does <not> fit." in found.text("p")
    assert "The largest distance from the diagonal is 0.25." in found.text("desc")
    assert "Does the model fit?" not in Reader(wine_report().html).headings()
    for wrong in ([1, 2], [[0, 2], [0, 1]], "ab", [[0.1], [0.2]]):
        with pytest.raises(ValueError, match="probability_plot must be two sequences"):
            wine_report(probability_plot=wrong)
