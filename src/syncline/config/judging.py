"""What is declared for judging (studies/judge.py): at which numbers of seeds, and how much time it may take."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from syncline.config.checks import check, check_numbers

LEAST = 3  # seeds of a look, as of the level of several ones (sequential.py)
UNITS_S = {"h": 3600.0, "m": 60.0}


@dataclass(frozen=True)
class NoJudgeConfig:
    name: str = "none"


@dataclass(frozen=True)
class JudgeConfig:
    name: str = "claims"
    looks: list[int] | None = None  # numbers of seeds; null: those of the experiment, or one look at its seeds
    budget: str | None = None  # of wall time: 6h, 90m; null: none

    def __post_init__(self) -> None:
        looks = self.looks
        fits = looks is None or (bool(looks) and all(high - low >= LEAST for low, high in pairwise([0, *looks])))
        check(fits, f"judge.looks must grow by {LEAST} or more, from {LEAST} or more", looks)
        check(self.budget is None or self.budget_s is not None, "judge.budget must be a time as 6h or 90m", self.budget)
        check_numbers(self, "judge")

    @property
    def budget_s(self) -> float | None:
        """Seconds; None: no budget, or no time."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([hm])", self.budget or "")
        seconds = float(found[1]) * UNITS_S[found[2]] if found else 0.0
        return seconds or None


JUDGES: Mapping[str, type[JudgeConfig | NoJudgeConfig]] = {"none": NoJudgeConfig, "claims": JudgeConfig}
