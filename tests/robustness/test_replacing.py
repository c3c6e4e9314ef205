"""Files and folders appear whole or not at all, with the permissions they had, and nothing is left behind."""

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from latently.core import io
from latently.core.replacing import folder_replacement, replacement
from latently.core.sources import RowWriter

posix = pytest.mark.skipif(os.name != "posix", reason="of POSIX systems")


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


@posix
@pytest.mark.parametrize("of_old", [0o600, 0o640, 0o444, 0o666])
def test_a_file_keeps_its_permissions(of_old, tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(of_old)
    io.replace_file(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", of_old)


@posix
def test_a_new_file_has_the_permissions_of_any_and_the_umask_is_not_touched(tmp_path, monkeypatch):
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", None)  # it belongs to all threads
        io.replace_file(tmp_path / "x", b"new")
        with RowWriter(tmp_path / "y.npy") as file:
            file.write([[1.0]])
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert mode(tmp_path / "x") == mode(tmp_path / "y.npy") == 0o640


@posix
def test_a_private_file_is_private_while_it_is_written(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    path.chmod(0o600)
    with replacement(path) as temporary:
        assert mode(temporary) == 0o600


@posix
def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "x").symlink_to(tmp_path / "target")
    io.replace_file(tmp_path / "x", b"ours")
    assert (tmp_path / "target").read_bytes() == b"theirs"
    assert not (tmp_path / "x").is_symlink() and (tmp_path / "x").read_bytes() == b"ours"


@pytest.mark.parametrize("name", ["x", "x" * 255, "ä" * 127, "-rf", "a b'c.npy"])
def test_any_name_can_be_replaced(name, tmp_path):
    for content in (b"old", b"new"):
        io.replace_file(tmp_path / name, content)
    assert (tmp_path / name).read_bytes() == b"new" and names(tmp_path) == [name]


def test_a_full_disk_names_the_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.write_bytes(b"old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for write in (lambda: io.replace_file(path, b"new"), lambda: _write_rows(path)):
        with pytest.raises(OSError, match=r"No space left on device.*model") as caught:
            write()
        assert caught.value.errno == errno.ENOSPC
        assert path.read_bytes() == b"old" and names(tmp_path) == ["model"]


def _write_rows(path):
    with RowWriter(path) as file:
        file.write([[1.0]])


def test_what_reads_back_differently_replaces_nothing(tmp_path, monkeypatch):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    digest = io.hashlib.file_digest
    monkeypatch.setattr(io.hashlib, "file_digest", lambda file, name: digest(io_of(b"rotten"), name))
    with pytest.raises(OSError, match=r"reads back differently.*x"):
        io.replace_file(path, b"new")
    assert path.read_bytes() == b"old" and names(tmp_path) == ["x"]


def io_of(content):
    import io as standard

    return standard.BytesIO(content)


# -- killed ---------------------------------------------------------------------------------------------

KILLED = """
import sys, time
from pathlib import Path
from latently.core.replacing import folder_replacement, replacement
kind, path = sys.argv[1:]
with (replacement if kind == "file" else folder_replacement)(path) as here:
    (here if kind == "file" else here / "part").write_bytes(b"half")
    print("ready", flush=True)
    time.sleep(60)
"""


def started(kind, path):
    process = subprocess.Popen([sys.executable, "-c", KILLED, kind, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


@posix
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_leaves_is_removed_by_the_next(kind, tmp_path):
    path, make = tmp_path / "x", replacement if kind == "file" else folder_replacement
    process = started(kind, path)
    with make(path):  # beside a process that is still writing
        assert len(names(tmp_path)) == 2
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(names(tmp_path)) == 2  # the new one, and what is left
    with make(path):
        pass
    assert names(tmp_path) == ["x"]


def test_hidden_files_of_others_are_left_alone(tmp_path):
    others = [".x", ".x.swp", ".xy.~12345678", ".y.~12345678", "x.~12345678"]
    for name in others:
        (tmp_path / name).touch()
    io.replace_file(tmp_path / "x", b"new")
    assert names(tmp_path) == sorted([*others, "x"])


def test_many_threads_write_one_file(tmp_path):
    """The last one wins, each wrote all, and nothing is left."""
    contents = [bytes([i]) * 1000 for i in range(8)]
    errors = []

    def write(content):
        try:
            for _ in range(5):
                io.replace_file(tmp_path / "x", content)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert (tmp_path / "x").read_bytes() in contents and names(tmp_path) == ["x"]


# -- folders --------------------------------------------------------------------------------------------


def test_a_file_that_others_remove_meanwhile_is_written(tmp_path, monkeypatch):
    """As two fits do that share a checkpoint: one of them stopped with a FileNotFoundError."""
    path = tmp_path / "shared"
    path.write_text("old")
    looked = Path.stat

    def removed(self, **options):
        found = looked(self, **options)
        if self == path:
            os.unlink(path)
        return found

    with replacement(path) as temporary:
        temporary.write_text("new")
        monkeypatch.setattr(Path, "stat", removed)
    assert path.read_text() == "new"


def test_a_folder_is_always_there(tmp_path):
    """As long as it is replaced, whoever looks finds one that is whole."""
    path = tmp_path / "model"
    seen, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            seen.append((path / "a").exists())  # one look, as the folder may be exchanged between two

    with folder_replacement(path) as folder:
        (folder / "a").write_text("0")
    looking = threading.Thread(target=look)
    looking.start()
    for number in range(100):
        with folder_replacement(path) as folder:
            (folder / "a").write_text(str(number))
    stop.set()
    looking.join()
    assert names(tmp_path) == ["model"] and (path / "a").read_text() == "99"
    if sys.platform.startswith("linux"):
        assert all(seen)


def test_a_folder_that_fails_leaves_the_old_one(tmp_path):
    path = tmp_path / "model"
    for content in ("old", None):
        try:
            with folder_replacement(path) as folder:
                (folder / "a").write_text(content or "new")
                if content is None:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            pass
    assert names(tmp_path) == ["model"] and (path / "a").read_text() == "old"


def test_without_an_exchange_folders_are_replaced_in_two_steps(tmp_path, monkeypatch):
    monkeypatch.setattr("latently.core.replacing._exchanged", lambda one, other: False)
    for content in ("old", "new"):
        with folder_replacement(tmp_path / "model") as folder:
            (folder / "a").write_text(content)
            time.sleep(0)
    assert names(tmp_path) == ["model"] and (tmp_path / "model" / "a").read_text() == "new"


@posix
def test_devices_and_pipes_are_not_replaced(tmp_path):
    """`model.save("/dev/null")` by root would leave a system without it."""
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link):
        with pytest.raises(OSError, match=r"a device or pipe, not a file.*'.*(pipe|link)'"):
            io.replace_file(path, b"new")
    assert names(tmp_path) == ["link", "pipe"] and link.is_symlink() and pipe.is_fifo()


def test_a_path_with_a_zero_byte_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"a\\x00b.* holds a character of code zero"):
        io.replace_file(tmp_path / "a\0b", b"new")
