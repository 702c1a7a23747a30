"""Plays the engine for one strategy and checks, after every event, what every strategy owes.

Invariants: each push is applied or discarded exactly once; nobody is granted who is computing; while anybody is here
somebody can go on; the strategy's own bound on the lead holds; an illegal event is refused and changes nothing; a copy
made from the saved state answers as the original does; one that left is never waited for.
"""

import copy
import json

import pytest

from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    ProtocolError,
    PushArrived,
    Strategy,
    StrategyOptions,
    TimerFired,
    WorkerJoined,
    WorkerLeft,
)

STRANGER = 99  # a worker that is never here


class Harness:
    def __init__(self, options: StrategyOptions, num_workers: int) -> None:
        self.options = options
        self.num_workers = num_workers
        self.strategy = options.start(num_workers)
        self.version = 0
        self.granted = dict.fromkeys(range(num_workers), 0)  # worker -> version it computes at; only while it computes
        self.counts = dict.fromkeys(range(num_workers), 0)  # pushes of the workers that are here
        self.pending: set[int] = set()
        self.settled: set[int] = set()
        self.next_push = 0
        self.now = 0.0

    @property
    def running(self) -> list[int]:
        return sorted(self.granted)

    def push(self, worker: int, after: float = 1.0) -> list[Command]:
        self.now += after
        push = self.next_push
        self.next_push += 1
        self.pending.add(push)
        self.counts[worker] += 1
        return self._event(PushArrived(self.now, push, worker, self.granted.pop(worker), 0.0))

    def leave(self, worker: int) -> list[Command]:
        del self.counts[worker]
        self.granted.pop(worker, None)
        return self._event(WorkerLeft(self.now, worker))

    def join(self, worker: int) -> list[Command]:
        self.counts[worker] = min(self.counts.values(), default=0)
        commands = self._event(WorkerJoined(self.now, worker))
        assert worker in self.granted, "a worker that joins is given weights at once"
        return commands

    def lead(self) -> int:
        return max(self.counts.values()) - min(self.counts.values()) if self.counts else 0

    def fork(self) -> "Harness":
        return copy.deepcopy(self)

    def check_illegal_events_change_nothing(self) -> None:
        before = json.dumps(self.strategy.state_dict())
        absent = [STRANGER, *(w for w in range(self.num_workers) if w not in self.counts)]
        illegal: list[Event] = [TimerFired(self.now)]
        illegal += [PushArrived(self.now, self.next_push, worker, 0, 0.0) for worker in absent]
        illegal += [WorkerLeft(self.now, worker) for worker in absent]
        illegal += [WorkerJoined(self.now, worker) for worker in self.counts]
        waiting = [worker for worker in self.counts if worker not in self.granted]
        illegal += [PushArrived(self.now, self.next_push, worker, self.version, 0.0) for worker in waiting]
        for event in illegal:
            with pytest.raises(ProtocolError):
                self.strategy.handle(event)
            assert json.dumps(self.strategy.state_dict()) == before, f"{event} was refused but changed the state"

    def _event(self, event: Event) -> list[Command]:
        twin = self._from_saved_state()
        commands = self.strategy.handle(event)
        assert twin.handle(event) == commands, "a saved and loaded state answers differently"
        assert twin.state_dict() == self.strategy.state_dict()
        for command in commands:
            self._obey(command)
        if isinstance(event, PushArrived) and event.worker in self.counts and event.worker not in self.granted:
            assert any(isinstance(c, Hold) and c.worker == event.worker for c in commands), "neither granted nor held"
        assert self.granted or not self.counts, f"deadlock after {event}: {self.strategy.state_dict()}"
        bound = self.options.lead_bound
        assert bound is None or self.lead() <= bound, f"lead {self.lead()} > bound {bound} after {event}"
        return commands

    def _from_saved_state(self) -> Strategy:
        twin = self.options.start(self.num_workers)
        twin.load_state_dict(json.loads(json.dumps(self.strategy.state_dict())))
        return twin

    def _obey(self, command: Command) -> None:
        match command:
            case Apply(pushes=pushes):
                assert pushes, "an update of nothing"
                for push in pushes:
                    self._settle(push)
                self.version += 1
            case Discard(push=push):
                self._settle(push)
            case Grant(worker=worker):
                assert worker in self.counts, "granted, but not here"
                assert worker not in self.granted, "granted while it computes"
                self.granted[worker] = self.version
            case Hold(worker=worker):
                assert worker in self.counts
                assert worker not in self.granted, "held after it was granted"
            case _:
                pytest.fail(f"no engine obeys {command} yet")

    def _settle(self, push: int) -> None:
        assert push in self.pending, f"push {push} settled twice, or never made"
        self.pending.remove(push)
        self.settled.add(push)
