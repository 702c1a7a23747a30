"""BSP without a server: every worker is a member, and all join their gradients by one all-reduce of one flat vector.

The vector holds gradient, batch-norm buffers, loss and an order (see below), so a step costs one collective. Gloo on
CPUs, NCCL on GPUs. What the first member is told by the launcher (stop, end) goes to the others as the order: all see
it after the same all-reduce, and do the same.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from syncline.assembly import build_flat, build_optimizer, build_rate, build_share, load_dataset, pick_device, shape_of
from syncline.config import RunConfig
from syncline.course import REPORT_EVERY_S, Limits, Totals
from syncline.datasets.streams import Purpose, stream
from syncline.learning.flat import FlatModule
from syncline.learning.optimizer import Sgd
from syncline.learning.task import Batches, GradientFunction
from syncline.live.control import Line, Message
from syncline.live.saver import Saver, drop_old_checkpoints
from syncline.live.transport import Tls
from syncline.records.events import EventLog, read_events
from syncline.records.snapshots import read_state, state_path
from syncline.timing.cluster import Pace

ORDERS = ("go on", "stop", "max_time_s", "target")  # by number: what the first member says


class MemberGone(RuntimeError):
    """An all-reduce broke: another member is gone, and the run begins again from its checkpoint."""


def start_group(device: torch.device, num_members: int) -> None:
    """Join the group of all members: NCCL where each has a GPU of its own, else gloo, which takes either."""
    own_gpu = device.type == "cuda" and torch.cuda.device_count() >= num_members
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if own_gpu else "gloo")


def all_reduce(tensor: Tensor) -> None:
    """The sum over all members, in place.

    Raises:
        MemberGone: it broke.
    """
    try:
        dist.all_reduce(tensor)
    except RuntimeError as error:
        raise MemberGone(f"an all-reduce broke: {str(error).splitlines()[0]}") from None


class Replica:
    """What every member holds: the same weights and optimizer, and the vector that is exchanged.

    Args:
        flat: with two extra elements, for the loss and the order.
        optimizer: of all weights.
        num_members: in the group.
    """

    def __init__(self, flat: FlatModule, optimizer: Sgd, num_members: int) -> None:
        self.flat, self.optimizer = flat, optimizer
        self._num_members = num_members
        self._gradient = GradientFunction(flat)

    def warm_up(self, batch: tuple[Tensor, Tensor]) -> None:
        """One gradient that counts for nothing, so that no first one pays for what a library sets up."""
        buffers = self.flat.buffers.clone()
        self.compute(batch)
        self.flat.buffers.copy_(buffers)

    def compute(self, batch: tuple[Tensor, Tensor]) -> float:
        """The gradient of this member's mini-batch, and the buffers after it, are in the vector. Returns the loss."""
        loss, _, _ = self._gradient([self.flat.weights], self.flat.buffers, batch)
        return loss

    def join(self, loss: float, order: int) -> tuple[float, int]:
        """One all-reduce: the vector becomes the mean over all members. Returns the mean loss and the sum of orders."""
        flat = self.flat
        flat.extra[0], flat.extra[1] = loss, order
        all_reduce(flat.exchange)
        orders = int(flat.extra[1].item())
        flat.exchange.div_(self._num_members)
        return flat.extra[0].item(), orders

    def step(self, rate: float) -> None:
        """One optimizer step on the mean gradient."""
        self.optimizer.step(self.flat.weights, self.flat.gradient, rate, out=self.flat.weights)


class Member:
    """One process of the collective.

    Args:
        folder: of the run.
        rank: of this process; the first one also keeps the totals and writes the states.
        headquarters, secret, tls: of the launcher.
        resume: number of the checkpoint to go on from; None for a fresh run.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        rank: int,
        headquarters: str,
        secret: bytes,
        tls: Tls | None,
        resume: float | None,
    ) -> None:
        torch.set_num_threads(config.threads)
        self._config, self._folder, self._rank = config, folder, rank
        self._order = 0
        self._doing = "starting"  # for who asks
        self._ordered = threading.Event()  # ends an injected delay
        self._began = threading.Event()
        self._zero_s = 0.0
        hello = {"role": "shard" if rank == 0 else "worker", "index": rank, "address": ""}
        self._line = Line(headquarters, secret, tls, hello, self._told)
        device = pick_device(config, rank)
        start_group(device, config.cluster.workers)
        dataset = load_dataset(config)
        self._flat = build_flat(config, shape_of(dataset), device, num_extra=2)
        self._replica = Replica(self._flat, build_optimizer(config), config.cluster.workers)
        self._num_train = num_train = len(dataset.train_labels)
        self._share = build_share(config, rank, num_train)
        self._batches = Batches(dataset, device, config.dataset.augment)
        self._rate = build_rate(config, num_train)
        self._limits = Limits.of(config, num_train)
        self._totals = Totals(config.cluster.workers)
        self._busy_s = 0.0
        self._eval_every = config.eval_every_epochs * num_train
        self._checkpoint_every = config.runner.checkpoint_every_epochs * num_train
        self._snapshots = self._checkpoints = 0
        self._replica.warm_up(self._batches.take(self._share.batch(0), None))
        self._path_of_log = folder / f"events-{rank}.arrow"
        rows = self._load(resume)
        self._log = EventLog(self._path_of_log, rows) if config.runner.events else None
        self._saver = Saver()

    def run(self) -> bool:
        """Until the run is over. False if another member is gone."""
        totals = self._totals
        try:
            self._begin()
            ended_by = self._loop()
        except MemberGone as error:
            self._line.tell("restart", why=str(error))
            return False
        finally:
            if self._log is not None:
                self._log.close()
        if self._rank == 0:
            if ended_by == "stop":
                totals.time_s = self._now()
                self._checkpoint(self._checkpoints - 0.5)  # between the last of its kind and the next
            else:
                self._save(self._folder / "parameters-0.safetensors")
        self._saver.finish()
        dist.destroy_process_group()
        if ended_by == "stop":
            self._line.tell("stopped")
        else:
            self._line.tell("done", ended_by=ended_by, totals=totals.state_dict())
        return True

    def _begin(self) -> None:
        """Wait until all members are ready and the launcher says when the clock began."""
        all_reduce(torch.zeros(1, device=self._flat.weights.device))
        if self._rank == 0:
            if not self._is_resumed:
                self._snapshot()
            self._line.tell("ready")
            self._began.wait()
        # Shared by a sum to which the others add nothing. On one host all processes read the same clock.
        zero_s = torch.tensor([self._zero_s], dtype=torch.float64, device=self._flat.weights.device)
        all_reduce(zero_s)
        self._zero_s = zero_s.item() - self._totals.time_s

    def _loop(self) -> str:
        """Steps until one of them is the last. Returns why."""
        config, totals, rank = self._config, self._totals, self._rank
        num_members = config.cluster.workers
        pace = Pace(
            config.cluster, config.scenario, config.seed, rank, config.runner.pace == "absolute", totals.updates
        )
        next_report = 0.0
        while True:
            iteration = totals.updates
            begun = self._now()
            self._doing = f"computing step {iteration} since {begun:.1f} s"
            generator = stream(Purpose.AUGMENT, rank, iteration, config.seed) if self._batches.augment else None
            batch = self._batches.take(self._share.batch(iteration), generator)
            loss = self._replica.compute(batch)
            slow_s, delay_s = pace.compute(self._now() - begun)
            if slow_s + delay_s > 0:
                self._ordered.wait(slow_s + delay_s)
            computed = self._now()
            self._busy_s += computed - begun
            if rank == 0 and config.max_time_s is not None and computed >= config.max_time_s:
                self._order = ORDERS.index("max_time_s")
            self._doing = f"in the all-reduce of step {iteration} since {computed:.1f} s"
            mean_loss, number = self._replica.join(loss, self._order if rank == 0 else 0)
            order = ORDERS[number]
            if order == "max_time_s":
                assert config.max_time_s is not None
                totals.time_s = config.max_time_s
            if order != "go on":
                return self._finished(order)
            now = self._now()
            if self._log is not None:
                self._note(self._log, iteration, begun, computed, slow_s, delay_s, loss, now)
            if mean_loss - mean_loss != 0:  # infinite or not a number
                return self._finished("diverged")
            self._replica.step(self._rate(totals.samples, totals.updates))
            totals.updates += 1
            totals.samples += num_members * config.batch_size
            totals.time_s = now
            totals.loss_sum += mean_loss
            totals.loss_count += 1
            ended_by = self._limits.reached(totals.samples, totals.updates)
            if ended_by is not None:
                return self._finished(ended_by)
            if rank == 0:
                if now >= next_report:
                    next_report = now + REPORT_EVERY_S
                    self._report()
                if totals.samples >= self._snapshots * self._eval_every:
                    self._snapshot()
            if totals.samples >= self._checkpoints * self._checkpoint_every:
                if self._log is not None:
                    self._log.flush()
                self._share_busy()  # from here on every member's log is on disk
                if rank == 0:
                    self._checkpoint(float(self._checkpoints))
                self._checkpoints = int(totals.samples // self._checkpoint_every) + 1

    def _finished(self, ended_by: str) -> str:
        """The totals that are known at the end, on every member."""
        totals, num_members = self._totals, self._config.cluster.workers
        self._share_busy()
        totals.used_by_worker = [totals.updates] * num_members
        totals.staleness = {0: totals.updates * num_members}
        totals.max_lead = min(totals.updates, 1)
        return ended_by

    def _share_busy(self) -> None:
        busy = torch.zeros(self._config.cluster.workers, dtype=torch.float64, device=self._flat.weights.device)
        busy[self._rank] = self._busy_s
        all_reduce(busy)
        self._totals.busy_s_by_worker = busy.tolist()

    def _note(
        self,
        log: EventLog,
        iteration: int,
        begun: float,
        computed: float,
        slow_s: float,
        delay_s: float,
        loss: float,
        now: float,
    ) -> None:
        """This member's part of one step."""
        rank = self._rank
        push = iteration * self._config.cluster.workers + rank
        log.append(begun, "started", rank, -1, -1, iteration, computed - begun, "")
        if slow_s:
            log.append(computed - delay_s - slow_s, "delayed", rank, -1, -1, -1, slow_s, "slow")
        if delay_s:
            log.append(computed - delay_s, "delayed", rank, -1, -1, -1, delay_s, "compute")
        log.append(computed, "computed", rank, -1, -1, iteration, loss, "")
        log.append(computed, "pushed", rank, 0, push, iteration, iteration, "")
        log.append(now, "applied", rank, 0, push, iteration + 1, 0.0, "all-reduce")
        log.append(now, "granted", rank, 0, -1, iteration + 1, 0.0, "all-reduce")

    def _report(self) -> None:
        totals = self._totals
        self._line.tell(
            "progress", updates=totals.updates, samples=totals.samples, time_s=totals.time_s, loss=totals.loss
        )

    def _snapshot(self) -> None:
        number = self._snapshots
        path = state_path(self._folder / "snapshots", float(number), 0)
        self._save(path, then=lambda: self._line.tell("snapshot", number=number))
        self._snapshots = int(self._totals.samples // self._eval_every) + 1

    def _save(self, path: Path, then: Callable[[], None] = lambda: None) -> None:
        totals, flat = self._totals, self._flat
        about = totals.snapshot(self._rate(totals.samples, totals.updates))
        self._saver.save(
            path, {"weights": flat.weights.cpu().clone(), "buffers": flat.buffers.cpu().clone()}, about, then
        )

    def _checkpoint(self, number: float) -> None:
        """All members are alike, so the first one's state is everybody's."""
        flat = self._flat
        tensors = {"weights": flat.weights.cpu().clone(), "buffers": flat.buffers.cpu().clone()}
        for name, tensor in self._replica.optimizer.state_dict().items():
            tensors[f"optimizer.{name}"] = tensor.cpu().clone()
        folder = self._folder / "checkpoint"
        state = {"totals": self._totals.state_dict()}
        self._saver.save(state_path(folder, number, 0), tensors, state, then=lambda: drop_old_checkpoints(folder, 0))

    def _load(self, resume: float | None) -> int:
        """Go on from a checkpoint. Returns the rows of this member's log that were made before it."""
        self._is_resumed = resume is not None
        if resume is not None:
            tensors, state = read_state(state_path(self._folder / "checkpoint", resume, 0))
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
        self._checkpoints = int(self._totals.samples // self._checkpoint_every) + 1
        if resume is None or not self._config.runner.events:
            return 0
        log = read_events(self._path_of_log)
        steps = zip(log["kind"].to_pylist(), log["version"].to_pylist(), strict=True)
        begun = (row for row, step in enumerate(steps) if step == ("started", self._totals.updates))
        return next(begun, log.num_rows)

    def _told(self, message: Message) -> None:
        if message["kind"] == "where":
            self._line.tell("here", doing=self._doing)
        elif message["kind"] == "begin":
            self._zero_s = message["zero_s"]
            self._began.set()
        elif message["kind"] in ("stop", "end"):
            self._order = ORDERS.index(message.get("why", "stop"))
            self._ordered.set()
            self._began.set()

    def _now(self) -> float:
        return time.monotonic() - self._zero_s
