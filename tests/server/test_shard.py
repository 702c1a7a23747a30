"""How a shard executes the commands of its strategy, on tiny tensors and without an engine.

tests/live/shard/test_elastic.py runs every strategy through the same shard.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from log_checks import Rows

from syncline.learning.parameters import Gradient, Parameters, Version
from syncline.learning.sgd import Sgd
from syncline.progress import Limits, Totals
from syncline.server.shard import Shard
from syncline.strategies.protocol import Apply, Command, Event, Grant, Hold, Interrupt, Repeat, TimerFired, WakeAt

NUM_WORKERS, BATCH = 3, 8


class Script:
    """A strategy with given answers, one per event; then none."""

    def __init__(self, *answers: list[Command]) -> None:
        self.answers, self.events = list(answers), list[Event]()

    def handle(self, event: Event) -> list[Command]:
        self.events.append(event)
        return self.answers.pop(0) if self.answers else []

    def state_dict(self) -> dict[str, Any]:
        return {"left": len(self.answers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.loaded = state


class ScriptedShard:
    """A shard with a single weight, at first 0, and a rate of 1: each update subtracts the mean gradient."""

    def __init__(self, *answers: list[Command], limits: Limits | None = None, number: int = 0) -> None:
        self.strategy, self.rows = Script(*answers), Rows()
        self.released: list[Gradient] = []
        self.parameters = Parameters(
            block=slice(0, 1),
            current=Version(torch.zeros(1), torch.zeros(0)),
            optimizer=Sgd(momentum=0.0, weight_decay=0.0),
            rate=lambda samples, updates: 1.0,
            num_workers=NUM_WORKERS,
        )
        self.shard = Shard(
            number,
            self.strategy,
            num_workers=NUM_WORKERS,
            batch_size=BATCH,
            limits=limits or Limits(),
            parameters=self.parameters,
            log=self.rows.append,
        )
        self.num_pushes = 0
        self.versions: list[tuple[Command, int]] = []  # each command of the last answer, and the shard's version then

    def carry_out(self, commands: Iterator[Command]) -> None:
        self.versions = [(command, self.shard.version) for command in commands]

    @property
    def answer(self) -> list[Command]:
        return [command for command, _ in self.versions]

    def push(
        self, worker: int, *, version: int = 0, loss: float = 1.0, value: float = 1.0, at: float = 1.0
    ) -> Gradient:
        gradient = Gradient(torch.tensor([value]), torch.zeros(0), self.released)
        self.carry_out(self.shard.push(at, self.num_pushes, worker, version, version, 0, loss, gradient))
        self.num_pushes += 1
        return gradient

    @property
    def weight(self) -> float:
        return self.parameters.current.weights.item()


def test_an_engine_finds_the_shard_at_the_version_of_each_command() -> None:
    scripted = ScriptedShard([Hold(0)], [Grant(0), Apply((0,)), Grant(1), Apply((1,)), Grant(2)])
    scripted.push(0)
    scripted.push(1)
    assert scripted.versions == [(Grant(0), 0), (Grant(1), 1), (Grant(2), 2)]


def test_an_update_is_one_step_on_the_mean_and_counts_what_it_used() -> None:
    scripted = ScriptedShard([], [Apply((0, 1), because="both")])
    gradients = [scripted.push(0, value=1.0), scripted.push(1, value=4.0, at=2.0)]
    totals = scripted.shard.totals
    assert scripted.weight == -2.5
    assert (totals.updates, totals.samples, totals.time_s) == (1, 2 * BATCH, 2.0)
    assert (totals.used_by_worker, totals.staleness) == ([1, 1, 0], [2])
    assert scripted.released == gradients
    assert [(row.worker, row.push, row.version, row.because) for row in scripted.rows.of("applied")] == [
        (0, 0, 1, "both"),
        (1, 1, 1, "both"),
    ]


@pytest.mark.parametrize("command", [Apply((0, 1), scale=2.0), Apply((0, 1), is_sum=True)], ids=["scale", "sum"])
def test_an_update_takes_the_scale_or_the_sum_that_the_strategy_asks_for(command: Apply) -> None:
    scripted = ScriptedShard([], [command])
    for worker, value in ((0, 1.0), (1, 4.0)):
        scripted.push(worker, value=value)
    assert scripted.weight == -5.0


def test_nothing_is_executed_after_the_update_that_reaches_a_limit() -> None:
    for limits, reason in ((Limits(updates=1), "max_updates"), (Limits(samples=BATCH), "epochs")):
        scripted = ScriptedShard([], [Apply((0,)), Grant(0), Apply((1,))], limits=limits)
        scripted.push(0)
        scripted.push(1)
        assert scripted.shard.ended_by == reason
        assert not scripted.answer
        assert scripted.shard.version == 1


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_ends_the_run_before_the_strategy_sees_it(loss: float) -> None:
    scripted = ScriptedShard()
    scripted.push(0, loss=loss, at=3.0)
    assert (scripted.shard.ended_by, scripted.shard.totals.time_s) == ("diverged", 3.0)
    assert scripted.strategy.events == []


def test_after_an_interrupt_pushes_computed_before_it_are_rejected() -> None:
    commands = [Apply((0,)), Interrupt(1), Grant(1)]
    scripted = ScriptedShard(commands)
    assert not scripted.shard.is_stale(1, 0)
    scripted.push(0)
    assert [scripted.shard.is_stale(1, version) for version in (0, 1)] == [True, False]
    assert not scripted.shard.is_stale(2, 0), "only the interrupted worker"
    assert scripted.answer == commands[1:]
    gradient = Gradient(torch.zeros(1), torch.zeros(0), scripted.released)
    scripted.shard.reject(2.0, 1, 0, gradient)
    assert scripted.shard.totals.interrupted_by_worker == scripted.shard.totals.wasted_by_worker == [0, 1, 0]
    assert scripted.released[-1] is gradient
    assert len(scripted.rows.of("stale")) == 1
    assert len(scripted.strategy.events) == 1
    scripted.carry_out(scripted.shard.leave(3.0, 1, "killed"))
    assert not scripted.shard.is_stale(1, 0), "a new process of the worker was never interrupted"


def test_a_timer_is_never_in_the_past_and_is_reset_when_it_fires() -> None:
    scripted = ScriptedShard([WakeAt(0.5), WakeAt(7.0)], [Repeat(0)])
    scripted.push(0, at=1.0)
    assert scripted.shard.wakes_at == 7.0
    assert list(scripted.shard.fire_timer(7.0)) == [Repeat(0)]
    assert scripted.strategy.events[-1] == TimerFired(7.0)
    assert scripted.shard.wakes_at == math.inf
    late = ScriptedShard([WakeAt(0.5)])
    late.push(0, at=1.0)
    assert late.shard.wakes_at == 1.0


def test_the_totals_of_a_run_follow_from_those_of_its_shards() -> None:
    first, second = Totals(2), Totals(2)
    first.updates, first.samples, first.time_s, first.staleness = 5, 50, 1.0, [4, 1]
    second.updates, second.samples, second.time_s, second.staleness = 4, 40, 2.0, [0, 4]
    first.used_by_worker, second.used_by_worker = [3, 2], [2, 2]
    whole = Totals.of_shards([first, second])
    assert (whole.updates, whole.samples, whole.time_s) == (4, 40, 2.0)
    assert whole.staleness == [4, 5]
    assert whole.used_by_worker == [3, 2], "a gradient counts once"
    assert first.staleness == [4, 1], "the totals of the shards do not change"
