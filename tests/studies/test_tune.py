"""Tuning against known score functions: the value is right, trials are equal, and it goes on from any records."""

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from studies.synthetic import Lab, ScoreFunction, is_screening, parabola, row_value_seed

from syncline.studies.goals import run_score, score_of
from syncline.studies.grid import peak
from syncline.studies.study import Answer, Evaluation, Outcome, Score
from syncline.studies.tune import EXTENSION, MOST_EXTENSIONS, Row, Tuned, Tuning

OPTIMA = st.floats(-4.5, 4.5)  # factors of two from the centre: from far outside the grid to its middle
CENTRE = 0.05


def tuning(labels: Sequence[str], **others: object) -> Tuning:
    rows = tuple(Row(label, (f"strategy={label}",), CENTRE, labels[0], epochs=30.0) for label in labels)
    return replace(Tuning(rows), **others)


def tuned(study: Tuning, score: ScoreFunction) -> tuple[Tuned, Lab]:
    lab = Lab(score)
    return lab.answer(study).result, lab


def away(value: float | None, optimum: float) -> float:
    """Factors of two between a chosen value and the optimum."""
    assert value is not None
    return abs(math.log2(value / optimum))


# The value.


def test_values_beyond_the_first_grid_that_are_no_valid_runs_are_lost_and_not_made() -> None:
    """As a batch size of 0.5. The smaller the value the better; the smallest one of the first grid is 4."""
    row = Row("bsp", ("strategy=bsp",), 32.0, None, epochs=30.0)
    asked = set[float]()

    def is_valid(overrides: Sequence[str]) -> bool:
        asked.add(float(overrides[-1].removeprefix("optimizer.lr=")))
        return max(asked) < 1

    found, lab = tuned(Tuning((row,), is_valid=is_valid), lambda label, value, seed: -value)
    assert found.choices[0].value == 4.0
    assert asked == {2.0, 1.0}
    assert min(row_value_seed(trial)[1] for trial in lab.made) == 4.0


@scaled(60)
@given(st.lists(OPTIMA, min_size=1, max_size=4))
def test_without_noise_the_nearest_value_of_the_grid_is_chosen(places: list[float]) -> None:
    optima = {f"row{number}": CENTRE * 2**place for number, place in enumerate(places)}
    found, _ = tuned(tuning(list(optima)), parabola(optima))
    for choice in found.choices:
        assert away(choice.value, optima[choice.label]) <= 0.5 + 1e-4
        assert away(choice.peak, optima[choice.label]) <= 1e-4, "the scores are those of a parabola"
        assert choice.remark == ""


@scaled(60)
@given(st.lists(OPTIMA, min_size=1, max_size=4))
def test_with_noise_the_chosen_value_is_within_a_factor_of_two_of_the_optimum(places: list[float]) -> None:
    """Noise of an eighth of the curvature."""
    optima = {f"row{number}": CENTRE * 2**place for number, place in enumerate(places)}
    found, _ = tuned(tuning(list(optima)), parabola(optima, curvature=0.08, noise=0.01))
    for choice in found.choices:
        assert away(choice.value, optima[choice.label]) <= 0.77
        assert choice.error is not None
        assert choice.factor is not None
        assert away(choice.peak, choice.value) <= 0.5


def test_where_lower_is_better_the_lowest_is_chosen() -> None:
    class Losses(Lab):
        def make(self, trial):  # type: ignore[no-untyped-def]
            super().make(trial)
            outcome = self.made[trial]
            curve = tuple(point._replace(value=2.0 - point.value) for point in outcome.curve)
            self.made[trial] = replace(outcome, metric="loss", lower_is_better=True, curve=curve)

    lab = Losses(parabola({"bsp": 0.1}))
    found = lab.answer(tuning(["bsp"])).result
    assert (found.metric, found.choices[0].value, found.choices[0].score) == ("loss", 0.1, pytest.approx(1.0))
    assert found.targets[0].value == pytest.approx(1 / 0.95)


def grid(*scores: tuple[float | None, float | None]) -> dict[int, Score]:
    return {step: Score("bsp", step, mean, error, 3) for step, (mean, error) in enumerate(scores, -1)}


def test_the_peak_of_a_parabola_through_three_scores_is_that_of_the_parabola() -> None:
    found = peak(grid(*((1.0 - 0.1 * (step - 0.3) ** 2, 0.005) for step in (-1, 0, 1))))
    assert found is not None
    assert found.place == pytest.approx(0.3)
    draws = np.random.default_rng(0).normal([0.831, 0.991, 0.951], 0.005, (4000, 3))
    places = [peak(grid(*((mean, 0.005) for mean in means))).place for means in draws]  # type: ignore[union-attr]
    assert found.error == pytest.approx(np.std(places), rel=0.1), "as often repeated scores deviate"


def test_without_both_neighbours_there_is_no_peak() -> None:
    assert peak(grid((None, None), (0.9, 0.1), (0.8, 0.1))) is None
    assert peak(grid((0.7, 0.1), (0.8, 0.1), (0.9, 0.1))) is None
    assert peak(grid((0.9, 0.1), (0.9, 0.1), (0.9, 0.1))) is None
    found = peak(grid((0.8, None), (0.9, 0.1), (0.8, 0.1)))
    assert found == (0.0, None), "of one seed the error is not known"


@scaled(40)
@given(st.integers(-2, 3), OPTIMA)
def test_a_value_that_diverges_or_fails_is_worst(limit: int, place: float) -> None:
    """Also if it would be the best."""
    edge = CENTRE * 2**limit * 1.1
    found, lab = tuned(tuning(["bsp"]), parabola({"bsp": CENTRE * 2**place}, limit=edge))
    value = found.choices[0].value
    assert value is not None
    assert value <= edge
    nearest = CENTRE * 2 ** min(round(place), limit)
    assert value == pytest.approx(nearest, rel=1e-4) or abs(place - round(place)) > 0.499
    assert any(outcome.diverged for outcome in lab.made.values()) == any(
        row_value_seed(trial)[1] > edge for trial in lab.made
    )


def test_a_row_of_which_every_run_is_lost_has_no_value_and_the_others_have_theirs() -> None:
    good = parabola({"asp": CENTRE})

    def score(row: str, value: float, seed: int) -> float | None:
        return None if row == "bsp" else good(row, value, seed)

    found, lab = tuned(tuning(["bsp", "asp"]), score)
    lost, kept = found.choices
    assert (lost.value, lost.same, lost.remark) == (None, None, "every value diverged or failed")
    assert (kept.value, kept.same) == (CENTRE, None)
    assert found.targets == ()
    assert len(set(Counter(trial.label for trial in lab.made).values())) == 1


# Several keys.


def settings(*rates: float) -> tuple[tuple[str, ...], ...]:
    return tuple((f"optimizer.lr={rate:g}", "optimizer.momentum=0.5") for rate in rates)


@scaled(40)
@given(st.lists(st.integers(-32, 32), min_size=2, max_size=9, unique=True), st.floats(-4, 4), st.floats(-4, 4))
def test_of_settings_the_best_of_the_finalists_is_chosen_and_every_row_tries_as_many(
    eighths: list[int], bsp: float, asp: float
) -> None:
    rates = [float(f"{2.0 ** (number / 8):.6g}") for number in eighths]
    optima = {"bsp": 2.0**bsp, "asp": 2.0**asp}
    rows = tuple(Row(label, (), 1.0, None, settings(*rates), epochs=3.0) for label in optima)
    finalists = min(2, len(rates))
    found, lab = tuned(Tuning(rows, points=len(rates), finalists=finalists), parabola(optima))
    assert found.num_trials == len(rates) + 3 * finalists
    assert set(Counter(trial.label for trial in lab.made).values()) == {found.num_trials}
    for choice in found.choices:
        nearest = min(rates, key=lambda rate: away(rate, optima[choice.label]))
        assert away(rates[int(choice.value or 0) - 1], nearest) == pytest.approx(0.0, abs=1e-3)
        assert choice.words == settings(rates[int(choice.value or 0) - 1])[0]
        assert (choice.peak, choice.same, choice.remark) == (None, None, "")


def test_rows_with_different_numbers_of_settings_are_no_study() -> None:
    rows = (Row("bsp", (), 1.0, None, settings(0.1, 0.2)), Row("asp", (), 1.0, None, settings(0.1)))
    with pytest.raises(AssertionError, match="different numbers of settings"):
        Tuning(rows, points=2, finalists=1)


# The arms.


def test_in_the_arm_same_every_row_has_its_baselines_value() -> None:
    rows = [("alexnet/bsp", 0.025), ("alexnet/asp", 0.2), ("resnet/bsp", 0.1), ("resnet/asp", 0.05)]
    study = Tuning(tuple(Row(label, (), CENTRE, f"{label.split('/')[0]}/bsp", epochs=3.0) for label, _ in rows))
    found, _ = tuned(study, parabola(dict(rows)))
    assert {choice.label: choice.value for choice in found.choices} == dict(rows)
    assert [choice.same for choice in found.choices] == [0.025, 0.025, 0.1, 0.1]
    assert {target.label: target.value for target in found.targets} == pytest.approx(
        {"alexnet/bsp": 0.95, "resnet/bsp": 0.95}
    )


# The trials.

SWINGS = st.integers(0, 2**20)


def erratic(swing: int) -> ScoreFunction:
    """Scores without any order; one in nine runs diverges."""

    def score(row: str, value: float, seed: int) -> float | None:
        number = zlib.crc32(repr((swing, row, value, seed)).encode()) % 9973
        return None if number % 9 == 0 else number / 9973

    return score


@scaled(60)
@given(SWINGS, st.integers(1, 4), st.sampled_from([3, 5, 7]), st.integers(1, 3), st.integers(1, 3))
def test_every_row_has_the_same_number_of_trials_whatever_they_score(
    swing: int, num_rows: int, points: int, finalists: int, num_seeds: int
) -> None:
    labels = [f"row{number}" for number in range(num_rows)]
    study = tuning(labels, points=points, finalists=finalists, seeds=tuple(range(1000, 1000 + num_seeds)))
    found, lab = tuned(study, erratic(swing))
    numbers = Counter(trial.label for trial in lab.made)
    assert set(numbers.values()) == {found.num_trials}
    assert set(numbers) == set(labels)


@scaled(60)
@given(SWINGS, st.data())
def test_it_goes_on_from_any_part_of_the_records_to_the_same_answer(swing: int, data: st.DataObject) -> None:
    study = tuning(["bsp", "asp"], points=5, finalists=2)
    whole = Lab(erratic(swing))
    answer = whole.answer(study)
    kept = data.draw(st.sets(st.sampled_from(list(whole.made))))
    resumed = Lab(erratic(swing), made={trial: whole.made[trial] for trial in kept})
    assert resumed.answer(study) == answer
    assert resumed.made == whole.made


def test_the_screening_is_the_first_seed_for_a_share_of_the_length_and_then_all_at_full_length() -> None:
    row = Row("bsp", ("strategy=bsp",), CENTRE, None, epochs=30.0, max_updates=100, max_time_s=6.0)
    lab = Lab(parabola({"bsp": CENTRE}))
    lab.answer(Tuning((row,)))
    screening, full = lab.stages
    common = ("strategy=bsp", "dataset.validation=0.2", "target.value=null")
    assert screening.trials[0].overrides == (
        *common,
        *("epochs=10", "max_updates=34", "max_time_s=2", "optimizer.lr=0.00625", "seed=1000"),
    )
    assert full.trials[0].overrides == (*common, "optimizer.lr=0.025", "seed=1000")
    assert (len(screening.trials), len(full.trials)) == (7, 9)


def test_the_grid_is_extended_for_all_rows_where_the_best_of_one_lies_at_its_end() -> None:
    optima = {"bsp": CENTRE, "asp": CENTRE / 2**4}
    found, lab = tuned(tuning(list(optima)), parabola(optima))
    assert [stage.name for stage in lab.stages] == ["screen 1", "screen 2", "full 1"]
    more = {row_value_seed(trial)[:2] for trial in lab.stages[1].trials}
    assert more == {(label, CENTRE / 2**step) for label in optima for step in (4, 5)}
    answered = lab.answer(tuning(list(optima)))
    assert "extended by 2 values for all rows: at its end lies the best of asp" in answered.completed[0].decisions[-1]
    assert found.choices[1].value == pytest.approx(CENTRE / 2**4)


def test_the_grid_is_extended_at_both_ends_and_not_for_ever() -> None:
    optima = {"bsp": CENTRE * 2**30, "asp": CENTRE / 2**30}
    found, lab = tuned(tuning(list(optima)), parabola(optima))
    screened = {row_value_seed(trial)[1] for trial in lab.made if is_screening(trial) and trial.label == "bsp"}
    assert len(screened) == 7 + 2 * EXTENSION * MOST_EXTENSIONS
    assert {choice.remark for choice in found.choices} == {"the best was not held against both neighbours"}


def test_a_best_value_whose_neighbour_was_no_finalist_is_held_against_it() -> None:
    """The screening prefers small values; the full length has its best at the largest finalist."""
    lab = Lab(parabola({"bsp": CENTRE * 4, "asp": CENTRE}))
    make = lab.make

    def misled(trial):  # type: ignore[no-untyped-def]
        make(trial)
        if is_screening(trial) and trial.label == "bsp":
            value = parabola({"bsp": CENTRE})(*row_value_seed(trial))
            lab.made[trial] = replace(lab.made[trial], curve=(Evaluation(1.0, 1.0, value),))

    lab.make = misled  # type: ignore[method-assign]
    answer = lab.answer(tuning(["bsp", "asp"]))
    assert isinstance(answer, Answer)
    assert [stage.name for stage in lab.stages] == ["screen 1", "full 1", "full 2", "full 3"]
    values = [{row_value_seed(trial)[1] for trial in stage.trials if trial.label == "bsp"} for stage in lab.stages[1:]]
    assert values == [{0.025, 0.05, 0.1}, {0.2}, {0.4}]
    assert answer.result.choices[0].value == 0.2
    assert len(set(Counter(trial.label for trial in lab.made).values())) == 1


# The score of a run.


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_the_score_of_a_run_is_the_mean_of_its_last_quarter(values: list[float]) -> None:
    curve = tuple(Evaluation(float(epoch), 0.0, value) for epoch, value in enumerate(values, 1))
    first = math.ceil(0.75 * len(values))
    score = run_score(Outcome("finished", "accuracy", curve=curve))
    assert score == pytest.approx(sum(values[first - 1 :]) / len(values[first - 1 :]))


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome("failed"),
        Outcome("finished", "accuracy"),
        Outcome("finished", "accuracy", curve=(Evaluation(1.0, 1.0, 0.9),), diverged=True),
        Outcome("finished", "auc", curve=(Evaluation(1.0, 1.0, math.nan),)),
    ],
)
def test_a_run_that_was_lost_has_no_score(outcome: Outcome) -> None:
    assert run_score(outcome) is None
    assert score_of("bsp", 0.1, [outcome]).worth == -math.inf
