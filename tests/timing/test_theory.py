"""Closed forms against other ways to the same numbers: identities of all distributions, draws, recurrences."""

import math
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.distributions import (
    Constant,
    Distribution,
    Exponential,
    Gamma,
    LogNormal,
    Normal,
    Pareto,
    ShiftedExponential,
    Uniform,
    Weibull,
)
from syncline.timing.run_times import (
    VARIANTS,
    k_async_over_k_batch_async,
    k_async_shifted_bound_s,
    order_statistic,
    run_time,
    sync_over_async,
)

CLOSED = [Exponential(0.02), ShiftedExponential(0.3, 2.0), Pareto(0.5, 3.0), Pareto(2.0, 1.2), Uniform(0.9, 1.2)]
INTEGRALS = [Constant(0.7), Normal(1.0, 0.05), Normal(1.0, 0.6), LogNormal(1.5, 0.3), Weibull(2.0, 0.6)]
ALL = [*CLOSED, *INTEGRALS]


# Order statistics: with the mean of the least of n draws, the triangle rule determines all of them.


@pytest.mark.parametrize("source", ALL, ids=str)
def test_the_order_statistics_of_n_draws_rise_and_add_up_to_n_expectations(source: Distribution) -> None:
    table = [[order_statistic(source, k, num) for k in range(1, num + 1)] for num in (1, 4, 5)]
    slack = 1e-12 * table[-1][-1]
    for row in table:
        assert all(below <= above + slack for below, above in pairwise(row))
        assert math.fsum(row) == pytest.approx(len(row) * source.expectation(), rel=1e-7)


@pytest.mark.parametrize("source", CLOSED, ids=str)
def test_leaving_one_of_ten_thousand_draws_out_mixes_two_neighbouring_ranks(source: Distribution) -> None:
    """(n-k) E[X_{k:n}] + k E[X_{k+1:n}] = n E[X_{k:n-1}] (the triangle rule; David and Nagaraja, section 3.4)."""
    num = 10_000
    for k in (1, num // 2, num - 1):
        mixed = (num - k) * order_statistic(source, k, num) + k * order_statistic(source, k + 1, num)
        assert mixed == pytest.approx(num * order_statistic(source, k, num - 1), rel=1e-10)


@pytest.mark.parametrize("num", [1, 8, 10_000])
def test_the_least_of_n_draws_is_in_every_digit_one_of_the_same_kind(num: int) -> None:
    assert order_statistic(Exponential(2.0), 1, num) == pytest.approx(2 / num, rel=1e-15)
    for shape in (1.01, 7.0):
        assert order_statistic(Pareto(3.0, shape), 1, num) == pytest.approx(
            Pareto(3.0, num * shape).expectation(), rel=1e-14
        )


@pytest.mark.parametrize("source", [source for source in ALL if source != Pareto(2.0, 1.2)], ids=str)
def test_the_sorted_draws_of_many_rounds_have_these_means_within_four_standard_errors(source: Distribution) -> None:
    rounds, num = 5000, 6
    drawn = np.sort(source.quantile(np.random.default_rng(11).random((rounds, num))), axis=1)
    expected = [order_statistic(source, k, num) for k in range(1, num + 1)]
    errors = drawn.std(axis=0) / math.sqrt(rounds)
    assert (np.abs(drawn.mean(axis=0) - expected) <= 4 * errors + 1e-12).all()


# Run times of the K-variants (adasync.txt, section 3).

K_SYNC_8 = [0.1250, 0.2679, 0.4345, 0.6345, 0.8845, 1.2179, 1.7179, 2.7179]  # P = 8, exponential, mean 1
SHIFTED = ShiftedExponential(1.0, 1.0)


def seconds_of(variant: str, source: Distribution, k: int) -> float:
    """Of eight workers."""
    return run_time(variant, source, k, 8).seconds


def test_run_times_of_eight_exponential_workers() -> None:
    for k, seconds in enumerate(K_SYNC_8, start=1):
        assert seconds_of("k_sync", Exponential(1.0), k) == pytest.approx(seconds, abs=5e-5)
        assert seconds_of("k_async", Exponential(1.0), k) == pytest.approx(seconds, abs=5e-5)
        assert seconds_of("k_batch_sync", Exponential(1.0), k) == pytest.approx(k / 8, rel=1e-14)
        assert seconds_of("k_batch_async", Exponential(1.0), k) == k / 8
    for k, seconds in ((1, 1.125), (2, 1.268), (4, 1.635), (8, 3.718)):
        assert seconds_of("k_sync", SHIFTED, k) == pytest.approx(seconds, abs=5e-4)
        assert seconds_of("k_batch_async", SHIFTED, k) == k / 4


@pytest.mark.parametrize(
    ("variant", "source", "k", "claim"),
    [
        ("k_sync", Pareto(1.0, 2.0), 3, "equality"),
        ("k_batch_async", Pareto(1.0, 2.0), 30, "equality"),
        ("k_batch_sync", Pareto(1.0, 2.0), 3, "unproved"),
        ("k_batch_sync", Pareto(1.0, 2.0), 1, "equality"),
        ("k_async", LogNormal(1.0, 0.5), 3, "unproved"),
        ("k_async", LogNormal(1.0, 0.5), 8, "equality"),
        ("k_batch_sync", Constant(1.0), 30, "upper bound"),
        ("k_async", Uniform(0.0, 2.0), 3, "upper bound"),
        ("k_async", SHIFTED, 3, "upper bound"),
        ("k_async", Weibull(2.0, 0.9), 3, "unproved"),
        ("k_async", Gamma(1.5, 2.0), 3, "upper bound"),
        *((variant, Exponential(0.5), 3, "equality") for variant in VARIANTS),
        *((variant, ShiftedExponential(0.0, 0.5), 3, "equality") for variant in VARIANTS),
    ],
)
def test_a_formula_says_what_is_proved_for_it(variant: str, source: Distribution, k: int, claim: str) -> None:
    assert run_time(variant, source, k, 8).claim == claim


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
    all_of_them = order_statistic(source, num_workers, num_workers)  # shift + scale H_P
    assert bound == pytest.approx(k / num_workers * all_of_them, rel=1e-12)
    assert k_async_shifted_bound_s(source, 5, 8) == seconds_of("k_async", source, 5), "n = 1 is Lemma 3"


def test_corollary_1s_p_log_p_is_less_than_theorem_1s_p_times_the_harmonic_number() -> None:
    for num_workers, too_small in ((8, 0.235), (100, 0.112), (10_000, 0.059)):
        ratio = sync_over_async(Exponential(0.3), num_workers)
        assert 1 - num_workers * math.log(num_workers) / ratio == pytest.approx(too_small, abs=5e-4)


def test_theorem_2_is_the_quotient_of_the_formulas() -> None:
    for k in range(1, 9):
        ratio = k_async_over_k_batch_async(k, 8)
        for own, batch in (("k_async", "k_batch_async"), ("k_sync", "k_batch_sync")):
            quotient = seconds_of(own, Exponential(0.02), k) / seconds_of(batch, Exponential(0.02), k)
            assert ratio == pytest.approx(quotient, rel=1e-13)


@pytest.mark.parametrize(
    "call",
    [
        lambda: order_statistic(Constant(1.0), 0, 8),
        lambda: order_statistic(Exponential(1.0), 9, 8),
        lambda: run_time("backup", Constant(1.0), 1, 1),
        *(lambda variant=variant: run_time(variant, Exponential(1.0), 0, 8) for variant in VARIANTS),
        *(lambda variant=variant: run_time(variant, Exponential(1.0), 1, 0) for variant in VARIANTS),
        lambda: sync_over_async(Constant(1.0), 0),
        lambda: sync_over_async(Constant(0.0), 8),
        lambda: k_async_over_k_batch_async(9, 8),
        lambda: k_async_shifted_bound_s(SHIFTED, 9, 8),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]* must be [^\n]*, got [^\n]*$"):
        call()
