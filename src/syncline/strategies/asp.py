"""Asynchronous Parallel (dssp.txt, section I-A.2): no worker waits.

    on a push of worker p:  update the weights with g_p; grant p

Departures: none.
"""

from dataclasses import dataclass

from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    PushArrived,
    StrategyOptions,
    WorkerJoined,
    WorkerLeft,
)


@dataclass(frozen=True, slots=True)
class AspOptions(StrategyOptions):
    name: str = "asp"

    def start(self, num_workers: int) -> "Asp":
        return Asp(num_workers)


class Asp(Machine):
    grants: dict[int, Grant]  # worker -> its answer, which is always the same message

    def __init__(self, num_workers: int) -> None:
        self.grants = {worker: Grant(worker, "nobody waits") for worker in range(num_workers)}

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, PushArrived) and (grant := self.grants.get(event.worker)) is not None:
            return [Apply((event.push,)), grant]
        if isinstance(event, WorkerJoined) and event.worker not in self.grants:
            self.grants[event.worker] = Grant(event.worker, "nobody waits")
            return [Grant(event.worker, "joined")]
        if isinstance(event, WorkerLeft) and event.worker in self.grants:
            del self.grants[event.worker]
            return []
        raise refuse(event, "no timer is set, or the worker is not here, or here already", list(self.grants))
