"""Several races together: the performance profile of each entrant, and its score.

A case is a race and one of its targets. An entrant that was not judged there, or missed the target, never reached it.

Source: Dolan and Moré, Benchmarking Optimization Software with Performance Profiles, 2002. The score, the area under
the profile up to four times the best time: Dahl et al., Benchmarking Neural Network Training Algorithms, 2023.
"""

import math
from collections.abc import Mapping, Sequence

MOST = 4.0  # times the best time

Case = Mapping[str, float]
"""Entrant -> seconds to the target; inf, or left out: it never reached it."""


def ratios(cases: Sequence[Case]) -> dict[str, list[float]]:
    """Entrant -> its time over the best one's, by case; inf where it, or everyone, never reached the target."""
    labels = dict.fromkeys(label for case in cases for label in case)
    best = [min(case.values(), default=math.inf) for case in cases]
    return {
        label: [ratio(case.get(label, math.inf), least) for case, least in zip(cases, best, strict=True)]
        for label in labels
    }


def ratio(own: float, least: float) -> float:
    """A time over the best one, 1 where it is the best; inf if it, or both, are infinite, or the best alone is 0."""
    if math.isinf(own) or not least:
        return 1.0 if own == 0.0 else math.inf
    return own / least


def staircase(own: Sequence[float]) -> tuple[list[float], list[float]]:
    """The profile of an entrant with these ratios: at tau, the share of cases in which it takes at most tau times the
    best time. As corners (tau, share) from 1 to MOST."""
    reached = sorted(ratio for ratio in own if ratio <= MOST)
    at_once = sum(ratio <= 1.0 for ratio in reached)
    places, shares = [1.0], [at_once / len(own)]
    for count, ratio in enumerate(reached[at_once:], at_once + 1):
        places += [ratio, ratio]
        shares += [shares[-1], count / len(own)]
    return [*places, MOST], [*shares, shares[-1]]


def score(own: Sequence[float]) -> float:
    """The area under the profile from 1 to MOST, over its width: 1 for an entrant that is first in every case."""
    return sum(max(0.0, MOST - ratio) for ratio in own) / ((MOST - 1.0) * len(own))
