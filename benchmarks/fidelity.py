"""make fidelity: does the simulator predict what real processes do?

Each strategy runs live under each scenario. The times of its gradients and messages are measured and given to the
simulator as distributions, for each worker; its predictions for the same number of updates are compared with the
measurements: seconds an update, and the largest lead. `python -m reports fidelity` shows the stored results.
"""

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from benchmarks.live_run import LiveRun
from syncline.config import RunConfig, SimulateConfig
from syncline.records.environment import environment
from syncline.records.events import read_events
from syncline.simulation.run import simulate
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Empirical
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
    measured = run.summary()
    config = measured_config(run.config, read_events(run.folder / "events.arrow").to_pandas())
    foreseen = simulate(config, lambda row: None, lambda progress: None)
    return Cell(
        strategy,
        scenario,
        measured["time_s"] / measured["updates"],
        foreseen["time_s"] / foreseen["updates"],
        measured["max_lead"],
        foreseen["max_lead"],
    )


def measured_config(config: RunConfig, log: pd.DataFrame) -> RunConfig:
    """The same run in virtual time, with the times of this log.

    The time of a worker's gradient is its mean times one pooled distribution of the ratios. Injected delays are
    subtracted, and drawn again from the same streams. The latency of a message is the mean of the seconds from a
    gradient to its push, and from a grant to the start of the next gradient.
    """
    computed = log[log.kind == "computed"]
    started = log[log.kind == "started"]
    delays = log[(log.kind == "delayed") & (log.because == "compute")]
    means, ratios, messages = [], list[float](), list[float]()
    for worker in range(config.cluster.workers):
        ends = computed[computed.worker == worker]["at"].to_numpy()
        begins = started[started.worker == worker]["at"].to_numpy()
        spent = ends - begins
        injected = delays[delays.worker == worker]["value"].to_numpy()
        own = spent - injected if len(injected) else spent
        means.append(float(own.mean()))
        ratios += (own / own.mean()).tolist()
        own_log = log[log.worker == worker]
        pushed = own_log[own_log.kind == "pushed"]["at"].to_numpy()
        granted = own_log[own_log.kind == "granted"]["at"].to_numpy()
        messages += (pushed - ends).tolist()
        count = min(len(granted), len(begins) - 1)
        messages += (begins[1 : count + 1] - granted[:count]).tolist()
    cluster = ClusterConfig(
        name="measured",
        workers=config.cluster.workers,
        gradient_s=means,
        jitter=Empirical(tuple(ratios)),
        network=NetworkConfig(latency_s=max(statistics.mean(messages), 0.0)),
    )
    scenario = ScenarioConfig(compute_delay=config.scenario.compute_delay)
    return replace(config, cluster=cluster, scenario=scenario, runner=SimulateConfig(events=False), gradients=False)


def line(cell: Cell) -> str:
    return (
        f"{cell.strategy:5} {cell.scenario:21} measured {1e3 * cell.measured_s:7.2f} ms an update, foreseen "
        f"{1e3 * cell.foreseen_s:7.2f} ({cell.error:+.1%}); largest lead {cell.measured_lead}, foreseen "
        f"{cell.foreseen_lead}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("results/fidelity"))
    options = parser.parse_args()
    cells = list[Cell]()
    with tempfile.TemporaryDirectory() as folder:
        for scenario in SCENARIOS:
            for strategy in STRATEGIES:
                cells.append(measure(strategy, scenario, Path(folder), options.seed))
                print(line(cells[-1]), flush=True)
    errors = [abs(cell.error) for cell in cells]
    median = statistics.median(errors)
    print(f"Median error of the seconds an update {median:.1%}, largest {max(errors):.1%}, n = {len(cells)} cells")
    about = environment()
    content = {
        "cells": [asdict(cell) for cell in cells],
        "workers": WORKERS,
        "seed": options.seed,
        "machine": f"{about['cores']} cores of {about['processor']}",
        "commit": about["commit"],
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "cells.json").write_text(json.dumps(content, indent=1) + "\n")
    for cell in cells:
        if abs(cell.error) > SUSPECT:
            print(f"above {SUSPECT:.0%}: {cell.strategy}, {cell.scenario}")
    return 0 if median <= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
