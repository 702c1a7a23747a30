"""Who computed, sent and waited for whom, and when: spans from an event log, as a trace and as a picture.

At any time a worker is in one state:

| from | to | it is |
|---|---|---|
| started | computed | computing |
| started | dropped | interrupted; also until computed, where the gradient is dropped later |
| computed | the last of its pushed | sending |
| pushed | the last of its granted | waiting (held) if a held came between, else waiting for the answer |
| granted, repeated, dropped | started | receiving; not recorded if none follows where it comes with the push only |
| left | joined | absent |

It is none of its business what is granted while it computes. Nor while it waits where workers start by their own rule,
which is a run with rows `pulled`: from the last of its pushed, or from the last joined, to started it waits for blocks.
Where no row tells that what is dropped was started, all since the grant is interrupted: it may be several gradients.

A `delayed` row lies over computing, sending or receiving and is cut off where they end.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.records.events import read_events
from syncline.records.store import FINISHED, RecordError, read_config, read_summary, status

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTING, INTERRUPTED, DELAY, SENDING = "computing", "interrupted", "injected delay", "sending"
ANSWER, WAITING, BLOCKS = "waiting for the answer", "waiting (held)", "waiting for blocks"
RECEIVING, ABSENT, UNKNOWN = "receiving", "absent (left)", "not recorded"
PUSH, UPDATE, DISCARD, INTERRUPT, TIMER = "push", "update", "discarded", "interrupted", "timer"

# Okabe and Ito's palette: colour-blind safe. What is injected, came to nothing or is not there is hatched as well.
COLOURS = {
    COMPUTING: "#0072B2",
    INTERRUPTED: "#E69F00",
    DELAY: "#D55E00",
    SENDING: "#56B4E9",
    ANSWER: "#CC79A7",
    WAITING: "#F0E442",
    BLOCKS: "#F0E442",
    RECEIVING: "#009E73",
    ABSENT: "#FFFFFF",
    UNKNOWN: "#DDDDDD",
}
HATCHES = {
    DELAY: ("////", "#FFFFFF"),
    INTERRUPTED: ("xxxx", "#FFFFFF"),
    BLOCKS: ("....", "#888888"),
    ABSENT: ("xxxx", "#888888"),
}
# Colour, and from where to where in the lane: who is interrupted is so by an update, whose mark is to be seen as well.
MARKS = {UPDATE: ("#000000", -0.4, 0.4), DISCARD: ("#D55E00", -0.4, 0.4), INTERRUPT: ("#E69F00", 0.0, 0.4)}
GRADIENTS_SHOWN = 40  # of the worker that makes most of them, unless a window is asked for
WORKERS_SHOWN = 64

_WHERE_DELAYED = {"push": (SENDING,), "pull": (RECEIVING, BLOCKS, INTERRUPTED, UNKNOWN)}  # and what slows a gradient:
_WHERE_DELAYED["compute"] = _WHERE_DELAYED["slow"] = (COMPUTING, INTERRUPTED, UNKNOWN)


@dataclass(slots=True)
class Span:
    """A worker's state for a while, or what a shard did at a moment."""

    kind: str
    begin_s: float
    end_s: float
    about: dict[str, Any]  # version, loss, staleness, reason, as far as they are known


@dataclass(frozen=True, slots=True)
class Timeline:
    begin_s: float  # of the first event
    end_s: float  # of the run
    workers: list[list[Span]]  # in order, without gaps; none empty
    starts_s: list[list[float]]  # of each worker's gradients
    shards: list[list[Span]]  # of no length: PUSH, UPDATE, DISCARD, INTERRUPT, TIMER
    counts: list[list[tuple[float, int]]]  # of each shard: from when on an update waits for so many gradients


@dataclass(slots=True)
class _Worker:
    """The state of one worker while its rows go by."""

    is_late: bool  # its `started` comes with its push
    pulls: bool  # it starts by its own rule
    spans: list[Span] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    delays: list[tuple[float, float, str]] = field(default_factory=list)  # begin, end, because
    gradient: dict[str, Any] = field(default_factory=dict)  # `about` of the latest
    arrived: dict[str, Any] = field(default_factory=dict)  # and of the one that was pushed last
    sent: dict[int, Span] = field(default_factory=dict)  # version -> computing; may still be void when it arrives
    blocks: tuple[float, int, str] = (-math.inf, -1, "")  # when it chose which, for what gradient, their versions
    numbered: dict[int, dict[str, Any]] = field(default_factory=dict)  # the gradients for which it chose
    # Shards that have not got its latest push, have not answered it, hold it, have lost it.
    to_send: set[int] = field(default_factory=set)
    to_answer: set[int] = field(default_factory=set)
    held_at: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)

    def hear(self, row: tuple[Any, ...], num_shards: int) -> None:
        at, kind, _, shard, _, version, value, because = row
        if kind == "started":
            self.left.clear()
            self.starts_s.append(at)
            self.gradient = {"version": version}
            self._number(at)
            self._turn(at, COMPUTING, self.gradient)
        elif kind == "pulled":
            self.blocks = at, int(value), because
            self._number(at)
        elif kind == "computed":
            self.gradient["loss"] = value
            self.to_send, self.to_answer, self.held_at = set(range(num_shards)), set(), set()
            if self.doing == COMPUTING:
                self.sent[version] = self.spans[-1]
            if not self.left:
                self._turn(at, SENDING, {"version": version})
        elif kind == "dropped":
            self._drop(at, version, value, because)
        elif kind == "delayed":
            self.delays.append((at, at + value, because))
        elif kind == "left":
            if not self.left:
                self.close(at)
                self._turn(at, ABSENT, {"reason": because})
            self.left.add(shard)
            self.to_send, self.to_answer, self.held_at = set(), set(), set()
        elif kind in ("pushed", "held", "granted", "repeated", "joined"):
            if kind == "pushed":
                self.arrived = self.numbered.get(int(value), self.gradient) if self.pulls else self.gradient
                self.sent.pop(self.arrived.get("version", -1), None)
                if self.arrived is self.gradient:
                    self.to_send.discard(shard)
                self.to_answer.add(shard)
            elif kind == "held":
                self.held_at.add(shard)
            elif kind == "joined":
                self.left.discard(shard)
            else:
                self.to_answer.discard(shard)
                self.held_at.discard(shard)
            if not self.left and self.doing != COMPUTING and (self.spans or not self.pulls):
                self._settle(at, kind, because)

    @property
    def doing(self) -> str:
        return self.spans[-1].kind if self.spans else ""

    def close(self, at: float) -> None:
        """What the worker does ends here, and no row follows that would say what it was."""
        if self.spans:
            self.spans[-1].end_s = at
            if self.doing in (RECEIVING, BLOCKS) and self.is_late:
                self.spans[-1].kind = UNKNOWN

    def _number(self, at: float) -> None:
        """The gradient that starts now and the blocks that are chosen now belong together."""
        chosen_at, number, versions = self.blocks
        if at == chosen_at and self.starts_s and at == self.starts_s[-1]:
            self.gradient["versions"] = versions
            self.numbered[number] = self.gradient

    def _drop(self, at: float, version: int, unspent_s: float, because: str) -> None:
        """A gradient has come to nothing: the one that it computes, or one that is sent."""
        is_sent = because == "on its way" or self.doing != COMPUTING
        span = self.sent.pop(version, None) if is_sent else self.spans[-1]
        if span is None:
            if self.doing in (RECEIVING, INTERRUPTED):
                self.spans[-1].kind = INTERRUPTED
                self.spans[-1].about.setdefault("dropped", []).append(because)
            return
        span.kind = INTERRUPTED
        span.about["reason"] = f"dropped: {because}"
        if unspent_s:
            span.about["not_computed_s"] = unspent_s
        if span is self.spans[-1]:
            self._turn(at, RECEIVING, {})
        elif span.about is self.gradient and self.doing == SENDING:
            self.to_send.clear()
            self._settle(at, "dropped", because)

    def _settle(self, at: float, kind: str, because: str) -> None:
        """What it does now that a shard has spoken."""
        why = {kind: because} if kind in ("granted", "repeated") and not self.pulls else {}
        if self.spans:
            self.spans[-1].about.update(why)
        answered = BLOCKS if self.pulls else WAITING if self.held_at else ANSWER if self.to_answer else RECEIVING
        state = SENDING if self.to_send else answered
        if (self.doing, state) == (ANSWER, WAITING):  # it is held on arrival, and has waited all along
            self.spans[-1].kind = WAITING
        elif self.doing != state:
            self._turn(at, state, why if state == RECEIVING else {})
        elif because == "resumed" and state in (RECEIVING, BLOCKS):  # nothing came of what it had been granted
            self.close(at)
            self._turn(at, state, why)
        if kind == "held":
            self.spans[-1].about["reason"] = because

    def _turn(self, at: float, kind: str, about: dict[str, Any]) -> None:
        if self.spans:
            self.spans[-1].end_s = at
        self.spans.append(Span(kind, at, at, about))

    def with_delays(self) -> list[Span]:
        """Its spans, what was injected cut out of them."""
        cut, under_way = list[Span](), list[tuple[float, float, str]]()
        delays = sorted(self.delays, reverse=True)
        for span in self.spans:
            while delays and delays[-1][0] < span.end_s:
                under_way.append(delays.pop())
            under_way = [delay for delay in under_way if delay[1] > span.begin_s]
            at = span.begin_s
            for begin, end, because in under_way:
                begin, end = max(begin, at), min(end, span.end_s)
                if begin < end and span.kind in _WHERE_DELAYED.get(because, ()):
                    cut += [Span(span.kind, at, begin, span.about), Span(DELAY, begin, end, {"reason": because})]
                    at = end
            cut.append(Span(span.kind, at, span.end_s, span.about))
        return [span for span in cut if span.begin_s < span.end_s]


def time_kind(config: Mapping[str, Any]) -> str:
    """Whether the time of a record with this config is `virtual` or `wall`."""
    return "virtual" if config["runner"]["name"] == "simulate" else "wall"


def read_timeline(folder: Path, max_events: int | None = None) -> tuple[Timeline, str]:
    """The spans of a record, and whether their time is `virtual` or `wall`.

    Args:
        max_events: only the first so many are looked at.

    Raises:
        RecordError: no events in it.
    """
    import pyarrow as pa

    is_whole = (folder / "events.arrow").exists()  # else each shard has its own, until the run is over
    logs = [folder / "events.arrow"] if is_whole else sorted(folder.glob("events-*.arrow"))
    if not logs:
        raise RecordError(f"{folder}: no events; runner.events=true rerun=true makes the run again with them")
    events = pa.concat_tables([read_events(log) for log in logs])
    if not events.num_rows:
        raise RecordError(f"{logs[0]}: no events so far")
    summary = read_summary(folder) if status(folder) == FINISHED else {}
    kind = time_kind(read_config(folder))
    first = summary.get("waits_for", [])[:1]
    first_count = first[0][2] if first and first[0][0] == 0 else None  # later ones are in the log
    part = events.slice(0, max_events)
    end_s = summary.get("time_s", 0.0) if part.num_rows == events.num_rows else 0.0
    return timeline_of(part, end_s, kind == "wall", first_count), kind


def timeline_of(
    events: "pa.Table", end_s: float = -math.inf, is_late: bool = False, first_count: int | None = None
) -> Timeline:
    """The spans of a log that may be cut off anywhere.

    Args:
        events: as `read_events` gives them; at least one.
        end_s: of the run, if that is known to be later than the last event.
        is_late: what a worker did is logged with its push only, so of its last gradient nothing need be there.
        first_count: gradients that an update waits for at first, if that is told.
    """
    columns = [column.to_pylist() for column in events.columns]
    rows = sorted(zip(*columns, strict=True), key=lambda row: row[0])
    num_shards = max(0, *columns[3]) + 1
    pulls = "pulled" in columns[1]
    workers = [_Worker(is_late, pulls) for _ in range(max(0, *columns[2]) + 1)]
    shards: list[list[Span]] = [[] for _ in range(num_shards)]
    gradients: dict[tuple[int, int], dict[str, Any]] = {}  # (shard, push) -> about, until applied or discarded
    updates: list[dict[str, Any]] = [{} for _ in range(num_shards)]  # `about` of the last
    first = [] if first_count is None else [(rows[0][0], first_count)]
    counts: list[list[tuple[float, int]]] = [list(first) for _ in range(num_shards)]
    for row in rows:
        at, kind, worker, shard, push, version, value, because = row
        if worker >= 0:
            workers[worker].hear(row, num_shards)
        what = {"worker": worker, "push": push}
        if kind == "pushed":
            gradients[shard, push] = workers[worker].arrived
            shards[shard].append(Span(PUSH, at, at, {**what, "version": version, "iteration": int(value)}))
        elif kind == "discarded":
            gradients.pop((shard, push), {})["reason"] = f"discarded: {because}"
            shards[shard].append(Span(DISCARD, at, at, {**what, "reason": because}))
        elif kind == "applied":
            about = gradients.pop((shard, push), {})
            about["staleness"] = max(int(value), about.get("staleness", 0))  # of several shards the worst
            if updates[shard].get("version") != version:  # an update has a row for each of its pushes
                updates[shard] = {"version": version, "reason": because, "gradients": []}
                shards[shard].append(Span(UPDATE, at, at, updates[shard]))
            updates[shard]["gradients"].append({**what, "staleness": int(value)})
        elif kind == "interrupted":
            shards[shard].append(Span(INTERRUPT, at, at, {"worker": worker, "version": version, "reason": because}))
        elif kind == "timer":
            shards[shard].append(Span(TIMER, at, at, {"version": version}))
        elif kind == "waits_for":
            counts[shard].append((at, int(value)))
    end_s = max(end_s, rows[-1][0])
    for lane in workers:
        lane.close(end_s)
    spans, starts_s = [lane.with_delays() for lane in workers], [lane.starts_s for lane in workers]
    return Timeline(rows[0][0], end_s, spans, starts_s, shards, counts)


def window_of(timeline: Timeline, from_s: float | None, to_s: float | None) -> tuple[float, float]:
    """What is asked for, else from the beginning, and no more than `GRADIENTS_SHOWN` of any worker.

    Raises:
        RecordError: nothing would be seen.
    """
    first, last = timeline.begin_s, timeline.end_s
    begin = first if from_s is None else max(from_s, first)
    later = ([at for at in starts if at >= begin] for starts in timeline.starts_s)
    full = (starts[GRADIENTS_SHOWN] for starts in later if len(starts) > GRADIENTS_SHOWN)
    end = min([last, *full]) if to_s is None else min(to_s, last)
    if not begin < end and (from_s, to_s) != (None, None):
        asked = " ".join(f"--{key} {at:g}" for key, at in (("from", from_s), ("to", to_s)) if at is not None)
        raise RecordError(f"{asked}: outside the run, which goes from {first:g} to {last:g} s")
    return begin, end


def counts_in(counts: list[tuple[float, int]], begin_s: float, end_s: float) -> list[tuple[float, int]]:
    """Those of a window, and at its beginning the one that holds there."""
    before = [count for at, count in counts if at <= begin_s]
    return [(begin_s, count) for count in before[-1:]] + [(at, count) for at, count in counts if begin_s < at <= end_s]


def trace_events(timeline: Timeline, begin_s: float = -math.inf, end_s: float = math.inf) -> Iterator[dict[str, Any]]:
    """What lies in the window, in Chrome's trace-event format; ui.perfetto.dev opens it.

    Times are whole microseconds: viewers drop a span that begins a rounding error before the last one has ended.
    """
    tid = 0  # no two lanes share one, and none is 0: viewers keep that for the idle thread
    for pid, kind, lanes in (1, "worker", timeline.workers), (2, "shard", timeline.shards):
        process = {"ph": "M", "pid": pid, "tid": tid + 1, "ts": 0}
        yield {**process, "name": "process_name", "args": {"name": f"{kind}s"}}
        for number, spans in enumerate(lanes):
            tid += 1
            yield {**process, "tid": tid, "name": "thread_name", "args": {"name": f"{kind} {number}"}}
            yield {**process, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": number}}
            for span in spans:
                if span.begin_s <= end_s and span.end_s >= begin_s:
                    ts = round(span.begin_s * 1e6)
                    form = {"ph": "X", "dur": round(span.end_s * 1e6) - ts} if pid == 1 else {"ph": "i", "s": "t"}
                    args = {
                        k: v if not isinstance(v, float) or math.isfinite(v) else str(v) for k, v in span.about.items()
                    }
                    yield {**form, "name": span.kind, "pid": pid, "tid": tid, "ts": ts, "args": args}
            for at, count in counts_in(timeline.counts[number], begin_s, end_s) if pid == 2 else ():
                name = "K" if len(lanes) == 1 else f"K of shard {number}"
                ts = round(at * 1e6)
                yield {"ph": "C", "name": name, "pid": pid, "tid": tid, "ts": ts, "args": {"K": count}}


def write_trace(path: Path, events: Iterator[dict[str, Any]]) -> Path:
    """An event a line: also the trace of a long run never lies in memory as a whole."""
    with path.open("w") as file:
        file.write('{"displayTimeUnit": "ms", "traceEvents": [')
        file.writelines(("," if number else "") + "\n" + json.dumps(event) for number, event in enumerate(events))
        file.write("\n]}\n")
    return path


def draw(timeline: Timeline, name: str, time_kind: str, begin_s: float, end_s: float, files: Sequence[Path]) -> None:
    """A picture of a window, in seconds, in each of these files (.svg, .png, .pdf).

    Of more than `WORKERS_SHOWN` workers the first are shown.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    lanes, legend = timeline.workers[:WORKERS_SHOWN], dict[str, Any]()
    labels = [f"worker {number}" for number in range(len(lanes))]
    labels += [f"shard {number}" for number in range(len(timeline.shards))]
    with rc_context({"font.size": 9, "svg.fonttype": "none", "svg.hashsalt": "syncline", "hatch.linewidth": 0.6}):
        curves = [(n, counts_in(c, begin_s, end_s)) for n, c in enumerate(timeline.counts)]
        curves = [(number, counts) for number, counts in curves if counts]
        heights = [0.4 + 0.27 * len(labels), *([0.8] if curves else [])]
        figure = Figure(figsize=(11, 1.1 + sum(heights)), layout="constrained")
        (axes,), *below = figure.subplots(len(heights), sharex=True, squeeze=False, height_ratios=heights)
        for y, spans in enumerate(lanes):
            for kind, colour in COLOURS.items():
                ends = ((max(s.begin_s, begin_s), min(s.end_s, end_s)) for s in spans if s.kind == kind)
                if bars := [(begin, end - begin) for begin, end in ends if begin < end]:
                    hatch, edge = HATCHES.get(kind, (None, None))
                    style: Any = {"facecolor": colour, "hatch": hatch, "edgecolor": edge, "linewidth": 0}
                    axes.broken_barh(bars, (y - 0.4, 0.8), **style)
                    legend[kind] = Patch(label=kind, **style)

        def ticks(top: float, bottom: float, times: list[float], colour: str, width: float) -> bool:
            if times := [at for at in times if begin_s <= at <= end_s]:
                axes.vlines(times, top, bottom, color=colour, linewidth=min(width, 200 / len(times)))
            return bool(times)

        min_gap_s = (end_s - begin_s) / 400  # below it two gradients would look like one
        for y, spans in enumerate(lanes):
            pairs = pairwise(span for span in spans if span.kind in (COMPUTING, INTERRUPTED))
            close = [b.begin_s for a, b in pairs if a.about is not b.about and b.begin_s - a.end_s < min_gap_s]
            ticks(y - 0.4, y + 0.4, close, "white", 0.7)
        for y, marks in enumerate(timeline.shards, len(lanes)):
            for kind, (colour, top, bottom) in MARKS.items():
                if ticks(y + top, y + bottom, [mark.begin_s for mark in marks if mark.kind == kind], colour, 1.2):
                    legend[kind] = Line2D([], [], color=colour, linestyle="none", marker="|", markersize=9, label=kind)
        axes.set_xlim(begin_s, end_s if begin_s < end_s else begin_s + 1)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.set_yticks(range(len(labels)), labels)
        axes.tick_params(axis="y", length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        for (small,) in below:
            for number, counts in curves:
                times, values = zip(*counts, (end_s, counts[-1][1]), strict=True)
                small.step(times, values, where="post", linewidth=1.2, label=f"shard {number}")
            small.set_ylim(0, 1.2 * max(count for _, counts in curves for _, count in counts))
            small.set_ylabel("K", rotation=0, labelpad=12, va="center")
            small.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            small.spines[["top", "right"]].set_visible(False)
            if len(timeline.shards) > 1:
                small.legend(loc="upper left", ncols=6, frameon=False)
        lowest = below[-1][0] if below else axes
        lowest.set_xlabel(f"{time_kind} time (s)")
        digits = max(0, 2 - math.floor(math.log10(max(end_s - begin_s, 1e-6))))
        is_all = (begin_s, end_s) == (timeline.begin_s, timeline.end_s)
        part = "all" if is_all else f"{begin_s:,.{digits}f} to {end_s:,.{digits}f} s"
        of = f", workers 0 to {len(lanes) - 1} of {len(timeline.workers):,}" if timeline.workers[len(lanes) :] else ""
        axes.set_title(f"{name}: {part} of {timeline.end_s:,.{digits}f} s {time_kind}{of}", loc="left", fontsize=10)
        handles = [legend[kind] for kind in (*COLOURS, *MARKS) if kind in legend]
        figure.legend(handles=handles, loc="outside lower center", ncols=7, frameon=False)
        # no date: the same record gives the same file
        undated: dict[str, Any] = {".svg": {"Date": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None}}
        for path in files:
            figure.savefig(path, dpi=150, metadata=undated[path.suffix])
