"""Asynchronous peers: a replica that others average with, without processes; runs of real processes, and their replays.

That a replay has the bits of the run shows that each averaging had one order at both its ends, and that no step, no
averaging and nothing of a checkpoint was lost.
"""

import os
import re
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import torch
from live.here import Launcher, has_snapshot, snapshots_after

from benchmarks.live_run import kill, pid_of
from syncline.learning.peer_replica import PeerReplica
from syncline.learning.sgd import Sgd
from syncline.live.collective.pairs import Pairs
from syncline.live.collective.process_group import MemberLost
from syncline.live.wire.frames import Header, Kind, receive, receive_into, receive_json, send, send_json
from syncline.live.wire.handshake import Listener, connect
from syncline.live.wire.sockets import WireError, address_of, listen
from syncline.records.snapshots import read_state
from syncline.records.store import UNFINISHED, status

SECRET = b"of this run"
NUM = 4
BATCH_NORM = ["model=resnet8", "model.width=4"]
KEEPS = ["local.steps=2", "local.optimizer={name: adamw, lr: 0.01}", "optimizer.momentum=0.9", "optimizer.lr=0.5"]
IN_MAKE_TEST = [pytest.mark.core, pytest.mark.xdist_group("forkserver")]
PACED = ["cluster.gradient_s=[0.02,0.05]", "runner.pace=absolute", "epochs=null", "batch_size=8"]


# A replica, without processes.


@pytest.fixture
def pairs(way: str) -> Iterator[list[Pairs]]:
    """Replicas of 2000 weights, each with a value of its own, that find each other."""
    found, listeners = [], []
    for rank in range(NUM):
        weights = torch.full((2000,), float(rank))
        replica = PeerReplica(weights, weights[:3].clone(), Sgd(0.0, 0.0), lambda samples, updates: 0.0, NUM)
        pair = Pairs(rank, replica, 0, SECRET, None)

        def serve(sock, pair: Pairs = pair) -> None:
            assert receive_json(sock) == {"kind": "average"}
            pair.serve(sock)

        listeners.append(listen(way))
        Listener(listeners[-1], SECRET, serve, "peer")
        found.append(pair)
    for pair in found:
        pair.addresses = [address_of(each) for each in listeners]
    yield found
    for listener, pair in zip(listeners, found, strict=True):
        pair.close()
        listener.close()


def asking(pair: Pairs) -> socket.socket:
    """A connection on which this peer was asked."""
    sock = connect(pair.addresses[pair._rank], SECRET)
    send_json(sock, {"kind": "average"})
    send(sock, Header(Kind.AVERAGE))
    return sock


def test_both_have_the_mean_in_the_same_bits_and_know_both_versions(pairs: list[Pairs]):
    pairs[2].version = 7
    with pairs[0].averaged_with(2) as its_version:
        assert (pairs[0].version, its_version) == (1, 8)
    with pairs[2].lock:  # which it has until it has averaged
        assert pairs[2].version == 8
    for pair in (pairs[0], pairs[2]):
        assert pair.replica.weights.unique().tolist() == [1.0]
        assert pair.replica.buffers.tolist() == [1.0] * 3
    assert pairs[1].version == 0


def test_no_circle_of_peers_waits_and_nothing_is_lost(pairs: list[Pairs]):
    """All ask at once, again and again, each the next one, so that whoever is asked is asking, too."""
    start = threading.Barrier(NUM)

    def work(pair: Pairs) -> None:
        start.wait()
        for turn in range(60):
            with pair.averaged_with((pair._rank + 1 + turn % (NUM - 1)) % NUM):
                pair.version += 1  # a step
                pair.replica.counts[1] += 1

    with ThreadPoolExecutor(NUM) as pool:
        for done in [pool.submit(work, pair) for pair in pairs]:
            done.result(timeout=60)
    for pair in pairs:
        with pair.lock:
            assert pair.replica.weights.tolist() == pytest.approx([1.5] * 2000)
    assert sum(pair.version for pair in pairs) == 3 * NUM * 60
    assert sum(pair.replica.counts[1].item() for pair in pairs) == pytest.approx(NUM * 60)


def test_a_peer_that_is_lost_between_two_messages_changes_nothing_and_holds_nobody(pairs: list[Pairs]):
    with closing(asking(pairs[1])) as sock:
        assert receive(sock).kind is Kind.REPLICA
    with pairs[0].averaged_with(1) as its_version:
        assert its_version == 1
    assert pairs[0].replica.weights.unique().tolist() == [0.5]


def test_what_is_no_replica_of_this_size_is_refused(pairs: list[Pairs]):
    with closing(asking(pairs[1])) as sock:
        receive_into(sock, memoryview(bytearray(receive(sock).size)))
        send(sock, Header(Kind.REPLICA), [memoryview(bytes(8))])
        with pytest.raises(WireError, match="closed"):
            receive(sock)
    with pairs[1].lock:
        assert pairs[1].version == 0


def test_who_does_not_know_the_secret_averages_with_nobody(pairs: list[Pairs]):
    stranger = Pairs(0, pairs[0].replica, 0, b"another", None)
    stranger.addresses = pairs[0].addresses
    with pytest.raises(MemberLost, match="averaging with worker 1 failed"), stranger.averaged_with(1):
        pass
    assert pairs[1].version == 0


# Runs.


@pytest.mark.processes
@pytest.mark.parametrize(
    "words",
    [
        ["strategy.graph=ring", *BATCH_NORM, "optimizer.momentum=0.9"],
        KEEPS,
        pytest.param(["runner.transport=tcp"], marks=IN_MAKE_TEST),
    ],
    ids=["batch norm", "local optimizer", "tcp"],
)
def test_a_run_equals_its_replay(words, launch: Launcher):
    schedule = ["optimizer.schedule.kind=cosine", "optimizer.schedule.end_epoch=4", "scenario=exponential_20ms"]
    words = [*words, *schedule, "cluster.workers=4", "max_updates=60", "runner.checkpoint_every_epochs=0.3"]
    run = launch("strategy=ad_psgd", *words, *PACED, "eval_every_epochs=0.2", "dataset.train_size=320")
    again, summary, log = run.replayed(), run.summary, run.log
    assert 60 <= summary["updates"] < 70
    assert again["replay"]["gradients"] == summary["updates"] == sum(summary["used_by_worker"])
    for key in ("updates", "samples", "staleness", "used_by_worker"):
        assert again[key] == summary[key], key
    assert again["final"] == pytest.approx(summary["final"], rel=1e-4)
    assert summary["ended_by"] == "max_updates"
    assert summary["parameters"] == [f"parameters-{rank}.safetensors" for rank in range(4)]
    assert summary["divergence"] > 0
    updates = [row["updates"] for row in run.rows]
    assert updates == sorted(set(updates))
    assert len(updates) > 3
    assert all(row["train_loss"] is not None for row in run.rows[1:])
    assert sorted(log[log.kind == "pushed"].push) == sorted(
        number * 4 + worker for worker, used in enumerate(summary["used_by_worker"]) for number in range(used)
    )
    assert min(map(int, summary["staleness"])) == 1


@pytest.mark.processes
def test_a_slow_worker_delays_nobody(launch: Launcher):
    """At 0.02 s and 0.3 s a gradient, one makes about fifteen steps while the other makes one."""
    words = [
        "cluster.workers=2",
        "cluster.gradient_s=[0.02,0.3]",
        "runner.pace=absolute",
        "max_time_s=3",
        "epochs=null",
    ]
    run = launch("strategy=ad_psgd", *words, "cluster.jitter=null", "model=softmax_regression")
    fast, slow = run.summary["used_by_worker"]
    assert run.summary["ended_by"] == "max_time_s"
    assert 7 <= slow <= 10
    assert fast >= 8 * slow
    assert run.summary["busy_by_worker"][0] > 0.7
    assert 3.0 <= run.summary["time_s"] < 3.5
    run.replayed()


@pytest.mark.processes
def test_stopped_and_resumed_and_then_killed_it_loses_nothing(launch: Launcher):
    words = ["strategy=ad_psgd", "cluster.workers=3", "max_updates=300", *PACED, *KEEPS, "dataset.train_size=320"]
    words += ["runner.checkpoint_every_epochs=1", "eval_every_epochs=0.5", *BATCH_NORM]
    folder = launch.stopped(has_snapshot(1), *words)
    assert status(folder) == UNFINISHED
    left = [read_state(path)[1] for path in (folder / "checkpoint").iterdir()]
    assert len(left) == 3
    assert len({state["totals"]["updates"] for state in left}) == 1
    assert sum(state["tally"]["steps"] for state in left) == left[0]["totals"]["updates"]
    again = launch(
        *words, during=[(snapshots_after(has_snapshot(1), 3), lambda folder: kill(pid_of(folder, "worker", 2)))]
    )
    assert "restarts from its last checkpoint" in again.said
    assert again.summary["restarts"] == 2
    again.replayed()
    updates = [row["updates"] for row in again.rows]
    assert updates == sorted(set(updates))
    for worker in range(3):
        rows = again.log[again.log.worker == worker]
        assert (rows["at"].diff().dropna() >= 0).all()


@pytest.mark.processes
def test_a_target_ends_all(launch: Launcher):
    words = ["cluster.workers=3", *PACED, "runner.evaluate=during", "target.value=0.5", "eval_every_epochs=0.2"]
    run = launch("strategy=ad_psgd", *words, "model=softmax_regression", "max_updates=100000")
    assert run.summary["ended_by"] == "target"
    run.replayed()


@pytest.mark.processes
def test_a_run_that_diverges_ends(launch: Launcher):
    run = launch("strategy=ad_psgd", "cluster.workers=3", "optimizer.lr=1e9", "max_updates=100000", *PACED)
    assert run.summary["ended_by"] == "diverged"


@pytest.mark.processes
def test_a_peer_that_hangs_is_named_and_the_run_restarts_without_it(launch: Launcher):
    words = ["strategy=ad_psgd", "cluster.workers=3", "runner.hang_s=1", "runner.leave_s=4", "max_updates=200", *PACED]
    hangs = [(has_snapshot(1), lambda folder: os.kill(pid_of(folder, "worker", 1), signal.SIGSTOP))]
    run = launch(*words, "model=softmax_regression", "dataset.train_size=640", during=hangs)
    assert "the collective is silent for 1." in run.said
    assert re.search(r"worker 0: (averaging with worker 1|paused) since", run.said)
    assert "worker 1: does not answer" in run.said
    assert "the run restarts from " in run.said
    run.replayed()
