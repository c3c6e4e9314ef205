"""Which state of the library numbers are of."""

from __future__ import annotations

import hashlib
import subprocess
from functools import cache
from pathlib import Path

import latently

LIBRARY = Path(latently.__file__).parent


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
