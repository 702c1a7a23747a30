"""Active workers and the number of gradients that an update waits for, shared by several strategies."""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import PlainState
from syncline.strategies.protocol import Command, Event, StrategyOptions, TimerFired, WaitFor, WorkerJoined


@dataclass(frozen=True, slots=True)
class KOptions(StrategyOptions):
    """Options of the four K-variants."""

    name: str
    k: int = ranged(2, "in 1 .. 1,000,000")  # K, 1 .. P; for the batch variants, any number of mini-batches

    single_server: ClassVar[bool] = True
    is_batch: ClassVar[bool] = False

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.k > num_workers and not self.is_batch:
            raise ValueError(f"strategy.k must be <= cluster.workers = {num_workers}, got {self.k}")


class Members(PlainState):
    """The active workers, and the count that an update waits for (N of backup workers, K, PSP's c).

    Args:
        num_workers: active at first.
        wanted: the configured count, >= 1.
        clips: never wait for more gradients than workers; else one worker may contribute several.
        backups: number of workers that are not waited for.
    """

    __slots__ = ("backups", "clips", "count", "here", "wanted")

    here: dict[int, None]
    wanted: int
    count: int

    def __init__(self, num_workers: int, wanted: int, clips: bool = True, backups: int = 0) -> None:
        self.here = dict.fromkeys(range(num_workers))
        self.wanted = wanted
        self.clips = clips
        self.backups = backups
        self.count = wanted

    def check(self, event: Event) -> int:
        """Returns the worker that pushes, leaves or joins.

        Raises:
            ProtocolError: a worker that pushes or leaves is not active, or one that joins is; a timer has fired.
        """
        if isinstance(event, TimerFired):
            raise refuse(event, "no timer is set")
        joins = type(event) is WorkerJoined
        if (event.worker in self.here) is joins:
            raise refuse(event, "the worker is already here" if joins else "no such worker", f"here={list(self.here)}")
        return event.worker

    def join(self, worker: int) -> list[Command]:
        """Add a worker; returns a command if the count changes."""
        self.here[worker] = None
        return self._clip(f"worker {worker} joined")

    def leave(self, worker: int) -> list[Command]:
        """Remove a worker; returns a command if the count changes."""
        del self.here[worker]
        return self._clip(f"worker {worker} left")

    def want(self, wanted: int, because: str) -> list[Command]:
        """Configure another count; returns a command if the count changes."""
        self.wanted = wanted
        return self._clip(because)

    def _clip(self, because: str) -> list[Command]:
        count = max(1, min(self.wanted, len(self.here) - self.backups)) if self.clips else self.wanted
        if count == self.count:
            return []
        self.count = count
        return [WaitFor(count, because)]
