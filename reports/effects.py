"""A number of a claim, the region that it is claimed to lie in, and what our seeds say about that.

A number is a mean over seeds (Student's test), a ratio of two such means (Fieller's, which is Student's test of first -
bound * second), or a share of seeds (exact binomial). Both sides of a comparison are run under the same seed, so with
the same delays, data order and initial weights (common random numbers), and are compared pair by pair.

Ratios of two strategies are ratios of means. The mean of ratios seed by seed is above 1 where both sides are alike
(Jensen's inequality), so that a test of it would find differences that are none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from reports.statistics import Sample
from syncline.statistics import holm, mean_interval, mean_p, proportion_interval, proportion_p, ratio_interval

HOLDS, FAILS, UNDECIDED, NOT_COMPARABLE = "holds", "fails", "undecided", "not comparable"
ROUNDING = 1e-9  # relative: numbers that differ by less are equal

Side = Literal["less", "greater"]


@dataclass(frozen=True, slots=True)
class Region:
    """Where a number is claimed to lie: from `low` to `high`, which belong to it unless it `is_strict`.

    `ours` is what of it is not in the paper's words: a margin, a level; empty: all of it is.
    """

    low: float = -math.inf
    high: float = math.inf
    is_strict: bool = False
    ours: str = ""

    @property
    def bounds(self) -> list[tuple[float, Side]]:
        """The finite bounds, each with the side of it that the region is on."""
        bounds: tuple[tuple[float, Side], ...] = ((self.low, "greater"), (self.high, "less"))
        return [(bound, side) for bound, side in bounds if math.isfinite(bound)]

    def text(self, digits: int) -> str:
        """As text: "≤ 1.00", "0.95 to 1.05"; strict: "< 1.00"."""
        low, high = (f"{bound:,.{digits}f}" for bound in (self.low, self.high))
        if math.isinf(self.low):
            return f"{'<' if self.is_strict else '≤'} {high}"
        return f"{'>' if self.is_strict else '≥'} {low}" if math.isinf(self.high) else f"{low} to {high}"


def above(bound: float) -> Region:
    """All that is larger."""
    return Region(low=bound, is_strict=True)


def below(bound: float) -> Region:
    """All that is smaller."""
    return Region(high=bound, is_strict=True)


def at_least(bound: float, ours: str = "") -> Region:
    """The bound, and all that is larger."""
    return Region(low=bound, ours=ours)


def at_most(bound: float, ours: str = "") -> Region:
    """The bound, and all that is smaller."""
    return Region(high=bound, ours=ours)


def around(middle: float, margin: float, ours: str) -> Region:
    """All that is as close to the middle, on either side."""
    return Region(middle - margin, middle + margin, ours=ours)


@dataclass(frozen=True, slots=True)
class Effect:
    """One number of a claim, and the region that the claim gives for it.

    Attributes:
        what: the number with its unit: "time of c = 28 / time of sync".
        sample: a value a seed. A seed without one leaves the effect undecided.
        region: where the claim says that the number lies.
        published: what the paper's text gives for the same number.
        over: as many values; the number is then mean(sample) / mean(over). None: it is mean(sample).
        is_share: values are 0 or 1; the number is the share of seeds with 1.
        equal: the number of two sides that are alike: 1 of a ratio, 0 of a difference. None: not a comparison of runs.
        size: the largest of the values that a difference is of; below ROUNDING of it the difference is none.
    """

    what: str
    sample: Sample
    region: Region = Region()
    published: float | None = None
    digits: int = 2
    over: Sample | None = None
    is_share: bool = False
    equal: float | None = None
    size: float = 0.0

    @property
    def flaw(self) -> str:
        """Why it must not be judged; empty if it may."""
        found = self.sample.flaw or (self.over.flaw if self.over is not None else "")
        return found or ("" if self.num_present else "no seed has a value")

    @property
    def num_seeds(self) -> int:
        return len(self.sample.values)

    @property
    def num_present(self) -> int:
        """Seeds with a finite value on both sides."""
        sides = zip(*(side.values for side in (self.sample, self.over) if side is not None), strict=True)
        return sum(all(value is not None and math.isfinite(value) for value in values) for values in sides)

    @property
    def can_be_judged(self) -> bool:
        """Every seed has a value, there are two or more, and no side has a flaw."""
        return not self.flaw and self.num_present == self.num_seeds >= 2 and (self.over is None or self.over.mean > 0.0)

    @property
    def estimate(self) -> float:
        """nan without a value."""
        if self.over is None:
            return self.sample.mean
        pairs = zip(self.sample.values, self.over.values, strict=True)
        both = [(value, by) for value, by in pairs if value is not None and by is not None]
        below = math.fsum(by for _, by in both)
        return math.fsum(value for value, _ in both) / below if below else math.nan

    @property
    def point(self) -> float | None:
        """The number where all seeds give the same; there is then no spread to test by, and it counts as certain."""
        if self.is_share or not self.can_be_judged:
            return None
        estimate = self.estimate
        others = [1.0] * self.num_seeds if self.over is None else self.over.present
        pairs = list(zip(self.sample.present, others, strict=True))
        size = max(self.size, *(abs(value) for value, _ in pairs))
        is_point = all(abs(value - estimate * other) <= ROUNDING * size for value, other in pairs)
        return estimate if is_point else None

    def interval(self, level: float) -> tuple[float, float]:
        """The interval that decides at this level: two-sided with error 2 * level; nan, nan where nothing is judged."""
        if not self.can_be_judged:
            return math.nan, math.nan
        point = self.point
        if point is not None:
            return point, point
        if self.is_share:
            found = proportion_interval(self._successes, self.num_seeds, 2.0 * level)
        elif self.over is not None:
            found = ratio_interval(self.sample.present, self.over.present, 2.0 * level)
        else:
            found = mean_interval(self.sample.present, 2.0 * level)
        return found.lower, found.upper

    @property
    def inside_p(self) -> float:
        """p-value of the test for "inside the region": of two one-sided tests (TOST) the larger one. 1: not judged."""
        is_inside = not self.region.is_strict
        return max((self._p(bound, side, is_inside) for bound, side in self.region.bounds), default=1.0)

    @property
    def outside_p(self) -> float:
        """p-value of the test for "outside the region": of `num_bounds` one-sided tests the smaller one."""
        opposite: dict[Side, Side] = {"less": "greater", "greater": "less"}
        is_outside = self.region.is_strict
        return min((self._p(bound, opposite[side], is_outside) for bound, side in self.region.bounds), default=1.0)

    @property
    def _successes(self) -> int:
        return sum(value == 1.0 for value in self.sample.present)

    def _p(self, bound: float, side: Side, counts_bound: bool) -> float:
        """Small where the number is beyond the bound on this side; `counts_bound`: a point on it is beyond it."""
        if not self.can_be_judged:
            return 1.0
        point = self.point
        if point is not None:
            beyond = point - bound if side == "greater" else bound - point
            slack = ROUNDING * max(abs(point), abs(bound), self.size)
            return 0.0 if beyond > slack or (counts_bound and beyond >= -slack) else 1.0
        if self.is_share:
            return proportion_p(self._successes, self.num_seeds, min(1.0, max(0.0, bound)), side)
        if self.over is None:
            return mean_p((self.sample - bound).present, 0.0, side)
        # Where the divisor may be 0, the interval has no ends, and nothing is decided.
        return max(mean_p((self.sample - bound * self.over).present, 0.0, side), mean_p(self.over.present))

    @property
    def region_text(self) -> str:
        return self.region.text(self.digits)


def of_ratio(
    what: str, first: Sample, second: Sample, region: Region, published: float | None = None, digits: int = 2
) -> Effect:
    """mean(first) / mean(second), two strategies under the same seeds."""
    return Effect(what, first, region, published, digits, over=second, equal=1.0)


def of_difference(
    what: str, first: Sample, second: Sample, region: Region, published: float | None = None, digits: int = 2
) -> Effect:
    """mean(first - second), two strategies under the same seeds."""
    size = max((abs(value) for value in (*first.present, *second.present)), default=0.0)
    return Effect(what, first - second, region, published, digits, equal=0.0, size=size)


def of_share(what: str, hits: Sample, region: Region) -> Effect:
    """The share of seeds with 1; a value is 0 or 1."""
    if not set(hits.present) <= {0.0, 1.0}:
        raise ValueError(f"{what}: values must be 0 or 1, got {hits.present}")
    return Effect(what, hits, region, is_share=True)


@dataclass(frozen=True, slots=True)
class Number:
    """An effect as it was judged together with the others of its claim."""

    effect: Effect
    verdict: str  # HOLDS, FAILS, UNDECIDED or NOT_COMPARABLE
    low: float  # of the interval that decides; nan where nothing is judged
    high: float

    @property
    def interval_text(self) -> str:
        digits = self.effect.digits
        return "—" if math.isnan(self.low) else f"{self.low:,.{digits}f} to {self.high:,.{digits}f}"

    @property
    def why(self) -> str:
        """One line on the effect's verdict; of an undecided one also which size is excluded."""
        effect = self.effect
        missing = effect.num_seeds - effect.num_present
        if effect.flaw:
            return f"{effect.what}: {effect.flaw}"
        if missing:
            return f"{effect.what}: {missing} of {effect.num_seeds} seeds have no value, and others decide nothing"
        if not effect.can_be_judged:
            few = effect.num_seeds < 2
            return f"{effect.what}: {'1 seed decides nothing' if few else 'the mean that divides is not above 0'}"
        claimed = f"claimed {effect.region_text}"
        if self.verdict != UNDECIDED:
            side = "inside" if self.verdict == HOLDS else "outside"
            return f"{effect.what}: {self.interval_text} lies {side}, {claimed}"
        if effect.equal == 0.0:
            size = max(abs(self.low), abs(self.high))
            excluded = f"a difference above {size:,.{effect.digits}f} is excluded"
            return f"{effect.what}: {excluded} ({self.interval_text}), {claimed}"
        kind = "the ratio" if effect.over is not None else "the share" if effect.is_share else "the number"
        return f"{effect.what}: {kind} lies between {self.interval_text.replace(' to ', ' and ')}, {claimed}"


def judged(effects: Sequence[Effect], level: Callable[[int], float]) -> list[Number]:
    """The effects of one claim, each with its verdict.

    An effect holds if the test for "inside" has p <= level(1): all of a claim must hold, so nothing is corrected
    (intersection-union). It fails by Holm's procedure over the tests for "outside", as one effect that fails refutes
    the claim; a region with two bounds counts twice. One of which a side has a flaw is not comparable.

    Args:
        effects: at least one.
        level: a number of tests, >= 1 -> the level of each p-value, so that all of them err with a given probability.
    """
    bounded = [effect for effect in effects if effect.region.bounds and not effect.flaw]
    rejected = holm([effect.outside_p for effect in bounded], level, [len(one.region.bounds) for one in bounded])
    failed = [bounded[position] for position in rejected]
    return [
        Number(effect, _verdict(effect, level(1), effect in failed), *effect.interval(level(1))) for effect in effects
    ]


def together(numbers: Sequence[Number]) -> str:
    """The verdict on the claim: one number that fails is enough, and all must hold."""
    verdicts = [number.verdict for number in numbers]
    return next((verdict for verdict in (FAILS, NOT_COMPARABLE, UNDECIDED) if verdict in verdicts), HOLDS)


def _verdict(effect: Effect, level: float, is_rejected: bool) -> str:
    if effect.flaw:
        return NOT_COMPARABLE
    return HOLDS if effect.inside_p <= level else FAILS if is_rejected else UNDECIDED
