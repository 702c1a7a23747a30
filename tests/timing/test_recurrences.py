"""The recurrences against the event-driven simulator, bit for bit."""

import pytest
from log_checks import Rows
from recurrences import (
    asp_pushes_s,
    bsp_updates_s,
    every_kth_s,
    first_compute_s,
    k_async_updates_s,
    k_batch_async_updates_s,
    k_batch_sync_updates_s,
    k_sync_updates_s,
    ssp_pushes_s,
)
from simulations import run

from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Array, Exponential, Normal
from syncline.timing.draws import BLOCK

UPDATES = 150
ITERATIONS = UPDATES + 1  # no worker begins more mini-batches than there are updates in any of these runs

CLUSTERS: dict[str, tuple[ClusterConfig, ScenarioConfig]] = {
    "constant, ties everywhere": (ClusterConfig(workers=6, gradient_s=[0.1, 0.2, 0.3]), ScenarioConfig()),
    "equal workers": (ClusterConfig(workers=5, gradient_s=[1.0], jitter=Exponential(1.0)), ScenarioConfig()),
    "unequal workers": (
        ClusterConfig(workers=3, gradient_s=[0.02, 0.03, 0.06], jitter=Normal(1, 0.3)),
        ScenarioConfig(),
    ),
    "delays and a slow worker": (
        ClusterConfig(workers=8, gradient_s=[0.01], jitter=Normal(1, 0.05)),
        ScenarioConfig(compute_delay=Exponential(0.02), slow={3: 2.5}),
    ),
    "one worker": (ClusterConfig(workers=1, gradient_s=[1.0], jitter=Exponential(1.0)), ScenarioConfig()),
}
RANDOM = [name for name in CLUSTERS if "ties" not in name]  # no two pushes at one instant


def simulate(
    options: StrategyOptions, config: ClusterConfig, scenario: ScenarioConfig, seed: int = 0, updates: int = UPDATES
) -> tuple[list[list[float]], list[float]]:
    """Push times of each worker, and update times, in virtual time without gradients."""
    rows = Rows()
    run(options, config, scenario, log=rows, seed=seed, updates=updates)
    pushes = [[row.at for row in rows.of("pushed") if row.worker == worker] for worker in range(config.workers)]
    applied = {row.version: row.at for row in rows.of("applied")}
    return pushes, [applied[version] for version in sorted(applied)]


def durations(name: str, seed: int = 0, iterations: int = ITERATIONS) -> Array:
    config, scenario = CLUSTERS[name]
    return first_compute_s(Cluster(config, scenario, seed), iterations)


def assert_same_bits(ours: Array, simulated: list[float]) -> None:
    assert len(ours) >= len(simulated) > 0
    assert ours[: len(simulated)].tolist() == simulated


# The durations.


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("num", [0, 3 * BLOCK + 5])
def test_the_first_durations_are_those_that_are_drawn_one_by_one(name: str, num: int) -> None:
    config, scenario = CLUSTERS[name]
    cluster = Cluster(config, scenario, seed=4)
    bulk = first_compute_s(cluster, num)
    assert bulk.shape == (config.workers, num)
    one_by_one = [[cluster.compute_s(worker) for _ in range(num)] for worker in range(config.workers)]
    assert bulk.tolist() == one_by_one
    assert first_compute_s(cluster, num).tolist() == one_by_one, "later draws change nothing"


# Against the simulator.


@pytest.mark.parametrize("name", CLUSTERS)
def test_bsp_and_asp_push_and_update_as_the_simulator_does(name: str) -> None:
    _, updates = simulate(BspOptions(), *CLUSTERS[name])
    assert_same_bits(bsp_updates_s(durations(name)), updates)
    pushes, updates = simulate(AspOptions(), *CLUSTERS[name])
    ours = asp_pushes_s(durations(name))
    for worker, of_worker in enumerate(pushes):
        assert_same_bits(ours[worker], of_worker)
    assert_same_bits(every_kth_s(ours), updates)


@pytest.mark.parametrize("staleness", [0, 3])
@pytest.mark.parametrize("name", CLUSTERS)
def test_ssp_pushes_and_updates_as_the_simulator_does(name: str, staleness: int) -> None:
    pushes, updates = simulate(SspOptions(staleness=staleness), *CLUSTERS[name])
    ours = ssp_pushes_s(durations(name), staleness)
    for worker, of_worker in enumerate(pushes):
        assert_same_bits(ours[worker], of_worker)
    assert_same_bits(every_kth_s(ours), updates)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("name", CLUSTERS)
def test_k_sync_and_k_async_update_as_the_simulator_does(name: str, k: int) -> None:
    k = min(k, CLUSTERS[name][0].workers)
    _, updates = simulate(KSyncOptions(k=k), *CLUSTERS[name])
    assert_same_bits(k_sync_updates_s(durations(name), k), updates)
    if name in RANDOM:
        _, updates = simulate(KAsyncOptions(k=k), *CLUSTERS[name])
        assert_same_bits(k_async_updates_s(durations(name), k), updates)


@pytest.mark.parametrize("k", [1, 2, 17])
@pytest.mark.parametrize("name", CLUSTERS)
def test_the_batch_variants_update_as_the_simulator_does(name: str, k: int) -> None:
    drawn = durations(name, iterations=50 * (k + 1))
    _, updates = simulate(KBatchAsyncOptions(k=k), *CLUSTERS[name], updates=50)
    assert_same_bits(k_batch_async_updates_s(drawn, k), updates)
    if name in RANDOM:
        _, updates = simulate(KBatchSyncOptions(k=k), *CLUSTERS[name], updates=50)
        assert_same_bits(k_batch_sync_updates_s(drawn, k), updates)
