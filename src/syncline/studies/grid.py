"""Decisions on one row's grid: a mapping from steps, whole numbers around 0 at the centre, to scores."""

import math
from collections.abc import Mapping, Sequence

from syncline.studies.study import Score

Grid = Mapping[int, Score]


def in_order(grid: Grid) -> list[int]:
    """The steps, the best first; equal ones by their distance from the centre, then the smaller first."""
    return sorted(grid, key=lambda step: (-grid[step].worth, abs(step), step))


def best_step(grid: Grid) -> int:
    """The best step; where all are lost the smallest, since it is large values that diverge."""
    return min(grid) if all(score.mean is None for score in grid.values()) else in_order(grid)[0]


def chosen_step(grid: Grid) -> int | None:
    """The smallest step whose score is within one standard error, the best's own, of the best; None if all are lost."""
    best = grid[best_step(grid)]
    if best.mean is None:
        return None
    return min(step for step, score in grid.items() if score.worth >= best.worth - (best.error or 0.0))


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
