"""Expected order statistics and run times E[T] of the K-variants, which simulations and real runs are compared with.

This file may hold: pure functions of numbers and of `Distribution`s. It may not hold: random numbers, clocks, state, or
anything simulated.

X is the time that a worker takes for a mini-batch, i.i.d. over workers and mini-batches (adasync.txt, section 3.1);
X_{k:n} is the k-th smallest of n, H_n the n-th harmonic number, P the number of workers, T the time of an update.
"""

import math
from dataclasses import dataclass
from typing import Literal

from syncline.timing import distributions as kinds
from syncline.timing.distributions import Distribution

Claim = Literal["equality", "upper bound", "unproved"]
VARIANTS = ("k_async", "k_batch_async", "k_batch_sync", "k_sync")


def order_statistic(distribution: Distribution, k: int, num: int) -> float:
    """E[X_{k:n}], the expected k-th smallest of n = num independent draws.

    Closed forms, exact but for rounding:
        uniform                   low + (high - low) k / (n + 1)
        exponential               mean (H_n - H_{n-k})
        shifted exponential       shift + scale (H_n - H_{n-k})
        Pareto, shape a           minimum G(n+1) G(n-k+1-1/a) / (G(n-k+1) G(n+1-1/a)), G the gamma function; finite if
                                  a > 1/(n-k+1), as every a > 1 is
    Any other distribution is an integral of its quantiles over the uniform's order statistic, which has a beta
    distribution.

    Args:
        distribution: of one draw.
        k: rank, 1 (smallest) .. num.
        num: draws, n >= 1.

    Returns:
        In the unit of the distribution.

    Raises:
        ValueError: k or num out of range.

    Source: adasync.txt, appendix B.1 (exponential); David and Nagaraja, Order Statistics, 3rd edition, chapters 2 to 4.
    """
    if not 1 <= k <= num:
        raise ValueError(f"order_statistic: k must be in 1 .. num, got k = {k} and num = {num}")
    match distribution:
        case kinds.Uniform(low=low, high=high):
            return low + (high - low) * k / (num + 1)
        case kinds.Exponential(mean=mean):
            return mean * _last_reciprocals(k, num)
        case kinds.ShiftedExponential(shift=shift, scale=scale):
            return shift + scale * _last_reciprocals(k, num)
        case kinds.Pareto(minimum=minimum, shape=shape):
            # The quotient of gamma functions as a product of k terms: differences of their logarithms lose digits.
            return minimum * math.exp(-math.fsum(math.log1p(-1.0 / (shape * i)) for i in range(num - k + 1, num + 1)))
    from scipy.stats import beta  # slow to import

    return float(beta(k, num - k + 1).expect(distribution.quantile))


def _last_reciprocals(k: int, num: int) -> float:
    """H_n - H_{n-k} = 1/(n-k+1) + ... + 1/n, summed term by term: a difference would cancel for small k."""
    return math.fsum(1.0 / i for i in range(num - k + 1, num + 1))


@dataclass(frozen=True, slots=True)
class RunTime:
    """A formula of the paper's table of expected run times, and what is proved of it for one distribution."""

    seconds: float  # per update
    claim: Claim  # E[T] is this; E[T] is at most this; neither is proved: X may not be new-longer-than-used


def run_time(variant: str, distribution: Distribution, k: int, num_workers: int) -> RunTime:
    """E[T] of one update of a K-variant: the formula's value, and whether it is exact, a bound, or neither.

        K-sync          E[X_{K:P}]     exact for every distribution (Lemma 1)
        K-batch-async   K E[X] / P     exact for every distribution, in the long run (Lemma 5)
        K-batch-sync    K E[X_{1:P}]   a bound (Lemma 2, appendix B.2); exact for K = 1
        K-async         E[X_{K:P}]     a bound (Lemma 3, appendix B.3); exact for K = P

    The bounds hold for new-longer-than-used distributions. They are exact if X is memoryless, or if no worker is in the
    middle of a mini-batch when an update begins.

    Args:
        variant: one of VARIANTS.
        distribution: of X.
        k: K, gradients in an update; for the batch variants it may exceed num_workers.
        num_workers: P.

    Raises:
        ValueError: unknown variant, or k or num_workers out of the range of its formula.

    Source: adasync.txt, section 3, the table of run times.
    """
    if variant not in VARIANTS:
        raise ValueError(f"run_time: variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    _check_positive("run_time", k=k, num_workers=num_workers)
    if variant == "k_batch_async":
        seconds = k * distribution.expectation() / num_workers
    elif variant == "k_batch_sync":
        seconds = k * order_statistic(distribution, 1, num_workers)
    else:
        seconds = order_statistic(distribution, k, num_workers)
    claim: Claim = "unproved"
    if (
        variant in ("k_sync", "k_batch_async")
        or (variant, k) in (("k_batch_sync", 1), ("k_async", num_workers))
        or _is_memoryless(distribution)
    ):
        claim = "equality"
    elif _is_new_longer_than_used(distribution):
        claim = "upper bound"
    return RunTime(seconds, claim)


def k_async_shifted_bound_s(distribution: kinds.ShiftedExponential, k: int, num_workers: int) -> float:
    """Upper bound of E[T] of K-async for X = shift + Exp: (shift + scale (H_P - H_{P-nK})) / n with n = floor(P / K).

    n updates in a row take at most E[X_{K:P}] + sum over i = 1 .. n-1 of E[Y_{K:P-iK}], Y the exponential part: at the
    i-th of them P - iK workers have computed longer than the shift and have Y before them. The sum telescopes. The
    paper asks for P = nK, where it is (K/P)(shift + scale H_P); its proof needs no more than nK <= P. For n = 1 this is
    Lemma 3. Neither bound is the smaller one for every K and shift.

    Args:
        distribution: of X.
        k: K, 1 .. num_workers.
        num_workers: P.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, Lemma 4 and appendix B.3, equation 39.
    """
    _check_rank("k_async_shifted_bound_s", k, num_workers)
    updates = num_workers // k
    return (distribution.shift + distribution.scale * _last_reciprocals(updates * k, num_workers)) / updates


def sync_over_async(distribution: Distribution, num_workers: int) -> float:
    """E[T_sync] / E[T_async] = P E[X_{P:P}] / E[X]: how many times more updates asynchronous SGD applies.

    For the exponential this is P H_P; the paper's Corollary 1 gives its leading term P log P.

    Raises:
        ValueError: num_workers < 1, or E[X] = 0.

    Source: adasync.txt, Theorem 1.
    """
    mean = distribution.expectation()
    _check_positive("sync_over_async", num_workers=num_workers, expectation=mean)
    return num_workers * order_statistic(distribution, num_workers, num_workers) / mean


def k_async_over_k_batch_async(k: int, num_workers: int) -> float:
    """E[T] of K-async (or K-sync) over that of K-batch-async (or K-batch-sync), exponential X: P (H_P - H_{P-K}) / K.

    Raises:
        ValueError: k is not in 1 .. num_workers.

    Source: adasync.txt, Theorem 2.
    """
    _check_rank("k_async_over_k_batch_async", k, num_workers)
    return num_workers * _last_reciprocals(k, num_workers) / k


def _is_new_longer_than_used(distribution: Distribution) -> bool:
    """Whether P(X > t + u | X > t) <= P(X > u) for all t, u >= 0: the rest of a mini-batch is no longer than a new one.

    True for constant, uniform, exponential (with equality) and shifted exponential durations, and for Weibull and gamma
    ones whose hazard rate does not fall. Others count as not known to be so; Pareto and log-normal ones are not.

    Source: adasync.txt, Definition 3 (equation 6).
    """
    match distribution:
        case kinds.Constant() | kinds.Uniform() | kinds.Exponential() | kinds.ShiftedExponential():
            return True
        case kinds.Weibull(shape=shape) | kinds.Gamma(shape=shape):
            return shape >= 1
    return False


def _is_memoryless(distribution: Distribution) -> bool:
    is_shifted = isinstance(distribution, kinds.ShiftedExponential) and distribution.shift > 0
    return isinstance(distribution, kinds.Exponential | kinds.ShiftedExponential) and not is_shifted


def _check_rank(where: str, k: int, num_workers: int) -> None:
    if not 1 <= k <= num_workers:
        raise ValueError(f"{where}: k must be in 1 .. num_workers, got k = {k} and num_workers = {num_workers}")


def _check_positive(where: str, **given: float) -> None:
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{where}: {name} must be > 0, got {value}")
