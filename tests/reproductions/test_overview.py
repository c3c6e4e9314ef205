"""The rule that compares with print, the list of what the documents have, and the page about both."""

import json
import re
from collections import Counter

import pytest

from reproductions import available, evidence, inventory, judgement, overview
from reproductions.document_003 import _clustering
from reproductions.framework import Result, versions
from reproductions.judgement import EXCLUDED, MATCHED, NOISE, NOT_RUN, WORSE
from reproductions.source import LIBRARY, digest
from tests.reproductions.test_framework import example

REPRODUCTIONS = available()


def state_of(ours, printed, **options):
    return judgement.judged("ERR", (), "lower", {"ERR": ours, **options}, {"ERR": printed}, 100).state


def test_cells_are_matched_within_noise_or_worse():
    assert state_of(0.1, 0.1) == state_of(0.05, 0.1) == state_of(0.10004, 0.1) == MATCHED
    assert state_of(0.11, 0.1) == NOISE  # one row of 100
    assert state_of(0.12, 0.1) == WORSE
    drawn = {"draws": 4, "ERR, spread": 0.02}
    assert state_of(0.14, 0.1, **drawn) == NOISE  # 2 sqrt(0.02^2 / 4 + 0.02^2) = 0.045
    assert state_of(0.15, 0.1, **drawn) == WORSE


def test_more_is_better_of_what_grows():
    record, printed = {"ARI": 0.8}, {"ARI": 0.9}
    assert judgement.judged("ARI", (), "higher", record, printed, 100).state == WORSE
    assert judgement.judged("ARI", (), "higher", {"ARI": 0.95}, printed, 100).state == MATCHED
    assert judgement.judged("ARI", (), "higher", {"ARI": 0.875}, printed, 100).state == NOISE


def test_spread_of_printed_means_counts():
    record, printed = {"ERR": 0.12, "ERR, spread": 0.01, "draws": 5}, {"ERR": 0.1, "ERR, spread": 0.05}
    noise = judgement.noise_of("ERR", record, printed, 1000)
    assert noise == pytest.approx(2 * (0.01**2 / 5 + 0.05**2 / 5) ** 0.5)


def test_agreement_is_two_sided():
    better = judgement.judged("ERR", (), "lower", {"ERR": 0.05}, {"ERR": 0.1}, 100)
    close = judgement.judged("ERR", (), "lower", {"ERR": 0.095}, {"ERR": 0.1}, 100)
    assert (better.state, better.agrees) == (MATCHED, False)
    assert close.agrees


def test_every_printed_number_is_a_cell_once():
    reproduction = example(
        published=[{"case": name, "ERR": 0.5} for name in "abcd"] + [{"case": "e", "ERR": None}],
        better={"ERR": "lower"},
        counted=lambda record: record["case"] != "d",
        excluded=lambda record, measure: "other data" if record["case"] == "c" else None,
    )
    found = judgement.cells(reproduction, [{"case": "a", "ERR": 0.4}, {"case": "c", "ERR": 0.4}])
    states = {cell.key[0]: cell.state for cell in found}
    assert states == {"a": MATCHED, "b": NOT_RUN, "c": EXCLUDED}


def test_printed_densities_below_one_component_are_not_compared():
    reproduction = REPRODUCTIONS["003/table-3.5"]
    printed = next(one for one in reproduction.published if one["method"] == "PCA+GMM")
    key = {name: printed[name] for name in reproduction.keys}
    states = {}
    for equal in (printed["BIC"] - 3, printed["BIC"] - 1):
        record = key | {"BIC": printed["BIC"] - 50, _clustering.EQUAL: equal, "rows": 150}
        [found] = [
            cell
            for cell in judgement.cells(reproduction, [record])
            if cell.measure == "BIC" and cell.key == tuple(key.values())
        ]
        states[equal] = found.state
    assert list(states.values()) == [EXCLUDED, MATCHED]


def test_other_fits_stand_beside_worse_rates_of_clusters():
    reproduction = example(
        published=[{"case": name, "ERR": 0.1} for name in "abcdef"], better={"ERR": "lower"}
    )
    ours = {"rows": 100, "ERR": 0.3, "BIC": 50.0}
    records = [
        {"case": "a", "ERR picked by label": 0.1} | ours,
        {"case": "b", "ERR from classes": 0.1, "BIC from classes": 60.0} | ours,
        {"case": "c", "ERR from classes": 0.1, "BIC from classes": 40.0} | ours,
        {"case": "d", "ERR from classes": 0.2, "BIC from classes": 40.0} | ours,
        {"case": "e", "ERR from classes": 0.1, "BIC from classes": 49.0} | ours,  # no evidence
        {"case": "f", "ERR lowest of 20 trials": 0.1} | ours,
    ]
    counts = {"worse": 6, evidence.PICKED: 1, evidence.TRIED: 1}
    counts |= {evidence.LESSER: 2, evidence.MISSED: 1, evidence.NOT_THERE: 1}
    assert evidence.of_clusters(reproduction, records) == [{"measure": "ERR"} | counts]
    assert evidence.of_clusters(reproduction, [{"case": "a", "ERR": 0.3}]) == []


def test_fits_from_the_classes_stand_beside_worse_rates_of_densities():
    rates = ("ERR training", "ERR test")
    printed = [{"case": name, **dict.fromkeys(rates, 0.1)} for name in "abc"]
    reproduction = example(published=printed, better=dict.fromkeys(rates, "lower"))
    ours = {"rows": 100, "log p(y) training": -5.0, "ERR training": 0.3, "ERR test": 0.1}
    other = {"log p(y) training from classes": -6.0, "ERR training from classes": 0.1}
    likelier = other | {"log p(y) training from classes": -4.0}
    records = [{"case": "a"} | ours | other, {"case": "b"} | ours | likelier, {"case": "c"} | ours]
    [line] = evidence.of_clusters(reproduction, records)
    counts = {"worse": 3, evidence.PICKED: 0, evidence.TRIED: 0}
    counts |= {evidence.LESSER: 1, evidence.MISSED: 1, evidence.NOT_THERE: 0}
    assert line == {"measure": "ERR training"} | counts


def test_variants_stand_beside_worse_rates_of_classes():
    key = {"train on": "x", "components": 1}
    published = [key | {"method": "2L-MJFA", "dimensions": q, "ERR": 0.1} for q in (1, 2)]
    keys = ("train on", "method", "components", "dimensions")
    reproduction = example(keys=keys, published=published, better={"ERR": "lower"}, tested=lambda *_: 100)
    shared = evidence.VARIANTS[evidence.SHARED]
    rates = {("2L-MJFA", 1): 0.3, ("2L-MJFA", 2): 0.1, (shared, 1): 0.1, (shared, 2): 0.3}
    records = [key | {"method": method, "dimensions": q, "ERR": err} for (method, q), err in rates.items()]
    expected = {"method": "2L-MJFA", "worse": 1, evidence.LOWEST: 1}
    expected |= {evidence.SHARED: "1 of 1 tried", evidence.ALONE: ""}
    assert evidence.of_classes(reproduction, records) == [expected]
    assert evidence.of_classes(reproduction, records[1:2]) == []


def test_results_of_another_protocol_are_not_retold(monkeypatch, tmp_path, capsys):
    from reproductions.__main__ import main

    monkeypatch.setattr(overview, "PAGE", tmp_path / "page.md")
    monkeypatch.setattr(overview, "saved", lambda name: {"settings": {"of yesterday": 1}})
    monkeypatch.setattr(overview, "page", lambda: "")
    assert main(["003/table-3.7", "--retell"]) == 0
    answer = capsys.readouterr()
    assert "another protocol" in answer.err
    assert "table-3.7" not in answer.out


def test_inventory_names_every_reproduction():
    named = [name for item in inventory.ITEMS for name in item.by]
    assert set(named) == set(REPRODUCTIONS)
    assert {item.state for item in inventory.ITEMS} == set(inventory.STATES)
    for item in inventory.ITEMS:
        assert item.document in inventory.DOCUMENTS
        assert item.by if item.state in (inventory.REPRODUCED, inventory.OTHER_DATA) else item.why


def test_page_is_that_of_the_saved_results():
    assert overview.PAGE.read_text(encoding="utf-8") == overview.page()


def test_counts_of_the_page_are_those_of_the_numbers():
    found = overview.judged()
    cells = [cell for own in found.values() for cell in own]
    states = Counter(cell.state for cell in cells)
    met = states[MATCHED] + states[NOISE]
    text = overview.in_short(cells)
    assert f"Of {len(cells)} published cells, {met + states[WORSE]} are comparable" in text
    assert f"**{met} of these ({round(100 * met / (met + states[WORSE]))} %)" in text
    assert len({(name, cell.key, cell.measure) for name, own in found.items() for cell in own}) == len(cells)


def test_every_table_that_is_missed_says_why():
    found = overview.judged()
    missed = [name for name, own in found.items() if any(cell.state == WORSE for cell in own)]
    assert missed
    told = {name: Result.of_saved(REPRODUCTIONS[name], overview.saved(name)).missed() for name in missed}
    assert [name for name, why in told.items() if not why] == []


def test_results_stand_by_the_source_that_they_are_of(monkeypatch):
    states = {
        "000/table-3.1": {"commit": "abc1234 of 2026-01-01", "source": "0123"},
        "003/table-3.1": {"commit": "abc1234 of 2026-01-01", "source": "0123", "GPU": "one"},
        "003/table-3.2": {"python": "3.12", "published": "def5678 of 2026-01-02"},
    }
    monkeypatch.setattr(overview, "available", lambda: dict.fromkeys(states))
    monkeypatch.setattr(overview, "saved", lambda name: {"versions": states[name]})
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in overview.by_source().splitlines()]
    assert cells[2:] == [
        ["abc1234 of 2026-01-01", "0123", "", "[000/table-3.1]"],
        ["abc1234 of 2026-01-01", "0123", "one", "[003/table-3.1]"],
        ["before def5678 of 2026-01-02", "not kept", "", "[003/table-3.2]"],
    ]


def test_results_keep_the_state_of_the_library():
    state = versions()
    assert re.fullmatch("[0-9a-f]{16}", state["source"])
    assert state["source"] == digest(LIBRARY).hex()[:16]


def test_retelling_changes_no_number(monkeypatch, tmp_path, capsys):
    from reproductions import framework
    from reproductions.__main__ import main

    monkeypatch.setattr(framework, "HERE", tmp_path)
    monkeypatch.setattr(overview, "HERE", tmp_path)
    monkeypatch.setattr(overview, "PAGE", tmp_path / "page.md")
    reproduction = REPRODUCTIONS["003/table-3.7"]
    reproduction.run(quick=True).save()
    path = tmp_path / "document_003" / "results" / "table-3.7.json"
    before = json.loads(path.read_text())
    path.write_text(json.dumps(before | {"title": "of yesterday"}))
    assert main(["003/table-3.7", "--retell"]) == 0
    assert json.loads(path.read_text()) == before
    assert (tmp_path / "page.md").is_file()
