"""Links between regions, in closed form."""

from typing import Any

import pytest

from benchmarks.measuring import simulated
from syncline.config import compose
from syncline.timing.collectives import ring_s
from syncline.timing.network import Network, NetworkConfig

SIZE = 1_000_000  # bytes: 8 ms at 1 Gbit/s, 80 ms at 0.1
NIC, LINK, LATENCY, ADDED = 0.008, 0.08, 0.001, 0.05
TWO = NetworkConfig(latency_s=LATENCY, bandwidth_gbps=1.0, regions=[0, 1, 1], between_gbps=0.1, between_latency_s=ADDED)


def test_a_message_to_another_region_takes_the_time_of_the_link_and_within_one_that_of_the_nics() -> None:
    assert Network(TWO, 3, 2).send(5.0, True, 0, 0, SIZE) == pytest.approx(5.0 + LATENCY + NIC)
    for is_push in (True, False):
        network = Network(TWO, 3, 2)
        assert network.send(5.0, is_push, 1, 0, SIZE) == pytest.approx(5.0 + LATENCY + ADDED + LINK)
        assert network.alone_s(is_push, 1, SIZE) == pytest.approx(LATENCY + ADDED + LINK)
        assert network.alone_s(is_push, 0, SIZE) == pytest.approx(LATENCY + NIC)


def test_messages_of_several_workers_to_several_shards_queue_at_the_one_link_each_way() -> None:
    network = Network(TWO, 3, 2)
    first = network.send(0.0, True, 1, 0, SIZE)
    assert network.send(0.0, True, 2, 1, SIZE) == pytest.approx(first + LINK)
    assert network.send(0.0, False, 1, 0, SIZE) == pytest.approx(first), "the other way is free"
    assert network.send(0.0, True, 0, 1, SIZE) == pytest.approx(LATENCY + NIC), "its own region does not use it"


def test_a_matrix_has_a_row_for_each_region_that_sends() -> None:
    gbps, latency_s = [[None, 0.1], [0.2, None]], [[0, 0.01], [0.02, 0]]
    network = Network(NetworkConfig(regions=[0, 1], between_gbps=gbps, between_latency_s=latency_s), 2, 1)
    assert network.send(0.0, True, 1, 0, SIZE) == pytest.approx(0.02 + LINK / 2)
    assert network.send(0.0, False, 1, 0, SIZE) == pytest.approx(0.01 + LINK)
    assert network.send(0.0, True, 0, 0, SIZE) == 0.0


def test_a_ring_over_two_regions_is_as_slow_as_the_link_between_them() -> None:
    network = Network(TWO, 3, 1)
    slow = ring_s(2, SIZE, LATENCY + ADDED, 8 / 0.1e9)
    assert network.all_reduce_s([0, 1], SIZE, 1) == pytest.approx(slow)
    assert network.all_reduce_s([1, 2], SIZE, 1) == pytest.approx(ring_s(2, SIZE, LATENCY, 8 / 1e9))
    assert network.peers_s([0, 2], SIZE) == pytest.approx(LATENCY + ADDED + LINK)


def summary_of(*words: str) -> dict[str, Any]:
    common = ["gradients=false", "cluster.jitter=null", "cluster.gradient_s=[0.1]", f"cluster.message_bytes={SIZE}"]
    return simulated(compose([*common, "cluster=regions2", *words])[0])


def test_a_run_takes_both_ways_of_each_worker() -> None:
    """A worker of the other region: 0.1 s of computing, 0.11 s each way. Nothing queues, and nothing waits."""
    words = ["strategy=asp", "cluster.workers=1", "cluster.network.regions=[1]", "max_updates=50"]
    summary = summary_of(*words, "cluster.network.between_latency_s=[[0,0.03],[0.03,0]]")
    way_s = 5e-5 + 0.03 + 0.08
    assert summary["time_s"] == pytest.approx(50 * (0.1 + 2 * way_s))
    assert summary["time_shares"]["queueing"] == pytest.approx(0.0, abs=1e-9)


def test_members_of_a_collective_wait_for_the_link_only_in_groups_that_cross_it() -> None:
    """DS-Sync: four workers, two in each region. Rows lie within a region, columns across: every other step is slow."""
    words = ["strategy=ds_sync", "cluster.workers=4", "cluster.network.regions=[0,0,1,1]", "max_updates=100"]
    summary = summary_of(*words)
    within, across = ring_s(2, SIZE, 5e-5, 8 / 1e10), ring_s(2, SIZE, 5e-5 + 0.03, 8 / 1e8)
    assert summary["time_s"] == pytest.approx(50 * (0.2 + within + across))


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["regions=[0,2]"], "regions must be numbers from 0, each of which occurs"),
        (["regions=[0,1]", "sharing=fair"], "sharing must be queue with several regions"),
        (["regions=[0,1]", "between_gbps=0"], "between_gbps must be a number > 0, or null, or a row"),
        (["regions=[0,1]", "between_latency_s=[[0,1]]"], "a row of such for each of 2 regions"),
        (["regions=[0,1]", "between_latency_s=[[0,a],[0,0]]"], "between_latency_s must be a number >= 0"),
    ],
)
def test_what_describes_no_regions_is_refused(words: list[str], rule: str) -> None:
    with pytest.raises(ValueError, match=rule.replace("[", r"\[")):
        compose([*(f"cluster.network.{word}" for word in words), "strategy=asp"])
