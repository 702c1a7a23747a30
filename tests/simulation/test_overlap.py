"""All-reduces during the backward pass in virtual time: closed forms, bounds, and that the learning is the same."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulation.test_local_steps import config_of
from simulations import ended

from benchmarks.measuring import simulated
from syncline.config import RunConfig
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant
from syncline.timing.network import NetworkConfig

FLAT = BspOptions(topology="allreduce")
OVERLAP = replace(FLAT, impl="overlap")


def timed(strategy: StrategyOptions, cluster: ClusterConfig, updates: int = 20, **about: object) -> dict:
    return simulated(config_of(strategy, cluster=cluster, gradients=False, max_updates=updates, **about))


def cluster_of(latency_s: float = 0.0, **about: object) -> ClusterConfig:
    network = NetworkConfig(latency_s=latency_s, bandwidth_gbps=0.008)  # a microsecond a byte
    given = {"workers": 4, "gradient_s": [0.1], "network": network, "message_bytes": 1_000_000}
    return ClusterConfig(**(given | about))  # type: ignore[arg-type]


def mb(buckets: float) -> BspOptions:
    return replace(OVERLAP, bucket_mb=1.0 / buckets)


@pytest.mark.parametrize(
    "strategy", [FLAT, mb(4.0), DsSyncOptions(), DsSyncOptions(average="before_forward"), DsSyncOptions(impl="overlap")]
)
def test_what_members_do_with_the_mean_makes_each_update_longer(strategy: StrategyOptions) -> None:
    plain, busy = (timed(strategy, cluster_of(0.001, update_s=update_s))["time_s"] for update_s in (0.0, 0.03))
    assert busy == pytest.approx(plain + 20 * 0.03, rel=1e-12)


@pytest.mark.parametrize(
    ("gradient_s", "update_s", "of_groups_s"), [(0.2, 1.6, 1.1), (2.0, 2.5, 2.25), (10.0, 10.375, 10.25)]
)
def test_equal_workers_of_a_communication_bound_and_of_a_compute_bound_gradient(
    gradient_s: float, update_s: float, of_groups_s: float
) -> None:
    """Four parts of 0.25 MB, 0.375 s each, are ready after 1/2, 2/3, 5/6 and all of the gradient: a ring of four takes
    1.5 times their bytes, a ring of two takes them once. The first part begins at once where the network is the
    bottleneck, else the last one is left."""
    cluster = cluster_of(gradient_s=[gradient_s], ready=[1 / 3, 1.0])
    for strategy, seconds in ((mb(4.0), update_s), (DsSyncOptions(impl="overlap", bucket_mb=0.25), of_groups_s)):
        assert timed(strategy, cluster)["time_s"] == pytest.approx(20 * seconds, rel=1e-9)


def test_a_group_does_not_wait_for_the_parts_of_another_one() -> None:
    """Workers 2 and 3 are slow; the first step is of the rows, {0, 1} and {2, 3}, the second one of the columns."""
    cluster = cluster_of(gradient_s=[0.2, 0.2, 2.0, 2.0], ready=[0.5, 1.0])
    strategy = DsSyncOptions(impl="overlap", bucket_mb=0.25)
    first, second = (timed(strategy, cluster, updates=updates) for updates in (1, 2))
    # Parts are ready after 5/8, 6/8, 7/8 and all of 2.0 s, so the last one is left. Each column waits for a slow one.
    assert first["time_s"] == pytest.approx(2.25)
    assert second["time_s"] == pytest.approx(4.5)
    assert second["max_lead"] == 2


@given(
    st.integers(1, 5),
    st.floats(0.05, 3.0),
    st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=1, max_size=5),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.001, 0.05]),
)
def test_it_is_the_recurrence_of_its_parts(
    workers: int, mean_s: float, shares: list[float], parts: int, latency_s: float
) -> None:
    """Workers of different speeds, with delays before their gradients."""
    ready = [*sorted(shares), 1.0]
    seconds = [mean_s * (1 + worker / 3) for worker in range(workers)]
    delays = [0.2] + [0.0] * (workers - 1)
    cluster = cluster_of(latency_s, workers=workers, gradient_s=seconds, ready=ready)
    scenario = ScenarioConfig(compute_delay=Constant(0.2), delayed_workers=[0])
    found = timed(mb(parts), cluster, updates=3, scenario=scenario)
    size = max(4, int(1e6 / parts))
    now = 0.0
    for _ in range(3):
        at, begin = 0.0, 0
        while begin < 1_000_000:
            end = min(begin + size, 1_000_000)
            place = end / 1_000_000 * (len(ready) - 1)
            low = min(int(place), len(ready) - 2)
            share = ready[low] + (place - low) * (ready[low + 1] - ready[low])
            last = max(now + delays[worker] + share * seconds[worker] for worker in range(workers))
            at = max(at, last) + 2 * (workers - 1) * (latency_s + (end - begin) / workers * 1e-6)
            begin = end
        now = at
    assert found["time_s"] == pytest.approx(now, rel=1e-9)


def test_the_learning_is_the_same_in_every_bit() -> None:
    cluster = ClusterConfig(workers=4, gradient_s=[0.1, 0.2], network=NetworkConfig(bandwidth_gbps=1e-4))
    configs: list[RunConfig] = [config_of(each, cluster=cluster) for each in (FLAT, replace(OVERLAP, bucket_mb=5e-4))]
    (flat, before), (overlapped, after) = map(ended, configs)
    assert torch.equal(flat, overlapped)
    assert after["time_s"] < before["time_s"]
