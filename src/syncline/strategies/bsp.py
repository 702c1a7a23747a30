"""Bulk Synchronous Parallel (dssp.txt, section I-A.1): all push, one update, all proceed with the same version.

    on a push of worker p:  keep g_p; once every worker has pushed, update the weights with the mean, grant all

The gradients meet at a server or, with `topology=allreduce`, in a collective of all workers.

Departures: a worker that leaves is no longer waited for (the live engine instead stops such a run and restarts it from
its checkpoint); one that joins takes part in the next update.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import one_of, ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.collective import IMPLS, Collective
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    Hold,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WorkerJoined,
)

TOPOLOGIES = ("server", "allreduce")


@dataclass(frozen=True, slots=True)
class BspOptions(StrategyOptions):
    name: str = "bsp"
    topology: str = one_of("server", TOPOLOGIES)  # whether a server or an all-reduce averages the gradients
    impl: str = one_of("flat", IMPLS)  # of the all-reduce; overlap as in DDP
    bucket_mb: float = ranged(1.0, "> 0")  # of impl=overlap

    elastic: ClassVar[bool] = False

    def __post_init__(self) -> None:
        StrategyOptions.__post_init__(self)
        if self.impl == "overlap" and self.topology == "server":
            raise ValueError("strategy.impl=overlap needs strategy.topology=allreduce, got server")

    @property
    def collective(self) -> Collective | None:
        return None if self.topology == "server" else Collective(impl=self.impl, bucket_mb=self.bucket_mb)

    @property
    def lead_bound(self) -> int | None:
        return 1

    @property
    def staleness_bound(self) -> int | None:
        return 0

    def start(self, num_workers: int) -> "Bsp":
        return Bsp(num_workers)


class Bsp(Machine):
    workers: set[int]
    version: int
    pushes: list[int]  # for the next update
    held: dict[int, None]  # workers that have pushed for it, in order of arrival

    def __init__(self, num_workers: int) -> None:
        self.workers, self.version = set(range(num_workers)), 0
        self.pushes, self.held = [], {}

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired):
            raise refuse(event, "no timer is set")
        worker = event.worker
        if (worker in self.workers) is isinstance(event, WorkerJoined):
            raise refuse(event, "not here, or here already", self.workers)
        if isinstance(event, PushArrived):
            if worker in self.held or event.version != self.version:
                raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
            self.pushes.append(event.push)
            self.held[worker] = None
            if len(self.held) < len(self.workers):
                return [Hold(worker, "the others have not pushed")]
            return self._update()
        if isinstance(event, WorkerJoined):
            self.workers.add(worker)
            return [Grant(worker, "joined")]
        self.workers.remove(worker)
        self.held.pop(worker, None)
        return self._update() if self.pushes and len(self.held) == len(self.workers) else []

    def _update(self) -> list[Command]:
        because = f"all {len(self.workers)} have pushed"
        commands: list[Command] = [Apply(tuple(self.pushes), because=because)]
        commands += [Grant(worker, because) for worker in self.held]
        self.version += 1
        self.pushes.clear()
        self.held.clear()
        return commands
