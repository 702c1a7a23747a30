"""Runs without gradients: closed forms, limits, and the log."""

from dataclasses import replace

import pytest
from simulations import NOISE, run, simulation_of

from syncline.progress import Totals
from syncline.server.shard import Deadlock
from syncline.strategies.asp import AspOptions
from syncline.strategies.bsp import BspOptions
from syncline.strategies.protocol import Apply, Hold, PushArrived, StrategyOptions
from syncline.timing.cluster import ClusterConfig
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


def test_asp_of_equal_workers_is_p_minus_1_versions_stale():
    for workers in (2, 5, 16):
        totals = run(AspOptions(), ClusterConfig(workers=workers, gradient_s=[1.0], jitter=NOISE), updates=20_000)
        assert totals.mean_staleness == pytest.approx(workers - 1, rel=0.01)


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

    def begin(self):
        return []

    def handle(self, event: PushArrived):
        return [Apply((event.push,)), Hold(event.worker, "never again")]

    def state_dict(self):
        return {}


def test_a_strategy_that_holds_every_worker_raises_a_deadlock():
    with pytest.raises(Deadlock, match="no worker can continue at 3"):
        simulation_of(Given(HoldsForEver()), ClusterConfig(workers=2, gradient_s=[1.0, 3.0])).run()
