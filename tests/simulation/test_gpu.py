"""A simulated run on a GPU learns what it learns on the CPU, to rounding, and the same again in every bit."""

from dataclasses import replace

import pytest
import torch
from simulations import ended

from benchmarks.measuring import simulated
from syncline.config import DigitsConfig, ModelConfig, RunConfig, SgdConfig
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


def test_a_gpu_learns_what_the_cpu_learns_and_the_same_bits_again():
    (weights, on_gpu), (again, _) = ended(CONFIG), ended(CONFIG)
    on_cpu = simulated(replace(CONFIG, device="cpu"))
    assert on_gpu["updates"] == on_cpu["updates"] == 20
    assert on_gpu["final"]["loss"] == pytest.approx(on_cpu["final"]["loss"], rel=1e-3)
    assert torch.equal(weights, again)
