"""Virtual time: an event heap that drives the strategies' state machines, with true gradients or with times alone.

A worker's cycle: its blocks arrive (pull), it computes, its gradient travels to every shard (push), each shard's
strategy answers. The gradient is computed when the finishing event fires, at the snapshot the worker was granted.
Events are ordered by (time, order of scheduling), so a run depends on nothing but its inputs.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush, heapreplace
from typing import Protocol

from syncline.simulation.server import Gradient, Shard
from syncline.simulation.worker import Workers
from syncline.strategies.protocol import Apply, Discard, Grant, Hold, PushArrived, Strategy
from syncline.timing.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Limits:
    """When a run ends: as soon as one of them is reached."""

    samples: float = math.inf  # used in updates
    updates: float = math.inf
    time_s: float = math.inf  # virtual


@dataclass(slots=True)
class Totals:
    """What a run has done so far. Of several shards the one furthest behind gives its updates and samples."""

    num_workers: int
    time_s: float = 0.0  # virtual seconds, of the last update
    updates: int = 0
    samples: int = 0  # used in updates
    max_lead: int = 0  # most pushes that any worker was ever ahead of the slowest
    staleness: dict[int, int] = field(default_factory=dict)  # versions between pull and use -> gradients
    used_by_worker: list[int] = field(init=False)
    discarded_by_worker: list[int] = field(init=False)
    busy_s_by_worker: list[float] = field(init=False)  # computing, injected delays included
    loss_sum: float = 0.0  # over the pushes that arrived since a reader last set it to 0
    loss_count: int = 0

    def __post_init__(self) -> None:
        self.used_by_worker = [0] * self.num_workers
        self.discarded_by_worker = [0] * self.num_workers
        self.busy_s_by_worker = [0.0] * self.num_workers

    @property
    def mean_staleness(self) -> float:
        count = sum(self.staleness.values())
        return sum(stale * times for stale, times in self.staleness.items()) / count if count else 0.0


class Observer(Protocol):
    """Who watches a run; the virtual clock stands still meanwhile."""

    def updated(self, simulation: "Simulation") -> int:
        """Every shard has made one more update. Returns the update at which to be called again."""
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
        self._busy_s, self._used = self.totals.busy_s_by_worker, self.totals.used_by_worker
        self._observer = observer
        self._shards, self._workers = learning if learning is not None else ((), None)
        self._log = log
        # (time, order of scheduling, worker, message); see _Message
        self._heap: list[tuple[float, int, int, _Message | None]] = []
        self._top_is_done = False  # the heap's first entry has been dealt with and may be overwritten
        self._sequence = 0
        self._now = 0.0
        self._versions = [0] * num_shards
        self._samples = [0] * num_shards
        self._version_of = [[0] * num_workers for _ in range(num_shards)]  # of each block that each worker has
        self._missing = [num_shards] * num_workers  # blocks that a worker still waits for
        # push -> (worker, version, gradient) of pushes that have arrived and are neither applied nor discarded
        self._pending: list[dict[int, tuple[int, int, Gradient | None]]] = [{} for _ in range(num_shards)]
        self._next_push = 0
        self._leads = [_Leads(num_workers) for _ in range(num_shards)]
        self._next_look = 1
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
        heap, time_limit = self._heap, self._limits.time_s
        while self._ended_by is None:
            if self._top_is_done:
                heappop(heap)
                self._top_is_done = False
            if not heap:
                raise Deadlock(f"nobody can go on at {self._now:.6f} s: {[s.state_dict() for s in self._strategies]}")
            at, _, worker, message = heap[0]
            if at > time_limit:
                self.totals.time_s = time_limit
                return "max_time_s"
            self._now = at
            self._top_is_done = True
            if message is None:
                self._computed(worker)
            elif message.is_push:
                self._arrived(worker, message.shard, message.version, message.loss, message.gradient)
            else:
                self._block_arrived(worker)
        return self._ended_by

    def _schedule(self, at: float, worker: int, message: "_Message | None") -> None:
        self._sequence = sequence = self._sequence + 1
        if self._top_is_done:  # one sift in place of the two of a pop and a push
            self._top_is_done = False
            heapreplace(self._heap, (at, sequence, worker, message))
        else:
            heappush(self._heap, (at, sequence, worker, message))

    def _send_block(self, worker: int, shard: int) -> None:
        """The shard's current version leaves for the worker."""
        self._version_of[shard][worker] = self._versions[shard]
        if self._workers is not None:
            self._workers.receive(worker, shard)
        if self._is_direct:
            self._start(worker)
        else:
            at = self._cluster.pull(self._now, shard, worker, self._block_bytes[shard])
            self._schedule(at, worker, _Message(is_push=False, shard=shard))

    def _block_arrived(self, worker: int) -> None:
        """A block reached the worker; with the last one it starts to compute."""
        self._missing[worker] -= 1
        if self._missing[worker] == 0:
            self._start(worker)

    def _start(self, worker: int) -> None:
        """The worker begins its next gradient."""
        duration = self._compute_s(worker)
        self._busy_s[worker] += duration
        if self._log is not None:
            self._log(self._now, "started", worker, -1, -1, self._version_of[0][worker], duration, "")
        # _schedule, written out: this is the hottest line of a timing-only run
        self._sequence = sequence = self._sequence + 1
        if self._top_is_done:
            self._top_is_done = False
            heapreplace(self._heap, (self._now + duration, sequence, worker, None))
        else:
            heappush(self._heap, (self._now + duration, sequence, worker, None))

    def _computed(self, worker: int) -> None:
        """The worker's gradient is finished and leaves for every shard."""
        loss, gradient = 0.0, None
        if self._workers is not None:
            loss, gradient = self._workers.compute(worker)
            self.totals.loss_sum += loss
            self.totals.loss_count += 1
            if not math.isfinite(loss):
                self.stop("diverged")
                return
        if self._log is not None:
            self._log(self._now, "computed", worker, -1, -1, self._version_of[0][worker], loss, "")
        if self._is_direct:
            self._arrived(worker, 0, self._version_of[0][worker], loss, gradient)
            return
        self._missing[worker] = self._cluster.num_shards
        for shard, versions in enumerate(self._version_of):
            at = self._cluster.push(self._now, worker, shard, self._block_bytes[shard])
            message = _Message(is_push=True, shard=shard, version=versions[worker], loss=loss, gradient=gradient)
            self._schedule(at, worker, message)

    def _arrived(self, worker: int, shard: int, version: int, loss: float, gradient: Gradient | None) -> None:
        """A push reached its shard, whose strategy answers."""
        push = self._next_push
        self._next_push = push + 1
        lead = self._leads[shard].tick(worker)
        if lead > self.totals.max_lead:
            self.totals.max_lead = lead
        self._pending[shard][push] = (worker, version, gradient)
        if self._log is not None:
            self._log(self._now, "pushed", worker, shard, push, version, loss, "")
        for command in self._strategies[shard].handle(PushArrived(self._now, push, worker, version, loss)):
            if type(command) is Apply:
                self._apply(shard, command)
            elif type(command) is Grant:
                if self._log is not None:
                    self._log_answer("granted", shard, command)
                self._send_block(command.worker, shard)
            elif type(command) is Hold:
                if self._log is not None:
                    self._log_answer("held", shard, command)
            elif type(command) is Discard:
                self._discard(shard, command)
            else:
                raise NotImplementedError(f"{command}: no strategy so far needs it")

    def _log_answer(self, kind: str, shard: int, command: Grant | Hold) -> None:
        assert self._log is not None
        self._log(self._now, kind, command.worker, shard, -1, self._versions[shard], 0.0, command.because)

    def _apply(self, shard: int, command: Apply) -> None:
        pending, totals = self._pending[shard], self.totals
        version, samples = self._versions[shard], self._samples[shard]
        if self._workers is not None:
            gradients = [gradient for push in command.pushes if (gradient := pending[push][2]) is not None]
            self._shards[shard].apply(gradients, command.scale, samples, version)
            for gradient in gradients:
                self._workers.release(gradient)
        staleness = totals.staleness
        for push in command.pushes:
            worker, pushed_version, _ = pending.pop(push)
            stale = version - pushed_version
            staleness[stale] = staleness.get(stale, 0) + 1
            self._used[worker] += 1
            if self._log is not None:
                self._log(self._now, "applied", worker, shard, push, version + 1, stale, command.because)
        self._versions[shard] = version = version + 1
        self._samples[shard] = samples = samples + len(command.pushes) * self._batch_size
        if len(self._versions) > 1:  # the shard that is furthest behind tells how far the run is
            version, samples = min(self._versions), min(self._samples)
        if version > totals.updates:
            totals.time_s = self._now
            totals.updates = version
            totals.samples = samples
            if samples >= self._limits.samples:
                self._ended_by = "epochs"
            elif version >= self._limits.updates:
                self._ended_by = "max_updates"
            if version >= self._next_look:
                self._next_look = self._observer.updated(self)

    def _discard(self, shard: int, command: Discard) -> None:
        worker, version, gradient = self._pending[shard].pop(command.push)
        if self._workers is not None and gradient is not None:
            self._workers.release(gradient)
        self.totals.discarded_by_worker[worker] += 1
        if self._log is not None:
            self._log(self._now, "discarded", worker, shard, command.push, version, 0.0, command.because)


@dataclass(frozen=True, slots=True)
class _Message:
    """Under way between a worker and a shard: a push, or a block for the worker."""

    is_push: bool
    shard: int
    version: int = 0
    loss: float = 0.0
    gradient: Gradient | None = None


class _Leads:
    """How far the fastest worker is ahead of the slowest, in pushes that arrived, whatever the strategy believes."""

    __slots__ = ("_at", "_counts", "_maximum", "_minimum")

    def __init__(self, num_workers: int) -> None:
        self._counts = [0] * num_workers
        self._at = {0: num_workers}  # pushes -> workers that have made so many
        self._minimum = self._maximum = 0

    def tick(self, worker: int) -> int:
        """Count one push; the lead of the fastest worker now."""
        count = self._counts[worker]
        self._counts[worker] = after = count + 1
        at = self._at
        at[after] = at.get(after, 0) + 1
        at[count] = left = at[count] - 1
        if left == 0:
            del at[count]
            if count == self._minimum:
                self._minimum = after
        if after > self._maximum:
            self._maximum = after
        return self._maximum - self._minimum
