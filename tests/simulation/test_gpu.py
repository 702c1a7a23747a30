"""A simulated run on a GPU learns what it learns on the CPU, to rounding, and the same again in every bit."""

from dataclasses import replace

import pytest
import torch

from syncline.config import DigitsConfig, ModelConfig, RunConfig, SgdConfig
from syncline.simulation.run import simulate
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")

CONFIG = RunConfig(
    model=ModelConfig(),
    dataset=DigitsConfig(augment=True),
    optimizer=SgdConfig(lr=0.01),
    strategy=SspOptions(staleness=2),
    cluster=ClusterConfig(workers=3, gradient_s=[1.0, 1.7]),
    max_updates=20,
    device="cuda",
)


def final(config: RunConfig) -> dict[str, float]:
    summary = simulate(config, lambda row: None, lambda progress: None)
    assert summary["updates"] == 20
    return summary["final"]


def test_a_gpu_learns_what_the_cpu_learns():
    assert final(CONFIG)["loss"] == pytest.approx(final(replace(CONFIG, device="cpu"))["loss"], rel=1e-3)


def test_the_same_seed_learns_the_same_bits_again():
    ends = []
    for _ in range(2):
        files = {}
        simulate(
            CONFIG,
            lambda row: None,
            lambda progress: None,
            save_parameters=lambda name, tensors, about, files=files: files.update(tensors),
        )
        ends.append(files["weights"].clone())
    assert torch.equal(*ends)
