"""Simulations of any strategy, small runs in virtual time, and the accounting of gradients."""

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch
from log_checks import Rows, computed_versions
from torch import Tensor

from benchmarks.simulator import NullObserver
from syncline.config import DigitsConfig, ModelConfig, RunConfig, compose
from syncline.progress import Limits, Totals
from syncline.records.events import EventLog, read_events
from syncline.simulation.loop import Simulation
from syncline.simulation.run import ServerTraining, build_server_training, simulate
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential
from syncline.timing.network import NetworkConfig

NOISE = Exponential(1.0)
DELAYS = ScenarioConfig(push_delay=Exponential(0.4), pull_delay=Exponential(0.4))
LATENCY = NetworkConfig(latency_s=0.5)


def config_of(strategy: StrategyOptions, **changes: Any) -> RunConfig:
    """A small run, evaluated at its begin and at its end."""
    given = {
        "model": ModelConfig(name="softmax_regression"),
        "dataset": DigitsConfig(train_size=200, test_size=50),
        "batch_size": 8,
        "eval_every_epochs": 1000,
    }
    return RunConfig(strategy=strategy, **(given | changes))


def ended(config: RunConfig) -> tuple[Tensor, dict[str, Any]]:
    """The weights at the end, of all shards or replicas one after another, and the summary."""
    summary, _, states = finished(config)
    return torch.cat([state["weights"] for state in states]), summary


def logged(config: RunConfig, folder: Path) -> tuple[dict[str, Any], pa.Table]:
    """The summary of a run, and its log."""
    log = EventLog(folder / "events.arrow")
    summary = simulate(config, lambda row: None, lambda progress: None, log)
    log.close()
    return summary, read_events(folder / "events.arrow")


@contextmanager
def over_a_network(is_enabled: bool) -> Iterator[None]:
    """Simulations built within schedule their messages, even if those take no time."""
    with pytest.MonkeyPatch.context() as patch:
        if is_enabled:
            patch.setattr(Cluster, "sends_instantly", False)
        yield


def simulation_of(
    options: StrategyOptions,
    cluster: ClusterConfig,
    scenario: ScenarioConfig | None = None,
    *,
    learning: ServerTraining | None = None,
    log: Rows | None = None,
    observer=None,
    seed: int = 0,
    size: int = 0,
    batch_size: int = 1,
    overlap: bool = False,
    **limits: float,
) -> Simulation:
    options.check_cluster(cluster.workers, cluster.shards)
    return Simulation(
        strategies=[options.start(cluster.workers) for _ in range(cluster.shards)],
        cluster=Cluster(cluster, scenario or ScenarioConfig(), seed),
        block_bytes=[size] * cluster.shards,
        batch_size=batch_size,
        limits=Limits(**limits),
        observer=observer or NullObserver(),
        rules=[rule for _ in range(cluster.workers) if (rule := options.pull_rule(cluster.shards)) is not None],
        overlap=overlap,
        learning=None if learning is None else (learning.shards, learning.worker_gradients),
        log=None if log is None else log.append,
        first_count=options.first_count,
    )


def simulated(folder: Path, *words: str) -> tuple[pa.Table, dict[str, Any]]:
    """The events and the summary of a run of times alone."""
    summary, log = logged(compose(["gradients=false", *words])[0], folder)
    return log, summary


def run(options: StrategyOptions, cluster: ClusterConfig, scenario=None, **about) -> Totals:
    simulation = simulation_of(options, cluster, scenario, **about)
    simulation.run()
    return simulation.totals


def final_state(config: RunConfig) -> tuple[Tensor, Tensor]:
    """Final weights and buffers of a run with a server, in virtual time."""
    learning = build_server_training(config)
    about = {"seed": config.seed, "batch_size": config.batch_size, "updates": config.max_updates or math.inf}
    run(config.strategy, config.cluster, config.scenario, learning=learning, **about)
    for shard in learning.shards:
        assert shard.allocated <= config.cluster.workers + 1
    return torch.cat([shard.current.weights for shard in learning.shards]), learning.shards[0].current.buffers


def finished(config: RunConfig) -> tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Tensor]]]:
    """A whole run in virtual time: its summary, its curve, and the parameters of each shard or replica at its end."""
    rows, states = list[dict[str, Any]](), list[dict[str, Tensor]]()
    summary = simulate(
        config,
        rows.append,
        lambda progress: None,
        save_parameters=lambda name, tensors, about: states.append(dict(tensors)),
    )
    return summary, rows, states


def check_counts(rows: Rows, totals: Totals, num_workers: int, num_shards: int = 1) -> None:
    """Every gradient that was started was used, discarded, cancelled or rejected as stale, or is in progress."""
    counts = {
        kind: Counter(row.worker for row in rows.of(kind) if row.shard <= 0)
        for kind in ("started", "computed", "pushed", "applied", "discarded")
    }
    cancelled = Counter(row.worker for row in rows.of("dropped"))
    stale = Counter(row.worker for row in rows.of("stale"))
    running = [0] * num_workers
    pending = Counter[int]()
    for worker in range(num_workers):
        running[worker] = counts["started"][worker] - counts["computed"][worker] - cancelled[worker]
        assert running[worker] in (0, 1)
        in_flight = counts["computed"][worker] - counts["pushed"][worker] - stale[worker]
        assert in_flight >= 0
        pending[worker] = counts["pushed"][worker] - counts["applied"][worker] - counts["discarded"][worker]
        assert pending[worker] >= 0
    assert totals.used_by_worker == [counts["applied"][worker] for worker in range(num_workers)]
    assert totals.discarded_by_worker == [counts["discarded"][worker] for worker in range(num_workers)]
    interrupted = [cancelled[worker] + stale[worker] for worker in range(num_workers)]
    assert totals.interrupted_by_worker == interrupted
    assert totals.wasted_by_worker == [stale[worker] for worker in range(num_workers)]
    pushes = [row.push for row in rows.of("applied", "discarded")]
    assert len(set(pushes)) == len(pushes), "settled once"
    # The seconds that each worker computed: those of its gradients, less what was cancelled or is still running.
    busy_s = [0.0] * num_workers
    started_at: dict[int, float] = {}
    for row in rows:
        if row.kind == "started":
            started_at[row.worker] = row.at
            busy_s[row.worker] += row.value
        elif row.kind == "dropped":
            busy_s[row.worker] -= row.value
    for worker in range(num_workers):
        if running[worker]:
            duration = [row.value for row in rows.of("started") if row.worker == worker][-1]
            busy_s[worker] -= max(0.0, started_at[worker] + duration - totals.time_s)
    assert totals.busy_s_by_worker == pytest.approx(busy_s, abs=1e-9)
    numbers = Counter[tuple[int, int]]()
    for row in rows.of("pushed"):
        if row.shard == 0:
            numbers[row.worker, int(row.value)] += 1
    assert set(numbers.values()) <= {1}, "no gradient is sent twice"
    staleness = Counter[float]()
    for shard in range(num_shards):
        computed_at = computed_versions(rows, shard)
        staleness += Counter(
            row.version - 1 - computed_at[row.push] for row in rows.of("applied") if row.shard == shard
        )
    assert staleness == Counter(dict(enumerate(totals.staleness)))
