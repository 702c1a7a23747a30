"""Simulations of any strategy, as tests ask for them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from engine_play import Rows, computed_versions

from benchmarks.simulator import NullObserver
from syncline.progress import Limits, Totals
from syncline.simulation.engine import Simulation
from syncline.simulation.run import Learning
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential
from syncline.timing.network import NetworkConfig

NOISE = Exponential(1.0)
DELAYS = ScenarioConfig(push_delay=Exponential(0.4), pull_delay=Exponential(0.4))
LATENCY = NetworkConfig(latency_s=0.5)


@contextmanager
def over_a_network(is_wanted: bool) -> Iterator[None]:
    """Simulations that are built here schedule their messages, even if those take no time."""
    with pytest.MonkeyPatch.context() as patch:
        if is_wanted:
            patch.setattr(Cluster, "sends_instantly", False)
        yield


def simulation_of(
    options: StrategyOptions,
    cluster: ClusterConfig,
    scenario: ScenarioConfig | None = None,
    *,
    learning: Learning | None = None,
    log: Rows | None = None,
    observer=None,
    seed: int = 0,
    size: int = 0,
    batch_size: int = 1,
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
        learning=None if learning is None else (learning.shards, learning.learners),
        log=None if log is None else log.append,
        first_count=options.first_count,
    )


def run(options: StrategyOptions, cluster: ClusterConfig, scenario=None, **about) -> Totals:
    simulation = simulation_of(options, cluster, scenario, **about)
    simulation.run()
    return simulation.totals


def check_counts(rows: Rows, totals: Totals, num_workers: int, num_shards: int = 1) -> None:
    """Every gradient that was begun was used, discarded, broken off or void, or is still somewhere."""
    counts = {
        kind: Counter(row.worker for row in rows.of(kind) if row.shard <= 0)
        for kind in ("started", "computed", "pushed", "applied", "discarded")
    }
    broken_off = Counter(row.worker for row in rows.of("dropped") if row.because == "broken off")
    void = Counter(row.worker for row in rows.of("dropped") if row.because == "on its way")
    assert {row.because for row in rows.of("dropped")} <= {"broken off", "on its way"}
    running = [0] * num_workers
    pending = Counter[int]()
    for worker in range(num_workers):
        running[worker] = counts["started"][worker] - counts["computed"][worker] - broken_off[worker]
        assert running[worker] in (0, 1)
        under_way = counts["computed"][worker] - counts["pushed"][worker] - void[worker]
        assert under_way >= 0
        pending[worker] = counts["pushed"][worker] - counts["applied"][worker] - counts["discarded"][worker]
        assert pending[worker] >= 0
    assert totals.used_by_worker == [counts["applied"][worker] for worker in range(num_workers)]
    assert totals.discarded_by_worker == [counts["discarded"][worker] for worker in range(num_workers)]
    interrupted = [broken_off[worker] + void[worker] for worker in range(num_workers)]
    assert totals.interrupted_by_worker == interrupted
    assert totals.wasted_by_worker == [void[worker] for worker in range(num_workers)]
    pushes = [row.push for row in rows.of("applied", "discarded")]
    assert len(set(pushes)) == len(pushes), "settled once"
    # What each worker really computed: its gradients' seconds, without what was broken off and what is still running.
    spent = [0.0] * num_workers
    begun: dict[int, float] = {}
    for row in rows:
        if row.kind == "started":
            begun[row.worker] = row.at
            spent[row.worker] += row.value
        elif row.kind == "dropped":
            spent[row.worker] -= row.value
    for worker in range(num_workers):
        if running[worker]:
            duration = [row.value for row in rows.of("started") if row.worker == worker][-1]
            spent[worker] -= max(0.0, begun[worker] + duration - totals.time_s)
    assert totals.busy_s_by_worker == pytest.approx(spent, abs=1e-9)
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
