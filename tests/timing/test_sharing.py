"""NICs that share bandwidth, against closed forms, and what holds for any traffic."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncline.timing.network import Network, NetworkConfig
from syncline.timing.sharing import FairShareNetwork, Flow, shares

LINES = st.builds(Flow, st.booleans(), st.integers(0, 3), st.integers(0, 2))
# (when, flow, bytes), at a byte a second
TRAFFIC = st.lists(st.tuples(st.floats(0, 100), LINES, st.integers(0, 50)), max_size=30)


def push(worker: int, shard: int = 0) -> Flow:
    return Flow(True, worker, shard)


def arrivals(
    traffic: Iterable[tuple[float, Flow, int]], seconds_a_byte: float = 1.0, later_weight: float = 1.0
) -> dict[int, float]:
    """When each message, by its index in the traffic, has arrived."""
    network = FairShareNetwork[int](seconds_a_byte, later_weight)
    found: dict[int, float] = {}

    def pass_until(moment: float) -> None:
        while (at := network.next_through) <= moment and at < math.inf:
            messages = network.through(at)
            assert messages, "scheduled for now"
            assert network.next_through > at, "polled once per time"
            found.update(dict.fromkeys(messages, at))

    for number, (at, flow, size) in sorted(enumerate(traffic), key=lambda entry: entry[1][0]):
        pass_until(at)
        network.send(at, flow, size, number)
    pass_until(math.inf)
    return found


@given(st.floats(0, 1e4), st.floats(1e-3, 400), st.integers(1, 10**10))
def test_a_lone_message_takes_what_it_takes_in_a_queue(now: float, gbps: float, size_bytes: int) -> None:
    config = NetworkConfig(bandwidth_gbps=gbps)
    expected = Network(config, 1, 1).send(now, True, 0, 0, size_bytes)
    assert arrivals([(now, push(0), size_bytes)], config.seconds_a_byte)[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("later", [0.0, 1.0, 4.5, 9.9])
def test_two_that_overlap_keep_the_distance_at_which_they_began(later: float) -> None:
    """The first has the NIC alone for `later`, the second its last `later` seconds."""
    found = arrivals([(0.0, push(0), 10), (later, push(1), 10)])
    assert found[0] == pytest.approx(20 - later)
    assert found[1] == pytest.approx(20)


@pytest.mark.parametrize("weight", [1.0, 0.7, 0.2, 1e-6])
def test_messages_that_begin_together_arrive_in_turn_and_the_last_when_it_would_anyway(weight: float) -> None:
    """Three of 10 s: from fair shares (30 each) to a queue (10, 20, 30)."""
    found = arrivals([(0.0, push(worker), 10) for worker in range(3)], later_weight=weight)
    first = 10 * (1 + weight + weight**2)
    second = first + (10 - weight * 10) * (1 + weight)
    assert [found[worker] for worker in range(3)] == pytest.approx([first, second, 30.0], rel=1e-9)


def test_a_weight_of_many_messages_is_not_zero() -> None:
    found = arrivals([(0.0, push(worker), 1) for worker in range(90)], later_weight=1e-4)
    assert found[89] == pytest.approx(90.0)


@given(st.lists(LINES, min_size=1, unique=True), st.sampled_from([1.0, 0.6]))
def test_rates_are_max_min_fair(flows: list[Flow], weight: float) -> None:
    """Every flow passes a saturated NIC on which no flow is faster for its weight (Bertsekas and Gallager)."""
    rates = shares(flows, weight)
    assert set(rates) == {*flows}
    before = Counter[tuple[bool, str, int]]()
    weights = dict[Flow, float]()
    for flow in flows:
        weights[flow] = weight ** max(before[nic] for nic in flow.nics)
        before.update(flow.nics)
    on_nic = defaultdict(list)
    for flow, rate in rates.items():
        assert 0 < rate <= 1
        for nic in flow.nics:
            on_nic[nic].append(flow)
    carried = {nic: sum(rates[flow] for flow in there) for nic, there in on_nic.items()}
    assert max(carried.values()) <= 1 + 1e-9
    for flow, rate in rates.items():
        held_by = [on_nic[nic] for nic in flow.nics if carried[nic] >= 1 - 1e-9]
        level = rate / weights[flow]
        assert any(level >= max(rates[other] / weights[other] for other in there) - 1e-9 for there in held_by)


NO_SIZE_BEHIND = [(0.0, push(0), 5), (1.0, push(0), 0), (1.0, push(0), 0)]
ONE_END_BUT_FOR_ROUNDING = [
    *((0.1, push(0), 5), (0.1, push(0, 1), 3), (0.1, push(0, 1), 2)),
    *((0.3, push(2), 3), (0.3, push(0), 2)),
]


@given(TRAFFIC, st.sampled_from([1.0, 0.6]))
@example(NO_SIZE_BEHIND, 1.0)
@example(ONE_END_BUT_FOR_ROUNDING, 1.0)
def test_every_flow_arrives_in_order_and_not_before_it_could(
    traffic: list[tuple[float, Flow, int]], weight: float
) -> None:
    found = arrivals(traffic, later_weight=weight)
    assert set(found) == set(range(len(traffic)))
    last: dict[Flow, float] = {}
    for number, (at, flow, size) in sorted(enumerate(traffic), key=lambda entry: entry[1][0]):
        assert found[number] >= max(at, last.get(flow, 0.0)) + size - 1e-6
        last[flow] = found[number]


@given(TRAFFIC, st.sampled_from([1.0, 0.6]))
def test_a_nic_is_never_idle_while_a_message_waits_for_it_alone(
    traffic: list[tuple[float, Flow, int]], weight: float
) -> None:
    """To one shard from workers with one message each: all have arrived when they would, one after another."""
    alone = [(at, push(worker), size) for worker, (at, _, size) in enumerate(traffic)]
    free = 0.0
    for at, _, size in sorted(alone, key=lambda entry: entry[0]):
        free = max(at, free) + size
    assert max(arrivals(alone, later_weight=weight).values(), default=0.0) == pytest.approx(free)


def test_a_saved_state_continues_in_every_bit() -> None:
    def begun() -> FairShareNetwork[int]:
        network = FairShareNetwork[int](1.0, 0.7)
        for number, (worker, shard, size) in enumerate([(0, 0, 7), (1, 0, 5), (1, 1, 9), (0, 0, 3)]):
            network.send(number / 7, push(worker, shard), size, number)
        return network

    def rest(network: FairShareNetwork[int]) -> list[tuple[float, list[int]]]:
        found = []
        while (at := network.next_through) < math.inf:
            found.append((at, network.through(at)))
        return found

    kept = json.loads(json.dumps(begun().state_dict(str)))
    again = FairShareNetwork[int](1.0, 0.7)
    again.load_state_dict(kept, int)
    assert rest(again) == rest(begun())
