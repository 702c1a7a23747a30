"""Sync-Switch (Li, Mangoubi, Xu and Guo 2021): synchronous at first, then asynchronous.

    the first `after` updates:  on a push of worker p:  keep g_p; once every worker has pushed, update the weights with
                                                        the mean, grant all
    from then on:               on a push of worker p:  update the weights with g_p, grant p

Departures:
- The paper searches the share of the run after which to switch; `after` is given.
- Its configuration policy changes rate and momentum with the switch. `scale` is a factor on the rate; momentum stays.
- A worker that leaves before the switch is not waited for; one that joins takes part in the next update.
"""

import math
from dataclasses import dataclass

from syncline.strategies.clocks import refuse
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


@dataclass(frozen=True, slots=True)
class SyncSwitchOptions(StrategyOptions):
    name: str = "sync_switch"
    after: int = 100  # synchronous updates, >= 0
    scale: float = 1.0  # of the learning rate after them, > 0

    def __post_init__(self) -> None:
        if self.after < 0:
            raise ValueError(f"strategy.after must be >= 0, got {self.after}")
        if not 0 < self.scale < math.inf:
            raise ValueError(f"strategy.scale must be > 0, got {self.scale}")

    def start(self, num_workers: int) -> "SyncSwitch":
        return SyncSwitch(num_workers, self)


class SyncSwitch(Machine):
    workers: set[int]
    version: int
    pushes: list[int]  # for the next synchronous update
    held: dict[int, None]  # workers that have pushed for it, in order of arrival

    def __init__(self, num_workers: int, options: SyncSwitchOptions) -> None:
        self.after, self.scale = options.after, options.scale
        self.workers, self.version = set(range(num_workers)), 0
        self.pushes, self.held = [], {}

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired):
            raise refuse(event, "no timer is set")
        worker = event.worker
        if (worker in self.workers) is isinstance(event, WorkerJoined):
            raise refuse(event, "not here, or here already", self.workers)
        if isinstance(event, PushArrived):
            return self._pushed(event)
        if isinstance(event, WorkerJoined):
            self.workers.add(worker)
            return [Grant(worker, "joined")]
        self.workers.remove(worker)
        self.held.pop(worker, None)
        return self._update() if self.pushes and len(self.held) == len(self.workers) else []

    def _pushed(self, event: PushArrived) -> list[Command]:
        worker = event.worker
        if worker in self.held or event.version > self.version:
            raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
        if self.version >= self.after:
            self.version += 1
            return [Apply((event.push,), self.scale), Grant(worker, "nobody waits")]
        self.pushes.append(event.push)
        self.held[worker] = None
        return [Hold(worker, "the others have not pushed")] if len(self.held) < len(self.workers) else self._update()

    def _update(self) -> list[Command]:
        because = f"all {len(self.workers)} have pushed"
        commands: list[Command] = [Apply(tuple(self.pushes), because=because)]
        commands += [Grant(worker, because) for worker in self.held]
        self.version += 1
        self.pushes.clear()
        self.held.clear()
        return commands
