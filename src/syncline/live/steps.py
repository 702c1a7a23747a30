"""The training step of a member of a collective, and its event log.

There is a class for each order of gradient, optimizer step and all-reduce.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from syncline.learning.gradient import WorkerBatches
from syncline.live.clock import RunClock
from syncline.live.context import RunContext
from syncline.live.member_control import MemberControl
from syncline.live.process_group import Group
from syncline.live.replica import Replica
from syncline.live.stop_consensus import StopConsensus
from syncline.records.events import EventLog, read_events
from syncline.timing.cluster import DelayInjector


@dataclass(frozen=True, slots=True)
class Gradient:
    """How a gradient was computed; times are seconds of the run."""

    loss: float  # of the mini-batch
    started_at: float
    computed_at: float  # the end, injected delays included
    slowdown_s: float  # by which a slow worker stretches the computation
    delay_s: float  # injected after it


@dataclass(frozen=True, slots=True)
class StepResult:
    gradient: Gradient
    averaged_at: float  # the end of the all-reduce, seconds of the run
    ended_at: float
    loss: float  # mean over all members if gradients are averaged; else this member's
    is_last: bool  # all members end with this step
    is_applied: bool  # the weights have changed


@dataclass(frozen=True, slots=True)
class Exchange:
    """The all-reduce of each step, which also carries the loss and the stop consensus."""

    replica: Replica
    groups: Sequence[Group]  # this member's, of even and of odd steps
    consensus: StopConsensus
    control: MemberControl
    clock: RunClock
    max_time_s: float | None  # when the first member proposes to end; None: never

    def run(self, step: int, loss: float) -> tuple[float, bool]:
        """Average over the group of this step. Returns its mean loss, and whether all members end with this step.

        Raises:
            MemberLost: another member is lost.
        """
        now, group = self.clock.now(), self.groups[step % 2]
        if self.control.is_first:
            is_late = self.max_time_s is not None and now >= self.max_time_s
            self.consensus.propose("max_time_s" if is_late else self.control.stop_reason)
        self.control.doing = f"in the all-reduce of step {step} since {now:.1f} s"
        loss_sum, *sums = self.replica.average(group, [loss, *self.consensus.encode()])
        is_last = self.consensus.decode(sums)
        if self.consensus.reason == "stop":
            self.control.cancel_delay.set()
        return loss_sum / group.size, is_last


@dataclass
class Step(ABC):
    """One training step of this member."""

    replica: Replica
    batches: WorkerBatches
    delays: DelayInjector
    exchange: Exchange

    @abstractmethod
    def run(self, step: int, rate: float) -> StepResult:
        """Make this step, at this learning rate. Raises MemberLost if another member is lost."""

    def _compute(self, step: int, local_rate: float | None = None) -> Gradient:
        """A gradient with its injected delays, and at `local_rate` the optimizer step on it."""
        started_at = self.exchange.clock.now()
        self.exchange.control.doing = f"computing step {step} since {started_at:.1f} s"
        loss = self.replica.compute(self.batches.take(step))
        if local_rate is not None:
            self.replica.step(local_rate)
        slowdown_s, delay_s = self.delays.compute(self.exchange.clock.now() - started_at)
        if slowdown_s + delay_s > 0 and self.exchange.control.cancel_delay.wait(slowdown_s + delay_s):
            slowdown_s = delay_s = 0.0
        return Gradient(loss, started_at, self.exchange.clock.now(), slowdown_s, delay_s)

    def _average_weights(self, step: int, loss: float) -> bool:
        """Returns whether all members end with this step."""
        mean_loss, is_last = self.exchange.run(step, loss)
        if not math.isfinite(mean_loss):  # the first member proposes it with the next exchange
            control = self.exchange.control
            control.stop_reason = control.stop_reason or "diverged"  # the first reason counts
        return is_last


class AllReduceGradients(Step):
    """BSP: every member applies the mean of all gradients."""

    def run(self, step: int, rate: float) -> StepResult:
        gradient = self._compute(step)
        mean_loss, is_last = self.exchange.run(step, gradient.loss)
        now = self.exchange.clock.now()
        is_applied = not is_last and math.isfinite(mean_loss)
        if is_applied:
            self.replica.step(rate)
        return StepResult(gradient, now, now, mean_loss, is_last, is_applied)


class AverageAfterStep(Step):
    """DS-Sync: every member applies its own gradient, then the weights are averaged over its group."""

    def run(self, step: int, rate: float) -> StepResult:
        gradient = self._compute(step, local_rate=rate)
        is_last = self._average_weights(step, gradient.loss)
        now = self.exchange.clock.now()
        return StepResult(gradient, now, now, gradient.loss, is_last, is_applied=True)


class AverageBeforeStep(Step):
    """DS-Sync, averaging the weights over the group before the forward pass, and applying the own gradient after it."""

    _last_loss = 0.0

    def run(self, step: int, rate: float) -> StepResult:
        is_last = self._average_weights(step, self._last_loss)
        averaged_at = self.exchange.clock.now()
        gradient = self._compute(step, local_rate=rate)
        self._last_loss = gradient.loss
        return StepResult(gradient, averaged_at, self.exchange.clock.now(), gradient.loss, is_last, is_applied=True)


class StepLog:
    """One member's event log. `num_rows`: of an earlier log that are kept."""

    def __init__(self, path: Path, num_rows: int, rank: int, num_members: int, averages_first: bool) -> None:
        self._log = EventLog(path, num_rows)
        self._rank, self._num_members, self._averages_first = rank, num_members, averages_first
        self.flush, self.close = self._log.flush, self._log.close

    @classmethod
    def open(cls, context: RunContext, rank: int, updates: int) -> "StepLog":
        """Of a run that continues after so many updates."""
        path, averages_first = context.folder / f"events-{rank}.arrow", context.config.strategy.averages_first
        num_rows = 0 if context.resume is None else rows_before(path, updates, averages_first)
        return cls(path, num_rows, rank, context.config.cluster.workers, averages_first)

    def append(self, step: int, result: StepResult) -> None:
        """This member's part of one step."""
        log, rank, gradient = self._log, self._rank, result.gradient
        push, computed_at = step * self._num_members + rank, gradient.computed_at
        if self._averages_first and step:
            log.append(result.averaged_at, "granted", rank, 0, -1, step, 0.0, "all-reduce")
        log.append(gradient.started_at, "started", rank, -1, -1, step, computed_at - gradient.started_at, "")
        if gradient.slowdown_s:
            slowed_at = computed_at - gradient.delay_s - gradient.slowdown_s
            log.append(slowed_at, "delayed", rank, -1, -1, -1, gradient.slowdown_s, "slow")
        if gradient.delay_s:
            log.append(computed_at - gradient.delay_s, "delayed", rank, -1, -1, -1, gradient.delay_s, "compute")
        log.append(computed_at, "computed", rank, -1, -1, step, gradient.loss, "")
        log.append(computed_at, "pushed", rank, 0, push, step, step, "")
        if self._averages_first:  # the exchange of the next step grants
            log.append(computed_at, "applied", rank, 0, push, step + 1, 0.0, "own step")
        else:
            log.append(result.averaged_at, "applied", rank, 0, push, step + 1, 0.0, "all-reduce")
            log.append(result.averaged_at, "granted", rank, 0, -1, step + 1, 0.0, "all-reduce")


def rows_before(path: Path, updates: int, averages_first: bool) -> int:
    """Rows of this log that precede the step after so many updates."""
    log = read_events(path)
    rows = zip(log["kind"].to_pylist(), log["version"].to_pylist(), strict=True)
    next_step = ("granted" if averages_first else "started", updates)
    return next((number for number, row in enumerate(rows) if row == next_step), log.num_rows)
