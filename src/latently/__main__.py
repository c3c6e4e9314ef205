"""`python -m latently` is the command `latently`."""

from __future__ import annotations

import sys

from latently.cli import main

if __name__ == "__main__":
    sys.exit(main())
