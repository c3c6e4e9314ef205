"""A fixed, short part of the attacks; `make fuzz` goes on with other seeds for as long as it is told."""

import pytest

from tests.fuzz.__main__ import ATTACKS, attacked, main

COUNTS = {
    "damaged_model": 60,
    "forged_model": 60,
    "forged_checkpoint": 12,
    "random_fit": 12,
    "weighted_entries": 4,
    "same_fit": 8,
    "odd_rows": 12,
    "odd_option": 25,
    "odd_beside": 15,
    "copied_model": 5,
    "reused_model": 4,
    "killed_save": 1,
    "many_threads": 1,
    "interrupted_fit": 2,
}


@pytest.mark.parametrize("name", COUNTS)
def test_attacks_find_nothing(name, tmp_path):
    outcomes = [attacked(name, 77_000 + number, tmp_path) for number in range(COUNTS[name])]
    assert "FINDING" not in outcomes, [path.name for path in tmp_path.iterdir()]


def test_a_finding_is_counted_and_kept(tmp_path, monkeypatch, capsys):
    def broken(rng, folder):
        (folder / "input").write_text("what broke it")
        raise RuntimeError("broke")

    monkeypatch.setitem(ATTACKS, "broken", broken)
    assert main(["--only", "broken", "--count", "2", "--seed", "5", "--keep", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert "2: 2 FINDING" in said.out and "broken --seed 6" in said.err
    assert (tmp_path / "broken-6" / "input").read_text() == "what broke it"
    assert "broke" in (tmp_path / "broken-6" / "finding.json").read_text()
