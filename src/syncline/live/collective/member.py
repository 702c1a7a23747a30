"""Strategies without a server: every worker is a member of a collective, joined by all-reduces.

BSP averages the gradients of all members; DS-Sync averages the weights of a group, after each member's own step or
before its next one (see steps.py). The coordinator speaks with the first member; what it asks for (stop, end) spreads
with the exchanges, and all members do it with the same step (see member_control.py).
"""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from syncline.assembly.compression import build_compressor, build_gossip
from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.optimizers import build_optimizer, build_rate
from syncline.assembly.problem import build_problem
from syncline.config import RunConfig
from syncline.learning.evaluate import final_state
from syncline.learning.flat import FlatModule
from syncline.learning.gradient import WorkerBatches
from syncline.learning.optimizer import InParts, Optimizer
from syncline.learning.worker_state import WorkerState
from syncline.live.checkpoints import PartState, StateWriter, load_parameters, optimizer_tensors, read_checkpoint
from syncline.live.collective import steps
from syncline.live.collective.exchange import (
    AllReduce,
    CompressedGradients,
    CompressedWeights,
    Exchange,
    Overlapped,
    Peers,
)
from syncline.live.collective.member_control import MemberControl, StopAgreement
from syncline.live.collective.process_group import (
    MemberLost,
    all_reduce,
    find_store,
    make_groups,
    serve_store,
    start_group,
)
from syncline.live.node.control import RunContext
from syncline.live.node.process import RESTART, Job
from syncline.live.node.ranks import Ranks
from syncline.live.wire.clock import RunClock
from syncline.live.wire.control_messages import Done, ProgressReport, Ready, RestartNeeded, Stopped
from syncline.live.wire.sockets import address_of, listen
from syncline.progress import REPORT_EVERY_S, Limits, Totals
from syncline.rounds import Rounds
from syncline.strategies.collective import Collective
from syncline.timing.cluster import DelayInjector

STORE_S = 60.0  # to find the store: a loaded machine may take so long


def main(job: Job, rank: int, ranks: Ranks) -> int:
    """Be this member until the run ends. Returns the exit code: RESTART if another member is lost."""
    context = RunContext.of(job, "member", rank, ranks)
    config = context.config
    configure_torch(config)
    listener = listen(context.listen_at) if rank == 0 else None
    control = MemberControl(context, rank, address_of(listener) if listener else "")
    device = pick_device(config, context.local_rank)
    if listener:
        store = serve_store(listener)
    else:
        store = find_store(control.store_address.get(), max(STORE_S, config.live.start_timeout_s))
    start_group(device, rank, config.cluster.workers, context.local_size, store)
    member = Member(context, rank, control, device)
    try:
        ended_by = member.run()
        member.save_end(ended_by)
    except MemberLost as error:
        control.client.send(RestartNeeded(str(error)))
        return RESTART
    dist.destroy_process_group()
    control.client.send(Stopped() if ended_by == "stop" else Done(ended_by, member.totals.state_dict()))
    return 0


class Member:
    """One process of the collective, which has joined the process group."""

    def __init__(self, context: RunContext, rank: int, control: MemberControl, device: torch.device) -> None:
        config = self._config = context.config
        self._collective = collective_of(config)
        self._rank, self._control, self._device = rank, control, device
        # Where all members are alike, the first one writes for all.
        self._writes_states = rank == 0 or self._collective.replicas
        self._writes_checkpoints = self._writes_states or config.keeps_state_at_workers
        self._clock = RunClock()
        problem = build_problem(config, device, steps.NUM_EXTRA)
        local, exchange = build_local_steps(config, problem, rank), build_exchange(config, rank, problem.flat)
        if self._collective.replicas and isinstance(exchange, Overlapped):
            optimizer: Optimizer = InParts(
                lambda place: build_optimizer(config, problem.flat.layout.within(place)), exchange.places
            )
        else:
            optimizer = build_optimizer(config, problem.flat.layout)
        self._replica = steps.Replica(local, optimizer, exchange)
        self._kept = WorkerState({"local": local, **exchange.parts})  # by this member alone
        batches = problem.batches(config, rank)
        self._replica.warm_up(batches.take(0))
        self._is_resumed = context.resume is not None
        self._tally = self._load(context)
        self._num_train = problem.num_train
        schedule = self._collective.schedule(config.cluster.workers, config.steps_an_epoch(problem.num_train))
        whole = [[range(config.cluster.workers)]] * len(schedule.turns)  # of which peers send to some
        is_joined = self._collective.peers is None
        members = [[group.members for group in groups] for groups in schedule.turns] if is_joined else whole
        self._groups = make_groups(rank, members)
        self._agreement = StopAgreement(schedule.spread)
        self._step = self._build_step(batches, schedule.turn)
        self._rate = build_rate(config, problem.num_train)
        self._limits = Limits.of(config, problem.num_train)
        self._log = steps.StepLog(context, rank, self._tally.num_rows, local.rounds) if config.live.events else None
        samples = self.totals.samples
        self._writer = StateWriter(context, rank, problem.num_train, samples, samples, control.client.send)
        self._next_report = 0.0
        self._stop_checkpoint = 0.0  # number of the checkpoint with which all members stop

    @property
    def totals(self) -> Totals:
        return self._tally.totals

    def run(self) -> str:
        """Train until the run ends. Returns why. Raises MemberLost if another member is lost."""
        try:
            self._begin()
            while True:
                totals = self.totals
                if not self._collective.replicas:
                    self._kept.begin()
                result = self._step.run(totals.updates, self._rate(totals.samples, totals.updates))
                ended_by = self._record(result)
                if ended_by is not None:
                    if ended_by == "stop":
                        (self._stop_checkpoint,) = self._tally.largest(self._control.stop_checkpoint)
                    return self._tally.finish(ended_by, result.loss)
                self._report()
                self._save_if_due()
        finally:
            if self._log is not None:
                self._log.close()

    def save_end(self, ended_by: str) -> None:
        """Write a checkpoint if the run was stopped, else the parameters. Raises MemberLost."""
        if ended_by == "stop":
            all_reduce(torch.zeros(1, device=self._device))  # waits until the logs of all members are on disk
            if self._writes_checkpoints:
                self.totals.time_s = self._clock.now()
                self._writer.write_checkpoint(self._checkpoint(), self._stop_checkpoint)
        elif self._writes_states:
            self._writer.save_parameters(self._snapshot())
        self._writer.finish()

    def _begin(self) -> None:
        """Wait until all members are ready and the coordinator has started the clock."""
        for group in (*self._groups, None):  # a library may connect a group only now
            all_reduce(torch.zeros(1, device=self._device), group)
        if self._writes_states and not self._is_resumed:
            self._writer.save_snapshot(self._snapshot(), 0)
        zero_s = 0.0
        if self._rank == 0:
            self._control.client.send(Ready())
            zero_s = self._control.begin_s.get()
        # On the coordinator's clock, to which every member knows its own; shared by a sum to which the others add 0.
        shared = torch.tensor([zero_s], dtype=torch.float64, device=self._device)
        all_reduce(shared)
        (past_s,) = self._tally.largest(self.totals.time_s)
        self._clock.zero_s = self._control.client.clock.to_local(shared.item()) - past_s

    def _record(self, result: steps.StepResult) -> str | None:
        """Count and log a step. Returns why the run ends with it; None: it goes on."""
        totals, reason = self.totals, self._agreement.reason
        self._tally.busy_s += result.gradient.computed_at - result.gradient.started_at
        if result.is_last and not result.is_applied:  # the gradients of this step are dropped; replicas have none such
            self._kept.undo()
            if reason == "max_time_s":
                assert self._config.max_time_s is not None
                totals.time_s = self._config.max_time_s
            return reason
        if self._log is not None:
            self._log.append(result)
            self._tally.num_rows = self._log.num_rows
        if not result.is_applied:
            return "diverged"
        self._tally.count_step(result)
        return self._limits.reached(totals.samples, totals.updates) or (reason if result.is_last else None)

    def _report(self) -> None:
        now, totals = self._clock.now(), self.totals
        if self._rank == 0 and now >= self._next_report:
            self._next_report = now + REPORT_EVERY_S
            self._control.client.send(
                ProgressReport(totals.updates, totals.samples, totals.time_s, totals.loss, self._num_train)
            )

    def _save_if_due(self) -> None:
        writer, samples = self._writer, self.totals.samples
        if self._writes_states and writer.snapshots.is_due(samples):
            writer.save_snapshot(self._snapshot(), samples)
        if writer.checkpoints.is_due(samples):
            if self._log is not None:
                self._log.flush()
            self._tally.before_checkpoint()
            if self._writes_checkpoints:
                writer.save_checkpoint(self._checkpoint(), samples)
            else:
                writer.checkpoints.advance(samples)

    def _snapshot(self) -> PartState:
        """What is evaluated."""
        totals = self.totals
        values = totals.snapshot(self._rate(totals.samples, totals.updates))
        replica, flat = self._replica, self._replica.flat
        evaluated = replica.optimizer.evaluated(flat.weights)
        state = final_state(flat.weights, evaluated, flat.buffers, replica.exchange.push_sum_weight)
        return PartState({name: tensor.clone() for name, tensor in state.items()}, values)

    def _checkpoint(self) -> PartState:
        """This member's state; where all members are alike and keep nothing, everybody's."""
        flat = self._replica.flat
        tensors = {"weights": flat.weights, "buffers": flat.buffers}
        tensors |= optimizer_tensors(self._replica.optimizer)
        tensors |= self._kept.state_dict()
        copies = {name: tensor.cpu().clone() for name, tensor in tensors.items()}
        if self._collective.replicas:
            copies["computed_s"] = torch.tensor(self._tally.computed_at, dtype=torch.float64)
        return PartState(copies, {"totals": self.totals.state_dict(), "rows": [*self._tally.rows_by_member]})

    def _load(self, context: RunContext) -> "MemberTotals":
        """The weights and the optimizer of the checkpoint, if there is one. Returns the totals."""
        config, flat = self._config, self._replica.flat
        totals, rows, computed_at = Totals(config.cluster.workers), [0] * config.cluster.workers, array("d")
        checkpoint = read_checkpoint(context, self._rank if self._writes_checkpoints else 0)
        if checkpoint is not None:
            tensors, values = checkpoint
            load_parameters(tensors, flat.weights, flat.buffers, self._replica.optimizer)
            self._kept.load_state_dict({name: tensor.to(self._device) for name, tensor in tensors.items()})
            totals, rows = Totals.from_state(values["totals"]), values["rows"]
            if self._collective.replicas:
                computed_at.fromlist(tensors["computed_s"].tolist())
        samples, rounds = config.cluster.workers * config.batch_size, self._replica.local.rounds
        has_replicas = self._collective.replicas
        return MemberTotals(totals, rows, computed_at, self._rank, samples, rounds, has_replicas, self._device)

    def _build_step(self, batches: WorkerBatches, turn: Callable[[int], int]) -> steps.Step:
        config, collective = self._config, self._collective
        absolute = config.live.pace == "absolute"
        rounds, done = self._replica.local.rounds, self.totals.updates
        delays = DelayInjector(config.cluster, config.scenario, config.seed, self._rank, absolute, done, rounds)
        kind: type[steps.Step] = steps.AllReduceGradients
        if collective.replicas:
            kind = steps.AverageBeforeStep if collective.averages_first else steps.AverageAfterStep
        return kind(
            self._replica,
            batches,
            delays,
            self._groups,
            turn,
            self._agreement,
            self._control,
            self._clock,
            config.max_time_s,
        )


def collective_of(config: RunConfig) -> Collective:
    collective = config.strategy.collective
    assert collective is not None
    return collective


def build_exchange(config: RunConfig, rank: int, flat: FlatModule) -> Exchange:
    """Of this member, at the initial weights."""
    if (gossip := build_gossip(config, rank, flat.weights)) is not None:
        return CompressedWeights(flat, gossip)
    if (compressor := build_compressor(config, rank, flat.layout)) is not None:
        return CompressedGradients(flat, compressor)
    collective = collective_of(config)
    if collective.peers is not None:
        return Peers(flat, rank, collective.all_turns(config.cluster.workers))
    if collective.bucket_bytes is not None:
        return Overlapped(flat, collective.replicas, collective.bucket_bytes)
    return AllReduce(flat, collective.replicas, collective.sends_tensors_singly)


@dataclass
class MemberTotals:
    """What the run has done so far."""

    totals: Totals  # at first those at its start, or at the checkpoint
    rows_by_member: list[int]  # of the event logs, likewise
    computed_at: "array[float]"  # seconds of the run: each gradient of this member; only if there are replicas
    rank: int  # of this member
    batch_size: int  # of all members together
    rounds: Rounds
    has_replicas: bool  # members differ between all-reduces
    device: torch.device  # of what is all-reduced

    def __post_init__(self) -> None:
        self.busy_s = self.totals.busy_s_by_worker[self.rank]
        self.num_rows = self.rows_by_member[self.rank]

    def count_step(self, result: steps.StepResult) -> None:
        """A step was applied."""
        totals = self.totals
        if self.has_replicas:
            self.computed_at.append(result.gradient.computed_at)
        totals.samples += self.batch_size * self.rounds.size(totals.updates)
        totals.updates += 1
        totals.time_s = result.ended_at
        totals.loss_sum += result.loss
        totals.loss_count += 1

    def before_checkpoint(self) -> None:
        """Complete busy times and counts of rows: each replica writes its own, else the first member writes all."""
        if self.has_replicas:
            self.totals.busy_s_by_worker[self.rank] = self.busy_s
            self.rows_by_member[self.rank] = self.num_rows
        else:
            self._share()  # also waits until all logs are on disk

    def finish(self, ended_by: str, last_loss: float) -> str:
        """Complete the totals at the end, on every member. Returns why the run has ended, which may be divergence."""
        totals, world_size = self.totals, dist.get_world_size()
        self._share()
        totals.used_by_worker = [totals.updates] * world_size
        totals.staleness = [totals.updates * world_size]
        totals.max_lead = min(totals.updates, 1, world_size - 1)
        if self.has_replicas and ended_by != "stop":
            totals.time_s, is_diverged = self.largest(totals.time_s, float(not math.isfinite(last_loss)))
            totals.max_lead = max(totals.max_lead, self._shared_lead())
            return "diverged" if is_diverged else ended_by
        return ended_by

    def largest(self, *values: float) -> list[float]:
        """The largest of all members, of each value."""
        shared = torch.tensor(values, dtype=torch.float64, device=self.device)
        all_reduce(shared, op=dist.ReduceOp.MAX)
        largest: list[float] = shared.tolist()
        return largest

    def _share(self) -> None:
        """Busy times and counts of rows become known to all members."""
        shared = torch.zeros(2, dist.get_world_size(), dtype=torch.float64, device=self.device)
        shared[:, self.rank] = torch.tensor([self.busy_s, self.num_rows], dtype=torch.float64)
        all_reduce(shared)
        self.totals.busy_s_by_worker, rows = shared.tolist()
        self.rows_by_member = list(map(int, rows))

    def _shared_lead(self) -> int:
        """n if a member had computed a gradient before another one had computed that n - 1 steps before, else 0."""
        shape = len(self.computed_at), dist.get_world_size()
        computed = torch.zeros(shape, dtype=torch.float64, device=self.device)
        computed[:, self.rank] = torch.tensor(self.computed_at, dtype=torch.float64)
        all_reduce(computed)
        first, last, ahead = computed.amin(1), computed.amax(1), 0  # [steps]
        while ahead + 1 < len(first) and bool((first[ahead + 1 :] < last[: -ahead - 1]).any()):
            ahead += 1
        return ahead + 1 if ahead else 0
