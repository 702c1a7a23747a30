"""What a shard makes of its strategy's commands, on tiny tensors, whoever drives it.

tests/live/test_engine.py plays whole runs of every strategy through the same interpreter.
"""

import math
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from engine_play import Rows

from syncline.learning.optimizer import Sgd
from syncline.learning.server import Gradient, Shard, Version
from syncline.progress import Limits, Totals, of_all_shards
from syncline.server.interpreter import STALE, ShardInterpreter
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    Interrupt,
    PushArrived,
    Repeat,
    TimerFired,
    WaitFor,
    WakeAt,
    WorkerLeft,
)

NUM_WORKERS, BATCH = 3, 8


class Script:
    """A strategy that says what the test says, event by event."""

    def __init__(self, *answers: list[Command]) -> None:
        self.answers, self.events = list(answers), list[Event]()

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        return self.answers.pop(0) if self.answers else []

    def state_dict(self) -> dict[str, Any]:
        return {"left": len(self.answers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loaded = state


class Driver:
    """Writes down what it is asked, with the version at that moment."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.released: list[Gradient] = []
        self.shard: ShardInterpreter

    def grant(self, shard: int, worker: int) -> None:
        self.asked.append(("grant", worker, self.shard.version))

    def repeat(self, shard: int, worker: int) -> None:
        self.asked.append(("repeat", worker))

    def interrupt(self, shard: int, worker: int) -> None:
        self.asked.append(("interrupt", worker))

    def wake_at(self, shard: int, at: float) -> None:
        self.asked.append(("wake", at))

    def release(self, gradient: Gradient) -> None:
        self.released.append(gradient)


class Played:
    """A shard whose weights are one number, from 0, with a rate of 1: each update subtracts the mean gradient."""

    def __init__(self, *answers: list[Command], limits: Limits | None = None, number: int = 0) -> None:
        self.strategy, self.driver, self.rows = Script(*answers), Driver(), Rows()
        self.parameters = Shard(
            block=slice(0, 1),
            current=Version(torch.zeros(1), torch.zeros(0)),
            optimizer=Sgd(momentum=0.0, weight_decay=0.0),
            rate=lambda samples, updates: 1.0,
            num_workers=NUM_WORKERS,
        )
        self.shard = ShardInterpreter(
            number,
            self.strategy,
            num_workers=NUM_WORKERS,
            batch_size=BATCH,
            limits=limits or Limits(),
            driver=self.driver,
            parameters=self.parameters,
            log=self.rows.append,
        )
        self.driver.shard = self.shard
        self.num_pushes = 0

    def push(
        self, worker: int, *, version: int = 0, loss: float = 1.0, value: float = 1.0, at: float = 1.0
    ) -> Gradient:
        gradient = Gradient(torch.tensor([value]), torch.zeros(0))
        self.shard.push(at, self.num_pushes, worker, version, version, 0, loss, gradient)
        self.num_pushes += 1
        return gradient

    @property
    def weight(self) -> float:
        return self.parameters.current.weights.item()


def test_a_grant_sends_the_version_of_that_moment_not_of_the_end_of_the_answer() -> None:
    played = Played([Hold(0)], [Grant(0), Apply((0,)), Grant(1), Apply((1,)), Grant(2)])
    played.push(0)
    played.push(1)
    assert played.driver.asked == [("grant", 0, 0), ("grant", 1, 1), ("grant", 2, 2)]


def test_an_update_is_one_step_on_the_mean_and_counts_what_it_used() -> None:
    played = Played([], [Apply((0, 1), because="both")])
    gradients = [played.push(0, value=1.0), played.push(1, value=4.0, at=2.0)]
    totals = played.shard.totals
    assert played.weight == -2.5
    assert (totals.updates, totals.samples, totals.time_s) == (1, 2 * BATCH, 2.0)
    assert (totals.used_by_worker, totals.staleness) == ([1, 1, 0], [2])
    assert played.driver.released == gradients
    assert [(row.worker, row.push, row.version, row.because) for row in played.rows.of("applied")] == [
        (0, 0, 1, "both"),
        (1, 1, 1, "both"),
    ]


def test_staleness_is_the_versions_between_computing_and_use() -> None:
    played = Played([Apply((0,))], [Apply((1,))], [Apply((2,))])
    for version in (0, 0, 2):
        played.push(0, version=version)
    assert played.shard.totals.staleness == [2, 1]


def test_nothing_is_executed_after_the_update_that_reaches_a_limit() -> None:
    for limits, reason in ((Limits(updates=1), "max_updates"), (Limits(samples=BATCH), "epochs")):
        played = Played([], [Apply((0,)), Grant(0), Apply((1,))], limits=limits)
        played.push(0)
        played.push(1)
        assert played.shard.ended_by == reason
        assert played.driver.asked == []
        assert played.shard.version == 1


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_before_the_strategy_sees_it(loss: float) -> None:
    played = Played()
    played.push(0, loss=loss, at=3.0)
    assert (played.shard.ended_by, played.shard.totals.time_s) == ("diverged", 3.0)
    assert played.strategy.events == []


def test_a_discarded_push_is_forgotten_and_its_gradient_released() -> None:
    played = Played([Discard(0, "late")])
    gradient = played.push(2)
    assert played.shard.totals.discarded_by_worker == [0, 0, 1]
    assert played.driver.released == [gradient]
    assert played.shard.pending_gradients() == {}
    assert played.weight == 0.0


def test_after_an_interrupt_pushes_computed_before_it_are_rejected() -> None:
    played = Played([Apply((0,)), Interrupt(1), Grant(1)])
    assert not played.shard.is_stale(1, 0)
    played.push(0)
    assert [played.shard.is_stale(1, version) for version in (0, 1)] == [True, False]
    assert not played.shard.is_stale(2, 0), "others are not concerned"
    gradient = Gradient(torch.zeros(1), torch.zeros(0))
    played.shard.reject(2.0, 1, 0, gradient)
    assert played.shard.totals.interrupted_by_worker == played.shard.totals.wasted_by_worker == [0, 1, 0]
    assert played.driver.released[-1] is gradient
    assert [row.because for row in played.rows.of("dropped")] == [STALE]
    assert len(played.strategy.events) == 1


def test_a_timer_is_never_in_the_past_and_is_forgotten_when_it_fires() -> None:
    played = Played([WakeAt(0.5), WakeAt(7.0)], [Repeat(0)])
    played.push(0, at=1.0)
    assert played.driver.asked == [("wake", 1.0), ("wake", 7.0)]
    assert played.shard.wakes_at == 7.0
    played.shard.fire_timer(7.0)
    assert played.strategy.events[-1] == TimerFired(7.0)
    assert (played.shard.wakes_at, played.driver.asked[-1]) == (math.inf, ("repeat", 0))


def test_the_lead_is_counted_in_pushes_and_who_joins_is_level_with_the_slowest() -> None:
    played = Played()
    for worker in (0, 0, 1, 2, 0, 0):
        played.push(worker)
    assert played.shard.totals.max_lead == 3
    played.shard.leave(2.0, 1, "gone")
    assert played.strategy.events[-1] == WorkerLeft(2.0, 1)
    assert played.shard.active == [0, 2]
    played.push(2)
    played.push(2)
    played.shard.join(3.0, 1)
    played.push(0)  # its fifth; the others have three each
    assert played.shard.totals.max_lead == 3
    played.push(0)
    played.push(0)
    assert played.shard.totals.max_lead == 4


def test_leaving_returns_the_commands_that_were_executed() -> None:
    played = Played([WaitFor(2, "one left")])
    assert played.shard.leave(4.0, 0, "gone") == [WaitFor(2, "one left")]
    assert played.shard.totals.waits_for == [(4.0, 0, 2)]
    assert [(row.kind, row.value) for row in played.rows] == [("left", 0.0), ("waits_for", 2)]


def test_a_state_is_taken_up_by_another_one() -> None:
    played, again = Played([], [Interrupt(2)], []), Played()
    gradient = played.push(0)
    played.push(1)
    played.shard.leave(2.0, 1, "gone")
    again.shard.load_state_dict(played.shard.state_dict(), played.shard.pending_gradients())
    assert again.shard.state_dict()["pending"] == [(0, 0, 0), (1, 1, 0)]
    assert again.shard.pending_gradients()[0] is gradient
    assert again.shard.active == [0, 2]
    assert again.shard.totals == played.shard.totals
    assert again.strategy.loaded == played.strategy.state_dict()


def test_the_totals_of_shards_make_those_of_the_run() -> None:
    first, second = Totals(2), Totals(2)
    first.updates, first.samples, first.time_s, first.staleness = 5, 50, 1.0, [4, 1]
    second.updates, second.samples, second.time_s, second.staleness = 4, 40, 2.0, [0, 4]
    first.used_by_worker, second.used_by_worker = [3, 2], [2, 2]
    whole = of_all_shards([first, second])
    assert (whole.updates, whole.samples, whole.time_s) == (4, 40, 2.0)
    assert whole.staleness == [4, 5]
    assert whole.used_by_worker == [3, 2], "a gradient counts once"
    assert first.staleness == [4, 1], "the parts stay as they are"


def test_of_times_alone_there_are_no_tensors() -> None:
    driver = Driver()
    shard = ShardInterpreter(
        0, Script([Apply((0,)), Grant(0)]), num_workers=1, batch_size=1, limits=Limits(), driver=driver
    )
    driver.shard = shard
    shard.push(1.0, 0, 0, 0, 0, 0, 0.0, None)
    assert (shard.version, driver.asked) == (1, [("grant", 0, 1)])
    assert PushArrived(1.0, 0, 0, 0, 0.0) == shard._strategy.events[0]  # type: ignore[attr-defined]
