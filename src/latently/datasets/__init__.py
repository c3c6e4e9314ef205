"""Real data sets by name, and generators of synthetic data."""

from latently.datasets._images import load_com_nist, load_com_usps, load_griffiths
from latently.datasets._load import load, names
from latently.datasets._synthetic import (
    load_bars,
    load_noisy_seeds,
    load_three_gaussians,
    load_two_mode_class,
    with_noise_features,
)

__all__ = [
    "load",
    "load_bars",
    "load_com_nist",
    "load_com_usps",
    "load_griffiths",
    "load_noisy_seeds",
    "load_three_gaussians",
    "load_two_mode_class",
    "names",
    "with_noise_features",
]
