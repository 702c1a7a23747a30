"""Judging of simulated runs: it errs as seldom as its level says, and makes no more seeds than its claims ask for."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
import scipy
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.sequential import pocock_level
from syncline.studies.judge import Judged, Judgement, Judging, Row
from syncline.studies.study import ABSENT, Answer, Outcome, Stage, Trial

LOOKS = (5, 10, 15, 20)
SEEDS = tuple(range(20))
ROWS = (Row("bsp", ("strategy=bsp",)), Row("asp", ("strategy=asp",)))
LABELS = tuple(row.label for row in ROWS)
ALPHA = 0.05
VERDICTS = {"greater": "holds", "less": "fails"}
FINISHED = Outcome("finished")


@cache
def corrected() -> float:
    """The level of each look."""
    return pocock_level(ALPHA, LOOKS)


def seeds_of(trials: Sequence[Trial], row: str) -> list[int]:
    return sorted(int(trial.overrides[-1].removeprefix("seed=")) for trial in trials if trial.label == row)


@dataclass
class Made:
    """Differences of two rows by seed, a claim a row of the array; each claims that its mean is above 0."""

    differences: np.ndarray  # claims x seeds
    level: float = field(default_factory=corrected)
    trials: dict[Trial, None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.p_values = {
            (size, side): scipy.stats.ttest_1samp(self.differences[:, :size], 0.0, axis=1, alternative=side).pvalue
            for size in LOOKS
            for side in VERDICTS
        }

    @property
    def study(self) -> Judging:
        return Judging(ROWS, SEEDS, LOOKS, self.verdicts)

    def records(self, trial: Trial) -> Outcome:
        return FINISHED if trial in self.trials else ABSENT

    def verdicts(self, trials: Sequence[Trial]) -> list[Judgement]:
        """The first look that decides counts."""
        seeds = seeds_of(trials, "asp")
        assert seeds == seeds_of(trials, "bsp") == list(SEEDS[: len(seeds)])
        assert set(trials) <= set(self.trials), "verdicts on runs that were not made"
        return [self._verdict(number, len(seeds)) for number in range(len(self.differences))]

    def _verdict(self, claim: int, num: int) -> Judgement:
        for size in (look for look in LOOKS if look <= num):
            for side, verdict in VERDICTS.items():
                if self.p_values[size, side][claim] <= self.level:
                    return Judgement(str(claim), verdict, f"by {size}", size, ())
        return Judgement(str(claim), "undecided", f"by {num}", num, LABELS)

    def answer(self, most: int | None = None) -> Judged | None:
        """Ask, make what is absent, ask again; None once `most` runs were made."""
        while isinstance(step := self.study.next(self.records), Stage):
            absent = [trial for trial in step.trials if trial not in self.trials]
            assert absent, "a stage with nothing to make"
            for trial in absent:
                if most is not None and len(self.trials) == most:
                    return None
                self.trials[trial] = None
        return step.result


def normal(num_claims: int, mean: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(mean, 1.0, (num_claims, len(SEEDS)))


def test_of_claims_on_their_bound_no_more_are_decided_than_the_level_says() -> None:
    """Each direction by itself errs with ALPHA over all looks at most; without the correction it would err more."""
    num = 1000
    differences = normal(num, 0.0, 1)
    for level, is_exceeded in ((corrected(), False), (ALPHA, True)):
        found = Made(differences, level).answer()
        assert found is not None
        for verdict in VERDICTS.values():
            errors = sum(claim.verdict == verdict for claim in found.claims)
            p = scipy.stats.binomtest(errors, num, ALPHA, "greater").pvalue
            assert (p <= 0.01) == is_exceeded, (level, verdict, errors)


def test_large_effects_are_decided_at_the_first_look_and_no_more_seeds_are_made() -> None:
    made = Made(normal(3, 20.0, 2))
    found = made.answer()
    assert found is not None
    assert found.num_seeds == LOOKS[0]
    assert len(made.trials) == len(ROWS) * LOOKS[0]
    assert [claim.verdict for claim in found.claims] == ["holds"] * 3


def test_one_undecided_claim_asks_for_all_looks_and_the_decided_ones_stay() -> None:
    flat = np.tile([1.0, -1.0], len(SEEDS) // 2)
    made = Made(np.vstack([normal(1, 20.0, 3)[0], flat]))
    found = made.answer()
    assert found is not None
    assert [(claim.verdict, claim.num_seeds) for claim in found.claims] == [("holds", 5), ("undecided", 20)]
    answer = made.study.next(made.records)
    assert isinstance(answer, Answer)
    assert [stage.name for stage in answer.completed] == ["look 1", "look 2", "look 3", "look 4"]
    assert answer.completed[0].decisions == ("0 holds: by 5", "1 undecided: by 5")
    assert len(answer.before) == len(made.trials) == len(ROWS) * LOOKS[-1]


@scaled(30)
@given(st.integers(0, 2**16), st.floats(-1, 1), st.integers(0, 40))
def test_broken_off_anywhere_it_comes_to_the_answer_of_the_whole(seed: int, mean: float, most: int) -> None:
    whole, broken = Made(normal(2, mean, seed)), Made(normal(2, mean, seed))
    found = whole.answer()
    broken.answer(most)
    assert broken.answer() == found
    assert set(broken.trials) == set(whole.trials)


@given(
    st.lists(st.tuples(st.sets(st.sampled_from("abcd"), min_size=1), st.integers(1, len(LOOKS) + 1)), max_size=5),
    st.integers(0, 80),
)
def test_a_further_look_makes_the_rows_that_undecided_claims_rest_on(
    claims: list[tuple[set[str], int]], most: int
) -> None:
    """Each claim rests on some rows and is decided at a look, or at none."""
    rows, made = tuple(Row(label, ()) for label in "abcd"), set[Trial]()

    def verdicts(trials: Sequence[Trial]) -> list[Judgement]:
        look = LOOKS.index(max(len(seeds_of(trials, label)) for label in "abcd")) + 1
        found = []
        for needs, decided in claims:
            if decided > look:
                assert all(seeds_of(trials, label) == list(SEEDS[: LOOKS[look - 1]]) for label in needs)
            found.append(Judgement("", "", "", 0, tuple(needs) if decided > look else ()))
        return found

    study = Judging(rows, SEEDS, LOOKS, verdicts)
    while isinstance(step := study.next(lambda trial: FINISHED if trial in made else ABSENT), Stage):
        made.update([trial for trial in step.trials if trial not in made][: most or None])
    for label in "abcd":
        looks = max([1, *(min(decided, len(LOOKS)) for needs, decided in claims if label in needs)])
        assert seeds_of(list(made), label) == list(SEEDS[: LOOKS[looks - 1]])


@pytest.mark.parametrize(("seeds", "looks"), [(SEEDS, (5, 5)), (SEEDS[:4], (5,)), ((0, 0, 1), (3,))])
def test_looks_that_cannot_be_made_are_refused(seeds: tuple[int, ...], looks: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        Judging(ROWS, seeds, looks, lambda trials: [])
