"""python -m latently reproduce 003/table-3.5"""

from __future__ import annotations

import argparse
import sys


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="latently")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("reproduce", help="run published tables and figures again").add_argument
    add("ids", nargs="*", metavar="ID", help="such as 003/table-3.5")
    add("--all", action="store_true", help="all of them")
    add("--list", action="store_true", help="say which there are, and run none")
    add("--quick", action="store_true", help="few restarts and a part of the grid; saved only with --output")
    add("--output", metavar="FOLDER", help="where results are saved; 'reproductions' for full runs")
    add("--seed", type=int, default=0, help="of restarts, splits and noise; 0 if not given")
    return reproduce(parser, parser.parse_args(arguments))


def reproduce(parser, options):
    from latently.reproductions import available

    known = available()
    unknown = [name for name in options.ids if name not in known]
    if unknown:
        parser.error(f"there is no reproduction {', '.join(unknown)}; --list says which there are")
    if options.list:
        print("\n".join(f"{name}  {reproduction.title}" for name, reproduction in known.items()))
        return 0
    names = list(known) if options.all else options.ids
    if not names:
        parser.error("name a reproduction, or give --all or --list")
    folder = options.output or (None if options.quick else "reproductions")
    missing = 0
    for number, name in enumerate(names, 1):
        print(f"{name} ({number} of {len(names)}) ...", file=sys.stderr, flush=True)
        try:
            result = known[name].run(options.quick, options.seed)
        except FileNotFoundError as error:
            print(f"{name} was left out: {error}\n", file=sys.stderr)
            missing += 1
            continue
        print(result.to_markdown())
        if folder:
            print("\n".join(f"Wrote {path}" for path in result.save(folder)) + "\n", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
