"""Which state of the library numbers are of."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


LIBRARY = folder_of("latently")


@cache
def digest(folder: Path) -> bytes:
    """Of the code in a folder."""
    files = sorted(folder.rglob("*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


@cache
def state() -> dict[str, str]:
    """The digest of the library's code, and the last commit that changed it where it is a clean checkout."""
    found = {"source": digest(LIBRARY).hex()[:16]}
    commit = git("log", "-1", "--format=%h of %cs", "--", ".")
    return found | ({"commit": commit} if commit and git("status", "--porcelain", ".") == "" else {})


def git(*arguments: str) -> str | None:
    """What git says in the folder of the library, or None if it knows nothing of it."""
    try:
        done = subprocess.run(
            ["git", "-C", str(LIBRARY), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
