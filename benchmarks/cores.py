"""One run in virtual time whose gradients several processes compute, beside the same run in one process."""

import time
from types import SimpleNamespace

import torch
from torch import Tensor

from benchmarks.measuring import Spread, run_s
from syncline.config import compose
from syncline.records.environment import cores
from syncline.simulation import executors

ENDS = ["eval_every_epochs=1e6", "epochs=null"]  # evaluated before and after, not timed
CIFAR = ["dataset=glyphs10", "dataset.train_size=2000", "dataset.test_size=10", "dataset.image_size=32"]
EIGHT = ["model=resnet20", "cluster.workers=8"]
CASES = {  # and the goal on two cores
    "strategy=dssp model=resnet110": (["strategy=dssp", "model=resnet110", "max_updates=24"], 1.8),
    "ResNet-20, 8 workers, ASP": (["strategy=asp", *EIGHT, "max_updates=96"], 1.8),
    "ResNet-20, 8 workers, BSP": (["strategy=bsp", *EIGHT, "max_updates=12"], 1.8),
    "ResNet-20, 8 workers, BSP by all-reduce": (
        ["strategy=bsp", "strategy.topology=allreduce", *EIGHT, "max_updates=12"],
        1.8,
    ),
    "ResNet-20, 8 workers, K-sync, K = 4": (["strategy=k_sync", "strategy.k=4", *EIGHT, "max_updates=24"], None),
    "LeNet, 4 workers, ASP": (["strategy=asp", "cluster.workers=4", "max_updates=2000"], 0.98),
}


class Idle:
    """What a worker pushes: its weights, computed in no time."""

    def __init__(self, size: int) -> None:
        self.gradient = SimpleNamespace(flat=SimpleNamespace(weights=torch.zeros(size), buffers=torch.zeros(0)))

    def __call__(self, weights: list[Tensor], buffers: Tensor, batches: int, number: int) -> executors.RoundResult:
        return 0.0, weights[0], buffers

    def state_dict(self) -> dict[str, Tensor]:
        return {}

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


def way(repeats: int = 300) -> Spread:
    """Milliseconds from this process to another one and back, of a round of LeNet's size that takes no time."""
    made, found = executors.Cores([Idle(62_006)], [0], 1, 1), list[float]()  # type: ignore[list-item]
    made._start()
    made._is_tried = True
    for number in range(repeats):
        begun = time.perf_counter()
        made.begin(executors.Round(0, number, [torch.zeros(62_006)], torch.zeros(0), 0.0))
        made.take(0)
        found.append((time.perf_counter() - begun) * 1e3)
    made.close()
    return Spread(tuple(found[repeats // 10 :]))


def report(repeats: int = 3) -> None:
    many = cores()
    print(f"The way of a round to another process and back, ms: {way()}")
    print(f"A run in virtual time: speed of {many} processes / one, gradients in vain; median [min .. max]")
    for name, (words, goal) in CASES.items():
        config = compose([*words, *CIFAR, *ENDS])[0]
        ratios, in_vain = list[float](), 0
        for _ in range(repeats):
            one, _ = run_s(config)
            several, summary = run_s(config, many)
            in_vain = summary["computed_in_vain"]
            ratios.append(one / several)
        print(f"  {name:40} {Spread(tuple(ratios))}  {in_vain:4}  (goal {goal or '-'}; one process {one:.1f} s)")
