"""The order of a race's contenders, from the times of their runs.

Times are compared seed by seed by the logarithm of their ratio, with Student's test; a run that misses the target
counts as the length of the race, which favours it. Of m contenders, one is behind another where p <= level, with the
level of several looks (sequential.py) for an error of alpha / m, unless the times are found to differ by less than the
margin. A wrong one is then named first with a probability of at most alpha, as the best must be found behind one of the
m - 1 others. Where all are equal, so is any of them: each is named only if it is ahead of all others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import combinations
from statistics import fmean

from syncline.sequential import pocock_level
from syncline.statistics import Interval, equivalence_p, first_shares, mean_interval, mean_p
from syncline.studies.goals import Goal, crossing, time_to
from syncline.studies.raced import Standing
from syncline.studies.study import Outcome

COARSE = 5  # evaluations by the target; with fewer, times are mostly interpolated
SHOWN = 0.05  # 1 - the confidence of the intervals that are shown
LEAST = 1e-6  # of the length of the race: the least time, whose logarithm is finite

level_of_looks = cache(pocock_level)


@dataclass(eq=False, slots=True)
class Contender:
    """An entrant with its tuned rate, and its runs so far."""

    label: str
    overrides: tuple[str, ...]  # without the seed
    rate: str  # or the words that set what was tuned
    remark: str
    outcomes: list[Outcome] = field(default_factory=list)  # by seed
    times: list[float | None] = field(default_factory=list)  # of these, seconds to the target; None: missed
    is_behind: bool = False  # another one, as was found


@dataclass(slots=True)
class Order:
    """The contenders, and who of them is behind whom.

    Args:
        alpha: probability of naming a wrong one first.
        margin: two are equally fast if their times differ by less than this share.
    """

    contenders: Sequence[Contender]
    goal: Goal
    targets: Sequence[float]
    length_s: float
    looks: tuple[int, ...]
    alpha: float
    margin: float
    ended_by: str = ""  # why there are no more seeds; "": it is decided

    @property
    def level(self) -> float:
        """Of each test."""
        return level_of_looks(self.alpha / max(2, len(self.contenders)), self.looks)

    @property
    def remaining(self) -> list[Contender]:
        """Those that are behind nobody."""
        return [each for each in self.contenders if not each.is_behind]

    @property
    def is_decided(self) -> bool:
        return len(self.remaining) == 1 or self.are_equal

    @property
    def are_equal(self) -> bool:
        """Whether all that remain are equally fast, within the margin."""
        return all(self._are_equal(one, other) for one, other in combinations(self.remaining, 2))

    def look(self, found: Mapping[Contender, Sequence[Outcome]]) -> list[str]:
        """Take the runs of further seeds of all that remain. Returns what was decided."""
        for contender, outcomes in found.items():
            contender.outcomes += outcomes
            contender.times += (time_to(outcome, self.goal) for outcome in outcomes)
        words, remaining = [], self.ordered()[: len(self.remaining)]
        for other in remaining:
            one = next((each for each in remaining if self._is_behind(other, each)), None)
            if one is not None:
                other.is_behind = True
                ratio = _ratio(self._differences(other, one))
                words.append(f"{other.label} is behind {one.label}: it takes {_told(ratio)} times as long")
        places = ", ".join(f"{each.label} {self.mean_s(each):.4g} s" for each in self.ordered())
        return [*words, f"order: {places}"]

    def ordered(self) -> list[Contender]:
        """The first ones first; those that were found behind by the seeds that they have, the last found first."""
        return sorted(self.contenders, key=lambda each: (each.is_behind, -len(each.outcomes), fmean(self.logs(each))))

    def verdict(self) -> tuple[str, str]:
        """The verdict in a word and in a sentence."""
        first, *others = self.ordered()
        metric, remaining = self.goal.metric, self.remaining
        target = f"{metric} {self.goal.value:g}".strip()
        if not any(time is not None for time in first.times):
            return "nobody", f"Nobody reached {target} in {self.length_s:.4g} s."
        if len(remaining) == 1:
            after = f"{first.label} reaches {target} first: after {_told(self._seconds(first))} s"
            if not others:
                return "first", f"{after}; no other was judged."
            ratio = _ratio(self._differences(others[0], first))
            return "first", f"{after}; {others[0].label} takes {_told(ratio)} times as long."
        names = [each.label for each in self.ordered()[: len(remaining)]]
        listed = f"{', '.join(names[:-1])} and {names[-1]}"
        if self.are_equal:
            ahead = ", and ahead of all others" if len(names) < len(self.contenders) else ""
            return "equal", f"{listed} are equally fast, within {100.0 * self.margin:g} %{ahead}."
        ratios = [_ratio(self._differences(one, other)) for one, other in combinations(remaining, 2)]
        most = max(max(ratio.upper, 1.0 / ratio.lower) for ratio in ratios) - 1.0
        size = f"{100.0 * most:.2g} %" if most < 1.0 else f"{1.0 + most:.2g} times"
        between = f"Undecided between {listed} (difference below {size})"
        return "undecided", f"{between}: {self.ended_by}."

    def standings(self) -> tuple[Standing, ...]:
        """All contenders in their order."""
        ordered, remaining = self.ordered(), self.remaining
        chances: dict[int, float] = {}
        if all(len(each.outcomes) > 1 for each in remaining):
            shares = first_shares([self.logs(each) for each in remaining])
            chances = {id(each): share for each, share in zip(remaining, shares, strict=True)}
        return tuple(self._standing(each, ordered[0], chances.get(id(each))) for each in ordered)

    def logs(self, contender: Contender) -> list[float]:
        """Logarithms of the seconds by seed; a miss counts as the length of the race."""
        least = LEAST * self.length_s
        return [math.log(max(least, self.length_s if time is None else time)) for time in contender.times]

    def mean_s(self, contender: Contender) -> float:
        """Seconds to the target, a miss as the length of the race."""
        return self._mean_to(contender, self.goal)

    def wall_s(self) -> float:
        """Wall seconds of a further seed of all that remain."""
        means = (
            fmean(outcome.counts.wall_s if outcome.counts else 0.0 for outcome in each.outcomes)
            for each in self.remaining
        )
        return sum(means)

    def mean_updates(self, contender: Contender) -> float | None:
        """Updates to the target, over the seeds that all contenders have; None: one of the runs missed it."""
        num = min(len(each.outcomes) for each in self.contenders)
        found = [crossing(outcome.curve, self.goal) for outcome in contender.outcomes[:num]]
        reached = [point.updates for point in found if point is not None]
        return fmean(reached) if len(reached) == num else None

    def _remark(self, contender: Contender) -> str:
        """What is doubtful of its rate or of its times."""
        reached = [outcome.curve for outcome in contender.outcomes if crossing(outcome.curve, self.goal)]
        before = [sum(not self.goal.is_reached(point.value) for point in curve) for curve in reached]
        is_coarse = bool(before) and fmean(before) < COARSE
        coarse = f"the target lies between its first {COARSE} evaluations: a smaller eval_every_epochs tells more"
        return "; ".join([*filter(None, [contender.remark]), *([coarse] if is_coarse else [])])

    def _are_equal(self, one: Contender, other: Contender) -> bool:
        """Whether their times differ by less than the margin. A miss has no time that could be equal to another."""
        times = [time for pair in zip(one.times, other.times, strict=False) for time in pair]
        return None not in times and equivalence_p(self._differences(one, other), math.log1p(self.margin)) <= self.level

    def _is_behind(self, one: Contender, other: Contender) -> bool:
        """Whether it is slower than the other, and not by less than the margin."""
        is_slower = one is not other and mean_p(self._differences(one, other)) <= self.level
        return is_slower and not self._are_equal(one, other)

    def _mean_to(self, contender: Contender, goal: Goal) -> float:
        times = [time_to(outcome, goal) for outcome in contender.outcomes]
        if times.count(None) == len(times):
            return self.length_s  # the mean of equal numbers may be below them
        return fmean(self.length_s if time is None else time for time in times)

    def _differences(self, one: Contender, other: Contender) -> list[float]:
        """log(time of one / time of other) by seed, of the seeds of both."""
        return [first - second for first, second in zip(self.logs(one), self.logs(other), strict=False)]

    def _seconds(self, contender: Contender) -> Interval:
        return mean_interval([self.length_s if time is None else time for time in contender.times], SHOWN)

    def _standing(self, contender: Contender, first: Contender, chance: float | None) -> Standing:
        seconds, ratio = self._seconds(contender), _ratio(self._differences(contender, first))
        counts = [outcome.counts for outcome in contender.outcomes if outcome.counts is not None]
        updates = sum(each.updates for each in counts)
        further = (
            self._mean_to(contender, Goal(value, self.goal.lower_is_better, self.goal.metric)) for value in self.targets
        )
        times = contender.times
        return Standing(
            contender.label,
            contender.overrides,
            contender.rate,
            len(times),
            len(times) - times.count(None),
            seconds.estimate,
            seconds.lower,
            seconds.upper,
            ratio.estimate,
            ratio.lower,
            ratio.upper,
            chance,
            sum(each.wasted for each in counts) / max(1, sum(each.begun for each in counts)),
            sum(each.mean_staleness for each in counts) / max(1, len(counts)),
            sum(each.time_s for each in counts) / max(1, updates),
            self._remark(contender),
            tuple(times),
            tuple(further),
        )


def _ratio(differences: Sequence[float]) -> Interval:
    """The geometric mean of ratios with its interval, from their logarithms."""
    found = mean_interval(differences, SHOWN)
    return Interval(math.exp(found.estimate), math.exp(found.lower), math.exp(found.upper))


def _told(interval: Interval) -> str:
    return f"{interval.estimate:.3g} ({interval.lower:.3g} to {interval.upper:.3g})"
