"""Asynchronous Parallel (dssp.txt, section I-A.2): nobody waits.

    on a push of worker p:  update the weights with g_p; grant p

Departures: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from syncline.strategies.clocks import refuse
from syncline.strategies.protocol import Apply, Command, Event, Grant, PushArrived, TimerFired, WorkerJoined, WorkerLeft


@dataclass(frozen=True, slots=True)
class AspOptions:
    name: str = "asp"

    single_server: ClassVar[bool] = False

    @property
    def lead_bound(self) -> int | None:
        return None

    def start(self, num_workers: int) -> "Asp":
        return Asp(num_workers)


class Asp:
    def __init__(self, num_workers: int) -> None:
        self.workers = set(range(num_workers))

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, PushArrived) and event.worker in self.workers:
            return [Apply((event.push,)), Grant(event.worker, "nobody waits")]
        if isinstance(event, TimerFired):
            raise refuse(event, "no timer is set")
        if isinstance(event, PushArrived) or (event.worker in self.workers) is not isinstance(event, WorkerLeft):
            raise refuse(event, "not here, or here already", self.workers)
        if isinstance(event, WorkerJoined):
            self.workers.add(event.worker)
            return [Grant(event.worker, "joined")]
        self.workers.remove(event.worker)
        return []

    def state_dict(self) -> dict[str, Any]:
        return {"workers": sorted(self.workers)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.workers = set(state["workers"])
