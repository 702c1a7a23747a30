"""Closed forms against other ways to the same numbers: integrals of scipy's distributions, enumeration, identities that
hold for every distribution, draws, recurrences.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recurrences import k_async_updates_s, k_batch_async_updates_s, k_sync_updates_s
from scipy import stats
from scipy.integrate import quad

from syncline.timing.adasync import adasync_quadratic_k, adasync_square_root_k
from syncline.timing.distributions import (
    Array,
    Constant,
    Distribution,
    Empirical,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Occasional,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
)
from syncline.timing.draws import Draws
from syncline.timing.order_statistics import harmonic, order_statistic
from syncline.timing.run_times import (
    VARIANTS,
    is_new_longer_than_used,
    k_async_bound_s,
    k_async_over_k_batch_async,
    k_async_shifted_approximation_s,
    k_async_shifted_bound_s,
    k_batch_async_s,
    k_batch_sync_bound_s,
    k_sync_s,
    run_time,
    sync_over_async,
)


@dataclass(frozen=True)
class Unknown:
    """A distribution that the module under test does not know: a Weibull of scale 1."""

    shape: float
    name: str = "unknown"

    def quantile(self, u: Array) -> Array:
        return (-np.log1p(-u)) ** (1.0 / self.shape)

    def expectation(self) -> float:
        return math.gamma(1.0 + 1.0 / self.shape)


MEASURED = (0.3, 0.1, 0.2, 0.2, 0.9)

CONTINUOUS: list[tuple[Distribution, Any]] = [
    (Normal(1.0, 0.05), stats.norm(1.0, 0.05)),
    (Normal(1.0, 0.6), stats.norm(1.0, 0.6)),
    (LogNormal(1.5, 0.3), stats.lognorm(0.3, scale=1.5)),
    (LogNormal(0.02, 1.0), stats.lognorm(1.0, scale=0.02)),
    (Exponential(0.02), stats.expon(scale=0.02)),
    (ShiftedExponential(0.3, 2.0), stats.expon(loc=0.3, scale=2.0)),
    (Pareto(0.5, 3.0), stats.pareto(3.0, scale=0.5)),
    (Uniform(0.9, 1.2), stats.uniform(0.9, 0.3)),
    (Weibull(0.5, 1.7), stats.weibull_min(1.7, scale=0.5)),
    (Weibull(2.0, 0.6), stats.weibull_min(0.6, scale=2.0)),
    (Gamma(3.0, 0.5), stats.gamma(3.0, scale=0.5)),
    (Gamma(0.4, 2.0), stats.gamma(0.4, scale=2.0)),
    (Unknown(1.7), stats.weibull_min(1.7)),
]
LIGHT = [
    *(source for source, _ in CONTINUOUS),
    Constant(0.7),
    Empirical(MEASURED),
    Occasional(0.3, Exponential(2.0)),
    Occasional(1.0, Uniform(1.0, 2.0)),
    Occasional(0.0, Exponential(2.0)),
]
ALL = [*LIGHT, Pareto(2.0, 1.2), LogNormal(1.0, 3.0)]  # the means of the last two converge too slowly to be tested
MEMORYLESS = [Exponential(0.5), ShiftedExponential(0.0, 0.5)]


def survival_integral(known: Any, k: int, num: int) -> float:
    """E[X_{k:n}] = integral over x > 0 of P(more than n-k of n draws are > x), for X cut at 0."""

    def survival(x: float) -> float:
        return float(stats.binom.sf(num - k, num, known.sf(x)))

    tails = np.array([1e-13, 1e-9, 1e-5, 1e-2, 0.3])
    points = [*known.ppf(stats.beta.ppf(tails, k, num - k + 1)), *known.isf(stats.beta.ppf(tails, num - k + 1, k))]
    ends = sorted({0.0, *(max(0.0, float(point)) for point in points)})
    return math.fsum(quad(survival, low, high, epsabs=1e-14, epsrel=1e-9)[0] for low, high in pairwise(ends))


# Harmonic numbers.


@given(st.integers(1, 300))
def test_a_harmonic_number_is_the_one_before_and_a_reciprocal(num: int) -> None:
    assert harmonic(num) == pytest.approx(float(sum(Fraction(1, i) for i in range(1, num + 1))), rel=1e-15)
    assert harmonic(num) == pytest.approx(harmonic(num - 1) + 1 / num, rel=1e-15)


def test_harmonic_numbers_grow_like_the_logarithm() -> None:
    """H_n = ln n + gamma + 1/(2n) - 1/(12 n^2) + O(n^-4)."""
    assert harmonic(0) == 0
    for num in (100, 10_000):
        assert harmonic(num) == pytest.approx(math.log(num) + np.euler_gamma + 1 / (2 * num) - 1 / (12 * num**2), 1e-10)


# Order statistics: what holds for every distribution.


@pytest.mark.parametrize("num", [1, 2, 7, 40])
@pytest.mark.parametrize("source", ALL, ids=str)
def test_the_order_statistics_of_n_draws_add_up_to_n_expectations(source: Distribution, num: int) -> None:
    total = math.fsum(order_statistic(source, k, num) for k in range(1, num + 1))
    assert total == pytest.approx(num * source.expectation(), rel=1e-9)


@pytest.mark.parametrize("source", ALL, ids=str)
def test_a_higher_rank_takes_longer_and_more_draws_make_each_rank_shorter(source: Distribution) -> None:
    table = [[order_statistic(source, k, num) for k in range(1, num + 1)] for num in range(1, 12)]
    slack = 1e-12 * table[-1][-1]
    for row in table:
        assert all(below <= above + slack for below, above in pairwise(row))
    for fewer, more in pairwise(table):
        assert all(after <= before + slack for before, after in zip(fewer, more, strict=False))
        assert more[-1] >= fewer[-1] - slack, "the largest of more draws is larger"


@pytest.mark.parametrize("k", [1, 2, 100, 5000, 9998, 9999])
@pytest.mark.parametrize("source", ALL, ids=str)
def test_leaving_one_of_ten_thousand_draws_out_mixes_two_neighbouring_ranks(source: Distribution, k: int) -> None:
    """(n-k) E[X_{k:n}] + k E[X_{k+1:n}] = n E[X_{k:n-1}] (the triangle rule; David and Nagaraja, section 3.4)."""
    num = 10_000
    mixed = (num - k) * order_statistic(source, k, num) + k * order_statistic(source, k + 1, num)
    assert mixed == pytest.approx(num * order_statistic(source, k, num - 1), rel=1e-10)


@pytest.mark.parametrize("source", LIGHT, ids=str)
def test_the_sorted_draws_of_many_rounds_have_these_means_within_four_standard_errors(source: Distribution) -> None:
    rounds, num = 20_000, 6
    drawn = np.sort(source.quantile(np.random.default_rng(11).random((rounds, num))), axis=1)
    expected = [order_statistic(source, k, num) for k in range(1, num + 1)]
    errors = drawn.std(axis=0) / math.sqrt(rounds)
    assert (np.abs(drawn.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()


@pytest.mark.parametrize(("k", "num"), [(1, 1), (1, 5), (3, 5), (5, 5), (900, 1000), (1000, 1000)])
@pytest.mark.parametrize(("source", "known"), CONTINUOUS, ids=[str(source) for source, _ in CONTINUOUS])
def test_order_statistics_are_integrals_of_scipys_survival_functions(
    source: Distribution, known: Any, k: int, num: int
) -> None:
    assert order_statistic(source, k, num) == pytest.approx(survival_integral(known, k, num), rel=1e-7)


@pytest.mark.parametrize("k", [1, 30, 5000, 9990, 10_000])
@pytest.mark.parametrize("index", [0, 3], ids=["normal", "log_normal"])
def test_ten_thousand_draws_are_integrated_where_their_mass_is(index: int, k: int) -> None:
    source, known = CONTINUOUS[index]
    assert order_statistic(source, k, 10_000) == pytest.approx(survival_integral(known, k, 10_000), rel=1e-7)


@given(st.integers(1, 10_000), st.data())
def test_quadrature_agrees_with_the_closed_form(num: int, data: st.DataObject) -> None:
    """An exponential by quadrature of its quantile function."""
    k = data.draw(st.integers(1, num))
    # The quantile function of a Weibull of shape 1; its largest draws lose digits as u comes close to 1.
    assert order_statistic(Unknown(1.0), k, num) == pytest.approx(order_statistic(Exponential(1.0), k, num), rel=1e-9)


# Order statistics: one distribution at a time.


@given(st.floats(0, 100), st.floats(0.01, 100), st.integers(1, 50), st.data())
def test_shift_and_scale_pass_through(shift: float, scale: float, num: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, num))
    unit = order_statistic(Exponential(1.0), k, num)
    assert order_statistic(ShiftedExponential(shift, scale), k, num) == pytest.approx(shift + scale * unit, rel=1e-12)
    share = k / (num + 1)
    assert order_statistic(Uniform(shift, shift + scale), k, num) == pytest.approx(shift + scale * share, rel=1e-12)
    middle = order_statistic(Normal(20.0, 1.0), k, num) - 20.0
    assert order_statistic(Normal(20.0 * scale, scale), k, num) == pytest.approx(scale * (20.0 + middle), rel=1e-12)
    assert order_statistic(Constant(shift), k, num) == shift


@pytest.mark.parametrize("num", [1, 8, 1000, 10_000])
def test_exponential_order_statistics_are_differences_of_harmonic_numbers(num: int) -> None:
    for k in (1, num // 3 + 1, num):
        assert order_statistic(Exponential(2.0), k, num) == pytest.approx(
            2 * (harmonic(num) - harmonic(num - k)), 1e-10
        )
    assert order_statistic(Exponential(2.0), 1, num) == pytest.approx(2 / num, rel=1e-15), (
        "the least one is not rounded"
    )


@pytest.mark.parametrize("shape", [1.01, 1.5, 2.0, 7.0])
@pytest.mark.parametrize("num", [1, 8, 10_000])
def test_pareto_order_statistics_are_quotients_of_gamma_functions(num: int, shape: float) -> None:
    for k in {1, num // 2 + 1, num}:
        logarithm = (
            math.lgamma(num + 1)
            + math.lgamma(num - k + 1 - 1 / shape)
            - math.lgamma(num - k + 1)
            - math.lgamma(num + 1 - 1 / shape)
        )
        assert order_statistic(Pareto(3.0, shape), k, num) == pytest.approx(3 * math.exp(logarithm), rel=1e-9)
    assert order_statistic(Pareto(3.0, shape), 1, num) == pytest.approx(3 * num * shape / (num * shape - 1), rel=1e-14)


def test_small_samples_of_a_normal_have_known_largest_values() -> None:
    """E[Z_{n:n}] for n = 2 .. 5 (David and Nagaraja, section 3.2), on a normal whose cut is out of reach."""
    root_pi = math.sqrt(math.pi)
    known = {
        2: 1 / root_pi,
        3: 1.5 / root_pi,
        4: 3 / root_pi * (0.5 + math.asin(1 / 3) / math.pi),
        5: 2.5 / root_pi * (0.5 + 3 * math.asin(1 / 3) / math.pi),
    }
    for num, largest in known.items():
        assert order_statistic(Normal(100.0, 1.0), num, num) == pytest.approx(100 + largest, rel=1e-14)
        assert order_statistic(Normal(100.0, 1.0), 1, num) == pytest.approx(100 - largest, rel=1e-14)


@pytest.mark.parametrize("num", [100, 10_000, 1_000_000])
def test_the_middle_of_many_normal_draws_is_the_quantile_and_its_curvature(num: int) -> None:
    """E[X_{k:n}] = Q(p) + p (1-p) Q''(p) / (2 (n+2)) + O(n^-2) with p = k/(n+1) (David and Nagaraja, section 4.6)."""
    for k in (num // 5, num // 2, num * 9 // 10):
        p = k / (num + 1)
        z = stats.norm.ppf(p)
        near = 50 + z + p * (1 - p) * z / stats.norm.pdf(z) ** 2 / (2 * (num + 2))
        assert order_statistic(Normal(50.0, 1.0), k, num) == pytest.approx(near, abs=10 / num**2 + 1e-12)


@pytest.mark.parametrize("sigma", [0.0, 0.5, 2.0, 5.0, 8.0])
def test_a_log_normal_of_any_width_keeps_its_mean(sigma: float) -> None:
    source = LogNormal(3.0, sigma)
    assert order_statistic(source, 1, 1) == pytest.approx(source.expectation(), rel=1e-12)
    pair = order_statistic(source, 1, 2) + order_statistic(source, 2, 2)
    assert pair == pytest.approx(2 * source.expectation(), rel=1e-12)
    # E|X - Y| of two draws is 2 E[X] (2 Phi(sigma / sqrt 2) - 1): the log-normal's Gini index
    gap = 2 * source.expectation() * (2 * stats.norm.cdf(sigma / math.sqrt(2)) - 1)
    assert order_statistic(source, 2, 2) - order_statistic(source, 1, 2) == pytest.approx(gap, rel=1e-10)


@pytest.mark.parametrize(("k", "num"), [(1, 1), (1, 8), (5, 8), (8, 8), (990, 1000), (1000, 1000)])
@pytest.mark.parametrize("source", [Weibull(0.3, 1.0), Gamma(1.0, 0.3)], ids=str)
def test_of_shape_1_weibull_and_gamma_are_exponential(source: Distribution, k: int, num: int) -> None:
    assert order_statistic(source, k, num) == pytest.approx(order_statistic(Exponential(0.3), k, num), rel=1e-9)


@pytest.mark.parametrize("shape", [0.5, 1.7, 4.0])
@pytest.mark.parametrize("num", [2, 8, 1000])
def test_the_first_of_n_weibulls_is_a_weibull(num: int, shape: float) -> None:
    """P(X_{1:n} > x) = exp(-n (x / scale)^shape)."""
    first = Weibull(0.3 * num ** (-1 / shape), shape)
    assert order_statistic(Weibull(0.3, shape), 1, num) == pytest.approx(first.expectation(), rel=1e-9)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 4), st.data())
def test_an_empirical_order_statistic_is_the_mean_over_all_that_can_be_drawn(
    values: list[int], num: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, num))
    drawn = [sorted(draw)[k - 1] for draw in product(values, repeat=num)]
    expected = float(Fraction(sum(drawn), len(drawn)))
    assert order_statistic(Empirical(tuple(values)), k, num) == pytest.approx(expected, rel=1e-13, abs=1e-15)


def test_a_large_sample_has_the_order_statistics_of_what_it_was_taken_from() -> None:
    """The midpoints of 10^5 equal shares of an exponential."""
    sample = Exponential(1.0).quantile((np.arange(100_000) + 0.5) / 100_000)
    for k, num in ((1, 8), (5, 8), (8, 8), (50, 100)):
        assert order_statistic(Empirical(tuple(sample)), k, num) == pytest.approx(
            order_statistic(Exponential(1.0), k, num), rel=1e-3
        )


@pytest.mark.parametrize("probability", [0.0016, 0.3, 0.97])
@pytest.mark.parametrize("num", [1, 32, 10_000])
def test_an_occasional_constant_counts_as_often_as_enough_draws_are_late(num: int, probability: float) -> None:
    for k in {1, num // 2 + 1, num}:
        share = stats.binom.sf(num - k, num, probability)
        assert order_statistic(Occasional(probability, Constant(4.0)), k, num) == pytest.approx(4 * share, rel=1e-9)


@pytest.mark.parametrize(("k", "num"), [(1, 1), (3, 5), (5, 5), (990, 1000)])
def test_an_occasional_delay_is_the_integral_of_its_survival_function(k: int, num: int) -> None:
    def survival(x: float) -> float:
        return float(stats.binom.cdf(k - 1, num, 0.7 + 0.3 * stats.expon.cdf(x)))

    expected = math.fsum(quad(survival, low, high)[0] for low, high in pairwise([0, 1, 2, 4, 6, 8, 10, 15, 20, 40]))
    assert order_statistic(Occasional(0.3, Exponential(1.0)), k, num) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("k", "num"), [(0, 8), (9, 8), (-1, 8), (1, 0)])
@pytest.mark.parametrize("source", [Constant(1.0), Exponential(1.0), Normal(1.0, 0.1), Empirical(MEASURED)], ids=str)
def test_a_rank_out_of_range_is_refused_in_one_line(source: Distribution, k: int, num: int) -> None:
    line = rf"^order_statistic: k must be in 1 \.\. num, got k = {k} and num = {num}$"
    with pytest.raises(ValueError, match=line):
        order_statistic(source, k, num)


def test_there_is_no_harmonic_number_below_0() -> None:
    with pytest.raises(ValueError, match=r"^harmonic: num must be >= 0, got -1$"):
        harmonic(-1)


# New-longer-than-used (adasync.txt, Definition 3).

USED = [
    (Constant(2.0), True),
    (Exponential(2.0), True),
    (ShiftedExponential(0.5, 2.0), True),
    (Uniform(0.0, 2.0), True),
    (Uniform(1.0, 2.0), True),
    (Normal(1.0, 0.05), True),
    (Normal(1.0, 0.1), True),
    (Normal(1.0, 0.0), True),
    (Normal(1.0, 0.8), False),  # a tenth of it is 0
    (LogNormal(1.0, 0.5), False),
    (LogNormal(1.0, 0.0), True),
    (Pareto(1.0, 3.0), False),
    (Weibull(2.0, 1.0), True),
    (Weibull(2.0, 1.7), True),
    (Weibull(2.0, 0.9), False),
    (Gamma(1.0, 2.0), True),
    (Gamma(3.0, 0.5), True),
    (Gamma(0.8, 2.0), False),
    (Empirical((1.0, 1.2, 1.3, 2.0)), True),
    (Empirical((1.0, 1.0, 1.0, 9.0)), False),
    (Empirical((0.0, 1.0)), False),
    (Occasional(0.5, Constant(1.0)), False),
    (Occasional(0.0, Constant(1.0)), True),
    (Occasional(0.5, Constant(0.0)), True),
    (Occasional(1.0, Exponential(1.0)), True),
    (Occasional(1.0, Pareto(1.0, 2.0)), False),
]


@pytest.mark.parametrize(("source", "is_so"), USED, ids=[str(source) for source, _ in USED])
def test_which_distributions_are_new_longer_than_used(source: Distribution, is_so: bool) -> None:
    assert is_new_longer_than_used(source) is is_so


@pytest.mark.parametrize(("source", "is_so"), USED, ids=[str(source) for source, _ in USED])
def test_the_inequality_holds_or_fails_on_a_grid_of_times(source: Distribution, is_so: bool) -> None:
    """P(X > t + u) <= P(X > t) P(X > u), with P from a million equally likely draws."""
    num = 10**6
    sample = source.quantile((np.arange(num) + 0.5) / num)
    times = np.linspace(0.0, 2.0 * sample[int(0.999 * num)], 60) * (1 + 1e-9)

    def survival(x: Array) -> Array:
        return 1.0 - np.searchsorted(sample, x, side="right") / num

    excess = survival(times[:, None] + times) - survival(times)[:, None] * survival(times)
    assert bool(excess.max() <= 3 / num) is is_so


@given(st.lists(st.integers(0, 12), min_size=1, max_size=7))
def test_a_sample_is_checked_at_every_pair_of_times(values: list[int]) -> None:
    def survivors(time: int) -> int:
        return sum(value > time for value in values)

    # whole numbers do: P(X > x) changes nowhere else, and t + u is smallest there
    by_hand = all(len(values) * survivors(t + u) <= survivors(t) * survivors(u) for t in range(13) for u in range(13))
    for scale in (1.0, 0.1, 1e-3 / 3):
        assert is_new_longer_than_used(Empirical(tuple(scale * value for value in values))) is by_hand


@given(st.floats(1e-3, 1e3), st.lists(st.floats(1, 2), min_size=1, max_size=30))
def test_a_sample_within_a_factor_of_two_is_always_new_longer_than_used(least: float, factors: list[float]) -> None:
    assert is_new_longer_than_used(Empirical((least, *(least * factor for factor in factors))))


def test_it_is_unknown_for_an_unknown_distribution() -> None:
    with pytest.raises(ValueError, match=r"^is_new_longer_than_used: not known for unknown durations$"):
        is_new_longer_than_used(Unknown(0.5))


# Run times of the K-variants (adasync.txt, section 3).

K_SYNC_8 = [0.1250, 0.2679, 0.4345, 0.6345, 0.8845, 1.2179, 1.7179, 2.7179]  # P = 8, exponential, mean 1
SHIFTED = ShiftedExponential(1.0, 1.0)


@pytest.mark.parametrize(("k", "seconds"), list(enumerate(K_SYNC_8, start=1)))
def test_run_times_of_eight_exponential_workers(k: int, seconds: float) -> None:
    assert k_sync_s(Exponential(1.0), k, 8) == pytest.approx(seconds, abs=5e-5)
    assert k_async_bound_s(Exponential(1.0), k, 8) == pytest.approx(seconds, abs=5e-5)
    assert k_batch_sync_bound_s(Exponential(1.0), k, 8) == pytest.approx(k / 8, rel=1e-14)
    assert k_batch_async_s(Exponential(1.0), k, 8) == k / 8


@pytest.mark.parametrize(("k", "sync"), [(1, 1.125), (2, 1.268), (4, 1.635), (8, 3.718)])
def test_run_times_of_eight_shifted_exponential_workers(k: int, sync: float) -> None:
    assert k_sync_s(SHIFTED, k, 8) == pytest.approx(sync, abs=5e-4)
    assert k_batch_async_s(SHIFTED, k, 8) == k / 4


def mean_and_error(updates: Array) -> tuple[float, float]:
    """Of the time of an update, from the means of 40 stretches of a long run, which depend little on each other."""
    stretch = len(updates) // 40
    means = np.diff(updates[::stretch]) / stretch
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))


def durations(source: Distribution, workers: int = 8, iterations: int = 4000) -> Array:
    return Draws(3, "compute", source, [1.0] * workers).first(iterations)


@pytest.mark.parametrize(("k", "seconds"), [(1, 0.25), (2, 0.53), (4, 1.24), (8, 3.72)])
def test_k_async_with_shifted_exponential_times_is_faster_than_either_bound(k: int, seconds: float) -> None:
    """Section 3.3.3: with a large shift it is strictly faster than K-sync."""
    mean, error = mean_and_error(k_async_updates_s(durations(SHIFTED), k))
    assert mean == pytest.approx(seconds, abs=0.005 + 4 * error)
    assert mean >= k_batch_async_s(SHIFTED, k, 8) - 4 * error, "no worker pushes more often than it computes"
    assert mean <= k_async_shifted_bound_s(SHIFTED, k, 8) + 4 * error
    assert k == 8 or mean < k_sync_s(SHIFTED, k, 8) - 10 * error


@pytest.mark.parametrize(
    ("variant", "source", "k", "claim"),
    [
        ("k_sync", Pareto(1.0, 2.0), 3, "equality"),
        ("k_batch_async", Pareto(1.0, 2.0), 3, "equality"),
        ("k_batch_async", Pareto(1.0, 2.0), 30, "equality"),
        ("k_batch_sync", Pareto(1.0, 2.0), 3, "unproved"),
        ("k_batch_sync", Pareto(1.0, 2.0), 1, "equality"),
        ("k_async", LogNormal(1.0, 0.5), 3, "unproved"),
        ("k_async", LogNormal(1.0, 0.5), 8, "equality"),
        ("k_async", Normal(1.0, 0.05), 3, "upper bound"),
        ("k_batch_sync", Constant(1.0), 30, "upper bound"),
        *((variant, source, 3, "equality") for variant in sorted(VARIANTS) for source in MEMORYLESS),
    ],
)
def test_a_formula_says_what_is_proved_for_it(variant: str, source: Distribution, k: int, claim: str) -> None:
    assert run_time(variant, source, k, 8).claim == claim


def test_an_unknown_variant_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"^run_time: variant must be one of k_async, .*, k_sync, got 'backup'$"):
        run_time("backup", Constant(1.0), 1, 1)


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_a_k_out_of_range_is_refused_in_one_line(variant: str) -> None:
    for k, num_workers in [(0, 8), (-1, 8), (1, 0)] + ([] if "batch" in variant else [(9, 8)]):
        with pytest.raises(ValueError, match=r"^\w+: (k|num_workers) must be .* got .*$"):
            VARIANTS[variant](Exponential(1.0), k, num_workers)


@given(st.floats(0, 10), st.floats(0.1, 10), st.integers(1, 12), st.integers(1, 12))
def test_lemma_4_adds_up_the_order_statistics_of_those_that_have_outlived_the_shift(
    shift: float, scale: float, k: int, updates: int
) -> None:
    """Equation 39 before it telescopes, and the paper's (K/P)(shift + scale H_P) for P = nK."""
    source, num_workers = ShiftedExponential(shift, scale), k * updates
    later = [order_statistic(Exponential(scale), k, num_workers - i * k) for i in range(1, updates)]
    in_a_row = order_statistic(source, k, num_workers) + math.fsum(later)
    bound = k_async_shifted_bound_s(source, k, num_workers)
    assert bound == pytest.approx(in_a_row / updates, rel=1e-12)
    assert bound == pytest.approx(k / num_workers * (shift + scale * harmonic(num_workers)), rel=1e-12)
    assert k_async_shifted_approximation_s(source, k, num_workers) == pytest.approx(bound, rel=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.3, 1.0, 20.0])
@pytest.mark.parametrize("k", range(1, 9))
def test_lemma_4_bounds_k_async_where_k_does_not_divide_the_workers_too(k: int, shift: float) -> None:
    source = ShiftedExponential(shift, 1.0)
    mean, error = mean_and_error(k_async_updates_s(durations(source, iterations=800), k))
    assert mean <= k_async_shifted_bound_s(source, k, 8) + 4 * error
    if k > 4:
        assert k_async_shifted_bound_s(source, k, 8) == k_async_bound_s(source, k, 8), "n = 1 is Lemma 3"


def test_lemma_4_beats_lemma_3_if_the_shift_is_large_and_not_otherwise() -> None:
    for shift, is_better in ((20.0, True), (0.1, False)):
        source = ShiftedExponential(shift, 1.0)
        assert (k_async_shifted_bound_s(source, 4, 8) < k_async_bound_s(source, 4, 8)) is is_better


def test_where_k_does_not_divide_the_workers_the_telescoped_form_is_no_bound() -> None:
    """5 of 8 almost equal workers: each update waits for a whole mini-batch, not for 5/8 of one."""
    source = ShiftedExponential(20.0, 1.0)
    mean, error = mean_and_error(k_async_updates_s(durations(source, iterations=800), 5))
    assert k_async_shifted_approximation_s(source, 5, 8) < 15 < 20 < mean - 4 * error
    for k in (3, 5, 6, 7):  # and with a small shift it is a worse one than Lemma 4's proof gives
        assert k_async_shifted_approximation_s(SHIFTED, k, 8) > k_async_shifted_bound_s(SHIFTED, k, 8)


def test_theorem_1_of_exponential_times_is_p_times_the_harmonic_number() -> None:
    for num_workers in (1, 2, 8, 10_000):
        ratio = sync_over_async(Exponential(0.3), num_workers)
        assert ratio == pytest.approx(num_workers * harmonic(num_workers), rel=1e-12)


@pytest.mark.parametrize(("num_workers", "too_small"), [(8, 0.235), (100, 0.112), (10_000, 0.059)])
def test_corollary_1s_p_log_p_is_too_small(num_workers: int, too_small: float) -> None:
    share = num_workers * math.log(num_workers) / sync_over_async(Exponential(1.0), num_workers)
    assert 1 - share == pytest.approx(too_small, abs=5e-4)


@pytest.mark.parametrize("source", ALL, ids=str)
@pytest.mark.parametrize("num_workers", [1, 2, 8, 100])
def test_theorem_1_lies_between_p_and_p_squared(source: Distribution, num_workers: int) -> None:
    """E[X] <= E[X_{P:P}] <= P E[X]."""
    if source.expectation() == 0:
        with pytest.raises(ValueError, match=r"^sync_over_async: the distribution's expectation must be > 0, got "):
            sync_over_async(source, num_workers)
        return
    assert num_workers * (1 - 1e-9) <= sync_over_async(source, num_workers) <= num_workers**2 * (1 + 1e-9)


def test_theorem_1_is_what_sync_and_async_runs_take() -> None:
    for source in (Exponential(1.0), SHIFTED, Normal(1.0, 0.1)):
        drawn = durations(source)
        sync, sync_error = mean_and_error(k_sync_updates_s(drawn, 8))
        asynchronous, async_error = mean_and_error(k_batch_async_updates_s(drawn, 1))
        error = sync / asynchronous * math.hypot(sync_error / sync, async_error / asynchronous)
        assert abs(sync / asynchronous - sync_over_async(source, 8)) <= 4 * error


@given(st.integers(1, 200))
def test_theorem_2_grows_from_1_to_the_harmonic_number(num_workers: int) -> None:
    ratios = [k_async_over_k_batch_async(k, num_workers) for k in range(1, num_workers + 1)]
    assert ratios[0] == pytest.approx(1.0, rel=1e-14)
    assert ratios[-1] == pytest.approx(harmonic(num_workers), rel=1e-14)
    assert all(below < above for below, above in pairwise(ratios))


@pytest.mark.parametrize("k", range(1, 9))
def test_theorem_2_is_the_quotient_of_the_formulas(k: int) -> None:
    source = Exponential(0.02)
    ratio = k_async_over_k_batch_async(k, 8)
    assert ratio == pytest.approx(k_async_bound_s(source, k, 8) / k_batch_async_s(source, k, 8), rel=1e-13)
    assert ratio == pytest.approx(k_sync_s(source, k, 8) / k_batch_sync_bound_s(source, k, 8), rel=1e-13)


@pytest.mark.parametrize(
    "call",
    [
        lambda: sync_over_async(Constant(1.0), 0),
        lambda: k_async_over_k_batch_async(9, 8),
        lambda: k_async_shifted_bound_s(SHIFTED, 9, 8),
        lambda: k_async_shifted_approximation_s(SHIFTED, 0, 8),
        lambda: adasync_square_root_k(0, 1.0),
        lambda: adasync_square_root_k(2, math.nan),
        lambda: adasync_quadratic_k(2, 0.0, 8),
        lambda: adasync_quadratic_k(9, 2.0, 8),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]* must be [^\n]*, got [^\n]*$"):
        call()


# AdaSync (adasync.txt, section 6 and appendix D).


@pytest.mark.parametrize(
    ("ratio", "quadratic", "square_root"), [(2, 2.67, 2.83), (4, 3.47, 4.00), (10, 4.69, 6.32), (30, 6.12, 10.95)]
)
def test_adasync_of_eight_workers_from_k_2(ratio: float, quadratic: float, square_root: float) -> None:
    assert adasync_quadratic_k(2, ratio, 8) == pytest.approx(quadratic, abs=0.005)
    assert adasync_square_root_k(2, ratio) == pytest.approx(square_root, abs=0.005)


ratios = st.floats(1e-3, 1e6)


@given(ratios, st.integers(2, 500), st.data())
def test_the_quadratic_rule_is_a_root_below_the_workers_that_begins_at_k_0_and_rises(
    ratio: float, num_workers: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(1, num_workers - 1))
    k = adasync_quadratic_k(first, ratio, num_workers)
    a = ratio * first**2 / (num_workers - first)
    assert k**2 + a * k == pytest.approx(a * num_workers, rel=1e-9)
    assert 0 < k < num_workers
    assert adasync_quadratic_k(first, 1.0, num_workers) == pytest.approx(first, rel=1e-12)
    assert adasync_quadratic_k(first, 1.01 * ratio, num_workers) > k
    assert adasync_quadratic_k(num_workers, ratio, num_workers) == num_workers


@given(ratios, st.integers(2, 500), st.data())
def test_both_rules_minimise_the_bound_that_they_are_derived_from(
    ratio: float, num_workers: int, data: st.DataObject
) -> None:
    """F E[T] + c/K (equation 22), where c makes K_0 the minimum at F = F_0 = 1."""
    first = data.draw(st.integers(1, num_workers - 1))

    def is_least(k: float, run_time: Callable[[float], float], c: float) -> bool:
        bound = [run_time(near) / ratio + c / near for near in (k * (1 - 1e-3), k, k + min(k, num_workers - k) * 1e-3)]
        return min(bound) == bound[1]

    assert is_least(adasync_square_root_k(first, ratio), lambda k: k, first**2)
    assert is_least(
        adasync_quadratic_k(first, ratio, num_workers),
        lambda k: -math.log1p(-k / num_workers),
        first**2 / (num_workers - first),
    )
