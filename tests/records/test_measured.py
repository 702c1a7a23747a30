"""What gradients and messages took is read back from a log as it went into it."""

from pathlib import Path

import numpy as np
import pytest
from commands import made
from hypothesis import given
from hypothesis import strategies as st
from recurrences import first_compute_s

from syncline.config import compose
from syncline.records.events import EventLog, read_events
from syncline.records.measured import measured
from syncline.records.rows import Row, delayed
from syncline.timing.cluster import Cluster

VIRTUAL = ["gradients=false", "epochs=null", "max_updates=60", "strategy=asp", "cluster.workers=3"]
SECONDS = st.floats(1e-3, 1.0)
ROUNDS = st.lists(st.tuples(SECONDS, st.sampled_from([0.0, 0.04]), SECONDS, SECONDS, st.booleans()), max_size=12)


@given(st.lists(ROUNDS, min_size=1, max_size=3))
def test_a_log_gives_back_the_seconds_of_each_worker(tmp_path_factory: pytest.TempPathFactory, workers: list) -> None:
    """Rounds of own seconds, injected delay, push, pull, and whether a cancelled gradient precedes them."""
    rows = []
    for worker, rounds in enumerate(workers):
        now = 0.0
        for own, delay, push, pull, is_cancelled in rounds:
            if is_cancelled:
                rows.append(Row(now, "started", worker))
                now += 0.5
            rows.append(Row(now, "started", worker))
            now += own
            if delay:
                rows.append(delayed(now, worker, delay, "compute"))
            now += delay
            rows.append(Row(now, "computed", worker))
            now += push
            rows += [Row(now, "pushed", worker, 0), Row(now, "granted", worker, 0)]
            now += pull
        rows.append(Row(now, "started", worker))  # still under way at the end
    path = tmp_path_factory.mktemp("log") / "events.arrow"
    log = EventLog(path)
    for row in sorted(rows, key=lambda row: row[0]):
        log.append(row)
    log.close()
    taken = measured(read_events(path), len(workers))
    for worker, rounds in enumerate(workers):
        own, delay, push, pull, _ = np.array(rounds).reshape(-1, 5).T
        np.testing.assert_allclose(taken.own_s[worker], own, atol=1e-12)
        np.testing.assert_allclose(taken.injected_s[worker], delay)
        np.testing.assert_allclose(taken.gradient_s[worker], own + delay, atol=1e-12)
        np.testing.assert_allclose(taken.push_s[worker], push, atol=1e-12)
        starts = taken.pull_s[worker] if not any(each[4] for each in rounds) else taken.pull_s[worker][:0]
        np.testing.assert_allclose(starts, pull[: len(starts)], atol=1e-12)


def test_a_run_in_virtual_time_gives_back_what_was_drawn(tmp_path: Path) -> None:
    """Gradients are the draws, and a message without bandwidth takes the latency, each way."""
    words = [*VIRTUAL, "cluster.network.bandwidth_gbps=null", "cluster.network.latency_s=0.003"]
    taken = measured(read_events(made(tmp_path, *words) / "events.arrow"), 3)
    config, _ = compose(words)
    drawn = first_compute_s(Cluster(config.cluster, config.scenario, config.seed), 60)
    for worker, seconds in enumerate(taken.gradient_s):
        np.testing.assert_allclose(seconds, drawn[worker, : len(seconds)], atol=1e-12)
    np.testing.assert_allclose(taken.messages_s, 0.003, atol=1e-12)
    assert sum(map(len, taken.push_s)) == 60
