"""The overhead of a plan: 200 tiny runs, times alone, in a plan and one after another in one process.

Each is a process of its own, timed from its start to the end of all it started, so that both import the engine.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing import forkserver
from pathlib import Path

from benchmarks.measuring import Spread
from runners.one import run_one
from runners.plan import run_plan
from syncline.config import DigitsConfig, RunConfig
from syncline.plan import Entry, Plan
from syncline.strategies.asp import AspOptions

NUM_RUNS = 200


def tiny_plan(num_runs: int) -> Plan:
    """Runs of about 2 ms."""
    config = RunConfig(dataset=DigitsConfig(), strategy=AspOptions(), gradients=False, epochs=2.0)
    entries = tuple(Entry("tiny", (), replace(config, seed=seed)) for seed in range(num_runs))
    return Plan("tiny", "bench", entries, {})


def make(how: str, num_runs: int, results: Path) -> None:
    """Make the runs, and print the CPU seconds of this process and its children."""
    plan = tiny_plan(num_runs)
    if how == "plan":
        run_plan(plan, results, jobs=1, fail_fast=False, rerun=False)
        forkserver._forkserver._stop()  # type: ignore[attr-defined]  # counts once it is waited for
    else:
        for entry in plan.entries:
            run_one(entry.config, results, lambda progress: None)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(json.dumps(sum(each.ru_utime + each.ru_stime for each in used)))


def seconds(how: str, num_runs: int) -> tuple[float, float]:
    """(CPU, wall) seconds of a process that makes them."""
    with tempfile.TemporaryDirectory() as results:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.orchestration", how, str(num_runs), results]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return float(json.loads(output.splitlines()[-1])), time.perf_counter() - begun


def overhead_ms(num_runs: int, pairs: int) -> tuple[Spread, Spread]:
    """Milliseconds (CPU, wall) of a run in a plan beyond the same run in one process, both measured in alternation."""
    found: list[tuple[float, float]] = []
    for _ in range(pairs):
        planned, alone = seconds("plan", num_runs), seconds("alone", num_runs)
        found.append(((planned[0] - alone[0]) / num_runs * 1e3, (planned[1] - alone[1]) / num_runs * 1e3))
    cpu, wall = zip(*found, strict=True)
    return Spread(cpu), Spread(wall)


def report() -> None:
    cpu, wall = overhead_ms(NUM_RUNS, pairs=5)
    print(f"A plan of {NUM_RUNS} tiny runs, one at a time: milliseconds a run beyond the run itself (goal <= 20)")
    print(f"  CPU   {cpu}\n  wall  {wall}")


if __name__ == "__main__":
    make(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
