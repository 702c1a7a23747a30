"""Pushes whose parts leave during the backward pass, in virtual time: closed forms, bounds, the same learning."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from simulation.test_local_steps import config_of, ended

from syncline.learning.buckets import from_end, within
from syncline.learning.parameters import blocks
from syncline.simulation.run import simulate
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Constant, Exponential
from syncline.timing.network import NetworkConfig

SIZE = 1_000_000  # bytes of a message, a microsecond each


def cluster_of(sharing: str = "queue", latency_s: float = 0.0, **about: object) -> ClusterConfig:
    network = NetworkConfig(latency_s=latency_s, bandwidth_gbps=0.008, sharing=sharing)
    given = {"workers": 1, "gradient_s": [0.1], "network": network, "message_bytes": SIZE}
    return ClusterConfig(**(given | about))  # type: ignore[arg-type]


def timed(strategy: StrategyOptions, cluster: ClusterConfig, bucket_mb: float | None, **about: object) -> dict:
    config = config_of(strategy, cluster=cluster, gradients=False, push_bucket_mb=bucket_mb, **about)
    return simulate(config, lambda row: None, lambda progress: None)


@given(st.integers(0, 40), st.integers(1, 9), st.integers(1, 5))
def test_the_parts_of_all_blocks_are_the_vector(n: int, size: int, num_blocks: int) -> None:
    own = blocks(n, num_blocks)
    covered = sorted(
        block.start + place for block in own for part in within(from_end(n, size), block) for place in range(n)[part]
    )
    assert covered == list(range(n))
    for block in own:
        starts = [part.start for part in within(from_end(n, size), block)]
        assert starts == sorted(starts, reverse=True)


@pytest.mark.parametrize(("gradient_s", "push_s"), [(0.2, 1.1), (3.0, 3.25)])
def test_one_worker_on_a_slow_and_on_a_quick_network(gradient_s: float, push_s: float) -> None:
    """Four parts of 0.25 s are ready after 1/2, 2/3, 5/6 and all of the gradient; then 1 s for the weights."""
    cluster = cluster_of(gradient_s=[gradient_s], ready=[1 / 3, 1.0])
    assert timed(AspOptions(), cluster, 0.25, max_updates=20)["time_s"] == pytest.approx(20 * (push_s + 1.0))
    flat = timed(AspOptions(), cluster, None, max_updates=20)["time_s"]
    assert flat == pytest.approx(20 * (gradient_s + 2.0))


@given(
    st.sampled_from(["queue", "fair"]),
    st.sampled_from([0.0, 0.01]),
    st.floats(0.05, 3.0),
    st.lists(st.integers(0, 100).map(lambda percent: percent / 100), min_size=1, max_size=4),
    st.integers(1, 9),
)
def test_it_is_the_recurrence_of_its_parts(
    sharing: str, latency_s: float, gradient_s: float, shares: list[float], parts: int
) -> None:
    """One worker, with a delay before each gradient; its NIC sends one part after another."""
    ready = [*sorted(shares), 1.0]
    cluster = cluster_of(sharing, latency_s, gradient_s=[gradient_s], ready=ready)
    scenario = ScenarioConfig(compute_delay=Constant(0.2))
    found = timed(BspOptions(), cluster, 1.0 / parts, max_updates=3, scenario=scenario)
    free = 0.2
    for place in from_end(SIZE, int(SIZE / parts / 4) * 4):
        at = (SIZE - place.start) / SIZE * (len(ready) - 1)
        low = min(int(at), len(ready) - 2)
        share = ready[low] + (at - low) * (ready[low + 1] - ready[low])
        free = max(free, 0.2 + share * gradient_s) + (place.stop - place.start) * 1e-6
    pushed_s = max(free, 0.2 + gradient_s) + latency_s
    assert found["time_s"] == pytest.approx(3 * (pushed_s + SIZE * 1e-6 + latency_s), rel=1e-6)


def test_two_shards_have_their_own_parts() -> None:
    """Of 0.25 s: the second shard's leave at 1.25 s and 1.5 s, the first one's at 1.75 s and at the end, 2 s."""
    cluster = cluster_of(gradient_s=[2.0], ready=[0.5, 1.0], shards=2)
    found = timed(AspOptions(), cluster, 0.25, max_updates=2)
    assert found["time_s"] == pytest.approx(2 * (1.0 + 2.25))
    assert found["time_shares"]["computing"] == pytest.approx(4.0 / 6.5)


@given(st.sampled_from(["queue", "fair"]), st.integers(2, 8), st.integers(1, 20), st.integers(0, 100))
def test_a_round_lies_between_what_must_be_done_and_one_after_the_other(
    sharing: str, workers: int, parts: int, percent: int
) -> None:
    cluster = cluster_of(sharing, workers=workers, gradient_s=[0.5], ready=[percent / 100, 1.0])
    early, flat = (timed(BspOptions(), cluster, mb, max_updates=5) for mb in (1.0 / parts, None))
    assert 5 * (0.5 + workers) <= early["time_s"] * (1 + 1e-9)  # a gradient, then the weights to all
    assert early["time_s"] <= flat["time_s"] * (1 + 1e-9)
    assert sum(early["time_shares"].values()) == pytest.approx(1.0, rel=1e-9)
    (link,) = early["link_busy"]
    assert link["in"] * early["time_s"] == pytest.approx(5 * workers)  # a second a push


@pytest.mark.parametrize("sharing", ["queue", "fair"])
@pytest.mark.parametrize("strategy", [BspOptions(), AspOptions(), SspOptions(staleness=2)], ids=lambda each: each.name)
def test_without_bandwidth_and_with_nothing_ready_early_all_is_as_before(
    strategy: StrategyOptions, sharing: str
) -> None:
    cluster = cluster_of(sharing, workers=4, gradient_s=[0.3, 0.5], ready=[1.0, 1.0], jitter=Exponential(1.0))
    one, other = (timed(strategy, cluster, mb, max_updates=30) for mb in (0.1, None))
    assert one["time_s"] == other["time_s"]
    quick = replace(cluster, ready=[0.0, 1.0], network=NetworkConfig(latency_s=0.01))
    one, other = (timed(strategy, quick, mb, max_updates=30) for mb in (0.1, None))
    assert one["time_s"] == other["time_s"]


def test_the_learning_of_rounds_is_the_same_in_every_bit() -> None:
    cluster = ClusterConfig(workers=4, shards=2, gradient_s=[0.1, 0.2], network=NetworkConfig(bandwidth_gbps=1e-4))
    config = config_of(BspOptions(), cluster=cluster)
    (flat, before), (early, after) = map(ended, (config, replace(config, push_bucket_mb=5e-4)))
    assert torch.equal(flat, early)
    assert after["time_s"] < before["time_s"]
