"""The command line `latently`.

    latently fit wines.csv --output wines        # select a model and save it in the folder wines
    latently score wines new.csv                 # apply it to other rows

This file handles what all commands share: one-line errors, exit codes, Ctrl-C. The other files, in the order
of processing: `commands` (commands and options), `models`, `tables` (reading), `fitting`, `comparing`,
`cluster`, `using`, `writing` and `demo`; `speaking` prints all messages. What rows become is in
`latently.tables`. Modules that need NumPy are imported inside commands, so that `latently --help` is quick.
"""

from __future__ import annotations

import signal
import sys
import threading
import traceback
from contextlib import contextmanager
from typing import Any

USAGE, TROUBLE, INTERRUPTED = 2, 1, 130


class Interrupted(BaseException):
    """Ctrl-C. A KeyboardInterrupt would only end the library's fit, which then continues with its result."""


def main(arguments=None):
    """Run a command.

    Parameters
    ----------
    arguments : list of str, optional
        The arguments after `latently`; by default those of this process.

    Returns
    -------
    int
        The exit code: 0, or 1 for an error in data or models, or 130 after Ctrl-C. An invalid command line
        raises SystemExit with code 2.

    Examples
    --------
    >>> from latently.cli import main
    >>> main(["datasets", "wine", "--output", "wine.csv"])
    Wrote 178 rows of 'wine' to 'wine.csv'
    0
    """
    arguments = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    try:
        from typer import Abort, BadParameter

        from latently.cli.commands import app
    except ImportError as error:
        return _failed(
            f"the command line needs {error.name}: pip install 'latently[cli]'", TROUBLE, arguments
        )
    usage_error: Any = BadParameter.__base__  # typer does not export it, and its module differs by version
    try:
        with _interruptible():
            return app(arguments, prog_name="latently", standalone_mode=False) or 0
    except usage_error as error:
        command = error.ctx.command_path if error.ctx else "latently"
        message = error.format_message().rstrip(".")
        sys.exit(_failed(f"{message}; see {command} --help", USAGE, arguments))
    except (Interrupted, KeyboardInterrupt, Abort):
        return _failed("interrupted; nothing was written", INTERRUPTED, arguments)
    except SystemExit as end:
        if isinstance(
            end.__context__, BrokenPipeError
        ):  # the reader of our output, such as head, has closed it
            return 0
        raise
    except MemoryError as error:
        told = (
            str(error)
            if isinstance(error, ValueError)
            else "not enough memory; use --from-disk or fewer columns"
        )
        return _failed(told, TROUBLE, arguments)
    except (ValueError, OSError, ImportError) as error:
        return _failed(str(error), TROUBLE, arguments)
    except Exception as error:
        hint = "" if "--debug" in arguments else "; --debug shows the traceback"
        return _failed(f"{type(error).__name__}: {error}{hint}", TROUBLE, arguments)


def _failed(message, code, arguments):
    """Print the error in one line and return the exit code."""
    from latently.cli.speaking import as_json, one_line
    from latently.cli.tables import true_names, with_options

    message = with_options(true_names(message))
    if "--debug" in arguments and sys.exc_info()[0] is not None:
        traceback.print_exc()
    if "--json" in arguments:
        print(as_json({"error": one_line(message)}))
    print(f"latently: error: {one_line(message)}", file=sys.stderr)
    return code


@contextmanager
def _interruptible():
    """Context in which Ctrl-C raises Interrupted. Only the main thread receives signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number, frame):
        raise Interrupted

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
