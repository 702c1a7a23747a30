"""syncline timeline: when each worker computed, sent and waited."""

import argparse
import json
from pathlib import Path

from syncline.operations.names import find_record
from syncline.records.drawing import draw, trace_events, write_trace
from syncline.records.spans import read_timeline, window_of


def main(args: argparse.Namespace) -> int:
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
