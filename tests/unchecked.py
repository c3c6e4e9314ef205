"""Files that `save` refuses to write, since `load` would not read them."""

from latently.core import io
from latently.estimators import saving


def write_unchecked(model, path):
    """The file of a fitted estimator as it is, without looking whether it can be read."""
    io.write(path, *saving._described(model, saving.LeftOut()))
