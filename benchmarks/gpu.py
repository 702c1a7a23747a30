"""What a gradient costs on a GPU in virtual time: kernels launched one by one, or by CUDA graphs."""

import time
from collections.abc import Callable
from dataclasses import replace

import torch

from benchmarks.measuring import Spread, run_s
from syncline.assembly.device import configure_torch, pick_device
from syncline.assembly.problem import build_problem
from syncline.config import GlyphsConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.strategies.asp import AspOptions
from syncline.timing.cluster import ClusterConfig

ROUNDS, GRADIENTS = 5, 100
BASE = RunConfig(
    dataset=GlyphsConfig(train_size=4000, test_size=100, image_size=32),
    optimizer=SgdConfig(lr=0.01, momentum=0.9),
    max_updates=2 * GRADIENTS,
    eval_every_epochs=1e6,
    strategy=AspOptions(),
    cluster=ClusterConfig(workers=4, gradient_s=[0.02, 0.02, 0.03, 0.06]),
)
CASES = {
    "LeNet, batch 32": replace(BASE, batch_size=32),
    "ResNet-8, width 8, batch 128, bfloat16": replace(
        BASE, model=ResnetConfig(depth=8, width=8), batch_size=128, precision="bfloat16"
    ),
    "ResNet-20, batch 128": replace(BASE, model=ResnetConfig(depth=20), batch_size=128),
}


def report() -> None:
    if not torch.cuda.is_available():
        print("GPU: torch sees no CUDA device")
        return
    print(f"{torch.cuda.get_device_name(0)}: milliseconds a gradient, in alternation: median [min .. max]")
    for name, config in CASES.items():
        one_by_one, in_graphs, run = _measure(config)
        print(f"  {name}")
        print(f"    one by one      {one_by_one}")
        print(f"    CUDA graphs     {in_graphs}")
        print(f"    ratio           {one_by_one.median / in_graphs.median:.2f}")
        print(f"    in a whole run  {run}")


def _measure(config: RunConfig) -> tuple[Spread, Spread, Spread]:
    """Milliseconds of a gradient kernel by kernel, by graphs, and in a run of ASP with all that belongs to it."""
    configure_torch(config)
    by_launches, by_graphs = (_gradients(config, in_graphs) for in_graphs in (False, True))
    calls: tuple[Callable[[], float], ...] = (by_launches, by_graphs, lambda: run_s(config)[0] / (2 * GRADIENTS) * 1e3)
    times: list[list[float]] = [[], [], []]
    for round_ in range(1 + ROUNDS):
        for found, call in zip(times, calls, strict=True):
            spent = call()
            if round_:
                found.append(spent)
    one_by_one, in_graphs, run = (Spread(tuple(found)) for found in times)
    return one_by_one, in_graphs, run


def _gradients(config: RunConfig, in_graphs: bool) -> Callable[[], float]:
    problem = build_problem(config, pick_device(config), in_graphs=in_graphs)
    batches, weights, buffers = problem.batches(config, 0), problem.flat.weights.clone(), problem.flat.buffers.clone()
    batch = batches.take(0)

    def call() -> float:
        begun = time.perf_counter()
        for _ in range(GRADIENTS):
            problem.gradient([weights], buffers, batch)
        return (time.perf_counter() - begun) / GRADIENTS * 1e3

    return call
