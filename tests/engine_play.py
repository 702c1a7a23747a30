"""Plays the sockets of a live engine, and recounts from its log what it ought to have counted."""

import copy
import math
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.live.engine import Engine
from syncline.progress import Limits, Totals
from syncline.records.events import KINDS, Row
from syncline.server.report import PushReport
from syncline.strategies.adasync import VARIANTS, AdasyncOptions
from syncline.strategies.asp import AspOptions
from syncline.strategies.backup import BackupOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import PullRule, StrategyOptions
from syncline.strategies.psp import PspOptions
from syncline.strategies.ssp import SspOptions

BATCH = 8
SIZE, BUFFERS = 5, 2

CASES: list[StrategyOptions] = [
    AspOptions(),
    BspOptions(),
    SspOptions(staleness=0),
    SspOptions(staleness=2),
    DsspOptions(s_lower=1, r_max=2, bound="hard"),
    DsspOptions(s_lower=0, r_max=3, bound="paper"),
    BackupOptions(backups=1),
    BackupOptions(backups=2, aggregate="sum"),
    KSyncOptions(k=2),
    KSyncOptions(k=3),
    KBatchSyncOptions(k=3),
    KAsyncOptions(k=2),
    KBatchAsyncOptions(k=3),
    *(AdasyncOptions(variant=variant, k=1, interval=0.03) for variant in VARIANTS),
    PspOptions(),
    PspOptions(c=1),
    PspOptions(c=2, tau1=0.006),
    PspOptions(c=2, tag="newest"),
    PspOptions(c=1, tau1=0.006, tag="newest"),
]
ELASTIC = [case for case in CASES if case.elastic]
ONE_BY_ONE = ("asp", "ssp", "dssp")  # every push is an update at once


class Rows(list[Row]):
    """A log in memory."""

    def append(self, *row) -> None:  # as EventLog
        super().append(Row(*row))

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self if row.kind in kinds]


class Granted(NamedTuple):
    """What a worker has while it computes, or a block on its way to it."""

    version: int
    iteration: int
    weights: Tensor
    buffers: Tensor
    at: float


class Play:
    """An engine on tiny tensors, and workers that do as they are told.

    A gradient depends on the weights that its worker was granted, on the worker and on the iteration: whoever is given
    the wrong version, or makes the wrong iteration, ends at other weights.

    Args:
        options: raised to as many workers as they need, if `num_workers` are too few.
        prompt: a block that is sent to a busy worker arrives at once; else at a step `hear`, or behind its next push.
        resume: a state of an engine to go on from; then `begin` is left to the test.
    """

    def __init__(
        self,
        options: StrategyOptions,
        num_workers: int = 3,
        *,
        limits: Limits | None = None,
        number: int = 0,
        elastic: bool | None = None,
        prompt: bool = True,
        resume: tuple[dict[str, Tensor], dict] | None = None,
    ) -> None:
        self.options, self.num_workers, self.prompt = options, enough(options, num_workers), prompt
        num_workers = self.num_workers
        self.rows = Rows()
        self.warnings: list[str] = []
        self.now = 0.0
        self.given: dict[int, Granted] = {}  # the workers that compute
        self.had: dict[int, Granted] = {}  # what each computed at last
        self.coming: dict[int, Granted] = {}  # the newest block on its way to a worker that was busy when it was sent
        self.landed: dict[int, Granted] = {}  # the newest block that a worker's rule has heard of
        self.rules: dict[int, PullRule] = {}
        self.next: dict[int, int] = {}  # iteration of a worker with a rule
        self.told: Counter[tuple[int, str]] = Counter()  # (worker, cancelled | wasted) -> to be told with the next push
        self.released: Counter[int] = Counter()  # by the gradient's identity
        self.gradients: list[Gradient] = []  # kept, so that identities stay apart
        num_buffers = BUFFERS if number == 0 else 0
        self.engine = Engine(
            number,
            options.start(num_workers),
            Shard(
                block=slice(0, SIZE),
                current=Version(torch.linspace(-1, 1, SIZE), torch.ones(num_buffers)),
                optimizer=Sgd(momentum=0.9, weight_decay=1e-2),
                rate=lambda samples, updates: 0.1 / (1 + samples / 1000 + updates / 100),
                num_workers=num_workers,
                extra_versions=1,
            ),
            BATCH,
            limits or Limits(),
            options.elastic if elastic is None else elastic,
            options.pull_rule(1) is not None,
            self,
            self.rows,  # type: ignore[arg-type]
            options.first_count,
        )
        if resume is not None:
            self.engine.load(*resume, self.new_gradient)
        else:
            self.engine.begin(0.0, resumed=False)

    # What the engine asks for.

    def grant(self, worker: int, version: int, iteration: int, is_busy: bool) -> None:
        assert worker in self.engine.active
        assert self.engine.ended_by is None, "granted after the end"
        assert version == self.engine.totals.updates
        assert iteration == self.engine.iteration(worker)
        current = self.engine.shard.current
        block = Granted(version, iteration, current.weights.clone(), current.buffers.clone(), self.now)
        rule = self.options.pull_rule(1)
        if rule is not None:
            if not is_busy:  # a new process, which has nothing yet
                assert worker not in self.rules
                self.rules[worker], self.next[worker] = rule, iteration
            self._sent(worker, block, is_first=not is_busy)
        elif is_busy:
            assert worker in self.given, "said to compute, but it waits"
            assert self.options.interrupts
            assert iteration == self.given[worker].iteration
            self._sent(worker, block)
        else:
            assert worker not in self.given, "granted while it computes"
            self.given[worker] = block

    def repeat(self, worker: int, version: int, iteration: int) -> None:
        assert worker not in self.given, "told to repeat while it computes"
        had = self.had[worker]
        assert (version, iteration) == (had.version, had.iteration + 1)
        assert version == self.engine.totals.updates
        self.given[worker] = had._replace(iteration=iteration, at=self.now)

    def warn(self, words: str) -> None:
        self.warnings.append(words)

    def release(self, gradient: Gradient) -> None:
        self.released[id(gradient)] += 1

    def _sent(self, worker: int, block: Granted, is_first: bool = False) -> None:
        """A block is on its way; it takes the place of an older one that is not there yet."""
        assert worker not in self.coming or self.coming[worker].version < block.version
        self.coming[worker] = block
        if self.prompt or is_first:
            self.hear(worker)

    # What the workers do.

    def new_gradient(self) -> Gradient:
        versions = torch.zeros(1, dtype=torch.int64) if self.options.pull_rule(1) is not None else None
        num_buffers = self.engine.shard.current.buffers.numel()
        gradient = Gradient(torch.zeros(SIZE), torch.zeros(num_buffers), versions=versions)
        self.gradients.append(gradient)
        return gradient

    def hear(self, worker: int, is_late: bool = False) -> None:
        """A block that is on its way arrives. Late: when the gradient was finished, and is not sent for that."""
        block = self.coming.pop(worker)
        rule = self.rules.get(worker)
        if rule is None:
            self.told[worker, "wasted" if is_late else "cancelled"] += 1
            self.had[worker] = self.given[worker]
            self.given[worker] = block._replace(at=self.now)
            return
        self.landed[worker] = block
        self._consider(worker, rule.arrived(self.now, 0, block.version))

    def push(self, worker: int, after: float = 1.0, loss: float | None = None, **about: float) -> None:
        """`about`: slowdown_s, compute_delay_s, pull_delay_s, push_delay_s of the report."""
        self.go_on(after)
        granted = self.given.pop(worker)
        self.had[worker] = granted
        gradient = self.new_gradient()
        luck = torch.sin(torch.arange(SIZE) * (worker + 1.3) + granted.iteration * 1.7)
        gradient.flat.copy_(granted.weights * 0.3 + luck)
        gradient.buffers.copy_(granted.buffers * 0.9 + luck[0] * 0.1)
        rule = self.rules.get(worker)
        report = PushReport(
            worker,
            granted.iteration,
            granted.version,
            granted.version if rule is None else rule.tag,
            cancelled=self.told.pop((worker, "cancelled"), 0),
            wasted=self.told.pop((worker, "wasted"), 0),
            loss=float(luck.abs().sum()) / (1 + granted.version) if loss is None else loss,
            started_at=granted.at,
            computed_at=self.now - about.get("push_delay_s", 0.0),
            pulled_at=granted.at - about.get("pull_delay_s", 0.0),
            **about,
        )
        if rule is not None:
            assert gradient.versions is not None
            gradient.versions[0] = granted.version
            self.next[worker] += 1
            self._consider(worker, rule.pushed(self.now))
        is_void = worker in self.coming and rule is None  # it meets a newer block on its way
        voids = len(self.void_rows())
        self.engine.pushed(self.now, report, gradient)
        assert len(self.void_rows()) == voids + is_void or self.engine._log is None
        if is_void:
            self.given[worker] = self.coming.pop(worker)._replace(iteration=granted.iteration + 1, at=self.now)
        self.check_everybody_is_accounted_for()

    def go_on(self, seconds: float) -> None:
        """Time passes; the strategy is told when it asked to be."""
        ends = self.now + seconds
        while self.engine.wakes_at <= ends and self.engine.ended_by is None:
            self.now = self.engine.wakes_at
            self.engine.timer(self.now)
            self.check_everybody_is_accounted_for()
        self.now = ends

    def leave(self, worker: int) -> None:
        for place in (self.given, self.had, self.coming, self.landed, self.rules, self.next):
            place.pop(worker, None)
        for what in ("cancelled", "wasted"):
            self.told.pop((worker, what), None)
        num_warnings, num_rows = len(self.warnings), len(self.rows)
        self.engine.left(self.now, worker, "killed")
        news = [row for row in self.rows[num_rows:] if row.kind == "waits_for"]
        assert self.warnings[num_warnings:] == [
            f"an update waits for {row.value} gradients from now on: worker {worker} left" for row in news
        ]
        assert len(news) <= 1
        self.check_everybody_is_accounted_for()

    def join(self, worker: int) -> None:
        num_warnings = len(self.warnings)
        self.engine.joined(self.now, worker)
        assert len(self.warnings) == num_warnings
        self.check_everybody_is_accounted_for()

    def _consider(self, worker: int, when: float | None) -> None:
        """The worker's rule has said when it may go on; without tau2 that is now or not yet."""
        assert when is None or (when <= self.now and worker not in self.given)
        if when is None:
            return
        takes = bool(self.rules[worker].start())
        block = self.landed.pop(worker, self.had.get(worker)) if takes else self.had[worker]
        assert block is not None
        self.given[worker] = self.had[worker] = block._replace(iteration=self.next[worker], at=self.now)

    @property
    def absent(self) -> list[int]:
        return sorted(set(range(self.num_workers)) - self.engine.active)

    def step(self, kind: str, pick: int, ms: int) -> None:
        """One random step; nothing where it is impossible."""
        if self.engine.ended_by is not None:
            return
        running, here, coming = sorted(self.given), sorted(self.engine.active), sorted(self.coming)
        if kind == "push" and running:
            worker = running[pick % len(running)]
            self.push(worker, ms / 1000) if self.engine.wakes_at > self.now + ms / 1000 else self.go_on(ms / 1000)
        elif kind == "hear" and coming:
            self.hear(coming[pick % len(coming)], is_late=ms % 2 == 1)
            self.check_everybody_is_accounted_for()
        elif kind == "time" and self.engine.wakes_at < math.inf:
            self.go_on(self.engine.wakes_at - self.now)
        elif kind == "leave" and here and self.options.elastic:
            self.leave(here[pick % len(here)])
        elif kind == "join" and self.absent:
            self.join(self.absent[pick % len(self.absent)])

    def twin(self, state: tuple[dict[str, Tensor], dict]) -> "Play":
        """The same workers, before an engine that goes on from this state of the one they had."""
        again = Play(self.options, self.num_workers, prompt=self.prompt, resume=state)
        again.now = self.now
        for name in ("given", "had", "coming", "landed", "rules", "next", "told"):
            setattr(again, name, copy.deepcopy(getattr(self, name)))
        return again

    # What must hold.

    def void_rows(self) -> list[Row]:
        return [row for row in self.rows.of("dropped") if row.because == "on its way"]

    def check_everybody_is_accounted_for(self) -> None:
        engine = self.engine
        if engine.ended_by is None:
            if self.rules or not engine.active:
                assert engine.waiting == set()
            else:
                assert engine.waiting == engine.active - set(self.given), "who is here computes or waits"
            can_go_on = self.given or self.coming or engine.wakes_at < math.inf
            assert can_go_on or not engine.active, "nobody can go on"
        for worker in range(self.num_workers):
            assert engine.expects(worker) == (worker in engine.active and worker not in engine.waiting)

    def check_gradients(self) -> None:
        """Each is applied, discarded or void, and released exactly once, or still pending."""
        pushed = {row.push for row in self.rows.of("pushed")}
        settled = Counter(row.push for row in self.rows.of("applied", "discarded"))
        assert set(settled.values()) <= {1}
        assert set(settled) <= pushed
        assert set(self.released.values()) <= {1}
        num_void = len(self.void_rows())
        assert len(self.released) == len(settled) + num_void
        pending = len(pushed) - len(settled)
        assert len(self.gradients) - len(self.released) == pending
        if self.options.name in ONE_BY_ONE and self.engine.ended_by is None:
            assert pending == 0


def enough(options: StrategyOptions, num_workers: int) -> int:
    """So many workers, or as many as the options need."""
    while True:
        try:
            options.check_cluster(num_workers, 1)
        except ValueError:
            num_workers += 1
        else:
            return num_workers


def leads(rows: list[Row], num_workers: int) -> list[int]:
    """After each push, by how many the furthest worker that is here is ahead of the slowest."""
    levels = dict.fromkeys(range(num_workers), 0)
    found = []
    for row in rows:
        if row.kind == "pushed":
            levels[row.worker] += 1
            found.append(max(levels.values()) - min(levels.values()))
        elif row.kind == "left":
            del levels[row.worker]
        elif row.kind == "joined":
            levels[row.worker] = min(levels.values(), default=0)
    return found


def computed_versions(rows: list[Row], number: int = 0) -> dict[int, int]:
    """push -> the version of this shard's block that it was computed at."""
    versions: dict[int, int] = {}
    chosen: dict[tuple[int, float], int] = {}  # (worker, iteration), where a pull rule chose
    for row in rows:
        if row.kind == "pulled":
            chosen[row.worker, row.value] = int(row.because.split()[number])
        elif row.kind == "pushed":
            versions[row.push] = chosen.get((row.worker, row.value), row.version)
    return versions


def recount(rows: Rows, num_workers: int, first_count: int | None = None) -> Totals:
    """The totals, from the log alone."""
    totals = Totals(num_workers)
    totals.begin(first_count)
    computed_at = computed_versions(rows)
    applied = rows.of("applied")
    totals.time_s = applied[-1].at if applied else 0.0
    totals.updates = len({row.version for row in applied})
    totals.samples = BATCH * len(applied)
    found = Counter(row.version - 1 - computed_at[row.push] for row in applied)
    totals.staleness = [found[stale] for stale in range(max(found, default=-1) + 1)]
    totals.max_lead = max(leads(rows, num_workers), default=0)
    for row in applied:
        totals.used_by_worker[row.worker] += 1
    for row in rows.of("discarded"):
        totals.discarded_by_worker[row.worker] += 1
    for row in rows.of("dropped"):
        totals.interrupted_by_worker[row.worker] += 1
        totals.wasted_by_worker[row.worker] += row.because != "its delay was broken off"
    for row in rows.of("waits_for"):
        totals.waits_for.append((row.at, row.version, int(row.value)))
    for row in rows.of("started"):
        totals.busy_s_by_worker[row.worker] += row.value
    for row, after in pairwise(rows):
        if row.kind == "computed" and after.because != "on its way":
            totals.loss_sum += row.value
            totals.loss_count += 1
    return totals


def check_rows(rows: list[Row], number: int = 0) -> None:
    """The log is what the table of records/events.py says."""
    updates, pushes = 0, 0
    computed_at = computed_versions(rows, number)
    owners: dict[int, int] = {}
    for row in rows:
        assert row.kind in KINDS
        of_worker = row.kind in ("started", "computed", "dropped") or row.because in ("slow", "compute")
        assert row.shard == (-1 if of_worker else number), row
        assert (row.push >= 0) == (row.kind in ("pushed", "applied", "discarded")), row
        assert (row.worker >= 0) == (row.kind not in ("timer", "waits_for")), row
        if row.kind == "pushed":
            assert row.push == pushes
            assert computed_at[row.push] <= updates
            owners[row.push] = row.worker
            pushes += 1
        elif row.kind == "applied":
            assert row.version in (updates, updates + 1), "versions go up by one"
            updates = row.version
            assert (row.worker, row.value) == (owners[row.push], updates - 1 - computed_at[row.push])
        elif row.kind == "discarded":
            assert (row.worker, row.version, row.value) == (owners[row.push], computed_at[row.push], 0)
            assert row.because
        elif row.kind in ("granted", "held", "repeated", "interrupted"):
            assert (row.version, row.value) == (updates, 0)
            assert row.because
        elif row.kind == "waits_for":
            assert row.version == updates
            assert row.value >= 1
            assert row.because
        elif row.kind == "timer":
            assert (row.version, row.value, row.because) == (updates, 0, "")
        elif row.kind == "dropped":
            assert row.because in ("its delay was broken off", "computed to the end", "on its way")
        elif row.kind in ("joined", "left"):
            assert (row.version, row.value) == (-1, 0)
            assert bool(row.because) == (row.kind == "left")
        elif row.kind == "delayed":
            assert row.version == -1
            assert row.value > 0
            assert row.because in ("compute", "slow", "push", "pull")
    causal = [row.at for row in rows if row.because == "on its way" or row.kind not in TOLD_LATER]
    assert causal == sorted(causal)


TOLD_LATER = ("started", "computed", "delayed", "dropped", "pulled")  # with the push, of a time before it

kinds = ["push"] * 12 + ["hear"] * 6 + ["time", "leave", "join"]
one_step = st.tuples(st.sampled_from(kinds), st.integers(0, 99), st.integers(0, 9))
steps = st.lists(one_step, min_size=40, max_size=60)  # short ones would see little
every_case = pytest.mark.parametrize("options", CASES, ids=repr)
every_elastic_case = pytest.mark.parametrize("options", ELASTIC, ids=repr)
