"""Compressed pushes in virtual time: what they change, what they must not change, and their bytes."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import without_wall_time
from fake_run import CASES
from simulation.test_local_steps import config_of, ended

from runners import command_line
from syncline.assembly import build_compression
from syncline.config.compression import COMPRESSIONS, CompressConfig, Int8Config, SignConfig, SparseConfig
from syncline.simulation.run import simulate
from syncline.strategies.asp import AspOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.timing.cluster import ClusterConfig
from syncline.timing.network import NetworkConfig

PAGE = (Path(__file__).parents[2] / "docs" / "compression.md").read_text()


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("strategy", CASES, ids=repr)
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


@pytest.mark.parametrize("compress", [SparseConfig(density=0.05), Int8Config(), SignConfig()], ids=repr)
@pytest.mark.parametrize("gradients", [True, False])
def test_a_push_takes_the_time_of_its_bytes(compress: CompressConfig, gradients: bool) -> None:
    """One worker: gradient, compressed push, weights as they are; 650 parameters, or the cluster's own size."""
    network = NetworkConfig(latency_s=0.01, bandwidth_gbps=1e-3)
    for message_bytes, elements in ((None, 650), (40_000, 10_000)):
        cluster = ClusterConfig(workers=1, gradient_s=[0.1], network=network, message_bytes=message_bytes)
        config = config_of(AspOptions(), cluster=cluster, compress=compress, gradients=gradients, max_updates=20)
        compression = build_compression(config)
        assert compression is not None
        sent, received = compression.size(elements), 4 * elements
        assert sent < received / 2
        summary = simulate(config, lambda row: None, lambda progress: None)
        to_worker_s, to_shard_s = (0.01 + 8 * num_bytes / 1e6 for num_bytes in (received, sent))
        assert summary["time_s"] == pytest.approx(20 * (to_worker_s + 0.1 + to_shard_s), rel=1e-9)


@pytest.mark.parametrize("command", re.findall(r"^python run\.py (.*)$", PAGE, re.MULTILINE))
def test_a_command_of_the_page_runs(command: str, tmp_path: Path) -> None:
    assert command_line.main([*command.split(), "max_updates=3", f"results={tmp_path}"]) == 0


def test_the_page_names_every_compression() -> None:
    assert [name for name in COMPRESSIONS if f"`{name}`" not in PAGE] == []
