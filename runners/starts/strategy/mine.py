"""A synchronisation strategy. strategy/mine.yaml names its options; that file's keys are their fields: strategy.size=8
on the command line.

A strategy is a state machine: it is told what happened at the server, and answers with commands, in the order of their
execution. It has no clock, no random numbers and no I/O; an event's `at` is the time in seconds. Events and commands:
syncline/strategies/protocol.py. What a strategy owes is at the end of "A strategy" in docs/extending.md.
"""

from dataclasses import dataclass

from syncline.checks import ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WorkerJoined,
)


@dataclass(frozen=True, slots=True)
class MineOptions(StrategyOptions):
    name: str = "mine"
    size: int = ranged(4, ">= 1")  # gradients an update takes

    def start(self, num_workers: int) -> "Mine":
        return Mine(num_workers, self.size)


class Mine(Machine):
    """An update takes the next `size` gradients, and nobody waits; put your rule in its place."""

    workers: set[int]  # what is annotated here is saved and loaded with a checkpoint
    pushes: list[int]  # for the next update

    def __init__(self, num_workers: int, size: int) -> None:
        self.size, self.workers, self.pushes = size, set(range(num_workers)), []

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired) or (event.worker in self.workers) == isinstance(event, WorkerJoined):
            raise refuse(event, "no timer is set, or the worker is absent, or here already")
        if isinstance(event, PushArrived):
            self.pushes.append(event.push)
            grant = Grant(event.worker, "nobody waits")
            if len(self.pushes) < self.size:
                return [grant]
            update = Apply(tuple(self.pushes), because=f"{self.size} are here")
            self.pushes.clear()
            return [update, grant]
        if isinstance(event, WorkerJoined):
            self.workers.add(event.worker)
            return [Grant(event.worker, "joined")]
        self.workers.remove(event.worker)
        return []
