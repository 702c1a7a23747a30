"""What is declared for tuning (studies/tune.py): the key, its grid, the seeds, what a run is judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from syncline.config.checks import ConfigError, check, check_numbers


@dataclass(frozen=True)
class NoTuneConfig:
    name: str = "none"


@dataclass(frozen=True)
class TuneConfig:
    name: str = "rate"
    key: str = "optimizer.lr"  # a positive number of every row
    center: Any = None  # of the grid, > 0; a mapping: of the rows with this part in their label; null: the row's own
    factor: float = 2.0  # between neighbours on the grid, > 1
    points: int = 7  # of the grid, odd, >= 3
    seeds: list[int] = field(default_factory=lambda: [1000, 1001, 1002])  # of tuning alone
    validation: float = 0.2  # share of the training data that runs are judged by, in (0, 1)
    screen: str = "1/3"  # share of a run's length in which the grid is screened, in (0, 1]
    finalists: int = 3  # values of each row that are made at full length, 1 .. points
    baseline: str = "bsp"  # label, its last part, or strategy of the row whose value all take in the arm `same`
    rows: list[str] = field(default_factory=list)  # labels, or their last parts; []: all that learn

    def __post_init__(self) -> None:
        check(self.factor > 1, "tune.factor must be > 1", self.factor)
        check(self.points >= 3 and self.points % 2 == 1, "tune.points must be odd and >= 3", self.points)
        distinct = bool(self.seeds) and len(set(self.seeds)) == len(self.seeds)
        check(distinct, "tune.seeds must differ", self.seeds)
        check(min(self.seeds) >= 0, "tune.seeds must be in 0 .. 2^32 - 1", self.seeds)
        check(0 < self.validation < 1, "tune.validation must be > 0 and < 1", self.validation)
        check(1 <= self.finalists <= self.points, f"tune.finalists must be in 1 .. {self.points}", self.finalists)
        check(0 < self.screen_share <= 1, "tune.screen must be in (0, 1], as 1/3", self.screen)
        centers = self.center.values() if isinstance(self.center, dict) else [self.center]
        for center in centers:
            is_number = isinstance(center, int | float) and not isinstance(center, bool)
            fits = center is None or (is_number and center > 0)
            check(fits, "tune.center must be a number > 0, {part of a label: number} or null", self.center)
        check_numbers(self, "tune")

    @property
    def screen_share(self) -> Fraction:
        """The share of the length, exactly.

        Raises:
            ConfigError: it is no number.
        """
        return share_of("tune.screen", self.screen)

    def center_of(self, label: str) -> float | None:
        """The declared centre of a row's grid; None: the row's own value."""
        if not isinstance(self.center, dict):
            return None if self.center is None else float(self.center)
        found = [self.center[part] for part in (label, *reversed(label.split("/"))) if part in self.center]
        return float(found[0]) if found else None


def share_of(key: str, text: str) -> Fraction:
    """The share that a key's text says, exactly. Raises ConfigError if it is no number."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ConfigError(f"{key} must be in (0, 1], as 1/3, got {text}") from None


TUNES: Mapping[str, type[TuneConfig | NoTuneConfig]] = {"none": NoTuneConfig, "rate": TuneConfig}
