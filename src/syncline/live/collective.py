"""Strategies without a server: every worker is a member, and what they make is joined by all-reduces in groups.

BSP joins the gradients of all, DS-Sync the weights of a group after each member's own step (or before its next one).
Either goes with batch-norm buffers, loss and an order (see `StopConsensus`) as one flat vector, so a step costs one
collective; `impl=naive` sends one tensor after another. Gloo on CPUs, NCCL on GPUs. What the first member is told by
the launcher (stop, end) goes to the others as the order, and all do it after the same step.
"""

import math
import queue
import socket
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]

from syncline.assembly import build_learner, build_optimizer, build_rate, pick_device
from syncline.config import RunConfig
from syncline.learning.gradient import GradientFunction, MiniBatch
from syncline.learning.optimizer import Optimizer
from syncline.live.control import ControlClient, Message
from syncline.live.saver import Saver, drop_old_checkpoints
from syncline.live.transport import Tls, address_of, listen
from syncline.progress import REPORT_EVERY_S, Limits, Totals
from syncline.records.events import EventLog, read_events
from syncline.records.snapshots import read_state, state_path
from syncline.timing.cluster import DelayInjector

ORDERS = ("go on", "stop", "max_time_s", "target", "diverged")  # by number: what the first member says
NUM_EXTRA = 4  # elements that travel with the vector: loss and order
STORE_S = 60.0  # to find the store: a loaded machine may take so long


class MemberGone(RuntimeError):
    """An all-reduce broke: another member is gone, and the run begins again from its checkpoint."""


@dataclass(frozen=True, slots=True)
class Group:
    """Who joins what it has."""

    size: int
    handle: dist.ProcessGroup | None  # None: everybody


def start_group(device: torch.device, rank: int, num_members: int, num_here: int, store: Store | None = None) -> None:
    """Join the group of all members: NCCL where each has a GPU of its own, else gloo, which takes either.

    Args:
        num_here: members on this host; all hosts must have a GPU for each, or none.
        store: where they find each other; None: as torchrun's environment says.
    """
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= num_here
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if own_gpu else "gloo", store=store, rank=rank, world_size=num_members)


def serve_store(listener: socket.socket) -> TCPStore:
    """The store of the first member, where all find each other; it takes over this socket."""
    host, port = listener.getsockname()
    return TCPStore(host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def find_store(address: str, timeout_s: float) -> TCPStore:
    """The first member's, from another one."""
    host, _, port = address.removeprefix("tcp:").rpartition(":")
    return TCPStore(host, int(port), is_master=False, timeout=timedelta(seconds=timeout_s))


def make_groups(rank: int, partitions: Sequence[Sequence[Sequence[int]]]) -> list[Group]:
    """This member's group of each partition; every member makes all groups, in the same order."""
    made: dict[tuple[int, ...], dist.ProcessGroup | None] = {tuple(range(dist.get_world_size())): None}
    for partition in partitions:
        for members in map(tuple, partition):
            if members not in made:
                made[members] = dist.new_group(list(members))
    own = [next(tuple(members) for members in partition if rank in members) for partition in partitions]
    return [Group(len(members), made[members]) for members in own]


def all_reduce(tensor: Tensor, group: Group | None = None, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> None:
    """The sum over the group (None: all members), in place.

    Raises:
        MemberGone: it broke.
    """
    try:
        dist.all_reduce(tensor, op, None if group is None else group.handle)
    except RuntimeError as error:
        raise MemberGone(f"an all-reduce broke: {str(error).splitlines()[0]}") from None


class StopConsensus:
    """What the first member says, on its way to all others, so that all do it at the same step.

    It goes along in every exchange: how many of the group know it, and the sums of what they know, its number and the
    exchanges until it is due. That is the first one if all are one group; the second one in DS-Sync, where two
    successive exchanges join everybody. All these are small whole numbers, so the sums are exact.

    Args:
        num_exchanges: until everybody knows it.
    """

    def __init__(self, num_exchanges: int) -> None:
        self.number = 0  # in ORDERS
        self._num_exchanges = num_exchanges
        self._to_go = 0

    def give(self, number: int) -> None:
        """By the first member, before an exchange; what it said first stays."""
        if not self.number and number:
            self.number, self._to_go = number, self._num_exchanges

    def told(self) -> list[float]:
        """What this member puts into the exchange."""
        return [float(self.number > 0), self.number, self._to_go]

    def heard(self, sums: Sequence[float]) -> bool:
        """What came out of it. Returns whether the order is due."""
        knowing, number, to_go = (round(each) for each in sums)
        if knowing:
            self.number, self._to_go = number // knowing, to_go // knowing - 1
        return knowing > 0 and self._to_go == 0


class Replica:
    """What every member holds: weights, optimizer, and the vector that is exchanged.

    Args:
        gradient: the gradient function, on a vector with `NUM_EXTRA` extra elements.
        optimizer: of all weights.
        joins_weights: the weights are exchanged; else the gradient.
        one_by_one: an all-reduce for each tensor of them, and one for the rest.
    """

    def __init__(
        self,
        gradient: GradientFunction,
        optimizer: Optimizer,
        joins_weights: bool = False,
        one_by_one: bool = False,
    ) -> None:
        self.flat = flat = gradient.flat
        self.optimizer = optimizer
        self._gradient = gradient
        if one_by_one:
            self._exchanged = [*(flat.weight_tensors if joins_weights else flat.gradient_tensors), flat.beside]
        else:
            self._exchanged = [flat.with_weights if joins_weights else flat.with_gradient]

    def warm_up(self, batch: MiniBatch) -> None:
        """One gradient that counts for nothing, so that no first one pays for what a library sets up."""
        buffers = self.flat.buffers.clone()
        self.compute(batch)
        self.flat.buffers.copy_(buffers)

    def compute(self, batch: MiniBatch) -> float:
        """The gradient of this member's mini-batch, and the buffers after it, are in the vector. Returns the loss."""
        loss, _, _ = self._gradient([self.flat.weights], self.flat.buffers, batch)
        return loss

    def join(self, group: Group, told: Sequence[float]) -> list[float]:
        """What is exchanged becomes the mean over the group. Returns the sums of what its members told [NUM_EXTRA]."""
        extra = self.flat.extra
        extra.copy_(torch.tensor(told, dtype=extra.dtype))
        for tensor in self._exchanged:
            all_reduce(tensor, group)
        sums: list[float] = extra.tolist()
        for tensor in self._exchanged:
            tensor.div_(group.size)
        return sums

    def step(self, rate: float) -> None:
        """One optimizer step on the gradient."""
        self.optimizer.step(self.flat.weights, self.flat.gradient, rate, out=self.flat.weights)


class Member:
    """One process of the collective.

    Args:
        folder: of the run.
        rank: of this process; the first one also speaks with the launcher.
        place, num_here: this member's place among those of its host, from 0, and how many these are.
        listen_at: address for the first member's store.
        headquarters, secret, tls: of the launcher.
        resume: number of the checkpoint to go on from; None for a fresh run.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        rank: int,
        place: int,
        num_here: int,
        listen_at: str,
        headquarters: str,
        secret: bytes,
        tls: Tls | None,
        resume: float | None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._folder, self._rank = config, folder, rank
        self._strategy = strategy = config.strategy
        num_members = config.cluster.workers
        self._keeps = rank == 0 or strategy.replicas  # it writes states; where all are alike the first one's do
        self._said = 0  # order of the launcher
        self._doing = "starting"  # for who asks
        self._ordered = threading.Event()  # ends an injected delay
        self._began = threading.Event()
        self._zero_s = 0.0
        self._store_address: queue.SimpleQueue[str] = queue.SimpleQueue()
        listener = listen(listen_at) if rank == 0 else None
        hello = {"role": "worker", "index": rank, "address": address_of(listener) if listener else ""}
        self._line = ControlClient(headquarters, secret, tls, hello, self._told, dead_s=config.live.leave_s)
        device = pick_device(config, place)
        if listener:
            store = serve_store(listener)
        else:
            store = find_store(self._store_address.get(), max(STORE_S, config.live.start_timeout_s))
        start_group(device, rank, num_members, num_here, store)
        partitions = [strategy.groups(step, num_members) for step in (0, 1)]
        self._groups = make_groups(rank, partitions)  # of even and of odd steps
        self._order = StopConsensus(1 if len(partitions[0]) == 1 else 2)
        learner = build_learner(config, device, NUM_EXTRA)
        self._flat = learner.flat
        optimizer = build_optimizer(config)
        self._replica = Replica(learner.gradient, optimizer, strategy.replicas, strategy.sends_tensors_singly)
        self._num_train = num_train = learner.num_train
        self._batches = learner.batches(config, rank)
        self._rate = build_rate(config, num_train)
        self._limits = Limits.of(config, num_train)
        self._totals = Totals(num_members)
        self._busy_s = 0.0
        self._computed_s = array("d")  # when each gradient was computed, if there are replicas
        self._eval_every = config.eval_every_epochs * num_train
        self._checkpoint_every = config.live.checkpoint_every_epochs * num_train
        self._snapshots = self._checkpoints = 0
        self._replica.warm_up(self._batches.take(0))
        self._path_of_log = folder / f"events-{rank}.arrow"
        rows = self._load(resume)
        self._log = EventLog(self._path_of_log, rows) if config.runner.events else None
        self._saver = Saver()

    def run(self) -> bool:
        """Until the run is over. False if another member is gone."""
        totals = self._totals
        try:
            self._begin()
            ended_by = self._finished(*self._loop())
        except MemberGone as error:
            self._line.tell("restart", why=str(error))
            return False
        finally:
            if self._log is not None:
                self._log.close()
        if self._keeps:
            if ended_by == "stop":
                totals.time_s = self._now()
                self._checkpoint(self._checkpoints - 0.5)  # between the last of its kind and the next
            else:
                self._save(self._folder / f"parameters-{self._rank}.safetensors")
        self._saver.finish()
        dist.destroy_process_group()
        if ended_by == "stop":
            self._line.tell("stopped")
        else:
            self._line.tell("done", ended_by=ended_by, totals=totals.state_dict())
        return True

    def _begin(self) -> None:
        """Wait until all members are ready and the launcher says when the clock began."""
        device = self._flat.weights.device
        for group in self._groups:  # a library may connect it now
            all_reduce(torch.zeros(1, device=device), group)
        all_reduce(torch.zeros(1, device=device))
        if self._keeps and not self._is_resumed:
            self._snapshot()
        if self._rank == 0:
            self._line.tell("ready")
            self._began.wait()
            if not self._zero_s:  # told to stop instead
                self._zero_s = time.monotonic() + self._line.clock.offset_s
        # On the launcher's clock, which all know theirs from; shared by a sum to which the others add nothing.
        zero_s = torch.tensor([self._zero_s], dtype=torch.float64, device=device)
        all_reduce(zero_s)
        (past_s,) = self._largest(self._totals.time_s)
        self._zero_s = self._line.clock.ours(zero_s.item()) - past_s

    def _loop(self) -> tuple[str, float]:
        """Steps until one of them is the last. Returns why, and the last loss."""
        config, totals, rank, strategy = self._config, self._totals, self._rank, self._strategy
        pace = DelayInjector(
            config.cluster, config.scenario, config.seed, rank, config.live.pace == "absolute", totals.updates
        )
        next_report = loss = 0.0
        while True:
            step = totals.updates
            is_due = False
            if strategy.averages_first:
                _, is_due = self._exchange(step, loss)
                if self._log is not None and step:
                    self._log.append(self._now(), "granted", rank, 0, -1, step, 0.0, "all-reduce")
            begun = self._now()
            self._doing = f"computing step {step} since {begun:.1f} s"
            loss = mean_loss = self._replica.compute(self._batches.take(step))
            rate = self._rate(totals.samples, totals.updates)
            if strategy.replicas:
                self._replica.step(rate)
            slow_s, delay_s = pace.compute(self._now() - begun)
            if slow_s + delay_s > 0 and self._ordered.wait(slow_s + delay_s):
                slow_s = delay_s = 0.0  # broken off
            computed = self._now()
            self._busy_s += computed - begun
            if not strategy.averages_first:
                mean_loss, is_due = self._exchange(step, loss)
            order = ORDERS[self._order.number]
            if is_due and not strategy.replicas:  # nothing of this step has been kept
                if order == "max_time_s":
                    assert config.max_time_s is not None
                    totals.time_s = config.max_time_s
                return order, 0.0
            now = self._now()
            if self._log is not None:
                self._note(self._log, step, begun, computed, slow_s, delay_s, loss, now)
            if strategy.replicas:
                self._computed_s.append(computed)
                mean_loss = loss
            elif math.isfinite(mean_loss):
                self._replica.step(rate)
            else:
                return "diverged", mean_loss
            totals.updates += 1
            totals.samples += config.cluster.workers * config.batch_size
            totals.time_s = now
            totals.loss_sum += mean_loss
            totals.loss_count += 1
            ended_by = self._limits.reached(totals.samples, totals.updates)
            if ended_by is not None or is_due:
                return ended_by or order, loss
            if rank == 0 and now >= next_report:
                next_report = now + REPORT_EVERY_S
                self._report()
            if self._keeps and totals.samples >= self._snapshots * self._eval_every:
                self._snapshot()
            if totals.samples >= self._checkpoints * self._checkpoint_every:
                if self._log is not None:
                    self._log.flush()
                if strategy.replicas:
                    totals.busy_s_by_worker[rank] = self._busy_s  # of the others their own states tell
                else:
                    self._share_busy()  # from here on every member's log is on disk
                if self._keeps:
                    self._checkpoint(float(self._checkpoints))
                self._checkpoints = int(totals.samples // self._checkpoint_every) + 1

    def _exchange(self, step: int, loss: float) -> tuple[float, bool]:
        """The group's all-reduce. Returns its mean loss, and whether an order is due with this step."""
        now, limit, group = self._now(), self._config.max_time_s, self._groups[step % 2]
        if self._rank == 0:
            self._order.give(ORDERS.index("max_time_s") if limit is not None and now >= limit else self._said)
        self._doing = f"in the all-reduce of step {step} since {now:.1f} s"
        loss_sum, *order = self._replica.join(group, [loss, *self._order.told()])
        is_due = self._order.heard(order)
        if ORDERS[self._order.number] == "stop":
            self._ordered.set()
        if self._strategy.replicas and not math.isfinite(loss_sum):  # the next exchange tells
            self._said = self._said or ORDERS.index("diverged")
        return loss_sum / group.size, is_due

    def _finished(self, ended_by: str, loss: float) -> str:
        """The totals that are known at the end, on every member. Returns why it ended, in the end."""
        totals, num_members = self._totals, self._config.cluster.workers
        self._share_busy()
        totals.used_by_worker = [totals.updates] * num_members
        totals.staleness = {0: totals.updates * num_members}
        totals.max_lead = min(totals.updates, 1, num_members - 1)
        if self._strategy.replicas and ended_by != "stop":
            totals.time_s, is_broken = self._largest(totals.time_s, float(not math.isfinite(loss)))
            totals.max_lead = max(totals.max_lead, self._share_lead())
            return "diverged" if is_broken else ended_by
        return ended_by

    def _share_busy(self) -> None:
        busy = torch.zeros(self._config.cluster.workers, dtype=torch.float64, device=self._flat.weights.device)
        busy[self._rank] = self._busy_s
        all_reduce(busy)
        self._totals.busy_s_by_worker = busy.tolist()

    def _share_lead(self) -> int:
        """Two if a member had computed a gradient before another one had computed the one before, else 0.

        More there cannot be: before a member begins step t+1 its group of step t has computed step t, and the groups of
        step t-1 of all these, which are everybody, have computed step t-1.
        """
        computed = torch.zeros(
            (len(self._computed_s), self._config.cluster.workers),
            dtype=torch.float64,
            device=self._flat.weights.device,
        )
        computed[:, self._rank] = torch.tensor(self._computed_s, dtype=torch.float64)
        all_reduce(computed)
        return 2 if bool((computed[1:].amin(1) < computed[:-1].amax(1)).any()) else 0

    def _largest(self, *values: float) -> list[float]:
        """Of each value the largest of all members."""
        shared = torch.tensor(values, dtype=torch.float64, device=self._flat.weights.device)
        all_reduce(shared, op=dist.ReduceOp.MAX)
        largest: list[float] = shared.tolist()
        return largest

    def _note(
        self,
        log: EventLog,
        step: int,
        begun: float,
        computed: float,
        slow_s: float,
        delay_s: float,
        loss: float,
        now: float,
    ) -> None:
        """This member's part of one step."""
        rank = self._rank
        push = step * self._config.cluster.workers + rank
        log.append(begun, "started", rank, -1, -1, step, computed - begun, "")
        if slow_s:
            log.append(computed - delay_s - slow_s, "delayed", rank, -1, -1, -1, slow_s, "slow")
        if delay_s:
            log.append(computed - delay_s, "delayed", rank, -1, -1, -1, delay_s, "compute")
        log.append(computed, "computed", rank, -1, -1, step, loss, "")
        log.append(computed, "pushed", rank, 0, push, step, step, "")
        if self._strategy.averages_first:  # the next step's exchange grants
            log.append(computed, "applied", rank, 0, push, step + 1, 0.0, "own step")
        else:
            log.append(now, "applied", rank, 0, push, step + 1, 0.0, "all-reduce")
            log.append(now, "granted", rank, 0, -1, step + 1, 0.0, "all-reduce")

    def _report(self) -> None:
        totals = self._totals
        self._line.tell(
            "progress", updates=totals.updates, samples=totals.samples, time_s=totals.time_s, loss=totals.loss
        )

    def _snapshot(self) -> None:
        number = self._snapshots
        path = state_path(self._folder / "snapshots", float(number), self._rank)
        self._save(path, then=lambda: self._line.tell("snapshot", number=number))
        self._snapshots = int(self._totals.samples // self._eval_every) + 1

    def _save(self, path: Path, then: Callable[[], None] = lambda: None) -> None:
        totals, flat = self._totals, self._flat
        about = totals.snapshot(self._rate(totals.samples, totals.updates))
        tensors = {"weights": flat.weights.cpu().clone(), "buffers": flat.buffers.cpu().clone()}
        evaluated = self._replica.optimizer.evaluated(flat.weights)
        if evaluated is not flat.weights:
            tensors["evaluated"] = evaluated.cpu().clone()
        self._saver.save(path, tensors, about, then)

    def _checkpoint(self, number: float) -> None:
        """This member's state; where all are alike, everybody's."""
        flat, rank = self._flat, self._rank
        tensors = {"weights": flat.weights.cpu().clone(), "buffers": flat.buffers.cpu().clone()}
        for name, tensor in self._replica.optimizer.state_dict().items():
            tensors[f"optimizer.{name}"] = tensor.cpu().clone()
        if self._strategy.replicas:
            tensors["computed_s"] = torch.tensor(self._computed_s, dtype=torch.float64)
        folder = self._folder / "checkpoint"
        state = {"totals": self._totals.state_dict()}
        path = state_path(folder, number, rank)
        self._saver.save(path, tensors, state, then=lambda: drop_old_checkpoints(folder, rank))

    def _load(self, resume: float | None) -> int:
        """Go on from a checkpoint. Returns the rows of this member's log that were made before it."""
        self._is_resumed = resume is not None
        if resume is not None:
            whose = self._rank if self._keeps else 0
            tensors, state = read_state(state_path(self._folder / "checkpoint", resume, whose))
            self._flat.weights.copy_(tensors["weights"])
            self._flat.buffers.copy_(tensors["buffers"])
            prefix = "optimizer."
            device = self._flat.weights.device
            self._replica.optimizer.load_state_dict(
                {name.removeprefix(prefix): t.to(device) for name, t in tensors.items() if name.startswith(prefix)}
            )
            self._totals = Totals.from_state(state["totals"])
            self._snapshots = int(self._totals.samples // self._eval_every) + 1
            self._busy_s = self._totals.busy_s_by_worker[self._rank]
            if self._strategy.replicas:
                self._computed_s.extend(tensors["computed_s"].tolist())
        self._checkpoints = int(self._totals.samples // self._checkpoint_every) + 1
        if resume is None or not self._config.runner.events:
            return 0
        log = read_events(self._path_of_log)
        rows = zip(log["kind"].to_pylist(), log["version"].to_pylist(), strict=True)
        next_step = ("granted" if self._strategy.averages_first else "started", self._totals.updates)
        return next((number for number, row in enumerate(rows) if row == next_step), log.num_rows)

    def _told(self, message: Message) -> None:
        if message["kind"] == "addresses":
            (address,) = message["addresses"]
            self._store_address.put(address)
        elif message["kind"] == "where":
            self._line.tell("here", doing=self._doing)
        elif message["kind"] == "begin":
            self._zero_s = message["zero_s"]
            self._began.set()
        elif message["kind"] in ("stop", "end"):
            self._said = ORDERS.index(message.get("why", "stop"))
            self._ordered.set()
            self._began.set()

    def _now(self) -> float:
        return time.monotonic() - self._zero_s
