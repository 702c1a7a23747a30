"""The cost of synchronisation in closed form: DS-Sync's Table 1, and the alpha-beta model of servers and collectives.

This file may hold: pure functions of numbers. It may not hold: state, or anything simulated.
"""

import math

# Collectives: the scale of synchronisation of DS-Sync's Table 1.

SYNCHRONISATIONS = ("ps", "ring", "tree", "ds_sync_ring", "ds_sync_tree")


def synchronisation_scale(kind: str, num_workers: int, group_size: int | None = None) -> float:
    """Serial operations to synchronise one element: DS-Sync's Table 1.

    ps 2 W, ring 2 W - 1, tree 3 log W; DS-Sync the same with the members of a group for W: sqrt(W) of a square grid,
    the larger side of any other. The paper does not state the base of its logarithm: 2 here, as for a binary tree. It
    cancels in the ratio of two trees.

    Args:
        kind: one of SYNCHRONISATIONS.
        num_workers: W.
        group_size: DS-Sync's workers in a row of the grid, a divisor of W; None: sqrt(W), be it whole or not.

    Raises:
        ValueError: unknown kind, W < 1, or a group size that does not divide W.

    Source: dssync.txt, section 3.2, Definition 3.1 and Table 1.
    """
    if kind not in SYNCHRONISATIONS:
        raise ValueError(f"synchronisation_scale: kind must be one of {', '.join(SYNCHRONISATIONS)}, got {kind!r}")
    if num_workers < 1:
        raise ValueError(f"synchronisation_scale: num_workers must be > 0, got {num_workers}")
    members: float = num_workers
    if kind.startswith("ds_sync"):
        members = math.sqrt(num_workers) if group_size is None else max(_grid(num_workers, group_size))
    if kind == "ps":
        return 2.0 * members
    return 3.0 * math.log2(members) if kind.endswith("tree") else 2.0 * members - 1.0


def overall_cost_s(kind: str, num_workers: int, size_bytes: float, seconds_a_byte: float) -> float:
    """Seconds to synchronise all elements by DS-Sync's Table 1: S D / B, for scale S, size D and bandwidth B.

    The server of ps, one process, has bandwidth B / W for each worker: 2 W^2 D / B. The model sends every element by
    itself; `ring_s` and the others below pipeline.

    Args:
        kind, num_workers: as for `synchronisation_scale`.
        size_bytes: D >= 0.
        seconds_a_byte: 1 / B >= 0.

    Source: dssync.txt, Table 1.
    """
    seconds = synchronisation_scale(kind, num_workers) * size_bytes * seconds_a_byte
    return seconds * num_workers if kind == "ps" else seconds


# Collectives: a message of m bytes takes latency + m seconds_a_byte (the alpha-beta model); NICs are full duplex.


def ring_s(members: int, size_bytes: float, latency_s: float, seconds_a_byte: float) -> float:
    """Seconds of a ring all-reduce of W members: 2 (W-1) latency + 2 (W-1)/W D seconds_a_byte.

    W - 1 steps of reduce-scatter and W - 1 of all-gather, in each of which every member sends 1/W of the data. Nothing
    for one member.

    Args:
        members: W >= 1.
        size_bytes: D >= 0, what each member holds.
        latency_s: of a message, >= 0.
        seconds_a_byte: of every NIC, each way, >= 0.

    Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations (2009), where
    dssync.txt, section 3.2, counts 2 W - 1 steps with all the data.
    """
    steps = 2 * (members - 1)
    return steps * (latency_s + size_bytes / members * seconds_a_byte)


def all_gather_s(members: int, size_bytes: float, latency_s: float, seconds_a_byte: float) -> float:
    """Seconds of a ring all-gather of W members: (W-1) (latency + D seconds_a_byte).

    Every member passes on what it received before. Arguments as for `ring_s`.

    Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH (2005).
    """
    return (members - 1) * (latency_s + size_bytes * seconds_a_byte)


def peers_s(peers: int, size_bytes: float, latency_s: float, seconds_a_byte: float) -> float:
    """Seconds in which a worker sends its data to k peers, and receives theirs: latency + k D seconds_a_byte.

    Nothing without peers. Arguments as for `ring_s`.

    Source: Assran et al. 2019, Stochastic gradient push for distributed deep learning, section 2.
    """
    return latency_s + peers * size_bytes * seconds_a_byte if peers else 0.0


def tree_s(members: int, size_bytes: float, latency_s: float, seconds_a_byte: float) -> float:
    """Seconds of a binomial-tree all-reduce of W members: 2 ceil(log2 W) (latency + D seconds_a_byte).

    ceil(log2 W) rounds of a reduction to one member, and as many of a broadcast from it; in each round a member sends
    or receives one message, with all the data: nothing is cut into pieces. Arguments as for `ring_s`.

    Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH (2005).
    """
    rounds = (members - 1).bit_length()  # ceil(log2 W)
    return 2 * rounds * (latency_s + size_bytes * seconds_a_byte)


def parameter_server_s(
    num_workers: int, num_shards: int, size_bytes: float, latency_s: float, seconds_a_byte: float
) -> float:
    """Seconds for P workers that simultaneously push to S shards and pull: 2 (latency + max(P/S, 1) D / B).

    Each shard holds D / S and receives it P times over, one message after another (incast), then sends as much; with
    more shards than workers it is the workers' NICs that are busy. Holds for workers that begin with different shards;
    where all begin with the same one, the last shard waits and max(P/S, 1) becomes (P + S - 1)/S. In a long run of BSP
    the pulls put the workers one transfer apart, and most of the incast hides behind them.

    Args:
        num_workers: P >= 1.
        num_shards: S >= 1.
        size_bytes, latency_s, seconds_a_byte: as for `ring_s`.

    Source: dssync.txt, section 3.2 (the many-to-one bottleneck of the parameter server), in the alpha-beta model.
    """
    return 2.0 * (latency_s + max(num_workers / num_shards, 1.0) * size_bytes * seconds_a_byte)


def grouped_ring_s(
    num_workers: int, group_size: int, size_bytes: float, latency_s: float, seconds_a_byte: float
) -> float:
    """Mean seconds of one exchange of DS-Sync with rings: rows of the grid at even steps, columns at odd ones.

    Groups of one step work side by side on links of their own. In a square grid one over all W workers takes
    1 + 1/sqrt(W) times as long if bandwidth is all that counts, and 1 + sqrt(W) times if latency is.

    Args:
        num_workers: W >= 1.
        group_size: workers in a row, a divisor of W.
        size_bytes, latency_s, seconds_a_byte: as for `ring_s`.

    Raises:
        ValueError: the group size does not divide W.

    Source: dssync.txt, Algorithm 1 (lines 11 to 17) and section 3.2, in the alpha-beta model.
    """
    rows, columns = _grid(num_workers, group_size)
    in_row = ring_s(columns, size_bytes, latency_s, seconds_a_byte)
    in_column = ring_s(rows, size_bytes, latency_s, seconds_a_byte)
    return (in_row + in_column) / 2.0


def _grid(num_workers: int, group_size: int) -> tuple[int, int]:
    """(rows, columns)."""
    if group_size < 1 or num_workers < 1 or num_workers % group_size:
        raise ValueError(f"group_size must be a divisor of num_workers = {num_workers}, got {group_size}")
    return num_workers // group_size, group_size
