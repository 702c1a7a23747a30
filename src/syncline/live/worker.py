"""A worker's process: it computes gradients at the blocks that it is granted, and pushes them to every shard."""

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from queue import SimpleQueue

import torch

from syncline.assembly import Learner, build_learner, pick_device
from syncline.learning.gradient import WorkerBatches
from syncline.live.control import ControlClient, RunContext
from syncline.live.links import Links, PulledLinks, ShardLost, Staging
from syncline.live.messages import Addresses, Done, Hello, Message, Unreachable
from syncline.live.process import CONTROL_LOST, SHARD_LOST, Job
from syncline.server.report import PushReport
from syncline.timing.cluster import DelayInjector


def main(job: Job, worker: int) -> int:
    """Be this worker until the run is over. Returns the exit code."""
    messages: SimpleQueue[Message] = SimpleQueue()
    context = RunContext.of(job)
    try:
        control = ControlClient.of(context, Hello("worker", worker), messages.put)
    except OSError as error:  # this host may be cut off: the supervisor tries again
        print(f"no launcher: {error}", file=sys.stderr)
        return CONTROL_LOST
    shards = messages.get()
    assert isinstance(shards, Addresses)
    try:
        run_worker(context, worker, shards.addresses, job.on_host("worker").index(worker))
    except (ShardLost, OSError) as error:
        print(f"lost: {error}", file=sys.stderr)
        control.send(Unreachable(str(error)))
        return SHARD_LOST
    control.send(Done())
    return 0


def run_worker(context: RunContext, worker: int, addresses: Sequence[str], local_rank: int) -> None:
    """Be this worker until the run is over.

    Args:
        addresses: of the shards.
        local_rank: among the workers of this host, from 0; it decides which GPU this worker has.

    Raises:
        ShardLost: a connection ended before.
    """
    config = context.config
    torch.set_num_threads(config.threads)
    learner = build_learner(config, pick_device(config, local_rank))
    flat = learner.flat
    batches = learner.batches(config, worker)
    staging = Staging(flat)
    # A warm-up gradient before the run, for what libraries set up at the first one; it changes nothing.
    learner.gradient([flat.weights], flat.buffers.clone(), batches.take(0))
    rule = config.strategy.pull_rule(config.cluster.shards)
    if rule is None:
        links = Links(worker, staging, config.cluster.shards, config.strategy.interrupts)
    else:
        links = PulledLinks(worker, staging, config.cluster.shards, rule)
    about = {"size": flat.weights.numel(), "num_buffers": flat.buffers.numel(), "num_train": learner.num_train}
    with closing(links):
        links.connect(addresses, context.secret, context.tls, about, config.live.leave_s)
        iteration = links.first_iteration()
        if iteration is not None:
            absolute = config.live.pace == "absolute"
            delays = DelayInjector(config.cluster, config.scenario, config.seed, worker, absolute, iteration)
            GradientLoop(worker, links, staging, learner, batches, delays).run(iteration)


@dataclass(frozen=True, slots=True)
class GradientLoop:
    """Computes and pushes one gradient after another."""

    worker: int
    links: Links
    staging: Staging
    learner: Learner
    batches: WorkerBatches
    delays: DelayInjector

    def run(self, iteration: int) -> None:
        """From this iteration on, until the run is over."""
        links = self.links
        cancelled = wasted = 0  # gradients since the last push
        while links.await_blocks(self.delays):
            self.staging.to_device()
            started = time.monotonic()
            loss = self._compute(iteration)
            if links.is_interrupted():
                wasted += 1
                continue
            slowdown_s, delay_s = self.delays.compute(time.monotonic() - started)
            if not links.wait(slowdown_s + delay_s):
                return
            if links.interrupted:
                cancelled += 1
                continue
            computed = time.monotonic()
            report = PushReport(
                self.worker,
                iteration,
                loss=loss,
                cancelled=cancelled,
                wasted=wasted,
                started_at=links.clock(started),
                computed_at=links.clock(computed),
                slowdown_s=slowdown_s,
                compute_delay_s=delay_s,
            )
            if not links.push(self.delays, report, computed):
                cancelled += 1
                continue
            iteration += 1
            cancelled = wasted = 0

    def _compute(self, iteration: int) -> float:
        """The gradient of this iteration's mini-batch is staged. Returns the loss."""
        flat = self.learner.flat
        loss, _, _ = self.learner.gradient([flat.weights], flat.buffers, self.batches.take(iteration))
        self.staging.from_device()
        return loss
