"""Live BSP by all-reduce beside torch's DistributedDataParallel: steps a second in one process group, in alternation.

python -m benchmarks allreduce starts 2, then 4 processes by torchrun, then (as root) one on each of 2, then 4 emulated
hosts with cables of 1 Gbit/s. Each times both on the same model and data, with one all-reduce after the backward pass
and with buckets during it. With 2 processes the parameters stay equal in every bit. With 4 the two add in different
orders: LeNet stays within 1e-7, while in ResNet-20 a rounding error grows by a factor of ten thousand within 20 steps
(as in a plain loop in one process).
"""

import json
import os
import subprocess
import sys
import time
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.emulated import CannotEmulate, EmulatedHosts
from benchmarks.live_run import ROOT
from benchmarks.measuring import Spread
from syncline.assembly.device import pick_device
from syncline.assembly.local_steps import build_local_steps
from syncline.assembly.optimizers import build_optimizer
from syncline.assembly.problem import Problem, build_problem
from syncline.config import GlyphsConfig, ModelConfig, ResnetConfig, RunConfig, SgdConfig
from syncline.config.models import WideResnetConfig
from syncline.learning.gradient import MiniBatch
from syncline.live.collective.exchange import Overlapped
from syncline.live.collective.member import build_exchange
from syncline.live.collective.process_group import start_group
from syncline.live.collective.steps import NUM_EXTRA, Replica
from syncline.strategies.bsp import BspOptions
from syncline.timing.cluster import ClusterConfig

RATE, MOMENTUM, DECAY = 0.01, 0.9, 1e-4
COMPARED_STEPS = 20
PAIRS_OF_SMALL = 31  # networks whose exchange is a small part of a step: single pairs differ by 5 %


@dataclass(frozen=True)
class Case:
    """What is trained, and how it is averaged."""

    model: str = "resnet20"  # one of MODELS
    batch_size: int = 32
    impl: str = "overlap"  # of BspOptions, and its bucket_mb
    bucket_mb: float = 1.0
    image_size: int = 32
    steps: int = 10  # of each timing
    pairs: int = 7


MODELS = {
    "lenet": ModelConfig(),
    "resnet20": ResnetConfig(depth=20),
    "wrn-16-4": WideResnetConfig(depth=16, width=4),
    "wrn-10-8": WideResnetConfig(depth=10, width=8),
}


def config_of(case: Case, num_members: int, device: str) -> RunConfig:
    return RunConfig(
        model=MODELS[case.model],
        batch_size=case.batch_size,
        dataset=GlyphsConfig(train_size=2000, test_size=10, image_size=case.image_size),
        optimizer=SgdConfig(lr=RATE, momentum=MOMENTUM, weight_decay=DECAY),
        strategy=BspOptions(topology="allreduce", impl=case.impl, bucket_mb=case.bucket_mb),
        cluster=ClusterConfig(workers=num_members),
        epochs=1,
        device=device,
    )


class Ours:
    """A member of our all-reduce group."""

    def __init__(self, problem: Problem, config: RunConfig) -> None:
        self._replica = Replica(
            build_local_steps(config, problem, 0),
            build_optimizer(config, problem.flat.layout),
            build_exchange(config, 0, problem.flat),
        )

    def step(self, batch: MiniBatch) -> None:
        flat, exchange = self._replica.flat, self._replica.exchange
        if isinstance(exchange, Overlapped):
            exchange.begin(None)
        loss, _, _ = self._replica.local.gradient([flat.weights], flat.buffers, batch)
        if isinstance(exchange, Overlapped):
            exchange.complete()
        flat.extra.copy_(torch.tensor([loss, *[0.0] * (NUM_EXTRA - 1)]))
        exchange.average(None, turn=0)
        self._replica.step(RATE)


class Theirs:
    """A process of torch's DistributedDataParallel, on a copy of the module: its tensors are no views."""

    def __init__(self, problem: Problem) -> None:
        self.module = deepcopy(problem.flat.module)
        self._ddp = DistributedDataParallel(self.module, device_ids=None)
        self._sgd = torch.optim.SGD(self._ddp.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step(self, batch: MiniBatch) -> None:
        inputs, labels = batch.samples
        self._sgd.zero_grad()
        loss = nn.functional.cross_entropy(self._ddp(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        loss.item()
        self._sgd.step()


def member(case: Case) -> None:
    """One process of the group; the first one prints a line of JSON."""
    torch.set_num_threads(1)
    num_members, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    config = config_of(case, num_members, "auto")
    device = pick_device(config, rank)
    start_group(device, rank, num_members, num_members)
    problem = build_problem(config, device, NUM_EXTRA)
    ours, theirs = Ours(problem, config), Theirs(problem)
    batches = problem.batches(config, rank)
    for iteration in range(COMPARED_STEPS):
        ours.step(batches.take(iteration))
        theirs.step(batches.take(iteration))
    reference = torch.cat([parameter.detach().reshape(-1) for parameter in theirs.module.parameters()])
    difference = float((problem.flat.weights - reference).abs().max())

    def timed(stepper: Ours | Theirs) -> float:
        dist.barrier()
        begun = time.perf_counter()
        for iteration in range(case.steps):
            stepper.step(batches.take(iteration))
        dist.barrier()
        return time.perf_counter() - begun

    timed(ours), timed(theirs)  # warm-up
    ratios, rates = [], []
    for pair in range(case.pairs):
        times = {stepper: timed(stepper) for stepper in ((ours, theirs) if pair % 2 else (theirs, ours))}
        ratios.append(times[theirs] / times[ours])
        rates.append(case.steps / times[ours])
    if rank == 0:
        print("RESULT", json.dumps({"difference": difference, "ratios": ratios, "rates": rates}), flush=True)
    dist.destroy_process_group()


def against_ddp(num_members: int, case: Case, hosts: EmulatedHosts | None = None) -> dict[str, Any]:
    """Steps/s of ours / DDP's (`ratios`), ours (`rates`), and the largest difference of a parameter after 20 steps."""
    words = ["-m", "benchmarks.allreduce", "member", json.dumps(asdict(case))]
    if hosts is None:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={num_members}"]
        command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", *words]
        commands = [(command, dict[str, str]())]
    else:
        shared = {"WORLD_SIZE": str(num_members), "MASTER_ADDR": hosts.addresses[0], "MASTER_PORT": "29500"}
        shared |= {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
        commands = [
            ([*hosts.on(name), sys.executable, *words], shared | {"RANK": str(rank)})
            for rank, name in enumerate(hosts.names)
        ]
    processes = [
        subprocess.Popen(words, cwd=ROOT, env=os.environ | own, stdout=subprocess.PIPE, text=True)
        for words, own in commands
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        raise RuntimeError("a member of the group failed")
    result: dict[str, Any] = json.loads(
        next(line for line in outputs[0].splitlines() if "RESULT" in line).split("RESULT ")[1]
    )
    return result


def report() -> None:
    print("BSP by all-reduce / torch DDP, steps a second (goal >= 1.0): median [min .. max]")
    for num_members in (2, 4):
        for model, steps in (("lenet", 50), ("resnet20", 10)):
            _show(f"{num_members} processes", num_members, Case(model, steps=steps, pairs=PAIRS_OF_SMALL))
    for num_members in (2, 4):
        try:
            with EmulatedHosts(num_members) as hosts:
                for model, batch_size, steps, pairs in (
                    ("resnet20", 32, 10, PAIRS_OF_SMALL),
                    ("wrn-16-4", 8, 4, 7),
                    ("wrn-10-8", 8, 4, 7),
                ):
                    for impl in ("flat", "overlap"):
                        case = Case(model, batch_size, impl, steps=steps, pairs=pairs)
                        _show(f"{num_members} hosts, 1 Gbit/s", num_members, case, hosts)
        except CannotEmulate as error:
            print(f"  {num_members} hosts: not measured, {error}")


def _show(where: str, num_members: int, case: Case, hosts: EmulatedHosts | None = None) -> None:
    result = against_ddp(num_members, case, hosts)
    ratios, rates = Spread(tuple(result["ratios"])), Spread(tuple(result["rates"]))
    print(
        f"  {where}, {case.model:8} batch {case.batch_size:2} {case.impl:7}  {ratios}, ours {rates.median:.2f} steps/s"
        f"; largest difference of a parameter after {COMPARED_STEPS} steps: {result['difference']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        member(Case(**json.loads(sys.argv[2])))
        # gloo's threads may still hold tensors; one that drops a tensor while Python ends aborts the process.
        sys.stdout.flush()
        os._exit(0)  # as a process of a live run ends (syncline.live.node.keeper)
    else:
        report()
