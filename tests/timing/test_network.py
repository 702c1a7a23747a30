"""Messages against closed forms: one alone, incast, broadcast, and what holds for any traffic."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.network import Network, NetworkConfig

LATENCY_S, GBPS = 0.001, 8.0
BYTES_A_SECOND = GBPS * 1e9 / 8
MB = 1_000_000  # takes 1 ms
MB_S = MB / BYTES_A_SECOND


def network(workers: int = 4, shards: int = 2, latency_s: float = LATENCY_S, gbps: float | None = GBPS) -> Network:
    return Network(NetworkConfig(latency_s, gbps), workers, shards)


@given(st.floats(0, 1e4), st.floats(0, 10), st.floats(1e-3, 400), st.integers(0, 10**10))
def test_a_lone_message_takes_latency_plus_size_over_bandwidth(
    now: float, latency_s: float, gbps: float, size_bytes: int
) -> None:
    expected = pytest.approx(now + latency_s + size_bytes * 8 / (gbps * 1e9), rel=1e-12)
    assert network(latency_s=latency_s, gbps=gbps).send(now, True, 1, 0, size_bytes) == expected
    assert network(latency_s=latency_s, gbps=gbps).send(now, False, 3, 1, size_bytes) == expected


def test_simultaneous_pushes_to_one_shard_and_pulls_from_it_arrive_one_after_the_other() -> None:
    in_turn = pytest.approx([2.0 + LATENCY_S + k * MB_S for k in range(1, 8)], rel=1e-12)
    assert [net.send(2.0, True, worker, 0, MB) for net in [network(workers=7)] for worker in range(7)] == in_turn
    assert [net.send(2.0, False, worker, 0, MB) for net in [network(workers=7)] for worker in range(7)] == in_turn


Traffic = list[tuple[float, bool, int, int, int]]  # (now, is_push, worker, shard, size), in order of time


def in_order(steps: list[tuple[float, bool, int, int, int]]) -> Traffic:
    """Waits between messages become the times at which they are sent."""
    times = accumulate(step[0] for step in steps)
    return [(now, *step[1:]) for now, step in zip(times, steps, strict=True)]


traffic = st.lists(
    st.tuples(st.floats(0, 0.05), st.booleans(), st.integers(0, 3), st.integers(0, 1), st.integers(0, 20 * MB)),
    min_size=1,
    max_size=40,
).map(in_order)


def send(net: Network, messages: Traffic) -> list[float]:
    return [net.send(*message) for message in messages]


@given(traffic)
def test_a_nic_receives_one_message_at_a_time_and_each_for_size_over_bandwidth(messages: Traffic) -> None:
    received: dict[tuple[bool, int], list[tuple[float, float]]] = {}
    for (_, is_push, worker, shard, size), arrived in zip(messages, send(network(), messages), strict=True):
        nic = (is_push, shard if is_push else worker)
        received.setdefault(nic, []).append((arrived - size / BYTES_A_SECOND, arrived))
    for spans in received.values():
        for (_, ends), (begins, _) in pairwise(spans):
            assert begins >= ends - 1e-9


@given(traffic)
def test_a_nic_sends_one_message_at_a_time(messages: Traffic) -> None:
    """The k-th message of a sender cannot have arrived before all of the sender's first k have been sent."""
    sent: dict[tuple[bool, int], list[tuple[float, float, float]]] = {}
    for (now, is_push, worker, shard, size), arrived in zip(messages, send(network(), messages), strict=True):
        sent.setdefault((is_push, worker if is_push else shard), []).append((now, size / BYTES_A_SECOND, arrived))
    for queue in sent.values():
        for first in range(len(queue)):
            for last in range(first, len(queue)):
                busy_s = sum(duration for _, duration, _ in queue[first : last + 1])
                assert queue[last][2] >= queue[first][0] + LATENCY_S + busy_s - 1e-9


@given(st.lists(st.tuples(st.floats(0, 0.02), st.integers(0, 20 * MB)), min_size=1, max_size=30))
def test_a_nic_is_busy_while_messages_wait(steps: list[tuple[float, int]]) -> None:
    """One push a worker: the NIC is a single server, whose times are (Lindley)

    D_n = max over i <= n of (t_i + latency + d_i + ... + d_n): its busy time is conserved.
    """
    times = list(accumulate(step[0] for step in steps))
    durations = [step[1] / BYTES_A_SECOND for step in steps]
    net = network(workers=len(steps))
    for n, (now, (_, size)) in enumerate(zip(times, steps, strict=True)):
        expected = max(times[i] + LATENCY_S + sum(durations[i : n + 1]) for i in range(n + 1))
        assert net.send(now, True, n, 0, size) == pytest.approx(expected, rel=1e-9)
