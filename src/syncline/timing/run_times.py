"""Expected run times E[T] of the K-variants in closed form, which simulations and real runs are compared with.

This file may hold: pure functions of numbers and of `Distribution`s. It may not hold: random numbers, clocks, state, or
anything simulated.

X is the time that a worker takes for a mini-batch, i.i.d. over workers and mini-batches (adasync.txt, section 3.1);
X_{k:n} is the k-th smallest of n, H_n the n-th harmonic number, P the number of workers, T the time of an update.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from syncline.timing import distributions as kinds
from syncline.timing.distributions import Array, Distribution
from syncline.timing.order_statistics import last_reciprocals, order_statistic

Claim = Literal["equality", "upper bound", "unproved"]


@dataclass(frozen=True, slots=True)
class RunTime:
    """A formula of the paper's table of expected run times, and what is proved of it for one distribution."""

    seconds: float  # per update
    claim: Claim  # E[T] is this; E[T] is at most this; neither is proved: X is not new-longer-than-used


def run_time(variant: str, distribution: Distribution, k: int, num_workers: int) -> RunTime:
    """E[T] of one update of a K-variant: the formula's value, and whether it is exact, a bound, or neither.

    K-sync and K-batch-async are exact for every distribution (the latter in the long run). K-batch-sync and K-async
    are bounds for new-longer-than-used distributions, and exact if X is memoryless, or if no worker is in the
    middle of a mini-batch when an update begins: K-batch-sync with K = 1, K-async with K = P.

    Args:
        variant: one of VARIANTS.
        distribution: of X.
        k: K, gradients in an update.
        num_workers: P.

    Raises:
        ValueError: unknown variant, or k or num_workers out of the range of its formula.

    Source: adasync.txt, section 3, the table of run times.
    """
    if variant not in VARIANTS:
        raise ValueError(f"run_time: variant must be one of {', '.join(VARIANTS)}, got {variant!r}")
    seconds = VARIANTS[variant](distribution, k, num_workers)
    claim: Claim = "unproved"
    if (
        variant in ("k_sync", "k_batch_async")
        or (variant, k) in (("k_batch_sync", 1), ("k_async", num_workers))
        or _is_memoryless(distribution)
    ):
        claim = "equality"
    elif is_new_longer_than_used(distribution):
        claim = "upper bound"
    return RunTime(seconds, claim)


def k_sync_s(distribution: Distribution, k: int, num_workers: int) -> float:
    """E[T] of K-sync: E[X_{K:P}], for every distribution; k is 1 .. num_workers.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, Lemma 1.
    """
    return order_statistic(distribution, k, num_workers)


def k_batch_sync_bound_s(distribution: Distribution, k: int, num_workers: int) -> float:
    """Upper bound of E[T] of K-batch-sync: K E[X_{1:P}]; k >= 1 may exceed num_workers.

    Holds for new-longer-than-used distributions. Exact for the exponential, and for K = 1 whatever the distribution.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, Lemma 2 and appendix B.2.
    """
    check_positive("k_batch_sync_bound_s", k=k, num_workers=num_workers)
    return k * order_statistic(distribution, 1, num_workers)


def k_async_bound_s(distribution: Distribution, k: int, num_workers: int) -> float:
    """Upper bound of E[T] of K-async: E[X_{K:P}]; k is 1 .. num_workers.

    Holds for new-longer-than-used distributions. Exact for the exponential, and for K = P whatever the distribution.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, Lemma 3 and appendix B.3.
    """
    return order_statistic(distribution, k, num_workers)


def k_batch_async_s(distribution: Distribution, k: int, num_workers: int) -> float:
    """E[T] of K-batch-async in the long run: K E[X] / P, for every distribution; k >= 1 may exceed num_workers.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, Lemma 5.
    """
    check_positive("k_batch_async_s", k=k, num_workers=num_workers)
    return k * distribution.expectation() / num_workers


VARIANTS: dict[str, Callable[[Distribution, int, int], float]] = {
    "k_async": k_async_bound_s,
    "k_batch_async": k_batch_async_s,
    "k_batch_sync": k_batch_sync_bound_s,
    "k_sync": k_sync_s,
}


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
    check_rank("k_async_shifted_bound_s", k, num_workers)
    updates = num_workers // k
    return (distribution.shift + distribution.scale * last_reciprocals(updates * k, num_workers)) / updates


def sync_over_async(distribution: Distribution, num_workers: int) -> float:
    """E[T_sync] / E[T_async] = P E[X_{P:P}] / E[X]: how many times more updates asynchronous SGD applies.

    For the exponential this is P H_P; the paper's Corollary 1 gives its leading term P log P.

    Raises:
        ValueError: num_workers < 1, or E[X] = 0.

    Source: adasync.txt, Theorem 1.
    """
    check_positive("sync_over_async", num_workers=num_workers)
    mean = distribution.expectation()
    if not mean > 0:
        raise ValueError(f"sync_over_async: the distribution's expectation must be > 0, got {distribution}")
    return num_workers * order_statistic(distribution, num_workers, num_workers) / mean


def k_async_over_k_batch_async(k: int, num_workers: int) -> float:
    """E[T] of K-async (or K-sync) over that of K-batch-async (or K-batch-sync), exponential X: P (H_P - H_{P-K}) / K.

    Raises:
        ValueError: k is not in 1 .. num_workers.

    Source: adasync.txt, Theorem 2.
    """
    check_rank("k_async_over_k_batch_async", k, num_workers)
    return num_workers * last_reciprocals(k, num_workers) / k


def is_new_longer_than_used(distribution: Distribution) -> bool:
    """Whether P(X > t + u | X > t) <= P(X > u) for all t, u >= 0: the rest of a mini-batch is no longer than a new one.

    True for constant, uniform, exponential (with equality) and shifted exponential durations. False for log-normal
    and Pareto ones, whose long durations are likely to become longer. True for Weibull and gamma durations with a shape
    of at least 1, where the hazard rate does not fall. An empirical sample is checked for each pair of its values; it
    always passes if its largest value is at most twice its smallest. Occasional durations pass only if their
    probability is 0 or 1.

    A normal passes if values below 0 are so rare that they are never drawn (mean > 8.3 std). Its durations of 0 break
    the inequality for small u, by at most their probability.

    Raises:
        ValueError: it is not known for this distribution.

    Source: adasync.txt, Definition 3 (equation 6).
    """
    match distribution:
        case kinds.Constant() | kinds.Uniform() | kinds.Exponential() | kinds.ShiftedExponential():
            return True
        case kinds.Normal():
            return bool(distribution.quantile(np.zeros(1))[0] > 0)
        case kinds.LogNormal(sigma=sigma):
            return sigma == 0
        case kinds.Pareto():
            return False
        case kinds.Weibull(shape=shape) | kinds.Gamma(shape=shape):
            return shape >= 1
        case kinds.Empirical(sample=sample):
            return _is_sample_new_longer_than_used(sample)
        case kinds.Occasional(probability=probability, source=source):
            if probability == 0 or source.expectation() == 0:
                return True
            return probability == 1 and is_new_longer_than_used(source)
    raise ValueError(f"is_new_longer_than_used: not known for {distribution.name} durations")


def _is_sample_new_longer_than_used(sample: Array) -> bool:
    """m #{v > t + u} <= #{v > t} #{v > u} for a sorted sample of m.

    The right side is constant for t and u between neighbouring values and the left side falls, so that only values of
    the sample, and 0, need to be tried. Sums within rounding of a value count as that value.
    """
    tried = np.unique([0.0, *sample])
    longer = len(sample) - np.searchsorted(sample, tried, side="right")
    for t, longer_than_t in zip(tried, longer, strict=True):
        sums = (t + tried) * (1.0 + 1e-12)
        used = len(sample) - np.searchsorted(sample, sums, side="right")
        if (len(sample) * used > longer_than_t * longer).any():
            return False
    return True


def _is_memoryless(distribution: Distribution) -> bool:
    is_shifted = isinstance(distribution, kinds.ShiftedExponential) and distribution.shift > 0
    return isinstance(distribution, kinds.Exponential | kinds.ShiftedExponential) and not is_shifted


def check_rank(where: str, k: int, num_workers: int) -> None:
    if not 1 <= k <= num_workers:
        raise ValueError(f"{where}: k must be in 1 .. num_workers, got k = {k} and num_workers = {num_workers}")


def check_positive(where: str, **given: float) -> None:
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{where}: {name} must be > 0, got {value}")
