"""Delays injected on a real machine: those that the simulator draws, worker by worker."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.cluster import Cluster, ClusterConfig, DelayInjector, ScenarioConfig
from syncline.timing.distributions import Exponential, Normal, Occasional, TwoState
from syncline.timing.draws import BLOCK

NOTHING = ScenarioConfig()
EVERYTHING = ScenarioConfig(
    compute_delay=TwoState(0.0, 0.02, every=9.0, lasting=3.0),
    delayed_workers=[1, 3],
    push_delay=Occasional(0.3, Exponential(0.5)),
    pull_delay=Exponential(4.0),
    slow={1: 3.0},
    slow_shards={1: 4.0},
)
UNEVEN = ClusterConfig(workers=4, shards=2, gradient_s=[0.02, 0.05, 0.03], jitter=Normal(1.0, 0.1))


def pace(
    worker: int,
    config: ClusterConfig = UNEVEN,
    scenario: ScenarioConfig = EVERYTHING,
    *,
    seed: int = 5,
    absolute: bool = True,
    iteration: int = 0,
) -> DelayInjector:
    return DelayInjector(config, scenario, seed, worker, absolute, iteration)


def make_iteration(of: DelayInjector, spent_s: float = 0.0) -> list[Any]:
    """The delays of a worker in one iteration: its blocks arrive, it computes, its gradients are sent."""
    pulls = [of.pull(shard) for shard in range(2)]
    return [pulls, of.compute(spent_s), [of.push(shard) for shard in range(2)]]


@pytest.mark.parametrize("worker", range(4))
def test_a_worker_has_the_delays_that_it_has_in_the_simulator(worker: int) -> None:
    """In the simulator all workers draw from one cluster, in any order; here each has its own."""
    simulated, own = Cluster(UNEVEN, EVERYTHING, 5), pace(worker)
    for i in range(2 * BLOCK + 3):
        now = 1e3 * i
        for other in range(4):
            if other != worker and i % (other + 1) == 0:
                simulated.compute_s(other)
                simulated.send(now, True, other, 0, 8)
                simulated.send(now, False, other, 1, 8)
        pulled = [simulated.send(now, False, worker, shard, 8)[1] - now for shard in range(2)]
        computed_s = simulated.compute_s(worker)
        pushed = [simulated.send(now, True, worker, shard, 8)[1] - now for shard in range(2)]
        pulls, (stretch_s, delay_s), pushes = make_iteration(own)
        assert stretch_s + delay_s == pytest.approx(computed_s, rel=1e-12)
        assert pulls == pytest.approx(pulled, abs=1e-9)
        assert pushes == pytest.approx(pushed, abs=1e-9)


def test_a_clusters_draws_are_the_same_separately_and_as_a_sum() -> None:
    apart, together = Cluster(UNEVEN, EVERYTHING, 5), Cluster(UNEVEN, EVERYTHING, 5)
    for worker in (0, 1, 3, 1, 1, 0):
        assert sum(apart.draw_compute(worker)) == together.compute_s(worker)
    assert apart.busy_s(1) == together.busy_s(1)


@given(st.integers(0, 3), st.lists(st.floats(0, 0.3) | st.floats(0, 10), min_size=1, max_size=20), st.booleans())
def test_the_work_takes_what_the_cluster_says_or_is_stretched_by_how_much_slower_than_the_fastest_the_worker_is(
    worker: int, spent: list[float], absolute: bool
) -> None:
    """stretch = max(0, drawn - spent), or max(0, spent * (drawn / fastest - 1)); the delay is added to it."""
    drawn, own = Cluster(UNEVEN, EVERYTHING, 5), pace(worker, absolute=absolute)
    for spent_s in spent:
        seconds, delay_s = drawn.draw_compute(worker)
        stretch_s, own_delay_s = own.compute(spent_s)
        wanted_s = seconds if absolute else spent_s * seconds / 0.02
        assert stretch_s == pytest.approx(max(0.0, wanted_s - spent_s), rel=1e-9, abs=1e-12)
        assert own_delay_s == delay_s


def test_the_fastest_is_one_of_the_workers() -> None:
    """Of more gradient seconds than workers the surplus belongs to no worker."""
    config = ClusterConfig(workers=2, gradient_s=[0.3, 0.6, 0.1])
    for worker, factor in ((0, 1.0), (1, 2.0)):
        stretch_s, _ = pace(worker, config, NOTHING, absolute=False).compute(1.0)
        assert 1.0 + stretch_s == pytest.approx(factor)


@given(st.integers(0, 3), st.integers(0, 2 * BLOCK + 1), st.booleans())
def test_one_that_starts_at_an_iteration_continues_as_one_that_made_the_earlier_ones(
    worker: int, iteration: int, absolute: bool
) -> None:
    made, begun = pace(worker, absolute=absolute), pace(worker, absolute=absolute, iteration=iteration)
    for _ in range(iteration):
        make_iteration(made, spent_s=0.01)
    for _ in range(3):
        assert make_iteration(begun, spent_s=0.01) == make_iteration(made, spent_s=0.01)
