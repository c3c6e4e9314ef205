"""What all reproductions share: they are found, results are told and kept whole, and the command."""

import json
import signal
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import reproductions
from reproductions import Reproduction, available, framework
from reproductions.__main__ import main

REPRODUCTIONS = available()


def test_ids_are_those_of_the_files():
    for name, reproduction in REPRODUCTIONS.items():
        module = reproduction.measure.__module__.rpartition(".")[2]
        assert name == reproduction.id
        own = name[4:].replace("-", "_").replace(".", "_")
        assert module in ("_clustering", "_classification", "_dagmm", own)


# -- telling and keeping results ----------------------------------------------------------------------


def example(**changes):
    example = Reproduction(
        id="000/table-9",
        title="an example",
        source="nowhere",
        data="none",
        protocol="made\n    up",
        keys=("case",),
        columns={"ERR": ".2f", "seconds": ".1f"},
        published=[{"case": "b", "ERR": 0.125}, {"case": "a", "ERR": None}],
        measure=lambda settings, seed: [{"case": "a", "ERR": 0.5, "seconds": 2}, {"case": "b", "ERR": 0.25}],
        settings={"restarts": 9},
        quick_settings={"restarts": 1},
        remarks=("one\n    line",),
        figures={"": lambda result: Figure()},
    )
    return replace(example, **changes)


def test_published_numbers_stand_beside_ours():
    text = example().run().to_markdown()
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]
    assert lines[0] == ["case", "ERR", "ERR, published", "seconds"]
    assert lines[2:] == [["a", "0.50", "", "2.0"], ["b", "0.25", "0.12", ""]]
    assert "made up" in text
    assert "- one line" in text
    assert "restarts = 9" in text
    assert "restarts = 1" in example().run(quick=True).to_markdown()


def test_nothing_is_written_when_a_picture_fails(tmp_path):
    def failing(result):
        raise RuntimeError("no picture")

    with pytest.raises(RuntimeError, match="no picture"):
        example(figures={"": failing}).run().save(tmp_path)
    assert list(tmp_path.rglob("*")) == []
    example().run().save(tmp_path)
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files == ["table-9.json", "table-9.md", "table-9.png"]


def test_earlier_result_survives_a_full_disk(monkeypatch, tmp_path):
    example().run(seed=1).save(tmp_path)
    earlier = (tmp_path / "000" / "table-9.md").read_text()
    write = Path.write_bytes

    def half(path, content):
        write(path, content[: len(content) // 2])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space left"):
        example().run(seed=2).save(tmp_path)
    assert (tmp_path / "000" / "table-9.md").read_text() == earlier


# -- the command --------------------------------------------------------------------------------------


def test_command_lists(capsys):
    assert main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(REPRODUCTIONS)


@pytest.mark.parametrize("arguments", [[], ["003/table-9.9"]])
def test_command_says_what_is_wrong(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert "--list" in capsys.readouterr().err


def test_command_leaves_out_what_has_no_data(monkeypatch, capsys, tmp_path):
    def without_data(settings, seed):
        raise FileNotFoundError("put the file there")

    known = {"000/a": example(id="000/a", measure=without_data), "000/b": example(id="000/b")}
    monkeypatch.setattr(reproductions, "available", lambda: known)
    assert main(["--all", "--output", str(tmp_path)]) == 1
    assert "000/a was left out: put the file there" in capsys.readouterr().err
    assert {path.name for path in (tmp_path / "000").iterdir()} == {"b.md", "b.json", "b.png"}


def test_quick_command_saves_only_where_told(monkeypatch, tmp_path):
    only(monkeypatch, example(id="000/b"))
    monkeypatch.setattr(framework, "HERE", tmp_path)
    assert main(["000/b", "--quick"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert main(["000/b"]) == 0
    assert (tmp_path / "document_000" / "results" / "b.md").is_file()


def test_command_passes_seed_and_answers_with_an_object(monkeypatch, capsys, tmp_path):
    only(monkeypatch, example(measure=lambda settings, seed: [{"case": "b", "ERR": seed, **settings}]))
    assert main(["000/table-9", "--seed", "7", "--quick", "--json", "-o", str(tmp_path)]) == 0
    answer = json.loads(capsys.readouterr().out)
    result = answer["results"]["000/table-9"]
    assert result["records"] == [{"case": "b", "ERR": 7, "restarts": 1}]
    assert result["published"] == example().published
    assert all(Path(path).is_file() for path in result["files"])
    with pytest.raises(SystemExit, match="2"):
        main(["000/table-9", "--seed", "-1"])
    assert "integer from 0" in capsys.readouterr().err


def test_errors_are_one_line_unless_more_is_asked_for(monkeypatch, capsys):
    def failing(settings, seed):
        raise ValueError("too few rows")

    only(monkeypatch, example(measure=failing))
    assert main(["000/table-9", "--quick", "--json"]) == 1
    told = capsys.readouterr()
    assert "too few rows" in json.loads(told.out)["error"]
    assert "too few rows" in told.err.splitlines()[-1]
    with pytest.raises(ValueError, match="too few rows"):
        main(["000/table-9", "--quick", "--debug"])


def test_interrupt_ends_the_run_and_not_only_a_fit(monkeypatch, tmp_path):
    def fit_that_goes_on(settings, seed):
        with suppress(KeyboardInterrupt):  # as fits of the library do
            signal.raise_signal(signal.SIGINT)
        return [{"case": "b", "ERR": 1.0}]

    only(monkeypatch, example(measure=fit_that_goes_on))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(SystemExit, match="130"):
        main(["000/table-9", "-o", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is before


def only(monkeypatch, reproduction):
    monkeypatch.setattr(reproductions, "available", lambda: {reproduction.id: reproduction})
