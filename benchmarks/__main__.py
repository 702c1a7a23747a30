"""Print measurements beside their goals: python -m benchmarks [part], or all that take minutes (`make bench`)."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks import (
    allreduce,
    calibration,
    churn,
    cores,
    cuts,
    fidelity,
    gpu,
    hosts,
    input_pipeline,
    kills,
    peer,
    races,
    transport,
)
from benchmarks.live_run import ROOT
from benchmarks.measuring import Spread
from benchmarks.simulator import against_a_plain_loop, steps_per_cpu_second
from syncline.config import ModelConfig, ResnetConfig
from syncline.records.environment import environment
from syncline.strategies import STRATEGIES


def simulator_report() -> None:
    torch.set_num_threads(1)
    print("Simulator / plain PyTorch loop, CPU seconds for the same gradients (goal <= 1.05): median [min .. max]")
    print(f"  LeNet, batch 32      {against_a_plain_loop(ModelConfig(), steps=200, pairs=9)}")
    print(f"  ResNet-20, batch 32  {against_a_plain_loop(ResnetConfig(depth=20), steps=20, pairs=9)}\n")
    print(
        "Times alone, million worker-steps per CPU second (goals: ASP >= 0.5 and flat within 2x; others >= 0.5 ASP's)"
    )
    for num_workers in (32, 1_000, 10_000):
        rates = dict(zip(STRATEGIES, steps_per_cpu_second(list(STRATEGIES), num_workers, repeats=3), strict=True))
        for strategy, rate in rates.items():
            share = rate.median / rates["asp"].median
            print(f"  {num_workers:6,} workers  {strategy:13} {rate}  {share:.2f} x ASP")


TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node=4"]
WAYS = {  # to start a run, and the goal: seconds over those of `import torch`
    "python run.py runner=local": ([sys.executable, str(ROOT / "run.py"), "runner=local"], 2.0),
    "torchrun --start-method=fork --run-path run.py": (
        [*TORCHRUN, "--start-method=fork", "--run-path", str(ROOT / "run.py")],
        2.5,
    ),
    "torchrun run.py": ([*TORCHRUN, str(ROOT / "run.py")], 3.5),
}


def start_report(pairs: int = 5) -> None:
    """From the command to the first update, 4 workers and a shard; `import torch` by itself before each."""
    imports = list[float]()
    ratios: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(pairs):
        for way, (command, _) in WAYS.items():
            begun = time.time()
            subprocess.run([sys.executable, "-c", "import torch"], check=True)
            imports.append(time.time() - begun)
            with tempfile.TemporaryDirectory() as folder:
                begun = time.time()
                words = ["max_updates=1", "epochs=null", "cluster.workers=4", f"results={folder}"]
                subprocess.run([*command, *words], check=True, capture_output=True)
                (state,) = Path(folder).glob("*/parameters-0.safetensors")  # written after the update
                ratios[way].append((state.stat().st_mtime - begun) / imports[-1])
    print("Real processes: from the command to the first update, 4 workers and a shard: median [min .. max]")
    print(f"  import torch, s        {Spread(tuple(imports))}")
    for way, (_, goal) in WAYS.items():
        print(f"  times that (goal <= {goal})  {Spread(tuple(ratios[way]))}  {way}")


PARTS = {
    "simulator": simulator_report,
    "cores": cores.report,
    "peer": peer.report,
    "transport": transport.report,
    "allreduce": allreduce.report,
    "start": start_report,
    "input": input_pipeline.report,
    "gpu": gpu.report,
}


# Parts that take longer, with options of their own; those of several hosts emulate them, as root.
LONG: dict[str, Callable[[Sequence[str]], int]] = {
    "fidelity": fidelity.main,  # 4 minutes
    "churn": churn.main,  # 3 minutes
    "races": races.main,  # 6 minutes
    "cuts": cuts.main,  # 8 minutes
    "kills": kills.main,  # 20 minutes
    "hosts": hosts.main,  # 45 minutes
    "calibration": calibration.main,  # 60 minutes
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks", description=__doc__)
    what = f"one of {', '.join(PARTS)}; or of {', '.join(LONG)}, which have a --help each"
    parser.add_argument("part", nargs="?", choices=[*PARTS, *LONG], metavar="part", help=what)
    parser.add_argument("options", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.part in LONG:
        return LONG[asked.part](asked.options)
    if asked.options:
        parser.error(f"{asked.part} has no options, got {' '.join(asked.options)}")
    facts = environment()
    print(f"{facts['processor']}, {facts['cores']} cores, load {os.getloadavg()[0]:.1f}, torch {torch.__version__}")
    for part in [asked.part] if asked.part else PARTS:
        print()
        PARTS[part]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
