"""Synthetic data sets, and noise features for real ones."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from sklearn.utils import Bunch, check_array, check_random_state, check_scalar

from latently.datasets._load import load


def load_three_gaussians(n_samples=300, *, random_state=None):
    """Three overlapping Gaussians in three dimensions, with equal numbers of rows.

    The covariance of the third is printed with two values, 0 and -1.8, for the same entry; here it is 0, as
    -1.8 would make it equal to the first. The source states 300 rows per Gaussian, but its results are
    those of 300 rows in total, which is the default here.

    Parameters
    ----------
    n_samples : int, default=300
        Total number of rows; if it is not divisible by 3, the first Gaussians get one more.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    sklearn.utils.Bunch
        `X` (n_samples, 3) and `y` (n_samples,), ordered by Gaussian; the true `weights` (3,), `means` (3, 3)
        and `covariances` (3, 3, 3); `name` and `description`.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 3.1.3.

    Examples
    --------
    >>> from latently.datasets import load_three_gaussians
    >>> data = load_three_gaussians(random_state=0)
    >>> data.X.shape, data.means[2].tolist()
    ((300, 3), [8.0, 8.0, 8.0])
    """
    means = np.array([[0.0, 0.0, 0.0], [2.0, 2.0, 6.0], [8.0, 8.0, 8.0]])
    covariances = np.array(
        [
            [[4.0, -1.8, -1.0], [-1.8, 2.0, 0.9], [-1.0, 0.9, 2.0]],
            [[4.0, 1.8, 0.8], [1.8, 2.0, 0.5], [0.8, 0.5, 2.0]],
            [[4.0, 0.0, -1.0], [0.0, 2.0, 0.9], [-1.0, 0.9, 2.0]],
        ]
    )
    sizes = _even_sizes(n_samples, 3)
    return Bunch(
        X=_gaussians(means, covariances, sizes, _random_state(random_state)),
        y=np.repeat(np.arange(3), sizes),
        weights=sizes / n_samples,
        means=means,
        covariances=covariances,
        name="three_gaussians",
        description="Three overlapping Gaussians in three dimensions (Yang, section 3.1.3).",
    )


def load_two_mode_class(n_samples=400, *, n_noise_features=30, random_state=None):
    """Two classes in a plane, the first on both sides of the second, with noise features.

    Two features separate the classes; the other 30 are standard normal. The source prints the mean and
    covariance of each class and shows that the first has two modes, but not their positions. Here they are
    two equally probable spherical Gaussians along the long axis of the printed covariance: the only spherical
    pair with exactly the printed mean and covariance.

    Parameters
    ----------
    n_samples : int, default=400
        Total number of rows, half of them of each class; the source does not state the number.
    n_noise_features : int, default=30
    random_state : int, Generator, RandomState or None

    Returns
    -------
    sklearn.utils.Bunch
        `X` (n_samples, 2 + n_noise_features), `y` (n_samples,) the class, 0 or 1, and `mode` (n_samples,):
        0 and 1 for the two modes of class 0, 2 for class 1; for the first two columns the true `means` (3, 2)
        and `covariances` (3, 2, 2) of the modes, `class_means` (2, 2) and `class_covariances` (2, 2, 2);
        `name` and `description`.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 3.3.5.

    Examples
    --------
    >>> from latently.datasets import load_two_mode_class
    >>> data = load_two_mode_class(random_state=0)
    >>> data.X.shape, data.means.round(1).tolist()
    ((400, 32), [[7.9, 7.7], [-1.3, -0.7], [2.9, 3.0]])
    """
    class_means = np.array([[3.2875, 3.4905], [2.9185, 2.9732]])
    class_covariances = np.array(
        [[[23.2368, 19.2956], [19.2956, 19.8985]], [[5.0030, 0.8919], [0.8919, 4.4236]]]
    )
    (small, large), axes = np.linalg.eigh(class_covariances[0])
    axis = axes[:, 1] * np.sign(axes[0, 1])
    offset = np.sqrt(large - small) * axis  # covariance = small * I + offset offset'
    means = np.array([class_means[0] + offset, class_means[0] - offset, class_means[1]])
    covariances = np.array([small * np.eye(2), small * np.eye(2), class_covariances[1]])
    sizes = _even_sizes(n_samples, 2)
    sizes = np.array([*_even_sizes(sizes[0], 2), sizes[1]])
    rng = _random_state(random_state)
    plane = _gaussians(means, covariances, sizes, rng)
    return Bunch(
        X=with_noise_features(plane, n_noise_features, distribution="normal", random_state=rng),
        y=np.repeat([0, 0, 1], sizes),
        mode=np.repeat([0, 1, 2], sizes),
        means=means,
        covariances=covariances,
        class_means=class_means,
        class_covariances=class_covariances,
        name="two_mode_class",
        description="A class with two modes around another class, with noise features (Yang, section 3.3.5).",
    )


def load_bars(size=4, n_samples=1000, *, probability=0.3, weight=10.0, background=0.0, random_state=None):
    """The bars test with counts: images that are sums of horizontal and vertical bars.

    Each of 2 * size bars is present with the given probability; where bars cross, their weights add. Pixels
    are Poisson counts with the sum as mean.

    Parameters
    ----------
    size : int, default=4
        Images have size x size pixels.
    n_samples : int, default=1000
    probability : float, default=0.3
        Probability of each bar to be present.
    weight : float, default=10
        The expected count of a pixel of a bar.
    background : float, default=0
        Contribution of every bar to the pixels outside of it.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    sklearn.utils.Bunch
        Counts `X` (n_samples, size^2), `codes` (n_samples, 2 * size) with one for each bar that is present,
        the true `components` (2 * size, size^2), rows first, and `activation_probability`; `image_shape`,
        `name` and `description`.

    References
    ----------
    D. Yus Lopez, *Binary non-negative matrix factorization*, section 4.1.

    Examples
    --------
    >>> from latently.datasets import load_bars
    >>> bars = load_bars(random_state=0)
    >>> bars.X.shape, bars.components[0].reshape(bars.image_shape)[0].tolist()
    ((1000, 16), [10.0, 10.0, 10.0, 10.0])
    """
    check_scalar(size, "size", Integral, min_val=1)
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    check_scalar(probability, "probability", Real, min_val=0, max_val=1)
    check_scalar(weight, "weight", Real, min_val=0)
    check_scalar(background, "background", Real, min_val=0)
    own = np.zeros((2, size, size, size), dtype=bool)
    for i in range(size):
        own[0, i, i, :] = own[1, i, :, i] = True
    components = np.where(own.reshape(2 * size, size**2), float(weight), float(background))
    rng = _random_state(random_state)
    codes = (rng.uniform(size=(n_samples, 2 * size)) < probability).astype(np.float64)
    return Bunch(
        X=rng.poisson(codes @ components).astype(np.float64),
        codes=codes,
        components=components,
        activation_probability=float(probability),
        image_shape=np.array([size, size]),
        name="bars",
        description=f"Bars of {size} x {size} pixels with Poisson counts (Yus Lopez, section 4.1).",
    )


def load_noisy_seeds(n_noise_features=30, *, random_state=None, data_home=None):
    """The seeds data set with appended noise features that are uniform on [0, 2].

    Parameters
    ----------
    n_noise_features : int, default=30
    random_state : int, Generator, RandomState or None
        Seed of the noise.
    data_home : str or path, optional
        As for `load`.

    Returns
    -------
    sklearn.utils.Bunch
        As `load("seeds")`, with `X` (210, 7 + n_noise_features) and names for the new features.

    References
    ----------
    X. Yang, *Learning density models via structured latent variables*, section 3.1.3.
    """
    data = load("seeds", data_home)
    data.X = with_noise_features(data.X, n_noise_features, low=0, high=2, random_state=random_state)
    data.feature_names = np.array([*data.feature_names, *(f"noise_{i + 1}" for i in range(n_noise_features))])
    data.name = "noisy_seeds"
    data.description += f" With {n_noise_features} uniform noise features on [0, 2]."
    return data


def with_noise_features(
    X, n_features, *, distribution="uniform", low=0.0, high=2.0, scale=1.0, random_state=None
):
    """Append independent noise features to data.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_own_features)
        May have missing entries (NaN).
    n_features : int
        Number of features to append.
    distribution : {"uniform", "normal"}, default="uniform"
    low, high : float, default=0 and 2
        Range of the uniform noise.
    scale : float, default=1
        Standard deviation of the normal noise, whose mean is 0.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    ndarray of shape (n_samples, n_own_features + n_features)

    Examples
    --------
    >>> from latently.datasets import load, with_noise_features
    >>> with_noise_features(load("wdbc").X, 30, distribution="normal", random_state=0).shape
    (569, 60)
    """
    X = check_array(X, dtype=[np.float64, np.float32], ensure_all_finite="allow-nan")
    check_scalar(n_features, "n_features", Integral, min_val=0)
    shape = (len(X), n_features)
    rng = _random_state(random_state)
    if distribution == "uniform":
        if not (np.isfinite([low, high]).all() and low < high):
            raise ValueError(f"low must be less than high, both finite, but they are {low!r} and {high!r}")
        noise = rng.uniform(low, high, shape)
    elif distribution == "normal":
        if not (np.isfinite(scale) and scale > 0):
            raise ValueError(f"scale must be positive and finite, not {scale!r}")
        noise = rng.normal(0.0, scale, shape)
    else:
        raise ValueError(f"distribution must be 'uniform' or 'normal', not {distribution!r}")
    return np.hstack([X, noise.astype(X.dtype)])


def _gaussians(means, covariances, sizes, rng):
    """The given number of rows of each Gaussian, concatenated."""
    draws = zip(means, covariances, sizes, strict=True)
    return np.concatenate(
        [rng.multivariate_normal(mean, covariance, size) for mean, covariance, size in draws]
    )


def _even_sizes(n_samples, n_parts):
    check_scalar(n_samples, "n_samples", Integral, min_val=1)
    return np.array([len(part) for part in np.array_split(np.arange(n_samples), n_parts)])


def _random_state(seed):
    """A RandomState of any seed that users pass, a Generator among them."""
    if isinstance(seed, np.random.Generator):
        return np.random.RandomState(seed.integers(2**32, size=4, dtype=np.uint32))
    return check_random_state(seed)
