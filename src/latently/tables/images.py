"""Folders of images: one row per image, with pixels from 0 to 1."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from latently.core.sources import Table, package, pixel_names, rows_in_frame
from latently.core.words import listed, shown
from latently.estimators.messages import warn_user

_MOST_PIXELS = 1 << 20  # of a row, and
_MOST_STORED = 1 << 26  # of a file, before it is resized
_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP")  # whatever a file is called: others may run programs
_BESIDE = ("file", "folder")
_IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")


class BrokenImage(ValueError):
    """A file that cannot be read as an image."""


class _TooLarge(ValueError):
    """An image with too many pixels for a row."""


def open_images(folder, reading):
    """The images below a folder as a table of pixels, with the names of each image and its folder."""
    image = package("PIL.Image", "images", "folders of images")
    pandas = package("pandas", "csv", "tables")
    there = sorted(
        (file for file in _files_in(folder) if file.suffix.lower() in _IMAGES),
        key=lambda file: file.relative_to(folder).as_posix(),
    )
    if not there:
        raise ValueError(f"the folder {shown(folder)} has no images in it ({', '.join(_IMAGES)})")
    mode = "RGB" if reading.colour else "L"

    def check_size(width, height):
        if width * height > _MOST_STORED:
            raise BrokenImage(f"{width} x {height} pixels are more than {_MOST_STORED}")
        height, width = reading.resize or (height, width)
        if width * height * len(mode) > _MOST_PIXELS:
            raise _TooLarge(
                f"images of {width} x {height} are too large; give a smaller size, for example --resize 64x64"
            )

    def pixels(file, size):
        """The image with pixels from 0 to 1, resized to (height, width) if a size is given."""
        try:
            with image.open(file, formats=_FORMATS) as opened:
                check_size(*opened.size)  # as the file says, before there is memory for them
                grey = opened.convert(mode)
                if reading.resize and grey.size != reading.resize[::-1]:
                    grey = grey.resize(reading.resize[::-1])
                values = np.asarray(grey, dtype=np.float32) / 255
        except _TooLarge:
            raise
        except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
            raise BrokenImage(str(error)) from error
        if size is not None and values.shape[:2] != size:
            (h, w), (height, width) = values.shape[:2], size
            raise ValueError(
                f"images differ in size: {shown(first.name)} is {width} x {height}, {shown(file.name)} "
                f"{w} x {h}; give for example --resize {width}x{height}"
            )
        return values

    broken: dict[str, str] = {}  # images that cannot be read, and why
    for file in there:  # the first that can be read gives the size
        try:
            shape, first = pixels(file, None).shape, file
            break
        except BrokenImage as error:
            broken[file.name] = str(error)
    else:
        raise ValueError(
            f"none of the {len(there)} images in {shown(folder)} can be read: {broken[there[0].name]}"
        )
    names = pixel_names(shape)

    def frames(missing=(), texts=(), moved=None):
        step = rows_in_frame(len(names))
        for start in range(0, len(there), step):
            rows, some = [], []
            for number, file in enumerate(there[start : start + step], start + 1):
                try:
                    rows.append(pixels(file, shape[:2]).reshape(-1))
                    some.append(file.relative_to(folder))
                except BrokenImage as error:
                    broken[file.name] = str(error)
                if moved is not None:
                    moved(number)
            if not rows:
                continue
            frame = pandas.DataFrame(np.stack(rows), columns=names)
            yield frame.assign(
                file=[file.as_posix() for file in some], folder=[file.parent.as_posix() for file in some]
            )
        if broken:
            name, reason = next(iter(broken.items()))
            warn_user(
                f"{len(broken)} of {len(there)} images cannot be read and are left out: {listed(broken)} "
                f"({name}: {reason})"
            )

    return Table(
        folder,
        shown(folder),
        [*names, *_BESIDE],
        None,  # some may be broken
        frames,
        lambda: (frame[names].to_numpy() for frame in frames()),
        size=len(there),
        named=False,
        array_shape=(len(there), *shape),
        beside=_BESIDE,
    )


def _files_in(folder):
    """All files below a folder except hidden ones; links to folders are not followed."""
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in names if not name.startswith("."))
