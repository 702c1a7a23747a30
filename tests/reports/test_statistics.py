import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics import Sample, average, difference, ratio, restricted


def test_mean_and_deviation_of_a_known_sample():
    sample = Sample((1.0, 2.0, 3.0, None))
    assert (sample.n, sample.mean, sample.std) == (3, 2.0, 1.0)


def test_too_few_values_have_no_spread():
    assert math.isnan(Sample((5.0,)).std)
    assert math.isnan(Sample((5.0, None)).std)
    assert math.isnan(Sample((None,)).mean)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0.1, 10))
def test_a_common_factor_of_all_seeds_has_no_spread_in_the_paired_ratio(values, factor):
    sample = Sample(tuple(values))
    paired = factor * sample / sample
    assert paired.mean == pytest.approx(factor)
    assert all(value == pytest.approx(factor) for value in paired.values)


def test_a_seed_without_a_partner_or_with_nothing_to_compare_to_has_no_ratio():
    paired = Sample((1.0, None, 3.0, 3.0)) / Sample((2.0, 2.0, None, 0.0))
    assert paired.values == (0.5, None, None, None)
    assert (Sample((0.0,)) / Sample((2.0,))).values == (0.0,)


def test_arithmetic_is_seed_by_seed_and_keeps_what_is_missing():
    sample = Sample((4.0, None, 1.0))
    assert (100.0 * sample).values == (400.0, None, 100.0)
    assert (sample / 4).values == (1.0, None, 0.25)
    assert (sample - 1.0).values == (3.0, None, 0.0)
    assert (1.0 - sample).values == (-3.0, None, 0.0)
    assert (sample - Sample((1.0, 1.0, None))).values == (3.0, None, None)


def test_samples_of_other_seeds_cannot_be_paired():
    with pytest.raises(ValueError, match="shorter"):
        Sample((1.0, 2.0)) - Sample((1.0,))


def test_what_was_not_run_has_no_ratio_and_no_difference():
    sample = Sample((4.0,))
    assert ratio(sample, None) is ratio(None, sample) is difference(None, 1.0) is difference(sample, None) is None
    assert ratio(sample, Sample((2.0,))) == Sample((2.0,))
    assert difference(sample, 1.0) == Sample((3.0,))


def test_a_run_without_the_target_counts_with_the_longest_of_all_runs():
    reached = {"a": Sample((4.0, None, 9.0)), "b": Sample((4.0, 5.0, None))}
    times = restricted(reached, {"a": Sample((10.0, 10.0, 10.0)), "b": Sample((20.0, 19.0, None))})
    assert times.pair("a", "b")[0].values == (4.0, 20.0, 9.0)
    with pytest.raises(LookupError, match="no run has an end"):
        restricted(reached, {"a": Sample((None,))})


def test_a_strategy_that_never_reaches_the_target_has_no_time_to_compare():
    """It would count with the horizon, a constant; nor may all miss the target with more than half of their seeds."""
    reached = {
        "a": Sample((4.0, None, None)),
        "b": Sample((2.0, 3.0, None)),
        "c": Sample((None, None, None)),
        "d": Sample((5.0, None, None)),
    }
    times = restricted(reached, dict.fromkeys(reached, Sample((9.0, 9.0, 9.0))))
    assert times.pair("a", "b") == (Sample((4.0, 9.0, 9.0)), Sample((2.0, 3.0, 9.0)))
    flaws = [times.pair(*names)[0].flaw for names in (("b", "c"), ("a", "d"))]
    assert flaws == ["seeds that reach the target: b 2/3, c 0/3", "seeds that reach the target: a 1/3, d 1/3"]


def test_what_is_computed_from_a_flawed_sample_is_flawed():
    good, bad = Sample((1.0, 2.0)), Sample((1.0, 2.0), "at chance")
    made = [good - bad, bad / good, 2.0 * bad, 1.0 - bad, average([good, bad]), bad - 1.0]
    assert {sample.flaw for sample in made} == {"at chance"}
    assert (good - good).flaw == ""


def test_an_average_is_seed_by_seed_and_of_all():
    assert average([Sample((1.0, 2.0)), Sample((3.0, None))]).values == (2.0, None)
