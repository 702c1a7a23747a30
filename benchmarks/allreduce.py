"""Live BSP by all-reduce beside torch's DistributedDataParallel: steps a second in one process group, in alternation.

python -m benchmarks.allreduce starts 2, then 4 processes by torchrun; each times both on the same model and data.
With 2 processes the parameters stay equal in every bit. With 4 the two add in different orders: LeNet stays within
1e-7, while in ResNet-20 a rounding error grows by a factor of ten thousand within 20 steps (as in a plain loop in one
process); with float64 the two agree.
"""

import json
import os
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.spread import Spread
from syncline.assembly import Learner, build_learner, build_optimizer, pick_device
from syncline.config import GlyphsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.learning.gradient import MiniBatch
from syncline.live.exchange import AllReduce
from syncline.live.process_group import start_group
from syncline.live.steps import NUM_EXTRA, Replica
from syncline.strategies.bsp import BspOptions
from syncline.timing.cluster import ClusterConfig

RATE, MOMENTUM, DECAY = 0.01, 0.9, 1e-4
COMPARED_STEPS = 20
MODELS = {"lenet": ModelConfig(), "resnet20": ResnetConfig(depth=20)}


def config_of(model: str, num_members: int, device: str, image_size: int) -> RunConfig:
    return RunConfig(
        model=MODELS[model],
        dataset=GlyphsConfig(train_size=2000, test_size=10, image_size=image_size),
        optimizer=SgdConfig(lr=RATE, momentum=MOMENTUM, weight_decay=DECAY),
        strategy=BspOptions(),
        cluster=ClusterConfig(workers=num_members),
        epochs=1,
        device=device,
    )


class Ours:
    """A member of our all-reduce group."""

    def __init__(self, learner: Learner, config: RunConfig) -> None:
        exchange = AllReduce(learner.flat, averages_weights=False, per_tensor=False)
        self._replica = Replica(learner.local_steps(config), build_optimizer(config), exchange)

    def step(self, batch: MiniBatch) -> None:
        flat = self._replica.flat
        loss, _, _ = self._replica.local.gradient([flat.weights], flat.buffers, batch)
        flat.extra.copy_(torch.tensor([loss, *[0.0] * (NUM_EXTRA - 1)]))
        self._replica.exchange.average(None, turn=0, step=0)
        self._replica.step(RATE)


class Theirs:
    """A process of torch's DistributedDataParallel, on a copy of the module: its tensors are no views."""

    def __init__(self, learner: Learner) -> None:
        self.module = deepcopy(learner.flat.module)
        self._ddp = DistributedDataParallel(self.module, device_ids=None)
        self._sgd = torch.optim.SGD(self._ddp.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, batch: MiniBatch) -> None:
        inputs, labels = batch.samples
        self._sgd.zero_grad()
        loss = nn.functional.cross_entropy(self._ddp(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        loss.item()
        self._sgd.step()


def member(model: str, dtype: str, image_size: int, steps: int, pairs: int) -> None:
    """One process of the group; the first one prints a line of JSON."""
    torch.set_default_dtype(getattr(torch, dtype))
    torch.set_num_threads(1)
    num_members, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    config = config_of(model, num_members, "auto", image_size)
    device = pick_device(config, rank)
    start_group(device, rank, num_members, num_members)
    learner = build_learner(config, device, NUM_EXTRA)
    ours, theirs = Ours(learner, config), Theirs(learner)
    batches = learner.batches(config, rank)

    def batch(iteration: int) -> MiniBatch:
        made = batches.take(iteration)
        inputs, labels = made.samples
        return replace(made, samples=(inputs.to(torch.get_default_dtype()), labels))

    for iteration in range(COMPARED_STEPS):
        ours.step(batch(iteration))
        theirs.step(batch(iteration))
    reference = torch.cat([parameter.detach().reshape(-1) for parameter in theirs.module.parameters()])
    difference = float((learner.flat.weights - reference).abs().max())

    def timed(stepper: Ours | Theirs) -> float:
        dist.barrier()
        begun = time.perf_counter()
        for iteration in range(steps):
            stepper.step(batch(iteration))
        dist.barrier()
        return time.perf_counter() - begun

    timed(ours), timed(theirs)  # warm-up
    ratios, rates = [], []
    for pair in range(pairs):
        times = {stepper: timed(stepper) for stepper in ((ours, theirs) if pair % 2 else (theirs, ours))}
        ratios.append(times[theirs] / times[ours])
        rates.append(steps / times[ours])
    if rank == 0:
        print("RESULT", json.dumps({"difference": difference, "ratios": ratios, "rates": rates}), flush=True)
    dist.destroy_process_group()


def against_ddp(
    num_members: int,
    model: str = "resnet20",
    dtype: str = "float32",
    image_size: int = 32,
    steps: int = 10,
    pairs: int = 7,
) -> dict[str, Any]:
    """Steps/s of ours / DDP's (`ratios`), ours (`rates`), and the largest difference of a parameter after 20 steps."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_members}"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "benchmarks.allreduce", "member"]
    output = subprocess.run(
        [*command, model, dtype, str(image_size), str(steps), str(pairs)],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    result: dict[str, Any] = json.loads(
        next(line for line in output.splitlines() if "RESULT" in line).split("RESULT ")[1]
    )
    return result


def report() -> None:
    print("BSP by all-reduce / torch DDP, steps a second, batch 32 (goal >= 1.0): median [min .. max]")
    for num_members in (2, 4):
        for model in MODELS:
            result = against_ddp(num_members, model, pairs=7 if model == "resnet20" else 3)
            ratios, rates = Spread(tuple(result["ratios"])), Spread(tuple(result["rates"]))
            print(f"  {num_members} processes, {model:8}  {ratios}  (ours {rates.median:.2f} steps/s)")
            print(f"    largest difference of a parameter after {COMPARED_STEPS} steps: {result['difference']:.1e}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        member(sys.argv[2], sys.argv[3], *map(int, sys.argv[4:]))
    else:
        report()
