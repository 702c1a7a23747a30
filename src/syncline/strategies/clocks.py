"""Push counts, shared by several strategies: how many pushes each worker has made, who is slowest and fastest.

Every operation but `leave` takes constant time on average, so that 10,000 workers cost no more a step than 32.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from syncline.strategies.machine import PlainState
from syncline.strategies.protocol import ProtocolError, WorkerJoined, WorkerLeft


class Clocks(PlainState):
    """Pushes received so far from each active worker (t_p in the papers)."""

    __slots__ = ("_reached", "counts", "maximum", "minimum", "slowest")

    def __init__(self, workers: Iterable[int]) -> None:
        self._begin([(worker, 0) for worker in workers], 0, 0)

    def _begin(self, workers: Iterable[tuple[int, int]], minimum: int, maximum: int) -> None:
        """workers: pairs of worker and count; those with equal counts in order of their last push."""
        self.counts: dict[int, int] = dict(workers)  # of the active workers; only the methods change it
        self.minimum = minimum
        self.maximum = maximum
        # count -> workers that reached it, in order. A worker that moves on is removed only when it would be the
        # slowest: removing it at once would cost every push as much as everything else here.
        self._reached: dict[int, deque[int]] = {count: deque() for count in range(minimum, maximum + 1)}
        for worker, count in self.counts.items():
            self._reached[count].append(worker)
        self.slowest = -1  # the worker with the fewest pushes; of several, the one whose last push is oldest; -1: none
        if self.counts:
            self._find_slowest()

    def _find_slowest(self) -> None:
        """Find a worker of the lowest count that still has one."""
        waiting = self._reached[self.minimum]
        while not waiting or self.counts[waiting[0]] > self.minimum:
            if waiting:
                waiting.popleft()
            else:
                del self._reached[self.minimum]
                self.minimum += 1
                waiting = self._reached[self.minimum]
        self.slowest = waiting[0]

    def is_fastest(self, worker: int) -> bool:
        """Whether it has the most pushes; several may."""
        return self.counts[worker] == self.maximum

    def lead(self, worker: int) -> int:
        """Pushes that `worker` is ahead of the slowest."""
        return self.counts[worker] - self.minimum

    def tick(self, worker: int) -> int:
        """Count one push of `worker`; returns its lead afterwards."""
        self.counts[worker] = count = self.counts[worker] + 1
        if count > self.maximum:
            self.maximum = count
            self._reached[count] = deque()
        self._reached[count].append(worker)
        if worker == self.slowest:
            self._find_slowest()
        return count - self.minimum

    def join(self, event: WorkerJoined) -> None:
        """Add a worker with the count of the slowest, so that it neither delays others nor is held.

        Raises:
            ProtocolError: it is active.
        """
        worker = event.worker
        if worker in self.counts:
            raise refuse(event, "the worker is already here", self)
        self.counts[worker] = self.minimum
        self._reached[self.minimum].append(worker)
        if self.slowest < 0:
            self.slowest = worker

    def leave(self, event: WorkerLeft) -> None:
        """Remove a worker.

        Raises:
            ProtocolError: it is not active.
        """
        worker = event.worker
        if worker not in self.counts:
            raise refuse(event, "no such worker", self)
        left = [(other, count) for other, count in self._in_order() if other != worker]
        if left:
            self._begin(left, left[0][1], left[-1][1])
        else:  # the next to join starts with the largest count so far
            self._begin([], self.maximum, self.maximum)

    def _in_order(self) -> list[tuple[int, int]]:
        """Pairs of worker and count, the slowest first."""
        return [
            (worker, count)
            for count in range(self.minimum, self.maximum + 1)
            for worker in self._reached[count]
            if self.counts[worker] == count
        ]

    def state_dict(self) -> dict[str, Any]:
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "workers": [[worker, count] for worker, count in self._in_order()],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._begin(state["workers"], state["minimum"], state["maximum"])

    def __repr__(self) -> str:
        return f"clocks={self.counts}"


def refuse(event: object, why: str, *state: object) -> ProtocolError:
    """The error for an impossible event, with the state that forbids it."""
    return ProtocolError(f"{event}: {why}; {' '.join(map(str, state))}")
