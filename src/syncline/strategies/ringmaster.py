"""Ringmaster ASGD (Maranjyan, Tyurin and Richtarik 2025, algorithms 4 and 5): gradients that are too old are ignored.

    on a push of worker p, computed at weights that are d updates old:  d < R:   update the weights with g_p; grant p
                                                                        d >= R:  drop g_p; grant p
    with `stops` (algorithm 5), after an update:                        interrupt and grant who computes at weights that
                                                                        are R updates old

The paper's R is max(1, ceil(sigma^2 / eps)), of the gradients' variance and the wanted squared norm of the gradient.

Departures: none.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Interrupt,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WorkerJoined,
)


@dataclass(frozen=True, slots=True)
class RingmasterOptions(StrategyOptions):
    name: str = "ringmaster"
    r: int = ranged(4, ">= 1")  # R, in updates
    stops: bool = False  # a gradient that will be ignored is not computed to its end

    single_server: ClassVar[bool] = True

    @property
    def interrupts(self) -> bool:
        return self.stops

    @property
    def staleness_bound(self) -> int:
        return self.r - 1

    def start(self, num_workers: int) -> "Ringmaster":
        return Ringmaster(num_workers, self)


class Ringmaster(Machine):
    version: int
    begun: dict[int, int]  # worker -> version that it was granted last; in the order of the grants

    def __init__(self, num_workers: int, options: RingmasterOptions) -> None:
        self.r, self.stops = options.r, options.stops
        self.version, self.begun = 0, dict.fromkeys(range(num_workers), 0)

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired):
            raise refuse(event, "no timer is set")
        worker = event.worker
        if (worker in self.begun) is isinstance(event, WorkerJoined):
            raise refuse(event, "not here, or here already", list(self.begun))
        if isinstance(event, WorkerJoined):
            return [self._grant(worker, "joined")]
        if not isinstance(event, PushArrived):
            del self.begun[worker]
            return []
        if event.version > self.version:
            raise refuse(event, f"version is {self.version}")
        age = self.version - event.version
        if age >= self.r:
            return [Discard(event.push, f"{age} updates old"), self._grant(worker, "dropped")]
        self.version += 1
        return [Apply((event.push,)), self._grant(worker, f"less than {self.r} updates old"), *self._stop_old()]

    def _grant(self, worker: int, because: str) -> Grant:
        self.begun.pop(worker, None)
        self.begun[worker] = self.version
        return Grant(worker, because)

    def _stop_old(self) -> list[Command]:
        """Interrupt and grant those whose gradients would be dropped."""
        commands: list[Command] = []
        while self.stops:
            worker, version = next(iter(self.begun.items()))
            if self.version - version < self.r:
                break
            because = f"{self.version - version} updates old"
            commands += [Interrupt(worker, because), self._grant(worker, because)]
        return commands
