"""Asynchronous Parallel (dssp.txt, section I-A.2): no worker waits.

    on a push of worker p:  update the weights with g_p; grant p

Departures: none.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from syncline.strategies.clocks import refuse
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


class Asp:
    def __init__(self, num_workers: int) -> None:
        # worker -> its answer, which is always the same message
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

    def state_dict(self) -> dict[str, Any]:
        return {"workers": list(self.grants)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.grants = {worker: Grant(worker, "nobody waits") for worker in state["workers"]}
