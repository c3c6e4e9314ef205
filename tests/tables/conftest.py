"""The command line, and a model that it fitted, for tests of tables."""

from tests.cli.conftest import fitted as fitted
from tests.cli.conftest import latently as latently
