"""The process of an asynchronous peer: it computes, averages its replica with a peer's, steps, and goes on.

Others average with its replica meanwhile, on threads of their connections (pairs.py). A thread of the first peer
conducts all (conductor.py); orders of it arrive on a thread of their own. Imported by nobody: `node.process` starts it.
"""

import math
import queue
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch

from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.assembly.problem import build_problem
from syncline.learning.evaluate import final_state
from syncline.learning.peer_replica import Choices, PeerReplica
from syncline.learning.worker_state import WorkerState
from syncline.live.checkpoints import PartState, StateWriter, load_parameters, optimizer_tensors, read_checkpoint
from syncline.live.collective.conductor import Conductor, Tally
from syncline.live.collective.member_control import MemberControl
from syncline.live.collective.pairs import Pairs
from syncline.live.collective.process_group import MemberLost
from syncline.live.node.control import RunContext
from syncline.live.node.process import RESTART, Job
from syncline.live.node.ranks import Ranks
from syncline.live.wire.clock import RunClock
from syncline.live.wire.control_messages import Done, RestartNeeded, Stopped
from syncline.live.wire.frames import receive_json, send_json
from syncline.live.wire.handshake import Listener, connect
from syncline.live.wire.sockets import address_of, listen
from syncline.progress import Totals
from syncline.records import rows
from syncline.records.events import EventLog
from syncline.server.report import PushReport, note_computation
from syncline.timing.cluster import DelayInjector

PROGRESS_S = 0.005  # between two reports to the conductor
TOLD = ("steps", "samples", "time_s", "loss_sum", "loss_count")  # in them
Order = Mapping[str, Any]


def main(job: Job, rank: int, ranks: Ranks) -> int:
    """Be this peer until the run ends. Returns the exit code: RESTART if another one is lost."""
    context = RunContext.of(job, "peer", rank, ranks)
    configure_torch(context.config)
    peer = Peer(context, rank)
    try:
        peer.join()
        peer.end(peer.run())
    except MemberLost as error:
        print(f"lost: {error}", file=sys.stderr)
        peer.control.client.send(RestartNeeded(str(error)))
        return RESTART
    return 0


class Peer:
    """One worker with its replica."""

    def __init__(self, context: RunContext, rank: int) -> None:
        config, device = context.config, pick_device(context.config, context.local_rank)
        self._context, self._config, self._rank = context, config, rank
        problem = build_problem(config, device)
        flat, self._num_train = problem.flat, problem.num_train
        self._rate, optimizer = build_rate(config, problem.num_train), build_optimizer(config, flat.layout)
        weights, buffers = flat.weights.clone(), flat.buffers.clone()
        self._replica = PeerReplica(weights, buffers, optimizer, self._rate, config.cluster.workers)
        self._local, self._batches = build_local_steps(config, problem, rank), problem.batches(config, rank)
        # A warm-up gradient, for what libraries set up at the first one; it changes nothing.
        problem.gradient([weights], buffers, self._batches.take(0))
        self._kept = WorkerState({"local": self._local})
        neighbours = config.strategy.neighbours
        assert neighbours is not None
        self._choices = Choices(neighbours, config.cluster.workers, config.seed)
        self._tally, self._totals, version = self._load(device)
        self._pairs = Pairs(rank, self._replica, version, context.secret, config.live.leave_s)
        rounds, absolute = self._local.rounds, config.live.pace == "absolute"
        self._delays = DelayInjector(
            config.cluster, config.scenario, config.seed, rank, absolute, self._tally.steps, rounds
        )
        path = context.folder / f"events-{rank}.arrow"
        self._log = EventLog(path, self._tally.num_rows) if config.live.events else None
        self._clock, self._next_progress = RunClock(), 0.0
        self._orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        self._is_ending = False
        self._conductor: Conductor | None = None

    def join(self) -> None:
        """Wait until all peers are there and the run begins. Raises MemberLost: one is lost."""
        context, config = self._context, self._config
        listener = listen(context.listen_at, config.live.leave_s)
        address = address_of(listener)
        self.control = MemberControl(context, self._rank, address)
        samples = self._totals.samples
        self._writer = StateWriter(context, self._rank, self._num_train, samples, samples, self.control.client.send)
        if context.resume is None:
            self._writer.save_snapshot(self._state(self._totals), 0)
        if self._rank == 0:
            self._conductor = Conductor(config, self._num_train, self.control, self._totals, self._writer)
            self._conductor.start()
        Listener(listener, context.secret, self._serve, "peer server")
        try:
            self._link = connect(self.control.store_address.get(), context.secret, config.live.leave_s)
        except OSError as error:
            raise MemberLost(f"the first worker does not answer: {error}") from None
        threading.Thread(target=self._read_orders, name="orders", daemon=True).start()
        self._say("join", rank=self._rank, address=address, tally=asdict(self._tally))
        begin = self._next_order()
        self._clock.zero_s = self.control.client.clock.to_local(begin["zero_s"])
        self._pairs.addresses = begin["addresses"]

    def run(self) -> Order:
        """Train until the run ends. Returns the order to end. Raises MemberLost: another peer is lost."""
        while True:
            with self._pairs.lock:
                self._pairs.read()
            while self._orders.empty():
                self._kept.begin()
                report = self._compute()
                if self._is_ending:
                    self._kept.undo()
                    break
                if not math.isfinite(report.loss):
                    self._say("diverged")
                    break
                self._step(report)
            if (end := self._pause()) is not None:
                return end

    def end(self, order: Order) -> None:
        """Write a checkpoint if the run was stopped, else the parameters."""
        why, totals = order["why"], Totals.from_state(order["totals"])
        self._pairs.close()
        if self._log is not None:
            self._log.close()
        if why == "stop":
            self._writer.write_checkpoint(self._checkpoint(totals), order["checkpoint"])
        else:
            self._writer.save_parameters(self._state(totals))
        self._writer.finish()
        if self._conductor is not None:
            self._conductor.join()
        self.control.client.send(Stopped() if why == "stop" else Done(why, totals.state_dict()))

    def _compute(self) -> PushReport:
        """Compute a gradient, of all its local steps, with the injected delays; an end of the run cuts them short."""
        clock, replica, number = self._clock, self._replica, self._tally.steps
        started_at = begun_at = clock.now()
        self.control.doing = f"computing gradient {number} since {started_at:.1f} s"
        losses, slowdown_s, delay_s = list[float](), 0.0, 0.0
        for loss in self._local.steps([replica.read_weights], replica.read_buffers, self._batches, number):
            losses.append(loss)
            slow_s, late_s = self._delays.compute(clock.now() - begun_at)
            if slow_s + late_s > 0 and self.control.cancel_delay.wait(slow_s + late_s):
                slow_s = late_s = 0.0
            slowdown_s, delay_s, begun_at = slowdown_s + slow_s, delay_s + late_s, clock.now()
        flat = self._local.gradient.flat
        replica.computed(flat.gradient, flat.buffers)
        return PushReport(
            self._rank,
            iteration=number,
            version=self._pairs.read_version,
            loss=sum(losses) / len(losses),
            started_at=started_at,
            computed_at=clock.now(),
            slowdown_s=slowdown_s,
            compute_delay_s=delay_s,
        )

    def _step(self, report: PushReport) -> None:
        """Average with a peer, step, and read the replica for the next gradient; nothing comes between."""
        clock, pairs, tally = self._clock, self._pairs, self._tally
        number, rounds = report.iteration, self._local.rounds
        peer = self._choices.peer(self._rank, number)
        self.control.doing = f"averaging with worker {peer} since {clock.now():.1f} s"
        num_samples = self._config.batch_size * rounds.size(number)
        with pairs.averaged_with(peer) as its_version:
            versions, stale = (pairs.version, its_version), pairs.version - report.version
            self._replica.step(num_samples)
            pairs.version += 1
            pairs.read()
            tally.steps, tally.samples, tally.time_s = number + 1, tally.samples + num_samples, clock.now()
            tally.loss_sum, tally.loss_count = tally.loss_sum + report.loss, tally.loss_count + 1
        tally.busy_s += report.computed_at - report.started_at
        tally.staleness += [0] * (stale + 1 - len(tally.staleness))
        tally.staleness[stale] += 1
        if self._log is not None:
            log, at, push = self._log.append, tally.time_s, number * self._config.cluster.workers + self._rank
            note_computation(log, report, rounds)
            log(rows.pushed(at, self._rank, 0, push, report.version, number))
            log(rows.averaged(at, self._rank, peer, versions))
            log(rows.applied(at, self._rank, 0, push, versions[0] + 1, stale, ""))
            log(rows.answer(at, "granted", self._rank, 0, versions[0] + 1, ""))
            tally.num_rows = self._log.num_rows
        if tally.time_s >= self._next_progress:
            self._next_progress = tally.time_s + PROGRESS_S
            self._say("progress", tally={name: getattr(tally, name) for name in TOLD})

    def _pause(self) -> Order | None:
        """Pause as all do, and save what all save. Returns the order to end; None: the run goes on."""
        self.control.doing = f"paused since {self._clock.now():.1f} s"
        self._next_order()
        self._say("paused", tally=asdict(self._tally))
        while True:
            order = self._next_order()
            if order["kind"] != "save":
                return order if order["kind"] == "end" else None
            if self._log is not None:
                self._log.flush()
            totals = Totals.from_state(order["totals"])
            self._writer.save_checkpoint(self._checkpoint(totals), totals.samples)
            self._say("saved")

    def _serve(self, sock: socket.socket) -> None:
        """A connection from another peer: of one that asks, or of one that is conducted."""
        try:
            first = receive_json(sock)
        except OSError:
            sock.close()
            return
        if first.get("kind") == "join" and self._conductor is not None:
            self._conductor.serve(sock, first)
        else:
            self._pairs.serve(sock)

    def _read_orders(self) -> None:
        try:
            while True:
                order = receive_json(self._link)
                if order["kind"] == "snapshot":
                    totals = Totals.from_state(order["totals"])
                    self._writer.save_snapshot(self._state(totals), totals.samples)
                    continue
                if order["kind"] == "pause" and order["is_last"]:
                    self._is_ending = True
                    self.control.cancel_delay.set()
                self._orders.put(order)
        except ConnectionError as error:
            self._orders.put({"kind": "error", "error": MemberLost(f"the first worker was lost: {error}")})
        except OSError as error:  # of the disk
            self._orders.put({"kind": "error", "error": error})

    def _next_order(self) -> Order:
        order = self._orders.get()
        if order["kind"] == "error":
            raise order["error"]
        return order

    def _say(self, kind: str, **about: Any) -> None:
        try:
            send_json(self._link, {"kind": kind, **about})
        except OSError as error:
            raise MemberLost(f"the first worker was lost: {error}") from None

    def _state(self, totals: Totals) -> PartState:
        """What is evaluated of this replica, with the totals of the run and this peer's losses since the last time."""
        replica, tally = self._replica, self._tally
        with self._pairs.lock:
            totals.loss_sum, totals.loss_count = tally.loss_sum, tally.loss_count
            tally.loss_sum, tally.loss_count = 0.0, 0
            evaluated = replica.optimizer.evaluated(replica.weights)
            state = final_state(replica.weights, evaluated, replica.buffers)
            copies = {name: tensor.clone() for name, tensor in state.items()}
        return PartState(copies, totals.snapshot(self._rate(totals.samples, totals.updates)))

    def _checkpoint(self, totals: Totals) -> PartState:
        """This peer's state while all are paused; the lock waits for the end of an averaging that a peer asked for."""
        replica = self._replica
        with self._pairs.lock:
            tensors = {"weights": replica.weights, "buffers": replica.buffers, "counts": replica.counts}
            tensors |= optimizer_tensors(replica.optimizer) | self._kept.state_dict()
            copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
            values = {"totals": totals.state_dict(), "tally": asdict(self._tally), "version": self._pairs.version}
        return PartState(copies, values)

    def _load(self, device: torch.device) -> tuple[Tally, Totals, int]:
        """What the checkpoint has, if there is one: tally, totals of the run, version of the replica."""
        checkpoint = read_checkpoint(self._context, self._rank)
        if checkpoint is None:
            return Tally(), Totals(self._config.cluster.workers), 0
        (tensors, values), replica = checkpoint, self._replica
        load_parameters(tensors, replica.weights, replica.buffers, replica.optimizer)
        replica.counts.copy_(tensors["counts"])
        self._kept.load_state_dict({name: tensor.to(device) for name, tensor in tensors.items()})
        return Tally(**values["tally"]), Totals.from_state(values["totals"]), values["version"]
