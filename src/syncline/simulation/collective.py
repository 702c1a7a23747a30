"""Collectives in virtual time: no server and no events, since a worker waits for nothing but its group.

With d_i(t) the seconds of worker i's gradient of step t and x those of an exchange:

    after_step       begun_i(t) = joined_i(t-1)             computed_i(t) = begun_i(t) + d_i(t)
                     joined_i(t) = x + max of computed_j(t) over i's group of step t
    before_forward   begun_i(t) = x + max of computed_j(t-1) over i's group of step t

An update is one step of everybody, made when the last one has ended it. Nobody is ever more than two gradients ahead:
before a worker begins step t+1 its group has computed step t, and before that the groups of step t-1 of all these have
computed step t-1; together they are everybody.

Shape legend: P workers, K steps of a block, n parameters, m float buffer elements.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from syncline.learning.evaluate import Evaluator, consensus, final_state
from syncline.learning.gradient import GradientFunction, WorkerBatches
from syncline.learning.optimizer import Optimizer
from syncline.progress import Limits, Totals
from syncline.records.time_use import TimeUse
from syncline.server.interpreter import Log
from syncline.simulation.engine import PAUSED
from syncline.simulation.tensor_table import TensorTable
from syncline.timing.cluster import Cluster
from syncline.timing.distributions import Array
from syncline.timing.network import Network


class Observer(Protocol):
    """Who watches a run; the virtual clock stands still meanwhile."""

    def updated(self, simulation: "Collective") -> int:
        """The update that was asked for is made. Returns the one at which to be called again."""
        ...


class Replicas:
    """What the workers of a collective learn: a replica each, or one for all where they join their gradients.

    Args:
        gradient: the gradient function, on the module that all share; its weights and buffers are the initial ones.
        batches: of each worker.
        optimizers: one a replica; with a single one all workers make one step on their mean gradient.
        rate: (samples, updates) made so far -> learning rate of the next update.
        averages_first: a step begins with the averaging.
        evaluator: of the run; num_train: training samples; best_possible: metrics that nothing can surpass on them.
    """

    def __init__(
        self,
        *,
        gradient: GradientFunction,
        batches: Sequence[WorkerBatches],
        optimizers: Sequence[Optimizer],
        rate: Callable[[int, int], float],
        averages_first: bool,
        evaluator: Evaluator,
        num_train: int,
        best_possible: Mapping[str, float],
    ) -> None:
        self.evaluator, self.rate, self.num_train, self.best_possible = evaluator, rate, num_train, best_possible
        self.num_parameters = gradient.flat.weights.numel()
        self.num_tensors = len(gradient.flat.weight_tensors)
        self.weights = [gradient.flat.weights.clone() for _ in optimizers]  # [n] of each replica
        self.buffers = [gradient.flat.buffers.clone() for _ in optimizers]  # [m]
        self._gradient, self._batches = gradient, batches
        self._optimizers = optimizers
        self._averages_first = averages_first

    def step(self, iteration: int, groups: Sequence[Sequence[int]], rate: float) -> list[float]:
        """One step of all workers. Returns their losses; if one is no number, the weights may be worthless."""
        workers = range(len(self._batches))
        if len(self._optimizers) < len(workers):
            return self._step_together(iteration, rate)
        if self._averages_first:
            self._average(groups)
        losses = [self._step_alone(worker, iteration, rate) for worker in workers]
        if not self._averages_first:
            self._average(groups)
        return losses

    def current(self) -> tuple[list[Tensor], Tensor, dict[str, float]]:
        """What is to be evaluated, weights and buffers, and what else is told of it: the consensus of the replicas."""
        pairs = zip(self._optimizers, self.weights, strict=True)
        evaluated = [optimizer.evaluated(weights) for optimizer, weights in pairs]
        if len(evaluated) == 1:
            return evaluated, self.buffers[0], {}
        weights, buffers, divergence = consensus(evaluated, self.buffers)
        return [weights], buffers, {"divergence": divergence}

    def final_states(self) -> list[dict[str, Tensor]]:
        """Of each replica."""
        replicas = zip(self._optimizers, self.weights, self.buffers, strict=True)
        return [final_state(weights, optimizer.evaluated(weights), buffers) for optimizer, weights, buffers in replicas]

    def put(self, table: TensorTable) -> None:
        """All that changes goes there."""
        table.put_all("weights", {str(number): weights for number, weights in enumerate(self.weights)})
        table.put_all("buffers", {str(number): buffers for number, buffers in enumerate(self.buffers)})
        for number, optimizer in enumerate(self._optimizers):
            table.put_all(f"optimizer-{number}", optimizer.state_dict())

    def take(self, table: TensorTable) -> None:
        """Go on from what `put` put there."""
        for name, replicas in (("weights", self.weights), ("buffers", self.buffers)):
            for key, tensor in table.take_all(name).items():
                replicas[int(key)].copy_(tensor)
        for number, optimizer in enumerate(self._optimizers):
            optimizer.load_state_dict(table.take_all(f"optimizer-{number}"))

    @property
    def device(self) -> torch.device:
        return self.weights[0].device

    def _step_together(self, iteration: int, rate: float) -> list[float]:
        (weights,), (buffers,) = self.weights, self.buffers
        losses, gradients, left = [], [], []
        for worker in range(len(self._batches)):
            loss, gradient, after = self._compute(worker, iteration, weights, buffers)
            losses.append(loss)
            gradients.append(gradient.clone())
            left.append(after.clone())
        _mean(left)
        _mean(gradients)
        buffers.copy_(left[0])
        self._optimizers[0].step(weights, gradients[0], rate, out=weights)
        return losses

    def _step_alone(self, worker: int, iteration: int, rate: float) -> float:
        weights, buffers = self.weights[worker], self.buffers[worker]
        loss, gradient, after = self._compute(worker, iteration, weights, buffers)
        buffers.copy_(after)
        self._optimizers[worker].step(weights, gradient, rate, out=weights)
        return loss

    def _compute(self, worker: int, iteration: int, weights: Tensor, buffers: Tensor) -> tuple[float, Tensor, Tensor]:
        return self._gradient([weights], buffers, self._batches[worker].take(iteration))

    def _average(self, groups: Sequence[Sequence[int]]) -> None:
        for group in groups:
            for replicas in (self.weights, self.buffers):
                members = [replicas[worker] for worker in group]
                _mean(members)
                for other in members[1:]:
                    other.copy_(members[0])


def _mean(tensors: list[Tensor]) -> None:
    """The first becomes the mean of all: their sum in order, divided."""
    for other in tensors[1:]:
        tensors[0].add_(other)
    tensors[0].div_(len(tensors))


class Exchange:
    """The groups of a step, and what their exchange takes.

    Args:
        groups: every worker is in one of them.
        size_bytes: what each member holds.
        num_messages: all-reduces one after another.
    """

    def __init__(self, groups: Sequence[Sequence[int]], network: Network, size_bytes: int, num_messages: int) -> None:
        sizes = [len(group) for group in groups]
        self.groups = groups
        self._members = np.concatenate([np.asarray(group) for group in groups])  # [P], group after group
        self._in_order = bool((np.diff(self._members) > 0).all())
        self._starts = np.cumsum([0, *sizes[:-1]])
        self._group_of = np.empty_like(self._members)  # [P]
        self._group_of[self._members] = np.repeat(np.arange(len(groups)), sizes)
        self._seconds = np.array([network.all_reduce_s(size, size_bytes, num_messages) for size in sizes])
        self.seconds = self._seconds.take(self._group_of)  # [P], what each worker's takes

    def joined(self, computed: Array) -> Array:
        """When each worker has the mean of its group, if it was ready for it at `computed`; both [P]."""
        if not self._in_order:
            computed = computed.take(self._members)
        last: Array = np.maximum.reduceat(computed, self._starts)
        last += self._seconds
        return last.take(self._group_of)


@dataclass(frozen=True, slots=True)
class Block:
    """K steps; each [K, P], in seconds."""

    begun: Array
    gradient: Array  # duration, without the injected delay
    delay: Array
    computed: Array
    ended: Array  # the exchange, where it closes a step
    exchange: Array  # seconds of it


class Clocks:
    """The recurrence at the head of this file.

    Args:
        exchanges: of even and of odd steps.
        averages_first: a step begins with its exchange.
    """

    def __init__(self, cluster: Cluster, exchanges: tuple[Exchange, Exchange], averages_first: bool) -> None:
        self._cluster, self._exchanges, self._averages_first = cluster, exchanges, averages_first
        self._now = np.zeros(cluster.num_workers)  # where the last step left each worker
        self._step = 0
        self._begun = self._now, self._step  # before the last block

    def state_dict(self) -> dict[str, Any]:
        """From which `next_block` gives the last block again; plain types."""
        now, step = self._begun
        return {"now": now.tolist(), "step": step}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._now, self._step = np.array(state["now"]), state["step"]
        self._cluster.seek_computes(self._step)

    def next_block(self) -> Block:
        self._begun = self._now, self._step
        gradient, delay = (np.ascontiguousarray(drawn.T) for drawn in self._cluster.draw_computes())
        duration = gradient + delay
        begun, computed, ended, exchange_s = (np.empty_like(duration) for _ in range(4))
        now = self._now
        for row, seconds in enumerate(duration):
            exchange = self._exchanges[(self._step + row) % 2]
            exchange_s[row] = exchange.seconds
            if self._averages_first:
                begun[row] = exchange.joined(now)
                now = ended[row] = np.add(begun[row], seconds, out=computed[row])
            else:
                begun[row] = now
                now = ended[row] = exchange.joined(np.add(now, seconds, out=computed[row]))
        self._now = now
        self._step += len(duration)
        return Block(begun, gradient, delay, computed, ended, exchange_s)


class Collective:
    """One run in virtual time.

    Args:
        clocks: durations.
        groups: of even and of odd steps.
        batch_size: samples in one gradient.
        limits: when to end.
        observer: told of updates.
        learning: the replicas; None simulates time alone.
        log: told of every step, in the order of time; None for none.
        averages_first: as the clocks'; `applied` is then a worker's own step.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        exchanges: tuple[Exchange, Exchange],
        averages_first: bool,
        batch_size: int,
        limits: Limits,
        observer: Observer,
        learning: Replicas | None = None,
        log: Log | None = None,
    ) -> None:
        self.totals = Totals(cluster.num_workers)
        self._exchanges, self._averages_first = exchanges, averages_first
        self._clocks = Clocks(cluster, exchanges, averages_first)
        self._batch_size, self._limits, self._observer = batch_size, limits, observer
        self._learning, self._log = learning, log
        self.time_use: TimeUse | None = None  # known at the end
        self._busy_s = np.zeros(cluster.num_workers)
        self._exchange_s = 0.0  # of all workers
        self._last_computed = 0.0  # when the last worker had computed the step before this block
        self._rows: list[tuple[float, str, int, int, int, int, float, str]] = []  # not yet told to the log
        self._block: Block | None = None  # under way
        self._row = 0  # its step that comes next
        self._next_look = 1.0  # update at which the observer is called, or the run ends
        self._ended_by: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after the update under way."""
        self._ended_by = reason

    def pause(self) -> None:
        """Leave `run` after the update under way, unless that ends it."""
        if self._ended_by is None:
            self._ended_by = PAUSED

    def run(self) -> str:
        """Simulate to the end, or until the observer calls `pause`: then another call goes on.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what `stop` said; or PAUSED.
        """
        totals, limits, learning = self.totals, self._limits, self._learning
        samples_a_step = self._batch_size * totals.num_workers
        while True:
            block = self._block = self._block or self._clocks.next_block()
            ends = block.ended.max(axis=1).tolist()
            for row in range(self._row, len(ends)):
                at = ends[row]
                if at > limits.time_s:
                    return self._end("max_time_s", block, row, limits.time_s)
                losses = None
                if learning is not None:
                    step = totals.updates
                    losses = learning.step(step, self._exchanges[step % 2].groups, learning.rate(totals.samples, step))
                    totals.loss_sum += sum(losses)
                    totals.loss_count += len(losses)
                    broken = [worker for worker, loss in enumerate(losses) if not math.isfinite(loss)]
                    if broken:
                        at = max(totals.time_s, block.computed[row, broken].min().item())
                        return self._end("diverged", block, row, at)
                if self._log is not None:
                    self._note(self._log, block, row, losses)
                totals.updates += 1
                totals.samples += samples_a_step
                totals.time_s = at
                if totals.updates >= self._next_look or totals.samples >= limits.samples:
                    self._ended_by = limits.reached(totals.samples, totals.updates)
                    self._next_look = min(self._observer.updated(self), limits.updates)
                    if self._ended_by == PAUSED:
                        self._ended_by, self._row = None, row + 1
                        return PAUSED
                    if self._ended_by is not None:
                        return self._end(self._ended_by, block, row + 1)
            self._count(block, len(block.ended))
            self._last_computed = block.computed[-1].max().item()
            self._block, self._row = None, 0

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it goes on.
        """
        table = TensorTable()
        if self._learning is not None:
            self._learning.put(table)
        return table.tensors, {
            "totals": self.totals.state_dict(),
            "clocks": self._clocks.state_dict(),
            "row": self._row,
            "busy_s": self._busy_s.tolist(),
            "exchange_s": self._exchange_s,
            "last_computed": self._last_computed,
            "rows": list(self._rows),
            "next_look": self._next_look,
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Go on from what `state_dict` gave; for a collective with the same arguments."""
        if self._learning is not None:
            self._learning.take(TensorTable(tensors, self._learning.device))
        self.totals = Totals.from_state(state["totals"])
        self._clocks.load_state_dict(state["clocks"])
        self._block, self._row = self._clocks.next_block(), state["row"]
        self._busy_s = np.array(state["busy_s"])
        self._exchange_s = state["exchange_s"]
        self._last_computed = state["last_computed"]
        self._rows = [tuple(row) for row in state["rows"]]
        self._next_look = state["next_look"]

    def _count(self, block: Block, rows: int, at: float = math.inf) -> None:
        """Bring times and lead up to so many steps of the block, and to the gradients finished at `at`."""
        self._busy_s += (block.gradient[:rows] + block.delay[:rows]).sum(axis=0)
        self._exchange_s += float(block.exchange[:rows].sum())
        first = block.computed[: rows if math.isinf(at) else rows + 1].min(axis=1)  # of each step
        if self.totals.num_workers > 1 and (first <= at).any():
            last = np.concatenate([[self._last_computed], block.computed.max(axis=1)])[
                : len(first)
            ]  # of the step before
            self.totals.max_lead = max(self.totals.max_lead, 2 if (first < last).any() else 1)

    def _end(self, reason: str, block: Block, rows: int, at: float | None = None) -> str:
        """The last word on the totals.

        Args:
            rows: steps of the block that were made.
            at: when the run was broken off; None if nobody begins another step.
        """
        totals = self.totals
        self._count(block, rows, math.inf if at is None else at)
        if at is not None:
            totals.time_s = at
            following = self._clocks.next_block() if rows + 1 >= len(block.begun) else block
            for part, row in ((block, rows), (following, (rows + 1) % len(block.begun))):
                duration = part.gradient[row] + part.delay[row]
                self._busy_s += np.clip(at - part.begun[row], 0.0, duration)
                exchange_s = part.exchange[row]
                ended = part.begun[row] if self._averages_first else part.ended[row]
                self._exchange_s += float(np.clip(at - ended + exchange_s, 0.0, exchange_s).sum())
        totals.used_by_worker = [totals.updates] * totals.num_workers
        totals.staleness = [totals.updates * totals.num_workers]
        totals.busy_s_by_worker = self._busy_s.tolist()
        total_s, computing_s = totals.num_workers * totals.time_s, sum(totals.busy_s_by_worker)
        waiting_s = max(0.0, total_s - computing_s - self._exchange_s)
        self.time_use = TimeUse(total_s, computing_s, self._exchange_s, waiting_s)
        for entry in self._rows:
            if self._log is not None:
                self._log(*entry)
        return reason

    def _note(self, log: Log, block: Block, row: int, losses: Sequence[float] | None) -> None:
        """The rows of a step: those that nothing to come can precede go to the log."""
        step, num_workers, rows = self.totals.updates, self.totals.num_workers, self._rows
        times = zip(*(part[row].tolist() for part in (block.begun, block.gradient, block.delay)), strict=True)
        ends = zip(block.computed[row].tolist(), block.ended[row].tolist(), strict=True)
        for worker, ((begun, gradient, delay), (computed, ended)) in enumerate(zip(times, ends, strict=True)):
            push = step * num_workers + worker
            if self._averages_first and step:
                rows.append((begun, "granted", worker, 0, -1, step, 0.0, "all-reduce"))
            rows.append((begun, "started", worker, -1, -1, step, gradient + delay, ""))
            if delay:
                rows.append((begun + gradient, "delayed", worker, -1, -1, -1, delay, "compute"))
            rows.append((computed, "computed", worker, -1, -1, step, 0.0 if losses is None else losses[worker], ""))
            rows.append((computed, "pushed", worker, 0, push, step, step, ""))
            because = "own step" if self._averages_first else "all-reduce"
            rows.append((ended, "applied", worker, 0, push, step + 1, 0.0, because))
            if not self._averages_first:
                rows.append((ended, "granted", worker, 0, -1, step + 1, 0.0, "all-reduce"))
        rows.sort(key=lambda entry: entry[0])  # stable: rows of one worker stay in their order
        until = block.ended[row].min()
        num_told = next((index for index, entry in enumerate(rows) if entry[0] > until), len(rows))
        for entry in rows[:num_told]:
            log(*entry)
        del rows[:num_told]
