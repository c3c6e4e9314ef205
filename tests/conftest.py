"""Settings shared by all tests."""

import os

import pytest
from hypothesis import settings

# SciPy looks at it when first imported; without it scikit-learn's checks of the Array API skip.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Examples are the same in every run; the slow tests look at new ones.
settings.register_profile("latently", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("latently")


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of Dask, which take seconds to begin, and some of each second while they wait."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
    ) as cluster:
        yield cluster
