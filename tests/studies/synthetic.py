"""Trials whose scores are a known function of the value that is tuned, and of the seed."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from syncline.studies.study import ABSENT, Answer, Evaluation, Outcome, Stage, Study, Trial

Result = TypeVar("Result")

ScoreFunction = Callable[[str, float, int], float | None]
"""(row, value, seed) -> accuracy; None: the run diverges."""


def row_value_seed(trial: Trial) -> tuple[str, float, int]:
    words = dict(word.split("=", 1) for word in trial.overrides)
    return trial.label, float(words["optimizer.lr"]), int(words["seed"])


def is_screening(trial: Trial) -> bool:
    return any(re.match("epochs=", word) for word in trial.overrides)


@dataclass(kw_only=True)
class Bench:
    """Makes the trials of a study, and remembers what they left."""

    made: dict[Trial, Outcome] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)

    def records(self, trial: Trial) -> Outcome:
        return self.made.get(trial, ABSENT)

    def make(self, trial: Trial) -> None:
        raise NotImplementedError

    def answer(self, study: Study[Result]) -> Answer[Result]:
        """Ask, make what is absent, ask again."""
        while isinstance(step := study.next(self.records), Stage):
            self.stages.append(step)
            absent = [trial for trial in step.trials if trial not in self.made]
            assert absent, "a stage with nothing to make"
            for trial in absent:
                self.make(trial)
        return step


@dataclass
class Lab(Bench):
    """Trials of one learning rate, which leave its score."""

    score: ScoreFunction

    def make(self, trial: Trial) -> None:
        value = self.score(*row_value_seed(trial))
        curve = () if value is None else tuple(Evaluation(epoch, epoch, value) for epoch in range(5))
        self.made[trial] = Outcome("finished", "accuracy", False, curve, diverged=value is None)


def parabola(
    optimum: dict[str, float], curvature: float = 0.01, noise: float = 0.0, limit: float = math.inf
) -> ScoreFunction:
    """1 - curvature * (factors of two from the optimum)^2, and noise of at most `noise`; above `limit` it diverges."""

    def score(row: str, value: float, seed: int) -> float | None:
        if value > limit:
            return None
        swing = math.sin(1e6 * value + 37.0 * seed + len(row))  # as good as random, and the same each time
        return 1.0 - curvature * math.log2(value / optimum[row]) ** 2 + noise * swing

    return score
