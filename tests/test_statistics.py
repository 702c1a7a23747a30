"""Known cases by hand, properties, and simulated studies, held to the binomial error of their number."""

import math
import re

import numpy as np
import pytest
import scipy
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.statistics import (
    Interval,
    equivalence_p,
    holm,
    mean_interval,
    mean_p,
    proportion_interval,
    proportion_p,
    ratio_interval,
    restricted_times,
    two_sample_p,
)
from tests.refusals import refusal

STUDIES = 1000
VALUES = st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
SAMPLES = st.lists(VALUES, min_size=2, max_size=12)


# Means


def test_the_interval_of_three_differences_by_hand():
    # mean 2, standard error 1 / sqrt(3), t = 4.3027 with 2 degrees of freedom
    assert mean_interval([1, 2, 3]) == Interval(
        2.0, pytest.approx(-0.48414, abs=1e-5), pytest.approx(4.48414, abs=1e-5)
    )


@scaled(30)
@given(SAMPLES.filter(lambda values: np.ptp(values) > 0), VALUES)
def test_p_values_and_intervals_of_means_are_those_of_scipy(values, bound):
    for alternative in ("less", "greater"):
        theirs = scipy.stats.ttest_1samp(values, bound, alternative=alternative)
        assert mean_p(values, bound, alternative) == pytest.approx(float(theirs.pvalue), rel=1e-6, abs=1e-12)
    interval = mean_interval(values, 0.1)
    low, high = scipy.stats.ttest_1samp(values, bound).confidence_interval(0.9)
    assert (interval.lower, interval.upper) == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize("value", [0.1, -0.3, 7.0])
def test_equal_differences_give_a_point_and_certainty(value):
    values = [value] * 3  # the mean of three 0.1 is not 0.1 in floating point
    assert mean_interval(values) == Interval(value, value, value)
    assert [mean_p(values, bound) for bound in (value - 0.01, value, value + 0.01)] == [0.0, 1.0, 1.0]
    assert [mean_p(values, bound, "less") for bound in (value - 0.01, value, value + 0.01)] == [1.0, 1.0, 0.0]
    assert equivalence_p(values, abs(value)) == 1.0
    assert equivalence_p(values, abs(value) + 0.01) == 0.0


@scaled(30)
@given(SAMPLES.filter(lambda values: np.ptp(values) > 0), st.lists(VALUES, min_size=1, max_size=8))
def test_p_values_of_two_samples_are_those_of_scipy(first, second):
    theirs = scipy.stats.ttest_ind(first, second)
    assert two_sample_p(first, second) == pytest.approx(float(theirs.pvalue), rel=1e-6, abs=1e-12)
    assert two_sample_p(second, first) == two_sample_p(first, second)


def test_two_samples_without_spread_are_the_same_or_not():
    assert [two_sample_p([0.1] * 3, [value] * 2) for value in (0.1, 0.2)] == [1.0, 0.0]
    with pytest.raises(ValueError, match="3 or more numbers together"):
        two_sample_p([0.1], [0.2])


# Equivalence


def test_equivalence_by_hand():
    # mean 0.1, standard error 0.1 / sqrt(3): t = sqrt(243) to the nearer margin; with 2 degrees of freedom the p-value
    # of t is (1 - t / sqrt(2 + t^2)) / 2
    assert equivalence_p([0.0, 0.1, 0.2], 1.0) == pytest.approx((1 - math.sqrt(243 / 245)) / 2)


@scaled(30)
@given(SAMPLES, st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_wider_margin_never_speaks_against_equivalence(values, margin, more):
    p = equivalence_p(values, margin)
    assert equivalence_p(values, margin + more) <= p
    assert equivalence_p([-value for value in values], margin) == p


# Several tests


@scaled(60)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_holm_rejects_what_has_a_small_adjusted_p_value_in_any_order(raw, random):
    """The k-th smallest of n, times n + 1 - k, or what a smaller one has."""
    ascending = sorted(raw)
    adjusted = [max((len(raw) - k) * ascending[k] for k in range(place + 1)) for place in range(len(raw))]
    num_rejected = len(holm(raw, lambda num_tests: 0.05 / num_tests))
    assert num_rejected == sum(p <= 0.05 for p in adjusted)
    order = random.sample(range(len(raw)), len(raw))
    assert len(holm([raw[i] for i in order], lambda num_tests: 0.05 / num_tests)) == num_rejected


def test_the_smaller_p_of_two_tests_counts_as_two():
    assert holm([0.02, 0.03], lambda num_tests: 0.05 / num_tests) == {0, 1}
    assert holm([0.02, 0.03], lambda num_tests: 0.05 / num_tests, [2, 1]) == set()
    assert holm([0.012, 0.03], lambda num_tests: 0.05 / num_tests, [2, 1]) == {0, 1}


# Proportions


def test_exact_intervals_by_hand():
    assert proportion_interval(3, 3) == Interval(1.0, pytest.approx(0.025 ** (1 / 3)), 1.0)
    assert proportion_interval(0, 5) == Interval(0.0, 0.0, pytest.approx(1 - 0.025**0.2))


def test_exact_p_values_by_hand():
    assert proportion_p(5, 5, 0.5) == pytest.approx(1 / 32)
    assert proportion_p(4, 5, 0.5) == pytest.approx(6 / 32)
    assert proportion_p(0, 5, 0.5, "less") == pytest.approx(1 / 32)
    assert proportion_p(0, 5, 0.5) == 1.0


@scaled(30)
@given(st.data(), st.floats(0.01, 0.5))
def test_an_exact_interval_holds_its_estimate_and_what_the_test_does_not_reject(data, alpha):
    num = data.draw(st.integers(1, 30))
    successes = data.draw(st.integers(0, num))
    found = proportion_interval(successes, num, alpha)
    assert 0.0 <= found.lower <= found.estimate <= found.upper <= 1.0
    if successes:
        assert proportion_p(successes, num, found.lower) == pytest.approx(alpha / 2, rel=1e-6)
    if successes < num:
        assert proportion_p(successes, num, found.upper, "less") == pytest.approx(alpha / 2, rel=1e-6)


# Times to a target


def test_a_run_that_did_not_reach_the_target_counts_with_the_horizon():
    assert restricted_times([1.0, None, math.inf, 12.0], 10.0).tolist() == [1.0, 10.0, 10.0, 10.0]


# Ratios


def paired_times(num_studies, num, rng):
    """Times of two strategies whose seeds are equal, not reached in some studies; shapes [num_studies, num]."""
    common = rng.normal(0.0, 0.2, (num_studies, num))
    noise = rng.normal(0.0, 0.3, (2, num_studies, num))
    first, second = np.exp(common + noise[0]), 1.2 * np.exp(common + noise[1])
    return np.minimum(first, 2.0), np.minimum(second, 2.0)


def test_the_interval_of_a_ratio_by_hand():
    # Against a constant it is the interval of the mean; of equal ratios it is a point.
    assert ratio_interval([1, 2, 3], [2, 2, 2]) == Interval(
        1.0, pytest.approx(-0.48414 / 2, abs=1e-5), pytest.approx(4.48414 / 2, abs=1e-5)
    )
    assert ratio_interval([3.0, 6.0, 4.5], [2.0, 4.0, 3.0]) == Interval(1.5, pytest.approx(1.5), pytest.approx(1.5))


@scaled(30)
@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1, 2)), min_size=5, max_size=12), st.floats(0.01, 0.2))
def test_the_interval_of_a_ratio_ends_where_the_test_of_the_mean_does(pairs, alpha):
    first, second = np.array(pairs).T
    found = ratio_interval(first, second, alpha)
    assert found.lower <= found.estimate <= found.upper
    if found.upper - found.lower > 1e-3:
        assert mean_p(first - found.lower * second) == pytest.approx(alpha / 2, rel=1e-4)
        assert mean_p(first - found.upper * second, 0.0, "less") == pytest.approx(alpha / 2, rel=1e-4)


def test_a_ratio_to_what_may_be_zero_has_no_bounds():
    assert ratio_interval([1.0, 2.0], [0.1, 3.0]) == Interval(pytest.approx(3 / 3.1), -math.inf, math.inf)


@pytest.mark.statistical
def test_students_and_fiellers_intervals_of_restricted_times_cover_nearly_as_often_as_they_say():
    rng = np.random.default_rng(9)
    ours, theirs = (float(times.mean()) for times in paired_times(100_000, 10, rng))
    for num in (5, 20):
        first, second = paired_times(STUDIES, num, rng)
        differences = [mean_interval(a - b) for a, b in zip(first, second, strict=True)]
        ratios = [ratio_interval(a, b) for a, b in zip(first, second, strict=True)]
        for found, truth in ((differences, ours - theirs), (ratios, ours / theirs)):
            covered = sum(interval.lower <= truth <= interval.upper for interval in found) / STUDIES
            assert 0.93 < covered < 0.965


# What cannot be judged

NAN = math.nan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_interval([1.0]), "2 or more finite numbers"),
        (lambda: mean_interval([1.0, NAN]), "2 or more finite numbers"),
        (lambda: mean_interval([[1.0, 2.0], [3.0, 4.0]]), "2 or more finite numbers"),
        (lambda: mean_interval([1.0, 2.0], 0.6), "alpha must be in"),
        (lambda: mean_p([1.0, math.inf]), "2 or more finite numbers"),
        (lambda: mean_p([1.0, 2.0], NAN), "bound must be finite"),
        (lambda: equivalence_p([1.0], 1.0), "2 or more finite numbers"),
        (lambda: equivalence_p([1.0, 2.0], 0.0), "margin must be > 0"),
        (lambda: ratio_interval([1.0, 2.0], [1.0]), "equal length, got 2 and 1"),
        (lambda: ratio_interval([1.0, 2.0], [1.0, -1.0]), "mean of second must be > 0"),
        (lambda: holm([0.5, 1.5], lambda num_tests: 0.05), r"must be in \[0, 1\]"),
        (lambda: proportion_interval(4, 3), "successes must be in"),
        (lambda: proportion_interval(0, 0), "num >= 1"),
        (lambda: proportion_p(-1, 3, 0.5), "successes must be in"),
        (lambda: proportion_p(1, 3, NAN), "bound must be in"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, message):
    assert re.search(message, refusal(ValueError, call))
