"""Damaged and forged files: models of every class, checkpoints, and folders of the command line."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np

import latently
from latently.core import io
from latently.core.io import ModelFileError
from tests.contracts.cases import CASES, ROW_METHODS
from tests.fuzz.attack import Finding, chosen, expect, memory_within, nothing_is_run, quiet, within

SAVED = sorted(Path(__file__).parents[1].glob("saved_files/*.latently"))
NUMBERS = [0, 1, -1, 2, 3, 10**8, 10**9, 2**31, 2**63, -(2**63), 10**30, 0.5, 1e-300, 1e300, -1e300, 1e16]
VALUES = [
    *NUMBERS,
    True,
    False,
    None,
    "",
    "x",
    "auto",
    "\0",
    "a" * 1000,
    [],
    {},
    [1],
    [[1]],
    [10**9] * 3,
    {"a": 1},
]
METHODS = (*ROW_METHODS, "n_parameters")


def damaged_model(rng, folder):
    """Bytes changed at random: refused, or read as it was."""
    _all_imported()
    path = chosen(rng, SAVED)
    original, file = path.read_bytes(), folder / "model.latently"
    file.write_bytes(damaged(rng, original, chosen(rng, SAVED).read_bytes()))
    with within(20), memory_within(200), nothing_is_run(), quiet():
        try:
            latently.load(file)
        except ModelFileError as error:
            expect(str(file) in str(error), f"no name of the file in {error}")
            return "refused"
    (header, arrays), (was, were) = io.read(file), io.read(path)
    same = header == was and arrays.keys() == were.keys()
    same = same and all(np.array_equal(arrays[name], were[name]) for name in were)
    expect(same or file.read_bytes() in _originals(), f"a damaged {path.name} was read")
    return "harmless"


@cache
def _all_imported():
    """Modules, which compile themselves where they were never imported, before files that may be written."""
    for path in SAVED:
        latently.load(path)


@cache
def _originals():
    return {path.read_bytes() for path in SAVED}


def damaged(rng, content, other):
    """The content with some bytes changed, cut, repeated, or followed by those of another file."""
    data = bytearray(content)
    for _ in range(int(rng.integers(1, 5))):
        at = (
            int(rng.integers(len(data) + 1))
            if rng.random() < 0.5
            else int(rng.integers(min(len(data), 600) + 1))
        )
        way, n = int(rng.integers(6)), int(1 + rng.exponential(8))
        if way == 0:
            data[at : at + n] = rng.bytes(n)
        elif way == 1:
            del data[at : at + n]
        elif way == 2:
            data[at:at] = rng.bytes(n)
        elif way == 3:
            del data[at:]
        elif way == 4:
            data[at:] = other[int(rng.integers(len(other))) :]
        elif data:
            data[at % len(data)] ^= 1 << int(rng.integers(8))
    return bytes(data)


def forged_model(rng, folder):
    """Contents changed and a checksum to match: refused, or a model that works and can be saved again."""
    _all_imported()
    path, file = chosen(rng, SAVED), folder / "forged.latently"
    header, arrays = io.read(path)
    if not write_forged(rng, file, header, arrays):
        return "not writable"
    with within(30), memory_within(300), quiet():
        with nothing_is_run():
            try:
                model = latently.load(file)
            except ModelFileError:
                return "refused"
        use(model, rng, folder)
    return "accepted"


def write_forged(rng, file, header, arrays):
    header, arrays = json.loads(json.dumps(header)), dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.5:
            _change_header(rng, header)
        else:
            _change_arrays(rng, arrays)
    try:
        io.write(file, {key: value for key, value in header.items() if key != "format_version"}, arrays)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _change_header(rng, header):
    node = header
    while True:
        if not node:
            break
        key = chosen(rng, node) if isinstance(node, dict) else int(rng.integers(len(node)))
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.85:
            node = node[key]
            continue
        way = rng.random()
        if way < 0.1 and isinstance(node, dict):
            del node[key]
        elif way < 0.2 and isinstance(node, dict):
            node[str(chosen(rng, ["extra", "checkpoint", "n_components", "class", "kind"]))] = deepcopy(
                chosen(rng, VALUES)
            )
        else:
            node[key] = deepcopy(chosen(rng, VALUES))
        break


def _change_arrays(rng, arrays):
    name = chosen(rng, arrays)
    array = arrays[name]
    way = int(rng.integers(7))
    if way == 0:
        del arrays[name]
    elif way == 1:
        arrays[f"{name}{chosen(rng, ['x', '.0', '.extra'])}"] = array
    elif way == 2:
        with quiet():
            arrays[name] = array.astype(chosen(rng, [np.float32, np.int64, np.bool_, np.float16, np.uint8]))
    elif way == 3:
        arrays[name] = np.zeros(chosen(rng, [(0,), (), (1,), (3, 0), array.shape[::-1], (*array.shape, 2)]))
    elif way == 4:
        arrays[chosen(rng, arrays)] = array
    elif array.size:
        changed = np.array(array)
        values = [0, 1, -1, 1e-320, 1e300, -1e300, 1e160, 1e-160, np.nan, np.inf, 7.5]
        with quiet():
            value = chosen(rng, [v for v in values if array.dtype.kind == "f" or v in (0, 1)])
            changed.flat[int(rng.integers(array.size)) if way == 5 else slice(None)] = value
        arrays[name] = changed


def use(model, rng, folder):
    """A model that was accepted works: finite results or a ValueError; and it can be saved again."""
    X = rng.normal(size=(5, model.n_features_in_)) if model.n_features_in_ < 10**5 else None
    expect(X is not None, "a model of more features than it has numbers")
    X = np.abs(X) / 4 if type(model).__name__ in ("NMF", "BNMF", "RBM", "DBN", "VAE") else X
    repr(model)
    for method in METHODS:
        if not hasattr(model, method):
            continue
        try:
            result = getattr(model, method)(*(() if method == "n_parameters" else (X,)))
        except ValueError as error:
            expect(type(error) is not np.linalg.LinAlgError, f"{type(model).__name__}.{method}: {error!r}")
            continue
        except Exception as error:
            raise Finding(f"{type(model).__name__}.{method}: {error!r}") from error
        parts = result if isinstance(result, tuple) else (result,)
        numbers = [np.asarray(part) for part in parts if np.asarray(part).dtype.kind == "f"]
        expect(not any(np.isnan(part).any() for part in numbers), f"{type(model).__name__}.{method} gave NaN")
    if hasattr(model, "_needed_at_load") and model._needed_at_load():
        return
    try:
        model.save(folder / "again.latently")
        latently.load(folder / "again.latently")
    except Exception as error:
        raise Finding(f"accepted, but cannot be saved again: {error!r}") from error


# -- checkpoints ----------------------------------------------------------------------------------------


class Killed(Exception):
    pass


def _kill(iteration):
    if iteration.number == 2:
        raise Killed


RESUMABLE = [case for case in CASES if {"checkpoint", "checkpoint_every", "callbacks"} <= case.options]


@cache
def _killed_fit(case):
    """The bytes of a checkpoint that a killed fit of this case leaves; None if it has none that early."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "c"
        try:
            case.fit(*case.data(), **_settings(case, path), callbacks=[_kill])
        except Killed:
            pass
        except Exception as error:
            raise Finding(f"a fit with a checkpoint: {error!r}") from error
        return path.read_bytes() if path.exists() else None


def _settings(case, path):
    more = {"accelerate": None} if "accelerate" in case.options else {}
    return {"checkpoint": path, "checkpoint_every": 1, **more}


def forged_checkpoint(rng, folder):
    """A checkpoint with anything in it: refused by a ValueError that names it, or gone on with."""
    case, path = chosen(rng, RESUMABLE), folder / "c"
    content = _killed_fit(case)
    if content is None:
        return "no checkpoint"
    path.write_bytes(content)
    if rng.random() < 0.3:
        path.write_bytes(damaged(rng, content, content))
    elif not write_forged(rng, path, *io.read(path)):
        return "not writable"
    with within(60), memory_within(300), quiet():
        try:
            case.fit(*case.data(), **_settings(case, path))
        except ValueError as error:
            told = str(path) in str(error)
            expect(
                told, f"{case}: an error that does not name the checkpoint: {type(error).__name__}: {error}"
            )
            return "refused"
        except Exception as error:
            raise Finding(f"{case}: {error!r}") from error
    return "gone on"


# -- the command line -----------------------------------------------------------------------------------


FITS = (  # of the command line: numbers, text beside numbers, and classes
    ("-m", "mcfa", "-k", "2", "-q", "1"),
    ("-m", "bayesian-mfa"),
    ("-m", "dagmm", "-q", "1", "--max-iter", "2"),
    ("-m", "per-class", "--label", "kind"),
)


@cache
def _folder_of_a_fit(options):
    """A folder that `latently fit` wrote, rows for it, and what `latently score` says of them."""
    import tempfile

    home = Path(tempfile.mkdtemp(prefix="latently-fuzz-"))
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 3)) * [1, 10, 100] + [9, 50, 1000]
    cells = [[*(f"{value:.6g}" for value in row), "high" if row[0] > 9 else "low"] for row in rows]
    lines = ["a,b,c,kind", *map(",".join, cells)]
    (home / "rows.csv").write_text("\n".join(lines) + "\n")
    code, said = command("fit", home / "rows.csv", *options, "-o", home / "m")
    expect(code == 0, f"latently fit {' '.join(options)} failed: {said[-300:]}")
    code, said = command("score", home / "m", home / "rows.csv", "-o", home / "said.csv")
    expect(code == 0, f"latently score failed: {said}")
    return home, (home / "said.csv").read_text()


def command(*arguments):
    """Exit code and output of the command line, run in this process."""
    from contextlib import redirect_stderr, redirect_stdout
    from io import StringIO
    from unittest.mock import patch

    from latently import cli

    said = StringIO()
    with patch("sys.argv", ["latently", *map(str, arguments)]), redirect_stdout(said), redirect_stderr(said):
        try:
            code = cli.main()
        except SystemExit as error:
            code = error.code
    return code if isinstance(code, int) else int(bool(code)), said.getvalue()


def damaged_folder(rng, folder):
    """Any file of a folder of the command line changed: an error, or the same scores."""
    home, expected = _folder_of_a_fit(chosen(rng, FITS))
    shutil.copytree(home / "m", folder / "m")
    files = sorted(path for path in (folder / "m").iterdir() if path.suffix in (".json", ".latently"))
    path = chosen(rng, files)
    content = path.read_bytes()
    if path.suffix == ".json" and rng.random() < 0.7:
        header = json.loads(content)
        if rng.random() < 0.5:
            _change_header(rng, header)
            path.write_text(json.dumps(header))
        else:
            path.write_bytes(_other_digit(rng, content))
    else:
        path.write_bytes(damaged(rng, content, content))
    with within(60), memory_within(400), quiet():
        code, said = command("score", folder / "m", home / "rows.csv", "-o", folder / "said.csv")
    if code != 0:
        expect("Traceback" not in said, f"a traceback: {said[-300:]}")
        expect(said.strip(), "no word of the error")
        return "refused"
    same = (folder / "said.csv").read_text() == expected
    expect(same, f"{path.name} was changed, and other scores came with exit code 0")
    return "harmless"


def _other_digit(rng, content):
    places = [i for i, byte in enumerate(content) if chr(byte).isdigit()]
    data = bytearray(content)
    data[int(rng.choice(places))] = ord(str(int(rng.integers(10))))
    return bytes(data)


ATTACKS = {
    attack.__name__: attack for attack in (damaged_model, forged_model, forged_checkpoint, damaged_folder)
}
