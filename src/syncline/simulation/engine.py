"""Virtual time: an event heap that drives the strategies' state machines, with true gradients or with times alone.

A worker's cycle: its blocks arrive (pull), it computes, its gradient travels to every shard (push), each shard's
strategy answers. The gradient is computed when the finishing event fires, at the snapshot the worker was granted.
Events are ordered by (time, order of scheduling), so a run depends on nothing but its inputs.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from syncline.course import Limits, Totals
from syncline.learning.server import Gradient, Shard
from syncline.simulation.worker import Workers
from syncline.strategies.protocol import Apply, Discard, Grant, Hold, PushArrived, Strategy
from syncline.timing.cluster import Cluster


class Observer(Protocol):
    """Who watches a run; the virtual clock stands still meanwhile."""

    def updated(self, simulation: "Simulation") -> int:
        """Every shard has made the update that was asked for. Returns the update at which to be called again."""
        ...


Log = Callable[[float, str, int, int, int, int, float, str], None]
"""(at, kind, worker, shard, push, version, value, because); the columns of records/events.py."""


class Deadlock(RuntimeError):
    """Nobody is computing and nothing is under way: a fault of a strategy."""


class Simulation:
    """One run in virtual time.

    Args:
        strategies: one state machine a shard.
        cluster: durations.
        block_bytes: size on the wire of each shard's block.
        batch_size: samples in one gradient.
        limits: when to end.
        observer: told of updates.
        learning: the shards' parameters and the workers' gradients; None simulates time alone.
        log: told of every event and command; None for none.
    """

    def __init__(
        self,
        *,
        strategies: Sequence[Strategy],
        cluster: Cluster,
        block_bytes: Sequence[int],
        batch_size: int,
        limits: Limits,
        observer: Observer,
        learning: tuple[Sequence[Shard], Workers] | None = None,
        log: Log | None = None,
    ) -> None:
        assert len(strategies) == len(block_bytes) == cluster.num_shards
        num_workers, num_shards = cluster.num_workers, cluster.num_shards
        self.totals = Totals(num_workers)
        self._strategies = strategies
        self._cluster = cluster
        # One shard and messages that take no time: they need no place in the heap.
        self._is_direct = cluster.sends_instantly and cluster.num_shards == 1
        self._compute_s = cluster.compute_s
        self._block_bytes = block_bytes
        self._batch_size = batch_size
        self._limits = limits
        self._observer = observer
        self._shards: Sequence[Shard] = () if learning is None else learning[0]
        self._workers: Workers | None = None if learning is None else learning[1]
        self._log = log
        # What is due, by its time: a number is a worker that has finished computing; several that are due at one time
        # are a list, in the order of scheduling. The heap holds each time once, as a plain float: with 10,000 workers
        # it is the size of what is touched that counts.
        self._due: dict[float, int | list[int | _Message]] = {}
        self._times: list[float] = []
        self._first_is_done = False  # the first time in the heap has been dealt with and may be overwritten
        self._now = 0.0
        self._versions = [0] * num_shards
        self._samples = [0] * num_shards
        self._version_of = [
            array("q", bytes(8 * num_workers)) for _ in range(num_shards)
        ]  # of each block that each worker has
        self._missing = [num_shards] * num_workers  # blocks that a worker still waits for
        # push -> (worker, version, gradient) of pushes that have arrived and are neither applied nor discarded
        self._pending: list[dict[int, tuple[int, int, Gradient | None]]] = [{} for _ in range(num_shards)]
        self._observer_at = 1  # update at which the observer wants to be called
        self._next_look = 1.0  # update at which it is called, or the run ends
        self._staleness: list[int] = []  # staleness -> gradients used
        # pushes that each shard has received from each worker
        self._counts = [[0] * num_workers for _ in range(num_shards)]
        self._ended_by: str | None = None

    def stop(self, reason: str) -> None:
        """End the run after the event under way."""
        self._ended_by = reason

    def run(self) -> str:
        """Simulate to the end.

        Returns:
            Why it ended: "epochs", "max_updates", "max_time_s", "diverged", or what `stop` was given.

        Raises:
            Deadlock: the strategy holds everybody.
        """
        for worker in range(self._cluster.num_workers):
            for shard in range(self._cluster.num_shards):
                self._send_block(worker, shard)
        # The loop is one function, and what it touches at every step is local: a timing-only run is this loop alone.
        times, due, time_limit, totals, log = self._times, self._due, self._limits.time_s, self.totals, self._log
        strategies, pending, workers = self._strategies, self._pending, self._workers
        versions, version_of, samples = self._versions, self._version_of, self._samples
        staleness, counts = self._staleness, self._counts
        batch_size, is_direct, compute_s = self._batch_size, self._is_direct, self._compute_s
        sample_limit = self._limits.samples
        most = push = 0
        while True:
            if self._first_is_done:
                heappop(times)
                self._first_is_done = False
            if not times:
                raise Deadlock(f"nobody can go on at {self._now:.6f} s: {[s.state_dict() for s in self._strategies]}")
            now = times[0]
            if now > time_limit:
                self._now = time_limit
                return self._end("max_time_s")
            self._now = now
            self._first_is_done = True
            entries = due.pop(now)
            for entry in entries if isinstance(entries, list) else (entries,):
                if type(entry) is int:  # the worker has finished its gradient
                    worker, loss, gradient = entry, 0.0, None
                    if workers is not None:
                        loss, gradient = workers.compute(worker)
                        totals.loss_sum += loss
                        totals.loss_count += 1
                        if not math.isfinite(loss):
                            return self._end("diverged")
                    if log is not None:
                        log(now, "computed", worker, -1, -1, version_of[0][worker], loss, "")
                    if not is_direct:
                        self._send_gradient(worker, loss, gradient)
                        continue
                    shard, version = 0, version_of[0][worker]
                else:
                    assert isinstance(entry, _Message)
                    worker, shard, version = entry.worker, entry.shard, entry.version
                    loss, gradient = entry.loss, entry.gradient
                    if not entry.is_push:
                        self._block_arrived(worker)
                        continue

                # A push has arrived, and the shard's strategy answers.
                counts[shard][worker] = count = counts[shard][worker] + 1
                if count > most and shard == 0:  # only now can the lead be larger than ever before
                    most = count
                    totals.max_lead = max(totals.max_lead, most - min(counts[0]))
                pending[shard][push] = (worker, version, gradient)
                if log is not None:
                    log(now, "pushed", worker, shard, push, version, count - 1, "")
                for command in strategies[shard].handle(PushArrived(now, push, worker, version, loss)):
                    if type(command) is Apply:
                        current = versions[shard]
                        if workers is not None:
                            self._learn(shard, command)
                        for number in command.pushes:
                            owner, computed_at, _ = pending[shard].pop(number)
                            stale = current - computed_at
                            if stale >= len(staleness):
                                staleness.extend([0] * (stale + 1 - len(staleness)))
                            staleness[stale] += 1
                            if log is not None:
                                log(now, "applied", owner, shard, number, current + 1, stale, command.because)
                        versions[shard] = current + 1
                        samples[shard] += len(command.pushes) * batch_size
                    elif type(command) is Grant:
                        if log is not None:
                            self._log_answer("granted", shard, command)
                        if is_direct:
                            version_of[0][command.worker] = versions[0]
                            if workers is not None:
                                workers.receive(command.worker, 0)
                            # _start and _schedule, written out: no other calls are made so often
                            granted = command.worker
                            duration = compute_s(granted)
                            if log is not None:
                                log(now, "started", granted, -1, -1, versions[0], duration, "")
                            at = now + duration
                            if at in due:
                                self._schedule(at, granted)
                                continue
                            due[at] = granted
                            if self._first_is_done:
                                self._first_is_done = False
                                heapreplace(times, at)
                            else:
                                heappush(times, at)
                        else:
                            self._send_block(command.worker, shard)
                    elif type(command) is Hold:
                        if log is not None:
                            self._log_answer("held", shard, command)
                    elif type(command) is Discard:
                        self._discard(shard, command)
                    else:
                        raise NotImplementedError(f"{command}: no strategy so far needs it")
                push += 1
                if versions[shard] >= self._next_look or samples[shard] >= sample_limit:
                    self._look()
                    if self._ended_by is not None:
                        return self._end(self._ended_by)

    def _schedule(self, at: float, entry: "int | _Message") -> None:
        same = self._due.get(at)
        if isinstance(same, list):
            same.append(entry)
        elif same is not None:
            self._due[at] = [same, entry]
        else:
            self._due[at] = entry if isinstance(entry, int) else [entry]
            if self._first_is_done:  # one sift in place of the two of a pop and a push
                self._first_is_done = False
                heapreplace(self._times, at)
            else:
                heappush(self._times, at)

    def _send_block(self, worker: int, shard: int) -> None:
        """The shard's current version leaves for the worker."""
        self._version_of[shard][worker] = self._versions[shard]
        if self._workers is not None:
            self._workers.receive(worker, shard)
        at = self._cluster.pull(self._now, shard, worker, self._block_bytes[shard])
        self._schedule(at, _Message(False, worker, shard))

    def _block_arrived(self, worker: int) -> None:
        """A block reached the worker; with the last one it starts to compute."""
        self._missing[worker] -= 1
        if self._missing[worker] == 0:
            self._start(worker)

    def _start(self, worker: int) -> None:
        """The worker begins its next gradient."""
        duration = self._compute_s(worker)
        if self._log is not None:
            self._log(self._now, "started", worker, -1, -1, self._version_of[0][worker], duration, "")
        self._schedule(self._now + duration, worker)

    def _send_gradient(self, worker: int, loss: float, gradient: Gradient | None) -> None:
        """A finished gradient leaves for every shard."""
        self._missing[worker] = self._cluster.num_shards
        for shard, versions in enumerate(self._version_of):
            at = self._cluster.push(self._now, worker, shard, self._block_bytes[shard])
            self._schedule(at, _Message(True, worker, shard, versions[worker], loss, gradient))

    def _log_answer(self, kind: str, shard: int, command: Grant | Hold) -> None:
        assert self._log is not None
        self._log(self._now, kind, command.worker, shard, -1, self._versions[shard], 0.0, command.because)

    def _learn(self, shard: int, command: Apply) -> None:
        """The optimizer step of an update."""
        assert self._workers is not None
        pending = self._pending[shard]
        gradients = [gradient for push in command.pushes if (gradient := pending[push][2]) is not None]
        self._shards[shard].apply(gradients, command.scale, self._samples[shard], self._versions[shard])
        for gradient in gradients:
            self._workers.release(gradient)

    def _look(self) -> None:
        """A shard has come to where the run may end or the observer wants to look."""
        totals, limits = self.totals, self._limits
        before = totals.updates
        self._count()
        if totals.updates == before:
            return  # other shards are not as far yet
        self._ended_by = limits.reached(totals.samples, totals.updates)
        if totals.updates >= self._observer_at:
            self._observer_at = self._observer.updated(self)
        self._next_look = min(self._observer_at, limits.updates)

    def _count(self) -> None:
        """Bring the totals up to now; the shard that is furthest behind tells how far the run is."""
        self.totals.time_s = self._now
        self.totals.updates = min(self._versions)
        self.totals.samples = min(self._samples)

    def _end(self, reason: str) -> str:
        """The last word on the totals."""
        self._count()
        totals = self.totals
        waiting = Counter(worker for worker, _, _ in self._pending[0].values())
        totals.used_by_worker = [
            pushed - discarded - waiting[worker]
            for worker, (pushed, discarded) in enumerate(zip(self._counts[0], totals.discarded_by_worker, strict=True))
        ]
        totals.staleness = {stale: count for stale, count in enumerate(self._staleness) if count}
        totals.busy_s_by_worker = [self._cluster.busy_s(worker) for worker in range(totals.num_workers)]
        for at, entries in self._due.items():  # what nobody waits for any more was not computed
            for entry in entries if isinstance(entries, list) else (entries,):
                if isinstance(entry, int):
                    totals.busy_s_by_worker[entry] -= max(0.0, at - self._now)
        return reason

    def _discard(self, shard: int, command: Discard) -> None:
        worker, version, gradient = self._pending[shard].pop(command.push)
        if self._workers is not None and gradient is not None:
            self._workers.release(gradient)
        if shard == 0:
            self.totals.discarded_by_worker[worker] += 1
        if self._log is not None:
            self._log(self._now, "discarded", worker, shard, command.push, version, 0.0, command.because)


@dataclass(frozen=True, slots=True)
class _Message:
    """Under way between a worker and a shard: a push, or a block for the worker."""

    is_push: bool
    worker: int
    shard: int
    version: int = 0
    loss: float = 0.0
    gradient: Gradient | None = None
