"""The score of a run, and of the runs of one setting."""

import math
from collections.abc import Sequence
from statistics import fmean

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
    judged = next((outcome for outcome in outcomes if outcome.metric), Outcome("failed"))
    return Score.of(label, at, list(map(run_score, outcomes)), judged.metric, judged.lower_is_better)
