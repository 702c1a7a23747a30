"""What the strategies that wait for a number of gradients share: who is here, and how many an update waits for."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from syncline.strategies.clocks import refuse
from syncline.strategies.protocol import Command, PushArrived, StrategyOptions, WaitFor, WorkerJoined, WorkerLeft


@dataclass(frozen=True, slots=True)
class KOptions(StrategyOptions):
    """What the four K-variants are given."""

    name: str
    k: int = 2  # K, 1 .. P; of the batch variants any number of mini-batches

    single_server: ClassVar[bool] = True
    is_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(f"strategy.k must be >= 1, got {self.k}")

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.k > num_workers and not self.is_batch:
            raise ValueError(f"strategy.k must be <= cluster.workers = {num_workers}, got {self.k}")


class Members:
    """The workers that are here and the count that an update waits for (N of backup workers, K, PSP's c).

    Args:
        num_workers: that are here at first.
        wanted: the count that was asked for, >= 1.
        clips: never wait for more gradients than there are workers; else one worker may give several.
        spare: workers that are not waited for, however many there are.
    """

    __slots__ = ("clips", "count", "here", "spare", "wanted")

    def __init__(self, num_workers: int, wanted: int, clips: bool = True, spare: int = 0) -> None:
        self.here = dict.fromkeys(range(num_workers))
        self.wanted = wanted
        self.clips = clips
        self.spare = spare
        self.count = wanted

    def check(self, event: PushArrived | WorkerJoined | WorkerLeft) -> None:
        """Workers that push or leave are here, workers that join are not.

        Raises:
            ProtocolError: otherwise.
        """
        joins = type(event) is WorkerJoined
        if (event.worker in self.here) is joins:
            raise refuse(event, "the worker is already here" if joins else "no such worker", f"here={list(self.here)}")

    def join(self, worker: int) -> list[Command]:
        """A worker is here. Returns the news, if the count changes."""
        self.here[worker] = None
        return self._clip(f"worker {worker} joined")

    def leave(self, worker: int) -> list[Command]:
        """A worker is gone. Returns the news, if the count changes."""
        del self.here[worker]
        return self._clip(f"worker {worker} left")

    def want(self, wanted: int, because: str) -> list[Command]:
        """Another count is asked for. Returns the news, if the count changes."""
        self.wanted = wanted
        return self._clip(because)

    def _clip(self, because: str) -> list[Command]:
        count = max(1, min(self.wanted, len(self.here) - self.spare)) if self.clips else self.wanted
        if count == self.count:
            return []
        self.count = count
        return [WaitFor(count, because)]

    def state_dict(self) -> dict[str, Any]:
        return {"here": list(self.here), "wanted": self.wanted, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.here = dict.fromkeys(state["here"])
        self.wanted, self.count = state["wanted"], state["count"]
