"""Silent workers are named, then dropped; those that wait for others, or restart repeatedly, are not."""

import time
from types import SimpleNamespace

import pytest
import torch

from syncline.learning.parameters import Parameters, Version
from syncline.learning.sgd import Sgd
from syncline.live.shard.connections import GradientPool
from syncline.live.shard.elastic import ElasticShard
from syncline.live.shard.server import ShardServer
from syncline.live.shard.watchdog import Watchdog
from syncline.live.wire.clock import RunClock
from syncline.live.wire.frames import Header
from syncline.progress import Limits
from syncline.server.report import PushReport
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions

HANG_S, LEAVE_S = 10.0, 20.0


@pytest.fixture(autouse=True)
def _time_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr("time.monotonic", lambda: now)


class Reads:
    """A connection whose worker reads every block at once."""

    resumes = False

    def __init__(self, worker: int) -> None:
        self.worker = worker

    def post(self, header: Header, version: Version | None, is_busy: bool = False) -> Version | None:
        return None if is_busy else version

    def close(self) -> None: ...


class Watched:
    """A shard with its watchdog, without its process."""

    def __init__(self, options: StrategyOptions, num_workers: int = 3) -> None:
        self.said: list[str] = []
        rule = options.pull_rule(1)
        self.pool = GradientPool(4, 0, 1, 0 if rule is None else 1)
        self.clock = RunClock()
        self.clock.zero_s = time.monotonic()
        self.watchdog = Watchdog(HANG_S, LEAVE_S)
        parameters = Parameters(
            slice(0, 4),
            Version(torch.zeros(4), torch.zeros(0)),
            Sgd(0.0, 0.0),
            lambda samples, updates: 0.1,
            num_workers,
        )
        self.connections = {worker: Reads(worker) for worker in range(num_workers)}
        self.shard = ElasticShard(0, options, parameters, 8, Limits(), None)
        self.server = ShardServer.__new__(ShardServer)
        parts = {"shard": self.shard, "parameters": parameters, "connections": self.connections, "clock": self.clock}
        control = SimpleNamespace(send=lambda warning: self.said.append(warning.text))
        parts |= {"watchdog": self.watchdog, "control": control}
        vars(self.server).update({f"_{name}": part for name, part in parts.items()})
        self.server._begin(resumed=False)

    def push(self, worker: int, version: int = 0) -> None:
        report = PushReport(worker, self.shard.iterations[worker], version, version, loss=1.0)
        self.watchdog.pushed(worker)
        self.server._carry_out(self.shard.pushed(0.0, report, self.pool.take()))

    def ages(self, worker: int, seconds: float) -> None:
        """This worker's last event was so much earlier."""
        then, what = self.watchdog.last_event[worker]
        self.watchdog.last_event[worker] = then - seconds, what

    def drop(self, worker: int, why: str) -> None:
        del self.connections[worker]
        self.said.append(f"worker {worker} left: {why}")
        self.server._left(worker, why)

    def watch(self) -> list[str]:
        """What the watchdog says."""
        self.said.clear()
        self.watchdog.check(self.clock, self.shard.owes, self.drop, self.said.append)
        return self.said


@pytest.mark.parametrize("options", [PspOptions(), PspOptions(c=2, tau1=9.0), SspOptions(staleness=0)], ids=str)
def test_a_worker_that_waits_for_a_hung_one_is_neither_named_nor_dropped(options):
    watched = Watched(options)
    for worker in (0, 2):
        watched.push(worker)
    for worker in range(3):
        watched.ages(worker, LEAVE_S + 1)
    said = watched.watch()
    assert said[0].startswith("worker 1 left: silent for 21.0 s")
    assert watched.shard.active == {0, 2}
    assert not [words for words in said if "worker 0" in words or "worker 2" in words]
    if options != PspOptions(c=2, tau1=9.0):
        assert watched.shard.owes(0), "it has been granted"
    assert watched.watch() == [], "and its time starts now"


def test_a_granted_worker_that_is_silent_is_named_once_and_then_dropped():
    watched = Watched(PspOptions(c=1))
    watched.ages(1, HANG_S + 1)
    (named,) = watched.watch()
    assert named.startswith("worker 1 is silent for 11.0 s, last event: granted at -11.0 s")
    assert watched.watch() == []
    watched.ages(1, LEAVE_S)
    assert watched.watch()[0].startswith("worker 1 left: silent for")


def test_a_worker_that_ignores_updates_is_silent_since_its_push_was_due():
    """Updates without it do not count as signs of life."""
    watched = Watched(PspOptions(c=1))
    watched.push(1)
    watched.ages(1, HANG_S + 1)
    watched.push(0, version=1)
    watched.push(2, version=2)
    assert watched.watch()[0].startswith("worker 1 is silent for 11.0 s")


@pytest.mark.parametrize("options", [KSyncOptions(k=1), KBatchSyncOptions(k=1)], ids=str)
def test_an_interrupted_worker_restarts_and_is_not_silent(options):
    watched = Watched(options)
    for worker in (1, 2):
        watched.ages(worker, LEAVE_S + 1)
    watched.push(0)
    assert watched.watch() == []
    assert watched.shard.active == {0, 1, 2}


def test_a_resumed_run_may_drop_one_worker_and_release_another():
    """A worker that was held at the checkpoint has had no event yet."""
    before = Watched(SspOptions(staleness=0))
    before.push(0)
    before.push(2)
    again = Watched(SspOptions(staleness=0))
    again.watchdog.last_event.clear()
    again.shard.load(*before.shard.state(), again.pool.take)
    again.server._begin(resumed=True)
    assert set(again.watchdog.last_event) == {1}
    again.ages(1, LEAVE_S + 1)
    assert again.watch()[0].startswith("worker 1 left")
    assert set(again.watchdog.last_event) == {0, 1, 2}
