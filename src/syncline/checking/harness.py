"""Acts as the engine of one strategy and holds it to the contract of all strategies after every event.

Invariants: each push is applied or discarded exactly once; a computing worker is granted only if it is interrupted
first or if its pull rule keeps the block; only computing workers are interrupted, and each is then granted; while a
worker is active, a worker computes or a timer is set; the strategy's own bounds on lead and staleness hold; an illegal
event is rejected and changes nothing; a copy made from the saved state answers as the original does; no update waits
for a worker that has left.

There is one shard, and messages take no time.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Sequence

from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Event,
    Grant,
    Hold,
    Interrupt,
    ProtocolError,
    PullRule,
    PushArrived,
    Repeat,
    Strategy,
    StrategyOptions,
    TimerFired,
    WaitFor,
    WakeAt,
    WorkerJoined,
    WorkerLeft,
)
from syncline.targets import fault

UNKNOWN_WORKER = 99
NUM_SHOWN = 6  # last events of a report


class ContractBroken(AssertionError):
    """A strategy has broken its contract; the message has the rule, the last events with the answers, and the state."""

    def __init__(self, rule: str, events: Sequence[str], state: str) -> None:
        shown = [f"  {line}" for line in events]
        super().__init__("\n".join([rule, "last events:", *(shown or ["  none"]), f"state: {state}"]))
        self.rule = rule


class Harness:
    def __init__(self, options: StrategyOptions, num_workers: int) -> None:
        options.check_cluster(num_workers, 1)
        self.options = options
        self.history: list[tuple[Event, tuple[Command, ...] | None]] = []  # with the answer; None: there is none yet
        self.num_workers = num_workers
        self.strategy = options.start(num_workers)
        self.is_restored = False  # the strategy has handled nothing since it was loaded from its saved state
        self.version = 0
        self.granted: dict[int, int] = {}  # worker -> version (or tag); those that compute
        self.began: dict[int, float] = {}  # worker -> start of its current or last mini-batch
        self.batches = dict.fromkeys(range(num_workers), 0)  # mini-batches that each worker has started
        self.counts = dict.fromkeys(range(num_workers), 0)  # pushes of the active workers
        self.pushed: dict[int, int] = {}  # worker -> version of its last push
        self.pending: dict[int, int] = {}  # push -> its version
        self.settled: set[int] = set()
        self.next_push = 0
        self.now = 0.0
        self.timer = math.inf  # the time that the strategy asked for
        self.waits_for = options.first_count  # as it last reported
        self.rules: dict[int, PullRule] = {}  # of the active workers
        self.starts_at: dict[int, float] = {}  # worker -> when its rule lets it start, unless an event comes first
        for worker in range(num_workers):
            if self._give_rule(worker):
                self._block_arrives(worker)
            else:
                self._begin(worker, 0)
        self._carry_out(self.strategy.begin())

    @property
    def running(self) -> list[int]:
        return sorted(self.granted)

    @property
    def due(self) -> float:
        """The time of the next timer."""
        return min(self.timer, *self.starts_at.values(), math.inf)

    def push(self, worker: int, after: float = 1.0, loss: float = 0.0) -> list[Command]:
        self.demand(self.now + after <= self.due + 1e-9, f"a timer is due before, at {self.due}")
        self.now = min(self.now + after, self.due)
        push = self.next_push
        self.next_push += 1
        version = self.granted.pop(worker)
        rule = self.rules.get(worker)
        if rule is not None:
            self.demand(rule.tag >= version, "the tag decreased")
            version = rule.tag
        self.pending[push] = self.pushed[worker] = version
        self.counts[worker] += 1
        if rule is not None:
            self._start_when(worker, rule.pushed(self.now))
        return self._event(PushArrived(self.now, push, worker, version, loss))

    def wait(self) -> list[Command]:
        """Time passes until the next timer: the strategy's, or that of a worker's pull rule."""
        self.demand(self.due < math.inf, "no timer is set")
        self.now = self.due
        if self.timer <= self.now:
            self.timer = math.inf
            return self._event(TimerFired(self.now))
        worker = min(self.starts_at, key=lambda w: (self.starts_at[w], w))
        self._start_when(worker, self.starts_at[worker])
        return []

    def step(self, seconds: Callable[[int, int], float], loss: float = 0.0) -> tuple[int | None, list[Command]]:
        """The next event, if the n-th mini-batch of a worker takes seconds(worker, n); n from 0.

        Returns:
            The worker that pushed, or None if a timer was due; and the commands.
        """
        ends = {worker: self.began[worker] + seconds(worker, self.batches[worker] - 1) for worker in self.granted}
        worker = min(ends, key=lambda w: (ends[w], w), default=None)
        if worker is None or self.due < ends[worker]:
            return None, self.wait()
        return worker, self.push(worker, max(0.0, ends[worker] - self.now), loss)

    def leave(self, worker: int) -> list[Command]:
        del self.counts[worker]
        for table in (self.granted, self.rules, self.starts_at):
            table.pop(worker, None)
        return self._event(WorkerLeft(self.now, worker))

    def join(self, worker: int) -> list[Command]:
        self.counts[worker] = min(self.counts.values(), default=0)
        self._give_rule(worker)
        commands = self._event(WorkerJoined(self.now, worker))
        self.demand(worker in self.granted, "a worker that joins is granted weights at once")
        return commands

    def resume(self) -> None:
        """The run has stopped and goes on from its checkpoint: who computed computes again, at the current version.

        Workers with a pull rule go on as they were.
        """
        self.strategy = self._from_saved_state()
        for worker in set(self.granted) - set(self.rules):
            self._begin(worker, self.version)

    def lead(self) -> int:
        return max(self.counts.values()) - min(self.counts.values()) if self.counts else 0

    def fork(self) -> "Harness":
        """A copy whose strategy is restored from the saved state."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(other, name, value.copy())
        other.strategy = self._from_saved_state()
        other.is_restored = True
        if self.rules:
            other.rules = copy.deepcopy(self.rules)
        return other

    def check_illegal_events_change_nothing(self) -> None:
        before = self._from_saved_state().state_dict()
        absent = [UNKNOWN_WORKER, *(w for w in range(self.num_workers) if w not in self.counts)]
        illegal: list[Event] = [TimerFired(self.now)] if self.now < self.timer else []
        illegal += [PushArrived(self.now, self.next_push, worker, self.version, 0.0) for worker in absent]
        illegal += [WorkerLeft(self.now, worker) for worker in absent]
        illegal += [WorkerJoined(self.now, worker) for worker in self.counts]
        waiting = [worker for worker in self.counts if worker not in self.granted and worker not in self.rules]
        illegal += [PushArrived(self.now, self.next_push, worker, self.version, 0.0) for worker in waiting]
        if self.options.staleness_bound == 0:
            illegal += [PushArrived(self.now, self.next_push, w, self.version + 1, 0.0) for w in self.granted]
        for event in illegal:
            try:
                self.strategy.handle(event)
            except ProtocolError:
                pass
            except Exception as error:
                self.demand(False, f"an impossible event must raise ProtocolError, got {_told(error)} for {event}")
            else:
                self.demand(False, f"an impossible event must raise ProtocolError, got an answer to {event}")
            if self.strategy.state_dict() != before:
                raise self._broken(f"{event} was rejected but changed the state")

    def _event(self, event: Event) -> list[Command]:
        twin = None if self.is_restored else self._from_saved_state()
        self.is_restored = False
        self.history.append((event, None))
        try:
            commands = self.strategy.handle(event)
        except ProtocolError as error:
            self.demand(False, f"refuses an event that can happen: {error}")
        except Exception as error:
            raise self._broken(f"raises {_told(error)}") from error
        self.history[-1] = (event, tuple(commands))
        if twin is not None:
            self.demand(twin.handle(event) == commands, "a saved and loaded state answers differently")
            self.demand(twin.state_dict() == self.strategy.state_dict(), "a saved and loaded state changes differently")
        self._carry_out(commands)
        if isinstance(event, PushArrived) and event.worker in self.counts and event.worker not in self.rules:
            is_held = any(isinstance(c, Hold) and c.worker == event.worker for c in commands)
            self.demand(is_held is (event.worker not in self.granted), "neither granted nor held, or both")
        can_continue = bool(self.granted) or self.due < math.inf
        self.demand(can_continue or not self.counts, "deadlock: no worker computes, and no timer is set")
        bound = self.options.lead_bound
        self.demand(bound is None or self.lead() <= bound, f"lead {self.lead()} > bound {bound}")
        return commands

    def demand(self, is_kept: bool, rule: str) -> None:
        """Raises ContractBroken unless the rule is kept."""
        if not is_kept:
            raise self._broken(rule)

    def _broken(self, rule: str) -> ContractBroken:
        try:
            state = str(self.strategy.state_dict())
        except Exception as error:
            state = _told(error)
        shown = self.history[-NUM_SHOWN:]
        return ContractBroken(rule, [_line(event, answer) for event, answer in shown], state)

    def _from_saved_state(self) -> Strategy:
        """Raises ContractBroken: JSON cannot hold the state, or it cannot be loaded."""
        try:
            state = json.loads(json.dumps(self.strategy.state_dict()))
            twin = self.options.start(self.num_workers)
            twin.load_state_dict(state)
        except Exception as error:
            raise self._broken(f"the state cannot be saved as JSON and loaded: {_told(error)}") from error
        return twin

    def _carry_out(self, commands: Iterable[Command]) -> None:
        """Execute them in order; who is interrupted must be granted."""
        interrupted: set[int] = set()
        for command in commands:
            self._execute(command, interrupted)
        self.demand(not interrupted, f"interrupted and not granted: {interrupted}")

    def _execute(self, command: Command, interrupted: set[int]) -> None:
        match command:
            case Apply(pushes=pushes, scale=scale):
                self.demand(bool(pushes), "an update without gradients")
                self.demand(0 < scale < math.inf, f"Apply.scale must be > 0, got {scale}")
                bound = self.options.staleness_bound
                for push in pushes:
                    staleness = self.version - self._settle(push)
                    self.demand(bound is None or staleness <= bound, f"staleness {staleness} > bound {bound}")
                self.version += 1
            case Discard(push=push):
                self._settle(push)
            case Grant(worker=worker):
                self.demand(worker in self.counts, "granted, but not active")
                interrupted.discard(worker)
                if worker in self.rules:
                    self._block_arrives(worker)
                else:
                    self.demand(worker not in self.granted, "granted while it computes")
                    self._begin(worker, self.version)
            case Repeat(worker=worker):
                self.demand(worker in self.counts, "repeats, but is not active")
                self.demand(worker not in self.granted, "repeats while it computes")
                self.demand(worker not in self.rules, "its rule decides")
                self._begin(worker, self.pushed[worker])
            case Hold(worker=worker):
                self.demand(worker in self.counts, "held, but not active")
                self.demand(worker not in self.granted, "held after it was granted")
            case Interrupt(worker=worker):
                self.demand(self.options.interrupts, "interrupts, but its options do not say so")
                self.demand(worker in self.granted, "interrupted, but not computing")
                self.demand(worker not in self.rules, "its rule decides")
                self.demand(self.granted[worker] < self.version, "interrupted at the current version")
                del self.granted[worker]
                interrupted.add(worker)
            case WakeAt(at=at):
                self.demand(at > self.now, "a timer in the past")
                self.timer = at
            case WaitFor(count=count):
                self.demand(count >= 1, f"WaitFor.count must be >= 1, got {count}")
                self.demand(count != self.waits_for, "no news")
                self.waits_for = count
            case _:
                self.demand(False, f"no engine obeys {command!r}")

    def _settle(self, push: int) -> int:
        """Returns the version of the push."""
        self.demand(push in self.pending, f"push {push} settled twice, or never sent")
        self.settled.add(push)
        return self.pending.pop(push)

    def _begin(self, worker: int, version: int) -> None:
        self.granted[worker] = version
        self.began[worker] = self.now
        self.batches[worker] += 1

    def _give_rule(self, worker: int) -> bool:
        """Give a new worker a pull rule, if the strategy has one. Returns whether it has."""
        rule = self.options.pull_rule(1)
        if rule is not None:
            self.rules[worker] = rule
        return rule is not None

    def _block_arrives(self, worker: int) -> None:
        when = self.rules[worker].arrived(self.now, 0, self.version)
        if worker in self.granted:
            self.demand(when is None, "it computes")
        else:
            self._start_when(worker, when)

    def _start_when(self, worker: int, when: float | None) -> None:
        """Start the worker at `when`, as its pull rule says; None: not before another block."""
        self.starts_at.pop(worker, None)
        if when is not None and when > self.now:
            self.starts_at[worker] = when
        elif when is not None:
            taken = list(self.rules[worker].start())
            self.demand(taken in ([], [0]), f"its rule takes the blocks of shards {taken}; there is shard 0 alone")
            self._begin(worker, self.rules[worker].tag)


def _line(event: Event, answer: tuple[Command, ...] | None) -> str:
    return str(event) if answer is None else f"{event} -> {', '.join(map(str, answer)) or 'nothing'}"


def _told(error: Exception) -> str:
    return fault(error) or f"{type(error).__name__}: {error}"
