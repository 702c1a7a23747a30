"""One shard of a real run: the interpreter of its strategy, and what real workers add to it.

Real workers join and leave, may be computing when they are granted, and report with each push what they did before it.
No sockets and no clock here: shard.py calls with the time, and the `ReplySender` of connections.py sends the answers.
It all happens on the thread that owns the shard.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from syncline.learning.server import Gradient, Shard
from syncline.live.checkpoints import load_parameters, optimizer_tensors
from syncline.live.connections import ReplySender
from syncline.progress import Limits, Totals
from syncline.records.events import EventLog
from syncline.rounds import SINGLE, Rounds
from syncline.server.interpreter import RESUMED, Deadlock, Log, ShardInterpreter
from syncline.server.report import PushReport
from syncline.strategies.protocol import StrategyOptions, WaitFor

CANCELLED = "cancelled in its delay"  # why a gradient was dropped whose injected delay an interrupt cut short
WASTED = "computed to the end"  # why one was dropped that an interrupt made stale before it was pushed


class NotElastic(RuntimeError):
    """A worker has left that the strategy cannot do without: the run restarts from its checkpoint."""


class Engine:
    """One shard; it is the `Driver` of its interpreter, which decides when the run ends.

    Args:
        batch_size: samples in a mini-batch.
        rounds: the mini-batches of each push.
        log: receives the events; None for none.
    """

    def __init__(
        self,
        number: int,
        options: StrategyOptions,
        shard: Shard,
        batch_size: int,
        limits: Limits,
        sender: ReplySender,
        log: EventLog | None,
        rounds: Rounds = SINGLE,
    ) -> None:
        self.number, self.shard = number, shard
        self.waiting: set[int] = set()  # active workers that have pushed and are not granted yet
        self.iterations = [0] * shard.num_workers  # numbers of the pushes that the workers compute next
        self._rounds = rounds
        self._elastic, self._sender = options.elastic, sender
        self._pulls = options.pull_rule(1) is not None  # then workers push when it lets them, whatever we have answered
        self._log = None if log is None else log.append
        self._num_pushes = 0
        self._tags = [-1] * shard.num_workers  # of each worker's last push; below 0 if it has made none
        self.interpreter = ShardInterpreter(
            number,
            options.start(shard.num_workers),
            num_workers=shard.num_workers,
            batch_size=batch_size,
            limits=limits,
            driver=self,
            parameters=shard,
            log=self._log,
            first_count=options.first_count,
            rounds=rounds,
        )

    @property
    def totals(self) -> Totals:
        return self.interpreter.totals

    @property
    def active(self) -> set[int]:
        """The workers that the strategy counts on."""
        return set(self.interpreter.active)

    def begin(self, at: float, resumed: bool) -> None:
        """Every worker is connected: send it the block, also if it was held when the checkpoint was written.

        Such a worker may have to push to another shard what that one had not received.
        """
        version = self.totals.updates
        for worker in sorted(self.active):
            is_held = not self.owes(worker)
            if resumed and self._log is not None:
                self._log(at, "held" if is_held else "granted", worker, self.number, -1, version, 0.0, RESUMED)
            if is_held:
                self._sender.hold(worker, version, self.iterations[worker])
            else:
                self._sender.grant(worker, version, self.iterations[worker], is_busy=False, is_due=True)
        self.check_progress(at)

    def expects(self, worker: int) -> bool:
        """A push of this worker may arrive."""
        return self.interpreter.is_active(worker) and worker not in self.waiting

    def owes(self, worker: int) -> bool:
        """A push of this worker is due: it was sent what it needs."""
        return self.expects(worker) and not (self._pulls and self._tags[worker] >= self.totals.updates)

    def pushed(self, at: float, report: PushReport, gradient: Gradient) -> None:
        """A gradient has arrived; the strategy answers."""
        worker, totals = report.worker, self.totals
        assert self.expects(worker)
        self.iterations[worker] = report.iteration + 1  # a push that another shard missed is missed here, too
        totals.interrupted_by_worker[worker] += report.cancelled + report.wasted
        totals.wasted_by_worker[worker] += report.wasted
        totals.busy_s_by_worker[worker] += report.computed_at - report.started_at
        is_stale = self.interpreter.is_stale(worker, report.version)
        if self._log is not None:
            self._note_report(report, gradient, is_stale)
        if is_stale:
            self.interpreter.reject(at, worker, report.version, gradient)
            return
        if not self._pulls:
            self.waiting.add(worker)
        self._tags[worker] = report.tag
        totals.loss_sum += report.loss
        totals.loss_count += 1
        push = self._num_pushes
        self._num_pushes += 1
        version, tag, iteration = report.version, report.tag, report.iteration
        self.interpreter.push(at, push, worker, version, tag, iteration, report.loss, gradient)
        self.check_progress(at)

    def check_progress(self, at: float) -> None:
        """Raises Deadlock if every worker is held, and no timer is set."""
        interpreter, active = self.interpreter, self.interpreter.active
        if active and self.waiting.issuperset(active) and interpreter.wakes_at == math.inf and not interpreter.ended_by:
            raise Deadlock(at, interpreter.state_dict()["strategy"])

    def joined(self, at: float, worker: int) -> None:
        """A worker that was not active has connected; it holds no weights."""
        self._tags[worker] = -1
        self.waiting.add(worker)
        self.interpreter.join(at, worker)

    def left(self, at: float, worker: int, why: str) -> None:
        """A worker is gone; its pushes that have arrived stay. Raises NotElastic if the strategy needs the worker."""
        if not self._elastic:
            raise NotElastic(f"worker {worker} is gone ({why})")
        self.waiting.discard(worker)
        for command in self.interpreter.leave(at, worker, why):
            if isinstance(command, WaitFor):
                self._sender.warn(f"an update waits for {command.count} gradients from now on: {command.because}")
        self.check_progress(at)

    # The driver of the interpreter.

    def grant(self, shard: int, worker: int, version: int) -> None:
        is_busy = worker not in self.waiting
        self.waiting.discard(worker)
        # If it computes, this interrupts it, or its pull rule could not let it continue without this version.
        is_due = not is_busy or not self._pulls or self._tags[worker] == version - 1
        self._sender.grant(worker, version, self.iterations[worker], is_busy, is_due)

    def repeat(self, shard: int, worker: int) -> None:
        self.waiting.discard(worker)
        self._sender.repeat(worker)

    def interrupt(self, shard: int, worker: int) -> None:
        """The worker learns of it by the block that follows."""

    def wake_at(self, shard: int, at: float) -> None:
        """The shard's loop reads the interpreter's `wakes_at`."""

    def release(self, gradient: Gradient) -> None:
        self._sender.release(gradient)

    def _note_report(self, report: PushReport, gradient: Gradient, is_stale: bool) -> None:
        """Rows of what the worker did since its last push."""
        assert self._log is not None
        log, worker, number = self._log, report.worker, self.number
        for because in [CANCELLED] * report.cancelled + [WASTED] * report.wasted:
            log(report.started_at, "dropped", worker, -1, -1, -1, 0.0, because)
        if report.pull_delay_s and not is_stale:
            log(report.pulled_at, "delayed", worker, number, -1, -1, report.pull_delay_s, "pull")
        if number == 0:  # one shard writes down what concerns all
            note_computation(self._log, report, self._rounds)
        if is_stale:
            return
        if report.push_delay_s:
            log(report.computed_at, "delayed", worker, number, -1, -1, report.push_delay_s, "push")
        if gradient.versions is not None:
            versions = gradient.versions.tolist()
            words = " ".join(map(str, versions))
            log(report.started_at, "pulled", worker, number, -1, min(versions), report.iteration, words)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to resume, as tensors (copies where they will change) and plain types."""
        shard = self.shard
        tensors = {"weights": shard.current.weights, "buffers": shard.current.buffers}
        tensors |= {name: tensor.clone() for name, tensor in optimizer_tensors(shard.optimizer).items()}
        for push, gradient in self.interpreter.pending_gradients().items():
            assert gradient is not None
            tensors[f"pending.{push}.gradient"] = gradient.flat.clone()
            tensors[f"pending.{push}.buffers"] = gradient.buffers.clone()
        interpreter = self.interpreter.state_dict()
        return tensors, {
            "totals": interpreter.pop("totals"),
            "interpreter": interpreter,
            "waiting": sorted(self.waiting),
            "num_pushes": self._num_pushes,
            "iterations": list(self.iterations),
            "tags": list(self._tags),
            "active": sorted(self.active),
        }

    def load(
        self, tensors: Mapping[str, Tensor], state: Mapping[str, Any], make_gradient: Callable[[], Gradient]
    ) -> None:
        """Resume from what `state` gave."""
        shard = self.shard
        load_parameters(tensors, shard.current.weights, shard.current.buffers, shard.optimizer)
        self.waiting = set(state["waiting"])
        self._num_pushes, self.iterations = state["num_pushes"], list(state["iterations"])
        self._tags = list(state["tags"])
        gradients = {}
        for push, _, _ in state["interpreter"]["pending"]:
            gradients[push] = gradient = make_gradient()
            gradient.flat.copy_(tensors[f"pending.{push}.gradient"])
            gradient.buffers.copy_(tensors[f"pending.{push}.buffers"])
        self.interpreter.load_state_dict(state["interpreter"] | {"totals": state["totals"]}, gradients)


def note_computation(log: Log, report: PushReport, rounds: Rounds) -> None:
    """Rows of how a gradient was computed."""
    worker, begun, done = report.worker, report.started_at, report.computed_at
    log(begun, "started", worker, -1, -1, report.version, done - begun, rounds.told(report.iteration))
    # The slowdown follows the worker's own computation, the injected delay the slowdown, as `PushReport` says.
    if report.slowdown_s:
        at = done - report.compute_delay_s - report.slowdown_s
        log(at, "delayed", worker, -1, -1, -1, report.slowdown_s, "slow")
    if report.compute_delay_s:
        log(done - report.compute_delay_s, "delayed", worker, -1, -1, -1, report.compute_delay_s, "compute")
    log(done, "computed", worker, -1, -1, report.version, report.loss, "")
