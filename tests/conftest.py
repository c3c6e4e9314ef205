"""Settings shared by all tests."""

import os

from hypothesis import settings

# SciPy looks at it when first imported; without it scikit-learn's checks of the Array API skip.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

# Examples are the same in every run; the slow tests look at new ones.
settings.register_profile("latently", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("latently")
