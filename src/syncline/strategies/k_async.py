"""K-async and K-batch-async SGD (Dutta et al. 2021; adasync.txt, section 2.2): K gradients an update, of any version.

    K-async         on a push of worker p:  keep g_p, hold p; with the K-th, of K different workers, update the weights
                                            with their mean and grant those K; the others continue
    K-batch-async   on a push of worker p:  keep g_p; with the K-th, from any workers, update the weights with their
                                            mean; grant p immediately, whether or not it was the K-th

Departures: K-async's K falls below the configured one when fewer workers are left; a worker that left and rejoined
during an update contributes no second gradient to it. K-batch-async's K counts mini-batches and may exceed the number
of workers.
"""

from dataclasses import dataclass
from typing import ClassVar

from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.members import KOptions, Members
from syncline.strategies.protocol import Apply, Command, Discard, Event, Grant, Hold, PushArrived, WorkerJoined


@dataclass(frozen=True, slots=True)
class KAsyncOptions(KOptions):
    name: str = "k_async"

    def start(self, num_workers: int) -> "KAsync | KBatchAsync":
        return KBatchAsync(num_workers, self.k) if self.is_batch else KAsync(num_workers, self.k)


@dataclass(frozen=True, slots=True)
class KBatchAsyncOptions(KAsyncOptions):
    name: str = "k_batch_async"

    is_batch: ClassVar[bool] = True


class KAsync(Machine):
    members: Members
    pushes: dict[int, int]  # worker -> its push for the next update, in order of arrival
    held: dict[int, None]  # workers that wait for it

    def __init__(self, num_workers: int, k: int) -> None:
        self.members = Members(num_workers, k)
        self.pushes, self.held = {}, {}

    def handle(self, event: Event) -> list[Command]:
        worker = self.members.check(event)
        if isinstance(event, PushArrived):
            if worker in self.held:
                raise refuse(event, "the worker is held", f"held={list(self.held)}")
            self.held[worker] = None
            if worker in self.pushes:
                because = "one gradient a worker and update"
                return [Discard(event.push, because), Hold(worker, because)]
            self.pushes[worker] = event.push
            if len(self.pushes) < self.members.count:
                return [Hold(worker, f"{len(self.pushes)} of K {self.members.count} are here")]
            return self._update()
        if isinstance(event, WorkerJoined):
            return [*self.members.join(worker), Grant(worker, "joined")]
        self.held.pop(worker, None)
        news = self.members.leave(worker)
        return news + self._update() if len(self.pushes) >= self.members.count else news

    def _update(self) -> list[Command]:
        because = f"{len(self.pushes)} are here"
        commands: list[Command] = [Apply(tuple(self.pushes.values()), because=because)]
        commands += [Grant(worker, because) for worker in self.held]
        self.pushes.clear()
        self.held.clear()
        return commands


class KBatchAsync(Machine):
    members: Members
    pushes: list[int]  # for the next update

    def __init__(self, num_workers: int, k: int) -> None:
        self.members = Members(num_workers, k, clips=False)
        self.pushes = []

    def handle(self, event: Event) -> list[Command]:
        worker = self.members.check(event)
        if isinstance(event, PushArrived):
            self.pushes.append(event.push)
            grant = Grant(worker, "nobody waits")
            if len(self.pushes) < self.members.count:
                return [grant]
            update = Apply(tuple(self.pushes), because=f"{len(self.pushes)} are here")
            self.pushes.clear()
            return [update, grant]
        if isinstance(event, WorkerJoined):
            return [*self.members.join(worker), Grant(worker, "joined")]
        return self.members.leave(worker)
