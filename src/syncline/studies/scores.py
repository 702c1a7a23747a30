"""The score of a run, and of the runs of one setting."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from syncline.studies.study import Outcome, Score

LAST_SHARE = 0.25  # of a run's length, over which its score is the mean


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
    found = [score for outcome in outcomes if (score := run_score(outcome)) is not None]
    num, num_lost = len(outcomes), len(outcomes) - len(found)
    judged = next((outcome for outcome in outcomes if outcome.metric), Outcome("failed"))
    mean = None if num_lost else fmean(found)
    error = stdev(found) / math.sqrt(num) if num > 1 and not num_lost else None
    return Score(label, at, mean, error, num, num_lost, judged.metric, judged.lower_is_better)
