"""Stale Synchronous Parallel (Ho et al. 2013; dssp.txt, section I-A.3).

    on a push of worker p:  t_p <- t_p + 1; update the weights with g_p
                            grant p while t_p - min(t) <= s, else hold it
    when min(t) rises:      grant every held worker that is within s again

Departures: none. s = 0 keeps workers within one step of each other but is not BSP: gradients are applied one by one.
A worker granted with a lead of s may push once more, so the largest lead is s + 1.
"""

from dataclasses import dataclass
from functools import cache

from syncline.checks import ranged
from syncline.strategies.clocks import Clocks, refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    Hold,
    PushArrived,
    StrategyOptions,
    WorkerJoined,
    WorkerLeft,
)


@dataclass(frozen=True, slots=True)
class SspOptions(StrategyOptions):
    name: str = "ssp"
    staleness: int = ranged(3, ">= 0")  # s: the largest lead over the slowest worker with which a worker proceeds

    @property
    def lead_bound(self) -> int | None:
        return self.staleness + 1

    def start(self, num_workers: int) -> "Ssp":
        return Ssp(num_workers, self)


class Ssp(Machine):
    clocks: Clocks
    held: dict[int, None]  # in order of arrival

    def __init__(self, num_workers: int, options: SspOptions) -> None:
        self.staleness = options.staleness
        self.clocks = Clocks(range(num_workers))
        self.held = {}
        self.near = cache(f"lead {{}} <= s {options.staleness}".format)
        self.ahead = cache(f"lead {{}} > s {options.staleness}".format)

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, PushArrived):
            worker, clocks = event.worker, self.clocks
            if worker not in clocks.counts or worker in self.held:
                raise refuse(event, "the worker is held, or not here", clocks, f"held={list(self.held)}")
            minimum = clocks.minimum
            lead = clocks.tick(worker)
            if lead <= self.staleness:
                commands: list[Command] = [Apply((event.push,)), Grant(worker, self.near(lead))]
            else:
                self.held[worker] = None
                commands = [Apply((event.push,)), Hold(worker, self.ahead(lead))]
            return commands + self._release() if self.held and clocks.minimum > minimum else commands
        match event:
            case WorkerJoined(worker=worker):
                self.clocks.join(event)
                return [Grant(worker, "joined")]
            case WorkerLeft(worker=worker):
                self.clocks.leave(event)
                self.held.pop(worker, None)
                return self._release()
        raise refuse(event, "no timer is set", self.clocks)

    def _release(self) -> list[Command]:
        free = {worker: lead for worker in self.held if (lead := self.clocks.lead(worker)) <= self.staleness}
        for worker in free:
            del self.held[worker]
        return [Grant(worker, self.near(lead)) for worker, lead in free.items()]
