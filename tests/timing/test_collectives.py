"""The cost of synchronising against DS-Sync's Table 1, and against messages sent one by one."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.timing.collectives import (
    SYNCHRONISATIONS,
    grouped_ring_s,
    overall_cost_s,
    parameter_server_s,
    ring_s,
    synchronisation_scale,
    tree_s,
)
from syncline.timing.network import Network, NetworkConfig

# Collectives: DS-Sync's Table 1.


@pytest.mark.parametrize(("num_workers", "ratio"), [(4, 2.33), (9, 3.4), (16, 4.43)])
def test_table_1_divides_the_cost_of_the_ring(num_workers: int, ratio: float) -> None:
    """Section 3.2: at least half "even in the case of Tree All-reduce or W is as small as 4", a quarter for 16."""
    ring = synchronisation_scale("ring", num_workers)
    assert ring / synchronisation_scale("ds_sync_ring", num_workers) == pytest.approx(ratio, abs=0.005)
    tree = synchronisation_scale("tree", num_workers)
    assert tree / synchronisation_scale("ds_sync_tree", num_workers) == pytest.approx(2.0)


def test_table_1_for_sixteen_workers() -> None:
    scales = {kind: synchronisation_scale(kind, 16) for kind in SYNCHRONISATIONS}
    assert scales == {"ps": 32, "ring": 31, "tree": 12, "ds_sync_ring": 7, "ds_sync_tree": 6}
    costs = {kind: overall_cost_s(kind, 16, 1e9, 1e-9) for kind in SYNCHRONISATIONS}
    assert costs == pytest.approx({**scales, "ps": 2 * 16**2})


@given(st.integers(1, 40), st.integers(1, 40))
def test_the_larger_side_of_a_grid_counts(rows: int, columns: int) -> None:
    larger = max(rows, columns)
    for kind in ("ring", "tree"):
        scale = synchronisation_scale(f"ds_sync_{kind}", rows * columns, columns)
        assert scale == pytest.approx(synchronisation_scale(kind, larger), rel=1e-14)
        assert scale == synchronisation_scale(f"ds_sync_{kind}", rows * columns, rows)
        square = synchronisation_scale(f"ds_sync_{kind}", larger**2)
        assert scale == pytest.approx(square, rel=1e-12)


# Collectives: the alpha-beta model, against single messages over NICs that send and receive one at a time.

LATENCY_S, GBPS = 0.001, 8.0
BETA = 8 / (GBPS * 1e9)  # seconds a byte
SIZE = 720_720  # bytes; divisible by 1 .. 15


def peers(members: int, latency_s: float = LATENCY_S) -> Network:
    """The worker and the shard with one number are the two directions of one NIC."""
    return Network(NetworkConfig(latency_s, GBPS), members, members)


@pytest.mark.parametrize("members", [1, 2, 3, 8, 11])
def test_a_ring_takes_as_long_as_its_messages(members: int) -> None:
    net = peers(members)
    ready = [0.0] * members
    for _ in range(2 * (members - 1)):  # each sends the piece that it received last to the next one
        senders = [(p - 1) % members for p in range(members)]
        ready = [net.send(ready[sender], True, sender, p, SIZE // members) for p, sender in enumerate(senders)]
    assert ring_s(members, SIZE, LATENCY_S, BETA) == pytest.approx(max(ready), rel=1e-12)


@pytest.mark.parametrize("members", [1, 2, 3, 5, 8, 16, 19])
def test_a_tree_takes_as_long_as_its_messages(members: int) -> None:
    """Rounds need not wait for each other; in a full tree the longest path takes as long as if they did."""
    net = peers(members)
    ready = [0.0] * members
    holds = [{p} for p in range(members)]
    edges = [
        [(p, p + reach) for p in range(0, members - reach, 2 * reach)] for reach in (1, 2, 4, 8, 16) if reach < members
    ]
    for edges_of_round in edges:
        for parent, child in edges_of_round:
            ready[parent] = max(ready[parent], net.send(ready[child], True, child, parent, SIZE))
            holds[parent] |= holds[child]
    for edges_of_round in reversed(edges):
        for parent, child in edges_of_round:
            ready[child] = net.send(ready[parent], True, parent, child, SIZE)
            holds[child] |= holds[parent]
    assert all(held == set(range(members)) for held in holds)
    seconds = tree_s(members, SIZE, LATENCY_S, BETA)
    if members in (1, 2, 4, 8, 16):
        assert max(ready) == pytest.approx(seconds, rel=1e-12)
    else:
        assert tree_s(members // 2, SIZE, LATENCY_S, BETA) < max(ready) <= seconds * (1 + 1e-12)


def exchange_s(workers: int, shards: int, spread: bool) -> tuple[float, float]:
    """Seconds of the pushes and of the pulls; `spread`: each starts at another shard, or worker."""
    net = Network(NetworkConfig(LATENCY_S, GBPS), workers, shards)
    block = SIZE // shards
    arrivals = [
        net.send(0.0, True, worker, (worker * spread + turn) % shards, block)
        for turn in range(shards)
        for worker in range(workers)
    ]
    pushed = max(arrivals)
    arrivals = [
        net.send(pushed, False, (shard * spread + turn) % workers, shard, block)
        for turn in range(workers)
        for shard in range(shards)
    ]
    return pushed, max(arrivals) - pushed


@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (1, 3), (5, 1), (5, 8), (8, 3), (12, 12)])
def test_a_parameter_server_takes_as_long_as_its_messages(workers: int, shards: int) -> None:
    seconds = parameter_server_s(workers, shards, SIZE, LATENCY_S, BETA)
    assert sum(exchange_s(workers, shards, spread=True)) == pytest.approx(seconds, rel=1e-9)
    pushes, _ = exchange_s(workers, shards, spread=False)
    assert pushes == pytest.approx(LATENCY_S + (workers + shards - 1) / shards * SIZE * BETA, rel=1e-9)


@given(st.integers(1, 20), st.integers(1, 20), st.floats(0, 1), st.floats(0, 1e-6))
def test_rows_and_columns_alternate(rows: int, columns: int, latency_s: float, beta: float) -> None:
    both = ring_s(rows, SIZE, latency_s, beta) + ring_s(columns, SIZE, latency_s, beta)
    seconds = grouped_ring_s(rows * columns, columns, SIZE, latency_s, beta)
    assert 2 * seconds == pytest.approx(both, rel=1e-12)
    assert seconds == grouped_ring_s(rows * columns, rows, SIZE, latency_s, beta)
    assert seconds <= ring_s(rows * columns, SIZE, latency_s, beta) * (1 + 1e-12)


@pytest.mark.parametrize(
    "call",
    [
        lambda: synchronisation_scale("star", 4),
        lambda: synchronisation_scale("ring", 0),
        lambda: synchronisation_scale("ds_sync_ring", 6, 4),
        lambda: grouped_ring_s(6, 4, 1.0, 0.0, 1.0),
    ],
)
def test_what_is_out_of_range_is_refused_in_one_line(call: Callable[[], float]) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]* must be [^\n]*, got [^\n]*$"):
        call()
