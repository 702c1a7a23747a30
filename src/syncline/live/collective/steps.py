"""The training step of a member of a collective: what it holds, what it does, and its event log.

There is a class for each order of gradient, optimizer step and all-reduce.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
import torch.distributed as dist

from syncline.learning.gradient import MiniBatch, WorkerBatches
from syncline.learning.local_steps import LocalSteps
from syncline.learning.optimizer import InParts, Optimizer
from syncline.learning.push_sum import step_replica
from syncline.live.collective.exchange import Exchange, Overlapped
from syncline.live.collective.member_control import NUM_ELEMENTS, MemberControl, StopAgreement
from syncline.live.collective.pace import Pace
from syncline.live.collective.process_group import Group
from syncline.live.node.control import RunContext
from syncline.live.wire.clock import RunClock
from syncline.records import rows
from syncline.records.events import EventLog
from syncline.rounds import Rounds
from syncline.server.report import PushReport, note_computation
from syncline.timing.cluster import DelayInjector

NUM_EXTRA = 1 + NUM_ELEMENTS  # elements that are exchanged too: loss and stop agreement


class Replica:
    """One member's weights.

    Args:
        local: what the member computes for a step, on a vector with `NUM_EXTRA` extra elements.
        optimizer: of all weights.
        exchange: how gradients or weights are averaged.
    """

    def __init__(self, local: LocalSteps, optimizer: Optimizer, exchange: Exchange) -> None:
        self.flat = local.gradient.flat
        self.optimizer, self.local, self.exchange = optimizer, local, exchange

    def warm_up(self, batch: MiniBatch) -> None:
        """One gradient before the run, for what libraries set up at the first one; it changes nothing."""
        buffers = self.flat.buffers.clone()
        self.local.gradient([self.flat.weights], self.flat.buffers, batch)
        self.flat.buffers.copy_(buffers)

    def compute(self, batches: WorkerBatches, step: int) -> Generator[float]:
        """The losses of a step, one a local step; after it the vector has its gradient, and the buffers after it."""
        return self.local.steps([self.flat.weights], self.flat.buffers, batches, step)

    def step(self, rate: float) -> None:
        """One optimizer step on the gradient."""
        step_replica(self.optimizer, self.flat.weights, self.flat.gradient, rate, self.exchange.push_sum_weight)

    def step_part(self, place: slice, rate: float) -> None:
        """Likewise of a part of the weights."""
        assert isinstance(self.optimizer, InParts)
        self.optimizer.step_part(place, self.flat.weights, self.flat.gradient, rate, out=self.flat.weights)


@dataclass(frozen=True, slots=True)
class StepResult:
    gradient: PushReport  # how it was computed; its iteration and version are the step
    averaged_at: float  # the end of the all-reduce, seconds of the run
    ended_at: float
    loss: float  # mean over all members if gradients are averaged; else this member's
    is_last: bool  # all members end with this step
    is_applied: bool  # the weights have changed


@dataclass
class Step(ABC):
    """One training step of this member."""

    replica: Replica
    batches: WorkerBatches
    delays: DelayInjector
    groups: Sequence[Group]  # this member's, of each turn
    turn: Callable[[int], int]  # step -> its turn
    agreement: StopAgreement
    control: MemberControl
    clock: RunClock
    max_time_s: float | None  # when the first member proposes to end; None: never

    sends_after: ClassVar[bool] = True  # a step's gradient is computed before its exchange

    @abstractmethod
    def run(self, step: int, rate: float) -> StepResult:
        """Make this step, at this learning rate. Raises MemberLost if another member is lost."""

    def _compute(self, step: int, local_rate: float | None = None) -> PushReport:
        """A gradient with its injected delays, and at `local_rate` the optimizer step on it."""
        started_at = self.clock.now()
        self.control.doing = f"computing step {step} since {started_at:.1f} s"
        if isinstance(self.replica.exchange, Overlapped):
            return self._compute_in_parts(self.replica.exchange, step, started_at, local_rate)
        losses, slowdown_s, delay_s, begun_at = list[float](), 0.0, 0.0, started_at
        for loss in self.replica.compute(self.batches, step):
            losses.append(loss)
            if len(losses) < self.replica.local.rounds.size(step):
                slow_s, late_s = self._delayed(begun_at)
                slowdown_s, delay_s, begun_at = slowdown_s + slow_s, delay_s + late_s, self.clock.now()
        if local_rate is not None:
            self.replica.step(local_rate)
        if self.sends_after:
            self.replica.exchange.prepare(self.turn(step), step)
        slow_s, late_s = self._delayed(begun_at)
        slowdown_s, delay_s = slowdown_s + slow_s, delay_s + late_s
        return self._report(step, sum(losses) / len(losses), started_at, slowdown_s, delay_s)

    def _compute_in_parts(
        self, exchange: Overlapped, step: int, started_at: float, local_rate: float | None
    ) -> PushReport:
        """Likewise; parts are exchanged while the backward pass computes the gradient of the others."""
        replica, pace, size = self.replica, self._pace, self.replica.flat.weights.numel()

        def before_send(place: slice) -> None:
            if local_rate is not None:
                replica.step_part(place, local_rate)
            pace.part_is_ready(1.0 - place.start / size)

        pace.begin()
        exchange.begin(self.groups[self.turn(step)], before_send)
        (loss,) = replica.compute(self.batches, step)
        exchange.complete()
        pace.part_is_ready(1.0)
        return self._report(step, loss, started_at, pace.slowdown_s, pace.delay_s)

    @cached_property
    def _pace(self) -> Pace:
        return Pace(self.delays, lambda seconds: 0.0 if self.control.cancel_delay.wait(seconds) else seconds)

    def _report(self, step: int, loss: float, started_at: float, slowdown_s: float, delay_s: float) -> PushReport:
        """How the gradient of this step was computed, which ends now."""
        return PushReport(
            self.control.rank,
            iteration=step,
            version=step,
            loss=loss,
            started_at=started_at,
            computed_at=self.clock.now(),
            slowdown_s=slowdown_s,
            compute_delay_s=delay_s,
        )

    def _delayed(self, begun_at: float) -> tuple[float, float]:
        """The injected slow-down and delay of a gradient that was begun then; 0 if the run is to end."""
        slowdown_s, delay_s = self.delays.compute(self.clock.now() - begun_at)
        if slowdown_s + delay_s > 0 and self.control.cancel_delay.wait(slowdown_s + delay_s):
            return 0.0, 0.0
        return slowdown_s, delay_s

    def _exchange(self, step: int, loss: float) -> tuple[float, bool]:
        """The all-reduce over the group of this step, which also carries the loss and the stop agreement.

        Returns:
            The mean loss of the group, and whether all members end with this step.
        """
        control, agreement, now, turn = self.control, self.agreement, self.clock.now(), self.turn(step)
        group = self.groups[turn]
        if control.rank == 0:
            is_late = self.max_time_s is not None and now >= self.max_time_s
            agreement.propose("max_time_s" if is_late else control.stop_reason)
        control.doing = f"in the all-reduce of step {step} since {now:.1f} s"
        elements = self.replica.flat.extra
        elements.copy_(torch.tensor([loss, *agreement.encode()], dtype=elements.dtype))
        loss_sum, *sums = self.replica.exchange.average(group, turn)
        is_last = agreement.decode(sums)
        if agreement.reason == "stop":
            control.cancel_delay.set()
        return loss_sum / dist.get_world_size(group), is_last

    def _average_weights(self, step: int, loss: float) -> bool:
        """Returns whether all members end with this step."""
        mean_loss, is_last = self._exchange(step, loss)
        if not math.isfinite(mean_loss):  # the first member proposes it with the next exchange
            self.control.stop_reason = self.control.stop_reason or "diverged"  # the first reason counts
        return is_last


class AllReduceGradients(Step):
    """BSP: every member applies the mean of all gradients."""

    def run(self, step: int, rate: float) -> StepResult:
        buffers = self.replica.flat.buffers
        before = buffers.clone()
        gradient = self._compute(step)
        mean_loss, is_last = self._exchange(step, gradient.loss)
        if is_last:
            buffers.copy_(before)  # this step is dropped
        now = self.clock.now()
        is_applied = not is_last and math.isfinite(mean_loss)
        if is_applied:
            self.replica.step(rate)
        return StepResult(gradient, now, now, mean_loss, is_last, is_applied)


class AverageAfterStep(Step):
    """DS-Sync: every member applies its own gradient, then the weights are averaged over its group.

    With `impl=overlap` each part is stepped as soon as it has its gradient.
    """

    def run(self, step: int, rate: float) -> StepResult:
        gradient = self._compute(step, local_rate=rate)
        is_last = self._average_weights(step, gradient.loss)
        now = self.clock.now()
        return StepResult(gradient, now, now, gradient.loss, is_last, is_applied=True)


class AverageBeforeStep(Step):
    """DS-Sync, averaging the weights over the group before the forward pass, and applying the own gradient after it."""

    sends_after = False
    _last_loss = 0.0

    def run(self, step: int, rate: float) -> StepResult:
        self.replica.exchange.prepare(self.turn(step), step)
        is_last = self._average_weights(step, self._last_loss)
        averaged_at = self.clock.now()
        gradient = self._compute(step, local_rate=rate)
        self._last_loss = gradient.loss
        return StepResult(gradient, averaged_at, self.clock.now(), gradient.loss, is_last, is_applied=True)


class StepLog:
    """The event log of one member, of which so many rows were there at the checkpoint.

    Raises:
        RecordError: there are fewer.
    """

    def __init__(self, context: RunContext, rank: int, num_rows: int, rounds: Rounds) -> None:
        collective = context.config.strategy.collective
        self._log = EventLog(context.folder / f"events-{rank}.arrow", num_rows)
        self._num_members = context.config.cluster.workers
        self._averages_first = collective is not None and collective.averages_first
        self._exchange = "" if collective is None else collective.exchange
        self._rounds = rounds
        self.flush, self.close = self._log.flush, self._log.close

    @property
    def num_rows(self) -> int:
        return self._log.num_rows

    def append(self, result: StepResult) -> None:
        """This member's part of one step."""
        log, gradient = self._log, result.gradient
        rank, step, computed_at = gradient.worker, gradient.iteration, gradient.computed_at
        push = step * self._num_members + rank
        if self._averages_first and step:
            log.append(rows.answer(result.averaged_at, "granted", rank, 0, step, self._exchange))
        note_computation(log.append, gradient, self._rounds)
        log.append(rows.pushed(computed_at, rank, 0, push, step, step))
        if self._averages_first:  # the exchange of the next step grants
            log.append(rows.applied(computed_at, rank, 0, push, step + 1, 0, "own step"))
        else:
            log.append(rows.applied(result.averaged_at, rank, 0, push, step + 1, 0, self._exchange))
            log.append(rows.answer(result.averaged_at, "granted", rank, 0, step + 1, self._exchange))
