import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports.statistics import Sample, paired_ratio


def test_mean_and_deviation_of_a_known_sample():
    sample = Sample((1.0, 2.0, 3.0, None))
    assert (sample.n, sample.mean, sample.std) == (3, 2.0, 1.0)


def test_too_few_values_have_no_spread():
    assert math.isnan(Sample((5.0,)).std)
    assert math.isnan(Sample((5.0, None)).std)
    assert math.isnan(Sample((None,)).mean)


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=8), st.floats(0.1, 10))
def test_a_common_factor_of_all_seeds_has_no_spread_in_the_paired_ratio(values, factor):
    ratio = paired_ratio([value * factor for value in values], values)
    assert ratio.mean == pytest.approx(factor)
    assert all(value == pytest.approx(factor) for value in ratio.values)


def test_a_seed_without_a_partner_or_with_nothing_to_compare_to_has_no_ratio():
    assert paired_ratio([1.0, None, 3.0, 3.0], [2.0, 2.0, None, 0.0]).values == (0.5, None, None, None)
    assert paired_ratio([0.0], [2.0]).values == (0.0,)
