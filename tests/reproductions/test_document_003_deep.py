"""Reproductions of chapter 5 of document 003: what was printed, and what our numbers mean."""

import numpy as np
import pytest

from latently.deep import DMCFA, DMFA
from latently.mixture import MFA
from reproductions import available
from reproductions.document_003 import figure_5_7, tables_5_2_5_4
from tests.deep.helpers import build, case
from tests.reproductions.checks import check_quick_run
from tests.reproductions.data_sets import skip_without

ROWS = {"ULC-3": (273, 77), "Coil-4-proc": (248, 40), "Leuk72_3k": (45, 27), "USPS1-4": (400, 400)}


@pytest.mark.parametrize("name", ROWS)
def test_printed_rates_are_multiples_of_one_row(name):
    own = [record for record in available()["003/tables-5.2-5.4"].published if record["data set"] == name]
    assert len(own) == 4
    rates = {
        key: n
        for kind, n in zip(("training", "test"), ROWS[name], strict=True)
        for key in (f"ERR {kind}", f"ERR {kind}, deep")
    }
    for record in own:
        assert ("ERR test, deep" in record) == record["method"].startswith("D")
        for key, n in rates.items():
            if key in record:
                assert abs(record[key] * n - round(record[key] * n)) < 0.6e-4 * n


def test_densities_of_factors_stand_in_columns_of_their_own():
    reproduction = available()["003/tables-5.2-5.4"]
    assert set(tables_5_2_5_4.LATENT) <= set(reproduction.columns)
    for record in reproduction.published:
        assert (tables_5_2_5_4.LATENT[0] in record) == record["method"].startswith("D")


def test_two_layers_stand_on_the_first_layer_of_one():
    skip_without("leuk72_3k")
    one, two, tuned = tables_5_2_5_4.records("Leuk72_3k", "DMFA", 0, True, {})
    assert two["gain on test rows"] == pytest.approx(two["log p(y) test"] - one["log p(y) test"])
    assert two["gain on test rows"] > -1e-6
    assert two["bound training"] <= two["log p(y) training"] + 1e-9
    _, two, tuned = tables_5_2_5_4.records("Leuk72_3k", "DMFA", 0, True, {"prior": None})
    assert tuned["log p(y) training"] >= two["log p(y) training"] - 1e-9


def test_means_over_draws():
    own = [{"data set": "a", "gain on test rows": gain, "parameters": 3} for gain in (1.0, -2.0, 4.0)]
    record = tables_5_2_5_4.averaged(own)
    gain = {"gain on test rows": 1.0, "gain on test rows, spread": 3.0, "least gain": -2.0}
    assert record == {"data set": "a", "parameters": 3, "draws": 3} | gain


@pytest.mark.parametrize("common", [False, True])
def test_drawn_digits_have_the_moments_of_their_components(common, monkeypatch):
    monkeypatch.setattr(figure_5_7, "OF_EACH", 3000)
    monkeypatch.setattr(figure_5_7, "GREY_LEVELS", np.inf)
    layers, _ = case(0, common)
    if common:
        layers[0][0]["loadings"] = np.abs(layers[0][0]["loadings"])
        for mixture in layers[1]:
            mixture["loadings"] = np.abs(mixture["loadings"])
            mixture["latent_means"] += 200.0
    else:
        layers[0][0]["means"] += 100.0
    model = build(layers)
    rows = figure_5_7.drawn(model, 0).reshape(2, 3000, -1)
    collapsed = model.collapse()
    for component in range(2):
        own = model.component_of_ == component
        shares = collapsed.weights_[own] / collapsed.weights_[own].sum()
        noise = layers[0][0]["noise"] if common else layers[0][0]["noise"][component]
        mean = shares @ collapsed.means_[own]
        off = collapsed.means_[own] - mean
        covariance = np.einsum("k,kij->ij", shares, collapsed.covariances_[own]) - np.diag(noise)
        covariance += (off.T * shares) @ off
        deviation = np.sqrt(np.diag(covariance))
        np.testing.assert_array_less(
            np.abs(rows[component].mean(axis=0) - mean), 5 * deviation / np.sqrt(3000)
        )
        ratio = np.var(rows[component], axis=0) / np.diag(covariance)
        np.testing.assert_allclose(ratio, 1, atol=0.25)


def test_digits_of_a_quick_run(tmp_path):
    skip_without("mnist")
    result = available()["003/figure-5.7"].run(quick=True)
    names = [record["method"] for record in result.records]
    assert names == ["MCFA", "DMCFA", "MFA", "DMFA"]
    by_name = {record["method"]: record for record in result.records}
    assert by_name["DMFA"]["log p(y) training"] >= by_name["MFA"]["log p(y) training"] - 1e-6
    check_quick_run(result, tmp_path)
    files = {path.name for path in (tmp_path / "003").iterdir()}
    assert {f"figure-5.7-{name}.png" for name in names} < files


def test_models_of_the_source():
    assert figure_5_7.DEEP == {"DMCFA": DMCFA, "DMFA": DMFA}
    assert figure_5_7.SHALLOW["DMFA"] is MFA
