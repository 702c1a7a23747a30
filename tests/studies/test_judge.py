"""Judging of claims that are decided at a known look: it makes no more seeds than they ask for."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies.synthetic import Bench

from syncline.studies.judge import Judgement, Judging, Row
from syncline.studies.study import Outcome, Trial

LOOKS = (5, 10, 15, 20)
NEVER = len(LOOKS) + 1
SEEDS = tuple(range(20))
LABELS = "abcd"
ROWS = tuple(Row(label, (f"strategy={label}",)) for label in LABELS)


@dataclass(frozen=True)
class Claim:
    """A claim that rests on some rows, and holds from a look on."""

    rows: frozenset[str]
    look: int  # 1: the first; NEVER

    def after(self, look: int) -> Judgement:
        if self.look > look:
            return Judgement("claim", "undecided", f"by {LOOKS[look - 1]}", LOOKS[look - 1], tuple(self.rows))
        num_seeds = LOOKS[self.look - 1]
        return Judgement("claim", "holds", f"by {num_seeds}", num_seeds, ())


@dataclass
class Court(Bench):
    """Runs that leave nothing but their seeds, and the verdicts on claims about them."""

    claims: Sequence[Claim]

    @property
    def study(self) -> Judging:
        return Judging(ROWS, SEEDS, LOOKS, self.verdicts)

    def make(self, trial: Trial) -> None:
        self.made[trial] = Outcome("finished")

    def verdicts(self, trials: Sequence[Trial]) -> list[Judgement]:
        assert set(trials) <= set(self.made), "verdicts on runs that were not made"
        look = 1 + LOOKS.index(max(len(seeds_of(trials, label)) for label in LABELS))
        found = [claim.after(look) for claim in self.claims]
        for label in {label for judgement in found for label in judgement.needs}:
            assert seeds_of(trials, label) == list(SEEDS[: LOOKS[look - 1]])
        return found


def seeds_of(trials: Sequence[Trial], row: str) -> list[int]:
    return sorted(int(trial.overrides[-1].removeprefix("seed=")) for trial in trials if trial.label == row)


CLAIMS = st.lists(
    st.builds(Claim, st.frozensets(st.sampled_from(LABELS), min_size=1), st.integers(1, NEVER)), max_size=5
)


def test_claims_that_the_first_look_decides_ask_for_no_more_seeds() -> None:
    court = Court([Claim(frozenset("ab"), 1)] * 3)
    found = court.answer(court.study).result
    assert found.num_seeds == LOOKS[0]
    assert len(court.made) == len(ROWS) * LOOKS[0]
    assert [claim.verdict for claim in found.claims] == ["holds"] * 3


def test_one_undecided_claim_asks_for_all_looks_and_the_decided_ones_stay() -> None:
    court = Court([Claim(frozenset("ab"), 1), Claim(frozenset(LABELS), NEVER)])
    answer = court.answer(court.study)
    assert [(claim.verdict, claim.num_seeds) for claim in answer.result.claims] == [("holds", 5), ("undecided", 20)]
    assert [stage.name for stage in answer.completed] == ["look 1", "look 2", "look 3", "look 4"]
    assert answer.completed[0].decisions == ("claim holds: by 5", "claim undecided: by 5")
    assert len(answer.before) == len(court.made) == len(ROWS) * LOOKS[-1]


@given(CLAIMS, st.integers(0, 80))
def test_broken_off_anywhere_it_comes_to_the_answer_of_the_whole(claims: list[Claim], most: int) -> None:
    whole = Court(claims)
    answer = whole.answer(whole.study)
    resumed = Court(claims, made=dict(list(whole.made.items())[:most]))
    assert resumed.answer(resumed.study) == answer
    assert resumed.made == whole.made


@given(CLAIMS)
def test_a_further_look_makes_the_rows_that_undecided_claims_rest_on(claims: list[Claim]) -> None:
    court = Court(claims)
    court.answer(court.study)
    for label in LABELS:
        looks = max([1, *(min(claim.look, len(LOOKS)) for claim in claims if label in claim.rows)])
        assert seeds_of(list(court.made), label) == list(SEEDS[: LOOKS[looks - 1]])


@pytest.mark.parametrize(("seeds", "looks"), [(SEEDS, (5, 5)), (SEEDS[:4], (5,)), ((0, 0, 1), (3,))])
def test_looks_that_cannot_be_made_are_refused(seeds: tuple[int, ...], looks: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError):
        Judging(ROWS, seeds, looks, lambda trials: [])
