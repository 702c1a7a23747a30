"""A live engine with fake workers: what it sends them, what they push, and what must hold after every event."""

import copy
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from log_checks import Rows
from torch import Tensor

from syncline.checking.strategy import accepts
from syncline.learning.parameters import Gradient, Parameters, Version
from syncline.learning.sgd import Sgd
from syncline.learning.update import AppliedPush, UpdateRule
from syncline.live.shard.elastic import ElasticShard
from syncline.progress import Limits
from syncline.records.rows import Row
from syncline.server.report import PushReport
from syncline.strategies.adasync import AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.mindflayer import MindflayerOptions
from syncline.strategies.protocol import Command, Grant, PullRule, Repeat, StrategyOptions, WaitFor
from syncline.strategies.psp import PspOptions
from syncline.strategies.rennala import RennalaOptions
from syncline.strategies.ringmaster import RingmasterOptions
from syncline.strategies.ssp import SspOptions
from syncline.strategies.sync_switch import SyncSwitchOptions

BATCH = 8
SIZE, BUFFERS = 5, 2

CASES: list[StrategyOptions] = [
    AspOptions(),
    BspOptions(),
    SspOptions(staleness=1),
    DsspOptions(s_lower=1, r_max=2, bound="hard"),
    DsspOptions(s_lower=0, r_max=3, bound="paper"),
    BackupOptions(backups=1),
    BackupOptions(backups=2, aggregate="sum"),
    KSyncOptions(k=2),
    KBatchSyncOptions(k=3),
    KAsyncOptions(k=2),
    KBatchAsyncOptions(k=3),
    *(AdasyncOptions(variant=variant, k=1, interval=0.03) for variant in ("k_sync", "k_batch_async")),
    RingmasterOptions(r=2),
    RingmasterOptions(r=2, stops=True),
    MindflayerOptions(within=0.006),
    RennalaOptions(k=3),
    SyncSwitchOptions(after=3),
    PspOptions(),
    PspOptions(c=2, tag="newest"),
    PspOptions(c=1, tau1=0.006, tag="newest"),
]
APPLY_EACH_PUSH = ("asp", "ssp", "dssp")  # an update for every push


class Granted(NamedTuple):
    """The block that a worker computes at, or one that is in flight to it."""

    version: int
    iteration: int
    weights: Tensor
    buffers: Tensor
    at: float


class KnowsWeights(UpdateRule):
    """Holds the weights that each push is said to be computed from against those that its worker had."""

    needs_weights = True

    def __init__(self) -> None:
        self.had: dict[bytes, Tensor] = {}  # by the gradient

    def __call__(self, weights: Tensor, pushes: Sequence[AppliedPush], rate: float) -> None:
        for push in pushes:
            assert push.weights is not None
            assert torch.equal(push.weights, self.had[push.gradient.numpy().tobytes()])


class FakeRun:
    """An engine on tiny tensors, and workers that do what the test says.

    A gradient depends on the weights that its worker was granted, on the worker and on the iteration: a wrong version
    or a wrong iteration leads to other weights.

    Args:
        num_workers: raised to as many as the options need.
        delivers_at_once: a block sent to a busy worker arrives at once; else at a step `deliver`, or after its next
            push.
        resume: the state of an engine to resume from; the test then calls `connect` itself.
    """

    def __init__(
        self,
        options: StrategyOptions,
        num_workers: int = 3,
        *,
        limits: Limits | None = None,
        number: int = 0,
        delivers_at_once: bool = True,
        resume: tuple[dict[str, Tensor], dict] | None = None,
    ) -> None:
        num_workers = next(number for number in itertools.count(num_workers) if accepts(options, number))
        self.options, self.num_workers, self.delivers_at_once = options, num_workers, delivers_at_once
        self.rows = Rows()
        self.now = 0.0
        self.computing: dict[int, Granted] = {}
        self.last: dict[int, Granted] = {}  # the block that each worker last computed at
        self.in_flight: dict[int, Granted] = {}  # the newest block sent to a worker that was busy
        self.delivered: dict[int, Granted] = {}  # the newest block that a worker's rule has received
        self.rules: dict[int, PullRule] = {}
        self.next: dict[int, int] = {}  # iteration of a worker with a rule
        self.to_report: Counter[tuple[int, str]] = Counter()  # (worker, cancelled | wasted), sent with the next push
        self.released: list[Gradient] = []
        self.gradients: list[Gradient] = []  # kept, so that no identity is used twice
        self.rule = KnowsWeights()
        num_buffers = BUFFERS if number == 0 else 0
        self.engine = ElasticShard(
            number,
            options,
            Parameters(
                block=slice(0, SIZE),
                current=Version(torch.linspace(-1, 1, SIZE), torch.ones(num_buffers)),
                optimizer=Sgd(momentum=0.9, weight_decay=1e-2),
                rate=lambda samples, updates: 0.1 / (1 + samples / 1000 + updates / 100),
                num_workers=num_workers,
                rule=self.rule,
            ),
            BATCH,
            limits or Limits(),
            self.rows,  # type: ignore[arg-type]
        )
        if resume is not None:
            self.engine.load(*resume, self.new_gradient)
        else:
            self.connect(resumed=False)
            self.carry_out(self.engine.begin(self.now))

    def connect(self, resumed: bool) -> None:
        for worker, is_held in self.engine.connected(self.now, resumed).items():
            if is_held:
                self.hold(worker)
            else:
                self.grant(worker, is_busy=False)
        self.engine.check_progress(self.now)

    # Commands of the engine.

    def carry_out(self, commands: Iterable[Command]) -> None:
        for command in commands:
            match command:
                case Grant():
                    self.grant(command.worker, self.engine.granted(command.worker)[0])
                case Repeat():
                    self.engine.repeated(command.worker)
                    self.repeat(command.worker)
        self.engine.check_progress(self.now)

    def grant(self, worker: int, is_busy: bool) -> None:
        version, iteration = self.engine.version, self.engine.iterations[worker]
        assert worker in self.engine.active
        assert self.engine.ended_by is None, "granted after the end"
        current = self.engine.parameters.current
        block = Granted(version, iteration, current.weights.clone(), current.buffers.clone(), self.now)
        rule = self.options.pull_rule(1)
        if rule is not None:
            if not is_busy:  # a new process without a block
                assert worker not in self.rules
                self.rules[worker], self.next[worker] = rule, iteration
            self._send(worker, block, is_first=not is_busy)
        elif is_busy:
            assert worker in self.computing, "the engine says that it computes, but it waits"
            assert self.options.interrupts
            assert iteration == self.computing[worker].iteration
            self._send(worker, block)
        else:
            assert worker not in self.computing, "granted while it computes"
            self.computing[worker] = block

    def hold(self, worker: int) -> None:
        rule = self.options.pull_rule(1)
        if rule is not None:  # a new process, which waits for the next block
            self.rules[worker], self.next[worker] = rule, self.engine.iterations[worker]
        assert worker in self.engine.waiting or rule is not None

    def repeat(self, worker: int) -> None:
        assert worker not in self.computing, "repeats while it computes"
        last = self.last[worker]
        iteration = self.engine.iterations[worker]
        assert (self.engine.totals.updates, iteration) == (last.version, last.iteration + 1)
        self.computing[worker] = last._replace(iteration=iteration, at=self.now)

    def _send(self, worker: int, block: Granted, is_first: bool = False) -> None:
        """A block is in flight; it replaces an older one that has not arrived."""
        assert worker not in self.in_flight or self.in_flight[worker].version < block.version
        self.in_flight[worker] = block
        if self.delivers_at_once or is_first:
            self.deliver(worker)

    # Called by the test: what the workers do.

    def new_gradient(self) -> Gradient:
        versions = torch.zeros(1, dtype=torch.int64) if self.options.pull_rule(1) is not None else None
        num_buffers = self.engine.parameters.current.buffers.numel()
        gradient = Gradient(torch.zeros(SIZE), torch.zeros(num_buffers), self.released, versions=versions)
        self.gradients.append(gradient)
        return gradient

    def deliver(self, worker: int, is_late: bool = False) -> None:
        """A block arrives. Late: the gradient was finished, and is dropped instead of sent."""
        block = self.in_flight.pop(worker)
        rule = self.rules.get(worker)
        if rule is None:
            self.to_report[worker, "wasted" if is_late else "cancelled"] += 1
            self.last[worker] = self.computing[worker]
            self.computing[worker] = block._replace(at=self.now)
            return
        self.delivered[worker] = block
        self._start_at(worker, rule.arrived(self.now, 0, block.version))

    def push(self, worker: int, after: float = 1.0, loss: float | None = None, **about: float) -> None:
        """`about`: slowdown_s, compute_delay_s, pull_delay_s, push_delay_s of the report."""
        self.advance(after)
        granted = self.computing.pop(worker)
        self.last[worker] = granted
        gradient = self.new_gradient()
        noise = torch.sin(torch.arange(SIZE) * (worker + 1.3) + granted.iteration * 1.7)
        gradient.flat.copy_(granted.weights * 0.3 + noise)
        self.rule.had[gradient.flat.numpy().tobytes()] = granted.weights
        gradient.buffers.copy_(granted.buffers * 0.9 + noise[0] * 0.1)
        rule = self.rules.get(worker)
        report = PushReport(
            worker,
            granted.iteration,
            granted.version,
            granted.version if rule is None else rule.tag,
            cancelled=self.to_report.pop((worker, "cancelled"), 0),
            wasted=self.to_report.pop((worker, "wasted"), 0),
            loss=float(noise.abs().sum()) / (1 + granted.version) if loss is None else loss,
            started_at=granted.at,
            computed_at=self.now - about.get("push_delay_s", 0.0),
            pulled_at=granted.at - about.get("pull_delay_s", 0.0),
            **about,
        )
        if rule is not None:
            assert gradient.versions is not None
            gradient.versions[0] = granted.version
            self.next[worker] += 1
            self._start_at(worker, rule.pushed(self.now))
        is_stale = worker in self.in_flight and rule is None  # it crosses a newer block
        num_stale = len(self.stale_rows())
        self.carry_out(self.engine.pushed(self.now, report, gradient))
        assert len(self.stale_rows()) == num_stale + is_stale or self.engine._log is None
        if is_stale:
            self.computing[worker] = self.in_flight.pop(worker)._replace(iteration=granted.iteration + 1, at=self.now)
        self.check_workers()

    def advance(self, seconds: float) -> None:
        """Time passes; timers fire when they are due."""
        ends = self.now + seconds
        while self.engine.wakes_at <= ends and self.engine.ended_by is None:
            self.now = self.engine.wakes_at
            self.carry_out(self.engine.fire_timer(self.now))
            self.check_workers()
        self.now = ends

    def leave(self, worker: int) -> None:
        for by_worker in (self.computing, self.last, self.in_flight, self.delivered, self.rules, self.next):
            by_worker.pop(worker, None)
        for what in ("cancelled", "wasted"):
            self.to_report.pop((worker, what), None)
        num_changes = len(self.rows.of("waits_for"))
        commands = list(self.engine.left(self.now, worker, "killed"))
        changes = [command.because for command in commands if isinstance(command, WaitFor)]
        assert changes in ([], [f"worker {worker} left"])
        assert changes == [row.because for row in self.rows.of("waits_for")[num_changes:]]
        self.carry_out(commands)
        self.check_workers()

    def join(self, worker: int) -> None:
        self.carry_out(self.engine.joined(self.now, worker))
        self.check_workers()

    def _start_at(self, worker: int, when: float | None) -> None:
        """Start the worker if its rule allows it; without tau2 `when` is now or None, not yet."""
        assert when is None or (when <= self.now and worker not in self.computing)
        if when is None:
            return
        takes = bool(self.rules[worker].start())
        block = self.delivered.pop(worker, self.last.get(worker)) if takes else self.last[worker]
        assert block is not None
        self.computing[worker] = self.last[worker] = block._replace(iteration=self.next[worker], at=self.now)

    @property
    def absent(self) -> list[int]:
        return sorted(set(range(self.num_workers)) - self.engine.active)

    def step(self, kind: str, pick: int, ms: int) -> None:
        """One random step; an impossible one does nothing."""
        if self.engine.ended_by is not None:
            return
        running, active, in_flight = sorted(self.computing), sorted(self.engine.active), sorted(self.in_flight)
        if kind == "push" and running:
            worker = running[pick % len(running)]
            is_before_timer = self.engine.wakes_at > self.now + ms / 1000
            self.push(worker, ms / 1000) if is_before_timer else self.advance(ms / 1000)
        elif kind == "deliver" and in_flight:
            self.deliver(in_flight[pick % len(in_flight)], is_late=ms % 2 == 1)
            self.check_workers()
        elif kind == "time" and self.engine.wakes_at < math.inf:
            self.advance(self.engine.wakes_at - self.now)
        elif kind == "leave" and active and self.options.elastic:
            self.leave(active[pick % len(active)])
        elif kind == "join" and self.absent:
            self.join(self.absent[pick % len(self.absent)])

    def twin(self, state: tuple[dict[str, Tensor], dict]) -> "FakeRun":
        """The same workers with a new engine, resumed from this state."""
        again = FakeRun(self.options, self.num_workers, delivers_at_once=self.delivers_at_once, resume=state)
        again.now, again.rule.had = self.now, dict(self.rule.had)
        for name in ("computing", "last", "in_flight", "delivered", "rules", "next", "to_report"):
            setattr(again, name, copy.deepcopy(getattr(self, name)))
        return again

    # What must hold.

    def stale_rows(self) -> list[Row]:
        return self.rows.of("stale")

    def check_workers(self) -> None:
        engine = self.engine
        if engine.ended_by is None:
            if self.rules or not engine.active:
                assert engine.waiting == set()
            else:
                assert engine.waiting == engine.active - set(self.computing), "an active worker computes or waits"
            can_continue = self.computing or self.in_flight or engine.wakes_at < math.inf
            assert can_continue or not engine.active, "no worker can continue"
        for worker in range(self.num_workers):
            assert engine.expects(worker) == (worker in engine.active and worker not in engine.waiting)

    def check_gradients(self) -> None:
        """Each is applied, discarded or stale, and released exactly once, or still pending."""
        if not self.rules:  # else what was broadcast while a worker computed is kept, too
            kept = Counter(worker for worker, _, _ in self.engine.sent_versions())
            assert max(kept.values(), default=0) <= 2 + len(self.engine.pending_gradients())
        pushed = {row.push for row in self.rows.of("pushed")}
        settled = Counter(row.push for row in self.rows.of("applied", "discarded"))
        assert set(settled.values()) <= {1}
        assert set(settled) <= pushed
        assert len(set(map(id, self.released))) == len(self.released)
        num_stale = len(self.stale_rows())
        assert len(self.released) == len(settled) + num_stale
        pending = len(pushed) - len(settled)
        assert len(self.gradients) - len(self.released) == pending
        if self.options.name in APPLY_EACH_PUSH and self.engine.ended_by is None:
            assert pending == 0


kinds = ["push"] * 12 + ["deliver"] * 6 + ["time", "leave", "join"]
one_step = st.tuples(st.sampled_from(kinds), st.integers(0, 99), st.integers(0, 9))
steps = st.lists(one_step, min_size=40, max_size=60)  # short ones would show little
every_case = pytest.mark.parametrize("options", CASES, ids=repr)
