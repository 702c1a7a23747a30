"""A worker's process: it computes gradients at the blocks that it is granted, and pushes them to every shard.

With local.overlap it computes the next one while a push and its answers are under way, and waits for these before it
pushes that.
"""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

from syncline.assembly.compression import build_compressor, build_feedback_compression
from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.parameters import shard_blocks
from syncline.assembly.problem import build_problem
from syncline.learning.compression import PushCompressor
from syncline.learning.gradient import WorkerBatches
from syncline.learning.local_steps import LocalSteps
from syncline.learning.worker_state import Stateful, WorkerState
from syncline.live.checkpoints import drop_old, read_checkpoint
from syncline.live.node.control import ControlClient, RunContext
from syncline.live.node.process import SHARD_LOST, Job
from syncline.live.node.ranks import Ranks
from syncline.live.wire.control_messages import Addresses, ControlMessage, Done, Hello, Unreachable
from syncline.live.wire.sockets import spin_seconds
from syncline.live.worker.links import Links, ShardLost, Staging
from syncline.records.snapshots import state_path, worker_part, write_state
from syncline.server.report import PushReport
from syncline.timing.cluster import DelayInjector


def main(job: Job, worker: int, ranks: Ranks) -> int:
    """Be this worker until the run is over. Returns the exit code."""
    messages: SimpleQueue[ControlMessage] = SimpleQueue()
    context = RunContext.of(job, "worker", worker, ranks)
    control = ControlClient.of(context, Hello("worker", worker), messages.put)
    shards = messages.get()
    assert isinstance(shards, Addresses)
    try:
        spin_s = spin_seconds((context.local_size + context.config.cluster.shards) * context.config.threads)
        run_worker(context, worker, shards.addresses, spin_s)
    except ShardLost as error:
        print(f"lost: {error}", file=sys.stderr)
        control.send(Unreachable(str(error)))
        return SHARD_LOST
    control.send(Done())
    return 0


def run_worker(context: RunContext, worker: int, addresses: Sequence[str], spin_s: float = 0.0) -> None:
    """Be this worker until the run is over.

    Args:
        spin_s: as in `wait_readable`.

    Raises:
        ShardLost: a connection ended before.
    """
    config = context.config
    configure_torch(config)
    problem = build_problem(config, pick_device(config, context.local_rank))
    flat = problem.flat
    batches = problem.batches(config, worker)
    rounds = config.rounds(problem.num_train).of(worker)
    staging = Staging(flat, apart=config.local.steps > 1 or config.local.optimizer is not None)
    # A warm-up gradient before the run, for what libraries set up at the first one; it changes nothing.
    problem.gradient([flat.weights], flat.buffers.clone(), batches.take(0))
    strategy, own = config.strategy, shard_blocks(config, flat.layout)
    rule = strategy.pull_rule(config.cluster.shards)
    pulls = build_feedback_compression(config) if config.compresses_pulls else None
    links = Links(worker, staging, own, strategy.interrupts, rule, pulls, config.local.overlap, spin_s)
    size, num_buffers = flat.weights.numel(), flat.buffers.numel()
    about = {"pid": os.getpid(), "size": size, "num_buffers": num_buffers, "num_train": problem.num_train}
    with closing(links):
        links.connect(addresses, context.secret, about, config.live.leave_s)
        iteration = links.first_iteration()
        if iteration is not None:
            absolute = config.live.pace == "absolute"
            delays = DelayInjector(config.cluster, config.scenario, config.seed, worker, absolute, iteration, rounds)
            compressor = build_compressor(config, worker, flat.layout)
            trainer = Trainer(
                links, staging, build_local_steps(config, problem, worker), compressor, batches, delays, context
            )
            if links.resumes and config.keeps_state_at_workers:
                trainer.resume(iteration)
            trainer.run(iteration)


@dataclass
class Trainer:
    """Computes and pushes one gradient after another."""

    links: Links
    staging: Staging
    local: LocalSteps
    compressor: PushCompressor | None  # None: pushes are sent as they are
    batches: WorkerBatches
    delays: DelayInjector
    context: RunContext

    def __post_init__(self) -> None:
        parts: dict[str, Stateful] = {"local": self.local}
        if self.compressor is not None:
            parts["compress"] = self.compressor
        self._overlap = self.context.config.local.overlap
        self._kept = WorkerState(parts, num_before=2 if self._overlap else 1)
        self._begun = -1  # the push that was begun last
        self._saved = 0.0, -1  # number of the last checkpoint, and the push before which its state was
        self.links.on_save = self.save

    def resume(self, iteration: int) -> None:
        """Continue with what was kept for the checkpoint, before the push of this number."""
        part = worker_part(self.links.worker)
        checkpoint = read_checkpoint(self.context, part)
        if checkpoint is None or checkpoint[1]["iteration"] != iteration:
            raise RuntimeError(f"the checkpoint's part {part} is not that before push {iteration}")
        device = self.local.gradient.flat.weights.device
        on_device = {name: t.to(device) if name.startswith("local.") else t for name, t in checkpoint[0].items()}
        self._kept.load_state_dict(on_device)

    def save(self, checkpoint: float, iteration: int) -> None:
        """Write down what was kept before the push of this number; of several shards' numbers the lowest counts.

        Two pushes have been begun since at most, with overlap. With a pull rule the highest number counts, and more may
        have been begun: then it is the state before the last one.
        """
        before, saved = self._saved
        is_further = iteration < saved if self.links.resends else iteration > saved
        if checkpoint < before or (checkpoint == before and not is_further):
            return
        self._saved = checkpoint, iteration
        is_last = iteration == self._begun or not self.links.resends
        state = self._kept.state_dict() if iteration > self._begun else self._kept.before[-1 if is_last else 0]
        folder, part = self.context.folder, worker_part(self.links.worker)
        write_state(state_path(folder / "checkpoint", checkpoint, part), state, {"iteration": iteration})
        drop_old(self.context.config, folder, part)

    def run(self, iteration: int) -> None:
        """From the push of this number on, until the run is over."""
        links, first = self.links, iteration
        cancelled, wasted, lost_s = 0, 0, 0.0  # since the last push
        while (self._overlap and iteration > first) or links.await_blocks(self.delays):
            self.staging.to_device()
            self._kept.begin()
            self._begun = iteration
            started = time.monotonic()
            losses, slowdown_s, delay_s = self._compute(iteration)
            if not links.open:
                return
            if links.interrupted:
                self._kept.undo()
                is_whole = len(losses) == self.local.rounds.size(iteration)
                wasted, cancelled = (wasted + 1, cancelled) if is_whole else (wasted, cancelled + 1)
                lost_s += time.monotonic() - started
                continue
            computed = ended = time.monotonic()
            report = PushReport(
                links.worker,
                iteration,
                loss=sum(losses) / len(losses),
                cancelled=cancelled,
                wasted=wasted,
                lost_s=lost_s,
                started_at=links.clock(started),
                computed_at=links.clock(computed),
                slowdown_s=slowdown_s,
                compute_delay_s=delay_s,
            )
            if self._overlap:
                if iteration == first:
                    links.reset_buffers()
                elif not links.await_blocks(self.delays):
                    return
                ended = time.monotonic()  # from when on the push is delayed
            if not links.push(self.delays, report, ended):
                wasted += 1
                lost_s += computed - started
                self._kept.undo()
                continue
            iteration += 1
            cancelled, wasted, lost_s = 0, 0, 0.0

    def _compute(self, iteration: int) -> tuple[list[float], float, float]:
        """The local steps of a push, each with its injected delays, until an interrupt or the end of the run.

        What is pushed is staged, and compressed, before the delays of the last step.

        Returns:
            The losses, and the seconds of slow-downs and of delays; without the last loss if its delay was cut short.
        """
        links, flat, size = self.links, self.local.gradient.flat, self.local.rounds.size(iteration)
        losses, slowdown_s, delay_s = list[float](), 0.0, 0.0
        with closing(self.local.steps([flat.weights], flat.buffers, self.batches, iteration)) as steps:
            while len(losses) < size:
                begun = time.monotonic()
                losses.append(next(steps))
                if len(losses) == size:
                    next(steps, None)
                    self.staging.from_device()
                    if self.compressor is not None:
                        links.compressed(self.compressor(self.staging.gradient, iteration))
                if self._overlap:
                    links.poll()
                if not links.is_interrupted():
                    slow_s, late_s = self.delays.compute(time.monotonic() - begun)
                    slowdown_s, delay_s = slowdown_s + slow_s, delay_s + late_s
                    links.wait(slow_s + late_s)
                    if links.interrupted:
                        del losses[-1]
                if links.interrupted or not links.open:
                    break
        return losses, slowdown_s, delay_s
