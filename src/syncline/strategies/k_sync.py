"""K-sync and K-batch-sync SGD (Dutta et al. 2021; adasync.txt, section 2.2): one version, the rest is cancelled.

    K-sync         on a push of worker p:  keep g_p, hold p; with the K-th, update the weights with the mean of the K,
                                           interrupt the other workers and let all start with the new version
    K-batch-sync   on a push of worker p:  keep g_p, let p continue with its next mini-batch on the same version; with
                                           the K-th, from any workers, the same

Departures: K-sync's K falls below the configured one when fewer workers are left; a worker that left and rejoined
during an update contributes no second gradient to it. K-batch-sync's K counts mini-batches and may exceed the number of
workers.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.members import KOptions, Members
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    Interrupt,
    PushArrived,
    Repeat,
    WorkerJoined,
)


@dataclass(frozen=True, slots=True)
class KSyncOptions(KOptions):
    name: str = "k_sync"

    @property
    def interrupts(self) -> bool:
        return True

    @property
    def staleness_bound(self) -> int | None:
        return 0

    def start(self, num_workers: int) -> "KSync":
        return KSync(num_workers, self.k, self.is_batch)


@dataclass(frozen=True, slots=True)
class KBatchSyncOptions(KSyncOptions):
    name: str = "k_batch_sync"

    is_batch: ClassVar[bool] = True


class KSync(Machine):
    members: Members
    version: int
    pushes: list[int]  # for the next update
    gave: set[int]  # the workers they came from, in K-sync
    held: dict[int, None]  # workers that wait for it, in order of arrival; none in K-batch-sync

    def __init__(self, num_workers: int, k: int, is_batch: bool) -> None:
        self.is_batch = is_batch
        self.members = Members(num_workers, k, clips=not is_batch)
        self.version, self.pushes, self.gave, self.held = 0, [], set(), {}

    def handle(self, event: Event) -> list[Command]:
        worker = self.members.check(event)
        if isinstance(event, PushArrived):
            if worker in self.held or event.version != self.version:
                raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
            if worker in self.gave:
                self.held[worker] = None
                because = "one gradient a worker and update"
                return [Discard(event.push, because), Hold(worker, because)]
            self.pushes.append(event.push)
            if len(self.pushes) >= self.members.count:
                self.held[worker] = None
                return self._update()
            because = f"{len(self.pushes)} of K {self.members.count} are here"
            if self.is_batch:
                return [Repeat(worker, because)]
            self.gave.add(worker)
            self.held[worker] = None
            return [Hold(worker, because)]
        if isinstance(event, WorkerJoined):
            return [*self.members.join(worker), Grant(worker, "joined")]
        self.held.pop(worker, None)
        news = self.members.leave(worker)
        return news + self._update() if len(self.pushes) >= self.members.count else news

    def _update(self) -> list[Command]:
        because = f"the first {len(self.pushes)} are here"
        commands: list[Command] = [Apply(tuple(self.pushes), because=because)]
        computing = [worker for worker in self.members.here if worker not in self.held]
        commands += [Interrupt(worker, because) for worker in computing]
        commands += [Grant(worker, because) for worker in self.held]
        commands += [Grant(worker, because) for worker in computing]
        self.version += 1
        self.pushes.clear()
        self.gave.clear()
        self.held.clear()
        return commands
