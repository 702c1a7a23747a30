"""The recurrences against the event-driven simulator, bit for bit, and against their definitions."""

from heapq import heappop, heappush
from typing import Any

import numpy as np
import pytest
from examples import scaled
from hypothesis import given
from hypothesis import strategies as st
from recurrences import (
    asp_pushes_s,
    bsp_updates_s,
    every_kth_s,
    k_async_updates_s,
    k_batch_async_updates_s,
    k_batch_sync_updates_s,
    k_sync_updates_s,
    ssp_pushes_s,
)

from benchmarks.simulator import NullObserver
from syncline.progress import Limits
from syncline.simulation.engine import Simulation
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.k_async import KAsyncOptions, KBatchAsyncOptions
from syncline.strategies.k_sync import KBatchSyncOptions, KSyncOptions
from syncline.strategies.protocol import StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.distributions import Array, Exponential, Normal
from syncline.timing.draws import BLOCK, Draws

UPDATES = 400
ITERATIONS = UPDATES + 1  # no worker begins more mini-batches than there are updates in any of these runs

CLUSTERS: dict[str, tuple[ClusterConfig, ScenarioConfig]] = {
    "constant, ties everywhere": (ClusterConfig(workers=6, gradient_s=[0.1, 0.2, 0.3]), ScenarioConfig()),
    "equal workers": (ClusterConfig(workers=5, gradient_s=[1.0], jitter=Exponential(1.0)), ScenarioConfig()),
    "unequal workers": (
        ClusterConfig(workers=3, gradient_s=[0.02, 0.03, 0.06], jitter=Normal(1, 0.3)),
        ScenarioConfig(),
    ),
    "delays and a slow worker": (
        ClusterConfig(workers=8, gradient_s=[0.01], jitter=Normal(1, 0.05)),
        ScenarioConfig(compute_delay=Exponential(0.02), slow={3: 2.5}),
    ),
    "one worker": (ClusterConfig(workers=1, gradient_s=[1.0], jitter=Exponential(1.0)), ScenarioConfig()),
}
RANDOM = [name for name in CLUSTERS if "ties" not in name]  # no two pushes at one instant


def simulate(
    options: StrategyOptions, config: ClusterConfig, scenario: ScenarioConfig, seed: int = 0, updates: int = UPDATES
) -> tuple[list[list[float]], list[float]]:
    """Push times of each worker, and update times, in virtual time without gradients."""
    pushes: list[list[float]] = [[] for _ in range(config.workers)]
    applied: dict[int, float] = {}

    def log(at: float, kind: str, worker: int, shard: int, push: int, version: int, value: float, because: str) -> None:
        if kind == "pushed":
            pushes[worker].append(at)
        elif kind == "applied":
            applied[version] = at

    Simulation(
        strategies=[options.start(config.workers)],
        cluster=Cluster(config, scenario, seed),
        block_bytes=[0],
        batch_size=1,
        limits=Limits(updates=updates),
        observer=NullObserver(),
        log=log,
    ).run()
    return pushes, [applied[version] for version in sorted(applied)]


def durations(name: str, seed: int = 0, iterations: int = ITERATIONS) -> Array:
    config, scenario = CLUSTERS[name]
    return Cluster(config, scenario, seed).first_compute_s(iterations)


def assert_same_bits(ours: Array, simulated: list[float]) -> None:
    assert len(ours) >= len(simulated) > 0
    assert ours[: len(simulated)].tolist() == simulated


# The durations.


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("num", [0, 1, BLOCK, 3 * BLOCK + 5])
def test_the_first_durations_are_those_that_are_drawn_one_by_one(name: str, num: int) -> None:
    config, scenario = CLUSTERS[name]
    cluster = Cluster(config, scenario, seed=4)
    bulk = cluster.first_compute_s(num)
    assert bulk.shape == (config.workers, num)
    one_by_one = [[cluster.compute_s(worker) for _ in range(num)] for worker in range(config.workers)]
    assert bulk.tolist() == one_by_one
    assert cluster.first_compute_s(num).tolist() == one_by_one, "later draws change nothing"


def test_the_first_draws_are_worker_by_worker_those_of_next() -> None:
    draws = Draws(1, "compute", Exponential(2.0), [1.0, 3.0, 0.5])
    drawn = [[draws.next(worker) for _ in range(10 * worker)] for worker in range(3)]
    first = draws.first(25)
    for worker, of_worker in enumerate(drawn):
        assert first[worker, : 10 * worker].tolist() == of_worker
        assert draws.next(worker) == first[worker, 10 * worker], "nothing was taken from the stream"
        assert draws.drawn(worker) == pytest.approx(first[worker, : 10 * worker + 1].sum())


# Against the simulator.


@pytest.mark.parametrize("name", CLUSTERS)
def test_bsp_updates_as_the_simulator_does(name: str) -> None:
    _, updates = simulate(BspOptions(), *CLUSTERS[name])
    assert_same_bits(bsp_updates_s(durations(name)), updates)


@pytest.mark.parametrize("name", CLUSTERS)
def test_asp_pushes_and_updates_as_the_simulator_does(name: str) -> None:
    pushes, updates = simulate(AspOptions(), *CLUSTERS[name])
    ours = asp_pushes_s(durations(name))
    for worker, of_worker in enumerate(pushes):
        assert_same_bits(ours[worker], of_worker)
    assert_same_bits(every_kth_s(ours), updates)


@pytest.mark.parametrize("staleness", [0, 1, 3])
@pytest.mark.parametrize("name", CLUSTERS)
def test_ssp_pushes_and_updates_as_the_simulator_does(name: str, staleness: int) -> None:
    pushes, updates = simulate(SspOptions(staleness=staleness), *CLUSTERS[name])
    ours = ssp_pushes_s(durations(name), staleness)
    for worker, of_worker in enumerate(pushes):
        assert_same_bits(ours[worker], of_worker)
    assert_same_bits(every_kth_s(ours), updates)


@scaled(40)
@given(
    st.lists(st.floats(0.1, 10), min_size=1, max_size=7),
    st.floats(0, 0.5),
    st.integers(0, 6),
    st.integers(0, 2**32 - 1),
)
def test_ssp_on_any_cluster(gradient_s: list[float], std: float, staleness: int, seed: int) -> None:
    config = ClusterConfig(workers=len(gradient_s), gradient_s=gradient_s, jitter=Normal(1.0, std))
    pushes, updates = simulate(SspOptions(staleness=staleness), config, ScenarioConfig(), seed, updates=60)
    ours = ssp_pushes_s(Cluster(config, ScenarioConfig(), seed).first_compute_s(60), staleness)
    for worker, of_worker in enumerate(pushes):
        assert ours[worker, : len(of_worker)].tolist() == of_worker
    assert_same_bits(every_kth_s(ours), updates)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("name", CLUSTERS)
def test_k_sync_updates_as_the_simulator_does(name: str, k: int) -> None:
    k = min(k, CLUSTERS[name][0].workers)
    _, updates = simulate(KSyncOptions(k=k), *CLUSTERS[name])
    assert_same_bits(k_sync_updates_s(durations(name), k), updates)


@pytest.mark.parametrize("k", [1, 2, 5, 17])
@pytest.mark.parametrize("name", RANDOM)
def test_k_batch_sync_updates_as_the_simulator_does(name: str, k: int) -> None:
    _, updates = simulate(KBatchSyncOptions(k=k), *CLUSTERS[name], updates=50)
    assert_same_bits(k_batch_sync_updates_s(durations(name, iterations=50 * (k + 1)), k), updates)


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("name", RANDOM)
def test_k_async_updates_as_the_simulator_does(name: str, k: int) -> None:
    k = min(k, CLUSTERS[name][0].workers)
    _, updates = simulate(KAsyncOptions(k=k), *CLUSTERS[name])
    assert_same_bits(k_async_updates_s(durations(name), k), updates)


@pytest.mark.parametrize("k", [1, 2, 5, 17])
@pytest.mark.parametrize("name", CLUSTERS)
def test_k_batch_async_updates_as_the_simulator_does(name: str, k: int) -> None:
    _, updates = simulate(KBatchAsyncOptions(k=k), *CLUSTERS[name], updates=50)
    assert_same_bits(k_batch_async_updates_s(durations(name, iterations=50 * k), k), updates)


# Against plain loops over given numbers, independent of the simulator.

arrays = st.tuples(st.integers(1, 6), st.integers(1, 12), st.integers(0, 2**32 - 1)).map(
    lambda drawn: np.random.default_rng(drawn[2]).exponential(size=drawn[:2])
)


@given(arrays, st.integers(0, 4))
def test_ssp_lets_a_worker_begin_when_the_slowest_has_pushed_often_enough(drawn: Array, staleness: int) -> None:
    pushes = ssp_pushes_s(drawn, staleness)
    begins = pushes - drawn
    for (worker, i), begin in np.ndenumerate(begins):
        others = (pushes <= begin + 1e-9).sum(axis=1)  # pushes that each worker has made by then
        assert others[worker] == i
        assert i - others.min() <= staleness
        # it has not idled: it starts at its own push or at one of a slowest worker
        moments = np.concatenate([[0.0], pushes.ravel()])
        assert np.abs(moments - begin).min() < 1e-9


@given(arrays)
def test_ssp_without_slack_is_bsp_and_with_enough_is_asp(drawn: Array) -> None:
    assert ssp_pushes_s(drawn, 0).max(axis=0).tolist() == bsp_updates_s(drawn).tolist()
    assert ssp_pushes_s(drawn, drawn.shape[1]).tolist() == asp_pushes_s(drawn).tolist()


@given(arrays, st.integers(0, 4))
def test_more_slack_makes_no_push_later(drawn: Array, staleness: int) -> None:
    assert (ssp_pushes_s(drawn, staleness + 1) <= ssp_pushes_s(drawn, staleness)).all()


@given(arrays, st.data())
def test_k_sync_takes_the_kth_of_fresh_durations(drawn: Array, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(drawn)))
    now, updates = 0.0, []
    for column in drawn.T:
        now = sorted(now + float(seconds) for seconds in column)[k - 1]
        updates.append(now)
    assert k_sync_updates_s(drawn, k).tolist() == updates
    assert k_sync_updates_s(drawn, len(drawn)).tolist() == bsp_updates_s(drawn).tolist()


def looped(drawn: Array, k: int, interrupts: bool, waits: bool) -> list[float]:
    """Update times of a K-variant, push by push, until a worker needs a duration that is not given."""
    begun = [1] * len(drawn)
    due: list[tuple[float, int, int]] = []  # (time, worker, its mini-batch)
    for worker, seconds in enumerate(drawn[:, 0]):
        heappush(due, (0.0 + float(seconds), worker, 0))
    updates: list[float] = []
    waiting: list[int] = []
    pushes = 0

    def begin(now: float, worker: int) -> None:
        heappush(due, (now + float(drawn[worker, begun[worker]]), worker, begun[worker]))
        begun[worker] += 1

    try:
        while True:
            now, worker, mini_batch = heappop(due)
            if mini_batch != begun[worker] - 1:
                continue  # interrupted
            pushes += 1
            if pushes % k == 0:
                updates.append(now)
                for one in range(len(drawn)) if interrupts else [*waiting, worker]:
                    begin(now, one)
                waiting.clear()
            elif waits:
                waiting.append(worker)
            else:
                begin(now, worker)
    except IndexError:
        return updates


@given(arrays, st.data())
def test_the_other_k_variants_agree_with_a_loop_over_pushes(drawn: Array, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 9))
    assert_prefix(k_batch_sync_updates_s(drawn, k), looped(drawn, k, interrupts=True, waits=False))
    assert_prefix(k_batch_async_updates_s(drawn, k), looped(drawn, k, interrupts=False, waits=False))
    k = min(k, len(drawn))
    ours = k_async_updates_s(drawn, k).tolist()
    assert ours == looped(drawn, k, interrupts=False, waits=True)
    assert k < len(drawn) or ours == bsp_updates_s(drawn).tolist()


def assert_prefix(ours: Array, played: list[float]) -> None:
    """One may reach a little further than the other with the same durations."""
    shared = min(len(ours), len(played))
    assert ours[:shared].tolist() == played[:shared]
    assert len(ours) <= len(played) + 1


@given(arrays, st.integers(1, 9))
def test_every_kth_push_is_one_that_later_durations_cannot_change(drawn: Array, k: int) -> None:
    whole = every_kth_s(asp_pushes_s(drawn), k)
    for iterations in range(1, drawn.shape[1]):
        shorter = every_kth_s(asp_pushes_s(drawn[:, :iterations]), k)
        assert shorter.tolist() == whole[: len(shorter)].tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ssp_pushes_s(x, -1),
        lambda x: k_sync_updates_s(x, 0),
        lambda x: k_sync_updates_s(x, 4),
        lambda x: k_batch_sync_updates_s(x, 0),
        lambda x: k_async_updates_s(x, 4),
        lambda x: every_kth_s(x, 0),
    ],
)
def test_impossible_strategies_are_refused(call: Any) -> None:
    with pytest.raises(AssertionError):
        call(np.ones((3, 5)))


def test_ten_thousand_workers_are_computed_without_a_loop() -> None:
    """10^6 mini-batches each; the event-driven simulator takes seconds for as many."""
    drawn = Draws(0, "compute", Exponential(1.0), [1.0] * 10_000).first(100)
    bsp, ssp = bsp_updates_s(drawn), ssp_pushes_s(drawn, 3)
    assert bsp[-1] > ssp.max() > asp_pushes_s(drawn).max(axis=1).min()
    assert k_sync_updates_s(drawn, 5000)[-1] < bsp[-1]
    assert len(k_async_updates_s(drawn, 5000)) >= 100
    assert len(k_batch_sync_updates_s(drawn, 5000)) > 20
