"""The timeline of a run: what each worker did at each moment, as spans, as a trace, as a picture."""

import json
import math
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simulations import simulated

from runners.commands import main
from syncline.config import compose
from syncline.records import drawing
from syncline.records.drawing import _ends_of_local_steps, draw, trace_events, write_trace
from syncline.records.events import SCHEMA
from syncline.records.rows import KINDS, Row
from syncline.records.spans import (
    ABSENT,
    ANSWER,
    BLOCKS,
    COMPUTING,
    DELAY,
    DISCARD,
    GRADIENTS_SHOWN,
    INTERRUPT,
    INTERRUPTED,
    PUSH,
    RECEIVING,
    SENDING,
    TIMER,
    UNKNOWN,
    UPDATE,
    WAITING,
    Span,
    Timeline,
    timeline_of,
    window_of,
)
from syncline.records.store import RecordError
from syncline.records.writer import RecordWriter
from syncline.simulation.run import simulate
from tests.refusals import refusal

NO_WIRE = ["cluster.network.latency_s=0", "cluster.network.bandwidth_gbps=null"]
INSTANT = ["cluster.jitter=null", *NO_WIRE]
LATE_PULLS = ["scenario=late_pulls", "scenario.pull_delay.value=0.1", "scenario.pull_delay.probability=0.2"]


def drawn(timeline: Timeline, name: str, time_kind: str, begin_s: float, end_s: float, folder: Path) -> str:
    """The text of the picture as SVG."""
    draw(timeline, name, time_kind, begin_s, end_s, [folder / "timeline.svg"])
    return (folder / "timeline.svg").read_text()


def table_of(rows: list[Row]) -> pa.Table:
    columns = [
        pa.array([row[i] for row in rows], field.type.value_type).dictionary_encode().cast(field.type)
        if pa.types.is_dictionary(field.type)
        else pa.array([row[i] for row in rows], field.type)
        for i, field in enumerate(SCHEMA)
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def row(at: float, kind: str, shard: int = -1, *, worker: int = 0, version: int = 3, **about: Any) -> Row:
    push = {"pushed": 7, "applied": 7, "discarded": 7}.get(kind, -1)
    return Row(at, kind, worker, shard, push, version, **about)


def shape(spans: list[Span]) -> list[tuple[str, float, float]]:
    return [(span.kind, span.begin_s, span.end_s) for span in spans]


def seconds(spans: list[Span], *kinds: str) -> float:
    return math.fsum(span.end_s - span.begin_s for span in spans if span.kind in kinds)


def check_lanes(timeline: Timeline) -> None:
    """Each worker is in one state at any time, from its first event to the end of the run."""
    for spans in timeline.workers:
        for span in spans:
            assert span.begin_s < span.end_s
        for before, after in pairwise(spans):
            assert before.end_s == after.begin_s
        if spans:
            assert spans[-1].end_s == timeline.end_s


# Of simulated runs


@pytest.mark.parametrize(
    "words",
    [
        ["strategy=asp", "max_time_s=0.2345", *INSTANT],
        ["strategy=ssp", "cluster.shards=3", "cluster.workers=7", "max_updates=40", "scenario=exponential_20ms"],
        ["strategy=k_sync", "strategy.k=3", "cluster.workers=9", "max_updates=30", *INSTANT],
        ["strategy=k_sync", "max_updates=60", "cluster.network.latency_s=0.005", "cluster.gradient_s=[0.02,0.022]"],
        ["strategy=k_batch_sync", "strategy.k=5", "max_updates=30", *LATE_PULLS],
        ["strategy=adasync", "strategy.variant=k_batch_sync", "epochs=1"],
        ["strategy=backup", "max_updates=30", *LATE_PULLS],
        ["strategy=psp", "strategy.c=2", "strategy.b=50", "strategy.tag=newest", "strategy.tau1=0.01", "epochs=1"],
        ["strategy=psp", "strategy.b=50", "strategy.tau2=0.05", "cluster.shards=2", "max_updates=60", *LATE_PULLS],
    ],
    ids=" ".join,
)
def test_the_spans_of_a_simulated_run_add_up(tmp_path: Path, words: list[str]) -> None:
    """Each worker is in one state at any time, and computes as long as the summary says it was busy."""
    events, summary = simulated(tmp_path, *words)
    timeline = timeline_of(events, summary["time_s"])
    check_lanes(timeline)
    assert timeline.end_s == summary["time_s"]
    rows = events.to_pylist()
    for worker, spans in enumerate(timeline.workers):
        starts = [row["at"] for row in rows if (row["kind"], row["worker"]) == ("started", worker)]
        assert spans[0].begin_s == starts[0]
        assert timeline.starts_s[worker] == starts
        busy = summary["busy_by_worker"][worker] * summary["time_s"]
        assert seconds(spans, COMPUTING, INTERRUPTED) == pytest.approx(busy, abs=1e-9)
        broken_off = [span for span in spans if span.kind == INTERRUPTED]
        assert len(broken_off) == summary["interrupted_by_worker"][worker]
        assert not seconds(spans, UNKNOWN, ABSENT, *([SENDING, RECEIVING] if set(NO_WIRE) <= set(words) else []))
        begun = {row["at"]: row["value"] for row in rows if (row["kind"], row["worker"]) == ("started", worker)}
        for span in broken_off:
            missing = span.about.get("not_computed_s", 0.0)
            assert span.end_s - span.begin_s + missing == pytest.approx(begun[span.begin_s])
    if len(timeline.shards) == 1:
        computed = [span for spans in timeline.workers for span in spans if span.kind == COMPUTING]
        stale = Counter(str(span.about["staleness"]) for span in computed if "staleness" in span.about)
        assert stale == summary["staleness"]
    for shard, marks in enumerate(timeline.shards):
        versions = [mark.about["version"] for mark in marks if mark.kind == UPDATE]
        assert versions == list(range(1, len(versions) + 1))
        applied = [g["push"] for mark in marks if mark.kind == UPDATE for g in mark.about["gradients"]]
        assert applied == [row["push"] for row in rows if (row["kind"], row["shard"]) == ("applied", shard)]
        for kind, written in (INTERRUPT, "interrupted"), (TIMER, "timer"), (DISCARD, "discarded"):
            told = sum((row["kind"], row["shard"]) == (written, shard) for row in rows)
            assert sum(mark.kind == kind for mark in marks) == told


TWO = ["cluster.workers=2", "cluster.jitter=null", "cluster.network.bandwidth_gbps=null"]
SLOW_LINKS = [*TWO, "cluster.network.latency_s=0.25"]


def test_a_computation_says_how_many_local_steps_it_has(tmp_path: Path) -> None:
    words = ["strategy=bsp", "local.steps=4", "cluster.gradient_s=[1.0]", "max_updates=3", *TWO, *INSTANT]
    events, summary = simulated(tmp_path, *words)
    timeline = timeline_of(events, summary["time_s"])
    spans = [span for lane in timeline.workers for span in lane if span.kind == COMPUTING]
    assert {span.about["local_steps"] for span in spans} == {4}
    assert shape(timeline.workers[0]) == [(COMPUTING, 4 * i, 4 * i + 4) for i in range(3)]
    assert list(_ends_of_local_steps(spans[0], min_gap_s=0.5)) == [1, 2, 3]
    assert list(_ends_of_local_steps(spans[0], min_gap_s=1.5)) == [], "too close to be told apart"


def test_an_interrupted_worker_computes_until_it_is_notified(tmp_path: Path) -> None:
    """1 s and 3 s a gradient, K = 1, 0.25 s a message: the update is at 1.5 s, its message arrives at 1.75 s."""
    words = ["strategy=k_sync", "strategy.k=1", "cluster.gradient_s=[1.0,3.0]", "max_updates=3", *SLOW_LINKS]
    events, summary = simulated(tmp_path, *words)
    timeline = timeline_of(events, summary["time_s"])
    faster, slower = timeline.workers
    cycle = [(COMPUTING, 0.25, 1.25), (SENDING, 1.25, 1.5), (RECEIVING, 1.5, 1.75), (COMPUTING, 1.75, 2.75)]
    assert shape(faster)[:4] == cycle
    marks = [mark for mark in timeline.shards[0] if mark.kind != PUSH]
    assert [(mark.kind, mark.begin_s) for mark in marks[:2]] == [(UPDATE, 1.5), (INTERRUPT, 1.5)]
    assert marks[1].about == {"worker": 1, "version": 1, "reason": "the first 1 are here"}
    assert shape(slower) == [(INTERRUPTED, 0.25, 1.75), (INTERRUPTED, 1.75, 3.25), (COMPUTING, 3.25, 4.5)]
    assert slower[1].about == {"version": 1, "reason": "dropped: cancelled", "not_computed_s": 1.5}


def test_a_worker_that_repeats_continues_at_the_same_version(tmp_path: Path) -> None:
    """1 s and 9 s a gradient, K = 2, 0.25 s a message: an update takes two gradients of the faster, and 3.25 s."""
    words = ["strategy=k_batch_sync", "strategy.k=2", "cluster.gradient_s=[1.0,9.0]", "max_updates=2", *SLOW_LINKS]
    events, summary = simulated(tmp_path, *words)
    faster, slower = timeline_of(events, summary["time_s"]).workers
    cycle = [(COMPUTING, 0.25, 1.25), (SENDING, 1.25, 1.5), (RECEIVING, 1.5, 1.75)]
    assert shape(faster)[:6] == cycle + [(kind, begin + 1.5, end + 1.5) for kind, begin, end in cycle]
    assert [span.about["version"] for span in faster if span.kind == COMPUTING] == [0, 0, 1, 1]
    assert faster[2].about["repeated"] == "1 of K 2 are here"
    assert shape(slower) == [(INTERRUPTED, 0.25, 3.25), (COMPUTING, 3.25, 6)]


def test_broadcasts_do_not_interrupt_computing_workers(tmp_path: Path) -> None:
    """1 s and 3.25 s a gradient, an update for each that is on time: the slower never is, and neither waits."""
    words = ["strategy=psp", "strategy.c=1", "cluster.shards=2", "cluster.gradient_s=[1.0,3.25]", "max_updates=9"]
    events, summary = simulated(tmp_path, *words, *TWO, *INSTANT)
    faster, slower = timeline_of(events, summary["time_s"]).workers
    assert shape(faster) == [(COMPUTING, i, i + 1) for i in range(9)]
    assert shape(slower) == [(COMPUTING, 0, 3.25), (COMPUTING, 3.25, 6.5), (COMPUTING, 6.5, 9)]
    assert [span.about["versions"] for span in slower] == [(0, 0), (3, 3), (6, 6)]
    assert [span.about["reason"] for span in slower[:2]] == [f"discarded: tagged {i}, now {3 * i + 3}" for i in (0, 1)]


def test_a_gradient_is_identified_by_its_number_if_the_next_begins_before_it_arrives(tmp_path: Path) -> None:
    words = ["strategy=psp", "strategy.b=25", "strategy.c=2", "strategy.tag=newest", "cluster.shards=4"]
    events, summary = simulated(tmp_path, *words, "cluster.network.latency_s=0.005", "epochs=1")
    rows = events.to_pylist()
    number_of = {(row["shard"], row["push"]): int(row["value"]) for row in rows if row["kind"] == "pushed"}
    worst: dict[tuple[int, int], int] = {}
    for row in rows:
        if row["kind"] == "applied":
            key = row["worker"], number_of[row["shard"], row["push"]]
            worst[key] = max(int(row["value"]), worst.get(key, 0))
    timeline = timeline_of(events, summary["time_s"])
    assert worst == {
        (worker, number): span.about["staleness"]
        for worker, spans in enumerate(timeline.workers)
        for number, span in enumerate(span for span in spans if span.kind == COMPUTING)
        if "staleness" in span.about
    }


# Of tables made by hand


TWO_SHARDS = [
    row(1.0, "started", value=1.0),
    row(2.0, "computed", value=0.5),
    row(3.0, "pushed", 0, value=0.5),
    row(3.0, "held", 0, because="lead 4"),
    row(3.5, "granted", 0, because="lead 3"),
    row(4.0, "pushed", 1, value=0.5),
    row(4.5, "applied", 0, value=2),
    row(4.5, "applied", 1, value=5),
    row(5.0, "granted", 1, because="at once"),
    row(6.0, "started"),
]


def test_a_worker_waits_for_the_last_of_its_shards() -> None:
    timeline = timeline_of(table_of(TWO_SHARDS), end_s=7.0)
    (spans,) = timeline.workers
    assert shape(spans) == [(COMPUTING, 1, 2), (SENDING, 2, 4), (ANSWER, 4, 5), (RECEIVING, 5, 6), (COMPUTING, 6, 7)]
    assert spans[0].about == {"version": 3, "loss": 0.5, "staleness": 5}
    assert [[mark.kind for mark in marks] for marks in timeline.shards] == [[PUSH, UPDATE]] * 2


def test_a_worker_held_at_one_shard_waits_until_that_shard_grants_it() -> None:
    rows = [
        *TWO_SHARDS[:4],
        row(4.0, "pushed", 1),
        row(5.0, "granted", 0),
        row(6.0, "granted", 1, because="yes"),
        row(6.5, "started"),
    ]
    (spans,) = timeline_of(table_of(rows)).workers
    assert shape(spans)[2:] == [(WAITING, 4, 5), (ANSWER, 5, 6), (RECEIVING, 6, 6.5)]


def test_a_late_hold_counts_as_waiting_since_the_push() -> None:
    rows = [*TWO_SHARDS[:3], row(3.2, "held", 0, because="slow"), row(5.0, "granted", 0, because="go")]
    (spans,) = timeline_of(table_of(rows), end_s=6.0).workers
    assert shape(spans)[2:] == [(WAITING, 3, 5), (RECEIVING, 5, 6)]
    assert spans[2].about == {"reason": "slow", "granted": "go"}


def test_a_killed_worker_is_absent_until_every_shard_has_it_again() -> None:
    rows = [
        *TWO_SHARDS[:-1],
        row(6.0, "left", 1, because="killed"),
        row(6.1, "left", 0, because="killed"),
        row(6.5, "pushed", 0, worker=1),
        row(8.0, "joined", 0),
        row(8.0, "held", 0, because="later"),
        row(8.5, "joined", 1),
        row(8.5, "granted", 1),
        row(9.0, "granted", 0),
        row(9.5, "started"),
        row(10.0, "left", 0, because="silent"),
    ]
    spans, other = timeline_of(table_of(rows), end_s=11.0, is_logged_late=True).workers
    assert shape(spans)[3:] == [
        (UNKNOWN, 5, 6),
        (ABSENT, 6, 8.5),
        (WAITING, 8.5, 9),
        (RECEIVING, 9, 9.5),
        (COMPUTING, 9.5, 10),
        (ABSENT, 10, 11),
    ]
    assert spans[4].about == {"reason": "killed"}
    assert shape(other) == [(ANSWER, 6.5, 11)]
    at_once = timeline_of(table_of(rows), is_logged_late=False).workers[0]
    assert shape(at_once)[3] == (RECEIVING, 5, 6), "where a start is logged at once, there was none"


def test_a_resumed_run_grants_again_what_was_cancelled() -> None:
    rows = [*TWO_SHARDS[:-1], row(9.0, "resumed", 0), row(9.5, "started")]
    (spans,) = timeline_of(table_of(rows), is_logged_late=True).workers
    assert shape(spans)[3:] == [(UNKNOWN, 5, 9), (RECEIVING, 9, 9.5)]


def test_an_injected_delay_covers_what_it_delays_and_no_more() -> None:
    rows = [
        row(0.0, "started"),
        row(1.0, "delayed", value=0.5, because="slow"),
        row(1.5, "delayed", value=0.25, because="compute"),
        row(2.0, "computed"),
        row(2.0, "delayed", 0, value=1.0, because="push"),
        row(2.5, "delayed", 1, value=1.0, because="push"),
        row(3.0, "pushed", 0),
        row(3.25, "granted", 0),
        row(4.0, "pushed", 1),
        row(4.5, "granted", 1),
        row(4.0, "delayed", 0, value=0.75, because="pull"),
        row(5.0, "started"),
        row(5.5, "delayed", value=9.0, because="compute"),
        row(6.0, "left", 0),
        row(6.5, "delayed", value=9.0, because="what nobody knows"),
    ]
    timeline = timeline_of(table_of(rows))
    check_lanes(timeline)
    assert shape(timeline.workers[0]) == [
        (COMPUTING, 0, 1),
        (DELAY, 1, 1.5),
        (DELAY, 1.5, 1.75),
        (COMPUTING, 1.75, 2),
        (DELAY, 2, 3),
        (DELAY, 3, 3.5),
        (SENDING, 3.5, 4),
        (ANSWER, 4, 4.5),
        (DELAY, 4.5, 4.75),
        (RECEIVING, 4.75, 5),
        (COMPUTING, 5, 5.5),
        (DELAY, 5.5, 6),
        (ABSENT, 6, 6.5),
    ]
    reasons = [span.about["reason"] for span in timeline.workers[0] if span.kind == DELAY]
    assert reasons == ["slow", "compute", "push", "push", "pull", "compute"]


def test_a_stale_push_that_the_next_gradient_overtakes_does_not_change_it() -> None:
    """The block arrives before the push does; the next gradient is computed and sent before it has, too."""
    rows = [
        row(0.0, "started"),
        row(1.0, "computed", value=0.5),
        row(1.25, "interrupted", 0, version=4),
        row(1.25, "granted", 0, version=4),
        row(1.5, "started", version=4),
        row(2.0, "computed", version=4),
        row(2.5, "stale"),
        row(3.0, "pushed", 0, version=4),
        row(3.0, "granted", 0, version=5),
    ]
    (spans,) = timeline_of(table_of(rows), end_s=4.0).workers
    assert shape(spans) == [
        (INTERRUPTED, 0, 1),
        (SENDING, 1, 1.5),
        (COMPUTING, 1.5, 2),
        (SENDING, 2, 3),
        (RECEIVING, 3, 4),
    ]
    assert spans[0].about == {"version": 3, "loss": 0.5, "reason": "dropped: in transit"}
    before = timeline_of(table_of(rows[:5] + rows[6:7]), end_s=4.0).workers[0]
    assert shape(before) == [(INTERRUPTED, 0, 1), (SENDING, 1, 1.5), (COMPUTING, 1.5, 4)]


def test_a_gradient_that_was_computed_to_the_end_and_dropped_was_wasted() -> None:
    rows = [
        *TWO_SHARDS[:2],
        row(2.0, "dropped", because="computed to the end"),
        row(2.5, "started", version=4),
        row(3.0, "dropped", version=4, value=0.5, because="cancelled"),
    ]
    (spans,) = timeline_of(table_of(rows), end_s=4.0).workers
    assert shape(spans) == [(INTERRUPTED, 1, 2), (RECEIVING, 2, 2.5), (INTERRUPTED, 2.5, 3), (RECEIVING, 3, 4)]


def test_a_gradient_dropped_without_a_start_is_cancelled_since_it_was_granted() -> None:
    rows = [
        *steps(0, 1, 1.0),
        row(2.0, "interrupted", 0),
        row(2.0, "granted", 0),
        row(3.0, "interrupted", 0),
        row(3.0, "granted", 0),
        row(3.5, "dropped", version=-1, because="cancelled in its delay"),
        row(3.5, "dropped", version=-1, because="computed to the end"),
        row(3.5, "started"),
    ]
    (spans,) = timeline_of(table_of(rows), end_s=4.0, is_logged_late=True).workers
    assert shape(spans)[2:] == [(ANSWER, 0.6, 0.7), (INTERRUPTED, 0.7, 3.5), (COMPUTING, 3.5, 4)]
    assert spans[3].about["dropped"] == ["cancelled in its delay", "computed to the end"]


def test_a_worker_with_a_pull_rule_is_absent_until_it_rejoins_and_then_waits_for_blocks() -> None:
    """The blocks are reported with the push, after the start; broadcasts happen at any time."""
    rows = [
        row(0.5, "granted", 0, because="broadcast"),
        row(1.0, "started"),
        row(1.0, "pulled", 0, value=0, versions=(0, 1)),
        row(1.0, "pulled", 1, value=0, versions=(0, 1)),
        row(1.5, "granted", 1, because="broadcast"),
        row(2.0, "computed"),
        row(2.5, "pushed", 1),
        row(2.75, "granted", 0, because="broadcast"),
        row(3.0, "pushed", 0),
        row(3.5, "granted", 1, because="broadcast"),
        row(4.0, "left", 0, because="killed"),
        row(4.0, "left", 1, because="killed"),
        row(5.0, "joined", 0),
        row(5.0, "granted", 0, because="joined"),
        row(5.5, "joined", 1),
        row(6.0, "started"),
        row(6.0, "pulled", 0, value=1, versions=(3, 4)),
    ]
    (spans,) = timeline_of(table_of(rows), end_s=7.0, is_logged_late=True).workers
    assert shape(spans) == [
        (COMPUTING, 1, 2),
        (SENDING, 2, 3),
        (UNKNOWN, 3, 4),
        (ABSENT, 4, 5.5),
        (BLOCKS, 5.5, 6),
        (COMPUTING, 6, 7),
    ]
    assert [span.about["versions"] for span in spans if span.kind == COMPUTING] == [(0, 1), (3, 4)]


COUNTS = [
    *TWO_SHARDS[:4],
    row(3.0, "waits_for", 0, worker=-1, value=2, because="F_0 2, F 1"),
    row(4.0, "pushed", 1),
    row(4.0, "waits_for", 0, worker=-1, value=4),
    row(5.0, "timer", 0, worker=-1),
    row(5.0, "interrupted", 1),
]


def test_the_number_of_gradients_an_update_waits_for_belongs_to_a_shard(tmp_path: Path) -> None:
    timeline = timeline_of(table_of(COUNTS), end_s=6.0, first_count=1)
    assert timeline.counts == [[(1.0, 1), (3.0, 2), (4.0, 4)], [(1.0, 1)]]
    assert timeline_of(table_of(COUNTS)).counts == [[(3.0, 2), (4.0, 4)], []]
    (spans,) = timeline.workers
    assert shape(spans) == [(COMPUTING, 1, 2), (SENDING, 2, 4), (WAITING, 4, 6)]
    assert [[mark.kind for mark in marks] for marks in timeline.shards] == [[PUSH, TIMER], [PUSH, INTERRUPT]]
    tracks = [event for event in check_trace(timeline, tmp_path) if event["ph"] == "C"]
    assert [(event["name"], event["ts"], event["args"]["K"]) for event in tracks] == [
        ("K of shard 0", 1_000_000, 1),
        ("K of shard 0", 3_000_000, 2),
        ("K of shard 0", 4_000_000, 4),
        ("K of shard 1", 1_000_000, 1),
    ]
    part = [event for event in trace_events(timeline, 3.5, 3.75) if event["ph"] == "C"]
    assert [(event["ts"], event["args"]["K"]) for event in part] == [(3_500_000, 2), (3_500_000, 1)]


def test_k_has_a_curve_under_the_lanes_if_it_is_logged(tmp_path: Path) -> None:
    timeline = timeline_of(table_of(COUNTS), end_s=6.0)
    assert ">K</text>" in drawn(timeline, "some run", "virtual", 1.0, 6.0, tmp_path)
    before_it_changes = drawn(timeline, "some run", "virtual", 1.0, 2.0, tmp_path)
    assert ">K</text>" not in before_it_changes, "it is unknown"
    assert ">virtual time (s)</text>" in before_it_changes


def test_the_first_k_is_that_of_the_summary(tmp_path: Path) -> None:
    """It is in no row of the log."""
    config, _ = compose(["gradients=false", "strategy=adasync", "strategy.k=3", "max_updates=5"])
    folder = tmp_path / config.identity
    with RecordWriter(folder, config.as_dict(), with_events=True) as record:
        record.finish(simulate(config, lambda row: None, lambda progress: None, record.events))
    assert main(["timeline", str(folder)]) == 0
    events = json.loads((folder / "timeline.json").read_text())["traceEvents"]
    assert [(event["name"], event["args"]) for event in events if event["ph"] == "C"] == [("K", {"K": 3})]
    assert ">K</text>" in (folder / "timeline.svg").read_text()
    assert (folder / "timeline.png").read_bytes().startswith(b"\x89PNG")


def check_trace(timeline: Timeline, folder: Path) -> list[dict[str, Any]]:
    """What viewers require of a trace."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    path = write_trace(folder / "timeline.json", trace_events(timeline))
    events: list[dict[str, Any]] = json.loads(path.read_text(), parse_constant=refuse)["traceEvents"]
    lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {1: "workers", 2: "shards"}
    assert list(lanes.values()) == [f"worker {i}" for i in range(len(timeline.workers))] + [
        f"shard {i}" for i in range(len(timeline.shards))
    ]
    assert len({tid for _, tid in lanes}) == len(lanes)
    ends = dict.fromkeys(lanes, -math.inf)
    for event in events:
        assert event["ph"] in "MXiC"
        assert (event["pid"], event["tid"]) in lanes
        assert event["tid"] > 0
        assert type(event["ts"]) is int
        if event["ph"] == "X":
            lane = event["pid"], event["tid"]
            assert event["dur"] >= 0
            assert event["ts"] >= ends[lane], "a viewer drops what overlaps"
            ends[lane] = event["ts"] + event["dur"]
        elif event["ph"] == "i":
            assert event["s"] == "t"
    return events


any_rows = st.lists(
    st.builds(
        row,
        st.integers(0, 20).map(lambda tenths: tenths / 10),
        st.sampled_from(KINDS),
        st.integers(0, 2),
        worker=st.integers(-1, 2),
        version=st.integers(-1, 2),
        value=st.floats(0, 2),
        because=st.sampled_from(["", "slow", "push", "pull", "compute", "cancelled", "in transit", "resumed"]),
    ),
    min_size=1,
    max_size=40,
)


@given(any_rows, st.booleans())
def test_rows_in_any_order_never_crash_it(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], is_logged_late: bool
) -> None:
    """Nor do those of a log that was cut off."""
    timeline = timeline_of(table_of(rows), is_logged_late=is_logged_late)
    check_lanes(timeline)
    check_trace(timeline, tmp_path_factory.getbasetemp())


# The trace


def test_the_trace_of_a_simulated_run_is_one_that_viewers_open(tmp_path: Path) -> None:
    table, summary = simulated(tmp_path, "strategy=ssp", "cluster.shards=2", "max_updates=50")
    timeline = timeline_of(table, summary["time_s"])
    events = check_trace(timeline, tmp_path)
    names = Counter(event["name"] for event in events)
    kinds = Counter(row["kind"] for row in table.to_pylist())
    assert names[PUSH] == kinds["pushed"]
    assert names[UPDATE] == kinds["applied"], "one gradient each"
    assert names[WAITING] > 0
    for event in events:
        if event["name"] == WAITING and "granted" in event["args"]:
            assert event["args"]["reason"].startswith("lead")
        if event["name"] == COMPUTING:
            assert "version" in event["args"]
    spans = [span for spans in timeline.workers for span in spans]
    for span, event in zip(spans, (event for event in events if event["ph"] == "X"), strict=True):
        assert (event["name"], event["args"]) == (span.kind, span.about)
        assert event["ts"] == pytest.approx(span.begin_s * 1e6, abs=0.5)
        assert event["dur"] == pytest.approx((span.end_s - span.begin_s) * 1e6, abs=1)


def test_a_loss_that_is_no_number_is_written_as_a_word(tmp_path: Path) -> None:
    for value, word in (math.nan, "nan"), (math.inf, "inf"):
        rows = [row(0.0, "started"), row(1.0, "computed", value=value), row(2.0, "pushed", 0, value=4)]
        events = check_trace(timeline_of(table_of(rows)), tmp_path)
        assert {event["args"]["loss"] for event in events if "loss" in event["args"]} == {word}
        assert [event["args"]["iteration"] for event in events if event["name"] == PUSH] == [4]


# The window


def steps(worker: int, count: int, each_s: float) -> list[Row]:
    kinds = (("started", -1, 0.0), ("computed", -1, 0.5), ("pushed", 0, 0.6), ("granted", 0, 0.7))
    return [row((i + part) * each_s, kind, at, worker=worker) for i in range(count) for kind, at, part in kinds]


def test_a_long_run_shows_as_many_gradients_of_its_fastest_worker_as_can_be_told_apart() -> None:
    timeline = timeline_of(table_of(steps(0, 500, 0.5) + steps(1, 50, 4.0)))
    assert window_of(timeline, None, None) == (0.0, GRADIENTS_SHOWN * 0.5)
    assert window_of(timeline, 100.0, None) == (100.0, 100.0 + GRADIENTS_SHOWN * 0.5)
    assert window_of(timeline, None, 99.0) == (0.0, 99.0)
    assert window_of(timeline, 5.0, 7.0) == (5.0, 7.0)
    assert window_of(timeline, -3.0, math.inf) == (0.0, timeline.end_s)
    short = timeline_of(table_of(steps(0, 40, 0.5)))
    assert window_of(short, None, None) == (short.begin_s, short.end_s)


@pytest.mark.parametrize(("from_s", "to_s"), [(2.0, 1.0), (2.0, 2.0), (99.0, None), (None, 0.0), (math.nan, None)])
def test_a_window_in_which_nothing_can_be_seen_is_refused(from_s: float | None, to_s: float | None) -> None:
    timeline = timeline_of(table_of(steps(0, 10, 0.5)))
    line = refusal(RecordError, window_of, timeline, from_s, to_s)
    assert line.endswith("outside the run, which goes from 0 to 4.85 s")


# The picture


def test_the_picture_names_what_it_shows(tmp_path: Path) -> None:
    rows = [
        *TWO_SHARDS[:4],
        row(4.0, "pushed", 1),
        row(4.0, "applied", 1),
        row(4.0, "discarded", 0),
        row(5.0, "granted", 0),
        row(5.5, "granted", 1),
        row(6.0, "delayed", value=0.5, because="pull"),
        row(7.0, "started"),
        row(8.0, "left", 0),
        row(1.0, "granted", 0, worker=1),
        row(9.0, "joined", 0),
    ]
    timeline = timeline_of(table_of(rows), is_logged_late=True)
    words = drawn(timeline, "some run", "wall", 1.0, 9.0, tmp_path)
    kinds = (COMPUTING, DELAY, SENDING, ANSWER, WAITING, RECEIVING, ABSENT, UNKNOWN, UPDATE, DISCARD)
    for expected in (*kinds, "worker 0", "worker 1", "shard 1", "wall time (s)", "some run: all of 9.00 s wall"):
        assert f">{expected}</text>" in words
    assert drawn(timeline, "some run", "wall", 1.0, 9.0, tmp_path) == words, "the same record, the same file"


def test_the_picture_of_a_part_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "WORKERS_SHOWN", 3)
    timeline = timeline_of(table_of([entry for worker in range(5) for entry in steps(worker, 50, 0.01)]))
    svg = drawn(timeline, "many", "virtual", *window_of(timeline, None, None), tmp_path)
    assert ">many: 0.000 to 0.400 s of 0.497 s virtual, workers 0 to 2 of 5</text>" in svg
    assert ">worker 2</text>" in svg
    assert ">worker 3</text>" not in svg
