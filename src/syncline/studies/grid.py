"""Decisions on one row's grid: a mapping from steps, whole numbers around 0 at the centre, to scores."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from syncline.studies.study import Score

Grid = Mapping[int, Score]


def in_order(grid: Grid) -> list[int]:
    """The steps, the best first; equal ones by their distance from the centre, then the smaller first."""
    return sorted(grid, key=lambda step: (-grid[step].worth, abs(step), step))


def best_step(grid: Grid) -> int:
    """The best step; where all are lost the smallest, since it is large values that diverge."""
    return min(grid) if all(score.mean is None for score in grid.values()) else in_order(grid)[0]


class Peak(NamedTuple):
    """Where a parabola through three scores is highest, in steps."""

    place: float  # within half a step of the best
    error: float | None  # its standard error; None: a score has none


def peak(grid: Grid) -> Peak | None:
    """Of a parabola through the best step and both its neighbours; None where one is lost or absent, or all are equal.

    The error is that of the three means, as if they were independent (first order).
    """
    best = best_step(grid)
    three = [grid.get(step) for step in (best - 1, best, best + 1)]
    if not all(score is not None and score.mean is not None for score in three):
        return None
    left, top, right = (score.worth for score in three if score is not None)
    bend = left - 2.0 * top + right
    if bend == 0.0:
        return None
    errors = [score.error for score in three if score is not None and score.error is not None]
    slopes = [(right - top) / bend**2, (left - right) / bend**2, (top - left) / bend**2]
    error = math.hypot(*(slope * own for slope, own in zip(slopes, errors, strict=True))) if len(errors) == 3 else None
    return Peak(best + 0.5 * (left - right) / bend, error)


def unheld(full: Grid, screened: Grid) -> list[int]:
    """The neighbours of the best step that it was not held against at full length, the more promising first.

    A neighbour that was lost in the screening would be lost again, since the full run begins with the same steps.
    """
    best = best_step(full)
    if full[best].mean is None:
        return [best - 1]
    return by_promise(
        [step for step in (best - 1, best + 1) if step not in full and not _is_lost(screened, step)], screened
    )


def by_promise(steps: Sequence[int], screened: Grid) -> list[int]:
    """Steps by their scores in the screening; those that were not screened last, the smaller first."""
    return sorted(steps, key=lambda step: (-screened[step].worth if step in screened else math.inf, step))


def runner_up(full: Grid, screened: Grid) -> int:
    """The best step in the screening that was not made at full length; without one, the value below the smallest."""
    left = [step for step in in_order(screened) if step not in full]
    return left[0] if left else min(full) - 1


def _is_lost(grid: Grid, step: int) -> bool:
    return step in grid and grid[step].mean is None
