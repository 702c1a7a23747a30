"""A timeline in Chrome's trace-event format, which ui.perfetto.dev opens."""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from syncline.records.spans import Span, Timeline, counts_in


def trace_events(timeline: Timeline, begin_s: float = -math.inf, end_s: float = math.inf) -> Iterator[dict[str, Any]]:
    """The trace events of a window: a span a worker state, an instant a shard action, a counter for K.

    Times are whole microseconds: viewers drop a span that begins a rounding error before the previous one has ended.
    """
    tid = 0  # unique over all lanes, and never 0: viewers reserve that for the idle thread
    for pid, kind, lanes in (1, "worker", timeline.workers), (2, "shard", timeline.shards):
        process = {"ph": "M", "pid": pid, "tid": tid + 1, "ts": 0}
        yield {**process, "name": "process_name", "args": {"name": f"{kind}s"}}
        for number, spans in enumerate(lanes):
            tid += 1
            yield {**process, "tid": tid, "name": "thread_name", "args": {"name": f"{kind} {number}"}}
            yield {**process, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": number}}
            for span in spans:
                if span.begin_s <= end_s and span.end_s >= begin_s:
                    ts = _microseconds(span.begin_s)
                    form = {"ph": "X", "dur": _microseconds(span.end_s) - ts} if pid == 1 else {"ph": "i", "s": "t"}
                    yield {**form, "name": span.kind, "pid": pid, "tid": tid, "ts": ts, "args": _args(span)}
            for at, count in counts_in(timeline.counts[number], begin_s, end_s) if pid == 2 else ():
                name = "K" if len(lanes) == 1 else f"K of shard {number}"
                yield {"ph": "C", "name": name, "pid": pid, "tid": tid, "ts": _microseconds(at), "args": {"K": count}}


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _args(span: Span) -> dict[str, Any]:
    """JSON knows neither nan nor inf."""
    return {
        key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in span.about.items()
    }


def write_trace(path: Path, events: Iterator[dict[str, Any]]) -> Path:
    """Write one event a line, so that the trace of a long run is never in memory as a whole; returns the path."""
    with path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        file.writelines(("," if number else "") + "\n" + json.dumps(event) for number, event in enumerate(events))
        file.write("\n]}\n")
    return path
