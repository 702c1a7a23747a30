"""One number of a claim: p-values, intervals, and how several are judged together."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from reports.effects import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Effect,
    Region,
    below,
    judged,
    of_difference,
    of_ratio,
    of_share,
    together,
)
from reports.statistics import Sample
from syncline.statistics import holm

VALUES = st.lists(st.floats(-100, 100), min_size=2, max_size=12)


def effect(*values: float | None, low: float = -math.inf, high: float = math.inf, is_strict: bool = False) -> Effect:
    return Effect("time", Sample(values), Region(low, high, is_strict))


def verdicts(*effects: Effect, level: float = 0.05) -> list[str]:
    return [number.verdict for number in judged(effects, shared(level))]


def shared(level: float) -> Callable[[int], float]:
    """Bonferroni's level of so many tests."""
    return lambda num_tests: level / num_tests


# Intervals and p-values say the same.


def test_the_interval_of_one_look_is_students_of_90_per_cent():
    low, high = effect(1.0, 2.0, 3.0).interval(0.05)
    assert (low, high) == pytest.approx((2 - 2.919986 / math.sqrt(3), 2 + 2.919986 / math.sqrt(3)), rel=1e-6)


@given(VALUES, st.floats(-100, 100), st.floats(0.001, 0.1))
def test_inside_is_where_the_interval_is_and_outside_where_it_is_not(values, bound, level):
    one = effect(*values, high=bound)
    low, high = one.interval(level)
    if not math.isclose(high, bound, rel_tol=1e-6, abs_tol=1e-6):
        assert (one.inside_p <= level) == (high <= bound)
    if not math.isclose(low, bound, rel_tol=1e-6, abs_tol=1e-6):
        assert (one.outside_p <= level) == (low > bound)


@given(st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=3, max_size=12), st.floats(0.1, 10))
def test_a_ratio_is_tested_as_its_interval_says(pairs, bound):
    first, second = (Sample(tuple(side)) for side in zip(*pairs, strict=True))
    one = of_ratio("time", first, second, Region(high=bound))
    low, high = one.interval(0.05)
    if not math.isclose(high, bound, rel_tol=1e-6):
        assert (one.inside_p <= 0.05) == (high <= bound)
    if not math.isclose(low, bound, rel_tol=1e-6):
        assert (one.outside_p <= 0.05) == (low > bound)


def test_a_ratio_to_what_may_be_zero_is_undecided():
    """The interval has no ends, though the times differ in every seed."""
    first, second = Sample((3.0, 3.1, 2.9, 3.0, 12.0)), Sample((1.0, 1.0, 1.0, 1.0, 10.0))
    for region in (Region(high=1.0), Region(low=1.0)):
        one = of_ratio("time", first, second, region)
        assert one.interval(0.05) == (-math.inf, math.inf)
        assert verdicts(one) == [UNDECIDED]


def test_an_effect_without_a_bound_keeps_no_other_from_failing():
    assert verdicts(effect(1.0, 2.0, 3.0), effect(9.0, 9.1, 9.2, high=0.0)) == [UNDECIDED, FAILS]


def test_a_ratio_of_means_is_no_mean_of_ratios():
    one = of_ratio("time", Sample((1.0, 3.0)), Sample((2.0, 1.0)), Region(high=1.0))
    assert one.estimate == pytest.approx(4 / 3)


def test_a_share_is_exact():
    """5 of 5 above a half: 2^-5; of 3 seeds nothing can be."""
    five, three = (of_share("there is one", Sample((1.0,) * n), Region(low=0.5)) for n in (5, 3))
    assert five.inside_p == pytest.approx(2**-5)
    assert verdicts(five) + verdicts(three) == [HOLDS, UNDECIDED]
    assert five.interval(0.05) == pytest.approx((0.05**0.2, 1.0))
    with pytest.raises(ValueError, match="must be 0 or 1"):
        of_share("there is one", Sample((0.5, 1.0)), Region(low=0.5))


def test_a_region_of_two_bounds_is_two_tests_inside_and_two_outside():
    sample = Sample((0.3, 0.5, 0.9, 0.6))
    both = of_difference("points", sample, 0.0 * sample, Region(-1.0, 1.0))
    low, high = (of_difference("points", sample, 0.0 * sample, one) for one in (Region(low=-1.0), Region(high=1.0)))
    assert both.inside_p == max(low.inside_p, high.inside_p)
    far = of_difference("points", sample, 0.0 * sample, Region(2.0, 3.0))
    p = float(scipy.stats.ttest_1samp(sample.values, 2.0, alternative="less").pvalue)
    assert (far.outside_p, len(far.region.bounds)) == (pytest.approx(p), 2)
    assert verdicts(far, level=2.01 * p) == [FAILS]
    assert verdicts(far, level=1.99 * p) == [UNDECIDED]


# Points: values that are all equal.


@pytest.mark.parametrize(
    ("value", "is_strict", "verdict"),
    [(0.89, False, HOLDS), (0.9, False, HOLDS), (0.91, False, FAILS), (0.9, True, FAILS), (0.89, True, HOLDS)],
)
def test_equal_values_are_a_point_and_a_strict_bound_lies_outside(value, is_strict, verdict):
    assert verdicts(effect(value, value, value, high=0.9, is_strict=is_strict)) == [verdict]


def test_the_last_bit_decides_nothing():
    assert verdicts(effect(*[0.1 + 0.2] * 3, high=0.3), effect(*[0.3] * 3, low=0.1 + 0.2)) == [HOLDS, HOLDS]
    times = Sample((1.1, 2.3, 0.7, 5.1))
    assert verdicts(of_ratio("time", 3.0 * times, times, Region(3.0, 3.0))) == [HOLDS]


@given(st.lists(st.floats(1.0, 100.0), min_size=3, max_size=8), st.lists(st.sampled_from([-1, 0, 1]), min_size=8))
def test_two_sides_that_differ_by_rounding_are_equal(values, signs):
    """As the mean of three equal accuracies is not always the accuracy: 100 * mean([0.1] * 3) is above 10."""
    ours = Sample(tuple(values))
    theirs = Sample(tuple(value + sign * math.ulp(value) for value, sign in zip(values, signs, strict=False)))
    equal = of_difference("points", ours, theirs, Region(high=0.0))
    assert verdicts(equal) == [HOLDS]
    assert verdicts(replace(equal, region=below(0.0))) == [FAILS]


# Together.


def test_outside_is_corrected_for_the_number_of_effects_and_inside_is_not():
    rng = np.random.default_rng(1)
    values = rng.normal(size=6)
    bad = effect(*(values - values.mean() + 1.0 * values.std(ddof=1)), high=0.0)
    assert 0.01 < bad.outside_p < 0.05
    good = effect(*(values - values.mean() - 10.0), high=0.0)
    assert verdicts(bad) == [FAILS]
    assert verdicts(bad, *[good] * 9) == [UNDECIDED] + [HOLDS] * 9
    assert together(judged([bad, *[good] * 9], shared(0.05))) == UNDECIDED
    assert verdicts(*[good] * 40) == [HOLDS] * 40


@given(st.lists(st.floats(0.0, 4.0), min_size=1, max_size=8), st.integers(0, 99))
def test_failing_is_decided_by_holms_procedure(shifts, seed):
    noise = np.random.default_rng(seed).normal(size=6)
    effects = [effect(*(noise + shift), high=0.0) for shift in shifts]
    rejected = holm([one.outside_p for one in effects], shared(0.05))
    assert {place for place, verdict in enumerate(verdicts(*effects)) if verdict == FAILS} == rejected


def test_what_is_undecided_says_which_size_is_excluded():
    rng = np.random.default_rng(0)
    ours, theirs = (Sample(tuple(5.0 + rng.normal(size=5))) for _ in range(2))
    (number,) = judged([of_difference("accuracy, points", ours, theirs, Region(low=0.0))], shared(0.05))
    size = max(abs(number.low), abs(number.high))
    assert f"a difference above {size:.2f} is excluded" in number.why
    (number,) = judged([of_ratio("time", ours, theirs, Region(high=1.0))], shared(0.05))
    assert f"the ratio lies between {number.low:.2f} and {number.high:.2f}" in number.why
    (number,) = judged([of_share("there is one", Sample((1.0, 0.0, 1.0)), Region(low=0.5))], shared(0.05))
    assert "the share lies between 0.14 and 0.98" in number.why


def test_the_region_as_text():
    regions = (Region(high=2), Region(low=2, is_strict=True), Region(1, 2))
    assert [region.text(2) for region in regions] == ["≤ 2.00", "> 2.00", "1.00 to 2.00"]
