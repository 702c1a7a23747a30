"""The protocol of studies.

A study is a frozen declaration with one function, `next(records)`, which returns the trials that are to be made now, or
the answer. It is asked again and again; between two questions the trials of its stage are made. All its decisions are
derived from the records at each question, so a study that was broken off goes on by being asked again, from any set of
records, and anyone can derive the decisions once more.

These files may hold: pure functions of numbers. They may not hold: I/O, clocks, random numbers, configs.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Trial:
    """A run that a study needs. Two trials may turn out to be the same run, which is made once."""

    label: str  # of its row
    overrides: tuple[str, ...]  # of the default config, the seed included
    setting: str = ""  # what sets it apart from other trials of its row with this seed: optimizer.lr=0.1/full

    @property
    def name(self) -> str:
        """The row and the setting."""
        return f"{self.label}/{self.setting}" if self.setting else self.label


class Evaluation(NamedTuple):
    """A point of a run's curve."""

    epoch: float  # of the whole training set
    time_s: float  # virtual or wall seconds
    value: float  # of the metric by which the run is judged
    updates: int = 0  # of the (first) shard by then


@dataclass(frozen=True, slots=True)
class Counts:
    """What a run did and what it took."""

    time_s: float  # virtual or wall seconds
    updates: int
    used: int  # gradients in updates
    wasted: int  # gradients that were discarded or interrupted
    computed: int  # gradients, to the end: used, discarded, or interrupted too late
    mean_staleness: float  # updates; 0 of a collective
    least_share: float  # gradients in updates of the worker that has the fewest, over the workers' mean; 1: all alike
    wall_s: float  # in which it was made

    @property
    def begun(self) -> int:
        """Gradients that were computed, wholly or in part."""
        return self.used + self.wasted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a trial left behind."""

    status: Literal["finished", "failed", "absent"]  # absent: not begun, or interrupted
    metric: str = ""  # by which the run is judged; "": nothing was learned
    lower_is_better: bool = False
    curve: tuple[Evaluation, ...] = ()  # in order; of a run that diverged, up to there
    diverged: bool = False
    counts: Counts | None = None  # None: it is not finished

    @property
    def is_lost(self) -> bool:
        """It was made, but learned nothing that could be judged."""
        return self.status == "failed" or (self.status == "finished" and (self.diverged or not self.curve))


ABSENT = Outcome("absent")

Records = Callable[[Trial], Outcome]
"""Maps each trial to what it left behind."""


@dataclass(frozen=True, slots=True)
class Score:
    """What the runs of a row achieved under one setting."""

    label: str  # of the row
    at: float  # the setting: the value of the key that is tuned
    mean: float | None  # over the runs; None, the worst: at least one was lost
    error: float | None  # standard error of the mean; None: fewer than two runs, or one was lost
    num: int  # runs
    metric: str = ""  # "": all were lost
    lower_is_better: bool = False

    @classmethod
    def of(cls, label: str, at: float, found: Sequence[float | None], metric: str, lower_is_better: bool) -> "Score":
        """Of the score of each run; None where it was lost."""
        kept = [score for score in found if score is not None]
        num, is_lost = len(found), len(kept) < len(found)
        mean = None if is_lost else fmean(kept)
        error = stdev(kept) / math.sqrt(num) if num > 1 and not is_lost else None
        return cls(label, at, mean, error, num, metric, lower_is_better)

    @property
    def worth(self) -> float:
        """Higher is better, whatever the metric."""
        if self.mean is None:
            return -math.inf
        return -self.mean if self.lower_is_better else self.mean


@dataclass(frozen=True, slots=True)
class Completed:
    """A stage whose trials are all made."""

    name: str
    num_trials: int
    scores: tuple[Score, ...]
    decisions: tuple[str, ...]  # what was concluded, each with its reason


@dataclass(frozen=True, slots=True)
class Stage:
    """Trials to be made; at least one of them is absent."""

    name: str
    trials: tuple[Trial, ...]  # all of the stage; some may have been made before
    completed: tuple[Completed, ...]  # the stages before it
    before: tuple[Trial, ...] = ()  # their trials


@dataclass(frozen=True, slots=True)
class Answer(Generic[Result]):
    """The end of a study."""

    result: Result  # a dataclass of plain values
    completed: tuple[Completed, ...]
    before: tuple[Trial, ...] = ()  # all trials


class Study(Protocol[Result]):
    """A frozen declaration: a dataclass of plain values."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def next(self, records: Records) -> Stage | Answer[Result]:
        """The first stage of which a trial is absent; the answer if there is none."""
        ...


def first_absent(stages: Generator[Stage, None, Answer[Result]], records: Records) -> Stage | Answer[Result]:
    """The first stage of which a trial is absent, else the answer.

    Args:
        stages: yields its stages in order, and goes on only when all trials of the last one are there.
    """
    before: tuple[Trial, ...] = ()
    while True:
        try:
            stage = next(stages)
        except StopIteration as end:
            answer: Answer[Result] = end.value
            return replace(answer, before=before)
        if any(records(trial).status == "absent" for trial in stage.trials):
            return replace(stage, before=before)
        before += stage.trials
