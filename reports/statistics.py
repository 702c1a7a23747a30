"""Means and spreads over seeds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """Values over seeds; None where a seed has none (a target that it did not reach)."""

    values: tuple[float | None, ...]

    @property
    def present(self) -> list[float]:
        return [value for value in self.values if value is not None]

    @property
    def n(self) -> int:
        return len(self.present)

    @property
    def mean(self) -> float:
        """nan for an empty sample."""
        return math.fsum(self.present) / self.n if self.n else math.nan

    @property
    def std(self) -> float:
        """Of the sample (n - 1); nan below two values."""
        if self.n < 2:
            return math.nan
        return math.sqrt(math.fsum((value - self.mean) ** 2 for value in self.present) / (self.n - 1))


def paired_ratio(values: Sequence[float | None], others: Sequence[float | None]) -> Sample:
    """values / others, seed by seed; None where either is missing."""
    pairs = zip(values, others, strict=True)
    return Sample(tuple(None if a is None or b is None else a / b for a, b in pairs))
