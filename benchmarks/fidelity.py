"""python -m benchmarks fidelity: does the simulator predict what real processes do?

Each strategy runs live under each scenario. The times of its gradients and messages are measured and given to the
simulator as distributions, for each worker; its predictions for the same number of updates are compared with the
measurements: seconds an update, and the largest lead.
"""

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.live_run import LiveRun
from benchmarks.measuring import simulated, write_results
from runners.measuring import in_virtual_time, taken
from syncline.config import RunConfig
from syncline.records.measured import Measured
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Trace
from syncline.timing.network import NetworkConfig

STRATEGIES = ("bsp", "asp", "ssp", "dssp")
SCENARIOS: Mapping[str, tuple[str, ...]] = {
    "no delay": ("scenario=none",),
    "exponential 20 ms": ("scenario=exponential_20ms",),
    "one worker 3x slower": ("scenario=slow_worker",),
}
WORKERS = 3
UPDATES = 450  # gradients; a BSP update takes WORKERS of them
GOAL, SUSPECT = 0.05, 0.10


@dataclass(frozen=True, slots=True)
class Cell:
    """One strategy under one scenario."""

    strategy: str
    scenario: str
    measured_s: float  # an update
    foreseen_s: float
    measured_lead: int
    foreseen_lead: int

    @property
    def error(self) -> float:
        """Relative error of the seconds an update, signed."""
        return self.foreseen_s / self.measured_s - 1


def measure(strategy: str, scenario: str, results: Path, seed: int) -> Cell:
    """One live run, and the prediction from its times."""
    run = LiveRun(
        results,
        f"strategy={strategy}",
        f"seed={seed}",
        "model=resnet8",
        f"cluster.workers={WORKERS}",
        "cluster.gradient_s=[0.02]",
        "cluster.jitter=null",
        *SCENARIOS[scenario],
        f"max_updates={UPDATES // WORKERS if strategy == 'bsp' else UPDATES}",
        "epochs=null",
        "eval_every_epochs=1000",
    )
    run.wait()
    live = taken(run.config, run.folder)
    foreseen = simulated(measured_config(run.config, live.times))
    return Cell(
        strategy,
        scenario,
        live.update_s,
        foreseen["time_s"] / foreseen["updates"],
        live.summary["max_lead"],
        foreseen["max_lead"],
    )


def measured_config(config: RunConfig, times: Measured) -> RunConfig:
    """The same run in virtual time, with these times.

    The time of a worker's gradient is its mean times one pooled distribution of the ratios. Injected delays are
    subtracted, and drawn again from the same streams. The latency of a message is the mean of the seconds from a
    gradient to its push, and from a grant to the start of the next gradient.
    """
    means = [float(seconds.mean()) for seconds in times.own_s]
    ratios = [ratio for seconds in times.own_s for ratio in seconds / seconds.mean()]
    cluster = ClusterConfig(
        name="measured",
        workers=config.cluster.workers,
        gradient_s=means,
        jitter=Trace(tuple(sorted(ratios)), block=1.0),
        network=NetworkConfig(latency_s=max(float(times.messages_s.mean()), 0.0)),
    )
    return in_virtual_time(config, cluster, ScenarioConfig(compute_delay=config.scenario.compute_delay))


def line(cell: Cell) -> str:
    return (
        f"{cell.strategy:5} {cell.scenario:21} measured {1e3 * cell.measured_s:7.2f} ms an update, foreseen "
        f"{1e3 * cell.foreseen_s:7.2f} ({cell.error:+.1%}); largest lead {cell.measured_lead}, foreseen "
        f"{cell.foreseen_lead}"
    )


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m benchmarks fidelity", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/fidelity"))
    options = parser.parse_args(arguments)
    cells = list[Cell]()
    with tempfile.TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            for strategy in STRATEGIES:
                cells.append(measure(strategy, scenario, Path(folder), options.seed))
                print(line(cells[-1]), flush=True)
    errors = [abs(cell.error) for cell in cells]
    median = statistics.median(errors)
    print(f"Median error of the seconds an update {median:.1%}, largest {max(errors):.1%}, n = {len(cells)} cells")
    content = {"cells": [asdict(cell) for cell in cells], "workers": WORKERS, "seed": options.seed}
    write_results(options.output / "cells.json", content)
    for cell in cells:
        if abs(cell.error) > SUSPECT:
            print(f"above {SUSPECT:.0%}: {cell.strategy}, {cell.scenario}")
    return 0 if median <= GOAL else 1
