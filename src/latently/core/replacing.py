"""Files and folders that appear whole or not at all, whatever happens: errors, kills, full disks, power cuts.

New contents are written beside the old ones, under a hidden name, flushed to the disk, and then take their
place in one step of the file system. A process that is killed leaves its hidden file behind; the next one
that writes to the same place removes it. It tells one that is in use by a lock, which ends with its process.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where files in use cannot be removed
    fcntl = None  # type: ignore[assignment]

_LONGEST_NAME = 230  # bytes of UTF-8; the hidden name is longer, and file systems take 255
_EXCHANGE = 2  # renameat2: RENAME_EXCHANGE
_THIS_FOLDER = -100  # AT_FDCWD


@contextmanager
def replacement(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty file that takes the place of `path` at the end of the block; after an error nothing changed.

    It has the permissions of the file that it replaces, else those of any new file. A link is replaced, not
    followed; a device or pipe, or a link to one, is an error.
    """
    path = Path(path)
    if "\0" in str(path):
        raise ValueError(f"the path {str(path)!r} holds a character of code zero, which no file can have")
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise OSError(errno.EINVAL, "cannot write: this is a device or pipe, not a file", str(path))
    with _named(path):
        _remove_abandoned(path)
        temporary, handle = _new_file(path)
        try:
            yield temporary
            _keep_permissions(path, temporary)
            os.fsync(handle)
            os.replace(temporary, path)
            flush_folder(path.parent)
        finally:
            _forget(temporary)
            os.close(handle)


@contextmanager
def folder_replacement(path: str | os.PathLike[str]) -> Iterator[Path]:
    """An empty folder that takes the place of `path` at the end of the block.

    It does so in one step where the system can. An older folder is removed with all it holds.
    After an error nothing changed.
    """
    path = Path(path)
    with _named(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(path)
        temporary = _hidden(path)
        temporary.mkdir()
        handle = _locked(temporary)
        try:
            yield temporary
            for file in (entry for entry in temporary.rglob("*") if entry.is_file()):
                _flush(file)
            if path.is_dir():
                shutil.copymode(path, temporary)
            flush_folder(temporary)
            _swap(temporary, path)
            flush_folder(path.parent)
        finally:
            _forget(temporary)  # what is there now is the older folder, if any
            if handle is not None:
                os.close(handle)


def flush_folder(folder: Path) -> None:
    """Make names in a folder survive a power cut, where the system can."""
    if os.name == "posix":
        with suppress(PermissionError):  # a folder that may be written, but not read
            _flush(folder)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # file systems without it
            raise
    finally:
        os.close(handle)


# -- names ------------------------------------------------------------------------------------------------


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of the system, such as a full disk, name the file that was to be written."""
    try:
        yield
    except OSError as error:
        ours = error.filename is None or Path(os.fsdecode(error.filename)).name.startswith(_prefix(path))
        if not ours or error.errno is None:
            raise
        raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from error


def _prefix(path: Path) -> str:
    name = path.name
    if len(os.fsencode(name)) > _LONGEST_NAME:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()[:32]
    return f".{name}.~"


def _hidden(path: Path) -> Path:
    """A new hidden name with the ending of the path, by which writers of some formats go."""
    ending = path.suffix if len(path.suffix) <= 10 else ""
    return path.with_name(f"{_prefix(path)}{secrets.token_hex(4)}{ending}")


def _new_file(path: Path) -> tuple[Path, int]:
    while True:
        temporary = _hidden(path)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)  # less what the umask says
        if fcntl is None:
            return temporary, handle
        with suppress(OSError):  # file systems without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if temporary.exists():
            with suppress(FileNotFoundError):
                if not stat.S_IMODE(path.stat().st_mode) & 0o077:
                    os.fchmod(handle, 0o600)  # from the start, for who may not read the old one
            return temporary, handle
        os.close(handle)  # another process took it for abandoned before it was locked


def _keep_permissions(path: Path, temporary: Path) -> None:
    with suppress(FileNotFoundError):  # another process may have removed it by now
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            os.chmod(temporary, stat.S_IMODE(mode) & 0o777)


def _locked(folder: Path) -> int | None:
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def _remove_abandoned(path: Path) -> None:
    """Remove hidden files and folders of processes that were killed while they wrote to this path."""
    if fcntl is None:
        return
    start = _prefix(path)
    with suppress(OSError):  # of a folder that may not be listed
        for entry in os.scandir(path.parent):
            if entry.name.startswith(start) and not entry.is_symlink():
                _remove_unless_locked(Path(entry.path))


def _remove_unless_locked(path: Path) -> None:
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _forget(path)
        finally:
            os.close(handle)


def _forget(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


# -- folders ----------------------------------------------------------------------------------------------


def _swap(new: Path, path: Path) -> None:
    """Put the folder `new` at `path`; an older one there is at `new` afterwards."""
    if not path.is_dir():
        os.rename(new, path)
        return
    if _exchanged(new, path):
        return
    old = _hidden(path)  # in two steps; between them a kill leaves both under hidden names
    os.rename(path, old)
    try:
        os.rename(new, path)
    except BaseException:
        os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether the system could exchange the two names in one step."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    if rename(_THIS_FOLDER, names[0], _THIS_FOLDER, names[1], _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))
