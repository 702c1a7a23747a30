"""Runs without gradients: closed forms, limits, and the log."""

from collections import Counter

import pytest
from simulations import over_a_network

from benchmarks.simulator import NullObserver
from syncline.progress import Limits
from syncline.server.interpreter import Deadlock
from syncline.simulation.engine import Simulation
from syncline.simulation.transport import InstantTransport, NetworkTransport
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.dssp import DsspOptions
from syncline.strategies.protocol import Apply, Discard, Grant, Hold, PushArrived
from syncline.strategies.ssp import SspOptions
from syncline.timing.cluster import Cluster, ClusterConfig, ScenarioConfig
from syncline.timing.network import SHARINGS, NetworkConfig

NOISE = {"name": "exponential", "mean": 1.0}


class CountingObserver:
    def __init__(self, every: int = 1) -> None:
        self.seen: list[int] = []
        self.every = every

    def updated(self, simulation: Simulation) -> int:
        self.seen.append(simulation.totals.updates)
        return simulation.totals.updates + self.every


def simulation_of(strategy, cluster, scenario=None, *, size=0, log=None, observer=None, seed=0, **limits) -> Simulation:
    machines = [
        strategy.start(cluster.workers) if hasattr(strategy, "start") else strategy for _ in range(cluster.shards)
    ]
    return Simulation(
        strategies=machines,
        cluster=Cluster(cluster, scenario or ScenarioConfig(), seed),
        block_bytes=[size] * cluster.shards,
        batch_size=1,
        limits=Limits(**limits),
        observer=observer or NullObserver(),
        log=log,
    )


def run(*args, **kwargs):
    simulation = simulation_of(*args, **kwargs)
    return simulation.run(), simulation.totals


class Rows(list):
    def __call__(self, *row) -> None:
        self.append(row)

    def of(self, kind: str) -> list[tuple]:
        return [row for row in self if row[1] == kind]


def test_bsp_takes_the_slowest_workers_time_for_each_update():
    _, totals = run(BspOptions(), ClusterConfig(workers=3, gradient_s=[1.0, 2.0, 5.0]), updates=10)
    assert totals.time_s == 50
    assert totals.samples == 30
    assert totals.staleness == [30]
    assert totals.max_lead == 1


def test_asp_runs_every_worker_at_its_own_rate():
    _, totals = run(AspOptions(), ClusterConfig(workers=2, gradient_s=[1.0, 4.0]), time_s=100)
    assert totals.used_by_worker == [100, 25]
    assert totals.time_s == 100


def test_asp_of_equal_workers_is_p_minus_1_versions_stale():
    for workers in (2, 5, 16):
        _, totals = run(AspOptions(), ClusterConfig(workers=workers, gradient_s=[1.0], jitter=NOISE), updates=20_000)
        assert totals.mean_staleness == pytest.approx(workers - 1, rel=0.01)


@pytest.mark.parametrize("strategy", [AspOptions(), BspOptions(), SspOptions(), DsspOptions()], ids=lambda o: o.name)
def test_two_strategies_with_one_seed_draw_the_same_times(strategy):
    """The i-th gradient of a worker takes the same time, whichever strategy decides when it starts."""
    cluster = ClusterConfig(workers=3, gradient_s=[1.0, 1.5], jitter=NOISE)
    scenario = ScenarioConfig(compute_delay={"name": "pareto", "minimum": 0.1, "shape": 2.5})

    def times(options) -> list[list[float]]:
        rows = Rows()
        run(options, cluster, scenario, log=rows, updates=60, seed=7)
        return [[value for _, _, w, _, _, _, value, _ in rows.of("started") if w == worker] for worker in range(3)]

    for ours, theirs in zip(times(strategy), times(AspOptions()), strict=True):
        shared = min(len(ours), len(theirs))
        assert shared > 3
        assert ours[:shared] == theirs[:shared]


def test_a_step_over_the_network_is_pull_compute_push():
    """latency + size/bandwidth each way: 1 MB at 1 Gbit/s is 8 ms, latency 2 ms."""
    network = NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0)
    _, totals = run(AspOptions(), ClusterConfig(workers=1, gradient_s=[0.1], network=network), size=10**6, updates=10)
    assert totals.time_s == pytest.approx(10 * (0.01 + 0.1 + 0.01))


def test_bsp_has_incast_at_the_shards_nic_in_both_directions():
    """P equal workers: the last block leaves after P transfers, the P pushes queue behind each other."""
    network = NetworkConfig(latency_s=0.0, bandwidth_gbps=1.0)
    for workers in (1, 2, 8):
        _, totals = run(
            BspOptions(), ClusterConfig(workers=workers, gradient_s=[0.1], network=network), size=10**6, updates=5
        )
        # worker k starts at 8(k+1) ms and pushes 8 ms, just when worker k-1's push has passed
        assert totals.time_s == pytest.approx(5 * (0.008 * workers + 0.1 + 0.008))


def test_bsp_over_a_fair_network_keeps_workers_in_step():
    """P equal workers: all blocks arrive when the last of a queue would, and so do all pushes."""
    network = NetworkConfig(latency_s=0.001, bandwidth_gbps=1.0, sharing="fair")
    for workers in (1, 2, 8):
        _, totals = run(
            BspOptions(), ClusterConfig(workers=workers, gradient_s=[0.1], network=network), size=10**6, updates=5
        )
        assert totals.time_s == pytest.approx(5 * (2 * (0.008 * workers + 0.001) + 0.1))


@pytest.mark.parametrize("sharing", SHARINGS)
def test_a_shard_handles_one_push_after_another(sharing: str) -> None:
    """BSP waits for P of them; ASP makes no more updates a second than a shard that is always busy."""
    network = NetworkConfig(latency_s=0.002, bandwidth_gbps=1.0, sharing=sharing)
    for workers in (1, 4):
        cluster = ClusterConfig(workers=workers, gradient_s=[0.1], network=network, update_s=0.01)
        _, totals = run(BspOptions(), cluster, size=0, updates=10)
        assert totals.time_s == pytest.approx(10 * (2 * 0.002 + 0.1 + workers * 0.01))
    for workers, update_s in ((1, 0.114), (8, 0.114 / 8), (50, 0.01)):
        cluster = ClusterConfig(workers=workers, gradient_s=[0.1], network=network, update_s=0.01)
        _, totals = run(AspOptions(), cluster, size=0, updates=2000)
        assert totals.time_s / 2000 == pytest.approx(update_s, rel=0.01)


def test_sharing_matters_only_where_nics_have_a_bandwidth():
    times = [
        run(
            AspOptions(),
            ClusterConfig(workers=3, gradient_s=[0.1, 0.13], network=NetworkConfig(latency_s=0.01, sharing=sharing)),
            size=10**6,
            updates=20,
        )[1].time_s
        for sharing in SHARINGS
    ]
    assert times[0] == times[1]


def test_a_single_worker_does_not_depend_on_how_nics_are_shared():
    times = []
    for sharing in SHARINGS:
        network = NetworkConfig(bandwidth_gbps=1.0, sharing=sharing)
        cluster = ClusterConfig(workers=1, shards=1, gradient_s=[0.1], network=network)
        times.append(run(AspOptions(), cluster, size=10**6, updates=20)[1].time_s)
    assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_two_shards_halve_what_the_server_sends():
    """Bound by the shards' NICs. Pushing takes each worker 2 x 4 ms; from the second step on, the shard that has its
    pushes 4 ms earlier also answers earlier, so that the two halves no longer overlap at a worker's NIC.
    """
    network = NetworkConfig(latency_s=0.0, bandwidth_gbps=1.0)
    times = []
    for shards in (1, 2):
        cluster = ClusterConfig(workers=100, shards=shards, gradient_s=[0.01], network=network)
        _, totals = run(BspOptions(), cluster, size=10**6 // shards, updates=20)
        times.append(totals.time_s)
    assert times[0] == pytest.approx(20 * (100 * 0.008 + 0.01 + 0.008))
    assert times[1] == pytest.approx(20 * (100 * 0.004 + 0.01 + 0.008) + 0.004)


def test_late_pull_responses_prolong_every_step_they_delay():
    scenario = ScenarioConfig(pull_delay={"name": "constant", "value": 4.0})
    _, totals = run(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), scenario, updates=10)
    assert totals.time_s == 50


def test_every_push_is_logged_once_per_shard():
    rows = Rows()
    cluster = ClusterConfig(workers=3, shards=2, gradient_s=[1.0, 2.0])
    _, totals = run(SspOptions(staleness=1), cluster, log=rows, updates=30)
    pushes = [row[4] for row in rows.of("pushed")]
    assert len(set(pushes)) == len(pushes)
    assert set(Counter(row[3] for row in rows.of("applied"))) == {0, 1}
    assert sum(totals.used_by_worker) == sum(row[3] == 0 for row in rows.of("applied")), "counted at the first shard"


def test_the_log_holds_every_update_its_staleness_and_the_reason_of_every_hold():
    rows = Rows()
    _, totals = run(SspOptions(staleness=1), ClusterConfig(workers=2, gradient_s=[1.0, 3.0]), log=rows, updates=20)
    assert [row[0] for row in rows] == sorted(row[0] for row in rows)
    applied = rows.of("applied")
    assert [row[5] for row in applied] == list(range(1, 21)), "each update creates the next version"
    assert Counter(row[6] for row in applied) == Counter(dict(enumerate(totals.staleness)))
    assert len(rows.of("granted")) + len(rows.of("held")) >= len(rows.of("pushed"))
    assert all(row[7] for row in rows.of("held")), "every hold has its reason"


@pytest.mark.parametrize(
    ("limits", "ended_by", "updates"),
    [({"samples": 12}, "epochs", 12), ({"updates": 7}, "max_updates", 7), ({"time_s": 5.5}, "max_time_s", 5)],
)
def test_a_run_ends_at_its_first_limit(limits, ended_by, updates):
    reason, totals = run(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), **({"samples": 99} | limits))
    assert (reason, totals.updates) == (ended_by, updates)


def test_the_observer_is_called_at_the_updates_it_asked_for():
    observer = CountingObserver(every=4)
    run(AspOptions(), ClusterConfig(workers=1, gradient_s=[1.0]), observer=observer, updates=12)
    assert observer.seen == [1, 5, 9]


@pytest.mark.parametrize("strategy", [AspOptions(), BspOptions(), SspOptions(), DsspOptions()], ids=lambda o: o.name)
def test_messages_that_take_no_time_give_the_same_run_whether_they_are_scheduled_or_not(strategy):
    cluster = ClusterConfig(workers=5, gradient_s=[1.0, 1.6, 2.9], jitter=NOISE)
    logs = []
    for is_instant in (True, False):
        logs.append(Rows())
        with over_a_network(not is_instant):
            simulation = simulation_of(strategy, cluster, log=logs[-1], updates=300)
        assert isinstance(simulation._transport, InstantTransport if is_instant else NetworkTransport)
        simulation.run()
    assert [sorted(rows.of(kind)) for rows in logs[:1] for kind in ("pushed", "applied", "held")] == [
        sorted(rows.of(kind)) for rows in logs[1:] for kind in ("pushed", "applied", "held")
    ]


class HoldsForEver:
    """Applies every push and grants no worker."""

    def handle(self, event: PushArrived):
        return [Apply((event.push,)), Hold(event.worker, "never again")]

    def state_dict(self):
        return {}


def test_a_strategy_that_holds_every_worker_raises_a_deadlock():
    with pytest.raises(Deadlock, match="no worker can continue at 3"):
        simulation_of(HoldsForEver(), ClusterConfig(workers=2, gradient_s=[1.0, 3.0])).run()


class UsesEverySecond:
    """Discards every other push."""

    def __init__(self) -> None:
        self.pushes = 0

    def handle(self, event: PushArrived):
        self.pushes += 1
        settle = Apply((event.push,)) if self.pushes % 2 else Discard(event.push, "every other one")
        return [settle, Grant(event.worker)]


def test_discarded_gradients_are_counted_by_worker():
    _, totals = run(UsesEverySecond(), ClusterConfig(workers=1, gradient_s=[1.0]), updates=10)
    assert (totals.used_by_worker, totals.discarded_by_worker) == ([10], [9])
    assert totals.samples == 10, "only used gradients count as samples"
