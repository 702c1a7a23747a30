"""One shard of the parameter server: executes what its strategy commands, and answers with what its engine has to do.

Who does what at each command is in docs/architecture.md. Each event and each command but WakeAt becomes a row of the
event log (records/events.py; Apply one a push). Three engines share this: virtual time, the process of a real shard,
and replay. There is no socket, no event queue and no clock here.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from syncline.learning.parameters import Gradient, Parameters, SentVersions, Version
from syncline.learning.update import AppliedPush
from syncline.progress import Limits, Totals
from syncline.records import rows
from syncline.records.rows import Log
from syncline.rounds import SINGLE, Rounds
from syncline.strategies.protocol import (
    Apply,
    Command,
    Discard,
    Grant,
    Hold,
    Interrupt,
    PushArrived,
    Repeat,
    Strategy,
    TimerFired,
    WaitFor,
    WakeAt,
    WorkerJoined,
    WorkerLeft,
)


class Deadlock(ValueError):
    """No worker computes, no message is under way and no timer is set: a fault of a strategy."""

    def __init__(self, at: float, states: object) -> None:
        super().__init__(f"no worker can continue at {at:.6f} s: the strategy holds all of them; its state {states}")


class Shard:
    """One shard: its strategy, its pending pushes, its totals.

    An event returns an iterator over the commands that the engine has a part in. The shard executes each when the
    iterator comes to it, so that the engine, which must exhaust it, finds the shard at the version of that command.

    Args:
        number: of the shard, from 0.
        strategy: its own state machine.
        num_workers: P; all of them are active at first.
        batch_size: samples in a mini-batch.
        limits: of updates and samples; the update that reaches one is the last command. None: no limits.
        parameters: the block and its optimizer; None where only time is simulated.
        log: receives a row of each event and command; None for none.
        first_count: gradients that the first update waits for, where the strategy changes that number.
        rounds: the mini-batches of each push.
    """

    def __init__(
        self,
        number: int,
        strategy: Strategy,
        *,
        num_workers: int,
        batch_size: int,
        limits: Limits | None,
        parameters: Parameters | None = None,
        log: Log | None = None,
        first_count: int | None = None,
        rounds: Rounds = SINGLE,
    ) -> None:
        self.number = number
        self.parameters = parameters
        self.totals = Totals(num_workers)
        self.totals.begin(first_count)
        self.ended_by: str | None = None  # "epochs", "max_updates" or "diverged"
        self.wakes_at = math.inf  # seconds; what the last WakeAt asked for
        self._strategy = strategy
        self._batch_size, self._rounds = batch_size, rounds
        self._limits = limits
        self._log = log
        # push -> (worker, version of this block that it was computed at, gradient)
        self._pending: dict[int, tuple[int, int, Gradient | None]] = {}
        self._sizes: dict[int, int] = {}  # mini-batches of each of them, where pushes differ
        self._sent: SentVersions | None = None  # for a rule that needs the weights that a push was computed from
        if parameters is not None and parameters.rule.needs_weights:
            self._sent = SentVersions(parameters, num_workers)
        # Pushes received from each worker; who joins begins level with the slowest. Infinite: the worker is not active.
        self._levels: list[float] = [0] * num_workers
        self._highest_level: float = 0
        self._min_valid_version: dict[int, int] = {}  # worker -> pushes computed at older versions are rejected

    @property
    def version(self) -> int:
        """Updates applied."""
        return self.totals.updates

    @property
    def active(self) -> set[int]:
        """The workers that the strategy counts on."""
        return {worker for worker in range(len(self._levels)) if self.is_active(worker)}

    def is_active(self, worker: int) -> bool:
        """The strategy counts on this worker."""
        return self._levels[worker] < math.inf

    def is_stale(self, worker: int, version: int) -> bool:
        """A push computed at this version is rejected: the worker has been interrupted since."""
        return version < self._min_valid_version.get(worker, 0)

    def reject(self, at: float, worker: int, version: int, gradient: Gradient | None) -> None:
        """A push has arrived that is stale; the strategy never sees it."""
        self.totals.interrupted_by_worker[worker] += 1
        self.totals.wasted_by_worker[worker] += 1
        if self._log is not None:
            self._log(rows.stale(at, worker, version))
        if gradient is not None:
            gradient.release()

    def begin(self, at: float) -> Iterator[Command]:
        """The run begins, all workers with the initial version."""
        return self._execute(at, self._strategy.begin())

    def send(self, worker: int) -> None:
        """The worker is sent the current version; a Grant says so itself."""
        if self._sent is not None:
            self._sent.send(worker, self.totals.updates)

    def push(
        self,
        at: float,
        push: int,
        worker: int,
        version: int,
        tag: int,
        iteration: int,
        loss: float,
        gradient: Gradient | None,
    ) -> Iterator[Command]:
        """A gradient has arrived.

        Args:
            at: seconds of the engine's clock.
            push: its number, unique at this shard and increasing.
            version: of this block that it was computed at.
            tag: the version that the strategy sees (the worker's pull rule may set another one).
            iteration: the worker's own count of pushes, from 0.
            loss: mean over the mini-batch; the run ends if it is not finite.
            gradient: None where only time is simulated.
        """
        levels = self._levels
        levels[worker] = level = levels[worker] + 1
        if level > self._highest_level:  # only then can the lead be larger than ever before
            self._highest_level = level
            self.totals.max_lead = max(self.totals.max_lead, int(level - min(levels)))
        self._pending[push] = worker, version, gradient
        if self._rounds.differ:
            self._sizes[push] = self._rounds.of(worker).size(iteration)
        if self._sent is not None:
            self._keep_sent(worker, oldest=version)
        if self._log is not None:
            self._log(rows.pushed(at, worker, self.number, push, tag, iteration))
        if loss - loss != 0.0:  # infinite or not a number
            self.ended_by = "diverged"
            self.totals.time_s = at
            return iter(())
        return self._execute(at, self._strategy.handle(PushArrived(at, push, worker, tag, loss)))

    def fire_timer(self, at: float) -> Iterator[Command]:
        """The time has come that the strategy asked for."""
        self.wakes_at = math.inf
        if self._log is not None:
            self._log(rows.timer(at, self.number, self.totals.updates))
        return self._execute(at, self._strategy.handle(TimerFired(at)))

    def join(self, at: float, worker: int) -> Iterator[Command]:
        """A worker that was not active has connected; it holds no weights."""
        assert not self.is_active(worker)
        lowest = min(self._levels)
        self._levels[worker] = lowest if lowest < math.inf else self._highest_level
        if self._log is not None:
            self._log(rows.joined(at, worker, self.number))
        return self._execute(at, self._strategy.handle(WorkerJoined(at, worker)))

    def leave(self, at: float, worker: int, because: str) -> Iterator[Command]:
        """A worker has left; its pushes that have arrived stay pending."""
        self._levels[worker] = math.inf
        self._min_valid_version.pop(worker, None)
        self._keep_sent(worker, oldest=self.version + 1)
        if self._log is not None:
            self._log(rows.left(at, worker, self.number, because))
        return self._execute(at, self._strategy.handle(WorkerLeft(at, worker)))

    def _execute(self, at: float, commands: Sequence[Command]) -> Iterator[Command]:
        """Execute these commands, as the iterator comes to them; it has those that the engine has a part in."""
        for command in commands:
            if type(command) is Apply:  # faster than `match`, which counts with times alone
                self._apply(at, command)
                if self._limits is not None and self._has_reached(self._limits):
                    return
            elif type(command) is Grant:
                if self._log is not None:
                    self._note(at, "granted", command)
                if self._sent is not None:
                    self._sent.send(command.worker, self.totals.updates)
                yield command
            elif type(command) is Hold:
                if self._log is not None:
                    self._note(at, "held", command)
            elif type(command) is Discard:
                self._discard(at, command)
            else:
                self._execute_other(at, command)
                yield command

    def _execute_other(self, at: float, command: Command) -> None:
        """What most strategies command less often."""
        match command:
            case Repeat():
                self._note(at, "repeated", command)
            case Interrupt():
                self._note(at, "interrupted", command)
                self._min_valid_version[command.worker] = self.totals.updates
                self._keep_sent(command.worker, oldest=self.totals.updates)
            case WakeAt():
                self.wakes_at = max(command.at, at)
            case WaitFor():
                self._wait_for(at, command)

    def _apply(self, at: float, command: Apply) -> None:
        """An update: its pushes are no longer pending, and the parameters are stepped."""
        totals, pending, log, gradients = self.totals, self._pending, self._log, []
        version, histogram, pushes = totals.updates, totals.staleness, list[AppliedPush]()
        for push in command.pushes:
            worker, computed_at, gradient = pending.pop(push)
            staleness = version - computed_at
            try:
                histogram[staleness] += 1
            except IndexError:
                histogram += [0] * (staleness - len(histogram)) + [1]
            totals.used_by_worker[worker] += 1
            if log is not None:
                log(rows.applied(at, worker, self.number, push, version + 1, staleness, command.because))
            if gradient is not None:
                gradients.append(gradient)
                pushes.append(self._pushed(push, worker, computed_at, gradient))
        if self.parameters is not None:
            self.parameters.apply(pushes, command.scale, totals.samples, version, is_sum=command.is_sum)
            for gradient in gradients:
                gradient.release()
            for pushed in pushes:
                self._keep_sent(pushed.worker)
        totals.time_s = at
        totals.updates = version + 1
        num_batches = len(command.pushes) * self._rounds.steps
        if self._rounds.differ:
            num_batches = sum(map(self._sizes.pop, command.pushes))
        totals.samples += num_batches * self._batch_size

    def _pushed(self, push: int, worker: int, computed_at: int, gradient: Gradient) -> AppliedPush:
        """What the rule sees of a push."""
        assert self.parameters is not None
        steps = self._sizes[push] if self._rounds.differ else self._rounds.steps
        return AppliedPush(
            gradient.flat[self.parameters.block],
            gradient.buffers,
            worker,
            self.totals.updates - computed_at,
            steps,
            steps * self._batch_size,
            None if self._sent is None else self._sent.weights(worker, computed_at),
        )

    def _keep_sent(self, worker: int, oldest: int | None = None) -> None:
        """Keep what pushes of the worker that are pending, or to come, were computed from."""
        if self._sent is not None:
            self._sent.keep(worker, {at for who, at, _ in self._pending.values() if who == worker}, oldest)

    def _has_reached(self, limits: Limits) -> bool:
        self.ended_by = limits.reached(self.totals.samples, self.totals.updates)
        return self.ended_by is not None

    def _note(self, at: float, kind: str, command: Grant | Hold | Repeat | Interrupt) -> None:
        if self._log is not None:
            self._log(rows.answer(at, kind, command.worker, self.number, self.totals.updates, command.because))

    def _discard(self, at: float, command: Discard) -> None:
        worker, version, gradient = self._pending.pop(command.push)
        self._sizes.pop(command.push, None)
        self.totals.discarded_by_worker[worker] += 1
        if self._log is not None:
            self._log(rows.discarded(at, worker, self.number, command.push, version, command.because))
        if gradient is not None:
            gradient.release()
        self._keep_sent(worker)

    def _wait_for(self, at: float, command: WaitFor) -> None:
        version, count = self.totals.updates, command.count
        self.totals.waits_for.append((at, version, count))
        if self._log is not None:
            self._log(rows.waits_for(at, self.number, version, count, command.because))

    def state_dict(self) -> dict[str, Any]:
        """All but the parameters and the pending gradients, in plain types that JSON can hold."""
        return {
            "strategy": self._strategy.state_dict(),
            "totals": self.totals.state_dict(),
            "wakes_at": self.wakes_at,
            "levels": list(self._levels),
            "highest_level": self._highest_level,
            "min_valid_version": list(self._min_valid_version.items()),
            "sizes": list(self._sizes.items()),
            "oldest_sent": [] if self._sent is None else list(self._sent.oldest),
            "pending": [(push, worker, version) for push, (worker, version, _) in self._pending.items()],
        }

    def pending_gradients(self) -> dict[int, Gradient | None]:
        """By the number of their push."""
        return {push: gradient for push, (_, _, gradient) in self._pending.items()}

    def sent_versions(self) -> list[tuple[int, int, Version]]:
        """Worker, number and version of what workers were sent and may still use; empty unless the rule needs it."""
        return [] if self._sent is None else self._sent.all()

    def load_state_dict(
        self,
        state: Mapping[str, Any],
        gradients: Mapping[int, Gradient | None],
        sent: Iterable[tuple[int, int, Version]] = (),
    ) -> None:
        """Continue from what `state_dict`, `pending_gradients` and `sent_versions` gave."""
        if self._sent is not None:
            self._sent.load(state["oldest_sent"], sent)
        self._strategy.load_state_dict(state["strategy"])
        self.totals = Totals.from_state(state["totals"])
        self.wakes_at = state["wakes_at"]
        self._levels, self._highest_level = list(state["levels"]), state["highest_level"]
        self._min_valid_version = dict(state["min_valid_version"])
        self._sizes = dict(state["sizes"])
        self._pending = {push: (worker, version, gradients[push]) for push, worker, version in state["pending"]}
