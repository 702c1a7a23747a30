"""One shard of a real run: what real workers add to it.

Real workers join and leave, may be computing when they are granted, and report with each push what they did before it.
No sockets and no clock here: server.py calls with the time, on the owner's thread, and carries out commands.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import Tensor

from syncline.learning.parameters import Gradient, Parameters
from syncline.live.checkpoints import load_parameters, optimizer_tensors
from syncline.progress import Limits
from syncline.records import rows
from syncline.records.events import EventLog
from syncline.records.rows import Log
from syncline.rounds import SINGLE, Rounds
from syncline.server.report import PushReport, note_computation
from syncline.server.shard import Deadlock, Shard
from syncline.strategies.protocol import Command, StrategyOptions

CANCELLED = "cancelled in its delay"  # why a gradient was dropped whose injected delay an interrupt cut short
WASTED = "computed to the end"  # why one was dropped that an interrupt made stale before it was pushed


class NotElastic(RuntimeError):
    """A worker has left that the strategy cannot do without: the run restarts from its checkpoint."""


class ElasticShard(Shard):
    """One shard, which decides when the run ends.

    Args:
        batch_size: samples in a mini-batch.
        rounds: the mini-batches of each push.
        log: receives the events; None for none.
    """

    parameters: Parameters

    def __init__(
        self,
        number: int,
        options: StrategyOptions,
        parameters: Parameters,
        batch_size: int,
        limits: Limits,
        log: EventLog | None,
        rounds: Rounds = SINGLE,
    ) -> None:
        super().__init__(
            number,
            options.start(parameters.num_workers),
            num_workers=parameters.num_workers,
            batch_size=batch_size,
            limits=limits,
            parameters=parameters,
            log=None if log is None else log.append,
            first_count=options.first_count,
            rounds=rounds,
        )
        self.waiting: set[int] = set()  # active workers that have pushed and are not granted yet
        self.iterations = [0] * parameters.num_workers  # numbers of the pushes that the workers compute next
        self._elastic = options.elastic
        self._pulls = options.pull_rule(1) is not None  # then workers push when it lets them, whatever we have answered
        self._num_pushes = 0
        self._tags = [-1] * parameters.num_workers  # of each worker's last push; below 0 if it has made none

    def connected(self, at: float, resumed: bool) -> dict[int, bool]:
        """Every worker is connected, and is to be sent the block, also if it was held when a checkpoint was written.

        Such a worker may have to push to another shard what that one had not received.

        Returns:
            By worker, whether it is held.
        """
        is_held = {worker: not self.owes(worker) for worker in sorted(self.active)}
        for worker in is_held:
            self.send(worker)
        if resumed and self._log is not None:
            for worker, held in is_held.items():
                self._log(rows.resumed(at, worker, self.number, self.totals.updates, held))
        return is_held

    def expects(self, worker: int) -> bool:
        """A push of this worker may arrive."""
        return self.is_active(worker) and worker not in self.waiting

    def owes(self, worker: int) -> bool:
        """A push of this worker is due: it was sent what it needs."""
        return self.expects(worker) and not (self._pulls and self._tags[worker] >= self.totals.updates)

    def pushed(self, at: float, report: PushReport, gradient: Gradient) -> Iterator[Command]:
        """A gradient has arrived."""
        worker, totals = report.worker, self.totals
        assert self.expects(worker)
        self.iterations[worker] = report.iteration + 1  # a push that another shard missed is missed here, too
        totals.interrupted_by_worker[worker] += report.cancelled + report.wasted
        totals.wasted_by_worker[worker] += report.wasted
        totals.busy_s_by_worker[worker] += report.computed_at - report.started_at + report.lost_s
        is_stale = self.is_stale(worker, report.version)
        if self._log is not None:
            self._note_report(self._log, report, gradient, is_stale)
        if is_stale:
            self.reject(at, worker, report.version, gradient)
            return iter(())
        if not self._pulls:
            self.waiting.add(worker)
        self._tags[worker] = report.tag
        totals.loss_sum += report.loss
        totals.loss_count += 1
        push = self._num_pushes
        self._num_pushes += 1
        return self.push(at, push, worker, report.version, report.tag, report.iteration, report.loss, gradient)

    def granted(self, worker: int) -> tuple[bool, bool]:
        """The worker is sent the block.

        Returns:
            Whether it is computing now, and whether its next push is due from now on: if it computes, the block
            interrupts it, or its pull rule could not let it continue without this version.
        """
        is_busy = worker not in self.waiting
        self.waiting.discard(worker)
        return is_busy, not is_busy or not self._pulls or self._tags[worker] == self.totals.updates - 1

    def repeated(self, worker: int) -> None:
        """The worker is told to continue at the version that it has."""
        self.waiting.discard(worker)

    def check_progress(self, at: float) -> None:
        """Raises Deadlock if every worker is held when all commands are carried out, and no timer is set."""
        active = self.active
        if active and self.waiting.issuperset(active) and self.wakes_at == math.inf and not self.ended_by:
            raise Deadlock(at, self._strategy.state_dict())

    def joined(self, at: float, worker: int) -> Iterator[Command]:
        """A worker that was not active has connected; it holds no weights."""
        self._tags[worker] = -1
        self.waiting.add(worker)
        return self.join(at, worker)

    def left(self, at: float, worker: int, why: str) -> Iterator[Command]:
        """A worker is gone; its pushes that have arrived stay. Raises NotElastic if the strategy needs the worker."""
        if not self._elastic:
            raise NotElastic(f"worker {worker} is gone ({why})")
        self.waiting.discard(worker)
        return self.leave(at, worker, why)

    def _note_report(self, log: Log, report: PushReport, gradient: Gradient, is_stale: bool) -> None:
        """Rows of what the worker did since its last push."""
        worker, number = report.worker, self.number
        for because in [CANCELLED] * report.cancelled + [WASTED] * report.wasted:
            log(rows.dropped(report.started_at, worker, because))
        if report.pull_delay_s and not is_stale:
            log(rows.delayed(report.pulled_at, worker, report.pull_delay_s, "pull", number))
        if number == 0:  # one shard writes down what concerns all
            note_computation(log, report, self._rounds.of(worker))
        if is_stale:
            return
        if report.push_delay_s:
            log(rows.delayed(report.computed_at, worker, report.push_delay_s, "push", number))
        if gradient.versions is not None:
            log(rows.pulled(report.started_at, worker, number, report.iteration, gradient.versions.tolist()))

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """All that is needed to resume, as tensors (copies where they will change) and plain types."""
        parameters = self.parameters
        tensors = {"weights": parameters.current.weights, "buffers": parameters.current.buffers}
        tensors |= {name: tensor.clone() for name, tensor in optimizer_tensors(parameters.optimizer).items()}
        tensors |= {f"update.{name}": tensor.clone() for name, tensor in parameters.rule.state_dict().items()}
        for push, gradient in self.pending_gradients().items():
            assert gradient is not None
            tensors[f"pending.{push}.gradient"] = gradient.flat.clone()
            tensors[f"pending.{push}.buffers"] = gradient.buffers.clone()
        for worker, number, version in self.sent_versions():
            tensors[f"sent.{worker}.{number}"] = version.weights.clone()
        own = self.state_dict()
        return tensors, {
            "totals": own.pop("totals"),
            "shard": own,
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
        parameters = self.parameters
        load_parameters(tensors, parameters.current.weights, parameters.current.buffers, parameters.optimizer)
        own = {name.removeprefix("update."): each for name, each in tensors.items() if name.startswith("update.")}
        parameters.rule.load_state_dict(own)
        self.waiting = set(state["waiting"])
        self._num_pushes, self.iterations = state["num_pushes"], list(state["iterations"])
        self._tags = list(state["tags"])
        gradients = {}
        for push, _, _ in state["shard"]["pending"]:
            gradients[push] = gradient = make_gradient()
            gradient.flat.copy_(tensors[f"pending.{push}.gradient"])
            gradient.buffers.copy_(tensors[f"pending.{push}.buffers"])
        sent = [name.split(".")[1:] for name in tensors if name.startswith("sent.")]
        versions = [
            (int(worker), int(number), parameters.own_version(tensors[f"sent.{worker}.{number}"]))
            for worker, number in sent
        ]
        self.load_state_dict(state["shard"] | {"totals": state["totals"]}, gradients, versions)
