"""Model files: named arrays in safetensors with a JSON header. Reading never runs code.

The header contains the format version, the class, hyper-parameters and everything that is not an array, and
the SHA-256 of header and arrays, so that any changed byte is detected.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from latently.core.replacing import replacement

FORMAT_VERSION = 1
_KEY = "latently"
_FEW = 1000


class ModelFileError(ValueError):
    """The file is not a model file that this version of latently can read."""


def write(path: str | os.PathLike[str], header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Write a model file atomically."""
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps({"format_version": FORMAT_VERSION, **header}, sort_keys=True, allow_nan=False)
    metadata = {_KEY: text, "sha256": _digest(text, arrays)}
    replace_file(path, safetensors.numpy.save(arrays, metadata=metadata))


def replace_file(path: str | os.PathLike[str], payload: bytes) -> None:
    """Replace the contents of the file atomically, after what was written has been read back."""
    with replacement(path) as temporary:
        with open(temporary, "wb") as file:
            file.write(payload)
        with open(temporary, "rb") as file:
            if hashlib.file_digest(file, "sha256").digest() != hashlib.sha256(payload).digest():
                raise OSError(errno.EIO, "what was written reads back differently", str(path))


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a file written by `write`, with checks of version and integrity."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {str(path)!r}")
    try:
        with safetensors.safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator there)
    except Exception as error:  # the parser raises errors of several types
        raise ModelFileError(f"{str(path)!r} is truncated or not a model file: {error}") from None
    if _KEY not in metadata or "sha256" not in metadata:
        raise ModelFileError(f"{str(path)!r} is a safetensors file, but was not written by latently")
    damaged = ModelFileError(f"{str(path)!r} is damaged: its contents do not match its checksum")
    try:
        header = json.loads(metadata[_KEY], parse_constant=_refused, parse_float=_finite)
        version = header["format_version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise damaged from None
    if type(version) is not int or version != FORMAT_VERSION:
        raise ModelFileError(
            f"{str(path)!r} has format version {version!r}; this latently reads version {FORMAT_VERSION}. "
            "Use the version of latently that wrote the file, or fit the model again"
        )
    if _digest(metadata[_KEY], arrays) != metadata["sha256"]:
        raise damaged
    entries = sum(array.size for array in arrays.values())
    if any(length > max(entries, _FEW) for array in arrays.values() for length in array.shape):
        raise ModelFileError(f"{str(path)!r} has an array whose shape is larger than all its entries")
    return header, arrays


def _refused(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond float64")
    return number


def _digest(text: str, arrays: dict[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\0{name}\0{array.dtype.str}\0{array.shape}\0".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
