"""What is measured of a run, the same for all papers: its end, its best, its mean, and its way to a target.

A measure is a function of a run; it is None where the run has no such number, as at the end of a run that diverged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reports.figures import Points
from reports.records import Artefact, Run
from reports.statistics import Times, restricted

Measure = Callable[[Run], float | None]

PERCENT = 100.0
SETTLED = 0.25  # the last part of a run's time: its settled value is the mean over it
EVALUATION, CROSSING = "evaluation", "crossing"


def in_summary(key: str) -> Measure:
    """A number of the summary, which may be None."""
    return lambda run: run.summary[key]


def final(metric: str, factor: float = 1.0) -> Measure:
    """`factor` times the metric at the last evaluation; None of a run that diverged or that learned nothing."""

    def of(run: Run) -> float | None:
        is_lost = run.is_diverged or run.summary["final"] is None
        return None if is_lost else finite(factor * float(run.summary["final"][metric]))

    return of


def best(metric: str, factor: float = 1.0) -> Measure:
    """`factor` times the best of all evaluations; None of a run that learned nothing."""
    return lambda run: factor * float(run.summary["best"][metric]["value"]) if run.summary["best"] else None


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def settled(points: Points) -> float:
    """Where a curve ends: its mean over the last quarter of its places."""
    places, heights = points
    last = [height for at, height in zip(places, heights, strict=True) if at >= (1.0 - SETTLED) * places[-1]]
    return math.fsum(last) / len(last)


def mean_over_run(points: Points) -> float:
    """The mean height of a curve over its places: that of what rises early and stays high is high."""
    places, heights = points
    return float(np.trapezoid(heights, places)) / (places[-1] - places[0])


def of_curve(value: Callable[[Points], float], curve: Callable[[Run], Points]) -> Measure:
    """A number of a run's curve; None of a run that diverged."""
    return lambda run: None if run.is_diverged else value(curve(run))


def time_to(points: Points, level: float, falling: bool = False, at: str = EVALUATION) -> float | None:
    """Where a curve first reaches the level; None if it never does.

    Args:
        falling: the level is reached from above.
        at: EVALUATION: the first place after the start, which is 0, that is as high. CROSSING: linear between two
            places; None if the curve begins beyond the level.
    """
    sign = -1.0 if falling else 1.0
    before: tuple[float, float] | None = None
    for place, height in zip(*points, strict=True):
        if sign * height >= sign * level:
            if at == CROSSING:
                return before and before[0] + (place - before[0]) * (level - before[1]) / (height - before[1])
            if place > 0.0:
                return place
        elif math.isfinite(height):
            before = (place, height)
    return None


@dataclass(frozen=True)
class Target:
    """A level of a curve, and when runs reach it.

    Attributes:
        level: None: none is fixed, and no run reaches it.
        curve: a run -> its curve.
        falling, at: as of `time_to`.
        of: the part of an artefact whose target it is.
    """

    level: float | None
    curve: Callable[[Run], Points]
    falling: bool = False
    at: str = EVALUATION
    of: str = ""

    def time(self, run: Run) -> float | None:
        """A measure: where the run reaches the level."""
        return None if self.level is None else time_to(self.curve(run), self.level, self.falling, self.at)

    def restricted(self, artefact: Artefact, rows: Mapping[Any, Sequence[Run]]) -> Times[Any]:
        """Row -> where its runs reach the level, as `restricted` takes them; LookupError without a level."""
        if self.level is None:
            raise no_target(self.of)
        ends = artefact.samples(lambda run: self.curve(run)[0][-1], rows)
        return restricted(artefact.samples(self.time, rows), ends)


def fixed_target(
    artefact: Artefact, curve: Callable[[Run], Points], of: str = "", falling: bool = False, at: str = EVALUATION
) -> Target:
    """The target that is fixed beforehand for an artefact, or for a part of it."""
    return Target(artefact.target(of), curve, falling, at, of)


def no_target(of: str) -> LookupError:
    """The error of a claim that needs a target where none is fixed."""
    return LookupError(f"a fixed target{of and f' of {of}'}")
