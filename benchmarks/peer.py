"""DiLoCo on four nodes here and in EXO Gym (github.com/exo-explore/gym), whose nodes are processes that all-reduce.

Both train LeNet on the same images, 32 at a time, with AdamW inside and H = 20. EXO Gym is found if `import exogym`
works: PYTHONPATH=its clone, with einops and psutil installed, and on Linux `lo` for macOS's `lo0` in exogym/utils.py.
Its processes take seconds to start, so the rate is that of the gradients by which a long run exceeds a short one.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from benchmarks.measuring import Spread
from syncline.config import compose
from syncline.models.lenet import LeNet
from syncline.records.environment import cores
from syncline.simulation.run import simulate

GOAL = 1.5
NODES, BATCH, EVERY = 4, 32, 20  # EVERY: H
SHORT, LONG = 40, 400  # steps of each node
WORDS = [
    *("strategy=bsp", "local=diloco", f"local.steps={EVERY}", f"cluster.workers={NODES}", f"batch_size={BATCH}"),
    *("optimizer=nesterov", "optimizer.lr=0.7", "optimizer.momentum=0.9", "model=lenet", "dataset=glyphs10"),
    *("dataset.image_size=32", "dataset.train_size=2000", "dataset.test_size=10", "eval_every_epochs=1e6"),
    "epochs=null",
]


class Classifier(nn.Module):
    """A network whose output is its loss, as EXO Gym wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = LeNet(3, 32, 10)

    def forward(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)


def theirs(steps: int) -> None:
    """One run of EXO Gym, without evaluations and records."""
    from exogym import Trainer  # type: ignore[import-not-found]
    from exogym.strategy.diloco import DiLoCoStrategy  # type: ignore[import-not-found]
    from exogym.strategy.optim import OptimSpec  # type: ignore[import-not-found]

    images = TensorDataset(torch.randn(2000, 3, 32, 32), torch.randint(10, (2000,)))
    about: dict[str, Any] = {"batch_size": BATCH, "minibatch_size": BATCH, "val_size": 0, "disable_logging": True}
    Trainer(Classifier(), images, images, device="cpu").fit(
        num_epochs=1000,
        max_steps=steps,
        strategy=DiLoCoStrategy(OptimSpec(torch.optim.AdamW, lr=4e-4, weight_decay=0.1), H=EVERY),
        num_nodes=NODES,
        **about,
    )


def ours(steps: int, processes: int) -> float:
    """Seconds of one run."""
    config, _ = compose([*WORDS, f"max_updates={steps // EVERY}"])
    begun = time.perf_counter()
    simulate(config, lambda row: None, lambda progress: None, workers_at_once=processes)
    return time.perf_counter() - begun


def report(repeats: int = 3) -> None:
    if importlib.util.find_spec("exogym") is None:
        print("EXO Gym is not installed: it is not compared")
        return
    many, gradients = cores(), NODES * (LONG - SHORT)
    found: dict[str, list[float]] = {"EXO Gym": [], "one process": [], f"{many} processes": []}
    for _ in range(repeats):
        found["EXO Gym"].append(gradients / (_their_seconds(LONG) - _their_seconds(SHORT)))
        found["one process"].append(gradients / (ours(LONG, 1) - ours(SHORT, 1)))
        found[f"{many} processes"].append(gradients / (ours(LONG, many) - ours(SHORT, many)))
    print(f"DiLoCo, {NODES} nodes, LeNet, H = {EVERY}: gradients a second; median [min .. max]")
    for name, rates in found.items():
        print(f"  {name:12} {Spread(tuple(rates))}")
    ratios = tuple(mine / its for mine, its in zip(found[f"{many} processes"], found["EXO Gym"], strict=True))
    print(f"  {many} processes / EXO Gym {Spread(ratios)} (goal >= {GOAL})")


def _their_seconds(steps: int) -> float:
    """In a folder of its own, where it leaves its logs."""
    command = [sys.executable, "-c", f"from benchmarks.peer import theirs; theirs({steps})"]
    paths = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        subprocess.run(command, check=True, cwd=folder, env=environment, capture_output=True)
        return time.perf_counter() - begun
