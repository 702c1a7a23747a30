"""Performance profiles: closed forms, and properties."""

import math

import numpy as np
import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.studies.profile import MOST, ratios, score, staircase

CASES = [{"a": 10.0, "b": 20.0}, {"a": 30.0, "b": 10.0, "c": math.inf}, {"b": 5.0}]


def test_by_hand() -> None:
    found = ratios(CASES)
    assert found == {"a": [1.0, 3.0, math.inf], "b": [2.0, 1.0, 1.0], "c": [math.inf] * 3}
    assert staircase(found["a"]) == ([1.0, 3.0, 3.0, 4.0], [1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert score(found["a"]) == pytest.approx((3 + 1 + 0) / 9)
    assert score(found["b"]) == pytest.approx((2 + 3 + 3) / 9)
    assert score(found["c"]) == 0.0


def test_who_is_first_everywhere_scores_one_and_nobody_is_first_where_nobody_arrives() -> None:
    assert score(ratios([{"a": 1.0}, {"a": 2.0, "b": 3.0}])["a"]) == 1.0
    assert ratios([{"a": math.inf, "b": math.inf}]) == {"a": [math.inf], "b": [math.inf]}


def test_a_target_that_is_met_before_training_takes_no_time_of_those_that_meet_it() -> None:
    assert ratios([{"a": 0.0, "b": 0.0, "c": 2.0, "d": math.inf}]) == {
        **{label: [1.0] for label in "ab"},
        **{label: [math.inf] for label in "cd"},
    }


@scaled(100)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.floats(0.1, 100.0), min_size=1), min_size=1, max_size=6))
def test_the_score_is_the_area_under_the_staircase(cases: list[dict[str, float]]) -> None:
    for own in ratios(cases).values():
        places, shares = staircase(own)
        assert (places[0], places[-1]) == (1.0, MOST)
        assert all(np.diff(places) >= 0)
        assert all(np.diff(shares) >= 0)
        assert score(own) == pytest.approx(np.trapezoid(shares, places) / (MOST - 1.0))
