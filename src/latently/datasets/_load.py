"""Real data sets by name: from a folder of files, from scikit-learn's own copies, or from public sources.

Wherever the arrays come from, they are verified by a checksum in the catalogue before they are returned.
"""

from __future__ import annotations

import difflib
import hashlib
import io
import os
import tempfile
from itertools import zip_longest
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from latently.datasets._catalogue import CATALOGUE, Arrays, Entry

FOLDER_VARIABLE = "LATENTLY_DATA"
DEFAULT_FOLDER = "~/latently_data"


def names():
    """The data sets available to `load`.

    Returns
    -------
    dict of str to str
        The name of each data set, and a one-line description.

    Examples
    --------
    >>> from latently.datasets import names
    >>> names()["iris"]
    '150 irises of 3 species, 4 measurements'
    """
    return {name: entry.title for name, entry in CATALOGUE.items()}


def load(name, data_home=None):
    """Load a real data set by name.

    The file `<name>.npz` is searched in a folder: `data_home`, else the folder in the environment variable
    `LATENTLY_DATA`, else `~/latently_data`. Data sets that are not there are taken from scikit-learn's
    bundled copies (iris, wine, wdbc), or downloaded from public sources that can be verified, and stored in
    that folder.

    Parameters
    ----------
    name : str
        One of `names()`.
    data_home : str or path, optional
        The folder of files.

    Returns
    -------
    sklearn.utils.Bunch
        `X` (n_samples, n_features) and `y` (n_samples,), all rows; if the data set has an official split,
        training rows come first, and `X_train`, `y_train`, `X_test`, `y_test` are included.
        `class_names` (so that `class_names[y]` are the labels), `feature_names` and `image_shape`
        (height, width), each None if the data set has none; `name` and `description`; and the other arrays of
        the file, such as `X_64` or `subject`.

    Raises
    ------
    ValueError
        If there is no such data set, or its file is damaged.
    FileNotFoundError
        If the data set is not found locally and cannot be downloaded.

    Examples
    --------
    >>> from latently.datasets import load
    >>> wine = load("wine")
    >>> wine.X.shape, wine.class_names[wine.y[0]]
    ((178, 13), np.str_('class_0'))
    """
    entry = _entry(name)
    folder = _folder(data_home)
    path = folder / f"{name}.npz"
    if path.is_file():
        arrays = _read(path, entry)
    elif entry.bundled is not None:
        arrays = _checked(entry.bundled(), entry, f"scikit-learn's copy of {name!r}")
    else:
        arrays = _downloaded(name, entry, folder)
    return _bunch(name, entry, arrays)


def _entry(name) -> Entry:
    if isinstance(name, str) and name in CATALOGUE:
        return CATALOGUE[name]
    close = difflib.get_close_matches(str(name), CATALOGUE, n=1, cutoff=0.5)
    meant = f"; did you mean {close[0]!r}?" if close else ""
    raise ValueError(f"name must be one of {', '.join(CATALOGUE)}, not {name!r}{meant}")


def _folder(data_home) -> Path:
    return Path(data_home or os.environ.get(FOLDER_VARIABLE) or DEFAULT_FOLDER).expanduser()


def _read(path: Path, entry: Entry) -> Arrays:
    """The arrays of a file, which must be the one in the catalogue or one written by `_downloaded`."""
    data = path.read_bytes()
    found = hashlib.sha256(data).hexdigest()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {key: file[key] for key in file.files}
    except Exception:  # a damaged archive raises errors of many types
        arrays = {}
    if found == entry.sha256 or (arrays and entry.content and content_digest(arrays) == entry.content):
        return arrays
    raise ValueError(
        f"the file {str(path)!r} is damaged or not the expected file: its SHA-256 is {found}, but should be "
        f"{entry.sha256}. Replace or remove it. To use your own file, read it with numpy.load instead."
    )


def _downloaded(name: str, entry: Entry, folder: Path) -> Arrays:
    """Download the arrays of a data set from its public source and store them in the folder."""
    if entry.download is None:
        raise _absent(name, entry, folder, "cannot be downloaded automatically")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # in the folder itself, so that the finished file is moved into place atomically
        with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
            arrays = _checked(entry.download(scratch), entry, f"the public copy of {name!r}")
            finished = Path(scratch, f"{name}.npz")
            np.savez_compressed(finished, **arrays)
            os.replace(finished, folder / finished.name)
        return arrays
    except OSError as error:
        raise _absent(name, entry, folder, f"could not be downloaded ({error})") from error


def _absent(name: str, entry: Entry, folder: Path, reason: str) -> FileNotFoundError:
    return FileNotFoundError(
        f"the data set {name!r} was not found and {reason}. Put the file {name}.npz "
        f"(SHA-256 {entry.sha256}) into the folder {str(folder)!r}, or give the folder that contains it as "
        f"data_home or in the environment variable {FOLDER_VARIABLE}. Source: {entry.source}"
    )


def _checked(arrays: Arrays, entry: Entry, origin: str) -> Arrays:
    if content_digest(arrays) == entry.content:
        return arrays
    raise ValueError(
        f"{origin} does not match the checksum of latently, so it is not used: it has changed, or is "
        f"damaged. Source: {entry.source}"
    )


def content_digest(arrays: Arrays) -> str:
    """Checksum of the contents of the arrays, independent of row order and storage format."""
    digest = hashlib.sha256()
    rest = dict(arrays)
    for part in ("", "_train", "_test"):
        columns = [key for key in (f"X{part}", f"X_num{part}", f"X_cat{part}", f"y{part}") if key in arrays]
        if columns:
            # unequal lengths lead to a different checksum
            rows = zip_longest(*(_rows_as_bytes(rest.pop(key)) for key in columns), fillvalue=b"")
            hashes = sorted(hashlib.sha256(b"".join(row)).digest() for row in rows)
            digest.update(repr(columns).encode() + b"".join(hashes))
    for key in sorted(rest):  # names and shapes
        digest.update(repr((key, rest[key].tolist())).encode())
    return digest.hexdigest()


def _rows_as_bytes(array: np.ndarray) -> list[bytes]:
    little_endian = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return [row.tobytes() for row in little_endian]


def _bunch(name: str, entry: Entry, arrays: Arrays) -> Bunch:
    data = Bunch(y=None, class_names=None, feature_names=None, image_shape=None)
    data.update(arrays, name=name, description=entry.description)
    if "X_num" in data:  # codes of categories are not measurements, so they stay in X_cat
        data.X, data.feature_names = data.X_num, data.num_names
    if "X" not in data:
        data.X = np.concatenate([data.X_train, data.X_test])
        data.y = np.concatenate([data.y_train, data.y_test])
    for key in [key for key in arrays if key.startswith("image_shape")]:
        data[key] = tuple(data[key].tolist())
    return data
