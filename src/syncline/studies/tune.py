"""Tuning: the value of one key, such as the learning rate, or of several, for each row of an experiment or a sweep.

A row is tried on a grid of values, centre * factor^step, in two rounds of stages.

    screen   each value of every row, with the first tuning seed, for a share of the run's length. The schedule of the
             learning rate is not compressed: such a run is the beginning of the full one. If the best value of any row
             lies at an end of the grid, the grid is extended by two values at this end for all rows, at most
             `extensions` times. A value beyond the first grid with which a row is no valid run counts as lost.
    full     the best `finalists` values of every row, at full length with all tuning seeds. The best of them should
             have been held against both its neighbours on the grid, or lost the neighbour in the screening: where it
             has not, the row has the neighbour made, too, and every other row the value that was next best in its
             screening, at most `extensions` times.

Each row has the same number of trials, since who has more of them finds a better best. The choice is the value with the
best score. How sure that is, a parabola in the logarithm of the value tells, through the best score and those of both
neighbours: its peak lies within half a step of the choice, and has a standard error.

Of several keys the settings to be tried are declared, as many for each row. They have no order: nothing is extended, a
setting has no neighbours, and the best of the finalists is the choice.

Runs are scored by their metric over the last quarter of their length, or with a `goal` by their seconds to it.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

from syncline.studies.goals import Goal, score_of, time_score
from syncline.studies.grid import best_step, in_order, peak, runner_up, unheld
from syncline.studies.study import Answer, Completed, Outcome, Records, Score, Stage, Trial, first_absent

MOST_EXTENSIONS = 3  # of the grid, and of the values at full length, by default
EXTENSION = 2  # values at an end of the grid
TARGET_SHARE = 0.95  # of the baseline's score: the target of times

Scores = dict[str, dict[int, Score]]
"""Label -> step on the grid -> score."""

Stages = Generator[Stage, None, Scores]


@dataclass(frozen=True, slots=True)
class Row:
    """A row to be tuned."""

    label: str
    overrides: tuple[str, ...]  # without the seed
    center: float  # of its grid, > 0
    baseline: str | None  # label of the row whose value it takes in the arm `same`
    settings: tuple[tuple[str, ...], ...] = ()  # of several keys: the overrides of each, tried in place of a grid
    epochs: float | None = None  # the limits of its length; at least one is set
    max_updates: int | None = None
    max_time_s: float | None = None

    def length(self, share: Fraction) -> tuple[str, ...]:
        """Overrides that end a run after this share of its length."""
        if share == 1:
            return ()
        epochs, updates, time_s = self.epochs, self.max_updates, self.max_time_s
        return (
            *([] if epochs is None else [f"epochs={plain(epochs * share)}"]),
            *([] if updates is None else [f"max_updates={math.ceil(updates * share)}"]),
            *([] if time_s is None else [f"max_time_s={plain(time_s * share)}"]),
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """What was found for a row."""

    label: str
    overrides: tuple[str, ...]  # of the row
    value: float | None  # its value, or number of its setting, in the arm `own`; None: all diverged or failed
    words: tuple[str, ...]  # what sets it
    score: float | None  # the mean at this value over the tuning seeds, with its standard error
    error: float | None
    peak: float | None  # of the parabola; None: the best was not held against both neighbours
    factor: float | None  # its standard error as a factor, >= 1: from peak / factor to peak * factor
    same: float | None  # its value in the arm `same`, that of its baseline; None: there is no baseline
    remark: str  # what is doubtful; "": nothing


@dataclass(frozen=True, slots=True)
class Target:
    """A target for times that is fixed by the tuning seeds."""

    label: str  # of a baseline
    score: float  # at its chosen value
    value: float  # TARGET_SHARE of the score; where lower is better, the score divided by it


@dataclass(frozen=True, slots=True)
class Tuned:
    """The answer, with both arms: each row at its own value, and all rows at that of their baseline."""

    key: str  # or keys, divided by spaces
    metric: str
    lower_is_better: bool
    num_trials: int  # of each row
    choices: tuple[Choice, ...]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Tuning:
    """The declaration. Ranges are those of `TuneConfig`."""

    rows: tuple[Row, ...]  # labels differ; all have as many settings, or none has any
    key: str = "optimizer.lr"  # of the grids; of settings all keys, divided by spaces
    factor: float = 2.0  # between neighbours on the grid, > 1
    points: int = 7  # of the grid before it is extended, odd
    seeds: tuple[int, ...] = (1000, 1001, 1002)  # the first one screens
    validation: float = 0.2  # share of the training data by which runs are judged; test data are never touched
    screen: Fraction = Fraction(1, 3)  # share of the length
    finalists: int = 3
    goal: Goal | None = None  # rows then have a length in seconds, max_time_s, and runs end where they reach it
    extensions: int = MOST_EXTENSIONS
    is_valid: Callable[[Sequence[str]], bool] = lambda overrides: True  # of a run; asked beyond the first grid

    def __post_init__(self) -> None:
        assert self.rows, "no rows"
        assert len({row.label for row in self.rows}) == len(self.rows), "labels must differ"
        assert len({len(row.settings) for row in self.rows}) == 1, "rows have different numbers of settings"
        assert self.has_settings or self.points % 2 == 1, "no centre"
        assert 1 <= self.finalists <= self.points, "more finalists than points"
        assert self.goal is None or all(row.max_time_s for row in self.rows), "no length in seconds"

    def next(self, records: Records) -> Stage | Answer[Tuned]:
        """The first stage that is not complete, or the answer."""
        return first_absent(self.stages(records), records)

    @property
    def has_settings(self) -> bool:
        return bool(self.rows[0].settings)

    def value(self, row: Row, step: int) -> float:
        """A value of the row's grid, with six digits; the number of a setting, from 1."""
        return float(step) if row.settings else float(plain(row.center * self.factor**step))

    def words(self, row: Row, step: int) -> tuple[str, ...]:
        """What sets this value or setting."""
        return row.settings[step - 1] if row.settings else (f"{self.key}={plain(self.value(row, step))}",)

    def trials(self, row: Row, step: int, seeds: Sequence[int], share: Fraction) -> list[Trial]:
        """The runs of a row with this value; without a goal a target would end them at different lengths."""
        target = "null" if self.goal is None else plain(self.goal.value)
        words = [*row.overrides, f"dataset.validation={plain(self.validation)}", f"target.value={target}"]
        values = self.words(row, step)
        words += [*row.length(share), *values]
        setting = f"{' '.join(values)}/{'full' if share == 1 else 'screen'}"
        return [Trial(row.label, (*words, f"seed={seed}"), setting) for seed in seeds]

    def stages(self, records: Records) -> Generator[Stage, None, Answer[Tuned]]:
        """Its stages in order; each is to be complete before the next is asked for."""
        completed = list[Completed]()
        screened = yield from self._screened(records, completed)
        full = yield from self._full(records, completed, screened)
        numbers = {len(screened[label]) + len(self.seeds) * len(full[label]) for label in screened}
        assert len(numbers) == 1, f"rows have different numbers of trials: {numbers}"
        return Answer(self._tuned(screened, full, numbers.pop()), tuple(completed))

    def _screened(self, records: Records, completed: list[Completed]) -> Stages:
        """The scores of the screening; the grid is extended until the best of each row lies within it."""
        found, half = self._nothing(), self.points // 2
        steps = list(range(1, self.points + 1)) if self.has_settings else list(range(-half, half + 1))
        for number in range(self.extensions + 1):
            name = f"screen {number + 1}"
            wanted = dict.fromkeys(found, steps)
            scores = yield from self._made(records, completed, name, wanted, self.seeds[:1], self.screen)
            _add(found, scores)
            best = {label: best_step(grid) for label, grid in found.items()}
            words = [f"{row.label}: best {self._told(found, row, best[row.label])}" for row in self.rows]
            first, last = (end(next(iter(found.values()))) for end in (min, max))
            steps = [
                *(range(first - EXTENSION, first) if first in best.values() else ()),
                *(range(last + 1, last + EXTENSION + 1) if last in best.values() else ()),
            ]
            at_ends = [] if self.has_settings else [label for label, step in best.items() if step in (first, last)]
            if at_ends:
                more = (
                    f"extended by {len(steps)} values for all rows"
                    if number < self.extensions
                    else "not extended further"
                )
                words.append(f"the grid is {more}: at its end lies the best of {', '.join(at_ends)}")
            completed.append(_completed(name, scores, words))
            if not at_ends:
                break
        return found

    def _full(self, records: Records, completed: list[Completed], screened: Scores) -> Stages:
        """The scores at full length, of as many values of each row."""
        found = self._nothing()
        wanted = {label: sorted(in_order(grid)[: self.finalists]) for label, grid in screened.items()}
        for number in range(self.extensions + 1):
            name = f"full {number + 1}"
            scores = yield from self._made(records, completed, name, wanted, self.seeds, Fraction(1))
            _add(found, scores)
            best = {label: best_step(grid) for label, grid in found.items()}
            words = [f"{row.label}: best {self._told(found, row, best[row.label])}" for row in self.rows]
            open_steps = {
                label: steps for label, grid in found.items() if (steps := self._unheld(grid, screened[label]))
            }
            if open_steps:
                more = "each row has one more value made" if number < self.extensions else "no more values are made"
                words.append(f"{more}: not held against both neighbours is the best of {', '.join(open_steps)}")
            completed.append(_completed(name, scores, words))
            if not open_steps:
                break
            wanted = {
                label: [open_steps[label][0] if label in open_steps else runner_up(grid, screened[label])]
                for label, grid in found.items()
            }
        return found

    def _made(
        self,
        records: Records,
        completed: Sequence[Completed],
        name: str,
        wanted: Mapping[str, Sequence[int]],
        seeds: Sequence[int],
        share: Fraction,
    ) -> Stages:
        """Yields the stage of these steps of each row; returns their scores."""
        trials = {
            (row, step): self.trials(row, step, seeds, share) if self._can_be_run(row, step) else []
            for row in self.rows
            for step in wanted[row.label]
        }
        yield Stage(name, tuple(chain.from_iterable(trials.values())), tuple(completed))
        scores = self._nothing()
        for (row, step), own in trials.items():
            outcomes = [records(trial) for trial in own] or [Outcome("failed")]
            scores[row.label][step] = self._score(row, step, outcomes, share)
        return scores

    def _can_be_run(self, row: Row, step: int) -> bool:
        is_first_grid = bool(row.settings) or abs(step) <= self.points // 2
        return is_first_grid or self.is_valid((*row.overrides, *self.words(row, step)))

    def _unheld(self, full: Mapping[int, Score], screened: Mapping[int, Score]) -> list[int]:
        return [] if self.has_settings else unheld(full, screened)

    def _score(self, row: Row, step: int, outcomes: Sequence[Outcome], share: Fraction) -> Score:
        value = self.value(row, step)
        if self.goal is None:
            return score_of(row.label, value, outcomes)
        assert row.max_time_s is not None
        return time_score(row.label, value, outcomes, self.goal, row.max_time_s * float(share))

    def _nothing(self) -> Scores:
        return {row.label: {} for row in self.rows}

    def _tuned(self, screened: Scores, full: Scores, num_trials: int) -> Tuned:
        steps = {label: best_step(grid) for label, grid in full.items()}
        values = {
            row.label: None if full[row.label][steps[row.label]].mean is None else self.value(row, steps[row.label])
            for row in self.rows
        }
        choices = tuple(self._choice(row, screened[row.label], full[row.label], values) for row in self.rows)
        judged = next((score for grid in full.values() for score in grid.values() if score.metric), None)
        metric, is_lower = (judged.metric, judged.lower_is_better) if judged else ("", False)
        baselines = dict.fromkeys(row.baseline for row in self.rows if row.baseline)
        scores = {choice.label: choice.score for choice in choices if choice.score is not None}
        targets = tuple(
            Target(label, scores[label], scores[label] / TARGET_SHARE if is_lower else scores[label] * TARGET_SHARE)
            for label in baselines
            if label in scores
        )
        return Tuned(self.key, metric, is_lower, num_trials, choices, targets)

    def _choice(
        self, row: Row, screened: Mapping[int, Score], full: Mapping[int, Score], values: Mapping[str, float | None]
    ) -> Choice:
        value, found = values[row.label], None if self.has_settings else peak(full)
        same = values[row.baseline] if row.baseline else None
        if value is None:
            why = "every value diverged or failed"
            return Choice(row.label, row.overrides, None, (), None, None, None, None, same, why)
        score = next(score for score in full.values() if score.at == value)
        words = self.words(row, best_step(full))
        remark = "the best was not held against both neighbours" if self._unheld(full, screened) else ""
        at = None if found is None else float(plain(row.center * self.factor**found.place))
        factor = None if found is None or found.error is None else float(plain(self.factor**found.error))
        return Choice(row.label, row.overrides, value, words, score.mean, score.error, at, factor, same, remark)

    def _told(self, found: Scores, row: Row, step: int) -> str:
        """A value and its score in words."""
        score = found[row.label][step]
        value = f"setting {step}, {' '.join(self.words(row, step))}" if row.settings else plain(score.at)
        if score.mean is None:
            return f"{value}, though all diverged or failed"
        error = "" if score.error is None else f" ± {score.error:.2g}"
        return f"{value} ({score.metric} {score.mean:.4g}{error})"


def plain(number: float | Fraction) -> str:
    """A number with six digits."""
    return f"{float(number):.6g}"


def _add(found: Scores, more: Scores) -> None:
    for label, grid in more.items():
        found[label] |= grid


def _completed(name: str, scores: Scores, decisions: Sequence[str]) -> Completed:
    flat = tuple(grid[step] for grid in scores.values() for step in sorted(grid))
    return Completed(name, sum(score.num for score in flat), flat, tuple(decisions))
