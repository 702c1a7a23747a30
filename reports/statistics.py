"""Means, spreads and confidence intervals over seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from syncline.statistics import restricted_times

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Sample:
    """Values over seeds; None where a seed has none (a target that it did not reach).

    Arithmetic is seed by seed, with a number or with the sample of another strategy under the same seeds; a seed
    without a value on either side has none, nor has a ratio to 0 (a target that is reached from the start).

    Attributes:
        flaw: why no claim may be judged by it: its runs are at chance, or do not arrive at a target; empty if one may.
            What is computed from several samples has the first one's.
    """

    values: tuple[float | None, ...]
    flaw: str = ""

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

    def __rmul__(self, factor: float) -> "Sample":
        return Sample(tuple(None if value is None else factor * value for value in self.values), self.flaw)

    def __sub__(self, other: "Sample | float") -> "Sample":
        return self._paired(other, lambda value, less: value - less)

    def __rsub__(self, whole: float) -> "Sample":
        return Sample(tuple(None if value is None else whole - value for value in self.values), self.flaw)

    def __truediv__(self, other: "Sample | float") -> "Sample":
        return self._paired(other, lambda value, by: value / by if by else None)

    def _paired(self, other: "Sample | float", function: Callable[[float, float], float | None]) -> "Sample":
        by = other if isinstance(other, Sample) else Sample((other,) * len(self.values))
        pairs = zip(self.values, by.values, strict=True)
        values = tuple(None if a is None or b is None else function(a, b) for a, b in pairs)
        return Sample(values, self.flaw or by.flaw)


@dataclass(frozen=True, slots=True)
class Times(Generic[Key]):
    """Times to a fixed target of several strategies as restricted times over one horizon.

    What is compared has a flaw where a strategy never arrives, since its time would be a constant, the horizon; and
    where none arrives with half of its seeds: all would look as if they took about equally long.
    """

    times: Mapping[Key, Sample]
    arrivals: Mapping[Key, int]  # seeds with which a strategy reaches the target

    def of(self, *strategies: Key) -> list[Sample]:
        """Those of strategies that are compared with each other."""
        times = [self.times[strategy] for strategy in strategies]
        shares = [(self.arrivals[strategy], len(self.times[strategy].values)) for strategy in strategies]
        if all(num for num, _ in shares) and any(2 * num >= of for num, of in shares):
            return times
        told = ", ".join(f"{name} {num}/{of}" for name, (num, of) in zip(strategies, shares, strict=True))
        return [replace(own, flaw=f"seeds that reach the target: {told}") for own in times]

    def pair(self, first: Key, second: Key) -> tuple[Sample, Sample]:
        """Those of two strategies that are compared."""
        one, other = self.of(first, second)
        return one, other


def restricted(reached: Mapping[Key, Sample], ends: Mapping[Key, Sample]) -> Times[Key]:
    """Times to a fixed target of several strategies as restricted times over one horizon: min(time, horizon).

    The horizon is the longest of all runs. A run that has come to the end of its schedule without the target never
    reaches it, also if another one went on for longer: it counts with the whole horizon.

    Args:
        reached: strategy -> times; None where a run does not reach the target.
        ends: strategy -> times of the whole run.

    Raises:
        LookupError: no run has an end.
    """
    known = [time for sample in ends.values() for time in sample.present]
    if not known:
        raise LookupError("no run has an end")

    def times(sample: Sample) -> Sample:
        return Sample(tuple(map(float, restricted_times(sample.values, max(known)))), sample.flaw)

    strategies = reached.items()
    return Times({key: times(sample) for key, sample in strategies}, {key: sample.n for key, sample in strategies})


def average(samples: Sequence[Sample]) -> Sample:
    """The mean of several samples, seed by seed; None where one of them has no value."""
    rows = zip(*(sample.values for sample in samples), strict=True)
    present = [[value for value in row if value is not None] for row in rows]
    values = tuple(math.fsum(row) / len(row) if len(row) == len(samples) else None for row in present)
    return Sample(values, next((sample.flaw for sample in samples if sample.flaw), ""))


def ratio(sample: Sample | None, other: Sample | None) -> Sample | None:
    """sample / other; None where one of the two strategies was not run."""
    return None if sample is None or other is None else sample / other


def difference(sample: Sample | None, other: Sample | float | None) -> Sample | None:
    """sample - other; None where one of the two strategies was not run."""
    return None if sample is None or other is None else sample - other
