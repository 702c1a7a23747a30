"""Several looks: the levels of finer quadratures, simulated studies."""

import numpy as np
import pytest
import scipy
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.sequential import pocock_level

LOOKS = (5, 10, 15, 20)


def test_one_look_has_the_whole_of_alpha():
    assert pocock_level(0.05, [5]) == 0.05


@pytest.mark.parametrize(("sizes", "num_studies"), [(LOOKS, 100_000), ((3, 6, 9), 60_000)])
def test_students_tests_at_several_looks_err_with_alpha(sizes, num_studies):
    differences = np.random.default_rng(1).normal(0.0, 3.0, (num_studies, sizes[-1]))
    smallest = np.ones(num_studies)
    for n in sizes:
        seen = differences[:, :n]
        t = seen.mean(1) / (seen.std(1, ddof=1) / np.sqrt(n))
        smallest = np.minimum(smallest, scipy.stats.t.sf(t, n - 1))
    errors = int((smallest <= pocock_level(0.05, sizes)).sum())
    assert scipy.stats.binomtest(errors, num_studies, 0.05).pvalue > 0.01


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sizes", "level", "error"),
    [
        (LOOKS, 0.0181304382, 1e-6),
        ((125, 250, 375, 500), 0.0192994185, 1e-6),
        ((3, 6, 9, 12), 0.0173917, 2e-5),
        ((5, 8, 40, 43), 0.0180101, 2e-5),
    ],
)
def test_levels_are_as_accurate_as_they_say(sizes, level, error):
    """Against twice as many points and more in each quadrature."""
    assert pocock_level(0.05, sizes) == pytest.approx(level, abs=error)


@pytest.mark.statistical
@scaled(12)
@given(st.floats(0.001, 0.5), st.lists(st.integers(3, 20), min_size=2, max_size=4))
def test_the_level_is_between_alpha_over_the_looks_and_alpha_and_falls_with_another_look(alpha, steps):
    sizes = [int(n) for n in np.cumsum(steps)]
    level = pocock_level(alpha, sizes)
    assert alpha / len(sizes) <= level < pocock_level(alpha, sizes[:-1])
    assert level == pocock_level(alpha, sizes)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 0.51, float("nan")])
def test_an_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"^alpha must be in \(0, 0.5\]"):
        pocock_level(alpha, LOOKS)


@pytest.mark.parametrize("sizes", [[], [2, 5], [5, 7]])
def test_sizes_that_do_not_grow_enough_are_refused(sizes):
    with pytest.raises(ValueError, match="sizes must grow by"):
        pocock_level(0.05, sizes)
