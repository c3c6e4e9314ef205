"""The command `python -m reproductions`: what there is to type, and what it says.

Results are on stdout, as Markdown or with --json as one object; notes and errors are lines on stderr. The
exit code is 0, or 1 if something failed or a reproduction was left out for lack of its data, 2 for wrong
usage, or 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import warnings

import reproductions
from reproductions import framework, overview

PROGRAM = "python -m reproductions"


def main(arguments=None):
    """Run the command with `arguments`, by default those of this process, and give the exit code."""
    parser = command()
    options = parser.parse_args(arguments)
    known = reproductions.available()
    unknown = [name for name in options.ids if name not in known]
    if unknown:
        parser.error(f"there is no reproduction {', '.join(unknown)}; --list says which there are")
    names = list(known) if options.all or options.list else options.ids
    if options.page and not names:
        print(f"Wrote {overview.write()}")
        return 0
    if not names:
        parser.error("name a reproduction, or give --all, --list or --page")
    chosen = {name: known[name] for name in names}
    if options.list:
        titles = {name: reproduction.title for name, reproduction in chosen.items()}
        lines = (f"{name}  {title}" for name, title in titles.items())
        print(json.dumps({"reproductions": titles}) if options.json else "\n".join(lines))
        return 0
    if options.retell:
        return retell(chosen)
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        return run(chosen, options)
    except BrokenPipeError:
        raise  # whoever read our output has gone, so there is nobody to tell
    except (ValueError, OSError, ImportError) as error:
        if options.debug:
            raise
        if options.json:
            print(json.dumps({"error": str(error)}))
        print(f"{PROGRAM}: error: {error}; --debug shows where", file=sys.stderr)
        return 1
    finally:
        signal.signal(signal.SIGINT, before)


def command():
    """The parser of what is typed."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Run published tables and figures again, ours beside theirs."
    )
    add = parser.add_argument
    add("ids", nargs="*", metavar="ID", help="Such as 003/table-3.5.")
    add("--all", action="store_true", help="All of them.")
    add("--list", action="store_true", help="Say which there are, and run none.")
    add("--quick", action="store_true", help="Few restarts, part of the grid; saved only with --output.")
    add("-o", "--output", metavar="FOLDER", help="Where results are saved; by default beside the code.")
    add("--seed", type=seed, default=0, help="Of all that is drawn by chance; 0 by default.")
    add(
        "--page",
        action="store_true",
        help="Write the page about all saved results, docs/reproductions_state.md.",
    )
    add("--retell", action="store_true", help="Run nothing; write saved results with the texts of today.")
    add("--json", action="store_true", help="Answer with one JSON object on stdout.")
    add("--debug", action="store_true", help="Show where an error came from.")
    return parser


def seed(text):
    """A seed as NumPy takes it."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**32):
        raise argparse.ArgumentTypeError(f"it is an integer from 0 to {2**32 - 1}, not {text!r}")
    return int(text)


def run(chosen, options):
    """Run each, tell and save its result; one without its data is left out."""
    results, left_out = {}, {}
    for number, (name, reproduction) in enumerate(chosen.items(), 1):
        note(f"{name} ({number} of {len(chosen)})")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what concerns programmers
                warnings.simplefilter("default", UserWarning)
                result = reproduction.run(options.quick, options.seed)
        except FileNotFoundError as error:
            note(f"{name} was left out: {error}")
            left_out[name] = str(error)
            continue
        saved = options.output is not None or not options.quick
        paths = [str(path) for path in result.save(options.output)] if saved else []
        results[name] = {"records": result.records, "published": reproduction.published, "files": paths}
        if not options.json:
            print("\n".join([result.to_markdown(), *(f"Wrote {path}" for path in paths)]), flush=True)
    if options.page or (results and not options.quick and options.output is None):
        note(f"wrote {overview.write()}")
    if options.json:
        print(json.dumps({"results": results, "left_out": left_out}, allow_nan=False))
    return 1 if left_out else 0


def retell(chosen):
    """Write saved results again, without their pictures."""
    for name, reproduction in chosen.items():
        content = overview.saved(name)
        if content is None:
            continue
        if not overview.of_today(reproduction, content):
            note(f"{name} was left as it is: it was run by another protocol")
            continue
        result = framework.Result.of_saved(reproduction, content)
        for path in result.save(with_figures=False):
            print(f"Wrote {path}")
    print(f"Wrote {overview.write()}")
    return 0


def interrupt(number, frame):
    """Ctrl-C ends the run; as a KeyboardInterrupt it would only end a fit, and the result would be kept."""
    note("interrupted; the reproduction that was running has saved nothing")
    raise SystemExit(130)


def note(text):
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
