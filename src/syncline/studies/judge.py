"""Judging: how many seeds, and which verdicts on the claims of an experiment.

The seeds are looked at several times. The first look takes every row of the experiment with so many of its seeds; then
its claims are judged, at a level that allows for all looks (sequential.py). A further look takes only the rows that
undecided claims rest on. The study stops when no claim asks for more seeds, and at the last look. A claim that is
decided stays as it is.

How a claim is judged is not known here: a function gives the verdicts on the runs that were made.

Source of the rule: Pocock, Group Sequential Methods in the Design and Analysis of Clinical Trials, 1977.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from syncline.studies.study import Answer, Completed, Records, Stage, Trial, first_absent


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the experiment."""

    label: str
    overrides: tuple[str, ...]  # without the seed


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a claim after a look."""

    claim: str  # "dssp.hetero_time"
    verdict: str  # in the words of the reports
    because: str
    num_seeds: int  # by which it was judged; 0: it was not
    needs: tuple[str, ...]  # rows of this experiment with which more seeds may decide it; (): none may


@dataclass(frozen=True, slots=True)
class Judged:
    """The answer."""

    num_seeds: int  # of the last look
    claims: tuple[Judgement, ...]


Verdicts = Callable[[Sequence[Trial]], Sequence[Judgement]]
"""Maps the trials of a look and those before it, all of which are made, to the verdict on each claim."""


@dataclass(frozen=True, slots=True)
class Judging:
    """The declaration."""

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]  # of the last look, in the order in which they are made
    looks: tuple[int, ...]  # numbers of seeds, growing
    verdicts: Verdicts

    def __post_init__(self) -> None:
        assert self.rows, "no rows"
        assert all(low < high for low, high in pairwise((0, *self.looks))), "looks must grow"
        assert len(set(self.seeds)) == len(self.seeds) == self.looks[-1], "a seed for each run of the last look"

    def next(self, records: Records) -> Stage | Answer[Judged]:
        """The first look of which a run is absent, or the answer."""
        return first_absent(self._stages(), records)

    def num_asking(self, stage: Stage) -> int:
        """Claims that ask for this stage, a second look or a later one."""
        return sum(bool(judgement.needs) for judgement in self.verdicts(stage.before))

    def _stages(self) -> Generator[Stage, None, Answer[Judged]]:
        completed, made, rows = tuple[Completed, ...](), tuple[Trial, ...](), self.rows
        for number, (before, size) in enumerate(pairwise((0, *self.looks)), 1):
            name = f"look {number}"
            trials = tuple(
                Trial(row.label, (*row.overrides, f"seed={seed}")) for row in rows for seed in self.seeds[before:size]
            )
            yield Stage(name, trials, completed)
            made += trials
            found = tuple(self.verdicts(made))
            completed += (Completed(name, len(trials), (), tuple(map(_told, found))),)
            needed = {label for judgement in found for label in judgement.needs}
            rows = tuple(row for row in rows if row.label in needed)
            if not rows:
                break
        return Answer(Judged(size, found), completed)


def _told(judgement: Judgement) -> str:
    return f"{judgement.claim} {judgement.verdict}: {judgement.because}"
