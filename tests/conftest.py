"""Settings shared by all tests."""

from hypothesis import settings

# Examples are the same in every run; the slow tests look at new ones.
settings.register_profile("latently", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("latently")
