"""Closed forms that simulations and real runs are held against: order statistics, E[T] of the K-variants, AdaSync's K.

This file may hold: pure functions of numbers and of `Distribution`s. It may not hold: random numbers, clocks, state, or
anything simulated.

X is the time that a worker takes for a mini-batch, i.i.d. over workers and mini-batches (adasync.txt, section 3.1);
X_{k:n} is the k-th smallest of n, H_n the n-th harmonic number, P the number of workers, T the time of an update.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betainc, betaincinv, betaln, gammainccinv, gammaincinv, log_ndtr, ndtr, ndtri

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

# Order statistics.


def harmonic(num: int) -> float:
    """H_n = 1 + 1/2 + ... + 1/n for n = num >= 0; H_0 = 0.

    Raises:
        ValueError: num is negative.
    """
    if num < 0:
        raise ValueError(f"harmonic: num must be >= 0, got {num}")
    return _last_reciprocals(num, num)


def order_statistic(distribution: Distribution, k: int, num: int) -> float:
    """E[X_{k:n}], the expected k-th smallest of n = num independent draws.

    Closed forms, exact but for rounding:
        constant c                c
        uniform                   low + (high - low) k / (n + 1)
        exponential               mean (H_n - H_{n-k})
        shifted exponential       shift + scale (H_n - H_{n-k})
        Pareto, shape a           minimum G(n+1) G(n-k+1-1/a) / (G(n-k+1) G(n+1-1/a)), G the gamma function; finite if
                                  a > 1/(n-k+1), as every a > 1 is
        empirical, v_1 <= .. <= v_m   v_1 + sum over j < m of (v_{j+1} - v_j) P(Binomial(n, j/m) < k): drawn with
                                  replacement
        occasional                sum over j of P(Binomial(n, probability) = j) E[X_{k-n+j:j}] of the source
    Normal (its cut at 0 included), log-normal, Weibull and gamma are integrals over the standard normal's order
    statistic, by adaptive quadrature: relative error about 1e-10 for n up to 10^6. So is any other distribution,
    through its quantile function; jumps and a far tail cost it digits, of which scipy warns.

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
        case Constant(value=value):
            return value
        case Uniform(low=low, high=high):
            return low + (high - low) * k / (num + 1)
        case Exponential(mean=mean):
            return mean * _last_reciprocals(k, num)
        case ShiftedExponential(shift=shift, scale=scale):
            return shift + scale * _last_reciprocals(k, num)
        case Pareto(minimum=minimum, shape=shape):
            # The quotient of gamma functions as a product of k terms: differences of their logarithms lose digits.
            return minimum * math.exp(-math.fsum(math.log1p(-1.0 / (shape * i)) for i in range(num - k + 1, num + 1)))
        case Empirical(sample=sample):
            above = np.arange(len(sample) - 1, 0, -1) / len(sample)  # shares of the sample above v_1, .., v_{m-1}
            return float(sample[0] + np.diff(sample) @ betainc(num - k + 1, k, above))
        case Occasional(probability=probability, source=source):
            return _occasional(probability, source, k, num)
        case Normal(mean=mean, std=std):
            cut = (-mean / std,) if std > 0 else ()
            return _normal_expectation(lambda z: max(0.0, mean + std * z), k, num, cut)
        case LogNormal(median=median, sigma=sigma):
            return median * _normal_expectation(lambda z: math.exp(sigma * z), k, num)
        case Weibull(scale=scale, shape=shape):
            return scale * _normal_expectation(lambda z: (-log_ndtr(-z)) ** (1.0 / shape), k, num)
        case Gamma(shape=shape, scale=scale):  # each half by the tail that it lies in, or it loses digits
            return scale * _normal_expectation(
                lambda z: float(gammaincinv(shape, ndtr(z)) if z < 0 else gammainccinv(shape, ndtr(-z))), k, num
            )
    largest = np.nextafter(1.0, 0.0)  # a quantile is asked for below 1
    return _normal_expectation(
        lambda z: float(distribution.quantile(np.array([min(ndtr(z), largest)], dtype=np.float64))[0]), k, num
    )


def _last_reciprocals(k: int, num: int) -> float:
    """H_n - H_{n-k} = 1/(n-k+1) + ... + 1/n, summed term by term: a difference would cancel for small k."""
    return math.fsum(1.0 / i for i in range(num - k + 1, num + 1))


def _occasional(probability: float, source: Distribution, k: int, num: int) -> float:
    """Of n draws j are the source's and the others 0, which come first: the k-th is the (k-n+j)-th of the source's."""
    from scipy.stats import binom

    drawn = range(num - k + 1, num + 1)
    weights = binom.pmf(drawn, num, probability)
    return math.fsum(
        weight * order_statistic(source, k - num + j, j)
        for j, weight in zip(drawn, weights, strict=True)
        if weight > 1e-18  # what the others add is lost in rounding
    )


TAILS = np.array([1e-100, 1e-50, 1e-25, 1e-12, 1e-6, 1e-3, 0.1])  # mass of Z_{k:n} beyond the points of a split


def _normal_expectation(of: Callable[[float], float], k: int, num: int, kinks: Iterable[float] = ()) -> float:
    """E[of(Z_{k:n})] for n = num standard normals, by adaptive quadrature between quantiles of Z_{k:n}.

    In the normal score z neither tail is lost in rounding, as the upper one is in u = Phi(z) near 1. The outermost
    1e-100 of the mass on either side is left out, which leaves room for an `of` that grows like exp(10 z).
    """
    from scipy.integrate import quad  # slow to import, and the costs of collectives below can do without

    low_points, high_points = ndtri(betaincinv(k, num - k + 1, TAILS)), -ndtri(betaincinv(num - k + 1, k, TAILS))
    points = sorted([*low_points, *high_points, *(z for z in kinks if low_points[0] < z < high_points[0])])
    log_factor = -betaln(k, num - k + 1) - 0.5 * math.log(2.0 * math.pi)

    def density(z: float) -> float:
        return math.exp(log_factor + (k - 1) * log_ndtr(z) + (num - k) * log_ndtr(-z) - 0.5 * z * z)

    def integral(integrand: Callable[[float], float]) -> float:
        inner = points[1:-1]
        return float(quad(integrand, points[0], points[-1], points=inner, epsabs=0.0, epsrel=1e-11, limit=500)[0])

    # The density's own integral is 1, but for the rounding of its factor: 1e-11 for n = 10,000.
    return integral(lambda z: of(z) * density(z)) / integral(density)


# Run times of the K-variants.

Claim = Literal["equality", "upper bound", "unproved"]


@dataclass(frozen=True, slots=True)
class RunTime:
    """A formula of the paper's table of expected run times, and what is proved of it for one distribution."""

    seconds: float  # per update
    claim: Claim  # E[T] is this; E[T] is at most this; neither is proved: X is not new-longer-than-used


def run_time(variant: str, distribution: Distribution, k: int, num_workers: int) -> RunTime:
    """E[T] of one update of a K-variant: the formula's value, and whether it is exact, a bound, or neither.

    K-sync and K-batch-async are exact for every distribution (the latter in the long run). K-batch-sync and K-async
    are bounds for new-longer-than-used distributions, and exact where X has no memory, or where nobody is in the
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
    _check_positive("k_batch_sync_bound_s", k=k, num_workers=num_workers)
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
    _check_positive("k_batch_async_s", k=k, num_workers=num_workers)
    return k * distribution.expectation() / num_workers


VARIANTS: dict[str, Callable[[Distribution, int, int], float]] = {
    "k_async": k_async_bound_s,
    "k_batch_async": k_batch_async_s,
    "k_batch_sync": k_batch_sync_bound_s,
    "k_sync": k_sync_s,
}


def k_async_shifted_bound_s(distribution: ShiftedExponential, k: int, num_workers: int) -> float:
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


def k_async_shifted_approximation_s(distribution: ShiftedExponential, k: int, num_workers: int) -> float:
    """E[T] of K-async for X = shift + Exp, roughly: (K/P)(shift + scale H_P), for any K of 1 .. P.

    Equal to `k_async_shifted_bound_s` where K divides P. Elsewhere it is an approximation, neither exact nor a bound;
    AdaSync takes from it that E[T] grows in proportion to K.

    Raises:
        ValueError: k or num_workers out of range.

    Source: adasync.txt, equation 11 (with H_P where it has log P) and section 6.
    """
    _check_rank("k_async_shifted_approximation_s", k, num_workers)
    return k / num_workers * (distribution.shift + distribution.scale * harmonic(num_workers))


def sync_over_async(distribution: Distribution, num_workers: int) -> float:
    """E[T_sync] / E[T_async] = P E[X_{P:P}] / E[X]: how many times more updates asynchronous SGD makes.

    P H_P for the exponential, of which the paper's Corollary 1 gives the leading term P log P.

    Raises:
        ValueError: num_workers < 1, or E[X] = 0.

    Source: adasync.txt, Theorem 1.
    """
    _check_positive("sync_over_async", num_workers=num_workers)
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
    _check_rank("k_async_over_k_batch_async", k, num_workers)
    return num_workers * _last_reciprocals(k, num_workers) / k


def is_new_longer_than_used(distribution: Distribution) -> bool:
    """Whether P(X > t + u | X > t) <= P(X > u) for all t, u >= 0: what is under way ends sooner than what begins.

    True for constant, uniform, exponential (with equality) and shifted exponential durations. False for log-normal
    and Pareto ones: whoever has computed for long is likely to go on for long. Weibull and gamma durations are for a
    shape of at least 1, from which on their hazard rate does not fall. An empirical sample is checked, pair by
    pair of its values; it always passes if its largest value is at most twice its smallest. Occasional durations are
    only if they are not occasional at all.

    A normal is where its cut at 0 is so rare that it is never drawn (mean > 8.3 std). Its durations of 0 break the
    inequality for small u, by at most their probability.

    Raises:
        ValueError: it is not known for this distribution.

    Source: adasync.txt, Definition 3 (equation 6).
    """
    match distribution:
        case Constant() | Uniform() | Exponential() | ShiftedExponential():
            return True
        case Normal():
            return bool(distribution.quantile(np.zeros(1))[0] > 0)
        case LogNormal(sigma=sigma):
            return sigma == 0
        case Pareto():
            return False
        case Weibull(shape=shape) | Gamma(shape=shape):
            return shape >= 1
        case Empirical(sample=sample):
            return _is_sample_new_longer_than_used(sample)
        case Occasional(probability=probability, source=source):
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
    match distribution:
        case Exponential():
            return True
        case ShiftedExponential(shift=shift):
            return shift == 0
    return False


# AdaSync's K.


def adasync_square_root_k(first_k: float, loss_ratio: float) -> float:
    """K = K_0 sqrt(F_0 / F), not rounded: AdaSync on K-batch-sync, K-async and K-batch-async, where E[T] grows like K.

    It minimises F E[T] + c / K (the bound on the mean squared gradient of an interval) for the constant c whose
    minimum is at K_0 when F = F_0.

    Args:
        first_k: K_0 > 0.
        loss_ratio: F_0 / F > 0.

    Raises:
        ValueError: an argument is not > 0.

    Source: adasync.txt, section 6 and appendices D.2, D.3, D.4.
    """
    _check_positive("adasync_square_root_k", first_k=first_k, loss_ratio=loss_ratio)
    return first_k * math.sqrt(loss_ratio)


def adasync_quadratic_k(first_k: float, loss_ratio: float, num_workers: int) -> float:
    """The positive root of K^2 + a K - a P = 0 with a = (F_0 / F) K_0^2 / (P - K_0), not rounded: AdaSync on K-sync.

    It minimises F E[T] + c / K as `adasync_square_root_k` does, where E[T] is log(P / (P - K)) and a constant:
    exponential or shifted exponential X. It stays below P for K_0 < P, and is P for K_0 = P.

    Args:
        first_k: K_0, 0 < K_0 <= num_workers.
        loss_ratio: F_0 / F > 0.
        num_workers: P.

    Raises:
        ValueError: an argument out of range.

    Source: adasync.txt, section 6 and appendix D.1.
    """
    _check_positive("adasync_quadratic_k", first_k=first_k, loss_ratio=loss_ratio)
    if first_k > num_workers:
        raise ValueError(f"adasync_quadratic_k: first_k must be <= num_workers = {num_workers}, got {first_k}")
    workers_over_a = num_workers * (num_workers - first_k) / (loss_ratio * first_k**2)  # P / a
    return 2.0 * num_workers / (1.0 + math.sqrt(1.0 + 4.0 * workers_over_a))


def _check_rank(where: str, k: int, num_workers: int) -> None:
    if not 1 <= k <= num_workers:
        raise ValueError(f"{where}: k must be in 1 .. num_workers, got k = {k} and num_workers = {num_workers}")


def _check_positive(where: str, **given: float) -> None:
    for name, value in given.items():
        if not value > 0:
            raise ValueError(f"{where}: {name} must be > 0, got {value}")
