"""Scores of runs: by the last part of their curve, or by their time to a target, where it crosses that."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from syncline.studies.study import Evaluation, Outcome, Score

TO_TARGET = "seconds to the target"  # the metric of a score by times
LAST_SHARE = 0.25  # of a run's length, over which its score by the curve is the mean


@dataclass(frozen=True, slots=True)
class Goal:
    """A value of the metric by which runs are judged."""

    value: float
    lower_is_better: bool = False
    metric: str = ""  # "": the first of the task

    def is_reached(self, value: float) -> bool:
        return value <= self.value if self.lower_is_better else value >= self.value

    def lacking(self, curve: Sequence[Evaluation]) -> float:
        """What the best value of a curve lacks, as a share of the target (or of 1, if it is 0); inf without values."""
        values = [point.value for point in curve if math.isfinite(point.value)]
        if not values:
            return math.inf
        short = min(values) - self.value if self.lower_is_better else self.value - max(values)
        return max(0.0, short) / (abs(self.value) or 1.0)


def crossing(curve: Sequence[Evaluation], goal: Goal) -> Evaluation | None:
    """Where a curve first reaches the target, on the line between two evaluations; None if it never does.

    Its updates are rounded.
    """
    for number, point in enumerate(curve):
        if goal.is_reached(point.value):
            before = curve[number - 1] if number else point
            if not math.isfinite(before.value) or before.value == point.value:
                return point
            share = (goal.value - before.value) / (point.value - before.value)
            epoch = before.epoch + share * (point.epoch - before.epoch)
            time_s = before.time_s + share * (point.time_s - before.time_s)
            return Evaluation(
                epoch, time_s, goal.value, round(before.updates + share * (point.updates - before.updates))
            )
    return None


def time_to(outcome: Outcome, goal: Goal) -> float | None:
    """Seconds until a run reached the target; None if it never did, diverged before, or failed."""
    found = crossing(outcome.curve, goal)
    return None if found is None else found.time_s


def time_score(label: str, at: float, outcomes: Sequence[Outcome], goal: Goal, length_s: float) -> Score:
    """The score of runs that differ in their seed: their mean seconds to the target.

    A run that missed it counts as `length_s`, lengthened by the share of the target that it lacks, so that runs which
    all miss it are still ordered. One that diverged or failed makes the score the worst.
    """

    def seconds(outcome: Outcome) -> float | None:
        reached = time_to(outcome, goal)
        if reached is not None or outcome.is_lost:
            return reached
        return length_s * (1.0 + goal.lacking(outcome.curve))

    return Score.of(label, at, list(map(seconds, outcomes)), TO_TARGET, lower_is_better=True)


def run_score(outcome: Outcome) -> float | None:
    """The mean of the metric over the last quarter of the run's epochs, or the last evaluation if no other lies there.

    None if the run was lost, or a value is not a finite number.
    """
    if outcome.is_lost:
        return None
    begin = (1.0 - LAST_SHARE) * outcome.curve[-1].epoch
    mean = fmean(point.value for point in outcome.curve if point.epoch >= begin)
    return mean if math.isfinite(mean) else None


def score_of(label: str, at: float, outcomes: Sequence[Outcome]) -> Score:
    """The score of runs that differ in their seed."""
    judged = next((outcome for outcome in outcomes if outcome.metric), Outcome("failed"))
    return Score.of(label, at, list(map(run_score, outcomes)), judged.metric, judged.lower_is_better)
