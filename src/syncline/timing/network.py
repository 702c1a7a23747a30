"""How long messages take: latency, and NICs that send and receive one message at a time (incast).

sharing.py has NICs that share their bandwidth fairly among all messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from syncline.checks import Checked, check, one_of, ranged
from syncline.strategies.machine import PlainState
from syncline.timing.collectives import all_gather_s, peers_s, ring_s
from syncline.timing.distributions import OptionalDistribution, optional
from syncline.timing.sharing import FairShareNetwork

SHARINGS = ("queue", "fair")


@dataclass(frozen=True, slots=True)
class NetworkConfig(Checked):
    """Workers and shards each have one full-duplex NIC; between two regions there is one full-duplex link."""

    latency_s: float = ranged(0.0, ">= 0")  # of every message
    bandwidth_gbps: float | None = ranged(None, "> 0")  # of every NIC, each way, Gbit/s; None: sending takes no time
    jitter: OptionalDistribution = None  # seconds added to the latency of every message to or from a shard
    sharing: str = one_of("queue", SHARINGS)  # a NIC sends its messages one after another, or in parallel, each slower
    later_weight: float = ranged(1.0, "in (0, 1]")  # in parallel: the rate of a message over that of the one before it
    regions: list[int] = field(default_factory=list)  # worker p has entry p mod length; shards are in region 0; []: one
    # of the links between regions: a number, or a row for each region; Gbit/s > 0, None: sending takes no time
    between_gbps: Any = None
    between_latency_s: Any = 0.0  # likewise; seconds >= 0 that a message takes beyond `latency_s`

    _where = "cluster.network"

    def __post_init__(self) -> None:
        Checked.__post_init__(self)
        object.__setattr__(self, "jitter", optional("cluster.network.jitter", self.jitter))
        rule = "cluster.network.later_weight must be 1 unless cluster.network.sharing=fair"
        check(self.later_weight == 1 or self.sharing == "fair", rule, self.later_weight)
        rule = "cluster.network.regions must be numbers from 0, each of which occurs, region 0 being the shards'"
        found = set(self.regions) | {0}
        check(found == set(range(len(found))), rule, self.regions)
        rule = "cluster.network.sharing must be queue with several regions"
        check(len(found) == 1 or self.sharing == "queue", rule, self.sharing)
        for key, least in (("between_gbps", "> 0, or null"), ("between_latency_s", ">= 0")):
            given = getattr(self, key)
            rule = f"cluster.network.{key} must be a number {least}, or a row of such for each of {len(found)} regions"
            rows = given if isinstance(given, list) else [[given] * len(found)] * len(found)
            is_square = all(isinstance(row, list) and len(row) == len(found) for row in rows)
            is_square = is_square and len(rows) == len(found)
            numbers = [each for row in rows for each in row] if is_square else ["none"]
            is_rate = key == "between_gbps"
            fits = all((each is None and is_rate) or _is_number(each, is_rate) for each in numbers)
            check(fits, rule, given)

    def between(self, one: int, other: int) -> tuple[float, float]:
        """Seconds a byte of the link from one region to another, and seconds of latency that it adds."""
        if one == other:
            return 0.0, 0.0
        gbps, latency_s = (
            given[one][other] if isinstance(given, list) else given
            for given in (self.between_gbps, self.between_latency_s)
        )
        return 0.0 if gbps is None else 8.0 / (gbps * 1e9), latency_s

    @property
    def seconds_a_byte(self) -> float:
        """Of every NIC, each way."""
        return 0.0 if self.bandwidth_gbps is None else 8.0 / (self.bandwidth_gbps * 1e9)


def _is_number(value: Any, positive: bool) -> bool:
    is_real = isinstance(value, int | float) and not isinstance(value, bool) and value < float("inf")
    return is_real and (value > 0 if positive else value >= 0)


class Network(PlainState):
    """The NICs of one cluster, the links between its regions, and when each is free again.

    A message occupies the NICs of its sender and its receiver for size / bandwidth each, the latter from one latency
    after the former at the earliest. Between regions it occupies the link in place of its receiver's NIC, which it
    shares with nothing. Messages queue at a NIC, and at a link, in the order in which they were sent.
    """

    _worker_out: list[float]
    _worker_in: list[float]
    _shard_out: list[float]
    _shard_in: list[float]
    _links: list[float]  # from region a to b at a times their number, plus b

    def __init__(self, config: NetworkConfig, num_workers: int, num_shards: int) -> None:
        self.latency_s = config.latency_s
        self.seconds_a_byte = config.seconds_a_byte
        self._later_weight = config.later_weight
        self._is_shared = config.sharing == "fair" and config.bandwidth_gbps is not None
        own = config.regions or [0]
        self._regions = [own[worker % len(own)] for worker in range(num_workers)]
        numbers = range(max(own) + 1)
        self._between = [config.between(one, other) for one in numbers for other in numbers]
        self._links = [0.0] * len(self._between)
        self._num_regions = len(numbers)
        # Sending takes no time.
        self.is_instant = self.latency_s == 0 and self.seconds_a_byte == 0 and not any(map(any, self._between))
        self._worker_out = [0.0] * num_workers
        self._worker_in = [0.0] * num_workers
        self._shard_out = [0.0] * num_shards
        self._shard_in = [0.0] * num_shards

    def alone_s(self, is_push: bool, worker: int, size_bytes: int) -> float:
        """Seconds of a message between this worker and a shard on an idle network."""
        link_s, added_s = self._between[self._link(is_push, worker)]
        return self.latency_s + added_s + size_bytes * max(self.seconds_a_byte, link_s)

    def _link(self, is_push: bool, worker: int) -> int:
        region = self._regions[worker]
        return region * self._num_regions if is_push else region

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
        if self._regions[worker]:  # shards are in region 0
            link = self._link(is_push, worker)
            link_s, added_s = self._between[link]
            enters = max(begins + self.latency_s, self._links[link])
            self._links[link] = enters + size_bytes * link_s
            return enters + added_s + max(duration, size_bytes * link_s)
        arrives = max(begins + self.latency_s, in_free[receiver]) + duration
        in_free[receiver] = arrives
        return arrives

    def all_reduce_s(self, members: Sequence[int], size_bytes: int, num_messages: int) -> float:
        """Seconds of a ring all-reduce among these workers, as `num_messages` all-reduces one after another.

        Groups that reduce at the same time do not slow each other down, even if they share NICs or links. The slowest
        link of a ring sets the pace of its steps.
        """
        latency_s, seconds_a_byte = self._slowest(members)
        return ring_s(len(members), size_bytes, latency_s * num_messages, seconds_a_byte)

    def all_gather_s(self, members: Sequence[int], size_bytes: int) -> float:
        """Seconds of a ring all-gather of `size_bytes` of each of these workers."""
        return all_gather_s(len(members), size_bytes, *self._slowest(members))

    def peers_s(self, members: Sequence[int], size_bytes: int, num_sent: int = 0) -> float:
        """Seconds until one of these workers has received a message from each of the others, and sent as many.

        Args:
            num_sent: messages that any of them sends, at the most; one that is waited for may be the last of them.
        """
        return peers_s(max(len(members) - 1, num_sent), size_bytes, *self._slowest(members))

    def _slowest(self, members: Sequence[int]) -> tuple[float, float]:
        """Latency and seconds a byte of the slowest way between two of these workers."""
        if self._num_regions == 1:
            return self.latency_s, self.seconds_a_byte
        found = {self._regions[worker] for worker in members}
        links = [self._between[one * self._num_regions + other] for one in found for other in found]
        link_s, added_s = (max(column) for column in zip(*links, strict=True))
        return self.latency_s + added_s, max(self.seconds_a_byte, link_s)

    def fair_share_network(self) -> FairShareNetwork[Any] | None:
        """A new network for sharing=fair, else None; a message arrives one latency after it has left that."""
        return FairShareNetwork(self.seconds_a_byte, self._later_weight) if self._is_shared else None

    def backlog_s(self, now: float, shard: int) -> float:
        """Seconds for which the shard's NIC is still sending earlier messages."""
        return max(0.0, self._shard_out[shard] - now)
