"""Collectives in virtual time: no server and no events, since a worker waits for its group alone (exchanges.py).

An update is one step of all workers; it is complete when the last of them has ended the step.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from syncline.progress import Limits, Totals
from syncline.records import rows
from syncline.records.rows import Log, Row
from syncline.records.time_use import TimeUse
from syncline.rounds import SINGLE, Rounds
from syncline.simulation.exchanges import ExchangeTimes, StepClock, StepTimes
from syncline.simulation.loop import PAUSED, Observer, ending
from syncline.simulation.replicas import Replicas
from syncline.simulation.tensor_table import TensorTable
from syncline.strategies.collective import Schedule
from syncline.timing.cluster import Cluster


class CollectiveSimulation:
    """One run in virtual time.

    Args:
        cluster: durations.
        exchanges: of each turn.
        schedule: who averages with whom.
        exchange: its name in the log.
        batch_size: samples in a mini-batch.
        limits: when to end.
        observer: called after updates.
        learning: the replicas; None simulates time alone.
        log: receives the rows of every step, in the order of time; None for none.
        averages_first: a step begins with its exchange; `applied` is then a worker's own step.
        rounds: the mini-batches of each step.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        exchanges: Sequence[ExchangeTimes],
        schedule: Schedule,
        exchange: str,
        averages_first: bool,
        batch_size: int,
        limits: Limits,
        observer: Observer,
        learning: Replicas | None = None,
        log: Log | None = None,
        rounds: Rounds = SINGLE,
    ) -> None:
        self.totals = Totals(cluster.num_workers)
        self._schedule, self._exchange, self._averages_first = schedule, exchange, averages_first
        self._clock, self._rounds = StepClock(cluster, exchanges, schedule.turn, averages_first, rounds), rounds
        self._batch_size, self._limits, self._observer = batch_size, limits, observer
        self._learning, self._log = learning, log
        self.time_use: TimeUse | None = None  # known at the end
        self._busy_s = np.zeros(cluster.num_workers)
        self._exchange_s = 0.0  # of all workers
        # When the last worker had computed each of the steps before this block in which another may still be.
        self._last_computed = [0.0] * max(1, schedule.spread - 1)
        self._rows: list[Row] = []  # not yet in the log
        self._block: StepTimes | None = None  # under way
        self._row = 0  # its step that comes next
        self._next_check = 1.0  # update at which the observer is called, or the run ends

    def run(self) -> str:
        """Simulate to the end, or until the observer asks to pause: then another call continues.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what the observer said; or PAUSED.
        """
        totals, limits, learning = self.totals, self._limits, self._learning
        samples_a_batch = self._batch_size * totals.num_workers
        while True:
            block = self._block = self._block or self._clock.next_block()
            ends = block.ended.max(axis=1).tolist()
            for row in range(self._row, len(ends)):
                at = ends[row]
                if at > limits.time_s:
                    return self._end("max_time_s", block, row, limits.time_s)
                losses = None
                if learning is not None:
                    step = totals.updates
                    losses = learning.step(step, self._schedule.turn(step), learning.rate(totals.samples, step))
                    totals.loss_sum += sum(losses)
                    totals.loss_count += len(losses)
                    broken = [worker for worker, loss in enumerate(losses) if not math.isfinite(loss)]
                    if broken:
                        at = max(totals.time_s, block.computed[row, broken].min().item())
                        return self._end("diverged", block, row, at)
                if self._log is not None:
                    self._note(self._log, block, row, losses)
                totals.samples += samples_a_batch * self._rounds.size(totals.updates)
                totals.updates += 1
                totals.time_s = at
                if totals.updates >= self._next_check or totals.samples >= limits.samples:
                    observer_at, asked = self._observer.updated(totals)
                    self._next_check = min(observer_at, limits.updates)
                    reason = ending(limits.reached(totals.samples, totals.updates), asked)
                    if reason == PAUSED:
                        self._row = row + 1
                        return PAUSED
                    if reason is not None:
                        return self._end(reason, block, row + 1)
            self._count(block, len(block.ended))
            last = [*self._last_computed, *block.computed.max(axis=1).tolist()]
            self._last_computed = last[-len(self._last_computed) :]
            self._block, self._row = None, 0

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it continues.
        """
        table = TensorTable()
        if self._learning is not None:
            self._learning.put(table)
        return table.tensors, {
            "totals": self.totals.state_dict(),
            "clocks": self._clock.state_dict(),
            "row": self._row,
            "busy_s": self._busy_s.tolist(),
            "exchange_s": self._exchange_s,
            "last_computed": list(self._last_computed),
            "rows": list(self._rows),
            "next_check": self._next_check,
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave; for a collective with the same arguments."""
        if self._learning is not None:
            self._learning.take(TensorTable(tensors, self._learning.device))
        self.totals = Totals.from_state(state["totals"])
        self._clock.load_state_dict(state["clocks"])
        self._block, self._row = self._clock.next_block(), state["row"]
        self._busy_s = np.array(state["busy_s"])
        self._exchange_s = state["exchange_s"]
        self._last_computed = list(state["last_computed"])
        self._rows = [Row(*row) for row in state["rows"]]
        self._next_check = state["next_check"]

    def _count(self, block: StepTimes, rows: int, at: float = math.inf) -> None:
        """Bring times and lead up to so many steps of the block, and to the gradients finished at `at`."""
        self._busy_s += (block.gradient[:rows] + block.delay[:rows]).sum(axis=0)
        self._exchange_s += float(block.exchange[:rows].sum())
        first = (block.computed[:rows] if math.isinf(at) else block.computed).min(axis=1)  # of each step
        first = first[first <= at]
        if self.totals.num_workers > 1 and len(first):
            before = len(self._last_computed)
            last = np.concatenate([self._last_computed, block.computed.max(axis=1)])
            behind = (n for n in range(before, 0, -1) if (first < last[before - n :][: len(first)]).any())
            self.totals.max_lead = max(self.totals.max_lead, 1 + next(behind, 0))

    def _end(self, reason: str, block: StepTimes, rows: int, at: float | None = None) -> str:
        """Complete the totals.

        Args:
            rows: steps of the block that are complete.
            at: when the run was cut off (seconds); None if no worker begins another step.
        """
        totals = self.totals
        self._count(block, rows, math.inf if at is None else at)
        if at is not None:
            totals.time_s = at
            row = rows
            while True:  # steps that some worker is in
                if row == len(block.begun):
                    block, row = self._clock.next_block(), 0
                exchange_s = block.exchange[row]
                begun = block.begun[row] - exchange_s if self._averages_first else block.begun[row]
                if (begun >= at).all():
                    break
                duration = block.gradient[row] + block.delay[row]
                self._busy_s += np.clip(at - block.begun[row], 0.0, duration)
                ended = block.begun[row] if self._averages_first else block.ended[row]
                self._exchange_s += float(np.clip(at - ended + exchange_s, 0.0, exchange_s).sum())
                row += 1
        totals.used_by_worker = [totals.updates] * totals.num_workers
        totals.staleness = [totals.updates * totals.num_workers]
        totals.busy_s_by_worker = self._busy_s.tolist()
        total_s, computing_s = totals.num_workers * totals.time_s, sum(totals.busy_s_by_worker)
        waiting_s = max(0.0, total_s - computing_s - self._exchange_s)
        self.time_use = TimeUse(total_s, computing_s, self._exchange_s, waiting_s)
        for entry in self._rows:
            if self._log is not None:
                self._log(entry)
        return reason

    def _note(self, log: Log, block: StepTimes, row: int, losses: Sequence[float] | None) -> None:
        """Note the rows of a step; those that no later row can precede go to the log."""
        step, num_workers, noted = self.totals.updates, self.totals.num_workers, self._rows
        times = zip(*(part[row].tolist() for part in (block.begun, block.gradient, block.delay)), strict=True)
        ends = zip(block.computed[row].tolist(), block.ended[row].tolist(), strict=True)
        for worker, ((begun, gradient, delay), (computed, ended)) in enumerate(zip(times, ends, strict=True)):
            push = step * num_workers + worker
            if self._averages_first and step:
                noted.append(rows.answer(begun, "granted", worker, 0, step, self._exchange))
            noted.append(rows.started(begun, worker, step, gradient + delay, self._rounds.describe(step)))
            if delay:
                noted.append(rows.delayed(begun + gradient, worker, delay, "compute"))
            noted.append(rows.computed(computed, worker, step, 0.0 if losses is None else losses[worker]))
            noted.append(rows.pushed(computed, worker, 0, push, step, step))
            because = "own step" if self._averages_first else self._exchange
            noted.append(rows.applied(ended, worker, 0, push, step + 1, 0, because))
            if not self._averages_first:
                noted.append(rows.answer(ended, "granted", worker, 0, step + 1, self._exchange))
        noted.sort(key=lambda entry: entry.at)  # stable: rows of one worker stay in their order
        until = block.ended[row].min()
        num_final = next((index for index, entry in enumerate(noted) if entry.at > until), len(noted))
        for entry in noted[:num_final]:
            log(entry)
        del noted[:num_final]
