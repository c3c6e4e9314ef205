"""Results of long runs, kept so that a run that was stopped goes on: one file for each seed.

They are kept in the folder for temporary files, and belong to the code of the networks, or of the whole
library: other code, other files.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import tempfile
from pathlib import Path

from latently import load
from latently.deep import JointAutoencoder
from reproductions.source import digest

NETWORKS = Path(inspect.getfile(JointAutoencoder)).parent


def kept(name, settings, compute, code=NETWORKS):
    """`compute()`, a JSON value, or what an earlier call with these settings and this code gave."""
    path = place(name, settings, ".json", code)
    if not path.exists():
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(compute()), encoding="utf-8")
        os.replace(temporary, path)
    return json.loads(path.read_text(encoding="utf-8"))


def kept_model(name, settings, fit):
    """`fit()`, an estimator, or the one of an earlier call with these settings."""
    path = place(name, settings, ".latently")
    if not path.exists():
        fit().save(path)
    return load(path)


def place(name, settings, ending, code=NETWORKS):
    described = json.dumps(settings, sort_keys=True).encode()
    return folder_of_kept() / f"{name}-{hashlib.sha256(digest(code) + described).hexdigest()[:16]}{ending}"


def folder_of_kept():
    folder = Path(tempfile.gettempdir(), "latently-reproductions")
    folder.mkdir(exist_ok=True)
    return folder
