"""What verdicts about claims rest on: tests and intervals of paired values, of counts and of times to a target.

This file may hold: pure functions of numbers. It may not hold: I/O, clocks or random numbers but those of a fixed seed.
Every function raises ValueError, in one line, for values that it cannot judge.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # whose parts are imported where they are first used
from numpy.typing import NDArray

Array = NDArray[np.float64]
Side = Literal["less", "greater"]  # as scipy names them

RESAMPLES = 9999


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its confidence interval, with half the error probability on each side."""

    estimate: float
    lower: float
    upper: float


def mean_interval(differences: Sequence[float], alpha: float = 0.05) -> Interval:
    """Student's interval, of confidence 1 - alpha, of the mean of paired differences.

    Differences that are all equal give a point: they tell nothing of the spread, and the interval is then too narrow.

    Args:
        differences: n >= 2 finite numbers, one a pair.
        alpha: error probability, in (0, 0.5].

    Source: Student, The Probable Error of a Mean, 1908.
    """
    mean, error, df = _mean_and_error(_sample("mean_interval: differences", differences))
    half = _t_beyond(_tail(alpha), df) * error
    return Interval(mean, mean - half, mean + half)


def mean_p(differences: Sequence[float], bound: float = 0.0, alternative: Side = "greater") -> float:
    """p-value of the one-sided Student test: small where the mean of paired differences is beyond the bound.

    Differences that are all equal have p = 0 beyond the bound, 1 at it or on its other side.

    Args:
        differences: n >= 2 finite numbers, one a pair.
        bound: finite, in the unit of the differences.
        alternative: what a small p speaks for: a mean `greater` than the bound, or `less`.

    Source: Student, The Probable Error of a Mean, 1908.
    """
    beyond = _sample("mean_p: differences", differences) - _finite("mean_p: bound", bound)
    mean, error, df = _mean_and_error(beyond if alternative == "greater" else -beyond)
    if error == 0.0:
        return 0.0 if mean > 0.0 else 1.0
    return _t_tail(mean / error, df)


def two_sample_p(first: Sequence[float], second: Sequence[float]) -> float:
    """p-value of Student's two-sided two-sample test: small where the means of independent samples differ.

    It is exact where both are normal with one variance, whatever their sizes. Samples without any spread have p = 0 if
    their values differ, else 1.

    Args:
        first: n >= 1 finite numbers.
        second: m >= 1 finite numbers, n + m >= 3.

    Source: Student, The Probable Error of a Mean, 1908; Fisher, Applications of Student's Distribution, 1925.
    """
    ours = _sample("two_sample_p: first", first, least=1)
    theirs = _sample("two_sample_p: second", second, least=1)
    df = len(ours) + len(theirs) - 2
    if df < 1:
        raise ValueError("two_sample_p: first and second must have 3 or more numbers together, got 2")
    distance = abs(float(ours.mean()) - float(theirs.mean()))
    if np.ptp(ours) == 0.0 and np.ptp(theirs) == 0.0:
        return 0.0 if ours[0] != theirs[0] else 1.0
    squares = float(((ours - ours.mean()) ** 2).sum() + ((theirs - theirs.mean()) ** 2).sum())
    error = math.sqrt(squares / df * (1.0 / len(ours) + 1.0 / len(theirs)))
    if error == 0.0:  # the squares are too small for a float
        return 0.0 if distance > 0.0 else 1.0
    return 2.0 * _t_tail(distance / error, df)


def equivalence_p(differences: Sequence[float], margin: float) -> float:
    """p-value of two one-sided tests (TOST): small where |mean| of the paired differences is below the margin.

    Args:
        differences: n >= 2 finite numbers, one a pair. Equal ones give 0 or 1, as in `mean_p`.
        margin: > 0, in the unit of the differences.

    Source: Schuirmann, A comparison of the two one-sided tests procedure and the power approach, 1987.
    """
    if not _finite("equivalence_p: margin", margin) > 0.0:
        raise ValueError(f"equivalence_p: margin must be > 0, got {margin}")
    return max(mean_p(differences, -margin, "greater"), mean_p(differences, margin, "less"))


def ratio_interval(first: Sequence[float], second: Sequence[float], alpha: float = 0.05) -> Interval:
    """Fieller's interval, of confidence 1 - alpha, of the paired ratio mean(first) / mean(second).

    It holds the ratios r that Student's test of first - r second does not reject: `mean_p` of these differences is the
    p-value of a ratio beyond r. Where the mean of `second` is not significantly above 0 it is (-inf, inf).

    Args:
        first: n >= 2 finite numbers.
        second: as many, paired with the first, of mean > 0.
        alpha: error probability, in (0, 0.5].

    Source: Fieller, Some Problems in Interval Estimation, 1954.
    """
    names = "ratio_interval: first and second"
    if len(first) != len(second):
        raise ValueError(f"{names} must be of equal length, got {len(first)} and {len(second)}")
    above, below = _sample(names, first), _sample(names, second)
    mean = float(below.mean())
    if not mean > 0.0:
        raise ValueError(f"ratio_interval: the mean of second must be > 0, got {mean}")
    ratio = float(above.mean()) / mean
    # The roots s of (mean of second * s)^2 = (t standard errors of first - (ratio + s) second)^2.
    t = _t_beyond(_tail(alpha), len(above) - 1)
    squares = t**2 / (len(above) * mean**2) * np.cov(above - ratio * below, below)
    rest = 1.0 - float(squares[1, 1])
    if rest <= 0.0:
        return Interval(ratio, -math.inf, math.inf)
    middle = -float(squares[0, 1]) / rest
    half = math.sqrt(middle**2 + float(squares[0, 0]) / rest)
    return Interval(ratio, ratio + middle - half, ratio + middle + half)


def holm(p_values: Sequence[float], level: Callable[[int], float], num_tests: Sequence[int] | None = None) -> set[int]:
    """The positions of the p-values that Holm's procedure rejects: the smallest first, while p <= level(tests left).

    Args:
        p_values: each in [0, 1].
        level: a number of tests, >= 1 -> the level of each, so that all of them err with a given probability.
        num_tests: how many tests each p-value is the smallest of, >= 1; None: one each.

    Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure, 1979.
    """
    if not all(0.0 <= p <= 1.0 for p in p_values):
        raise ValueError(f"holm: p_values must be in [0, 1], got {min(p_values)} to {max(p_values)}")
    counts = [1] * len(p_values) if num_tests is None else num_tests
    rejected = set[int]()
    order = sorted(range(len(p_values)), key=lambda position: p_values[position] * counts[position])
    for num_rejected, position in enumerate(order):
        if p_values[position] > level((len(order) - num_rejected) * counts[position]):
            break
        rejected.add(position)
    return rejected


def proportion_interval(successes: int, num: int, alpha: float = 0.05) -> Interval:
    """The exact interval, of confidence 1 - alpha or more, of a proportion.

    Args:
        successes: 0 .. num.
        num: trials, >= 1.
        alpha: error probability, in (0, 0.5].

    Source: Clopper and Pearson, The Use of Confidence or Fiducial Limits, 1934.
    """
    _check_count(successes, num)
    tail, failures = _tail(alpha), num - successes
    low = scipy.special.betaincinv(successes, failures + 1, tail) if successes else 0.0
    high = scipy.special.betaincinv(successes + 1, failures, 1 - tail) if failures else 1.0
    return Interval(successes / num, float(low), float(high))


def proportion_p(successes: int, num: int, bound: float, alternative: Side = "greater") -> float:
    """p-value of the exact one-sided binomial test: small where a proportion is beyond the bound.

    Args:
        successes: 0 .. num.
        num: trials, >= 1.
        bound: of the proportion, in [0, 1].
        alternative: what a small p speaks for: a proportion `greater` than the bound, or `less`.
    """
    _check_count(successes, num)
    if not 0.0 <= bound <= 1.0:
        raise ValueError(f"proportion_p: bound must be in [0, 1], got {bound}")
    is_less = alternative == "less"
    return float(
        scipy.special.bdtr(successes, num, bound) if is_less else scipy.special.bdtrc(successes - 1, num, bound)
    )


def restricted_times(times: Sequence[float | None], horizon: float) -> Array:
    """min(time, horizon) of each run, shape [n]: their mean is the restricted mean of runs that went to the horizon.

    Paired differences of them are for `mean_interval` and `mean_p`, pairs of them for `ratio_interval`.

    Args:
        times: at least one, >= 0 in any unit; None or infinite where the target was not reached by the horizon.
        horizon: finite, > 0, in the unit of the times.
    """
    if not _finite("restricted_times: horizon", horizon) > 0.0:
        raise ValueError(f"restricted_times: horizon must be > 0, got {horizon}")
    reached = np.array([math.inf if time is None else time for time in times], dtype=np.float64)
    if reached.size == 0 or not (reached >= 0.0).all():  # nan is not
        raise ValueError("restricted_times: times must be at least one, each None or >= 0")
    return np.minimum(reached, horizon)


def first_shares(values: Sequence[Sequence[float]]) -> list[float]:
    """How often each row has the least mean when the columns are resampled: bootstrap estimates of being the least.

    A tie is shared. For description, not for verdicts. The shares are the same each time.

    Args:
        values: a row each, of n >= 2 finite numbers; column i of all rows belongs together, such as runs of one seed.

    Returns:
        A share a row; together 1.

    Source: Efron, Bootstrap Methods: Another Look at the Jackknife, 1979.
    """
    rows = [_sample("first_shares: each row", row) for row in values]
    if not rows or len({len(row) for row in rows}) > 1:
        raise ValueError("first_shares: values must be rows of equal length, at least one")
    num = len(rows[0])
    weights = np.random.default_rng(0).multinomial(num, [1.0 / num] * num, size=RESAMPLES) / num
    means = np.stack(rows) @ weights.T
    is_first = means == means.min(axis=0)
    return [float(share) for share in (is_first / is_first.sum(axis=0)).mean(axis=1)]


def _mean_and_error(values: Array) -> tuple[float, float, int]:
    """Mean, its standard error, degrees of freedom; of equal values the error is exactly 0."""
    if np.ptp(values) == 0.0:
        return float(values[0]), 0.0, len(values) - 1
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values)), len(values) - 1


def _t_tail(t: float, df: int) -> float:
    """P(T > t) of Student's t; the checks of `scipy.stats.t.sf` would take twenty times as long."""
    return float(scipy.special.stdtr(df, -t))


def _t_beyond(tail: float, df: int) -> float:
    """The t with P(T > t) = tail."""
    return -float(scipy.special.stdtrit(df, tail))


def _tail(alpha: float) -> float:
    """The error probability on each side, of a checked alpha."""
    if not 0.0 < alpha <= 0.5:
        raise ValueError(f"alpha must be in (0, 0.5], got {alpha}")
    return alpha / 2.0


def _check_count(successes: int, num: int) -> None:
    if num < 1 or not 0 <= successes <= num:
        raise ValueError(f"successes must be in 0 .. num and num >= 1, got {successes} of {num}")


def _finite(name: str, value: float) -> float:
    if not math.isfinite(value):
        raise ValueError(f"{name} must be finite, got {value}")
    return value


def _sample(name: str, values: Sequence[float], least: int = 2) -> Array:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) < least or not np.isfinite(array).all():
        raise ValueError(f"{name} must be {least} or more finite numbers, got {values}")
    return array
