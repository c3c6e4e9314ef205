"""Rows that are images, as one PNG file."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np

_GAP = 1  # pixels between images


def sprite(rows, image_shape, *, n_columns, limits):
    """The images in lines of `n_columns`, bright where values are high, as RGBA levels (height, width, 4).

    If `limits` is None, values are signed: zero is white, positive blue and negative orange, and the colour
    channels of a pixel are averaged.
    """
    height, width = image_shape[:2]
    images = np.asarray(rows, dtype=float).reshape(-1, height, width, *(image_shape[2:] or (1,)))
    n_lines = -(-len(images) // n_columns)
    # transparent between images
    canvas = np.zeros((n_lines * (height + _GAP) - _GAP, n_columns * (width + _GAP) - _GAP, 4), np.uint8)
    for i, image in enumerate(images):
        top, left = (i // n_columns) * (height + _GAP), (i % n_columns) * (width + _GAP)
        place = canvas[top : top + height, left : left + width]
        place[..., :3] = _signed(image) if limits is None else _bright(image, limits)
        place[..., 3] = 255
    return canvas


def _bright(image, limits):
    low, high = limits
    level = np.clip((image - low) / max(high - low, np.finfo(float).tiny), 0, 1)
    return np.round(255 * level * np.ones(3)).astype(
        np.uint8
    )  # grey images have the same level in all channels


def _signed(image):
    image = image.mean(axis=2, keepdims=True)
    level = image / max(np.max(np.abs(image)), np.finfo(float).tiny)
    ends = np.where(level > 0, [0, 90, 160], [205, 85, 0])
    return np.round(255 + np.abs(level) * (ends - 255)).astype(np.uint8)


def data_uri(pixels):
    """RGBA levels (height, width, 4) as a data URI of a PNG file."""
    return "data:image/png;base64," + base64.b64encode(_png(pixels)).decode("ascii")


def _png(pixels):
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)  # no filter
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)  # 8 bits of red, green, blue and alpha
    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in parts
    )
