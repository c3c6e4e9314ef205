"""Synthetic images that are sums of pictures, with noise: the tests of models with binary codes."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_scalar

from latently.datasets._load import load
from latently.datasets._synthetic import _random_state

_SHAPES = (
    "010111010",
    "111101111",
    "100110111",
    "111010010",
)  # plus, ring, triangle and T, 3 x 3 pixels each


def load_griffiths(n_samples=150, *, noise=0.5, luminances=(1.0,), probability=0.5, random_state=None):
    """Images of 6 x 6 pixels that are sums of four shapes, one in each corner, with Gaussian noise.

    Parameters
    ----------
    n_samples : int, default=150
    noise : float, default=0.5
        Standard deviation of the noise of every pixel.
    luminances : sequence of float, default=(1.0,)
        Each shape that is present has one of these, all equally probable.
    probability : float, default=0.5
        Probability of each shape to be present.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    sklearn.utils.Bunch
        `X` (n_samples, 36) and the images without noise, `clean`; the shapes as `features` (4, 36) of zeros
        and ones; `codes` (n_samples, 4) with one for each shape that is present; the `luminances`
        (n_samples, 4) of the shapes, 0 where absent, so that `luminances @ features` is `clean`;
        `image_shape`, `name` and `description`.

    References
    ----------
    T. Griffiths and Z. Ghahramani (2005), *Infinite latent feature models and the Indian buffet process*;
    with luminances: X. Yang, *Learning density models via structured latent variables*, section 4.5.1.

    Examples
    --------
    >>> from latently.datasets import load_griffiths
    >>> data = load_griffiths(random_state=0)
    >>> data.X.shape, data.codes.shape
    ((150, 36), (150, 4))
    >>> print(data.features[0].reshape(data.image_shape)[:3, :3].astype(int))
    [[0 1 0]
     [1 1 1]
     [0 1 0]]
    """
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    levels = np.asarray(luminances, dtype=np.float64)
    if levels.ndim != 1 or not len(levels) or not (np.isfinite(levels).all() and (levels > 0).all()):
        raise ValueError(f"luminances must be a sequence of positive numbers, not {luminances!r}")
    shapes = np.array([[int(pixel) for pixel in shape] for shape in _SHAPES], dtype=np.float64)
    features = _in_quadrants(shapes.reshape(4, 1, 3, 3))
    rng = _random_state(random_state)
    codes = _present(n_samples, probability, rng)
    brightness = codes * rng.choice(levels, codes.shape)
    return Bunch(
        **_images(brightness @ features, noise, rng),
        features=features,
        codes=codes,
        luminances=brightness,
        image_shape=np.array([6, 6]),
        name="griffiths",
        description="Four shapes in the corners of 6 x 6 pixels, with noise (Griffiths and Ghahramani).",
    )


def load_com_usps(
    n_samples=2000, *, noise=0.8, probability=0.5, n_pictures=1, random_state=None, data_home=None
):
    """Images of 32 x 32 pixels with the digits 0, 1, 2 and 3, one in each quadrant, with Gaussian noise.

    The source shows that each image combines the four digits, and that a model with four features describes
    them; it says neither how often a digit is present nor how many pictures of it there are.

    Parameters
    ----------
    n_samples : int, default=2000
    noise : float, default=0.8
        Standard deviation of the noise of every pixel.
    probability : float, default=0.5
        Probability of each digit to be present.
    n_pictures : int, default=1
        Number of pictures of each digit, drawn from the data set `usps`; an image has one of them.
    random_state : int, Generator, RandomState or None
    data_home : str or path, optional
        As for `load`.

    Returns
    -------
    sklearn.utils.Bunch
        `X` (n_samples, 1024) and the images without noise, `clean`; the pictures in their quadrants as
        `features` (4 * n_pictures, 1024) with values from 0 to 1, those of the digit 0 first; `codes`
        (n_samples, 4 * n_pictures) with one for each picture that is present; `image_shape`, `name` and
        `description`.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 4.5.1.
    """
    data = load("usps", data_home)
    rng = _random_state(random_state)
    pictures = [_some(data.X[data.y == digit], n_pictures, "usps", rng) for digit in range(4)]
    return _combined(
        pictures, data.image_shape, n_samples, noise, probability, rng, "com_usps", "Digits 0 to 3 of USPS"
    )


def load_com_nist(
    n_samples=400, *, noise=0.8, probability=0.5, n_pictures=1, random_state=None, data_home=None
):
    """Images of 64 x 64 pixels with a letter in each quadrant, with Gaussian noise.

    The source combines the letters a, b, c and d. The public file of its pictures, `inbmt_pre_nist`, has
    no b; other pictures of the letter a are in its place.

    Parameters
    ----------
    n_samples : int, default=400
    noise, probability, n_pictures, random_state, data_home
        As for `load_com_usps`; pictures are drawn from the data set `inbmt_pre_nist`.

    Returns
    -------
    sklearn.utils.Bunch
        As `load_com_usps`, with 4096 binary pixels in `clean` and `features`.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 4.5.1.
    """
    data = load("inbmt_pre_nist", data_home)
    rng = _random_state(random_state)
    a, c, d = (data.X[data.y == letter].astype(np.float64) for letter in range(3))
    check_scalar(n_pictures, "n_pictures", Integral, min_val=1)
    both = _some(a, 2 * n_pictures, "inbmt_pre_nist", rng)
    pictures = [both[:n_pictures], both[n_pictures:]]
    pictures += [_some(letter, n_pictures, "inbmt_pre_nist", rng) for letter in (c, d)]
    return _combined(
        pictures,
        data.image_shape,
        n_samples,
        noise,
        probability,
        rng,
        "com_nist",
        "Letters a, a, c, d of NIST",
    )


def _combined(pictures, image_shape, n_samples, noise, probability, rng, name, what):
    """Images with one picture of each of four lists, in its quadrant."""
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    n_pictures = len(pictures[0])
    height, width = (int(size) for size in image_shape)
    features = _in_quadrants(np.array(pictures, dtype=np.float64).reshape(4, n_pictures, height, width))
    present = _present(n_samples, probability, rng)
    which = rng.randint(n_pictures, size=present.shape)
    codes = (present[:, :, None] * (which[:, :, None] == np.arange(n_pictures))).reshape(n_samples, -1)
    return Bunch(
        **_images(codes @ features, noise, rng),
        features=features,
        codes=codes,
        image_shape=np.array([2 * height, 2 * width]),
        name=name,
        description=f"{what} in the quadrants of an image, with Gaussian noise (Yang, section 4.5.1).",
    )


def _some(pictures, count, source, rng):
    check_scalar(count, "n_pictures", Integral, min_val=1, max_val=len(pictures))
    return pictures[rng.choice(len(pictures), count, replace=False)]


def _in_quadrants(pictures):
    """Pictures (4, m, height, width) as rows (4 m, 4 height width), each list in its own quadrant."""
    _, m, height, width = pictures.shape
    canvas = np.zeros((4, m, 2, height, 2, width))
    for quadrant in range(4):
        canvas[quadrant, :, quadrant // 2, :, quadrant % 2, :] = pictures[quadrant]
    return canvas.reshape(4 * m, -1)


def _present(n_samples, probability, rng):
    check_scalar(probability, "probability", Real, min_val=0, max_val=1)
    return (rng.uniform(size=(n_samples, 4)) < probability).astype(np.int64)


def _images(clean, noise, rng):
    if isinstance(noise, bool) or not isinstance(noise, Real) or not 0 <= float(noise) < np.inf:
        raise ValueError(f"noise must be a finite number of at least 0, not {noise!r}")
    return {"X": clean + noise * rng.standard_normal(clean.shape), "clean": clean}
