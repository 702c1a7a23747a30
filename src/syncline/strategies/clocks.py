"""What several strategies share: how many pushes each worker has made, who is slowest and fastest, who is held.

Every operation but `leave` takes constant time, so that 10,000 workers cost no more a step than 32.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from syncline.strategies.protocol import ProtocolError, PushArrived, WorkerJoined, WorkerLeft


class Clocks:
    """Pushes received so far from each worker that is here (t_p in the papers)."""

    __slots__ = ("_at", "_counts", "maximum", "minimum")

    def __init__(self, workers: Iterable[int]) -> None:
        self._counts = dict.fromkeys(workers, 0)
        # count -> its workers; a worker enters on its push, so each inner one runs from the oldest last push on.
        # (Ordered: taking the first of a plain dict that loses its first ones again and again is not constant time.)
        self._at: dict[int, OrderedDict[int, None]] = {0: OrderedDict.fromkeys(self._counts)}
        self.minimum = 0
        self.maximum = 0

    def __contains__(self, worker: int) -> bool:
        return worker in self._counts

    def __len__(self) -> int:
        return len(self._counts)

    def __getitem__(self, worker: int) -> int:
        return self._counts[worker]

    @property
    def slowest(self) -> int:
        """The worker with the fewest pushes; of several, the one whose last push is oldest."""
        return next(iter(self._at[self.minimum]))

    def is_fastest(self, worker: int) -> bool:
        """Has the most pushes; of several all count as fastest."""
        return self._counts[worker] == self.maximum

    def lead(self, worker: int) -> int:
        """Pushes that `worker` is ahead of the slowest."""
        return self._counts[worker] - self.minimum

    def tick(self, worker: int) -> bool:
        """Count one push of `worker`; true if the slowest count rose by it."""
        count = self._counts[worker]
        self._counts[worker] = count + 1
        old = self._at[count]
        del old[worker]
        new = self._at.get(count + 1)
        if new is None:
            new = self._at[count + 1] = OrderedDict()
        new[worker] = None
        if count == self.maximum:
            self.maximum = count + 1
        if old:
            return False
        del self._at[count]
        if count != self.minimum:
            return False
        self.minimum = count + 1
        return True

    def join(self, worker: int) -> None:
        """Enter `worker` level with the slowest, so that it neither holds anybody back nor is held."""
        self._counts[worker] = self.minimum
        self._at.setdefault(self.minimum, OrderedDict())[worker] = None

    def leave(self, worker: int) -> None:
        """Forget `worker`; it no longer counts as slowest or fastest."""
        count = self._counts.pop(worker)
        del self._at[count][worker]
        if not self._at[count]:
            del self._at[count]
        if self._at:
            self.minimum, self.maximum = min(self._at), max(self._at)
        else:  # whoever joins next starts level with the furthest, not in the past
            self.minimum = self.maximum

    def state_dict(self) -> dict[str, Any]:
        return {
            "minimum": self.minimum,
            "maximum": self.maximum,
            "workers": [[worker, count] for count in sorted(self._at) for worker in self._at[count]],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._counts = dict(state["workers"])
        self._at = {}
        for worker, count in state["workers"]:
            self._at.setdefault(count, OrderedDict())[worker] = None
        self.minimum, self.maximum = state["minimum"], state["maximum"]

    def __repr__(self) -> str:
        return f"clocks={self._counts}"


def refuse(event: object, why: str, *state: object) -> ProtocolError:
    """The error for an event that cannot happen, with the state that forbids it."""
    return ProtocolError(f"{event}: {why}; {' '.join(map(str, state))}")


def check_membership(event: PushArrived | WorkerJoined | WorkerLeft, clocks: Clocks) -> None:
    """Workers that push or leave are here, workers that join are not.

    Raises:
        ProtocolError: otherwise.
    """
    joining = type(event) is WorkerJoined
    if (event.worker in clocks) is joining:
        raise refuse(event, "the worker is already here" if joining else "no such worker", clocks)
