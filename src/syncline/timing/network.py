"""How long messages take: latency, and NICs that send and receive one message at a time (incast).

sharing.py has NICs that share their bandwidth fairly among all messages.
"""

from dataclasses import dataclass
from typing import Any

from syncline.strategies.machine import Machine
from syncline.timing.collectives import all_gather_s, peers_s, ring_s
from syncline.timing.distributions import OptionalDistribution, optional, require
from syncline.timing.sharing import FairShareNetwork

SHARINGS = ("queue", "fair")


@dataclass(frozen=True, slots=True)
class NetworkConfig:
    """One kind of link for the whole cluster; workers and shards each have one full-duplex NIC."""

    latency_s: float = 0.0  # of every message, >= 0
    bandwidth_gbps: float | None = None  # of every NIC, each way, Gbit/s > 0; None: sending takes no time
    jitter: OptionalDistribution = None  # seconds added to the latency of every message to or from a shard
    sharing: str = "queue"  # one of SHARINGS: a NIC sends its messages one after another, or in parallel, each slower
    later_weight: float = 1.0  # in parallel: the rate of a message over that of the one sent before it, in (0, 1]

    def __post_init__(self) -> None:
        object.__setattr__(self, "jitter", optional("cluster.network.jitter", self.jitter))
        rule = f"cluster.network.sharing must be one of {', '.join(SHARINGS)}"
        require(self.sharing in SHARINGS, rule, repr(self.sharing))
        rule = "cluster.network.later_weight must be > 0 and <= 1, and 1 unless cluster.network.sharing=fair"
        is_allowed = self.later_weight == 1 or (self.sharing == "fair" and 0 < self.later_weight < 1)
        require(is_allowed, rule, self.later_weight)
        require(self.latency_s >= 0, "cluster.network.latency_s must be >= 0", self.latency_s)
        rate = self.bandwidth_gbps
        require(rate is None or rate > 0, "cluster.network.bandwidth_gbps must be > 0 or null", rate)

    @property
    def seconds_a_byte(self) -> float:
        """Of every NIC, each way."""
        return 0.0 if self.bandwidth_gbps is None else 8.0 / (self.bandwidth_gbps * 1e9)


class Network(Machine):
    """The NICs of one cluster, and when each is free again.

    A message occupies the NICs of its sender and its receiver for size / bandwidth each, the latter from one latency
    after the former at the earliest. Messages queue at a NIC in the order in which they were sent.
    """

    _worker_out: list[float]
    _worker_in: list[float]
    _shard_out: list[float]
    _shard_in: list[float]

    def __init__(self, config: NetworkConfig, num_workers: int, num_shards: int) -> None:
        self.latency_s = config.latency_s
        self.seconds_a_byte = config.seconds_a_byte
        self._later_weight = config.later_weight
        self._is_shared = config.sharing == "fair" and config.bandwidth_gbps is not None
        self.is_instant = self.latency_s == 0 and self.seconds_a_byte == 0  # sending takes no time
        self._worker_out = [0.0] * num_workers
        self._worker_in = [0.0] * num_workers
        self._shard_out = [0.0] * num_shards
        self._shard_in = [0.0] * num_shards

    def alone_s(self, size_bytes: int) -> float:
        """Seconds of a message on an idle network."""
        return self.latency_s + size_bytes * self.seconds_a_byte

    def send(self, now: float, is_push: bool, worker: int, shard: int, size_bytes: int) -> float:
        """When a message that is sent now has arrived completely (seconds of the same clock).

        Args:
            is_push: from the worker to the shard; else from the shard to the worker.
        """
        if self.is_instant:
            return now
        if is_push:
            out_free, sender, in_free, receiver = self._worker_out, worker, self._shard_in, shard
        else:
            out_free, sender, in_free, receiver = self._shard_out, shard, self._worker_in, worker
        duration = size_bytes * self.seconds_a_byte
        begins = max(now, out_free[sender])
        out_free[sender] = begins + duration
        arrives = max(begins + self.latency_s, in_free[receiver]) + duration
        in_free[receiver] = arrives
        return arrives

    def all_reduce_s(self, members: int, size_bytes: int, num_messages: int) -> float:
        """Seconds of a ring all-reduce among `members` workers, as `num_messages` all-reduces one after another.

        Groups that reduce at the same time do not slow each other down, even if they share NICs.
        """
        return ring_s(members, size_bytes, self.latency_s * num_messages, self.seconds_a_byte)

    def all_gather_s(self, members: int, size_bytes: int) -> float:
        """Seconds of a ring all-gather of `size_bytes` of each of `members` workers."""
        return all_gather_s(members, size_bytes, self.latency_s, self.seconds_a_byte)

    def peers_s(self, peers: int, size_bytes: int) -> float:
        """Seconds until a worker has received a message from each of so many peers, and sent as many."""
        return peers_s(peers, size_bytes, self.latency_s, self.seconds_a_byte)

    def fair_share_network(self) -> FairShareNetwork[Any] | None:
        """A new network for sharing=fair, else None; a message arrives one latency after it has left that."""
        return FairShareNetwork(self.seconds_a_byte, self._later_weight) if self._is_shared else None

    def backlog_s(self, now: float, shard: int) -> float:
        """Seconds for which the shard's NIC is still sending earlier messages."""
        return max(0.0, self._shard_out[shard] - now)
