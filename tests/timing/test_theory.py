"""Closed forms against other ways to the same numbers: integrals of scipy's distributions, enumeration, identities that
hold for every distribution, draws, recurrences.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise, product
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from adasync_formulas import adasync_quadratic_k, adasync_square_root_k
from hypothesis import given
from hypothesis import strategies as st
from recurrences import k_async_updates_s

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

# Of scipy.stats: the name, the shapes, and loc and scale.
CONTINUOUS: list[tuple[Distribution, str, tuple[float, ...], dict[str, float]]] = [
    (Normal(1.0, 0.05), "norm", (), {"loc": 1.0, "scale": 0.05}),
    (Normal(1.0, 0.6), "norm", (), {"loc": 1.0, "scale": 0.6}),
    (LogNormal(1.5, 0.3), "lognorm", (0.3,), {"scale": 1.5}),
    (LogNormal(0.02, 1.0), "lognorm", (1.0,), {"scale": 0.02}),
    (Exponential(0.02), "expon", (), {"scale": 0.02}),
    (ShiftedExponential(0.3, 2.0), "expon", (), {"loc": 0.3, "scale": 2.0}),
    (Pareto(0.5, 3.0), "pareto", (3.0,), {"scale": 0.5}),
    (Uniform(0.9, 1.2), "uniform", (), {"loc": 0.9, "scale": 0.3}),
    (Weibull(2.0, 0.6), "weibull_min", (0.6,), {"scale": 2.0}),
    (Gamma(3.0, 0.5), "gamma", (3.0,), {"scale": 0.5}),
    (Gamma(0.4, 2.0), "gamma", (0.4,), {"scale": 2.0}),
    (Unknown(1.7), "weibull_min", (1.7,), {}),
]
OTHERS = [
    Constant(0.7),
    Empirical(MEASURED),
    Occasional(0.3, Exponential(2.0)),
    Occasional(1.0, Uniform(1.0, 2.0)),
    Occasional(0.0, Exponential(2.0)),
]
ALL = [*(source for source, *_ in CONTINUOUS), *OTHERS, Pareto(2.0, 1.2), LogNormal(1.0, 3.0)]
MEMORYLESS = [Exponential(0.5), ShiftedExponential(0.0, 0.5)]


def survival_integral(known: Any, k: int, num: int) -> float:
    """E[X_{k:n}] = integral over x > 0 of P(more than n-k of n draws are > x), for X cut at 0."""
    from scipy import integrate, stats

    def survival(x: float) -> float:
        return float(stats.binom.sf(num - k, num, known.sf(x)))

    tails = np.array([1e-13, 1e-9, 1e-5, 1e-2, 0.3])
    points = [*known.ppf(stats.beta.ppf(tails, k, num - k + 1)), *known.isf(stats.beta.ppf(tails, num - k + 1, k))]
    ends = sorted({0.0, *(max(0.0, float(point)) for point in points)})
    parts = (integrate.quad(survival, low, high, epsabs=1e-12, epsrel=1e-8)[0] for low, high in pairwise(ends))
    return math.fsum(parts)


@given(st.integers(1, 300))
def test_a_harmonic_number_is_a_sum_of_reciprocals(num: int) -> None:
    assert harmonic(num) == pytest.approx(float(sum(Fraction(1, i) for i in range(1, num + 1))), rel=1e-15)
    assert harmonic(0) == 0


# Order statistics: what holds for every distribution.


@pytest.mark.parametrize("source", ALL, ids=str)
def test_the_order_statistics_of_n_draws_rise_and_add_up_to_n_expectations(source: Distribution) -> None:
    table = [[order_statistic(source, k, num) for k in range(1, num + 1)] for num in (1, 4, 5)]
    slack = 1e-12 * table[-1][-1]
    for row in table:
        assert all(below <= above + slack for below, above in pairwise(row))
        assert math.fsum(row) == pytest.approx(len(row) * source.expectation(), rel=1e-9)
    _, four, five = table
    assert all(after <= before + slack for before, after in zip(four, five, strict=False))
    assert five[-1] >= four[-1] - slack, "the largest of more draws is larger"


@pytest.mark.parametrize("source", ALL, ids=str)
def test_leaving_one_of_ten_thousand_draws_out_mixes_two_neighbouring_ranks(source: Distribution) -> None:
    """(n-k) E[X_{k:n}] + k E[X_{k+1:n}] = n E[X_{k:n-1}] (the triangle rule; David and Nagaraja, section 3.4)."""
    num = 1000 if isinstance(source, Occasional) else 10_000  # a sum over the draws
    for k in (1, num // 2, num - 1):
        mixed = (num - k) * order_statistic(source, k, num) + k * order_statistic(source, k + 1, num)
        assert mixed == pytest.approx(num * order_statistic(source, k, num - 1), rel=1e-10)


@pytest.mark.parametrize("source", OTHERS, ids=str)
def test_the_sorted_draws_of_many_rounds_have_these_means_within_four_standard_errors(source: Distribution) -> None:
    rounds, num = 5000, 6
    drawn = np.sort(source.quantile(np.random.default_rng(11).random((rounds, num))), axis=1)
    expected = [order_statistic(source, k, num) for k in range(1, num + 1)]
    errors = drawn.std(axis=0) / math.sqrt(rounds)
    assert (np.abs(drawn.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()


@pytest.mark.parametrize(
    ("source", "name", "shapes", "options"), CONTINUOUS, ids=[str(source) for source, *_ in CONTINUOUS]
)
def test_order_statistics_are_integrals_of_scipys_survival_functions(
    source: Distribution, name: str, shapes: tuple[float, ...], options: dict[str, float]
) -> None:
    from scipy import stats

    known = getattr(stats, name)(*shapes, **options)
    for k, num in ((3, 5), (10_000, 10_000)):
        assert order_statistic(source, k, num) == pytest.approx(survival_integral(known, k, num), rel=1e-7)


# Order statistics: one distribution at a time.


@pytest.mark.parametrize("num", [1, 8, 10_000])
def test_the_least_of_n_draws_is_in_every_digit_one_of_the_same_kind(num: int) -> None:
    assert order_statistic(Exponential(2.0), 1, num) == pytest.approx(2 / num, rel=1e-15)
    for shape in (1.01, 7.0):
        assert order_statistic(Pareto(3.0, shape), 1, num) == pytest.approx(
            Pareto(3.0, num * shape).expectation(), rel=1e-14
        )
        first = Weibull(0.3 * num ** (-1 / shape), shape)
        assert order_statistic(Weibull(0.3, shape), 1, num) == pytest.approx(first.expectation(), rel=1e-9)


def test_the_middle_of_a_million_normal_draws_is_the_quantile_and_its_curvature() -> None:
    """E[X_{k:n}] = Q(p) + p (1-p) Q''(p) / (2 (n+2)) + O(n^-2) with p = k/(n+1) (David and Nagaraja, section 4.6)."""
    normal, num = NormalDist(), 1_000_000
    for k in (num // 5, num * 9 // 10):
        p = k / (num + 1)
        z = normal.inv_cdf(p)
        near = 50 + z + p * (1 - p) * z / normal.pdf(z) ** 2 / (2 * (num + 2))
        assert order_statistic(Normal(50.0, 1.0), k, num) == pytest.approx(near, abs=1e-11)


@pytest.mark.parametrize("sigma", [0.0, 2.0, 8.0])
def test_a_log_normal_of_any_width_keeps_its_mean(sigma: float) -> None:
    source = LogNormal(3.0, sigma)
    assert order_statistic(source, 1, 1) == pytest.approx(source.expectation(), rel=1e-12)
    # E|X - Y| of two draws is 2 E[X] (2 Phi(sigma / sqrt 2) - 1): the log-normal's Gini index
    gap = 2 * source.expectation() * (2 * NormalDist().cdf(sigma / math.sqrt(2)) - 1)
    assert order_statistic(source, 2, 2) - order_statistic(source, 1, 2) == pytest.approx(gap, rel=1e-10)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 4), st.data())
def test_an_empirical_order_statistic_is_the_mean_over_all_that_can_be_drawn(
    values: list[int], num: int, data: st.DataObject
) -> None:
    k = data.draw(st.integers(1, num))
    drawn = [sorted(draw)[k - 1] for draw in product(values, repeat=num)]
    expected = float(Fraction(sum(drawn), len(drawn)))
    assert order_statistic(Empirical(tuple(values)), k, num) == pytest.approx(expected, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("probability", [0.0016, 0.3, 0.97])
def test_an_occasional_constant_counts_as_often_as_enough_draws_are_late(probability: float) -> None:
    from scipy import stats

    for num in (1, 32, 1000):
        for k in {1, num // 2 + 1, num}:
            share = stats.binom.sf(num - k, num, probability)
            assert order_statistic(Occasional(probability, Constant(4.0)), k, num) == pytest.approx(4 * share, rel=1e-9)


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
    (LogNormal(1.0, 1.0), False),
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
    """P(X > t + u) <= P(X > t) P(X > u) holds or fails on a grid of times, with P from equally likely draws."""
    num = 50_000
    sample = source.quantile((np.arange(num) + 0.5) / num)
    times = np.linspace(0.0, 2.0 * sample[int(0.999 * num)], 60) * (1 + 1e-9)

    def survival(x: Array) -> Array:
        return 1.0 - np.searchsorted(sample, x, side="right") / num

    excess = survival(times[:, None] + times) - survival(times)[:, None] * survival(times)
    assert bool(excess.max() <= 3 / num) is is_so
    assert is_new_longer_than_used(source) is is_so


@given(st.lists(st.integers(0, 12), min_size=1, max_size=7))
def test_a_sample_is_checked_at_every_pair_of_times(values: list[int]) -> None:
    def survivors(time: int) -> int:
        return sum(value > time for value in values)

    # whole numbers do: P(X > x) changes nowhere else, and t + u is smallest there
    by_hand = all(len(values) * survivors(t + u) <= survivors(t) * survivors(u) for t in range(13) for u in range(13))
    for scale in (1.0, 0.1, 1e-3 / 3):
        assert is_new_longer_than_used(Empirical(tuple(scale * value for value in values))) is by_hand


def test_it_is_unknown_for_an_unknown_distribution() -> None:
    with pytest.raises(ValueError, match=r"^is_new_longer_than_used: not known for unknown durations$"):
        is_new_longer_than_used(Unknown(0.5))


# Run times of the K-variants (adasync.txt, section 3).

K_SYNC_8 = [0.1250, 0.2679, 0.4345, 0.6345, 0.8845, 1.2179, 1.7179, 2.7179]  # P = 8, exponential, mean 1
SHIFTED = ShiftedExponential(1.0, 1.0)


def test_run_times_of_eight_exponential_workers() -> None:
    for k, seconds in enumerate(K_SYNC_8, start=1):
        assert k_sync_s(Exponential(1.0), k, 8) == pytest.approx(seconds, abs=5e-5)
        assert k_async_bound_s(Exponential(1.0), k, 8) == pytest.approx(seconds, abs=5e-5)
        assert k_batch_sync_bound_s(Exponential(1.0), k, 8) == pytest.approx(k / 8, rel=1e-14)
        assert k_batch_async_s(Exponential(1.0), k, 8) == k / 8
    for k, seconds in ((1, 1.125), (2, 1.268), (4, 1.635), (8, 3.718)):
        assert k_sync_s(SHIFTED, k, 8) == pytest.approx(seconds, abs=5e-4)
        assert k_batch_async_s(SHIFTED, k, 8) == k / 4


def mean_and_error(updates: Array) -> tuple[float, float]:
    """Of the time of an update, from the means of 40 stretches of a long run, which depend little on each other."""
    stretch = len(updates) // 40
    means = np.diff(updates[::stretch]) / stretch
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))


def durations(source: Distribution, iterations: int = 1500) -> Array:
    return Draws(3, "compute", source, [1.0] * 8).first(iterations)


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


def test_a_k_out_of_range_is_refused_by_every_variant() -> None:
    for variant, seconds in VARIANTS.items():
        for k, num_workers in [(0, 8), (1, 0)] + ([] if "batch" in variant else [(9, 8)]):
            with pytest.raises(ValueError, match=r"^\w+: (k|num_workers) must be .* got .*$"):
                seconds(Exponential(1.0), k, num_workers)


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


@pytest.mark.parametrize("shift", [0.0, 1.0, 20.0])
def test_lemma_4_bounds_k_async_where_k_does_not_divide_the_workers_too(shift: float) -> None:
    source = ShiftedExponential(shift, 1.0)
    for k in (3, 5):
        mean, error = mean_and_error(k_async_updates_s(durations(source, iterations=400), k))
        assert mean <= k_async_shifted_bound_s(source, k, 8) + 4 * error
    assert k_async_shifted_bound_s(source, 5, 8) == k_async_bound_s(source, 5, 8), "n = 1 is Lemma 3"


def test_corollary_1s_p_log_p_is_less_than_theorem_1s_p_times_the_harmonic_number() -> None:
    for num_workers, too_small in ((8, 0.235), (100, 0.112), (10_000, 0.059)):
        ratio = sync_over_async(Exponential(0.3), num_workers)
        assert ratio == pytest.approx(num_workers * harmonic(num_workers), rel=1e-12)
        assert 1 - num_workers * math.log(num_workers) / ratio == pytest.approx(too_small, abs=5e-4)


def test_theorem_1_is_the_quotient_of_the_formulas() -> None:
    for source in (SHIFTED, Normal(1.0, 0.1)):
        quotient = k_sync_s(source, 8, 8) / k_batch_async_s(source, 1, 8)
        assert sync_over_async(source, 8) == pytest.approx(quotient, rel=1e-13)


@pytest.mark.parametrize("num_workers", [1, 8, 60])
def test_theorem_2_is_the_quotient_of_the_formulas(num_workers: int) -> None:
    source = Exponential(0.02)
    for k in range(1, num_workers + 1):
        ratio, of = k_async_over_k_batch_async(k, num_workers), (source, k, num_workers)
        assert ratio == pytest.approx(k_async_bound_s(*of) / k_batch_async_s(*of), rel=1e-13)
        assert ratio == pytest.approx(k_sync_s(*of) / k_batch_sync_bound_s(*of), rel=1e-13)


@pytest.mark.parametrize(
    "call",
    [
        lambda: harmonic(-1),
        lambda: order_statistic(Constant(1.0), 0, 8),
        lambda: order_statistic(Exponential(1.0), 9, 8),
        lambda: order_statistic(Normal(1.0, 0.1), 1, 0),
        lambda: run_time("backup", Constant(1.0), 1, 1),
        lambda: sync_over_async(Constant(1.0), 0),
        lambda: sync_over_async(Constant(0.0), 8),
        lambda: k_async_over_k_batch_async(9, 8),
        lambda: k_async_shifted_bound_s(SHIFTED, 9, 8),
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
