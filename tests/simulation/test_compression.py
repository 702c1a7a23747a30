"""Compressed messages in virtual time: what they change, what they must not change, and their bytes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import without_wall_time
from simulation.test_local_steps import KINDS, config_of
from simulations import ended

from benchmarks.measuring import simulated
from syncline.assembly.compression import build_compression
from syncline.config.compression import COMPRESSIONS, FeedbackConfig, Int8Config, SignConfig, SparseConfig
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.ds_sync import DsSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.network import NetworkConfig

PAGE = (Path(__file__).parents[2] / "docs" / "compression.md").read_text()


@pytest.mark.parametrize("strategy", KINDS, ids=repr)
def test_all_elements_of_a_push_are_the_ordinary_run_in_every_bit(strategy: StrategyOptions) -> None:
    """`topk` with density 1, with several shards where they are allowed."""
    shards = 1 if strategy.single_server else 3
    cluster = replace(config_of(strategy).cluster, shards=shards, network=NetworkConfig(latency_s=0.004))
    plain = config_of(strategy, cluster=cluster)
    weights, summary = ended(plain)
    found, again = ended(replace(plain, compress=SparseConfig(density=1.0)))
    assert torch.equal(found, weights)
    ours, theirs = without_wall_time([again, summary])
    assert ours.pop("identity") != theirs.pop("identity")
    assert ours == theirs


@pytest.mark.parametrize("strategy", [kind for kind in KINDS if not kind.single_server], ids=repr)
def test_all_elements_of_a_pull_are_the_ordinary_run(strategy: StrategyOptions) -> None:
    """To rounding: a worker's weights are the sum of the changes that it was sent."""
    cluster = replace(config_of(strategy).cluster, shards=3)
    weights, summary = ended(config_of(strategy, cluster=cluster))
    found, again = ended(config_of(strategy, cluster=cluster, compress=SparseConfig(density=1.0, pulls=True)))
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-6)
    assert (again["updates"], again["time_s"]) == (summary["updates"], summary["time_s"])


@pytest.mark.parametrize(
    "strategy", [BspOptions(topology="allreduce"), DsSyncOptions(), DsSyncOptions(average="before_forward")], ids=repr
)
def test_with_all_elements_a_collective_is_the_ordinary_one(strategy: StrategyOptions) -> None:
    """BSP in every bit; replicas, which add up what they have sent, to rounding."""
    weights, _ = ended(config_of(strategy))
    found, _ = ended(config_of(strategy, compress=SparseConfig(density=1.0, consensus=1.0)))
    torch.testing.assert_close(found, weights, rtol=0, atol=1e-6 if strategy.has_replicas else 0.0)


@pytest.mark.parametrize(("density", "workers"), [(0.05, 4), (0.2, 1)])
def test_compressed_bsp_is_the_same_by_all_gather_and_through_a_server(density: float, workers: int) -> None:
    """Equally fast workers, whose pushes arrive in order: the same sums, in every bit."""
    cluster = ClusterConfig(workers=workers, gradient_s=[0.1])
    compress = SparseConfig(density=density)
    by_server, _ = ended(config_of(BspOptions(), cluster=cluster, compress=compress))
    by_gather, _ = ended(config_of(BspOptions(topology="allreduce"), cluster=cluster, compress=compress))
    assert torch.equal(by_server, by_gather)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_collective_takes_the_time_of_an_all_gather_of_its_bytes(gradients: bool) -> None:
    network = NetworkConfig(latency_s=0.01, bandwidth_gbps=1e-3)
    cluster = ClusterConfig(workers=6, gradient_s=[0.1], network=network, message_bytes=40_000)
    sent = 8 * 500
    for strategy, others in ((BspOptions(topology="allreduce"), [5, 5]), (DsSyncOptions(group_size=2), [1, 2])):
        config = config_of(
            strategy, cluster=cluster, compress=SparseConfig(density=0.05), gradients=gradients, max_updates=20
        )
        seconds = sum(20 / 2 * (0.1 + count * (0.01 + 8 * sent / 1e6)) for count in others)
        assert simulated(config)["time_s"] == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("compress", [SparseConfig(density=0.05), Int8Config(), SignConfig()], ids=repr)
@pytest.mark.parametrize("gradients", [True, False])
@pytest.mark.parametrize("pulls", [True, False])
def test_messages_take_the_time_of_their_bytes(compress: FeedbackConfig, gradients: bool, pulls: bool) -> None:
    """One worker, whose first pull is a whole block; 650 parameters, or the cluster's own size."""
    network = NetworkConfig(latency_s=0.01, bandwidth_gbps=1e-3)
    for message_bytes, elements in ((None, 650), (40_000, 10_000)):
        cluster = ClusterConfig(workers=1, gradient_s=[0.1], network=network, message_bytes=message_bytes)
        compress = replace(compress, pulls=pulls)
        config = config_of(AspOptions(), cluster=cluster, compress=compress, gradients=gradients, max_updates=20)
        compression = build_compression(config)
        assert compression is not None
        sent, whole = compression.size(elements), 4 * elements
        assert sent < whole / 2
        received = sent if pulls else whole
        summary = simulated(config)
        to_worker_s, to_shard_s = (0.01 + 8 * num_bytes / 1e6 for num_bytes in (received, sent))
        seconds = 20 * (to_worker_s + 0.1 + to_shard_s) + 8 * (whole - received) / 1e6
        assert summary["time_s"] == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("gradients", [True, False])
def test_a_worker_that_comes_back_is_sent_a_whole_block(gradients: bool) -> None:
    """It is lost in its fifth gradient. Its link has then sent two whole blocks."""
    network = NetworkConfig(bandwidth_gbps=1e-3)
    cluster = ClusterConfig(workers=1, gradient_s=[0.1], network=network)
    compress = SparseConfig(density=0.05, pulls=True)
    config = config_of(AspOptions(), cluster=cluster, compress=compress, gradients=gradients, max_updates=20)
    scenario = ScenarioConfig(absences={0: [0.53, 0.7]})
    summary, compression = simulated(replace(config, scenario=scenario)), build_compression(config)
    assert compression is not None
    sent_s = 8 * (2 * 4 * 650 + 19 * compression.size(650)) / 1e6
    assert summary["link_busy"][0]["out"] * summary["time_s"] == pytest.approx(sent_s, rel=1e-9)


def test_the_page_names_every_compression() -> None:
    assert [name for name in COMPRESSIONS if f"`{name}`" not in PAGE] == []
