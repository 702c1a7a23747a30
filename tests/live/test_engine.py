"""The shard's engine without sockets: played by hand and at random, against its own log, and against the simulator."""

import json
import math
from collections import Counter
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from syncline.config import DatasetConfig, LenetConfig, RunConfig, SgdConfig
from syncline.course import Limits, Totals
from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.live.engine import Engine, NotElastic
from syncline.live.wire import Frame, Kind
from syncline.records.events import KINDS
from syncline.simulation.engine import Simulation
from syncline.simulation.run import build_learning
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal

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


class Row(NamedTuple):
    """A line of the log; see records/events.py."""

    at: float
    kind: str
    worker: int
    shard: int
    push: int
    version: int
    value: float
    because: str


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


step = st.tuples(st.sampled_from(["push"] * 12 + ["leave", "join"]), st.integers(0, 99), st.integers(0, 9))
steps = st.lists(step, max_size=60)
every_case = pytest.mark.parametrize("options", CASES, ids=repr)
every_elastic_case = pytest.mark.parametrize("options", ELASTIC, ids=repr)


@every_case
@given(num_workers=st.integers(1, 4), history=steps)
def test_in_any_order_of_events_gradients_log_totals_and_lead_are_right(options, num_workers, history):
    play = Play(options, num_workers)
    for step in history:
        play.step(*step)
    play.check_gradients()
    check_rows(play.rows)
    assert play.engine.totals == recount(play.rows, num_workers)
    assert options.lead_bound is None or play.engine.totals.max_lead <= options.lead_bound
    iterations = Counter(row.worker for row in play.rows.of("pushed"))
    for worker in range(num_workers):
        assert play.engine.iteration(worker) == iterations[worker]
        made = [row.value for row in play.rows.of("pushed") if row.worker == worker]
        assert made == list(range(len(made))), "the worker's own count, from 0"


def copied(state: tuple[dict[str, Tensor], dict]) -> tuple[dict[str, Tensor], dict]:
    """As it comes back from a file."""
    tensors, plain = state
    return {name: tensor.clone() for name, tensor in tensors.items()}, json.loads(json.dumps(plain))


@every_case
@given(num_workers=st.integers(1, 4), before=steps, after=st.lists(step, min_size=12, max_size=40))
def test_an_engine_loaded_from_a_state_goes_on_exactly_as_the_one_that_never_stopped(
    options, num_workers, before, after
):
    play = Play(options, num_workers)
    for step in before:
        play.step(*step)
    pinned = play.engine.shard.pin()  # as the process does while the state is being written
    state = play.engine.state()
    at_the_time = copied(state)
    again = Play(options, num_workers, resume=copied(state))
    assert not again.rows
    again.now, again.given = play.now, dict(play.given)
    assert len(again.gradients) == len(play.gradients) - len(play.released), "those that are pending come back"
    num_rows = len(play.rows)
    for step in after:
        play.step(*step)
        again.step(*step)
    assert again.rows == play.rows[num_rows:]
    assert again.engine.totals == play.engine.totals
    assert again.engine.train_loss == play.engine.train_loss
    assert same(again.engine.state(), play.engine.state())
    assert set(again.released.values()) <= {1}
    assert same(state, at_the_time), "what was given to be written does not change meanwhile"
    play.engine.shard.unpin(pinned)


def same(one: tuple[dict[str, Tensor], dict], other: tuple[dict[str, Tensor], dict]) -> bool:
    """Equal in every bit."""
    (tensors, plain), (others, other_plain) = one, other
    return (
        json.dumps(plain) == json.dumps(other_plain)
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())
    )


def test_a_state_holds_the_momentum_the_held_workers_and_the_pending_pushes():
    """BSP: one update is made, then one worker of three has pushed for the next and waits."""
    play = Play(BspOptions())
    for worker in (0, 1, 2, 1):
        play.push(worker)
    tensors, plain = play.engine.state()
    assert set(tensors) == {"weights", "buffers", "optimizer.momentum", "pending.3.gradient", "pending.3.buffers"}
    assert plain["pending"] == [[3, 1, 1]]
    assert (plain["waiting"], plain["counts"]) == ([1], [1, 2, 1])


@every_case
@settings(max_examples=20)
@given(num_workers=st.integers(1, 4), history=steps)
def test_a_resumed_run_grants_all_but_the_held_at_the_current_version_and_says_so(options, num_workers, history):
    play = Play(options, num_workers)
    for step in history:
        play.step(*step)
    state = copied(play.engine.state())
    again = Play(options, num_workers, resume=state)
    again.now = play.now
    again.engine.begin(again.now, resumed=True)
    updates = play.engine.totals.updates
    running = sorted(play.given)
    assert again.rows == [Row(again.now, "granted", worker, 0, -1, updates, 0.0, "resumed") for worker in running]
    assert sorted(again.given) == running
    for worker in again.absent:
        again.join(worker)
    for step in history:
        again.step(*step)
    assert again.given or not again.engine.here


def test_the_rate_of_an_update_is_that_of_the_samples_and_updates_before_it():
    play, asked = Play(BspOptions(), num_workers=2), []
    play.engine.shard.rate = lambda samples, updates: asked.append((samples, updates)) or 0.1
    for worker in (0, 1, 1, 0, 0, 1):
        play.push(worker)
    assert asked == [(0, 0), (16, 1), (32, 2)]


def test_the_first_grants_of_a_fresh_run_are_not_in_the_log():
    play = Play(AspOptions())
    assert play.rows == []
    assert {worker: (given.version, given.iteration) for worker, given in play.given.items()} == {
        0: (0, 0),
        1: (0, 0),
        2: (0, 0),
    }


# The log, row by row.


def test_a_push_leaves_these_rows():
    play = Play(SspOptions(staleness=0), num_workers=2)
    play.push(1, after=2.0, loss=0.5)
    play.push(0, after=1.0, loss=0.25)
    assert play.rows == [
        (0.0, "started", 1, -1, -1, 0, 2.0, ""),
        (2.0, "computed", 1, -1, -1, 0, 0.5, ""),
        (2.0, "pushed", 1, 0, 0, 0, 0, ""),
        (2.0, "applied", 1, 0, 0, 1, 0, ""),
        (2.0, "held", 1, 0, -1, 1, 0.0, "lead 1 > s 0"),
        (0.0, "started", 0, -1, -1, 0, 3.0, ""),
        (3.0, "computed", 0, -1, -1, 0, 0.25, ""),
        (3.0, "pushed", 0, 0, 1, 0, 0, ""),
        (3.0, "applied", 0, 0, 1, 2, 1, ""),
        (3.0, "granted", 0, 0, -1, 2, 0.0, "lead 0 <= s 0"),
        (3.0, "granted", 1, 0, -1, 2, 0.0, "lead 0 <= s 0"),
    ]


def test_injected_delays_are_in_the_log_where_they_begin():
    play = Play(AspOptions(), num_workers=1)
    play.push(0)
    play.rows.clear()
    play.push(0, after=8.0, slow_s=2.0, delay_s=1.0, pull_delay_s=0.5, push_delay_s=3.0, loss=0.0)
    assert play.rows[:7] == [
        (0.5, "delayed", 0, 0, -1, -1, 0.5, "pull"),
        (1.0, "started", 0, -1, -1, 1, 5.0, ""),
        (3.0, "delayed", 0, -1, -1, -1, 2.0, "slow"),
        (5.0, "delayed", 0, -1, -1, -1, 1.0, "compute"),
        (6.0, "computed", 0, -1, -1, 1, 0.0, ""),
        (6.0, "delayed", 0, 0, -1, -1, 3.0, "push"),
        (9.0, "pushed", 0, 0, 1, 1, 1, ""),
    ]
    check_rows(Rows([Row(0.0, "pushed", 0, 0, 0, 0, 0, ""), Row(0.0, "applied", 0, 0, 0, 1, 0, ""), *play.rows]))


def test_what_the_worker_did_is_told_by_the_first_shard_alone():
    play = Play(AspOptions(), number=2)
    play.push(0, slow_s=0.25, delay_s=0.25, pull_delay_s=0.25, push_delay_s=0.25)
    play.push(1)
    assert [row.kind for row in play.rows] == ["delayed", "delayed", *["pushed", "applied", "granted"] * 2]
    assert [row.because for row in play.rows[:2]] == ["pull", "push"]
    check_rows(play.rows, number=2)
    play.check_gradients()


def test_without_a_log_the_run_is_the_same():
    logged, silent = Play(SspOptions(staleness=1)), Play(SspOptions(staleness=1))
    silent.engine._log = None
    for play in (logged, silent):
        for worker in (0, 0, 1, 2, 0, 2):
            play.push(worker)
    assert silent.rows == []
    assert same(logged.engine.state(), silent.engine.state())


# Who leaves and who comes.


@every_elastic_case
def test_the_others_go_on_when_a_worker_leaves(options):
    play = Play(options)
    play.push(0)
    play.leave(2)
    before = play.engine.totals.updates
    for _ in range(20):
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    assert play.engine.totals.updates == before + 20
    assert play.engine.here == {0, 1}
    assert not play.engine.expects(2)
    play.check_gradients()


def test_who_was_held_for_the_one_that_left_is_granted():
    play = Play(SspOptions(staleness=0), num_workers=3)
    play.push(0)
    play.push(1)
    assert set(play.given) == {2}
    play.leave(2)
    assert set(play.given) == {0, 1}
    assert [row[1:3] for row in play.rows[-3:]] == [("left", 2), ("granted", 0), ("granted", 1)]
    assert play.rows[-3].because == "killed"


def test_a_synchronous_run_cannot_go_on_without_a_worker():
    play = Play(BspOptions())
    play.push(1)
    rows, before = list(play.rows), copied(play.engine.state())
    with pytest.raises(NotElastic, match=r"worker 2 is gone \(no route\)"):
        play.engine.left(2.0, 2, "no route")
    assert play.rows == rows
    assert same(play.engine.state(), before)


@every_elastic_case
def test_everybody_may_leave_and_come_back(options):
    play = Play(options, num_workers=2)
    for worker in (0, 1, 0):
        if worker in play.given:
            play.push(worker)
    made = {worker: play.engine.iteration(worker) for worker in (0, 1)}
    play.leave(0)
    play.leave(1)
    assert not play.given
    play.join(1)
    play.join(0)
    assert {worker: given.iteration for worker, given in play.given.items()} == made
    for _ in range(10):
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    check_rows(play.rows)
    play.check_gradients()


@every_elastic_case
def test_a_worker_that_rejoins_goes_on_after_its_last_push_and_level_with_the_slowest(options):
    play = Play(options)
    play.push(2)
    play.leave(2)
    for _ in range(10):  # the other two go on together
        play.push(min(play.given, key=lambda worker: play.engine.iteration(worker)))
    lead, updates = play.engine.totals.max_lead, play.engine.totals.updates
    play.join(2)
    given = play.given[2]
    assert (given.version, given.iteration) == (updates, 1), "its gradient under way when it left is made again"
    assert [row[1:] for row in play.rows[-2:]] == [
        ("joined", 2, 0, -1, -1, 0.0, ""),
        ("granted", 2, 0, -1, updates, 0.0, "joined"),
    ]
    play.push(2)
    assert play.engine.totals.max_lead == lead == 1, "it is one ahead of the others, not four behind them"


def test_the_lead_of_one_that_left_does_not_count():
    play = Play(AspOptions(), num_workers=2)
    for _ in range(5):
        play.push(0)
    assert play.engine.totals.max_lead == 5
    play.leave(0)
    for _ in range(7):
        play.push(1)
    assert play.engine.totals.max_lead == 5, "alone nobody is ahead"


def test_an_iteration_that_only_another_shard_has_heard_of_is_not_made_again():
    play = Play(AspOptions(), num_workers=1)
    play.push(0)
    play.given[0] = play.given[0]._replace(iteration=5)
    play.push(0)
    assert play.given[0].iteration == 6


# How it ends.


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
@every_case
def test_a_loss_that_is_no_number_ends_the_run(options, loss):
    play = Play(options)
    for worker in (0, 1, 2):
        play.push(worker)
    before, updates = play.engine.shard.current.weights.clone(), play.engine.totals.updates
    play.push(1, after=2.0, loss=loss)
    assert play.engine.ended_by == "diverged"
    assert 1 not in play.given
    assert play.rows[-1].kind == "pushed", "the strategy is not asked any more"
    assert play.engine.totals.updates == updates
    assert play.engine.totals.time_s == play.now == 5.0
    assert torch.equal(play.engine.shard.current.weights, before)


@every_case
@given(num_workers=st.integers(1, 4), max_updates=st.integers(1, 12), history=steps)
def test_the_run_ends_at_its_last_update_and_nobody_is_granted_after(options, num_workers, max_updates, history):
    play = Play(options, num_workers, limits=Limits(updates=max_updates))
    for step in history:
        play.step(*step)  # `grant` checks that the end has not come
    assert play.engine.totals.updates <= max_updates
    assert (play.engine.ended_by == "max_updates") == (play.engine.totals.updates == max_updates)
    if play.engine.ended_by:
        assert play.rows[-1].kind == "applied"
    play.check_gradients()


@pytest.mark.parametrize(("options", "pushes"), [(AspOptions(), 5), (SspOptions(), 5), (BspOptions(), 6)], ids=repr)
def test_the_run_ends_with_the_first_update_that_completes_its_samples(options, pushes):
    """33 samples are five gradients of 8, or two updates of three such gradients."""
    play = Play(options, limits=Limits(samples=33))
    made = 0
    while play.engine.ended_by is None:
        play.push(made % 3)
        made += 1
    assert (play.engine.ended_by, made, play.engine.totals.samples) == ("epochs", pushes, 8 * pushes)
    play.check_gradients()


def test_of_two_limits_the_first_that_is_reached_ends_the_run():
    for limits, why in ((Limits(samples=16, updates=3), "epochs"), (Limits(samples=100, updates=3), "max_updates")):
        play = Play(AspOptions(), limits=limits)
        while play.engine.ended_by is None:
            play.push(0)
        assert play.engine.ended_by == why


# Against the simulator.


class Replay:
    """Live engines, one a shard, fed with the pushes of a simulated run; gradients are computed anew."""

    def __init__(self, config: RunConfig) -> None:
        self.learning = build_learning(config)
        self.rows = Rows()
        self.granted: dict[tuple[int, int], tuple[int, int]] = {}  # (worker, shard) -> (version, iteration)
        self.computed: dict[tuple[int, int], tuple[float, Gradient]] = {}  # (worker, iteration)
        self.engines = [
            Engine(
                number,
                config.strategy.start(config.cluster.workers),
                shard,
                config.batch_size,
                Limits(),  # a simulated shard goes on until the last of them is done
                config.strategy.elastic,
                _Post(self, number),
                self.rows,  # type: ignore[arg-type]
            )
            for number, shard in enumerate(self.learning.shards)
        ]
        for engine in self.engines:
            engine.begin(0.0, resumed=False)

    def push(self, row: Row) -> None:
        version, iteration = self.granted.pop((row.worker, row.shard))
        assert (version, iteration) == (row.version, row.value), "granted what the simulator granted"
        key = row.worker, iteration
        if key not in self.computed:
            self.computed[key] = self.learning.workers.compute(row.worker)
        loss, gradient = self.computed[key]
        frame = Frame(Kind.PUSH, row.worker, iteration, version, loss, started_at=row.at, computed_at=row.at)
        self.engines[row.shard].pushed(row.at, frame, gradient)


class _Post:
    def __init__(self, replay: Replay, shard: int) -> None:
        self._replay, self._shard = replay, shard

    def grant(self, worker: int, version: int, iteration: int) -> None:
        self._replay.granted[worker, self._shard] = version, iteration
        self._replay.learning.workers.receive(worker, self._shard)

    def release(self, gradient: Gradient) -> None:
        self._replay.learning.workers.release(gradient)


class NobodyLooks:
    def updated(self, simulation: Simulation) -> int:
        return 1 << 62


def with_own_numbers(rows: list[Row]) -> list[Row]:
    """The simulator numbers the pushes of all shards together, a live shard its own."""
    numbers = {-1: -1}
    seen = Counter[int]()
    for row in rows:
        if row.kind == "pushed":
            numbers[row.push] = seen[row.shard]
            seen[row.shard] += 1
    return [row._replace(push=numbers[row.push]) for row in rows]


@pytest.mark.parametrize(
    ("options", "num_shards"),
    [(BspOptions(), 1), (BspOptions(), 3), (SspOptions(staleness=1), 1), (SspOptions(staleness=1), 2)]
    + [(DsspOptions(s_lower=1, r_max=3, bound=bound), 1) for bound in ("paper", "hard", "catchup")],
    ids=str,
)
def test_fed_with_the_pushes_of_a_simulated_run_it_answers_the_same_and_ends_at_the_same_bits(options, num_shards):
    torch.set_num_threads(1)
    config = RunConfig(
        model=LenetConfig(),
        dataset=DatasetConfig(),
        optimizer=SgdConfig(lr=0.02, momentum=0.9, weight_decay=1e-3),
        strategy=options,
        cluster=ClusterConfig(workers=3, shards=num_shards, gradient_s=[1.0, 1.7, 2.9], jitter=Normal(1.0, 0.2)),
        scenario=ScenarioConfig(push_delay=Exponential(0.3), pull_delay=Exponential(0.3)),
        batch_size=16,
        max_updates=40,
        device="cpu",
    )
    learning, rows = build_learning(config), Rows()
    simulation = Simulation(
        strategies=[options.start(3) for _ in learning.shards],
        cluster=Cluster(config.cluster, config.scenario, config.seed),
        block_bytes=[0] * num_shards,
        batch_size=16,
        limits=Limits.of(config, learning.num_train),
        observer=NobodyLooks(),
        learning=(learning.shards, learning.workers),
        log=rows.append,
    )
    assert simulation.run() == "max_updates"
    told = with_own_numbers(rows.of("pushed", "applied", "granted", "held"))
    again = Replay(config)
    for row in told:
        if row.kind == "pushed":
            again.push(row)
    assert again.rows.of("pushed", "applied", "granted", "held") == told
    ours, theirs = [engine.totals for engine in again.engines], simulation.totals
    assert min(totals.updates for totals in ours) == theirs.updates == 40
    assert min(totals.samples for totals in ours) == theirs.samples
    assert sum((Counter(totals.staleness) for totals in ours), Counter()) == theirs.staleness
    assert (ours[0].max_lead, ours[0].used_by_worker) == (theirs.max_lead, theirs.used_by_worker)
    for one, other in zip(again.learning.shards, learning.shards, strict=True):
        assert torch.equal(one.current.weights, other.current.weights)
