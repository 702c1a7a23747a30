"""Seconds an update takes, simulated, against theory (adasync.txt, section 3), for five distributions.

A first, shorter run finds how long a run must be for a standard error of 1 %; the run that is judged draws from other
seeds, so that the length does not depend on what is judged. Where the theory says equality the mean must lie within 4
standard errors of it, where it says a bound not above it by more than that. Every K is also held to what is true of any
distribution. Updates of the asynchronous variants depend on each other: there the error is that of the means of
`BATCHES` stretches of many rounds of all workers; in the others all workers restart at every update. The recurrences
used here are equal to the simulator in every bit (test_recurrences.py).
"""

import math

import numpy as np
import pytest
import recurrences

from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal, Pareto, ShiftedExponential, Uniform
from syncline.timing.run_times import k_async_shifted_bound_s, order_statistic, run_time

pytestmark = pytest.mark.statistical

BATCHES = 50
ROUNDS = 20
STANDARD_ERROR = 0.01  # of the mean, required
DISTRIBUTIONS = [Exponential(1.0), ShiftedExponential(1.0, 1.0), Pareto(1.0, 3.0), Normal(1.0, 0.1), Uniform(1.0, 2.3)]
KS = {4: (1, 2, 3, 4), 32: (1, 8, 31)}  # by the number of workers

UPDATES = {  # variant -> its recurrence, and about the most mini-batches that a worker starts per update
    "k_sync": (recurrences.k_sync_updates_s, lambda k, num_workers: 1),
    "k_batch_sync": (recurrences.k_batch_sync_updates_s, lambda k, num_workers: 1 + k / num_workers),
    "k_async": (recurrences.k_async_updates_s, lambda k, num_workers: k / num_workers),
    "k_batch_async": (recurrences.k_batch_async_updates_s, lambda k, num_workers: k / num_workers),
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
    times = recurrence(recurrences.first_compute_s(Cluster(cluster, ScenarioConfig(), seed), columns), k)
    assert len(times) >= num_updates + forgotten
    since = times[forgotten - 1] if forgotten else 0.0
    return times[forgotten : forgotten + num_updates] - since


def simulated(variant, distribution, k, num_workers):
    """Mean and standard error, at most twice the required one."""
    are_independent = variant in ("k_sync", "k_batch_sync")
    num_updates = math.ceil(400 if are_independent else BATCHES * ROUNDS * max(1, num_workers / k))
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
    """Lemmas 1 to 5."""
    claims = set()
    for k in KS[num_workers]:
        mean, error = simulated(variant, distribution, k, num_workers)
        theory = run_time(variant, distribution, k, num_workers)
        claims.add(theory.claim)
        if theory.claim == "equality":
            assert abs(mean - theory.seconds) <= 4 * error, (k, mean, error, theory)
        elif theory.claim == "upper bound":
            assert mean <= theory.seconds + 4 * error, (k, mean, error, theory)
        if variant == "k_async" and isinstance(distribution, ShiftedExponential):
            assert mean <= k_async_shifted_bound_s(distribution, k, num_workers) + 4 * error, "Lemma 4"
            assert k > num_workers // 2 or mean < theory.seconds - 10 * error, "section 3.3.3: faster than K-sync"
        least, most = universal_bounds(variant, distribution, k, num_workers)
        assert least - 4 * error <= mean <= most + 4 * error, (k, mean, error, least, most)
    if variant in ("k_sync", "k_batch_async") or distribution.name == "exponential":
        assert claims == {"equality"}
