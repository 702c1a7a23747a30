"""Asynchronous peers in virtual time: each computes, averages its replica with a peer's, makes its step, and goes on.

An exchange of two replicas takes as long as one of `gossip` between these two workers, and what both do with the mean
(`cluster.update_s`). A replica is in one exchange at a time, which alone changes it: others are queued, in the order of
their gradients, until both their ends are free. Meanwhile the worker at the other end computes.

An event is a number: w, worker w has computed its gradient; W + w, its exchange is over.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from syncline.learning.peer_replica import Choices, PeerReplica, average
from syncline.progress import Limits, Totals
from syncline.records import rows
from syncline.records.rows import Log
from syncline.records.time_use import TimeUse
from syncline.rounds import SINGLE, Rounds
from syncline.simulation.event_queue import EventQueue
from syncline.simulation.executors import Round
from syncline.simulation.loop import PAUSED, Observer, ending
from syncline.simulation.replicas import Replicas
from syncline.simulation.tensor_table import TensorTable
from syncline.timing.cluster import Cluster

_STATE = ("versions", "read", "partner", "free_at", "exchange_s", "sending_s", "queueing_s", "highest", "checks")


class PeerReplicas(Replicas):
    """What asynchronous peers learn: the replicas and optimizers of `Replicas`, which step at different times."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        replicas = zip(self.weights, self.buffers, self._optimizers, strict=True)
        self.peers = [PeerReplica(*replica, self.rate, len(self.weights)) for replica in replicas]

    def begin(self, worker: int, iteration: int, due: float) -> None:
        """The worker computes at what it has read; `computed` will ask for it at these virtual seconds."""
        peer = self.peers[worker]
        self.executor.begin(Round(worker, iteration, [peer.read_weights], peer.read_buffers, due))

    def computed(self, worker: int) -> float:
        """The loss of what the worker has begun; the gradient is kept for its step."""
        loss, gradient, buffers = self.executor.take(worker)
        self.peers[worker].computed(gradient, buffers)
        return loss

    def average(self, worker: int, peer: int, num_averaged: int) -> None:
        """The worker, which has computed, averages with this peer, after so many averagings since it read."""
        self.peers[worker].take_statistics(num_averaged)
        average(self.peers[worker], self.peers[peer])

    def put(self, table: TensorTable) -> None:
        super().put(table)
        table.put_states(self._named())

    def take(self, table: TensorTable) -> None:
        super().take(table)
        table.take_states(self._named())

    def _named(self) -> list[tuple[str, PeerReplica]]:
        return [(f"peer-{worker}", peer) for worker, peer in enumerate(self.peers)]


class PeerSimulation:
    """One run in virtual time.

    Args:
        cluster: durations.
        choices: with whom each worker averages.
        exchange_s: (two workers) -> seconds of their exchange.
        batch_size: samples in a mini-batch.
        limits: when to end.
        observer: called after updates.
        learning: the replicas; None simulates time alone.
        log: receives every event; None for none.
        rounds: the mini-batches of each gradient.
    """

    def __init__(
        self,
        *,
        cluster: Cluster,
        choices: Choices,
        exchange_s: Callable[[Sequence[int]], float],
        batch_size: int,
        limits: Limits,
        observer: Observer,
        learning: PeerReplicas | None = None,
        log: Log | None = None,
        rounds: Rounds = SINGLE,
    ) -> None:
        self._num = num_workers = cluster.num_workers
        self.totals = Totals(num_workers)
        self.time_use: TimeUse | None = None  # known at the end
        self._cluster, self._choices, self._pair_s = cluster, choices, exchange_s
        self._batch_size, self._limits, self._observer = batch_size, limits, observer
        self._learning, self._log, self._rounds = learning, log, rounds
        self._queue = EventQueue[int]()
        self.versions = [0] * num_workers  # of each replica: averagings and steps
        self.read = [0] * num_workers  # the version that each worker computes at
        self.partner = [0] * num_workers  # with whom each worker has asked for an exchange last
        self.free_at = [0.0] * num_workers  # seconds; when each replica has been in all exchanges that are known
        self.exchange_s = [0.0] * num_workers  # of the exchange that each worker has asked for last
        self.sending_s = self.queueing_s = 0.0  # of all exchanges that are known
        self.highest = 0  # steps of the worker that has made most
        self.checks = (1, 1.0)  # update at which the observer wants to be called; at which it is, or the run ends

    def run(self) -> str:
        """Simulate to the end, or until the observer asks to pause: then another call continues.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what the observer said; or PAUSED.
        """
        queue, totals, limits, num = self._queue, self.totals, self._limits, self._num
        if not queue:
            for worker in range(num):
                self._start(worker)
        for event in queue.events(until=limits.time_s):
            reason = None
            if event < num:
                reason = self._computed(event)
            else:
                self._exchanged(event - num)
            if reason is None and (totals.updates >= self.checks[1] or totals.samples >= limits.samples):
                reason = self._check_limits()
            if reason is not None:
                return reason if reason == PAUSED else self._end(reason)
        queue.now = limits.time_s
        return self._end("max_time_s")

    def _start(self, worker: int) -> None:
        """The worker reads its replica, and begins a gradient."""
        now, number = self._queue.now, self.totals.used_by_worker[worker]
        duration = sum(self._cluster.compute_s(worker) for _ in self._rounds.batches(number))
        self.read[worker] = self.versions[worker]
        if self._learning is not None:
            self._learning.peers[worker].read()
            self._learning.begin(worker, number, now + duration)
        if self._log is not None:
            self._log(rows.started(now, worker, self.read[worker], duration, self._rounds.describe(number)))
        self._queue.push(now + duration, worker)

    def _computed(self, worker: int) -> str | None:
        """The worker has its gradient, and asks a peer for an exchange. Returns why the run ends, if it does."""
        now, loss = self._queue.now, 0.0
        if self._learning is not None:
            loss = self._learning.computed(worker)
            self.totals.loss_sum += loss
            self.totals.loss_count += 1
            if not math.isfinite(loss):
                return "diverged"
        if self._log is not None:
            self._log(rows.computed(now, worker, self.read[worker], loss))
        free_at, peer = self.free_at, self._choices.peer(worker, self.totals.used_by_worker[worker])
        self.partner[worker] = peer
        begins = max(now, free_at[worker], free_at[peer])
        self.exchange_s[worker] = seconds = self._pair_s((worker, peer))
        free_at[worker] = free_at[peer] = ends = begins + seconds
        self.queueing_s += begins - now
        self.sending_s += seconds
        if ends == now:
            self._exchanged(worker)
            return None
        self._queue.push(ends, self._num + worker)
        return None

    def _exchanged(self, worker: int) -> None:
        """The worker's replica and its peer's have become their mean: it makes its step, and goes on."""
        now, peer, versions, totals = self._queue.now, self.partner[worker], self.versions, self.totals
        number, read = totals.used_by_worker[worker], self.read[worker]
        versions[worker] += 1
        versions[peer] += 1
        stale = versions[worker] - read
        num_samples = self._batch_size * self._rounds.size(number)
        if self._learning is not None:
            self._learning.average(worker, peer, stale - 1)
            self._learning.peers[worker].step(num_samples)
        if self._log is not None:
            push, pair = number * self._num + worker, (versions[worker], versions[peer])
            self._log(rows.pushed(now, worker, 0, push, read, number))
            self._log(rows.averaged(now, worker, peer, pair))
            self._log(rows.applied(now, worker, 0, push, pair[0] + 1, stale, ""))
            self._log(rows.answer(now, "granted", worker, 0, pair[0] + 1, ""))
        versions[worker] += 1
        totals.add(worker, now, num_samples, stale)
        if number == self.highest:  # only then can the lead be larger than ever before
            self.highest = number + 1
            totals.max_lead = max(totals.max_lead, self.highest - min(totals.used_by_worker))
        self._start(worker)

    def _check_limits(self) -> str | None:
        """Where the run may end or the observer is due. Returns why it ends, or PAUSED."""
        totals, limits = self.totals, self._limits
        reason = limits.reached(totals.samples, totals.updates)
        if totals.updates >= self.checks[0]:
            observer_at, asked = self._observer.updated(totals)
            self.checks = (observer_at, min(observer_at, limits.updates))
            reason = ending(reason, asked)
        return reason

    def _end(self, reason: str) -> str:
        """Complete the totals."""
        totals, now, num = self.totals, self._queue.now, self._num
        totals.time_s = now
        totals.busy_s_by_worker = [self._cluster.busy_s(worker) for worker in range(num)]
        for at, event in self._queue.scheduled():  # what is cut off
            if event < num:
                totals.busy_s_by_worker[event] -= at - now
                continue
            seconds = self.exchange_s[event - num]
            self.sending_s -= min(seconds, at - now)
            self.queueing_s -= max(0.0, at - now - seconds)
        computing_s, total_s = sum(totals.busy_s_by_worker), num * now
        waiting_s = max(0.0, total_s - computing_s - self.sending_s - self.queueing_s)
        self.time_use = TimeUse(total_s, computing_s, self.sending_s, waiting_s, queueing_s=self.queueing_s)
        return reason

    def state_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that the arguments do not tell of a run that is paused: tensors, and plain types that JSON can hold.

        They are the run's own: it changes them when it continues.
        """
        table = TensorTable()
        if self._learning is not None:
            self._learning.put(table)
        parts = {"totals": self.totals.state_dict(), "cluster": self._cluster.state_dict()}
        parts["queue"] = self._queue.state_dict(int)
        return table.tensors, parts | {name: getattr(self, name) for name in _STATE}

    def load_state_dict(self, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` gave; for a simulation with the same arguments that has not run yet."""
        self.totals = Totals.from_state(state["totals"])
        self._cluster.load_state_dict(state["cluster"])
        self._queue.load_state_dict(state["queue"], int)
        for name in _STATE:
            value = state[name]
            setattr(self, name, list(value) if isinstance(getattr(self, name), list) else value)
        if self._learning is not None:
            self._learning.take(TensorTable(tensors, self._learning.device))
            for at, event in self._queue.scheduled():
                if event < self._num:
                    self._learning.begin(event, self.totals.used_by_worker[event], at)
