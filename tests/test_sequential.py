"""Several looks: Pocock's table, other ways to the same probabilities, simulated studies."""

from functools import cache

import numpy as np
import pytest
import scipy
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st

from syncline.sequential import pocock_level

LOOKS = (5, 10, 15, 20)
level_of = cache(pocock_level)


@pytest.mark.parametrize(
    ("looks", "z", "level"), [(2, 2.178, 0.0294), (3, 2.289, 0.0221), (4, 2.361, 0.0182), (5, 2.413, 0.0158)]
)
def test_the_level_of_equal_looks_with_known_variance_is_that_of_pococks_table(looks, z, level):
    found = pocock_level(0.05, range(5, 5 * looks + 1, 5), two_sided=True, student=False)
    assert found == pytest.approx(level, abs=5e-5)
    assert scipy.stats.norm.isf(found / 2) == pytest.approx(z, abs=5e-4)


@pytest.mark.statistical
@pytest.mark.parametrize("sizes", [(5, 10), (3, 20), (5, 10, 15, 20), (2, 3, 10, 40, 41)])
@pytest.mark.parametrize("two_sided", [True, False])
def test_with_known_variance_the_looks_err_with_alpha_by_the_multivariate_normal_distribution(sizes, two_sided):
    level = pocock_level(0.05, sizes, two_sided=two_sided, student=False)
    limits = np.full(len(sizes), scipy.stats.norm.isf(level / 2 if two_sided else level))
    covariance = np.sqrt(np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes))
    within = scipy.stats.multivariate_normal.cdf(limits, cov=covariance, lower_limit=-limits if two_sided else None)
    assert 1 - within == pytest.approx(0.05, abs=1e-4)


def test_one_look_has_the_whole_of_alpha():
    assert pocock_level(0.05, [5]) == pocock_level(0.05, [5], student=False) == 0.05


def smallest_p(sizes, num_studies, two_sided, rng):
    """Of each study without an effect, Student's smallest p-value at its looks."""
    differences = rng.normal(0.0, 3.0, (num_studies, sizes[-1]))
    smallest = np.ones(num_studies)
    for n in sizes:
        seen = differences[:, :n]
        t = seen.mean(1) / (seen.std(1, ddof=1) / np.sqrt(n))
        p = 2 * scipy.stats.t.sf(np.abs(t), n - 1) if two_sided else scipy.stats.t.sf(t, n - 1)
        smallest = np.minimum(smallest, p)
    return smallest


def test_students_tests_at_several_looks_err_with_alpha_and_more_at_the_level_for_known_variance():
    smallest = smallest_p(LOOKS, 100_000, True, np.random.default_rng(2))

    def errors(student):
        return int((smallest <= level_of(0.05, LOOKS, two_sided=True, student=student)).sum())

    assert scipy.stats.binomtest(errors(True), 100_000, 0.05).pvalue > 0.01
    assert scipy.stats.binomtest(errors(False), 100_000, 0.05, "greater").pvalue < 1e-3
    assert errors(False) / 100_000 == pytest.approx(0.054, abs=0.003)


def test_one_sided_tests_at_several_looks_err_with_alpha():
    sizes = (3, 6, 9)
    smallest = smallest_p(sizes, 60_000, False, np.random.default_rng(1))
    errors = int((smallest <= pocock_level(0.05, sizes)).sum())
    assert scipy.stats.binomtest(errors, 60_000, 0.05).pvalue > 0.01


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("sizes", "two_sided", "student", "level", "error"),
    [
        (LOOKS, True, True, 0.0168920528, 1e-6),
        (LOOKS, False, True, 0.0181304382, 1e-6),
        ((125, 250, 375, 500), True, True, 0.0181553022, 1e-6),
        ((3, 6, 9, 12), False, True, 0.0173917, 2e-5),
        ((5, 8, 40, 43), False, True, 0.0180101, 2e-5),
        ((2, 3, 10, 40, 41), False, False, 0.0152002665, 1e-6),
    ],
)
def test_levels_are_as_accurate_as_they_say(sizes, two_sided, student, level, error):
    """Against twice as many points and more in each quadrature."""
    assert pocock_level(0.05, sizes, two_sided=two_sided, student=student) == pytest.approx(level, abs=error)


@pytest.mark.statistical
@scaled(12)
@given(st.floats(0.001, 0.5), st.lists(st.integers(3, 20), min_size=2, max_size=4), st.booleans(), st.booleans())
def test_the_level_is_between_alpha_over_the_looks_and_alpha_and_falls_with_another_look(
    alpha, steps, two_sided, student
):
    sizes = [int(n) for n in np.cumsum(steps)]
    level = pocock_level(alpha, sizes, two_sided=two_sided, student=student)
    assert alpha / len(sizes) <= level < pocock_level(alpha, sizes[:-1], two_sided=two_sided, student=student)
    assert level == pocock_level(alpha, sizes, two_sided=two_sided, student=student)


@pytest.mark.parametrize("alpha", [0.0, -0.1, 0.51, float("nan")])
def test_an_alpha_out_of_range_is_refused(alpha):
    with pytest.raises(ValueError, match=r"^alpha must be in \(0, 0.5\]"):
        pocock_level(alpha, LOOKS)


@pytest.mark.parametrize(
    ("sizes", "student"), [([], True), ([2, 5], True), ([5, 7], True), ([0, 5], False), ([5, 5], False)]
)
def test_sizes_that_do_not_grow_enough_are_refused(sizes, student):
    with pytest.raises(ValueError, match="sizes must grow by"):
        pocock_level(0.05, sizes, student=student)
