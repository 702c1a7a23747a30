"""One run in virtual time whose gradients several processes compute, beside the same run in one process."""

from benchmarks.measuring import Spread, run_s
from syncline.config import compose
from syncline.records.environment import cores

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


def report(repeats: int = 3) -> None:
    many = cores()
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
