"""What studies are declared by: tuning (studies/tune.py), judging (studies/judge.py), races (studies/race.py)."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

from syncline.checks import SEEDS, Checked, ConfigError, check, check_numbers, ranged

LEAST = 3  # seeds of a look, as of the level of several ones (sequential.py)
UNITS_S = {"h": 3600.0, "m": 60.0}
AROUND = ("slowest", "bandwidth", "delay")


@dataclass(frozen=True)
class RatesConfig(Checked):
    """The grid of values of a key, or the ranges of several, the seeds that tune, and the length of their runs."""

    _where = "tune"

    keys: Any = field(default=None, repr=False)  # several in place of one: key -> [least, largest]
    center: Any = None  # of the grid, > 0; a mapping: of the rows with this part in their label; null: the row's own
    factor: float = ranged(2.0, "> 1")  # between neighbours on the grid
    points: int = 7  # of the grid, odd, >= 3; with keys the number of settings, >= 2
    seeds: list[int] = field(default_factory=lambda: [1000, 1001, 1002], metadata={"range": SEEDS})  # of tuning alone
    validation: float = ranged(0.2, "in (0, 1)")  # share of the training data that runs are judged by
    screen: str = "1/3"  # share of a run's length in which the grid is screened, in (0, 1]
    finalists: int = 3  # values of each row that are made at full length, 1 .. points

    def __post_init__(self) -> None:
        super().__post_init__()
        where = self._where
        self._check_keys()
        if self.keys is None:
            check(self.points >= 3 and self.points % 2 == 1, f"{where}.points must be odd and >= 3", self.points)
        check(self.points >= 2, f"{where}.points must be >= 2", self.points)
        distinct = bool(self.seeds) and len(set(self.seeds)) == len(self.seeds)
        check(distinct, f"{where}.seeds must differ", self.seeds)
        check(1 <= self.finalists <= self.points, f"{where}.finalists must be in 1 .. {self.points}", self.finalists)
        check(0 < self.screen_share <= 1, f"{where}.screen must be in (0, 1], as 1/3", self.screen)
        centers = self.center.values() if isinstance(self.center, dict) else [self.center]
        for center in centers:
            is_number = isinstance(center, int | float) and not isinstance(center, bool)
            fits = center is None or (is_number and center > 0)
            check(fits, f"{where}.center must be a number > 0, {{part of a label: number}} or null", self.center)
        check_numbers(self, where)

    def _check_keys(self) -> None:
        where, keys = self._where, {} if self.keys is None else self.keys
        fits = isinstance(keys, dict) and all(
            isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends)) and ends[0] < ends[1]
            for ends in keys.values()
        )
        fits = fits and (self.keys is None or bool(keys))
        check(fits, f"{where}.keys must be {{key: [least, largest]}}, numbers >= 0, or null", self.keys)
        is_grid = self.keys is None or self.center is None
        check(is_grid, f"{where}.center must be null with {where}.keys, which have no centre", self.center)

    @property
    def screen_share(self) -> Fraction:
        """The share of the length, exactly. Raises ConfigError if it is no number."""
        try:
            return Fraction(self.screen)
        except (ValueError, ZeroDivisionError):
            raise ConfigError(f"{self._where}.screen must be in (0, 1], as 1/3, got {self.screen}") from None

    def center_of(self, label: str) -> float | None:
        """The declared centre of a row's grid; None: the row's own value."""
        if not isinstance(self.center, dict):
            return None if self.center is None else float(self.center)
        found = [self.center[part] for part in (label, *reversed(label.split("/"))) if part in self.center]
        return float(found[0]) if found else None


@dataclass(frozen=True)
class TuneConfig(RatesConfig):
    """The study of `syncline tune`."""

    key: str = "optimizer.lr"  # a positive number of every row
    baseline: str = "bsp"  # label, its last part, or strategy of the row whose value all take in the arm `same`
    rows: list[str] = field(default_factory=list)  # labels, or their last parts; []: all that learn


@dataclass(frozen=True)
class JudgeConfig:
    """The study of `syncline judge`."""

    looks: list[int] | None = None  # numbers of seeds; null: those of the experiment, or one look at its seeds
    budget: str | None = None  # of wall time: 6h, 90m; null: none

    def __post_init__(self) -> None:
        if self.looks is not None:
            _check_looks("judge.looks", self.looks)
        seconds("judge.budget", self.budget)
        check_numbers(self, "judge")


@dataclass(frozen=True)
class RaceRatesConfig(RatesConfig):
    """The learning rates of a race."""

    _where = "race.tune"

    points: int = 5
    seeds: list[int] = field(default_factory=lambda: [1000, 1001], metadata={"range": SEEDS})
    finalists: int = 2


@dataclass(frozen=True)
class RaceConfig(Checked):
    """The study of `syncline race`."""

    # strategy -> {its key or local.steps: [values]}, or null; P/4: a share of the workers, T/20: of the race's length
    entrants: Any = None
    budget: str | None = None  # of wall time for all runs: 2h, 90m; null: none
    targets: list[float] = field(default_factory=list)  # further ones, each easier than target.value
    tune: RaceRatesConfig = field(default_factory=RaceRatesConfig)
    within: float = ranged(2.0, ">= 1")  # judged are those whose seconds in tuning are at most so many times the least
    looks: list[int] = field(default_factory=lambda: [5, 10, 15, 20])  # numbers of seeds
    level: float = ranged(0.05, "in (0, 0.5]")  # probability of naming a wrong winner
    margin: float = ranged(0.05, "> 0")  # two are equally fast if their times differ by less than this share
    around: Any = None  # knob -> values: what else the cluster might be
    confirm: int = ranged(0, ">= 0")  # so many of the first ones run as real processes
    live: str = "runner=local runner.evaluate=during runner.pace=absolute"  # words of these runs

    _where = "race"

    def __post_init__(self) -> None:
        super().__post_init__()
        entrants = {} if self.entrants is None else self.entrants
        fits = isinstance(entrants, dict) and all(own is None or isinstance(own, dict) for own in entrants.values())
        check(fits, "race.entrants must be {strategy: {key: [values]} or null}", self.entrants)
        seconds("race.budget", self.budget)
        is_one = not isinstance(self.tune.center, dict)
        check(is_one, "race.tune.center must be a number > 0 or null", self.tune.center)
        _check_looks("race.looks", self.looks)
        around = {} if self.around is None else self.around
        rule = f"race.around must map some of {', '.join(AROUND)} to lists of numbers >= 0"
        fits = isinstance(around, dict) and all(
            knob in AROUND and isinstance(values, list) and all(_is_number(value) for value in values)
            for knob, values in around.items()
        )
        check(fits, rule, self.around)
        check_numbers(self, "race")

    @property
    def live_words(self) -> tuple[str, ...]:
        """Raises ConfigError if a quote is not closed."""
        try:
            return tuple(shlex.split(self.live))
        except ValueError as error:
            raise ConfigError(f"race.live must be words of the command line, got {self.live} ({error})") from None


STUDIES: Mapping[str, type[Any]] = {"tune": TuneConfig, "judge": JudgeConfig, "race": RaceConfig}


def seconds(key: str, duration: str | None) -> float | None:
    """The seconds of a duration such as 6h or 90m; None for None. Raises ConfigError if it is none, or not above 0."""
    if duration is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hm])", duration)
    in_seconds = float(found[1]) * UNITS_S[found[2]] if found else 0.0
    check(in_seconds > 0, f"{key} must be a time above 0, as 6h or 90m, or null", duration)
    return in_seconds


def of_whole(text: str, unit: str) -> Fraction | None:
    """The share of `unit` that a text is: P/4, 3P/4, P; None if it is none."""
    found = re.fullmatch(rf"(\d*){unit}(?:/(\d+))?", text)
    if found is None:
        return None
    if found[2] and int(found[2]) == 0:
        raise ConfigError(f"race.entrants must hold shares as {unit}/4, got {text}")
    return Fraction(int(found[1] or 1), int(found[2] or 1))


def _check_looks(key: str, looks: list[int]) -> None:
    grow = bool(looks) and all(high - low >= LEAST for low, high in pairwise([0, *looks]))
    check(grow, f"{key} must grow by {LEAST} or more, from {LEAST} or more", looks)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
