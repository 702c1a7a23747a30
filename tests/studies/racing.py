"""Trials of races whose times to the target are a known function of entrant, rate and seed."""

import math
import random
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from studies.synthetic import Bench

from syncline.studies.goals import Goal
from syncline.studies.race import Entrant, Race
from syncline.studies.study import Counts, Evaluation, Outcome, Trial

GOAL = Goal(0.9, metric="accuracy")
LENGTH_S = 100.0
BEST_RATE = 0.05
POINTS = 50  # evaluations of a run that reaches the target


@dataclass(frozen=True)
class Truth:
    """Of an entrant."""

    seconds: float  # to the target at the best rate, the median over seeds
    noise: float = 0.1  # standard deviation of the logarithm
    update_s: float = 0.1
    per_update: int = 1  # gradients
    least_share: float = 1.0
    best_rate: float = BEST_RATE
    limit: float = math.inf  # above it a run diverges
    wall_s: float = 1.0


def words_of(trial: Trial) -> dict[str, str]:
    return dict(word.split("=", 1) for word in trial.overrides)


@dataclass
class RaceLab(Bench):
    """Trials of a race, by the truth of each entrant."""

    truths: Mapping[str, Truth]

    def make(self, trial: Trial) -> None:
        words, truth = words_of(trial), self.truths[trial.label] if trial.label in self.truths else Truth(1.0)
        seed, length_s = int(words["seed"]), float(words.get("max_time_s", LENGTH_S))
        if "gradients" in words:
            self.made[trial] = Outcome("finished", counts=self.counts(trial, truth, length_s))
            return
        rate = float(words["optimizer.lr"])
        draw = random.Random(f"{trial.label} {seed}").gauss(0.0, truth.noise)
        seconds = truth.seconds * math.exp(draw + 0.2 * math.log2(rate / truth.best_rate) ** 2)
        end = min(seconds, length_s)
        places = [end * number / POINTS for number in range(POINTS + 1)]
        curve = tuple(Evaluation(at, at, GOAL.value * at / seconds, round(at / truth.update_s)) for at in places)
        if seconds <= length_s:  # whatever the rounding
            curve = (*curve[:-1], curve[-1]._replace(value=GOAL.value))
        diverged = rate > truth.limit
        self.made[trial] = Outcome(
            "finished", GOAL.metric, False, curve[:2] if diverged else curve, diverged, self.counts(trial, truth, end)
        )

    @staticmethod
    def counts(trial: Trial, truth: Truth, time_s: float) -> Counts:
        """No two entrants have the same."""
        updates = round(time_s / truth.update_s)
        used, staleness = updates * truth.per_update, 1e-9 * zlib.crc32(trial.label.encode())
        return Counts(time_s, updates, used, 0, used, staleness, truth.least_share, truth.wall_s)


def race(labels: Mapping[str, Any] | list[str], **others: Any) -> Race:
    """A race of entrants of these labels, seeds 0 .. 19."""
    entrants = tuple(Entrant(label, (f"strategy={label.split()[0]}",), BEST_RATE) for label in labels)
    about: dict[str, Any] = {"seeds": tuple(range(20)), "looks": (5, 10, 15, 20), "length_s": LENGTH_S, **others}
    return Race(entrants, GOAL, **about)
