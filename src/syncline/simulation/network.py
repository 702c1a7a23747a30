"""What messages between workers and shards take in virtual time, where they take any.

Over a network of queues the arrival of a message is known when it leaves (timing/network.py). Over a network that is
shared fairly it depends on what is sent later (timing/sharing.py): then `next_through` is the next time at which one
may be through.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from syncline.simulation.events import Message, Push, Sizes, from_json, to_json
from syncline.simulation.tensor_table import TensorTable
from syncline.timing.cluster import Cluster
from syncline.timing.sharing import FairShareNetwork, Flow


class MessageNetwork:
    """The messages that are under way.

    Args:
        sizes: of them.
    """

    def __init__(self, cluster: Cluster, sizes: Sizes) -> None:
        self._cluster, self._sizes = cluster, sizes
        self._shared: FairShareNetwork[Message] | None = cluster.network.fair_share_network()
        self._num_blocks = [0] * cluster.num_shards  # of weights, sent by each shard
        self._num_whole = [0] * cluster.num_shards  # of them, the first ones that workers have of it
        self._has_block = [bytearray(cluster.num_workers) for _ in range(cluster.num_shards)]  # by worker: 1 if it does
        self._free_at = [0.0] * cluster.num_shards  # when each shard has handled the pushes that are there

    @property
    def next_through(self) -> float:
        """When a message may be through the shared network (seconds); infinite if there is none."""
        return math.inf if self._shared is None else self._shared.next_through

    def send(self, now: float, message: Message) -> float | None:
        """A message leaves. Returns when it arrives; None: `next_through` will tell."""
        flow, size_bytes = Flow(isinstance(message, Push), message.worker, message.shard), self._size_bytes(message)
        if self._shared is not None:
            self._shared.send(now, flow, size_bytes, message)
            return None
        message.through_at, arrives = self._cluster.send(now, *flow, size_bytes)
        return arrives

    def through(self, now: float) -> Iterator[tuple[float, Message]]:
        """The messages that are through the shared network, and when they arrive; none, if later ones hold them up."""
        assert self._shared is not None
        at = now + self._cluster.network.latency_s
        for message in self._shared.through(now):
            message.through_at = at
            yield self._cluster.late(at, isinstance(message, Push), message.worker, message.shard), message

    def handled_at(self, now: float, shard: int) -> float:
        """When the shard has handled a push that has arrived, and those before it."""
        self._free_at[shard] = at = max(now, self._free_at[shard]) + self._cluster.update_s
        return at

    def busy_s(self, now: float, num_pushes: int, under_way: Iterable[Push]) -> list[tuple[float, float]] | None:
        """Seconds for which each shard's NIC has received and sent; None where sending takes no time.

        Args:
            num_pushes: that workers have sent to each shard.
            under_way: those that have not arrived.
        """
        network = self._cluster.network
        if not network.seconds_a_byte:
            return None
        pushes, found = list(under_way), []
        for shard, size in enumerate(self._sizes.push):
            seconds = size * network.seconds_a_byte
            received = num_pushes * seconds
            whole, pull = self._sizes.block[shard], self._sizes.pull[shard]
            sent = self._num_blocks[shard] * (pull * network.seconds_a_byte)
            sent += self._num_whole[shard] * ((whole - pull) * network.seconds_a_byte)
            if self._shared is not None:
                received -= self._shared.left_s(now, True, shard)
                sent -= self._shared.left_s(now, False, shard)
            else:
                received -= sum(min(seconds, max(0.0, p.through_at - now)) for p in pushes if p.shard == shard)
                sent -= network.backlog_s(now, shard)
            found.append((received, sent))
        return found

    def _size_bytes(self, message: Message) -> int:
        shard = message.shard
        if isinstance(message, Push):
            return self._sizes.push[shard]
        if message.repeats:
            return 0
        has_block, worker = self._has_block[shard], message.worker
        self._num_blocks[shard] += 1
        if has_block[worker]:
            return self._sizes.pull[shard]
        has_block[worker] = 1
        self._num_whole[shard] += 1
        return self._sizes.block[shard]

    def forget(self, worker: int) -> None:
        """The worker's process is lost, with its blocks."""
        for has_block in self._has_block:
            has_block[worker] = 0

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """Plain types; the tensors go to the table."""
        return {
            "blocks": list(self._num_blocks),
            "whole": list(self._num_whole),
            "has_block": [list(workers) for workers in self._has_block],
            "free_at": list(self._free_at),
            "shared": None if self._shared is None else self._shared.state_dict(lambda each: to_json(each, table)),
        }

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        """Continue from what `state_dict` gave."""
        self._num_blocks, self._num_whole = list(state["blocks"]), list(state["whole"])
        self._free_at = list(state["free_at"])
        self._has_block = [bytearray(workers) for workers in state["has_block"]]
        if self._shared is not None:
            self._shared.load_state_dict(state["shared"], lambda words: from_json(words, table))
