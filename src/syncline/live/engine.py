"""One shard of a real run: drives its strategy with what arrives, and keeps its block, its log and its totals.

No sockets and no clock here: `server.py` calls with the time, and carries out what `ReplySink` asks for. Everything
happens on the one thread that owns the shard.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from syncline.learning.server import Gradient, Shard
from syncline.progress import Limits, Totals
from syncline.records.events import EventLog
from syncline.server.report import PushReport
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
)
from syncline.strategies.protocol import WorkerJoined as Joined
from syncline.strategies.protocol import WorkerLeft as Left


class ReplySink(Protocol):
    """Where the engine's answers go."""

    def grant(self, worker: int, version: int, iteration: int, is_busy: bool) -> None:
        """Send the worker the shard's current version; it goes on with this iteration. Busy: it is computing now."""
        ...

    def repeat(self, worker: int, version: int, iteration: int) -> None:
        """Tell the worker to go on with this iteration at the version it has."""
        ...

    def warn(self, words: str) -> None:
        """Tell the user."""
        ...

    def release(self, gradient: Gradient) -> None:
        """The engine is done with this gradient."""
        ...


class NotElastic(RuntimeError):
    """A worker of a strategy that cannot go on without it is gone: the run begins again from its checkpoint."""


@dataclass(slots=True)
class _Pending:
    worker: int
    version: int
    gradient: Gradient


class Engine:
    """The state machine around a strategy.

    Args:
        number: of the shard.
        strategy: its own instance.
        shard: its block.
        batch_size: samples in one gradient.
        limits: when the run ends.
        elastic: the strategy goes on without a worker that is gone.
        pulls: workers have a pull rule, and push when it lets them, whatever this shard has answered.
        post: takes the answers.
        log: takes the events; None for none.
    """

    def __init__(
        self,
        number: int,
        strategy: Strategy,
        shard: Shard,
        batch_size: int,
        limits: Limits,
        elastic: bool,
        pulls: bool,
        post: ReplySink,
        log: EventLog | None,
    ) -> None:
        self.number = number
        self.shard = shard
        self.totals = Totals(shard.num_workers)
        self.ended_by: str | None = None
        self.here = set(range(shard.num_workers))  # workers that the strategy counts on
        self.waiting: set[int] = set()  # of these, who has pushed and is not granted yet
        self._strategy = strategy
        self._batch_size = batch_size
        self._limits = limits
        self._elastic = elastic
        self._pulls = pulls
        self._post = post
        self._log = log
        self._pushes = 0
        self._counts = [0] * shard.num_workers  # the iteration that each worker is to make next
        self._levels = [
            0
        ] * shard.num_workers  # pushes that have come from each, but who joins begins level with the slowest
        self._pending: dict[int, _Pending] = {}
        self._tags = [-1] * shard.num_workers  # of each worker's last push; below 0 if it has made none
        self._min_valid_version: dict[int, int] = {}  # worker -> pushes computed at an older version are void
        self.wakes_at = math.inf  # when the strategy wants to hear of the time

    def begin(self, at: float, resumed: bool) -> None:
        """Every worker is connected: send it the block, unless it was held when the checkpoint was made."""
        for worker in sorted(self.here - self.waiting):
            if resumed:
                self._note(at, "granted", worker, self.totals.updates, because="resumed")
            self._post.grant(worker, self.totals.updates, self._counts[worker], is_busy=False)

    def iteration(self, worker: int) -> int:
        """The one that the worker is to make next."""
        return self._counts[worker]

    def expects(self, worker: int) -> bool:
        """A push of this worker may come."""
        return worker in self.here and worker not in self.waiting

    def owes(self, worker: int) -> bool:
        """A push of this worker is due: it was sent what it goes on with."""
        return self.expects(worker) and not (self._pulls and self._tags[worker] >= self.totals.updates)

    def begins_anew(self, worker: int) -> bool:
        """This worker, which is granted while it is busy, owes a push only from now on.

        It was interrupted, or its pull rule could not let it go on without this version.
        """
        return not self._pulls or self._tags[worker] == self.totals.updates - 1

    def pushed(self, at: float, frame: PushReport, gradient: Gradient) -> None:
        """A gradient is here; the strategy answers."""
        worker, totals = frame.worker, self.totals
        assert self.expects(worker)
        self._counts[worker] = frame.iteration + 1  # a push that another shard missed is missed here, too
        totals.interrupted_by_worker[worker] += frame.cancelled + frame.wasted
        totals.wasted_by_worker[worker] += frame.wasted
        for because in ["its delay was broken off"] * frame.cancelled + ["computed to the end"] * frame.wasted:
            self._note(frame.started_at, "dropped", worker, -1, because=because, shard=-1)
        totals.busy_s_by_worker[worker] += frame.computed_at - frame.started_at
        if frame.version < self._min_valid_version.get(worker, 0):
            totals.interrupted_by_worker[worker] += 1
            totals.wasted_by_worker[worker] += 1
            self._note_worker(frame)
            self._note(at, "dropped", worker, frame.version, because="on its way", shard=-1)
            self._post.release(gradient)
            return
        if not self._pulls:
            self.waiting.add(worker)
        self._tags[worker] = frame.tag
        self._levels[worker] += 1
        lead = self._levels[worker] - min(self._levels[other] for other in self.here)
        totals.max_lead = max(totals.max_lead, lead)
        totals.loss_sum += frame.loss
        totals.loss_count += 1
        push = self._pushes
        self._pushes += 1
        self._pending[push] = _Pending(worker, frame.version, gradient)
        if frame.pull_delay_s:
            self._note(frame.pulled_at, "delayed", worker, -1, value=frame.pull_delay_s, because="pull")
        self._note_worker(frame)
        if frame.push_delay_s:
            self._note(frame.computed_at, "delayed", worker, -1, value=frame.push_delay_s, because="push")
        if gradient.versions is not None:
            versions = gradient.versions.tolist()
            words = " ".join(map(str, versions))
            self._note(frame.started_at, "pulled", worker, min(versions), value=frame.iteration, because=words)
        self._note(at, "pushed", worker, frame.tag, push=push, value=frame.iteration)
        if frame.loss - frame.loss != 0:  # infinite or not a number
            self.ended_by = "diverged"
            totals.time_s = at
            return
        self._obey(at, self._strategy.handle(PushArrived(at, push, worker, frame.tag, frame.loss)))

    def timer(self, at: float) -> None:
        """The moment has come that the strategy asked for."""
        self.wakes_at = math.inf
        self._note(at, "timer", -1, self.totals.updates)
        self._obey(at, self._strategy.handle(TimerFired(at)))

    def joined(self, at: float, worker: int) -> None:
        """A worker that was not here is connected and holds no weights."""
        assert worker not in self.here
        self._levels[worker] = min((self._levels[other] for other in self.here), default=max(self._levels))
        self._tags[worker] = -1
        self.here.add(worker)
        self.waiting.add(worker)
        self._note(at, "joined", worker, -1)
        self._obey(at, self._strategy.handle(Joined(at, worker)))

    def left(self, at: float, worker: int, why: str) -> None:
        """A worker is gone; its pushes that have arrived stay.

        Raises:
            NotElastic: the strategy cannot go on without it.
        """
        if not self._elastic:
            raise NotElastic(f"worker {worker} is gone ({why})")
        self.here.discard(worker)
        self.waiting.discard(worker)
        self._min_valid_version.pop(worker, None)
        self._note(at, "left", worker, -1, because=why)
        commands = self._strategy.handle(Left(at, worker))
        for command in commands:
            if isinstance(command, WaitFor):
                self._post.warn(f"an update waits for {command.count} gradients from now on: {command.because}")
        self._obey(at, commands)

    def _obey(self, at: float, commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Apply):
                self._apply(at, command)
                if self.ended_by is not None:
                    return
            elif isinstance(command, Grant):
                worker = command.worker
                is_busy = worker not in self.waiting
                self.waiting.discard(worker)
                self._note(at, "granted", worker, self.totals.updates, because=command.because)
                self._post.grant(worker, self.totals.updates, self._counts[worker], is_busy)
            elif isinstance(command, Hold):
                self._note(at, "held", command.worker, self.totals.updates, because=command.because)
            elif isinstance(command, Discard):
                pending = self._pending.pop(command.push)
                self.totals.discarded_by_worker[pending.worker] += 1
                self._note(at, "discarded", pending.worker, pending.version, push=command.push, because=command.because)
                self._post.release(pending.gradient)
            elif isinstance(command, Repeat):
                self.waiting.discard(command.worker)
                self._note(at, "repeated", command.worker, self.totals.updates, because=command.because)
                self._post.repeat(command.worker, self.totals.updates, self._counts[command.worker])
            elif isinstance(command, Interrupt):  # the worker hears of it by the block that follows
                self._min_valid_version[command.worker] = self.totals.updates
                self._note(at, "interrupted", command.worker, self.totals.updates, because=command.because)
            elif isinstance(command, WakeAt):
                self.wakes_at = command.at
            elif isinstance(command, WaitFor):
                self.totals.waits_for.append((at, self.totals.updates, command.count))
                self._note(at, "waits_for", -1, self.totals.updates, value=command.count, because=command.because)

    def _apply(self, at: float, command: Apply) -> None:
        totals = self.totals
        applied = [self._pending.pop(push) for push in command.pushes]
        gradients = [pending.gradient for pending in applied]
        self.shard.apply(gradients, command.scale, totals.samples, totals.updates, is_sum=command.is_sum)
        for push, pending in zip(command.pushes, applied, strict=True):
            stale = totals.updates - pending.version
            totals.staleness[stale] = totals.staleness.get(stale, 0) + 1
            totals.used_by_worker[pending.worker] += 1
            self._note(
                at, "applied", pending.worker, totals.updates + 1, push=push, value=stale, because=command.because
            )
            self._post.release(pending.gradient)
        totals.updates += 1
        totals.samples += len(applied) * self._batch_size
        totals.time_s = at
        self.ended_by = self._limits.reached(totals.samples, totals.updates)

    def _note_worker(self, frame: PushReport) -> None:
        """What the worker did since its last push, as it told with this one; the first shard writes it down."""
        if self.number != 0:
            return
        worker, begun, done = frame.worker, frame.started_at, frame.computed_at
        self._note(begun, "started", worker, frame.version, value=done - begun, shard=-1)
        # The stretch of a slow worker follows its own work, the injected delay follows the stretch.
        if frame.slowdown_s:
            at = done - frame.compute_delay_s - frame.slowdown_s
            self._note(at, "delayed", worker, -1, value=frame.slowdown_s, because="slow", shard=-1)
        if frame.compute_delay_s:
            self._note(
                done - frame.compute_delay_s,
                "delayed",
                worker,
                -1,
                value=frame.compute_delay_s,
                because="compute",
                shard=-1,
            )
        self._note(done, "computed", worker, frame.version, value=frame.loss, shard=-1)

    def _note(
        self,
        at: float,
        kind: str,
        worker: int,
        version: int,
        *,
        push: int = -1,
        value: float = 0.0,
        because: str = "",
        shard: int | None = None,
    ) -> None:
        if self._log is not None:
            self._log.append(at, kind, worker, self.number if shard is None else shard, push, version, value, because)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to go on, as tensors (copies where they will change) and plain types."""
        shard = self.shard
        tensors = {"weights": shard.current.weights, "buffers": shard.current.buffers}
        for name, tensor in shard.optimizer.state_dict().items():
            tensors[f"optimizer.{name}"] = tensor.clone()
        for push, pending in self._pending.items():
            tensors[f"pending.{push}.gradient"] = pending.gradient.flat.clone()
            tensors[f"pending.{push}.buffers"] = pending.gradient.buffers.clone()
        state = {
            "strategy": self._strategy.state_dict(),
            "totals": self.totals.state_dict(),
            "here": sorted(self.here),
            "waiting": sorted(self.waiting),
            "pushes": self._pushes,
            "counts": list(self._counts),
            "levels": list(self._levels),
            "min_valid_version": list(self._min_valid_version.items()),
            "wakes_at": self.wakes_at,
            "pending": [[push, pending.worker, pending.version] for push, pending in self._pending.items()],
        }
        return tensors, state

    def load(
        self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], make_gradient: Callable[[], Gradient]
    ) -> None:
        """Go on from what `state` gave."""
        shard = self.shard
        shard.current.weights.copy_(tensors["weights"])
        shard.current.buffers.copy_(tensors["buffers"])
        prefix = "optimizer."
        shard.optimizer.load_state_dict(
            {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        )
        self._strategy.load_state_dict(state["strategy"])
        self.totals = Totals.from_state(state["totals"])
        self.here, self.waiting = set(state["here"]), set(state["waiting"])
        self._pushes, self._counts, self._levels = state["pushes"], list(state["counts"]), list(state["levels"])
        self._min_valid_version = dict(state["min_valid_version"])
        self.wakes_at = state["wakes_at"]
        for push, worker, version in state["pending"]:
            gradient = make_gradient()
            gradient.flat.copy_(tensors[f"pending.{push}.gradient"])
            gradient.buffers.copy_(tensors[f"pending.{push}.buffers"])
            self._pending[push] = _Pending(worker, version, gradient)
