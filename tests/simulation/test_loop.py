"""Runs without gradients: closed forms, limits, and the log."""

from collections import Counter
from dataclasses import replace

import pytest
from log_checks import Rows
from simulations import NOISE, run, simulation_of

from syncline.progress import Totals
from syncline.server.shard import Deadlock
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import Apply, Discard, Grant, Hold, PushArrived, StrategyOptions
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import ClusterConfig, ScenarioConfig
from syncline.timing.network import SHARINGS, NetworkConfig

GBIT = NetworkConfig(bandwidth_gbps=1.0)  # a message of MB takes 8 ms
MB = 10**6


class CountingObserver:
    def __init__(self, every: int = 1) -> None:
        self.seen: list[int] = []
        self.every = every

    def updated(self, totals: Totals) -> tuple[int, None]:
        self.seen.append(totals.updates)
        return totals.updates + self.every, None


def test_bsp_takes_the_slowest_workers_time_for_each_update():
    totals = run(BspOptions(), ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 5.0]), updates=10)
    assert totals.time_s == 50
    assert totals.samples == 30
    assert totals.staleness == [30]
    assert totals.max_lead == 1


def test_asp_runs_every_worker_at_its_own_rate():
    totals = run(AspOptions(), ClusterConfig(workers=2, gradient_s=[1.0, 4.0]), time_s=100)
    assert totals.used_by_worker == [100, 25]
    assert totals.time_s == 100


def test_asp_of_equal_workers_is_p_minus_1_versions_stale():
    for workers in (2, 5, 16):
        totals = run(AspOptions(), ClusterConfig(workers=workers, gradient_s=[1.0], jitter=NOISE), updates=20_000)
        assert totals.mean_staleness == pytest.approx(workers - 1, rel=0.01)


@pytest.mark.parametrize("strategy", [BspOptions(), SspOptions(), DsspOptions()], ids=lambda o: o.name)
def test_two_strategies_with_one_seed_draw_the_same_times(strategy):
    """The i-th gradient of a worker takes the same time, whichever strategy decides when it starts."""
    cluster = ClusterConfig(workers=3, gradient_s=[1.0, 1.5], jitter=NOISE)
    scenario = ScenarioConfig(compute_delay={"name": "pareto", "minimum": 0.1, "shape": 2.5})

    def times(options) -> list[list[float]]:
        rows = Rows()
        run(options, cluster, scenario, log=rows, updates=60, seed=7)
        return [[row.value for row in rows.of("started") if row.worker == worker] for worker in range(3)]

    for ours, theirs in zip(times(strategy), times(AspOptions()), strict=True):
        shared = min(len(ours), len(theirs))
        assert shared > 3
        assert ours[:shared] == theirs[:shared]


def test_a_step_over_the_network_is_pull_compute_push():
    """latency + size/bandwidth each way: 1 MB at 1 Gbit/s is 8 ms, latency 2 ms."""
    network = NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0)
    totals = run(AspOptions(), ClusterConfig(workers=1, gradient_s=[0.1], network=network), size=MB, updates=10)
    assert totals.time_s == pytest.approx(10 * (0.01 + 0.1 + 0.01))


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_bsp_has_incast_at_the_shards_nic_in_both_directions(workers):
    """P equal workers: the last block leaves after P transfers, the P pushes queue behind each other.

    In a queue worker k starts at 8(k+1) ms and pushes 8 ms, just when worker k-1's push has passed. On a fair network
    all blocks arrive when the last of the queue would, and so do all pushes.
    """
    for sharing, pushes in (("queue", 1), ("fair", workers)):
        network = NetworkConfig(latency_s=0.001, bandwidth_gbps=1.0, sharing=sharing)
        cluster = ClusterConfig(workers=workers, gradient_s=[0.1], network=network)
        totals = run(BspOptions(), cluster, size=MB, updates=5)
        assert totals.time_s == pytest.approx(5 * (0.008 * workers + 0.1 + 0.008 * pushes + 2 * 0.001))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_shard_handles_one_push_after_another(sharing: str) -> None:
    """BSP waits for P of them; ASP makes no more updates a second than a shard that is always busy."""
    network = NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0, sharing=sharing)
    for workers in (1, 4):
        cluster = ClusterConfig(workers=workers, gradient_s=[0.1], network=network, update_s=0.01)
        totals = run(BspOptions(), cluster, size=0, updates=10)
        assert totals.time_s == pytest.approx(10 * (2 * 0.002 + 0.1 + workers * 0.01))
    for workers, update_s in ((1, 0.114), (8, 0.114 / 8), (50, 0.01)):
        cluster = ClusterConfig(workers=workers, gradient_s=[0.1], network=network, update_s=0.01)
        early, late = (run(AspOptions(), cluster, size=0, updates=updates).time_s for updates in (200, 600))
        assert (late - early) / 400 == pytest.approx(update_s, rel=0.01)


@pytest.mark.parametrize(
    ("gradients_s", "network"),
    [([0.1, 0.13, 0.1], NetworkConfig(latency_s=0.01)), ([0.1], GBIT)],
    ids=["no bandwidth", "a single worker"],
)
def test_sharing_matters_only_where_several_workers_share_a_bandwidth(gradients_s, network):
    times = []
    for sharing in SHARINGS:
        shared = replace(network, sharing=sharing)
        cluster = ClusterConfig(workers=len(gradients_s), gradient_s=gradients_s, network=shared)
        times.append(run(AspOptions(), cluster, size=MB, updates=20).time_s)
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_two_shards_halve_what_the_server_sends():
    """Bound by the shards' NICs. Pushing takes each worker 2 x 4 ms; from the second step on, the shard that has its
    pushes 4 ms earlier also answers earlier, so that the two halves no longer overlap at a worker's NIC.
    """
    times = []
    for shards in (1, 2):
        cluster = ClusterConfig(workers=50, shards=shards, gradient_s=[0.01], network=GBIT)
        times.append(run(BspOptions(), cluster, size=MB // shards, updates=10).time_s)
    assert times[0] == pytest.approx(10 * (50 * 0.008 + 0.01 + 0.008))
    assert times[1] == pytest.approx(10 * (50 * 0.004 + 0.01 + 0.008) + 0.004)


def test_late_pull_responses_prolong_every_step_they_delay():
    scenario = ScenarioConfig(pull_delay={"name": "constant", "value": 4.0})
    totals = run(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), scenario, updates=10)
    assert totals.time_s == 50


def test_every_push_is_logged_once_per_shard():
    rows = Rows()
    cluster = ClusterConfig(workers=3, shards=2, gradient_s=[1.0, 2.0])
    totals = run(SspOptions(staleness=1), cluster, log=rows, updates=30)
    pushes = [row.push for row in rows.of("pushed")]
    assert len(set(pushes)) == len(pushes)
    assert {row.shard for row in rows.of("applied")} == {0, 1}
    assert sum(totals.used_by_worker) == sum(row.shard == 0 for row in rows.of("applied")), "counted at the first shard"


def test_the_log_holds_every_update_its_staleness_and_the_reason_of_every_hold():
    rows = Rows()
    totals = run(SspOptions(staleness=1), ClusterConfig(workers=2, gradient_s=[1.0, 3.0]), log=rows, updates=20)
    assert [row.at for row in rows] == sorted(row.at for row in rows)
    applied = rows.of("applied")
    assert [row.version for row in applied] == list(range(1, 21)), "each update creates the next version"
    assert Counter(row.value for row in applied) == Counter(dict(enumerate(totals.staleness)))
    assert len(rows.of("granted")) + len(rows.of("held")) >= len(rows.of("pushed"))
    assert rows.of("held")
    assert all(row.because for row in rows.of("held")), "every hold has its reason"


@pytest.mark.parametrize(
    ("limits", "ended_by", "updates"),
    [({"samples": 12}, "epochs", 12), ({"updates": 7}, "max_updates", 7), ({"time_s": 5.5}, "max_time_s", 5)],
)
def test_a_run_ends_at_its_first_limit(limits, ended_by, updates):
    simulation = simulation_of(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), **({"samples": 99} | limits))
    assert (simulation.run(), simulation.totals.updates) == (ended_by, updates)


def test_the_observer_is_called_at_the_updates_it_asked_for():
    observer = CountingObserver(every=4)
    run(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), observer=observer, updates=12)
    assert observer.seen == [1, 5, 9]


class Given(StrategyOptions):
    """The strategy is this machine."""

    name = "given"

    def __init__(self, machine) -> None:
        self.machine = machine

    def start(self, num_workers: int):
        return self.machine


class HoldsForEver:
    """Applies every push and grants no worker."""

    def handle(self, event: PushArrived):
        return [Apply((event.push,)), Hold(event.worker, "never again")]

    def state_dict(self):
        return {}


def test_a_strategy_that_holds_every_worker_raises_a_deadlock():
    with pytest.raises(Deadlock, match="no worker can continue at 3"):
        simulation_of(Given(HoldsForEver()), ClusterConfig(workers=2, gradient_s=[1.0, 3.0])).run()


class UsesEverySecond:
    """Discards every other push."""

    def __init__(self) -> None:
        self.pushes = 0

    def handle(self, event: PushArrived):
        self.pushes += 1
        settle = Apply((event.push,)) if self.pushes % 2 else Discard(event.push, "every other one")
        return [settle, Grant(event.worker)]


def test_discarded_gradients_are_counted_by_worker():
    totals = run(Given(UsesEverySecond()), ClusterConfig(workers=1, gradient_s=[1.0]), updates=10)
    assert (totals.used_by_worker, totals.discarded_by_worker) == ([10], [9])
    assert totals.samples == 10, "only used gradients count as samples"
