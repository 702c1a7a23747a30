"""What is declared for a race (studies/race.py): who takes part, by which rules, and how much time it may take."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from syncline.config.checks import ConfigError, check, check_numbers
from syncline.config.judging import LEAST
from syncline.config.tuning import share_of

AROUND = ("slowest", "bandwidth", "delay")


@dataclass(frozen=True)
class NoRaceConfig:
    name: str = "none"


@dataclass(frozen=True)
class RaceConfig:
    name: str = "first"
    # strategy -> {its key or local.steps: [values]}, or null; P/4: a share of the workers, T/20: of the race's length
    entrants: Any = None
    budget_h: float | None = None  # wall hours for all runs, > 0; null: none
    targets: list[float] = field(default_factory=list)  # further ones, each easier than target.value
    center: float | None = None  # of the grid of rates, > 0; null: optimizer.lr
    factor: float = 2.0  # between neighbours on the grid, > 1
    points: int = 5  # of the grid, odd, >= 3
    finalists: int = 2  # rates of each entrant that are made at full length, 1 .. points
    screen: str = "1/3"  # share of the race's length in which the grid is screened, in (0, 1]
    tuning_seeds: list[int] = field(default_factory=lambda: [1000, 1001])
    validation: float = 0.2  # share of the training data that rates are judged by, in (0, 1)
    within: float = 2.0  # judged are those whose seconds in tuning are at most so many times the least, >= 1
    looks: list[int] = field(default_factory=lambda: [5, 10, 15, 20])  # numbers of seeds
    level: float = 0.05  # probability of naming a wrong winner, in (0, 0.5]
    margin: float = 0.05  # two are equally fast if their times differ by less than this share, > 0
    around: Any = None  # knob -> values: what else the cluster might be
    confirm: int = 0  # so many of the first ones run as real processes
    live: str = "runner=local runner.evaluate=during runner.pace=absolute"  # words of these runs

    def __post_init__(self) -> None:
        entrants = {} if self.entrants is None else self.entrants
        fits = isinstance(entrants, dict) and all(own is None or isinstance(own, dict) for own in entrants.values())
        check(fits, "race.entrants must be {strategy: {key: [values]} or null}", self.entrants)
        check(self.budget_h is None or self.budget_h > 0, "race.budget_h must be hours > 0 or null", self.budget_h)
        check(self.center is None or self.center > 0, "race.center must be > 0 or null", self.center)
        check(self.factor > 1, "race.factor must be > 1", self.factor)
        check(self.points >= 3 and self.points % 2 == 1, "race.points must be odd and >= 3", self.points)
        check(1 <= self.finalists <= self.points, f"race.finalists must be in 1 .. {self.points}", self.finalists)
        check(0 < self.screen_share <= 1, "race.screen must be in (0, 1], as 1/3", self.screen)
        seeds = self.tuning_seeds
        check(len(seeds) >= 2 and len(set(seeds)) == len(seeds), "race.tuning_seeds must be two or more", seeds)
        check(min(seeds) >= 0, "race.tuning_seeds must be in 0 .. 2^32 - 1", seeds)
        check(0 < self.validation < 1, "race.validation must be > 0 and < 1", self.validation)
        check(self.within >= 1, "race.within must be >= 1", self.within)
        grow = bool(self.looks) and all(high - low >= LEAST for low, high in pairwise([0, *self.looks]))
        check(grow, f"race.looks must grow by {LEAST} or more, from {LEAST} or more", self.looks)
        check(0 < self.level <= 0.5, "race.level must be in (0, 0.5]", self.level)
        check(self.margin > 0, "race.margin must be > 0", self.margin)
        check(self.confirm >= 0, "race.confirm must be >= 0", self.confirm)
        around = {} if self.around is None else self.around
        rule = f"race.around must map some of {', '.join(AROUND)} to lists of numbers >= 0"
        fits = isinstance(around, dict) and all(
            knob in AROUND and isinstance(values, list) and all(_is_number(value) for value in values)
            for knob, values in around.items()
        )
        check(fits, rule, self.around)
        check_numbers(self, "race")

    @property
    def screen_share(self) -> Fraction:
        """The share of the length, exactly. Raises ConfigError if it is no number."""
        return share_of("race.screen", self.screen)

    @property
    def live_words(self) -> tuple[str, ...]:
        """Raises ConfigError if a quote is not closed."""
        try:
            return tuple(shlex.split(self.live))
        except ValueError as error:
            raise ConfigError(f"race.live must be words of the command line, got {self.live} ({error})") from None


def of_whole(text: str, unit: str) -> Fraction | None:
    """The share of `unit` that a text is: P/4, 3P/4, P; None if it is none."""
    found = re.fullmatch(rf"(\d*){unit}(?:/(\d+))?", text)
    if found is None:
        return None
    if found[2] and int(found[2]) == 0:
        raise ConfigError(f"race.entrants must hold shares as {unit}/4, got {text}")
    return Fraction(int(found[1] or 1), int(found[2] or 1))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


RACES: Mapping[str, type[RaceConfig | NoRaceConfig]] = {"none": NoRaceConfig, "first": RaceConfig}
