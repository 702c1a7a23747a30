"""MindFlayer SGD (Maranjyan, Omar and Richtarik 2024, algorithm 3): who does not finish a gradient in time tries anew.

    round:                 all workers begin a gradient at the current version
    on a push of worker p: keep g_p, hold p
    after `within` s, or when all have pushed: update the weights with the mean of what is here; interrupt the others;
                                               all begin the next round

So a worker that is now and then very late costs its one gradient, never the others' time.

Departures: each worker has one trial a round (the paper's B_i = 1), since a worker may not be interrupted before an
update, and all have the same time for it (its t_i). The update takes the mean of the gradients that are here, where the
paper divides by the expected number. A round in which none is in time goes on until the first one is here. The seconds
of messages count as the worker's.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.checks import ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.protocol import (
    Apply,
    Command,
    Event,
    Grant,
    Hold,
    Interrupt,
    PushArrived,
    StrategyOptions,
    TimerFired,
    WakeAt,
    WorkerJoined,
)


@dataclass(frozen=True, slots=True)
class MindflayerOptions(StrategyOptions):
    name: str = "mindflayer"
    within: float = ranged(1.0, "> 0")  # t, seconds of the driving clock that a gradient may take

    single_server: ClassVar[bool] = True

    @property
    def interrupts(self) -> bool:
        return True

    @property
    def staleness_bound(self) -> int:
        return 0

    def start(self, num_workers: int) -> "Mindflayer":
        return Mindflayer(num_workers, self.within)


class Mindflayer(Machine):
    here: dict[int, None]
    version: int
    pushes: list[int]  # for the next update
    held: dict[int, None]  # workers that wait for it, in order of arrival
    ends: float  # seconds; of the round
    is_over: bool  # the time for it, in which no gradient came

    def __init__(self, num_workers: int, within: float) -> None:
        self.within = self.ends = within
        self.here, self.held = dict.fromkeys(range(num_workers)), {}
        self.version, self.pushes, self.is_over = 0, [], False

    def begin(self) -> list[Command]:
        return [WakeAt(self.ends, "the round ends")]

    def handle(self, event: Event) -> list[Command]:
        if isinstance(event, TimerFired):
            if self.is_over or event.at < self.ends:
                raise refuse(event, f"the round ends at {self.ends}", f"is_over={self.is_over}")
            self.is_over = True
            return self._update_if_due(event.at)
        worker = event.worker
        if (worker in self.here) is isinstance(event, WorkerJoined):
            raise refuse(event, "the worker is not here, or here already", f"here={list(self.here)}")
        if isinstance(event, PushArrived):
            if worker in self.held or event.version != self.version:
                raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
            self.pushes.append(event.push)
            self.held[worker] = None
            because = f"{len(self.pushes)} of {len(self.here)} are here"
            return self._update_if_due(event.at) or [Hold(worker, because)]
        if isinstance(event, WorkerJoined):
            self.here[worker] = None
            return [Grant(worker, "joined")]
        del self.here[worker]
        self.held.pop(worker, None)
        return self._update_if_due(event.at)

    def _update_if_due(self, now: float) -> list[Command]:
        is_due = self.is_over or len(self.held) == len(self.here)
        if not (self.pushes and self.here and is_due):
            return []
        because = f"{len(self.pushes)} of {len(self.here)} are here"
        late = [worker for worker in self.here if worker not in self.held]
        commands: list[Command] = [Apply(tuple(self.pushes), because=because)]
        commands += [Interrupt(worker, because) for worker in late]
        commands += [Grant(worker, because) for worker in (*self.held, *late)]
        self.version += 1
        self.ends, self.is_over = now + self.within, False
        self.pushes.clear()
        self.held.clear()
        return [*commands, WakeAt(self.ends, "the round ends")]
