"""A timeline for viewers: a picture, and a file in Chrome's trace-event format, which ui.perfetto.dev opens.

The picture has a lane for each worker and shard; below them, where it changes, K.
"""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from syncline.records import spans
from syncline.records.spans import Span, Timeline, counts_in

# Okabe and Ito's palette is safe for the colour-blind. Injected, interrupted and absent time is hatched as well.
COLOURS = {
    spans.COMPUTING: "#0072B2",
    spans.INTERRUPTED: "#E69F00",
    spans.DELAY: "#D55E00",
    spans.SENDING: "#56B4E9",
    spans.ANSWER: "#CC79A7",
    spans.WAITING: "#F0E442",
    spans.BLOCKS: "#F0E442",
    spans.RECEIVING: "#009E73",
    spans.ABSENT: "#FFFFFF",
    spans.UNKNOWN: "#DDDDDD",
}
HATCHES = {
    spans.DELAY: ("////", "#FFFFFF"),
    spans.INTERRUPTED: ("xxxx", "#FFFFFF"),
    spans.BLOCKS: ("....", "#888888"),
    spans.ABSENT: ("xxxx", "#888888"),
}
# Colour, and the part of the lane that a mark covers: an update that interrupts a worker stays visible above its mark.
MARKS = {
    spans.UPDATE: ("#000000", -0.4, 0.4),
    spans.DISCARD: ("#D55E00", -0.4, 0.4),
    spans.INTERRUPT: ("#E69F00", 0.0, 0.4),
}
WORKERS_SHOWN = 64

_STYLE: dict[Any, Any] = {"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "syncline", "hatch.linewidth": 0.6}
UNDATED: dict[str, Any] = {  # the same record gives the same file
    ".svg": {"Date": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None},
}


def draw(timeline: Timeline, name: str, time_kind: str, begin_s: float, end_s: float, files: Sequence[Path]) -> None:
    """Draw a window of a timeline; at most `WORKERS_SHOWN` workers, the first ones.

    Args:
        name: of the record, for the title.
        time_kind: `virtual` or `wall`.
        begin_s, end_s: the window, in seconds since the start of the run.
        files: one picture for each; .svg, .png or .pdf.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    lanes = timeline.workers[:WORKERS_SHOWN]
    labels = [f"worker {number}" for number in range(len(lanes))]
    labels += [f"shard {number}" for number in range(len(timeline.shards))]
    window = begin_s, end_s
    with rc_context(_STYLE):
        counts = {number: within for number, all_ in enumerate(timeline.counts) if (within := counts_in(all_, *window))}
        heights = [0.4 + 0.27 * len(labels), *([0.8] if counts else [])]
        figure = Figure(figsize=(11, 1.1 + sum(heights)), layout="constrained")
        (axes,), *below = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
        legend = _draw_workers(axes, lanes, *window) | _draw_shards(axes, timeline.shards, len(lanes), *window)
        axes.set_xlim(begin_s, end_s if begin_s < end_s else begin_s + 1)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        for (small,) in below:
            _draw_counts(small, counts, end_s, has_legend=len(timeline.shards) > 1)
        lowest = below[-1][0] if below else axes
        lowest.set_xlabel(f"{time_kind} time (s)")
        axes.set_title(f"{name}: {_extent(timeline, time_kind, *window)}", loc="left", fontsize=10)
        handles = [legend[kind] for kind in (*COLOURS, *MARKS) if kind in legend]
        figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False)
        for path in files:
            figure.savefig(path, dpi=150, metadata=UNDATED[path.suffix])


def _draw_workers(axes: Any, lanes: Sequence[Sequence[Span]], begin_s: float, end_s: float) -> dict[str, Any]:
    """A bar a span, and white ticks between gradients without a gap; returns the legend's entries by kind."""
    from matplotlib.patches import Patch

    legend = {}
    for y, lane in enumerate(lanes):
        for kind, colour in COLOURS.items():
            ends = ((max(s.begin_s, begin_s), min(s.end_s, end_s)) for s in lane if s.kind == kind)
            if bars := [(begin, end - begin) for begin, end in ends if begin < end]:
                hatch, edge = HATCHES.get(kind, (None, None))
                style: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": edge, "linewidth": 0}
                axes.broken_barh(bars, (y - 0.4, 0.8), **style)
                legend[kind] = Patch(label=kind, **style)
    min_gap_s = (end_s - begin_s) / 400  # below it two gradients would look like one
    for y, lane in enumerate(lanes):
        pairs = pairwise(span for span in lane if span.kind in (spans.COMPUTING, spans.INTERRUPTED))
        close = (b.begin_s for a, b in pairs if a.about is not b.about and b.begin_s - a.end_s < min_gap_s)
        _draw_ticks(axes, y - 0.4, y + 0.4, [at for at in close if begin_s <= at <= end_s], "white", 0.7)
        steps = chain.from_iterable(_ends_of_local_steps(span, min_gap_s) for span in lane)
        _draw_ticks(axes, y - 0.4, y - 0.1, [at for at in steps if begin_s <= at <= end_s], "white", 0.7)
    return legend


def _ends_of_local_steps(span: Span, min_gap_s: float) -> Iterator[float]:
    """Where the local steps of a computation end, but for the last, as if all took the same time; none if too close."""
    num = span.about.get("local_steps", 1)
    step_s = (span.end_s - span.begin_s) / num
    if span.kind == spans.COMPUTING and step_s >= min_gap_s:
        yield from (span.begin_s + step * step_s for step in range(1, num))


def _draw_shards(
    axes: Any, shards: Sequence[Sequence[Span]], first_y: int, begin_s: float, end_s: float
) -> dict[str, Any]:
    """A tick a mark; returns the legend's entries by kind."""
    from matplotlib.lines import Line2D

    legend = {}
    for y, lane in enumerate(shards, first_y):
        for kind, (colour, top, bottom) in MARKS.items():
            if times := [span.begin_s for span in lane if span.kind == kind and begin_s <= span.begin_s <= end_s]:
                _draw_ticks(axes, y + top, y + bottom, times, colour, 1.2)
                legend[kind] = Line2D([], [], color=colour, linestyle="none", marker="|", markersize=9, label=kind)
    return legend


def _draw_ticks(axes: Any, top: float, bottom: float, times: Sequence[float], colour: str, width: float) -> None:
    if times:
        axes.vlines(times, top, bottom, color=colour, linewidth=min(width, 200 / len(times)))


def _draw_counts(axes: Any, counts: dict[int, list[tuple[float, int]]], end_s: float, has_legend: bool) -> None:
    """K of each shard as steps."""
    from matplotlib.ticker import MaxNLocator

    for number, changes in counts.items():
        times, values = zip(*changes, (end_s, changes[-1][1]), strict=True)
        axes.step(times, values, where="post", linewidth=1.2, label=f"shard {number}")
    axes.set_ylim(0, 1.2 * max(count for changes in counts.values() for _, count in changes))
    axes.set_ylabel("K", rotation=0, labelpad=12, va="center")
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    if has_legend:
        axes.legend(loc="upper left", ncols=6, frameon=False)


def _extent(timeline: Timeline, time_kind: str, begin_s: float, end_s: float) -> str:
    """Which part of the run, and which workers, a window shows."""
    digits = max(0, 2 - math.floor(math.log10(max(end_s - begin_s, 1e-6))))
    is_all = (begin_s, end_s) == (timeline.begin_s, timeline.end_s)
    part = "all" if is_all else f"{begin_s:,.{digits}f} to {end_s:,.{digits}f} s"
    num_workers = len(timeline.workers)
    of = f", workers 0 to {WORKERS_SHOWN - 1} of {num_workers:,}" if num_workers > WORKERS_SHOWN else ""
    return f"{part} of {timeline.end_s:,.{digits}f} s {time_kind}{of}"


# The trace.


def trace_events(timeline: Timeline, begin_s: float = -math.inf, end_s: float = math.inf) -> Iterator[dict[str, Any]]:
    """The trace events of a window: a span a worker state, an instant a shard action, a counter for K.

    Times are whole microseconds: viewers drop a span that begins a rounding error before the previous one has ended.
    """
    tid = 0  # unique over all lanes, and never 0: viewers reserve that for the idle thread
    for pid, kind, lanes in (1, "worker", timeline.workers), (2, "shard", timeline.shards):
        process = {"ph": "M", "pid": pid, "tid": tid + 1, "ts": 0}
        yield {**process, "name": "process_name", "args": {"name": f"{kind}s"}}
        for number, lane in enumerate(lanes):
            tid += 1
            yield {**process, "tid": tid, "name": "thread_name", "args": {"name": f"{kind} {number}"}}
            yield {**process, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": number}}
            for span in lane:
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
