"""What several measurements share."""

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.config import RunConfig
from syncline.records.environment import environment
from syncline.simulation.run import simulate


@dataclass(frozen=True, slots=True)
class Spread:
    """Minimum, median and maximum of several measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def __str__(self) -> str:
        return f"{self.median:.3f} [{min(self.values):.3f} .. {max(self.values):.3f}], n = {len(self.values)}"


def cpu_s(action: Callable[[], object], times: int = 1) -> float:
    """CPU seconds of this process for so many calls."""
    begun = time.process_time()
    for _ in range(times):
        action()
    return time.process_time() - begun


def simulated(config: RunConfig) -> dict[str, Any]:
    """The summary of a run in virtual time that tells nobody."""
    return simulate(config, lambda row: None, lambda progress: None)


def run_s(config: RunConfig, processes: int = 1) -> tuple[float, dict[str, Any]]:
    """Wall seconds between the two evaluations of a run in virtual time, and its summary."""
    evaluated = list[float]()
    summary = simulate(
        config, lambda row: evaluated.append(time.perf_counter()), lambda progress: None, workers_at_once=processes
    )
    begun, ended = evaluated
    return ended - begun, summary


def write_results(path: Path, content: dict[str, Any]) -> None:
    """Write what was measured, and where, as JSON."""
    about = environment()
    content |= {"machine": f"{about['cores']} cores of {about['processor']}", "commit": about["commit"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
