"""What each worker and shard did, and when: spans derived from an event log.

At any time a worker is in exactly one state:

| from | to | state |
|---|---|---|
| started | computed | computing |
| started | dropped | interrupted; also until computed, where the gradient is dropped later |
| computed | the last of its pushed | sending |
| pushed | the last of its granted | waiting (held) if a held came between, else waiting for the answer |
| granted, repeated, dropped | started | receiving; not recorded if none follows where it comes with the push only |
| left | joined | absent |

Grants that arrive while a worker computes do not change its state. Nor do they where workers start by their own rule,
which is a run with `pulled` rows: there a worker waits for blocks from the last of its pushed, or from the last joined,
to started. Where workers overlap computing with messages, a push leaves when the next gradient starts: what happens to
it until that is computed does not change the state, and then, until the one after it starts, the state is that of the
push before. If no row shows when a dropped gradient was started, all the time since the grant counts as interrupted; it
may cover several gradients.

A `delayed` row overlays computing, sending or receiving and ends with that state at the latest.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncline.records.events import read_events, rows_of
from syncline.records.rows import Row
from syncline.records.store import NO_EVENTS, RecordError, inspected, read_config, read_summary

if TYPE_CHECKING:
    import pyarrow as pa

COMPUTING, INTERRUPTED, DELAY, SENDING = "computing", "interrupted", "injected delay", "sending"
ANSWER, WAITING, BLOCKS = "waiting for the answer", "waiting (held)", "waiting for blocks"
RECEIVING, ABSENT, UNKNOWN = "receiving", "absent (left)", "not recorded"
PUSH, UPDATE, DISCARD, INTERRUPT, TIMER = "push", "update", "discarded", "interrupted", "timer"
GRADIENTS_SHOWN = 40  # per worker at most, unless a window is given

_DELAYED_STATES = {  # what a delay is injected into -> the states that it may lengthen
    "compute": (COMPUTING, INTERRUPTED, UNKNOWN),
    "slow": (COMPUTING, INTERRUPTED, UNKNOWN),
    "push": (SENDING,),
    "pull": (RECEIVING, BLOCKS, INTERRUPTED, UNKNOWN),
}


@dataclass(slots=True)
class Span:
    """One state of a worker, or one action of a shard (of length 0)."""

    kind: str
    begin_s: float
    end_s: float
    about: dict[str, Any]  # version, loss, staleness, reason, where known


@dataclass(frozen=True, slots=True)
class Timeline:
    """The spans of a run; times in seconds since its start."""

    begin_s: float  # of the first event
    end_s: float  # of the run
    workers: list[list[Span]]  # of each worker: in order, without gaps, none of length 0
    starts_s: list[list[float]]  # of each worker: when its gradients started
    shards: list[list[Span]]  # of each shard: PUSH, UPDATE, DISCARD, INTERRUPT, TIMER
    counts: list[list[tuple[float, int]]]  # of each shard: (from when, number of gradients that an update waits for)


@dataclass(slots=True)
class _Lane:
    """Builds the spans of one worker from its rows, in order of time."""

    is_logged_late: bool  # its `started` rows are logged with the push
    has_pull_rule: bool  # it starts by its own rule
    overlap: bool  # it computes while its last push is under way
    spans: list[Span] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    delays: list[tuple[float, float, str]] = field(default_factory=list)  # begin, end, because
    gradient: dict[str, Any] = field(default_factory=dict)  # `about` of the latest gradient
    under_way: dict[str, Any] = field(default_factory=dict)  # `about` of the one before it, with overlap
    pushed: dict[str, Any] = field(default_factory=dict)  # `about` of the gradient that a shard received last
    sent: dict[int, Span] = field(default_factory=dict)  # version -> COMPUTING; the push may still be cancelled
    blocks: tuple[float, int, Sequence[int]] = (
        -math.inf,
        -1,
        (),
    )  # latest choice: when, gradient number, block versions
    numbered: dict[int, dict[str, Any]] = field(default_factory=dict)  # gradient number -> `about`, with a pull rule
    # Shards that have not received the latest push, have not answered it, hold the worker, have lost the worker.
    to_send: set[int] = field(default_factory=set)
    to_answer: set[int] = field(default_factory=set)
    held_at: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)

    def on_row(self, row: Row, num_shards: int) -> None:
        """Take the next row of this worker."""
        at, kind, _, shard, _, version, value, because, versions = row
        if kind == "started":
            self.left.clear()
            self.starts_s.append(at)
            if self.overlap and "loss" in self.gradient:
                self.under_way = self.gradient
                self.to_send, self.to_answer, self.held_at = set(range(num_shards)), set(), set()
            self.gradient = {"version": version}
            if steps := re.fullmatch(r"(\d+) local steps", because):
                self.gradient["local_steps"] = int(steps[1])
            self._attach_blocks(at)
            self._begin(at, COMPUTING, self.gradient)
        elif kind == "pulled":
            self.blocks = at, int(value), versions
            self._attach_blocks(at)
        elif kind == "computed":
            self.gradient["loss"] = value
            if self.overlap:
                self._settle(at, kind, "")
                return
            self.to_send, self.to_answer, self.held_at = set(range(num_shards)), set(), set()
            if self.state == COMPUTING:
                self.sent[version] = self.spans[-1]
            if not self.left:
                self._begin(at, SENDING, {"version": version})
        elif kind in ("dropped", "stale"):
            self._drop(at, kind, version, value, because)
        elif kind == "delayed":
            self.delays.append((at, at + value, because))
        elif kind == "left":
            if not self.left:
                self.close(at)
                self._begin(at, ABSENT, {"reason": because})
            self.left.add(shard)
            self.to_send, self.to_answer, self.held_at = set(), set(), set()
            self.gradient = {}
        elif kind in ("pushed", "held", "granted", "repeated", "joined", "resumed"):
            if kind == "pushed":
                latest = self.under_way if self.overlap and shard in self.to_send else self.gradient
                self.pushed = self.numbered.get(int(value), latest) if self.has_pull_rule else latest
                self.sent.pop(self.pushed.get("version", -1), None)
                if self.pushed is latest:
                    self.to_send.discard(shard)
                self.to_answer.add(shard)
            elif kind == "held" or (kind == "resumed" and value):
                self.held_at.add(shard)
            elif kind == "joined":
                self.left.discard(shard)
            else:
                self.to_answer.discard(shard)
                self.held_at.discard(shard)
            if not self.left and self.state != COMPUTING and (self.spans or not self.has_pull_rule):
                self._settle(at, kind, because)

    @property
    def state(self) -> str:
        return self.spans[-1].kind if self.spans else ""

    def close(self, at: float) -> None:
        """End the current span. What it was remains unknown where `started` would have been logged later."""
        if self.spans:
            self.spans[-1].end_s = at
            if self.state in (RECEIVING, BLOCKS) and self.is_logged_late:
                self.spans[-1].kind = UNKNOWN

    def _attach_blocks(self, at: float) -> None:
        """Blocks chosen at the moment at which a gradient starts are those of this gradient."""
        chosen_at, number, versions = self.blocks
        if at == chosen_at and self.starts_s and at == self.starts_s[-1]:
            self.gradient["versions"] = versions
            self.numbered[number] = self.gradient

    def _drop(self, at: float, kind: str, version: int, not_computed_s: float, because: str) -> None:
        """A gradient is cancelled: the one in progress, or one that is on its way."""
        is_sent = kind == "stale" or self.state != COMPUTING
        span = self.sent.pop(version, None) if is_sent else self.spans[-1]
        if span is None:
            if self.state in (RECEIVING, INTERRUPTED):
                self.spans[-1].kind = INTERRUPTED
                self.spans[-1].about.setdefault("dropped", []).append(because)
            return
        span.kind = INTERRUPTED
        span.about["reason"] = f"dropped: {because or 'in transit'}"
        if not_computed_s:
            span.about["not_computed_s"] = not_computed_s
        if span is self.spans[-1]:
            self._begin(at, RECEIVING, {})
        elif span.about is self.gradient and self.state == SENDING:
            self.to_send.clear()
            self._settle(at, "dropped", because)

    def _settle(self, at: float, kind: str, because: str) -> None:
        """Update the state after a row of kind `kind` from a shard."""
        why = {kind: because} if kind in ("granted", "repeated") and not self.has_pull_rule else {}
        if self.spans:
            self.spans[-1].about.update(why)
        answered = WAITING if self.held_at else ANSWER if self.to_answer else RECEIVING
        state = SENDING if self.to_send else BLOCKS if self.has_pull_rule else answered
        if (self.state, state) == (ANSWER, WAITING):  # held on arrival: it has been waiting since then
            self.spans[-1].kind = WAITING
        elif self.state != state:
            self._begin(at, state, why if state == RECEIVING else {})
        elif kind == "resumed" and state in (RECEIVING, BLOCKS):  # what had been granted is lost
            self.close(at)
            self._begin(at, state, why)
        if kind == "held":
            self.spans[-1].about["reason"] = because

    def _begin(self, at: float, kind: str, about: dict[str, Any]) -> None:
        if self.spans:
            self.spans[-1].end_s = at
        self.spans.append(Span(kind, at, at, about))

    def with_delays(self) -> list[Span]:
        """Its spans, split where delays were injected; none of length 0."""
        split, active = list[Span](), list[tuple[float, float, str]]()
        delays = sorted(self.delays, reverse=True)
        for span in self.spans:
            while delays and delays[-1][0] < span.end_s:
                active.append(delays.pop())
            active = [delay for delay in active if delay[1] > span.begin_s]
            at = span.begin_s
            for begin, end, because in active:
                begin, end = max(begin, at), min(end, span.end_s)
                if begin < end and span.kind in _DELAYED_STATES.get(because, ()):
                    split += [Span(span.kind, at, begin, span.about), Span(DELAY, begin, end, {"reason": because})]
                    at = end
            split.append(Span(span.kind, at, span.end_s, span.about))
        return [span for span in split if span.begin_s < span.end_s]


def time_kind(config: Mapping[str, Any]) -> str:
    """`virtual` or `wall`: the kind of time in a record with this config."""
    return "virtual" if config["runner"]["name"] == "simulate" else "wall"


def read_timeline(folder: Path, max_events: int | None = None) -> tuple[Timeline, str]:
    """The spans of a record, and the kind of their time: `virtual` or `wall`.

    Args:
        folder: of the record; its run may still be in progress.
        max_events: read only the first `max_events` events.

    Raises:
        RecordError: the record has no events, or is damaged.
    """
    import pyarrow as pa

    is_merged = (folder / "events.arrow").exists()  # until the run is over, each shard has its own log
    logs = [folder / "events.arrow"] if is_merged else sorted(folder.glob("events-*.arrow"))
    if not logs:
        raise RecordError(f"{folder}: {NO_EVENTS}")
    events = pa.concat_tables([read_events(log) for log in logs])
    if not events.num_rows:
        raise RecordError(f"{logs[0]}: no events so far")
    summary = {} if inspected(folder)[0] is None else read_summary(folder)
    return timeline_and_kind(events, summary, read_config(folder), max_events)


def timeline_and_kind(
    events: "pa.Table", summary: Mapping[str, Any], config: Mapping[str, Any], max_events: int | None = None
) -> tuple[Timeline, str]:
    """The spans of a run, and the kind of their time, from the parts of its record.

    Args:
        events: at least one row.
        summary: empty for an unfinished run.
        max_events: take only the first `max_events` events.
    """
    kind = time_kind(config)
    first = summary.get("waits_for", [])[:1]
    first_count = first[0][2] if first and first[0][0] == 0 else None  # later ones are in the log
    part = events.slice(0, max_events)
    end_s = summary.get("time_s", 0.0) if part.num_rows == events.num_rows else 0.0
    overlap = config.get("local", {}).get("overlap", False)
    return timeline_of(part, end_s, kind == "wall", first_count, overlap), kind


def timeline_of(
    events: "pa.Table",
    end_s: float = -math.inf,
    is_logged_late: bool = False,
    first_count: int | None = None,
    overlap: bool = False,
) -> Timeline:
    """The spans of a log, which may end at any row.

    Args:
        events: from `read_events`; at least one row.
        end_s: of the run, if it is known to be later than the last event.
        is_logged_late: a worker's actions are logged with its push, so rows of its last gradient may be missing.
        first_count: number of gradients that an update waits for at first, if known.
        overlap: workers compute while their last push is under way.
    """
    rows = sorted(rows_of(events), key=lambda row: row.at)
    num_shards = max(0, *(row.shard for row in rows)) + 1
    has_pull_rule = any(row.kind == "pulled" for row in rows)
    num_workers = max(0, *(row.worker for row in rows)) + 1
    workers = [_Lane(is_logged_late, has_pull_rule, overlap) for _ in range(num_workers)]
    shards: list[list[Span]] = [[] for _ in range(num_shards)]
    gradients: dict[tuple[int, int], dict[str, Any]] = {}  # (shard, push) -> `about`, until applied or discarded
    updates: list[dict[str, Any]] = [{} for _ in range(num_shards)]  # `about` of the latest
    first = [] if first_count is None else [(rows[0][0], first_count)]
    counts: list[list[tuple[float, int]]] = [list(first) for _ in range(num_shards)]
    for row in rows:
        at, kind, worker, shard, push, version, value, because, _ = row
        if worker >= 0:
            workers[worker].on_row(row, num_shards)
        what = {"worker": worker, "push": push}
        if kind == "pushed":
            gradients[shard, push] = workers[worker].pushed
            shards[shard].append(Span(PUSH, at, at, {**what, "version": version, "iteration": int(value)}))
        elif kind == "discarded":
            gradients.pop((shard, push), {})["reason"] = f"discarded: {because}"
            shards[shard].append(Span(DISCARD, at, at, {**what, "reason": because}))
        elif kind == "applied":
            about = gradients.pop((shard, push), {})
            about["staleness"] = max(int(value), about.get("staleness", 0))  # the maximum over the shards
            if updates[shard].get("version") != version:  # one row for each push of an update
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
    """The window to show: what is given, else from the beginning, with at most `GRADIENTS_SHOWN` of any worker.

    Raises:
        RecordError: the given window lies outside the run.
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
    """The counts that change within a window, preceded by the one that holds at its beginning."""
    before = [count for at, count in counts if at <= begin_s]
    return [(begin_s, count) for count in before[-1:]] + [(at, count) for at, count in counts if begin_s < at <= end_s]
