"""Bulk Synchronous Parallel (dssp.txt, section I-A.1): all push, one update, all go on at the same version.

    on a push of worker p:  keep g_p; once every worker has pushed, update the weights with the mean, grant all

Departures: a worker that leaves is no longer waited for (the live engine stops such a run and restarts it from its
checkpoint instead); one that joins takes part in the update under way.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from syncline.strategies.clocks import Clocks, check_membership, refuse
from syncline.strategies.protocol import Apply, Command, Event, Grant, Hold, PushArrived, WorkerJoined, WorkerLeft


@dataclass(frozen=True, slots=True)
class BspOptions:
    name: str = "bsp"

    single_server: ClassVar[bool] = False

    @property
    def lead_bound(self) -> int | None:
        return 1

    def start(self, num_workers: int) -> "Bsp":
        return Bsp(num_workers)


class Bsp:
    def __init__(self, num_workers: int) -> None:
        self.clocks = Clocks(range(num_workers))
        self.version = 0
        self.pushes: list[int] = []  # arrived for the update under way
        self.held: dict[int, None] = {}  # workers that have pushed for it, in order of arrival

    def handle(self, event: Event) -> list[Command]:
        match event:
            case PushArrived(push=push, worker=worker, version=version):
                check_membership(event, self.clocks)
                if worker in self.held or version != self.version:
                    raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
                self.clocks.tick(worker)
                self.pushes.append(push)
                self.held[worker] = None
                return self._update() or [Hold(worker, f"{len(self.held)} of {len(self.clocks)} have pushed")]
            case WorkerJoined(worker=worker):
                check_membership(event, self.clocks)
                self.clocks.join(worker)
                return [Grant(worker, "joined")]
            case WorkerLeft(worker=worker):
                check_membership(event, self.clocks)
                self.clocks.leave(worker)
                self.held.pop(worker, None)
                return self._update()
        raise refuse(event, "no timer is set", self.clocks)

    def _update(self) -> list[Command]:
        if not self.pushes or len(self.held) < len(self.clocks):
            return []
        because = f"all {len(self.clocks)} have pushed"
        commands: list[Command] = [Apply(tuple(self.pushes), because=because)]
        commands += [Grant(worker, because) for worker in self.held]
        self.version += 1
        self.pushes.clear()
        self.held.clear()
        return commands

    def state_dict(self) -> dict[str, Any]:
        return {
            "clocks": self.clocks.state_dict(),
            "version": self.version,
            "pushes": list(self.pushes),
            "held": list(self.held),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clocks.load_state_dict(state["clocks"])
        self.version = state["version"]
        self.pushes = list(state["pushes"])
        self.held = dict.fromkeys(state["held"])
