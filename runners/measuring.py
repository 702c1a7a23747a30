"""The runs that measure a cluster, and the predictions that are held against further runs."""

import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from runners.display import RunDisplay, say
from runners.torchrun import make_run
from syncline.assembly.compression import build_pull_compressor
from syncline.assembly.data import shape_of
from syncline.assembly.device import pick_device
from syncline.assembly.network import build_flat, count_parameters
from syncline.assembly.parameters import build_parameters
from syncline.assembly.problem import build_problem
from syncline.config import ConfigError, LiveConfig, RunConfig, SimulateConfig, TargetConfig
from syncline.config.datasets import CtrSyntheticConfig
from syncline.config.models import DeepfmConfig
from syncline.learning.buckets import ready_shares
from syncline.learning.update import AppliedPush
from syncline.records.events import EventLog, read_events
from syncline.records.measured import Measured, measured
from syncline.records.store import read_summary
from syncline.simulation.run import simulate
from syncline.strategies import STRATEGIES
from syncline.timing.calibration import Prediction, Stream, evenness, independent
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant, Trace
from syncline.timing.network import NetworkConfig

HELD_OUT = ("ssp", "dssp", "k_async", "backup")  # strategies of which nothing is fitted
UPDATES = 21  # of which the median counts
STREAM_UPDATES = 60  # of each sender of a stream
MOST_STREAM_BYTES = 64e6
SMALLER = 16  # times is a small message
SMALLEST_S = 1e-3  # of a stream's gradient in virtual time
NEVER_S = 1e6  # for which workers that do not send are delayed
SEEDS = 8  # of predictions


@dataclass(frozen=True, slots=True)
class Taken:
    """One run, and what its gradients and messages took."""

    config: RunConfig
    summary: dict[str, Any]
    times: Measured

    @property
    def update_s(self) -> float:
        return float(self.summary["time_s"] / self.summary["updates"])


def taken(config: RunConfig, folder: Path) -> Taken:
    """Of a finished run's record.

    Raises:
        RecordError: it is not finished, or has no event log.
    """
    events = read_events(folder / "events.arrow")
    return Taken(config, read_summary(folder), measured(events, config.cluster.workers))


def under(config: RunConfig, strategy: str, gradients: int) -> RunConfig:
    """The run under another strategy, its options as by default, until it has used so many gradients.

    Raises:
        ConfigError: the strategy does not support the cluster.
    """
    options = STRATEGIES[strategy]()
    workers = config.cluster.workers
    an_update = {"bsp": workers, "backup": workers - getattr(options, "backups", 0)}.get(strategy)
    updates = max(1, gradients // (an_update or getattr(options, "k", None) or 1))
    runner, is_live = config.runner, isinstance(config.runner, LiveConfig)
    if isinstance(runner, LiveConfig):
        runner = replace(runner, events=True, evaluate="after", checkpoint_every_epochs=1e6)
    return replace(
        config,
        strategy=options,
        max_updates=updates,
        runner=runner,
        epochs=None,
        max_time_s=None,
        target=TargetConfig(),
        eval_every_epochs=1e6,
        gradients=is_live,
    )


def make(config: RunConfig, results: Path) -> Taken:
    """Make the run, whether or not it was made before: it measures what is now.

    Raises:
        ValueError: it fails or diverges.
    """
    with RunDisplay(config) as display:
        summary = make_run(config, results, display.progressed, restart=True)
    if summary["status"] == "diverged":
        raise ConfigError(f"{config.identity} diverged, so that nothing is measured; a smaller optimizer.lr may help")
    return taken(config, results / config.identity)


def predicted(config: RunConfig, cluster: ClusterConfig, scenario: ScenarioConfig | None = None) -> float:
    """Seconds an update of the run on this cluster in virtual time: the median over several seeds.

    A mean would be that of no run where workers get into step under one seed and not under another.
    """
    virtual = in_virtual_time(config, cluster, scenario)
    summaries = [
        simulate(replace(virtual, seed=seed), lambda row: None, lambda progress: None) for seed in range(SEEDS)
    ]
    return float(statistics.median(summary["time_s"] / summary["updates"] for summary in summaries))


def in_virtual_time(config: RunConfig, cluster: ClusterConfig, scenario: ScenarioConfig | None = None) -> RunConfig:
    """Times alone; without a scenario, since measured seconds contain what it injects."""
    return replace(
        config,
        cluster=cluster,
        scenario=scenario or ScenarioConfig(),
        runner=SimulateConfig(events=False),
        gradients=False,
    )


def predicted_times(config: RunConfig, cluster: ClusterConfig) -> list[Measured]:
    """Seconds of gradients and messages of the run on this cluster in virtual time, under several seeds."""
    virtual, found = in_virtual_time(config, cluster), list[Measured]()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.arrow"
        for seed in range(SEEDS):
            log = EventLog(path)
            simulate(replace(virtual, seed=seed), lambda row: None, lambda progress: None, log)
            log.close()
            found.append(measured(read_events(path), cluster.workers))
    return found


def update_seconds(config: RunConfig) -> float:
    """`cluster.update_s` of the run's shards on this machine, the median of several updates.

    That is an optimizer's step and, where pulls are compressed, what that takes.
    """
    flat = build_flat(config, shape_of(config), torch.device("cpu"))
    shard = build_parameters(config, 0, flat, num_train=1, is_whole=False)
    gradient, buffers = small(shard.current.weights.numel()), torch.zeros_like(shard.current.buffers)
    compressor = build_pull_compressor(config, 0, 0) if config.compresses_pulls else None

    def update(number: int) -> None:
        push = AppliedPush(gradient, buffers, 0, 0, 1, config.batch_size, shard.current.weights)
        shard.apply([push], 1.0, number, number)
        if compressor is not None:
            compressor(shard.current.weights, number)

    return median_seconds(update)


def median_seconds(update: Callable[[int], object]) -> float:
    """What an update takes, which is called with its number, as often as a median needs."""
    spent = list[float]()
    for number in range(UPDATES):
        begun = time.perf_counter()
        update(number)
        spent.append(time.perf_counter() - begun)
    return statistics.median(spent)


def small(size: int) -> Tensor:
    """A gradient [size] that leaves the weights about where they are."""
    return 1e-6 * torch.randn(size, generator=torch.Generator().manual_seed(0))


def shares_ready(config: RunConfig) -> list[float]:
    """`cluster.ready` of the run's model on this machine: shares of a gradient's time, to three digits."""
    problem = build_problem(config, pick_device(config))
    batch, flat = problem.batches(config, 0).take(0), problem.flat
    buffers = flat.buffers.clone()
    shares = ready_shares(flat, lambda: problem.gradient([flat.weights], buffers, batch), time.perf_counter)
    return [round(share, 3) for share in shares]


def message_bytes(config: RunConfig) -> int:
    """Of all blocks of one push."""
    size = config.cluster.message_bytes
    return 4 * count_parameters(config)[0] if size is None else size


@dataclass(frozen=True, slots=True)
class StreamRun:
    """A stream, and what it takes to foresee it."""

    stream: Stream
    config: RunConfig
    cluster: ClusterConfig  # its gradients and its server, as they were

    def foreseen_s(self, network: NetworkConfig) -> float:
        """Seconds an update over this network."""
        return predicted(self.config, replace(self.cluster, network=network), self.config.scenario)

    def foreseen_evenness(self, network: NetworkConfig) -> float:
        """Of pulls that leave together, over this network."""
        cluster = replace(self.cluster, network=network)
        return statistics.mean(evenness(times.pull_s) for times in predicted_times(self.config, cluster))


def stream(
    config: RunConfig, strategy: str, senders: int, size_bytes: float, update_s: float, results: Path
) -> StreamRun:
    """Let the first `senders` workers exchange messages of about this size, and do little else.

    The model is a DeepFM with layers that are wide enough: its gradients are cheap, and its data made up.

    Args:
        strategy: asp, or bsp, under which the pulls of all workers leave together.
        update_s: for which a shard is busy with a push.
    """
    workers, cluster = config.cluster.workers, config.cluster
    idle = list(range(senders, workers))
    scenario = ScenarioConfig(compute_delay=Constant(NEVER_S), delayed_workers=idle) if idle else ScenarioConfig()
    wide = max(1, math.isqrt(int(size_bytes) // 4))
    own = replace(
        under(config, strategy, STREAM_UPDATES * senders),
        model=DeepfmConfig(hidden=[wide, wide], embedding_size=1, batch_norm=False, dropout=0.0),
        dataset=CtrSyntheticConfig(train_size=64 * workers, test_size=500),
        optimizer=replace(config.optimizer, lr=1e-6),
        batch_size=2,
        cluster=replace(cluster, gradient_s=[SMALLEST_S]),
        scenario=scenario,
    )
    if isinstance(own.runner, LiveConfig):  # without any delay
        own = replace(own, runner=replace(own.runner, pace="relative"), cluster=replace(own.cluster, jitter=None))
    run = make(own, results)
    seconds = run.times.gradient_s[:senders]
    own_s = [float(column.mean()) for column in seconds]
    ratios = [ratio for column, mean in zip(seconds, own_s, strict=True) for ratio in column / mean]
    sent_bytes = message_bytes(own)
    as_was = ClusterConfig(
        name="stream",
        workers=workers,
        shards=cluster.shards,
        gradient_s=own_s + [1.0] * len(idle),
        jitter=Trace(tuple(sorted(ratios)), block=1.0),
        message_bytes=sent_bytes,
        update_s=update_s,
    )
    ways = (run.times.push_s[:senders], run.times.pull_s[:senders])
    message_s = statistics.mean(float(np.median(np.concatenate(way))) for way in ways)
    even = evenness(run.times.pull_s) if strategy == "bsp" else None
    return StreamRun(Stream(senders, sent_bytes, message_s, run.update_s, even), own, as_was)


def streams(config: RunConfig, update_s: float, results: Path) -> list[StreamRun]:
    """Of one sender with small messages and with some as large as the run's, and of all workers with these, twice."""
    size_bytes, workers = min(message_bytes(config), MOST_STREAM_BYTES), config.cluster.workers
    asked = [("asp", 1, size_bytes / SMALLER), ("asp", 1, size_bytes)]
    if workers > 1:
        asked += [("asp", workers, size_bytes), ("bsp", workers, size_bytes)]
    return [stream(config, *of_stream, update_s, results) for of_stream in asked]


def validate(
    config: RunConfig, profile: ClusterConfig, strategies: Sequence[str], gradients: int, results: Path
) -> list[Prediction]:
    """Make a run under each strategy that supports the cluster, and foresee it."""
    made = []
    for strategy in strategies:
        try:
            asked = under(config, strategy, gradients)
        except ValueError as error:
            say(f"{strategy} is not run: {error}")
            continue
        run = make(asked, results)
        others = predicted(asked, independent(profile))
        made.append(Prediction(strategy, run.update_s, predicted(asked, profile), others))
    return made
