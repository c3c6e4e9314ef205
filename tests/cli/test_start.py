"""What surrounds every command: help, completion, errors, exit codes, Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

COMMANDS = "fit select predict score transform sample impute report explore datasets demo".split()
COMMAND = [sys.executable, "-m", "latently"]


def run(*arguments, **options):
    return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True, **options)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(latently, command):
    answer = latently(command, "--help")
    assert f"latently {command}" in answer.out and "--debug" in answer.out and "--json" in answer.out


def test_help_lists_all_commands(latently):
    for arguments in ([], ["--help"], ["-h"]):
        assert all(f" {command} " in latently(*arguments).out for command in COMMANDS)


def test_help_loads_no_large_library():
    program = (
        "import sys\nfrom latently.cli import main\nmain(['fit', '--help'])\n"
        "large = {'numpy', 'scipy', 'pandas', 'sklearn', 'matplotlib', 'torch', 'pyarrow', 'PIL'}\n"
        "print(*sorted(large & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []


def test_version(latently):
    from latently import __version__

    assert latently("--version").out.strip() == __version__


def test_completion_script_and_names_of_models():
    script = run(env={**os.environ, "_LATENTLY_COMPLETE": "source_bash"})
    assert script.returncode == 0 and "complete" in script.stdout and "latently" in script.stdout
    asked = {
        "_LATENTLY_COMPLETE": "complete_bash",
        "COMP_WORDS": "latently fit --model mp",
        "COMP_CWORD": "3",
    }
    assert run(env={**os.environ, **asked}).stdout.split() == ["mppca"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["fit"],
        ["fit", "a.csv", "--nonsense"],
        ["fit", "a.csv", "--model", "mcafe"],
        ["fit", "a.csv", "-k", "many"],
        ["fit", "a.csv", "-k", "5..1"],
        ["fit", "a.csv", "-q", "1..99999"],
        ["fit", "a.csv", "--seed", "-1"],
        ["fit", "a.csv", "--separator", "and"],
        ["fit", "a.csv", "--decimal", ";"],
        ["fit", "images", "--resize", "big"],
        ["select", "a.csv", "--criterion", "luck"],
        ["select", "a.csv", "--model", "mjfa"],
        ["score", "model", "a.csv", "--accept", "1.5"],
        ["sample", "model", "-n", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_one_line_and_code_2(latently, arguments):
    answer = latently(*arguments, code=2)
    assert len(answer.err.splitlines()) == 1 and answer.out == "" and "--help" in answer.err


def test_a_near_miss_is_guessed(latently):
    assert "did you mean mcfa?" in latently("fit", "a.csv", "-m", "mcfaa", code=2).err


def test_trouble_is_code_1_and_debug_shows_where(latently, tmp_path):
    answer = latently("fit", tmp_path / "absent.csv", code=1)
    assert len(answer.err.splitlines()) == 1 and "absent.csv" in answer.err
    assert "Traceback" in latently("fit", tmp_path / "absent.csv", "--debug", code=1).err


def test_json_errors_are_objects(latently, tmp_path):
    answer = latently("fit", tmp_path / "absent.csv", "--json", code=1)
    assert "absent.csv" in json.loads(answer.out)["error"]


def test_unexpected_errors_are_one_line_too(latently, monkeypatch, fitted):
    import latently.cli.using as using

    monkeypatch.setattr(using, "open_folder", lambda path: {}["nothing"])
    answer = latently("sample", fitted[0], code=1)
    assert "KeyError" in answer.err and "--debug" in answer.err


@pytest.mark.parametrize(("absent", "extra"), [("typer", "cli"), ("pandas", "csv")])
def test_a_missing_package_is_named(tmp_path, absent, extra):
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3,4\n")
    program = (
        f"import sys\nsys.modules[{absent!r}] = None\nfrom latently.cli import main\n"
        "sys.exit(main(['fit', 'a.csv']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and f"latently[{extra}]" in done.stderr and absent in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_interrupt_leaves_nothing_behind(tmp_path, table):
    table.to_csv(tmp_path / "a.csv", index=False)
    arguments = ["select", "a.csv", "-k", "1..9", "-q", "1..4", "--tol", "0", "--max-iter", "100000"]
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not any(path.name.startswith(".") for path in tmp_path.iterdir()):  # the work has begun
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == ""
    assert "interrupted" in err and "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_reader_that_has_seen_enough_is_no_error(fitted):
    writer = subprocess.Popen(
        [*COMMAND, "sample", fitted[0], "-n", "150000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdout.readline().startswith("component,a,b")
    writer.stdout.close()
    assert "Traceback" not in writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 0


def test_datasets_are_listed_and_written(latently, tmp_path):
    assert "wine" in latently("datasets").out
    assert "wine" in json.loads(latently("datasets", "--json").out)["datasets"]
    latently("datasets", "wine", "-o", tmp_path / "wine.csv")
    assert latently("datasets", "wine").out == (tmp_path / "wine.csv").read_text()
    assert len(json.loads(latently("datasets", "wine", "--json").out)["results"]) == 178
    assert len((tmp_path / "wine.csv").read_text().splitlines()) == 179
    assert "already" in latently("datasets", "wine", "-o", tmp_path / "wine.csv", code=1).err
    assert "did you mean" in latently("datasets", "wines", "-o", tmp_path / "other.csv", code=1).err


def test_errors_of_sizes_name_their_option(latently, table, tmp_path):
    table.to_csv(tmp_path / "a.csv", index=False)
    answer = latently("fit", tmp_path / "a.csv", "-m", "mcfa", "-k", 0, "-q", 1, code=1)
    assert "n_components (-k) must be an integer of at least 1" in answer.err
    answer = latently("fit", tmp_path / "a.csv", "-m", "mcfa", "-k", 1, "-q", 9, code=1)
    assert "n_factors=9 (-q) must not be larger" in answer.err
