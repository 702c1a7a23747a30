"""python -m syncline timeline: when each worker computed, sent and waited."""

import argparse
import json
from pathlib import Path

from syncline.operations.arguments import Commands, find_record
from syncline.records.drawing import draw, trace_events, write_trace
from syncline.records.spans import read_timeline, window_of

EXAMPLES = """\
examples:
  python -m syncline timeline <identity>
  python -m syncline timeline <identity> --from 10 --to 12 --output figures
"""


def add_to(commands: Commands) -> None:
    what = "when each worker computed, sent and waited: a trace and a picture"
    parser = commands.add("timeline", run, what, EXAMPLES)
    parser.add_argument("record", help="identity of a run, or the folder of its record")
    parser.add_argument("--output", type=Path, help="folder for the files (the record's own)")
    parser.add_argument("--from", type=float, dest="from_s", metavar="S", help="first second to show")
    parser.add_argument("--to", type=float, dest="to_s", metavar="S", help="last second to show")


def run(args: argparse.Namespace) -> int:
    folder = find_record(args.record, args.results)
    timeline, kind = read_timeline(folder)
    window = window_of(timeline, args.from_s, args.to_s)
    output: Path = args.output or folder
    output.mkdir(parents=True, exist_ok=True)
    is_cut = (args.from_s, args.to_s) != (None, None)  # a viewer can zoom: without a window the trace is complete
    trace = write_trace(output / "timeline.json", trace_events(timeline, *(window if is_cut else ())))
    pictures = [output / "timeline.svg", output / "timeline.png"]
    draw(timeline, folder.resolve().name, kind, *window, pictures)
    files = [str(path) for path in (trace, *pictures)]
    print(json.dumps({"written": files}) if args.json else " ".join(["written:", *files]))
    return 0
