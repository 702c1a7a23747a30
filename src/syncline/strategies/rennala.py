"""Rennala SGD (Tyurin and Richtarik 2023; algorithm 2 of Maranjyan et al. 2025): an update is of S current gradients.

    worker:                                                  compute one gradient after another at the weights it has
    on a push of worker p, computed at the current version:  keep g_p; with the S-th, update the weights with their mean
                                                             and grant p; else p continues
    on a push computed at an older version:                  drop it; grant p

As K-batch-sync, which cancels what the others compute when an update is made. The paper's S is max(1, ceil(sigma^2 /
eps)), of the gradients' variance and the wanted squared norm of the gradient; `k` here.

Departures: none.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.members import KOptions, Members
from syncline.strategies.protocol import Apply, Command, Discard, Event, Grant, PushArrived, Repeat, WorkerJoined


@dataclass(frozen=True, slots=True)
class RennalaOptions(KOptions):
    name: str = "rennala"
    k: int = ranged(4, "in 1 .. 1,000,000")  # S, mini-batches

    is_batch: ClassVar[bool] = True

    @property
    def staleness_bound(self) -> int:
        return 0

    def start(self, num_workers: int) -> "Rennala":
        return Rennala(num_workers, self.k)


class Rennala(Machine):
    members: Members
    version: int
    pushes: list[int]  # for the next update

    def __init__(self, num_workers: int, k: int) -> None:
        self.members = Members(num_workers, k, clips=False)
        self.version, self.pushes = 0, []

    def handle(self, event: Event) -> list[Command]:
        worker = self.members.check(event)
        if isinstance(event, PushArrived):
            if event.version > self.version:
                raise refuse(event, f"version is {self.version}")
            if event.version < self.version:
                because = f"computed at {event.version}, now {self.version}"
                return [Discard(event.push, because), Grant(worker, because)]
            self.pushes.append(event.push)
            num, wanted = len(self.pushes), self.members.count
            if num < wanted:
                return [Repeat(worker, f"{num} of {wanted} are here")]
            update = Apply(tuple(self.pushes), because=f"{num} are here")
            self.version += 1
            self.pushes.clear()
            return [update, Grant(worker, f"{num} are here")]
        if isinstance(event, WorkerJoined):
            return [*self.members.join(worker), Grant(worker, "joined")]
        return self.members.leave(worker)
