"""Plays the sockets of a live engine, and recounts from its log what it ought to have counted."""

from collections import Counter
from typing import NamedTuple

import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from syncline.course import Limits, Totals
from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.live.engine import Engine
from syncline.live.wire import Frame, Kind
from syncline.records.events import KINDS, Row
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import StrategyOptions
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
]
ELASTIC = [case for case in CASES if case.elastic]


class Rows(list[Row]):
    """A log in memory."""

    def append(self, *row) -> None:  # as EventLog
        super().append(Row(*row))

    def of(self, *kinds: str) -> list[Row]:
        return [row for row in self if row.kind in kinds]


class Granted(NamedTuple):
    """What a worker has while it computes."""

    version: int
    iteration: int
    weights: Tensor
    buffers: Tensor
    at: float


class Play:
    """An engine on tiny tensors, and workers that do as they are told.

    A gradient depends on the weights that its worker was granted, on the worker and on the iteration: whoever is given
    the wrong version, or makes the wrong iteration, ends at other weights.
    """

    def __init__(
        self,
        options: StrategyOptions,
        num_workers: int = 3,
        *,
        limits: Limits | None = None,
        number: int = 0,
        elastic: bool | None = None,
        resume: tuple[dict[str, Tensor], dict] | None = None,
    ) -> None:
        self.options, self.num_workers = options, num_workers
        self.rows = Rows()
        self.now = 0.0
        self.given: dict[int, Granted] = {}  # the workers that compute
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
                spare=1,
            ),
            BATCH,
            limits or Limits(),
            options.elastic if elastic is None else elastic,
            self,
            self.rows,  # type: ignore[arg-type]
        )
        if resume is not None:
            self.engine.load(*resume, self.new_gradient)
        else:
            self.engine.begin(0.0, resumed=False)

    # What the engine asks for.

    def grant(self, worker: int, version: int, iteration: int) -> None:
        assert worker not in self.given, "granted while it computes"
        assert worker in self.engine.here
        assert self.engine.ended_by is None, "granted after the end"
        assert version == self.engine.totals.updates
        assert iteration == self.engine.iteration(worker)
        current = self.engine.shard.current
        self.given[worker] = Granted(version, iteration, current.weights.clone(), current.buffers.clone(), self.now)

    def release(self, gradient: Gradient) -> None:
        self.released[id(gradient)] += 1

    # What the workers do.

    def new_gradient(self) -> Gradient:
        gradient = Gradient(torch.zeros(SIZE), torch.zeros(self.engine.shard.current.buffers.numel()))
        self.gradients.append(gradient)
        return gradient

    def push(self, worker: int, after: float = 1.0, loss: float | None = None, **about: float) -> None:
        """`about`: slow_s, delay_s, pull_delay_s, push_delay_s of the frame."""
        self.now += after
        granted = self.given.pop(worker)
        gradient = self.new_gradient()
        luck = torch.sin(torch.arange(SIZE) * (worker + 1.3) + granted.iteration * 1.7)
        gradient.flat.copy_(granted.weights * 0.3 + luck)
        gradient.buffers.copy_(granted.buffers * 0.9 + luck[0] * 0.1)
        frame = Frame(
            Kind.PUSH,
            worker,
            granted.iteration,
            granted.version,
            float(luck.sum()) if loss is None else loss,
            started_at=granted.at,
            computed_at=self.now - about.get("push_delay_s", 0.0),
            pulled_at=granted.at - about.get("pull_delay_s", 0.0),
            **about,
        )
        self.engine.pushed(self.now, frame, gradient)
        self.check_everybody_is_accounted_for()

    def leave(self, worker: int) -> None:
        self.given.pop(worker, None)
        self.engine.left(self.now, worker, "killed")
        self.check_everybody_is_accounted_for()

    def join(self, worker: int) -> None:
        self.engine.joined(self.now, worker)
        self.check_everybody_is_accounted_for()

    @property
    def absent(self) -> list[int]:
        return sorted(set(range(self.num_workers)) - self.engine.here)

    def step(self, kind: str, pick: int, ms: int) -> None:
        """One random step; nothing where it is impossible."""
        if self.engine.ended_by is not None:
            return
        running, here = sorted(self.given), sorted(self.engine.here)
        if kind == "push" and running:
            self.push(running[pick % len(running)], ms / 1000)
        elif kind == "leave" and here and self.options.elastic:
            self.leave(here[pick % len(here)])
        elif kind == "join" and self.absent:
            self.join(self.absent[pick % len(self.absent)])

    # What must hold.

    def check_everybody_is_accounted_for(self) -> None:
        engine = self.engine
        if engine.ended_by is None:
            assert engine.waiting == engine.here - set(self.given), "who is here computes or waits"
            assert self.given or not engine.here, "nobody can go on"
        for worker in range(self.num_workers):
            assert engine.expects(worker) == (worker in engine.here and worker not in engine.waiting)

    def check_gradients(self) -> None:
        """Each is applied and released exactly once, or still pending."""
        pushed = {row.push for row in self.rows.of("pushed")}
        applied = Counter(row.push for row in self.rows.of("applied"))
        assert set(applied.values()) <= {1}
        assert set(applied) <= pushed
        assert set(self.released.values()) <= {1}
        assert len(self.released) == len(applied)
        pending = len(pushed) - len(applied)
        assert len(self.gradients) - len(self.released) == pending
        if self.options.name != "bsp" and self.engine.ended_by is None:
            assert pending == 0


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


def recount(rows: Rows, num_workers: int) -> Totals:
    """The totals, from the log alone."""
    totals = Totals(num_workers)
    computed_at = {row.push: row.version for row in rows.of("pushed")}
    applied = rows.of("applied")
    totals.time_s = applied[-1].at if applied else 0.0
    totals.updates = len({row.version for row in applied})
    totals.samples = BATCH * len(applied)
    totals.staleness = dict(Counter(row.version - 1 - computed_at[row.push] for row in applied))
    totals.max_lead = max(leads(rows, num_workers), default=0)
    for row in applied:
        totals.used_by_worker[row.worker] += 1
    for row in rows.of("started"):
        totals.busy_s_by_worker[row.worker] += row.value
    for row in rows.of("computed"):
        totals.loss_sum += row.value
        totals.loss_count += 1
    return totals


def check_rows(rows: list[Row], number: int = 0) -> None:
    """The log is what the table of records/events.py says."""
    updates, pushes = 0, 0
    computed_at: dict[int, tuple[int, int]] = {}
    for row in rows:
        assert row.kind in KINDS
        of_worker = row.kind in ("started", "computed") or row.because in ("slow", "compute")
        assert row.shard == (-1 if of_worker else number), row
        assert (row.push >= 0) == (row.kind in ("pushed", "applied", "discarded")), row
        if row.kind == "pushed":
            assert row.push == pushes
            assert row.version <= updates
            computed_at[row.push] = row.worker, row.version
            pushes += 1
        elif row.kind == "applied":
            assert row.version in (updates, updates + 1), "versions go up by one"
            updates = row.version
            worker, version = computed_at[row.push]
            assert (worker, row.value) == (row.worker, updates - 1 - version)
        elif row.kind in ("granted", "held"):
            assert (row.version, row.value) == (updates, 0)
            assert row.because
        elif row.kind in ("joined", "left"):
            assert (row.version, row.value) == (-1, 0)
            assert bool(row.because) == (row.kind == "left")
        elif row.kind == "delayed":
            assert row.version == -1
            assert row.value > 0
            assert row.because in ("compute", "slow", "push", "pull")
    causal = [row.at for row in rows if row.kind not in ("started", "computed", "delayed")]
    assert causal == sorted(causal)


one_step = st.tuples(st.sampled_from(["push"] * 12 + ["leave", "join"]), st.integers(0, 99), st.integers(0, 9))
steps = st.lists(one_step, max_size=60)
every_case = pytest.mark.parametrize("options", CASES, ids=repr)
every_elastic_case = pytest.mark.parametrize("options", ELASTIC, ids=repr)
