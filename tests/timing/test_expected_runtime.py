"""Seconds an update takes, simulated, against theory (adasync.txt, section 3), for seven distributions.

A first, shorter run finds how long a run must be for a standard error of 0.5 %; the run that is judged draws from other
seeds, so that the length does not depend on what is judged. Where the theory says equality the mean must lie within 4
standard errors of it, where it says a bound not above it by more than that. Every K is also held to what is true of any
distribution. Updates of the asynchronous variants depend on each other: there the error is that of the means of
`BATCHES` stretches of many rounds of all workers; in the others all workers restart at every update. The recurrences
used here are equal to the simulator in every bit (test_recurrences.py); the last tests use the simulator itself.
"""

import math

import numpy as np
import pytest
import recurrences
from simulations import run

from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Empirical, Exponential, LogNormal, Normal, Pareto, ShiftedExponential, Uniform
from syncline.timing.order_statistics import harmonic, order_statistic
from syncline.timing.run_times import k_async_over_k_batch_async, run_time, sync_over_async

pytestmark = pytest.mark.statistical

BATCHES = 100
ROUNDS = 20
STANDARD_ERROR = 0.005  # of the mean, required
DISTRIBUTIONS = [
    Exponential(1.0),
    ShiftedExponential(1.0, 1.0),
    Pareto(1.0, 3.0),
    Uniform(0.5, 1.5),
    Normal(1.0, 0.1),
    LogNormal(1.0, 0.8),
    Empirical(tuple(1.0 + step / 30 for step in range(40))),
]
KS = {4: (1, 2, 3, 4), 8: (1, 3, 7, 8), 32: (1, 8, 31, 32)}  # by the number of workers

UPDATES = {  # variant -> its recurrence, and about the most mini-batches that a worker starts per update
    "k_sync": (recurrences.k_sync_updates_s, lambda k, num_workers: 1),
    "k_batch_sync": (recurrences.k_batch_sync_updates_s, lambda k, num_workers: 1 + k / num_workers),
    "k_async": (recurrences.k_async_updates_s, lambda k, num_workers: k / num_workers),
    "k_batch_async": (recurrences.k_batch_async_updates_s, lambda k, num_workers: k / num_workers),
}
OPTIONS = {
    "k_sync": KSyncOptions,
    "k_batch_sync": KBatchSyncOptions,
    "k_async": KAsyncOptions,
    "k_batch_async": KBatchAsyncOptions,
}


def mean_and_error(updates_s, are_independent):
    """The mean seconds between updates, and its standard error."""
    size = 1 if are_independent else len(updates_s) // BATCHES
    means = np.diff(updates_s[size - 1 :: size], prepend=0.0) / size
    return means.mean(), means.std(ddof=1) / math.sqrt(len(means))


def updates_s(variant, distribution, k, num_workers, num_updates, seed):
    """Times of so many updates; "in the long run" begins when the common start of the workers no longer matters."""
    recurrence, begun = UPDATES[variant]
    cluster = ClusterConfig(workers=num_workers, gradient_s=[1.0], jitter=distribution)
    forgotten = math.ceil(ROUNDS * num_workers / k) if variant == "k_batch_async" else 0
    columns = math.ceil(1.1 * (num_updates + forgotten) * begun(k, num_workers)) + 50
    times = recurrence(Cluster(cluster, ScenarioConfig(), seed).first_compute_s(columns), k)
    assert len(times) >= num_updates + forgotten
    since = times[forgotten - 1] if forgotten else 0.0
    return times[forgotten : forgotten + num_updates] - since


def simulated(variant, distribution, k, num_workers):
    """Mean and standard error, at most twice the required one."""
    are_independent = variant in ("k_sync", "k_batch_sync")
    num_updates = math.ceil(1000 if are_independent else BATCHES * ROUNDS * max(1, num_workers / k))
    pilot, error = mean_and_error(updates_s(variant, distribution, k, num_workers, num_updates, 0), are_independent)
    num_updates = math.ceil(num_updates * max(1.0, (error / (STANDARD_ERROR * pilot)) ** 2))
    mean, error = mean_and_error(updates_s(variant, distribution, k, num_workers, num_updates, 1), are_independent)
    assert error < 2 * STANDARD_ERROR * mean, "too short for a conclusion"
    return mean, error


def universal_bounds(variant, distribution, k, num_workers):
    """Of E[T], whatever the distribution.

    K-sync, K-batch-sync: all workers restart, the first mini-batch ends at X_{1:P}, and K of them at the latest when
    K workers have ended their first. K-async, K-batch-async: no worker pushes more gradients than it computes.
    """
    if "async" not in variant:
        latest = order_statistic(distribution, k, num_workers) if k <= num_workers else math.inf
        return order_statistic(distribution, 1, num_workers), latest
    return k * distribution.expectation() / num_workers, math.inf


@pytest.mark.parametrize("distribution", DISTRIBUTIONS, ids=lambda distribution: distribution.name)
@pytest.mark.parametrize("num_workers", KS)
@pytest.mark.parametrize("variant", UPDATES)
def test_simulated_seconds_per_update_are_as_the_theory_predicts(variant, num_workers, distribution):
    """Lemmas 1 to 3 and 5."""
    claims = set()
    for k in KS[num_workers]:
        mean, error = simulated(variant, distribution, k, num_workers)
        theory = run_time(variant, distribution, k, num_workers)
        claims.add(theory.claim)
        if theory.claim == "equality":
            assert abs(mean - theory.seconds) <= 4 * error, (k, mean, error, theory)
        elif theory.claim == "upper bound":
            assert mean <= theory.seconds + 4 * error, (k, mean, error, theory)
        least, most = universal_bounds(variant, distribution, k, num_workers)
        assert least - 4 * error <= mean <= most + 4 * error, (k, mean, error, least, most)
    if variant in ("k_sync", "k_batch_async") or distribution.name == "exponential":
        assert claims == {"equality"}


def totals_of(options, distribution, num_workers, **limits):
    return run(options, ClusterConfig(workers=num_workers, gradient_s=[1.0], jitter=distribution), **limits)


@pytest.mark.parametrize("variant", OPTIONS)
def test_the_simulator_reproduces_the_values_of_eight_exponential_workers(variant):
    """E[T] at rate 1: (H_P - H_{P-K}) of K-sync and K-async, K/P of the batch variants; 10,000 updates, 4 x 1 %."""
    for k in range(1, 9):
        totals = totals_of(OPTIONS[variant](k=k), Exponential(1.0), 8, updates=10_000)
        expected = k / 8 if "batch" in variant else harmonic(8) - harmonic(8 - k)
        assert totals.time_s / totals.updates == pytest.approx(expected, rel=0.04), k


@pytest.mark.parametrize("num_workers", [10, 100, 1000])
def test_theorem_1_asynchrony_is_faster_by_p_times_the_slowest_over_the_mean(num_workers):
    """E[T_sync]/E[T_async] = P E[X_{P:P}]/E[X]; exponential: P H_P. Standard error of 500 updates of sync: 1.6 %."""
    sync = totals_of(BspOptions(), Exponential(1.0), num_workers, updates=500)
    asynchronous = totals_of(AspOptions(), Exponential(1.0), num_workers, updates=200_000)
    ratio = (sync.time_s / sync.updates) / (asynchronous.time_s / asynchronous.updates)
    theory = sync_over_async(Exponential(1.0), num_workers)
    assert theory == pytest.approx(num_workers * harmonic(num_workers))
    assert ratio == pytest.approx(theory, rel=4 * 0.019)


@pytest.mark.parametrize(("k", "num_workers"), [(4, 8), (8, 8), (16, 32), (100, 1000), (1000, 1000)])
def test_theorem_2_the_batch_variant_is_faster_by_how_much(k, num_workers):
    """K-async over K-batch-async = P (H_P - H_{P-K})/K with exponential times; 200,000 gradients each."""
    updates = 200_000 // k
    waiting = totals_of(KAsyncOptions(k=k), Exponential(1.0), num_workers, updates=updates)
    batch = totals_of(KBatchAsyncOptions(k=k), Exponential(1.0), num_workers, updates=updates)
    error = 4 * math.hypot(1 / math.sqrt(updates), 1 / math.sqrt(200_000))  # an update varies less than its mean
    assert waiting.time_s / batch.time_s == pytest.approx(k_async_over_k_batch_async(k, num_workers), rel=error)
