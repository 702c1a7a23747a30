"""Partially Synchronous Parallelism (psp.txt, section 3, Algorithm 1): servers and workers skip the slowest.

Shard at version t (lines 1-15):
    broadcast the block to all workers; drop a pushed gradient tagged t' < t, keep any other; once c have arrived, and
    tau1 seconds have passed or all workers have answered, update with the mean of the d received at d times the rate
Worker at its own counter t (lines 1-19):
    take every block tagged t' >= t, keep the old one where none arrived; once b % of the blocks have arrived, and tau2
    seconds have passed or all have arrived, compute, push every block tagged t, t <- t + 1

Departures, each a decision where the pseudo-code is open:
- Line 13's "dg" is the mean g/d; d times the rate is the linear scaling rule of section 2.2.
- Line 6 starts from zeros, which must not be trained on: the first pull waits for all blocks. Its counter starts at the
  version that b % of them have reached: 0, or that of the others for a worker that joins later. (At the newest version
  it could push ahead of a shard that the others wait for, a deadlock.)
- Line 18 increments by one (`tag=step`), so a late worker stays late until it has to wait. `tag=newest` advances the
  counter at any time to the newest version that b % of the blocks have reached: a late gradient counts, and may carry a
  newer tag than the weights it was computed on.
- c falls below the configured one when fewer workers are left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from syncline.checks import one_of, ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine, PlainState
from syncline.strategies.members import Members
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    PullRule,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WakeAt,
    WorkerJoined,
)

TAGS = ("step", "newest")


@dataclass(frozen=True, slots=True)
class PspOptions(StrategyOptions):
    name: str = "psp"
    c: int | None = ranged(None, ">= 1")  # gradients that form an update, 1 .. P; None: P
    b: float = ranged(100.0, "in (0, 100]")  # per cent of the blocks that a worker waits for
    tau1: float = ranged(0.0, ">= 0")  # seconds that a shard waits for more than c
    tau2: float = ranged(0.0, ">= 0")  # seconds that a worker waits for more than b %
    tag: str = one_of("step", TAGS)

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.c is not None and self.c > num_workers:
            raise ValueError(f"strategy.c must be <= cluster.workers = {num_workers}, got {self.c}")

    def start(self, num_workers: int) -> "Psp":
        return Psp(num_workers, self)

    def pull_rule(self, num_shards: int) -> PullRule:
        needed = math.ceil(self.b / 100 * num_shards - 1e-9)  # 0.07 * 100 is not 7
        return PartialPull(num_shards, needed, self)


class Psp(Machine):
    """The shard's side of the algorithm."""

    members: Members
    version: int
    pushes: list[int]  # for the next update
    answered: set[int]  # the workers they came from
    deadline: float | None  # seconds; of tau1, once c are in

    def __init__(self, num_workers: int, options: PspOptions) -> None:
        self.tau1 = options.tau1
        self.members = Members(num_workers, options.c or num_workers)
        self.version, self.pushes, self.answered, self.deadline = 0, [], set(), None
        self.grants = {worker: Grant(worker, "broadcast") for worker in range(num_workers)}  # they never change

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired):
            if self.deadline is None or event.at < self.deadline:
                raise refuse(event, f"the timer is set to {self.deadline}")
            self.deadline = None
            return self._update()
        self.members.check(event)
        if isinstance(event, PushArrived):
            if event.version < self.version:
                return [Discard(event.push, f"tagged {event.version}, now {self.version}")]
            self.pushes.append(event.push)
            self.answered.add(event.worker)
            return self._go_on(event.at) if len(self.pushes) >= self.members.count else []
        if isinstance(event, WorkerJoined):
            return [*self.members.join(event.worker), Grant(event.worker, "joined")]
        return self.members.leave(event.worker) + self._go_on(event.at)

    def _go_on(self, now: float) -> list[Command]:
        """Update if it is due, else set the timer."""
        here = self.members.here
        if len(self.pushes) < self.members.count or not here:
            return []
        if self.tau1 == 0 or all(worker in self.answered for worker in here):
            return self._update()
        if self.deadline is not None:
            return []
        self.deadline = now + self.tau1
        return [WakeAt(self.deadline, f"{len(self.pushes)} are here")]

    def _update(self) -> list[Command]:
        num = len(self.pushes)
        commands: list[Command] = [Apply(tuple(self.pushes), float(num), because=f"{num} are here")]
        commands += [self.grants[worker] for worker in self.members.here]
        if self.deadline is not None:
            commands.append(WakeAt(math.inf, "all have answered"))
            self.deadline = None
        self.version += 1
        self.pushes.clear()
        self.answered.clear()
        return commands


class PartialPull(PlainState):
    """The worker's side of the algorithm.

    Args:
        num_shards: S; one block each.
        needed: blocks to wait for, 1 .. S.
        options: tau2 and tag.
    """

    __slots__ = ("_came", "_goes_at", "_is_waiting", "_jumps", "_needed", "_newest", "_num_shards", "_tau2", "tag")

    tag: int  # t; below 0 until the first pull is done
    _newest: list[float]  # version of the newest block from each shard; infinite if no more will arrive
    _came: int  # blocks of the version that it waits for, or a newer one
    _is_waiting: bool
    _goes_at: float | None  # seconds; of tau2, once the needed ones have arrived

    def __init__(self, num_shards: int, needed: int, options: PspOptions) -> None:
        self.tag = -1
        self._num_shards = num_shards
        self._needed = needed
        self._tau2 = options.tau2
        self._jumps = options.tag == "newest"
        self._newest = [-1] * num_shards
        self._came, self._is_waiting, self._goes_at = 0, True, None

    def arrived(self, at: float, shard: int, version: int) -> float | None:
        before = self._newest[shard]
        if version > before:
            self._newest[shard] = version
            if self._jumps and self.tag >= 0:
                self.tag = max(self.tag, self._reached)
                self._count()
            elif before < max(self.tag, 0) <= version:
                self._came += 1
        return self._when(at) if self._is_waiting else None

    def closed(self, at: float, shard: int) -> float | None:
        self._newest[shard] = math.inf
        self._count()
        return self._when(at) if self._is_waiting else None

    def pushed(self, at: float) -> float | None:
        self._came -= self._newest.count(self.tag)  # blocks that are new enough for this gradient only
        self.tag += 1
        self._is_waiting, self._goes_at = True, None
        return self._when(at)

    def start(self) -> Sequence[int]:
        self._is_waiting = False
        if self.tag < 0:
            self.tag = self._reached
            self._count()
            return range(self._num_shards)
        if self._came == self._num_shards:
            return range(self._num_shards)
        tag = self.tag
        return [shard for shard, version in enumerate(self._newest) if version >= tag]

    @property
    def _reached(self) -> int:
        """The version that the needed number of blocks have reached."""
        reached = sorted(self._newest, reverse=True)[self._needed - 1]
        return int(reached) if reached < math.inf else max(self.tag, 0)

    def _count(self) -> None:
        wanted = max(self.tag, 0)
        self._came = len([version for version in self._newest if version >= wanted])

    def _when(self, now: float) -> float | None:
        if self._came == self._num_shards:
            return now
        if self._came < self._needed or self.tag < 0:
            return None
        if self._goes_at is None:
            self._goes_at = now + self._tau2
        return self._goes_at
