"""Synchronous SGD with backup workers (Chen et al. 2016; backup.txt, section 3): the slowest b are not waited for.

    on a push of worker p, computed at the current version:  keep g_p; with the N-th, update the weights with the mean
                                                             and grant those N
    on a push computed at an older version:                  drop it; grant p the newest version

Departures:
- The text adds up the N gradients; the authors' published code takes their mean (`aggregate`).
- P is the number of active workers, so one that leaves lowers N = P - b, and a gradient that it pushed before is used
  but not waited for: with a constant N, a shard could wait for workers that wait for another shard. No worker
  contributes two gradients to one update: one that left and rejoined during an update waits for the next.
"""

from dataclasses import dataclass

from syncline.checks import one_of, ranged
from syncline.strategies.clocks import refuse
from syncline.strategies.machine import Machine
from syncline.strategies.members import Members
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    PushArrived,
    StrategyOptions,
    WorkerJoined,
)

AGGREGATES = ("mean", "sum")


@dataclass(frozen=True, slots=True)
class BackupOptions(StrategyOptions):
    name: str = "backup"
    backups: int = ranged(1, ">= 0")  # b, 0 .. P - 1; N = P - b gradients form an update
    aggregate: str = one_of("mean", AGGREGATES)

    @property
    def staleness_bound(self) -> int | None:
        return 0

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        StrategyOptions.check_cluster(self, num_workers, num_shards)
        if self.backups >= num_workers:
            raise ValueError(
                f"strategy.backups must be < cluster.workers = {num_workers}, or no gradient is used; "
                f"got {self.backups}"
            )

    def start(self, num_workers: int) -> "Backup":
        return Backup(num_workers, self)


class Backup(Machine):
    members: Members
    version: int
    pushes: dict[int, int]  # worker -> its push for the next update, in order of arrival
    held: dict[int, None]  # workers that wait for it

    def __init__(self, num_workers: int, options: BackupOptions) -> None:
        self.is_sum = options.aggregate == "sum"
        self.members = Members(num_workers, num_workers - options.backups, backups=options.backups)
        self.version, self.pushes, self.held = 0, {}, {}

    def handle(self, event: Event) -> list[Command]:
        worker = self.members.check(event)
        if isinstance(event, PushArrived):
            if worker in self.held or event.version > self.version:
                raise refuse(event, f"version is {self.version}", f"held={list(self.held)}")
            if event.version < self.version:
                because = f"computed at version {event.version}, now {self.version}"
                return [Discard(event.push, because), Grant(worker, because)]
            self.held[worker] = None
            commands: list[Command] = []
            if worker in self.pushes:
                commands.append(Discard(event.push, "one gradient a worker and update"))
            else:
                self.pushes[worker] = event.push
            if len(self.held) < self.members.count:
                return [*commands, Hold(worker, f"{len(self.held)} of {self.members.count} are here")]
            return commands + self._update()
        if isinstance(event, WorkerJoined):
            return [*self.members.join(worker), Grant(worker, "joined")]
        self.held.pop(worker, None)
        news = self.members.leave(worker)
        return news + self._update() if len(self.held) >= self.members.count else news

    def _update(self) -> list[Command]:
        because = f"the first {len(self.pushes)} are here"
        commands: list[Command] = [Apply(tuple(self.pushes.values()), is_sum=self.is_sum, because=because)]
        commands += [Grant(worker, because) for worker in self.held]
        self.version += 1
        self.pushes.clear()
        self.held.clear()
        return commands
