"""Measures of runs: the way to a target, the end, the mean, and what counts of a run that does not get there."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written import artefact_of, learned, made_run

from reports.measures import CROSSING, best, final, fixed_target, mean_over_run, of_curve, settled, time_to

HEIGHTS = st.lists(st.floats(0.0, 1.0), min_size=2, max_size=10)


@given(HEIGHTS, st.floats(0.01, 0.99))
def test_a_target_is_reached_at_the_first_evaluation_that_is_as_high(heights, level):
    """Of those after some training; a mirrored curve falls to the mirrored level at the same place."""
    places = [float(place) for place in range(len(heights))]
    at = time_to((places, heights), level)
    assert at == next((place for place in places[1:] if heights[int(place)] >= level), None)
    assert time_to((places, [-height for height in heights]), -level, falling=True) == at


@given(HEIGHTS, st.floats(0.01, 0.99))
def test_a_crossing_lies_on_the_line_to_the_first_evaluation_that_is_as_high(heights, level):
    places = [float(place) for place in range(len(heights))]
    at, evaluation = time_to((places, heights), level, at=CROSSING), time_to((places, heights), level)
    if heights[0] >= level:
        assert at is None, "it begins beyond"
    elif evaluation is None:
        assert at is None
    else:
        before = int(evaluation) - 1
        assert before <= at <= evaluation
        rise = heights[before + 1] - heights[before]
        assert heights[before] + (at - before) * rise == pytest.approx(level)


def test_what_is_no_number_is_passed_over():
    assert time_to(([0, 1, 2], [50, math.nan, 20]), 10, at=CROSSING) is None
    assert time_to(([0, 1, 2], [0, math.nan, 20]), 10, at=CROSSING) == 1.0


@given(st.floats(-5.0, 5.0), st.floats(-5.0, 5.0))
def test_the_mean_and_the_end_of_a_line(begin, slope):
    places = [0.0, 1.0, 3.0, 4.0]
    line = places, [begin + slope * place for place in places]
    assert mean_over_run(line) == pytest.approx(begin + 2.0 * slope, abs=1e-9)
    assert settled(line) == pytest.approx(begin + 3.5 * slope, abs=1e-9), "of the last quarter: 3 and 4"


def test_a_run_that_diverged_has_no_end_and_one_that_learned_nothing_has_no_best():
    summary = {"final": {"accuracy": 0.5}, "best": {"accuracy": {"value": 0.6}}}
    lost, alone = {"status": "diverged"}, {"final": None, "best": None}
    good, diverged, timed = artefact_of(
        "dssp/table1", [made_run("bsp", seed, {}, summary | more) for seed, more in enumerate(({}, lost, alone))]
    ).runs
    assert [final("accuracy", 100.0)(run) for run in (good, diverged, timed)] == [50.0, None, None]
    assert [best("accuracy", 100.0)(run) for run in (good, diverged, timed)] == [60.0, 60.0, None]
    assert of_curve(settled, lambda run: run.curve("accuracy"))(diverged) is None


def accuracy(run):
    return run.curve("accuracy")


def test_a_target_is_fixed_beforehand_or_no_run_reaches_it_and_nothing_is_judged():
    run = learned("bsp", 0, 0.5)
    artefact = artefact_of("dssp/fig3", [], {"targets": {"laptop": {"alexnet": 0.45}}})
    artefact.runs.append(run)
    fixed, none = (fixed_target(artefact, accuracy, network) for network in ("alexnet", "resnet50"))
    assert (fixed.level, fixed.time(run), none.level, none.time(run)) == (0.45, 1.0, None, None)
    assert fixed.restricted(artefact, {"bsp": [run]}).times["bsp"].values == (1.0,)
    with pytest.raises(LookupError, match=r"^a fixed target of resnet50$"):
        none.restricted(artefact, {"bsp": [run]})
