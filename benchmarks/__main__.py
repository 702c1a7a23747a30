"""make bench: prints each measurement beside its goal."""

import os

import torch

from benchmarks.simulator import against_a_plain_loop, steps_per_cpu_second
from syncline.config import LenetConfig, ResnetConfig
from syncline.records.store import environment
from syncline.strategies import STRATEGIES


def main() -> None:
    torch.set_num_threads(1)
    facts = environment()
    print(f"{facts['processor']}, {facts['cores']} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}\n")
    print("Simulator / plain PyTorch loop, CPU seconds for the same gradients (goal <= 1.05): median [min .. max]")
    print(f"  LeNet, batch 32      {against_a_plain_loop(LenetConfig(), steps=200, pairs=9)}")
    print(f"  ResNet-20, batch 32  {against_a_plain_loop(ResnetConfig(depth=20), steps=20, pairs=9)}\n")
    print("Times alone, million worker-steps per CPU second (goal >= 0.5 and flat within 2x)")
    for strategy in STRATEGIES:
        for num_workers in (32, 1_000, 10_000):
            print(f"  {strategy:5} {num_workers:6,} workers  {steps_per_cpu_second(strategy, num_workers, repeats=3)}")


if __name__ == "__main__":
    main()
