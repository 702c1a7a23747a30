"""Several shards, each with a state machine of its own, and messages that arrive in any order.

A worker sends every gradient to all shards and continues after one answer of each, or when its pull rule says so.
Messages between a worker and a shard keep their order; there is no other guarantee. No order may end in a deadlock.
"""

import math
from collections import deque
from itertools import count

import pytest
from examples import scaled
from hypothesis import assume, given
from hypothesis import strategies as st

from syncline.strategies import STRATEGIES
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.protocol import (
    Apply,
    Discard,
    Event,
    Grant,
    Hold,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WaitFor,
    WakeAt,
    WorkerJoined,
    WorkerLeft,
)
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions

CASES: list[StrategyOptions] = [
    AspOptions(),
    BspOptions(),
    SspOptions(staleness=0),
    SspOptions(staleness=2),
    BackupOptions(backups=1),
    BackupOptions(backups=2),
    SyncSwitchOptions(after=1),
    PspOptions(),
    PspOptions(b=50.0, tag="newest"),
    PspOptions(c=1, b=75.0),
    PspOptions(c=2, b=50.0, tag="newest"),
    PspOptions(c=2, b=1.0, tau1=0.003, tau2=0.002),
    PspOptions(c=2, b=67.0, tau1=0.002, tau2=0.003, tag="newest"),
]

Channel = tuple[int, int]  # worker, shard
Move = tuple[str, int, int]  # kind, worker, shard
LEFT, JOINED = "left", "joined"


class Shards:
    """All shards and workers of one run, and every message between them."""

    def __init__(self, options: StrategyOptions, num_workers: int, num_shards: int) -> None:
        options.check_cluster(num_workers, num_shards)
        self.options, self.num_workers, self.num_shards = options, num_workers, num_shards
        self.machines = [options.start(num_workers) for _ in range(num_shards)]
        self.versions = [0] * num_shards
        self.timers = [math.inf] * num_shards
        self.pending: list[dict[int, int]] = [{} for _ in range(num_shards)]  # push -> its version
        self.numbers = count()
        self.now = 0.0
        channels = [(worker, shard) for worker in range(num_workers) for shard in range(num_shards)]
        # to a shard: the version (or tag) of a gradient, LEFT or JOINED; to a worker: a version
        self.to_shard: dict[Channel, deque[int | str]] = {channel: deque() for channel in channels}
        self.to_worker: dict[Channel, deque[int]] = {channel: deque() for channel in channels}
        self.is_open = dict.fromkeys(channels, True)  # a worker that rejoins receives nothing sent before that
        self.active = set(range(num_workers))
        self.rules = [options.pull_rule(num_shards) for _ in range(num_workers)]
        self.starts_at = [math.inf] * num_workers  # where a pull rule lets a worker start later
        self.blocks = [[0] * num_shards for _ in range(num_workers)]  # the versions that each worker has
        self.missing: list[set[int]] = [set() for _ in range(num_workers)]  # shards whose answers it waits for
        self.sent = [0] * num_workers  # gradients
        self.computing = set(range(num_workers))
        for worker, rule in enumerate(self.rules):
            if rule is not None:
                self.computing.discard(worker)
                for shard in range(num_shards):
                    self.start_when(worker, rule.arrived(0.0, shard, 0))
        assert len(self.computing) == num_workers
        assert not any(machine.begin() for machine in self.machines), (
            "those with several shards set no timer at the start"
        )

    @property
    def due(self) -> float:
        return min(*self.timers, *self.starts_at, math.inf)

    def moves(self) -> list[Move]:
        """All possible next steps."""
        found = [("finish", worker, -1) for worker in sorted(self.computing)]
        return found + self.deliveries() + ([("time", -1, -1)] if self.due < math.inf else [])

    def deliveries(self) -> list[Move]:
        found = [("to_shard", *channel) for channel, queue in self.to_shard.items() if queue]
        return found + [("to_worker", *channel) for channel, queue in self.to_worker.items() if queue]

    def perform(self, move: Move) -> None:
        kind, worker, shard = move
        if kind == "time":
            self.now = self.due
            self.wake()
            return
        self.now = min(self.now + 0.001, self.due)
        if kind == "finish":
            self.finish(worker)
        elif kind == "to_shard":
            self.at_shard(worker, shard, self.to_shard[worker, shard].popleft())
        else:
            self.at_worker(worker, shard, self.to_worker[worker, shard].popleft())

    def wake(self) -> None:
        for shard, at in enumerate(self.timers):
            if at <= self.now:
                self.timers[shard] = math.inf
                self.handle(shard, TimerFired(self.now))
                return
        worker = min(range(self.num_workers), key=lambda w: self.starts_at[w])
        self.start_when(worker, self.starts_at[worker])

    def finish(self, worker: int) -> None:
        """The gradient is computed and sent to every shard."""
        self.computing.remove(worker)
        self.sent[worker] += 1
        rule = self.rules[worker]
        for shard in range(self.num_shards):
            self.to_shard[worker, shard].append(self.blocks[worker][shard] if rule is None else rule.tag)
        if rule is None:
            self.missing[worker] = set(range(self.num_shards))
        else:
            self.start_when(worker, rule.pushed(self.now))

    def leave(self, worker: int, lost: int = 0) -> None:
        """The worker dies; each shard whose bit is set in `lost` does not receive its last message."""
        self.active.remove(worker)
        self.computing.discard(worker)
        self.starts_at[worker] = math.inf
        for shard in range(self.num_shards):
            queue = self.to_shard[worker, shard]
            if lost >> shard & 1 and queue and queue[-1] != JOINED:
                queue.pop()
            queue.append(LEFT)
            self.to_worker[worker, shard].clear()
            self.is_open[worker, shard] = False

    def join(self, worker: int) -> None:
        """The worker is back, without any block."""
        self.active.add(worker)
        self.rules[worker] = self.options.pull_rule(self.num_shards)
        self.missing[worker] = set(range(self.num_shards))
        for shard in range(self.num_shards):
            self.to_shard[worker, shard].append(JOINED)

    def at_shard(self, worker: int, shard: int, message: int | str) -> None:
        if message == LEFT:
            self.handle(shard, WorkerLeft(self.now, worker))
        elif message == JOINED:
            self.is_open[worker, shard] = JOINED not in self.to_shard[worker, shard] and worker in self.active
            self.handle(shard, WorkerJoined(self.now, worker))
        else:
            assert isinstance(message, int)
            push = next(self.numbers)
            self.pending[shard][push] = message
            self.handle(shard, PushArrived(self.now, push, worker, message, 0.0))

    def at_worker(self, worker: int, shard: int, version: int) -> None:
        rule = self.rules[worker]
        if rule is not None:
            when = rule.arrived(self.now, shard, version)
            if worker not in self.computing:
                self.start_when(worker, when)
            return
        self.missing[worker].remove(shard)  # one answer of each shard, and no more
        self.blocks[worker][shard] = version
        if not self.missing[worker]:
            self.computing.add(worker)

    def start_when(self, worker: int, when: float | None) -> None:
        """Start the worker at `when`, as its pull rule says; None: not before another block."""
        self.starts_at[worker] = math.inf if when is None or when <= self.now else when
        if when is not None and when <= self.now:
            rule = self.rules[worker]
            assert rule is not None
            assert set(rule.start()) <= set(range(self.num_shards))
            self.computing.add(worker)

    def handle(self, shard: int, event: Event) -> None:
        bound = self.options.staleness_bound
        for command in self.machines[shard].handle(event):
            match command:
                case Apply(pushes=pushes):
                    for push in pushes:
                        staleness = self.versions[shard] - self.pending[shard].pop(push)
                        assert bound is None or staleness <= bound
                    self.versions[shard] += 1
                case Discard(push=push):
                    del self.pending[shard][push]
                case Grant(worker=worker):
                    if self.is_open[worker, shard]:
                        self.to_worker[worker, shard].append(self.versions[shard])
                case WakeAt(at=at):
                    self.timers[shard] = at
                case Hold() | WaitFor():
                    pass
                case _:
                    pytest.fail(f"{command} needs one logical server")

    def check_for_deadlock(self) -> None:
        """After all messages in flight have arrived."""
        while deliveries := self.deliveries():
            self.perform(deliveries[0])
        can_continue = self.computing or self.due < math.inf
        assert can_continue or not self.active, [machine.state_dict() for machine in self.machines]


def accepts(options: StrategyOptions, num_workers: int, num_shards: int) -> bool:
    try:
        options.check_cluster(num_workers, num_shards)
    except ValueError:
        return False
    return True


@pytest.fixture(params=CASES, ids=repr)
def options(request: pytest.FixtureRequest) -> StrategyOptions:
    return request.param


def test_every_strategy_of_several_shards_is_tested():
    several = {name for name, kind in STRATEGIES.items() if not kind.single_server and kind().has_server}
    assert {options.name for options in CASES} == several


def phases(most: int, moves: int = 20) -> st.SearchStrategy[list[tuple[int, list[int]]]]:
    """Parts of a history: a bit for each channel that delivers nothing meanwhile, and the choices of steps."""
    one = st.tuples(st.integers(0, 2**20 - 1), st.lists(st.integers(0, 255), min_size=moves, max_size=moves))
    return st.integers(0, most).flatmap(lambda size: st.lists(one, min_size=size, max_size=size))


def perform_history(run: Shards, history: list[tuple[int, list[int]]], lost: int | None = None) -> None:
    """Perform the chosen steps; workers also die and rejoin unless `lost` is None."""
    for slow, choices in history:
        for choice in choices:
            if choice < 16 and lost is not None:
                worker = choice % run.num_workers
                if worker in run.active:
                    run.leave(worker, lost)
                else:
                    run.join(worker)
            moves = run.moves()
            quick = [m for m in moves if m[2] < 0 or not slow >> (m[1] * run.num_shards + m[2]) & 1]
            if moves:
                run.perform((quick or moves)[choice % len(quick or moves)])


workers = st.integers(1, 5)
shards = st.integers(1, 4)


@scaled(25)
@given(num_workers=workers, num_shards=shards, history=phases(6))
def test_no_order_of_messages_ends_in_a_deadlock(options, num_workers, num_shards, history):
    assume(accepts(options, num_workers, num_shards))
    run = Shards(options, num_workers, num_shards)
    perform_history(run, history)
    run.check_for_deadlock()


@scaled(20)
@given(num_workers=workers, num_shards=shards, history=phases(3))
def test_every_worker_and_every_shard_makes_progress(options, num_workers, num_shards, history):
    """From any state, if nothing is delayed for ever."""
    assume(accepts(options, num_workers, num_shards))
    run = Shards(options, num_workers, num_shards)
    perform_history(run, history)
    sent, versions = list(run.sent), list(run.versions)
    for _ in range(300):
        for move in run.moves():
            if move in run.moves():
                run.perform(move)
        steps = [now - before for now, before in zip(run.sent + run.versions, sent + versions, strict=True)]
        if min(steps) >= 3:
            return
    pytest.fail(f"gradients sent {run.sent} after {sent}, versions {run.versions} after {versions}")


elastic = pytest.mark.parametrize("options", [options for options in CASES if options.elastic], ids=repr)


@elastic
@scaled(25)
@given(num_workers=workers, num_shards=st.integers(1, 3), history=phases(6), lost=st.integers(0, 7))
def test_no_order_ends_in_a_deadlock_when_workers_die_and_rejoin(options, num_workers, num_shards, history, lost):
    """Each shard is notified in its own time; some may not receive the last message of a worker."""
    assume(accepts(options, num_workers, num_shards))
    run = Shards(options, num_workers, num_shards)
    perform_history(run, history, lost)
    run.check_for_deadlock()


# Two histories that are too rare to be drawn at random.


def deliver(run: Shards, *channels: Channel) -> None:
    """Deliver the next message of each channel, those to a shard first."""
    for channel in channels:
        run.perform(("to_shard" if run.to_shard[channel] else "to_worker", *channel))


def step(run: Shards, *workers: int) -> None:
    """These workers finish, and receive the answers of both shards."""
    for worker in workers:
        run.finish(worker)
    deliver(run, *((worker, shard) for worker in workers for shard in (0, 1)))
    deliver(run, *((worker, shard) for worker in workers for shard in (0, 1)))


def test_a_backup_worker_dies_while_one_shard_has_its_last_gradient_and_the_other_has_not():
    """Worker 0 waits at shard 0 and worker 2 at shard 1, each for the other; N = 1 of the two lets both continue."""
    run = Shards(BackupOptions(backups=1), 3, 2)
    run.finish(2)
    deliver(run, (2, 0))  # shard 1 does not receive it for long
    step(run, 0, 1)
    deliver(run, (2, 0))
    step(run, 0, 1)
    run.finish(0)
    run.finish(1)
    deliver(run, (0, 0), (0, 1), (1, 1))
    run.leave(1, lost=0b01)
    assert run.versions == [2, 3]
    run.check_for_deadlock()
    while 2 not in run.computing:
        run.perform(run.moves()[0])
    run.finish(2)
    run.check_for_deadlock()


def test_a_psp_worker_rejoins_when_one_shard_is_ahead():
    """Its counter starts where both shards are: at 1 its gradient would be used up by shard 1's update at 0."""
    run = Shards(PspOptions(), 2, 2)
    run.finish(0)
    run.leave(1)
    deliver(run, (1, 0), (0, 0))  # shard 0 continues without worker 1
    run.join(1)
    deliver(run, (1, 1), (1, 1), (1, 0), (1, 0), (1, 1))
    assert (run.versions, sorted(run.computing)) == ([1, 0], [1])
    assert run.rules[1].tag == 0
    for _ in range(3):
        run.check_for_deadlock()
        for worker in sorted(run.computing):
            run.finish(worker)
    assert min(run.versions) >= 2
