"""The explorer, in a real browser: its values are those of Python."""

import json
from functools import cache

import numpy as np
import pandas as pd
import pytest
from sklearn.neighbors import KernelDensity

from latently.factorization import NLMF, NMF, DeepNLMF
from latently.mixture import (
    MCFA,
    MFA,
    BayesianGaussianMixture,
    FactorAnalysis,
    GaussianMixture,
    MixedMixture,
)
from latently.report import explore, report, write_report
from latently.report._facts import Facts
from latently.report._makers import maker_of
from latently.supervised import PerClass
from tests.report.cases import NASTY, Reader, digits, fitted, mcfa, wine

EXACT = {"rtol": 1e-4, "atol": 1e-4}


def opened(visit, path, model, X, **given):
    explore(model, X, **given).save(path)
    return visit(path)


def ask(page, what, *arguments):
    return page.evaluate(f"(given) => document.getElementById('explorer').{what}(...given)", list(arguments))


GAUSSIAN = [
    *("MFA", "MCFA"),
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("GaussianMixture", "FactorAnalysis", "PPCA", "MPPCA", "no factors", "one feature")
    ),
]


@pytest.mark.parametrize("name", GAUSSIAN)
def test_codes_densities_and_rows_are_those_of_python(visit, tmp_path, name):
    model, X = fitted(name)
    rng = np.random.default_rng(0)
    offset, scale = rng.normal(size=X.shape[1]) * 100, rng.uniform(0.1, 30, X.shape[1])
    page = opened(visit, tmp_path / "e.html", model, X, units=(offset, scale))
    scores = model.score_samples(X) - ~np.isnan(X) @ np.log(scale)
    components = model.predict(X) if hasattr(model, "predict") else np.zeros(len(X), dtype=int)
    posterior = model.factor_posterior(X)[0] if hasattr(model, "factor_posterior") else None
    for i in (0, 60, len(X) - 1):
        told = ask(page, "tell", i)
        np.testing.assert_allclose(told["logDensity"], scores[i], **EXACT)
        k = told["component"]
        assert k == components[i]
        np.testing.assert_allclose(ask(page, "row", i), X[i] * scale + offset, **EXACT)
        if posterior is None or not posterior.shape[-1]:
            continue
        z = posterior[i, k] if posterior.ndim == 3 else posterior[i]
        np.testing.assert_allclose(told["code"], z, **EXACT)
        if name == "MCFA":
            made = model.loadings_ @ z
        else:
            mean = model.means_[k] if hasattr(model, "means_") else model.mean_
            made = mean + (model.loadings_[k] if model.loadings_.ndim == 3 else model.loadings_) @ z
        np.testing.assert_allclose(told["made"], made * scale + offset, **EXACT)
        if name in ("FactorAnalysis", "PPCA"):
            np.testing.assert_allclose(told["made"], model.reconstruct(X)[i] * scale + offset, **EXACT)


@pytest.mark.slow
def test_large_offsets_are_no_trouble(visit, tmp_path):
    X = wine()[0] + 1e8
    model = MCFA(3, 2, random_state=0, n_init=1).fit(X)
    page = opened(visit, tmp_path / "e.html", model, X)
    told = ask(page, "tell", 5)
    np.testing.assert_allclose(told["logDensity"], model.score_samples(X)[5], rtol=1e-3)
    np.testing.assert_allclose(told["made"], model.reconstruct(X)[5], rtol=0, atol=0.1)


def test_classifiers_have_components_of_classes(visit, tmp_path):
    model, X = fitted("MJFAClassifier")
    page = opened(visit, tmp_path / "e.html", model, X, labels=wine()[1])
    assert page.locator("#component option").all_inner_texts() == [f"class {c}" for c in model.classes_]
    found = [ask(page, "tell", i) for i in range(0, 178, 25)]
    assert [model.classes_[one["component"]] for one in found] == model.predict(X[::25]).tolist()
    np.testing.assert_allclose([one["logDensity"] for one in found], model.score_samples(X[::25]), **EXACT)


@pytest.mark.parametrize("density", [FactorAnalysis(2), MCFA(2, 3, random_state=0, n_init=1)])
def test_densities_of_classes_have_components(visit, tmp_path, density):
    """Also where each class has a map of its own, and shares it among its components."""
    X, y, _ = wine()
    model = PerClass(density).fit(X, y)
    page = opened(visit, tmp_path / "e.html", model, X, labels=y)
    names = page.locator("#component option").all_inner_texts()
    K = getattr(density, "n_components", 1)
    assert len(names) == 3 * K and names[-1] == ("class class_2, component 1" if K > 1 else "class class_2")
    found = [ask(page, "tell", i) for i in range(0, 178, 25)]
    np.testing.assert_allclose([one["logDensity"] for one in found], model.score_samples(X[::25]), **EXACT)
    own = model.densities_[2]
    i, last = 170, found[-1]
    assert model.classes_[ask(page, "tell", i)["component"] // K] == model.predict(X[i : i + 1])[0]
    posterior = own.factor_posterior(X[175:176])[0][0]
    k = last["component"] - 2 * K
    z = posterior[k] if posterior.ndim == 2 else posterior
    np.testing.assert_allclose(last["code"], z, **EXACT)


def test_heavy_tails_are_those_of_python(visit, tmp_path):
    X, _, _ = wine()
    X = X.copy()
    X[3, 2] = np.nan
    model = GaussianMixture(2, tails="t", random_state=0, n_init=1).fit(X)
    page = opened(visit, tmp_path / "e.html", model, X)
    scores = model.score_samples(X)
    for i in (0, 3, 60, int(np.argmin(scores))):
        assert ask(page, "tell", i)["logDensity"] == pytest.approx(scores[i], rel=1e-4)
    drawn = []
    page.check("#with-noise")
    page.select_option("#draw-from", label="component 1")
    settled = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    for _ in range(80):
        page.evaluate("document.getElementById('draw').click()")
        page.evaluate(settled)
        drawn.append(json.loads(page.locator("#explorer").get_attribute("data-code")))
    nu = model.degrees_of_freedom_[1]
    spread = np.median(np.abs(drawn))
    expected = np.median(np.abs(np.random.default_rng(0).standard_t(nu, 10**5)))
    assert spread == pytest.approx(expected, rel=0.15)


@cache
def trips():
    """A table of all kinds of columns, with empty cells, and a mixture of it."""
    rng = np.random.default_rng(0)
    kind = rng.integers(2, size=200)
    table = pd.DataFrame(
        {
            "ticket": np.where(rng.random(200) < np.where(kind, 0.8, 0.1), "day", "month"),
            "distance": rng.normal(np.where(kind, 40.0, 12.0), 5.0),
            "bags": rng.poisson(np.where(kind, 2.5, 0.3)),
            "grade": pd.Categorical(
                rng.choice(["lo", "mid", "hi"], 200, p=[0.5, 0.3, 0.2]), ["lo", "mid", "hi"], ordered=True
            ),
            "speed": 3.0 + rng.normal(size=200),
            "when": pd.date_range("2020-01-01", periods=200),
        }
    )
    table.loc[::7, "ticket"] = None
    table.loc[::5, "distance"] = np.nan
    return MixedMixture(2, n_factors=1, random_state=0, n_init=1, tol=1e-4).fit(table), table


def test_columns_of_all_kinds_are_made(visit, tmp_path):
    model, table = trips()
    assert maker_of(Facts(model, table)).has_density
    page = opened(visit, tmp_path / "e.html", model, table, threshold=-13.0)
    scores, components = model.score_samples(table), model.predict(table)
    for i in (0, 1, 5, 60, 199):
        told = ask(page, "tell", i)
        assert told["logDensity"] == pytest.approx(scores[i], rel=1e-4)
        assert told["component"] == components[i]
    shown = lambda: dict(
        line.split("\n")[:2] for line in page.locator(".bar-line:not(.head)").all_inner_texts()
    )
    settled = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    for k in (0, 1):
        page.select_option("#component", str(k))
        page.evaluate(settled)
        likeliest = model.level_probabilities("ticket").iloc[k].idxmax()
        assert shown()["ticket"] == likeliest and shown()["when"].startswith("2020-")
    i = int(np.argmin(scores))
    page.evaluate(f"rows.pick({i})")
    changed = table.copy()
    facts = Facts(model, table)
    advice = ask(page, "changes", i)
    assert len(advice["found"]) > 1
    for one in advice["found"]:
        name, value = facts.feature_names[one["feature"]], one["to"]
        levels = facts.levels.names.get(one["feature"])
        if name == "when":
            value = pd.Timestamp(0) + pd.Timedelta(days=value)
        changed.loc[i, name] = levels[round(value)] if levels else value
        now = model.score_samples(changed.iloc[i : i + 1])[0]
        assert one["logDensity"] == pytest.approx(now, abs=2e-3)
    assert "NaN" not in page.inner_text("#explorer")


@pytest.mark.parametrize("kind", ["noise", "predictive"])
def test_other_densities_than_gaussian_ones_are_not_shown(kind):
    """Sliders make rows all the same."""
    X, _, _ = wine()
    if kind == "noise":
        model = GaussianMixture(2, noise_component=True, random_state=0, n_init=1).fit(X)
    else:
        model = BayesianGaussianMixture(3, random_state=0, max_iter=20).fit(X)
    assert not maker_of(Facts(model, X)).has_density
    assert maker_of(Facts(mcfa(), X)).has_density


@pytest.mark.parametrize(
    "kind", ["nmf", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("tanh", "ratio"))]
)
def test_parts_make_rows(visit, tmp_path, kind):
    X, y = digits()
    if kind == "nmf":
        model = NMF(6, random_state=0, max_iter=30, tol=1e-3).fit(X)
    else:
        constraint = "non_negative" if kind == "ratio" else "unconstrained"
        model = NLMF(5, mapping=kind, constraint=constraint, random_state=0, max_iter=5, tol=0.0).fit(X)
    page = opened(visit, tmp_path / "e.html", model, X, labels=y, image_shape=(8, 8))
    codes = model.transform(X[:3])
    for i in range(3):
        told = ask(page, "tell", i)
        np.testing.assert_allclose(told["code"], codes[i], **EXACT)
        np.testing.assert_allclose(told["made"], model.inverse_transform(codes[i : i + 1])[0], **EXACT)
        np.testing.assert_allclose(ask(page, "row", i), X[i], **EXACT)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["convolutions", "perceptron", "rbm", "bernoulli", "belief net", "classes", "layers"]
)
def test_networks_and_stacks_make_rows(visit, tmp_path, kind):
    pytest.importorskip("torch")
    from latently.deep import DBN, RBM, VAE, JointAutoencoder

    X, y = digits()
    given = {"random_state": 0, "max_iter": 2}
    model = {
        "perceptron": lambda: VAE(3, hidden_layer_sizes=(20, 10), activation="softplus", **given),
        "convolutions": lambda: VAE(3, hidden_layer_sizes=(4, 6), image_shape=(8, 8), **given),
        "bernoulli": lambda: VAE(2, hidden_layer_sizes=(12,), likelihood="bernoulli", **given),
        "rbm": lambda: RBM(16, **given),
        "belief net": lambda: DBN((20, 12), **given),
        "classes": lambda: JointAutoencoder(3, hidden_layer_sizes=(20, 10), **given),
        "layers": lambda: DeepNLMF((12, 5), **given),
    }[kind]()
    model = model.fit(X, y) if kind == "classes" else model.fit(X)
    page = opened(visit, tmp_path / "e.html", model, X, image_shape=(8, 8))
    codes = np.asarray(model.transform(X[:2]), dtype=float)
    made = np.asarray(model.inverse_transform(codes.astype(np.float32)))
    for i in range(2):
        told = ask(page, "tell", i)
        np.testing.assert_allclose(told["code"], codes[i], **EXACT)
        np.testing.assert_allclose(told["made"], made[i], **EXACT)


def images(n):
    """Digits of 28 x 28 pixels: those of 8 x 8, three times as large."""
    X = np.kron(digits()[0][:n].reshape(n, 8, 8), np.ones((3, 3)))
    return np.pad(X, ((0, 0), (2, 2), (2, 2))).reshape(n, 784)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-7, 1.0, 1e7])
def test_weights_of_two_bytes_make_rows_of_python_to_a_thousandth(visit, tmp_path, unit):
    """Weights that are many travel rounded to 5e-4 of themselves, whatever the unit of the rows."""
    rng = np.random.default_rng(0)
    X = unit * images(300)
    model = MFA.from_parameters(
        weights=np.full(3, 1 / 3),
        means=np.stack([part.mean(axis=0) for part in np.split(X, 3)]),
        loadings=unit * rng.normal(size=(3, 784, 200)) / 200**0.5,
        noise_variance=np.full((3, 784), 0.05 * unit**2),
    )
    maker = maker_of(Facts(model, X))
    assert maker.size > 450_000
    page = opened(visit, tmp_path / "e.html", model, X, image_shape=(28, 28))
    assert (tmp_path / "e.html").stat().st_size < 5e6
    codes = rng.normal(size=(3, 200))
    for k in range(3):
        made = model.means_[k] + model.loadings_[k] @ codes[k]
        np.testing.assert_allclose(ask(page, "made", k, codes[k].tolist()), made, rtol=0, atol=1e-3 * unit)


@pytest.mark.slow
def test_a_network_of_images_makes_rows_of_python_to_a_thousandth(visit, tmp_path):
    pytest.importorskip("torch")
    from latently.deep import VAE

    X = images(300)
    model = VAE(8, hidden_layer_sizes=(600, 64), max_iter=3, random_state=0).fit(X)
    X = X[:20]  # log densities are estimated by a thousand draws a row
    assert maker_of(Facts(model, X)).size > 450_000
    write_report(tmp_path / "e.html", model, X, image_shape=(28, 28), threshold=0.0)
    assert (tmp_path / "e.html").stat().st_size < 5e6
    page = visit(tmp_path / "e.html")
    codes = np.asarray(model.transform(X[:3]), dtype=float)
    made = np.asarray(model.inverse_transform(codes.astype(np.float32)))
    for i in range(3):
        told = ask(page, "tell", i)
        np.testing.assert_allclose(told["code"], codes[i], **EXACT)
        np.testing.assert_allclose(told["made"], made[i], rtol=0, atol=1e-3)


def test_neighbours_and_changes_are_right(visit, tmp_path):
    X, _, names = wine()
    model = mcfa()
    facts = Facts(model, X)
    page = opened(visit, tmp_path / "e.html", model, X, feature_names=names)
    Z = model.transform(X)
    Z = Z / Z.std(axis=0)
    for i in (0, 121):
        nearest = np.argsort(np.linalg.norm(Z - Z[i], axis=1), kind="stable")[1:6]
        assert ask(page, "neighbours", i) == nearest.tolist()
    least = int(np.argmin(model.score_samples(X)))
    advice = ask(page, "changes", least)
    x = X[least].copy()
    for change in advice["found"]:
        j = change["feature"]
        assert change["from"] == pytest.approx(X[least, j], rel=1e-5)
        k = model.predict(x[None])[0]
        x[j] = change["to"]
        assert change["logDensity"] == pytest.approx(model.score_samples(x[None])[0], abs=1e-3)
        # the conditional mean of the entry in the component
        S, mu, rest = model.covariances_[k], model.means_[k], np.arange(len(x)) != j
        expected = mu[j] + S[j, rest] @ np.linalg.solve(S[np.ix_(rest, rest)], (x - mu)[rest])
        assert change["to"] == pytest.approx(expected, abs=1e-2)
    assert advice["reached"] and model.score_samples(x[None])[0] >= facts.unusual.threshold - 1e-3
    assert ask(page, "changes", int(np.argmax(model.score_samples(X))))["found"] == []
    page.fill("#row-choice", str(least + 1))
    page.keyboard.press("Enter")
    assert f"It would be usual with {names[advice['found'][0]['feature']]}" in page.inner_text("#row-told")


def test_sliders_make_rows_by_mouse_and_keys(visit, tmp_path):
    X, _, names = wine()
    model = FactorAnalysis(2).fit(X)
    page = opened(visit, tmp_path / "e.html", model, X, feature_names=names)
    code = lambda: json.loads(page.locator("#explorer").get_attribute("data-code"))
    settled = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(settled)
    np.testing.assert_allclose(code(), [0, 0], atol=1e-6)
    shown = lambda: [line.split("\n")[1] for line in page.locator(".bar-line:not(.head)").all_inner_texts()]
    before = shown()
    page.get_by_label("factor 2", exact=True).focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    page.evaluate(settled)
    assert code()[0] == pytest.approx(0) and code()[1] == pytest.approx(0.6, abs=1e-6)
    made = model.mean_ + model.loadings_ @ code()
    np.testing.assert_allclose(ask(page, "made", 0, code()), made, **EXACT)
    after = shown()
    assert before != after
    np.testing.assert_allclose([float(value.replace("−", "-")) for value in after], made, atol=0.006)
    page.get_by_role("button", name="Back to the mean").click()
    page.evaluate(settled)
    assert shown() == before


@pytest.mark.slow
def test_draws_follow_the_component_or_class(visit, tmp_path):
    X, y, _ = wine()
    model = mcfa()
    page = opened(visit, tmp_path / "e.html", model, X, labels=y)
    code = lambda: json.loads(page.locator("#explorer").get_attribute("data-code"))
    for choice, expected in (("component 2", model.latent_means_[2]), ("class class_0", None)):
        page.select_option("#draw-from", label=choice)
        drawn = []
        for _ in range(60):
            page.evaluate("document.getElementById('draw').click()")
            page.evaluate(
                "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
            )
            drawn.append(code())
        if expected is None:
            expected = model.transform(X[y == "class_0"]).mean(axis=0)
        spread = np.std(drawn, axis=0) / np.sqrt(len(drawn))
        assert np.all(np.abs(np.mean(drawn, axis=0) - expected) < 5 * spread + 0.05)


def test_walks_go_from_row_to_row(visit, tmp_path):
    X, _, _ = wine()
    model = mcfa()
    page = opened(visit, tmp_path / "e.html", model, X)
    page.emulate_media(reduced_motion="reduce")
    page.fill("#walk-from", "3")
    page.fill("#walk-to", "170")
    page.get_by_role("button", name="Walk", exact=True).click()
    code = lambda: np.array(json.loads(page.locator("#explorer").get_attribute("data-code")))
    ends = [np.array(ask(page, "tell", i)["code"]) for i in (2, 169)]
    for percent in (0, 50, 100):
        page.locator("#walk").fill(str(percent))
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        np.testing.assert_allclose(code(), ends[0] + percent / 100 * (ends[1] - ends[0]), **EXACT)
        assert page.inner_text("#walk-told").startswith(f"{percent} % of the way; log density")


def test_images_are_made_in_a_small_file_offline(visit, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.random((2000, 784))
    model = MFA.from_parameters(
        weights=np.full(10, 0.1),
        means=rng.random((10, 784)),
        loadings=0.1 * rng.normal(size=(10, 784, 6)),
        noise_variance=np.full((10, 784), 0.05),
    )
    path = write_report(tmp_path / "i.html", model, X, image_shape=(28, 28))
    assert path.stat().st_size < 5e6
    page = visit(path)  # which complains of all requests
    page.locator("#explore").scroll_into_view_if_needed()
    places = page.evaluate("[...document.getElementById('explorer').kept]")
    assert 100 < len(places) < 1000
    told = ask(page, "tell", 7)
    i = places[7]
    assert told["logDensity"] == pytest.approx(model.score_samples(X[i : i + 1])[0], rel=1e-4)
    page.evaluate(f"rows.pick({i})")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    levels = "(c) => [...c.getContext('2d').getImageData(0, 0, 28, 28).data].filter((_, j) => !(j % 4))"
    made = np.array(page.locator("#made-image").evaluate(levels))
    assert np.corrcoef(made, np.clip(told["made"], *np.quantile(X, [0.005, 0.995])))[0, 1] > 0.999
    assert np.corrcoef(page.locator("#row-image").evaluate(levels), X[i])[0, 1] > 0.999
    assert page.locator("#row-told .thumb canvas").count() == 5
    other = next(j for j in range(2000) if j not in places)
    page.evaluate(f"rows.pick({other})")
    assert "is not kept whole on this page" in page.inner_text("#row-told")
    cost = page.evaluate(
        """() => { const e = document.getElementById("explorer"), z = [0, 0, 0, 0, 0, 0];
        const begun = performance.now();
        for (let i = 0; i < 50; i++) e.made(i % 10, z); return (performance.now() - begun) / 50; }"""
    )
    assert cost < 50  # milliseconds for an image


def test_nasty_names_never_run_in_the_explorer(visit, tmp_path):
    X, y, names = wine()
    odd = {"feature_names": [name + NASTY for name in names], "labels": [label + NASTY for label in y]}
    page = opened(visit, tmp_path / "e.html", mcfa(), X, **odd, row_names=[f"{i}{NASTY}" for i in range(178)])
    page.evaluate("rows.pick(121)")
    assert NASTY in page.locator("#row-told").text_content() and page.locator("img").count() == 0
    page.evaluate("rows.selectWhere((i) => i < 5, 'x')")
    assert page.locator("#selected-rows th").nth(1).text_content() == "component"
    assert NASTY in page.locator("#selected-rows").text_content() and page.locator("img").count() == 0


@pytest.mark.parametrize("width", [360, pytest.param(1200, marks=pytest.mark.slow)])
def test_the_explorer_fits_and_has_names(visit, tmp_path, width):
    X, y, names = wine()
    explore(mcfa(), X, feature_names=names, labels=y).save(tmp_path / "e.html")
    page = visit(tmp_path / "e.html", viewport={"width": width, "height": 800})
    page.evaluate("rows.pick(3)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for control in page.locator(
        "#explorer input, #explorer select, #explorer button, #chosen-rows input"
    ).all():
        named = control.evaluate(
            "(c) => c.labels?.[0]?.textContent || c.textContent || c.getAttribute('aria-label')"
        )
        assert named.strip()


def test_models_that_make_no_rows_say_so():
    X, y, _ = wine()
    model = PerClass(KernelDensity()).fit(X, y)
    with pytest.raises(ValueError, match="PerClass cannot be explored"):
        explore(model, X)
    assert "Explorer" not in Reader(report(model, X).html).headings()
    with pytest.raises(ValueError, match="only must be names of sections"):
        report(model, X, only=["explorer"])
    wide = GaussianMixture(1, covariance_type="full").fit(np.random.default_rng(0).normal(size=(50, 3)))
    assert maker_of(Facts(wide, np.zeros((2, 3)))).has_density
