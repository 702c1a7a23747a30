"""Look at records: python -m syncline timeline <identity or record folder>."""

import argparse
import sys
from pathlib import Path
from typing import NoReturn

from syncline.records.store import RecordError
from syncline.records.timeline import draw, read_timeline, trace_events, window_of, write_trace


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(1, f"error: {message}\n")


def main(arguments: list[str]) -> int:
    parser = _Parser(prog="python -m syncline", description="Look at the records of runs.")
    commands = parser.add_subparsers(required=True)
    timeline = commands.add_parser("timeline", help="who computed, sent and waited, and when: a trace and a picture")
    timeline.add_argument("record", help="identity of a run, or the folder of its record")
    timeline.add_argument("--results", type=Path, default=Path("results"), help="folder of the records (results)")
    timeline.add_argument("--output", type=Path, help="folder for what is written (the record's own)")
    timeline.add_argument("--from", type=float, dest="from_s", metavar="S", help="first second to show")
    timeline.add_argument("--to", type=float, dest="to_s", metavar="S", help="last second to show")
    timeline.set_defaults(run=_timeline)
    asked = parser.parse_args(arguments)
    try:
        files: list[Path] = asked.run(asked)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("written:", *files)
    return 0


def _timeline(asked: argparse.Namespace) -> list[Path]:
    folder = _find(asked.record, asked.results)
    timeline, kind = read_timeline(folder)
    window = window_of(timeline, asked.from_s, asked.to_s)
    output: Path = asked.output or folder
    output.mkdir(parents=True, exist_ok=True)
    is_cut = (asked.from_s, asked.to_s) != (None, None)  # a viewer can zoom, so it gets all if nothing is asked for
    trace = write_trace(output / "timeline.json", trace_events(timeline, *(window if is_cut else ())))
    files = [output / "timeline.svg", output / "timeline.png"]
    draw(timeline, folder.resolve().name, kind, *window, files)
    return [trace, *files]


def _find(record: str, results: Path) -> Path:
    """The folder of a record, given as such or by its identity."""
    for folder in (results / record, Path(record)):
        if folder.is_dir():
            return folder
    raise RecordError(f"no such record: neither {results / record} nor {record} is a folder")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
