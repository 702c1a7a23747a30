"""What workers and shards send each other in virtual time.

Where one shard and messages that take no time are simulated, each call reaches its receiver at once and nothing is
scheduled. Else a message is scheduled for the time at which it arrives. Over a network of queues that time is known
when the message leaves (timing/network.py); over a network that is shared fairly it depends on what is sent later
(timing/sharing.py).
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from syncline.learning.server import Gradient, Version
from syncline.server.interpreter import ShardInterpreter
from syncline.simulation.communication import Communication
from syncline.simulation.event_queue import EventQueue
from syncline.simulation.messages import (
    Block,
    Event,
    Message,
    NetworkTimer,
    Push,
    PushPart,
    Sizes,
    StrategyTimer,
    event_of,
    plain,
)
from syncline.simulation.tensor_table import TensorTable
from syncline.simulation.workers import Workers
from syncline.timing.cluster import Cluster
from syncline.timing.sharing import FairShareNetwork, Flow


class Transport(ABC):
    """Both ways between workers and shards; for the shards it is a `syncline.server.interpreter.Driver`."""

    def __init__(self, queue: EventQueue[Event], workers: Workers) -> None:
        self._queue, self._workers, self._learners = queue, workers, workers.learners
        self._num_pushes = 0  # that have arrived anywhere
        self.shards: Sequence[ShardInterpreter] = ()

    @abstractmethod
    def send_gradient(self, worker: int, loss: float = 0.0, gradient: Gradient | None = None) -> None:
        """A finished gradient leaves for every shard."""

    @abstractmethod
    def grant(self, shard: int, worker: int, version: int) -> None:
        """The shard's current block leaves for the worker."""

    @abstractmethod
    def repeat(self, shard: int, worker: int) -> None:
        """The permission to continue at the version that it has leaves for the worker."""

    @abstractmethod
    def interrupt(self, shard: int, worker: int) -> None:
        """The worker is to cancel its gradient; a grant follows."""

    def push_arrived(self, push: Push) -> None:
        """A message is at its shard."""
        raise NotImplementedError("nothing is under way where messages take no time")

    def push_part(self, part: PushPart) -> None:
        """A part of a push leaves."""
        raise NotImplementedError("nothing is under way where messages take no time")

    def network_timer(self, timer: NetworkTimer) -> None:
        """A message may have gone through the shared network."""
        raise NotImplementedError("nothing is under way where messages take no time")

    def wake_at(self, shard: int, at: float) -> None:
        if at < math.inf:
            self._queue.push(at, StrategyTimer(shard))

    def release(self, gradient: Gradient) -> None:
        assert self._learners is not None
        self._learners.release(gradient)

    def links_s(self) -> list[tuple[float, float]] | None:
        """Seconds for which each shard's NIC has received and sent; None where sending takes no time."""
        return None

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        """Plain types; the tensors go to the table."""
        return {"pushes": self._num_pushes}

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        """Continue from what `state_dict` gave."""
        self._num_pushes = state["pushes"]


class InstantTransport(Transport):
    """One shard, and messages that take no time."""

    def send_gradient(self, worker: int, loss: float = 0.0, gradient: Gradient | None = None) -> None:
        """A finished gradient is at the shard at once; a worker with a pull rule may have continued before."""
        workers = self._workers
        version = tag = workers.versions[0][worker]
        workers.num_sent[worker] = 1 + (number := workers.num_sent[worker])
        if workers.rules:
            tag = workers.rules[worker].tag
            workers.pushed(worker)
        push = self._num_pushes
        self._num_pushes = push + 1
        self.shards[0].push(self._queue.now, push, worker, version, tag, number, loss, gradient)

    def grant(self, shard: int, worker: int, version: int) -> None:
        workers, learners = self._workers, self._learners
        if workers.rules:
            weights = None if learners is None else learners.pin(shard, worker)
            workers.receive_under_rule(worker, shard, version, weights)
            return
        workers.versions[0][worker] = version
        if learners is not None:
            learners.receive(worker, shard)
        workers.start(worker)

    def repeat(self, shard: int, worker: int) -> None:
        self._workers.start(worker)

    def interrupt(self, shard: int, worker: int) -> None:
        self._workers.cancel(worker)


class NetworkTransport(Transport):
    """Messages that take time, to and from any number of shards.

    Args:
        sizes: of its messages.
    """

    def __init__(
        self,
        queue: EventQueue[Event],
        workers: Workers,
        *,
        cluster: Cluster,
        sizes: Sizes,
        communication: Communication,
    ) -> None:
        super().__init__(queue, workers)
        self._cluster, self._communication = cluster, communication
        self._sizes = sizes
        self._shared: FairShareNetwork[Message] | None = cluster.network.fair_share_network()
        self._shared_at = math.inf  # when the next message is through the shared network
        self._num_blocks = [0] * cluster.num_shards  # of weights, sent by each shard
        self._has_block = [bytearray(cluster.num_workers) for _ in range(cluster.num_shards)]  # by worker: 1 if it does
        self._free_at = [0.0] * cluster.num_shards  # when each shard has handled the pushes that are there
        self._early_bytes = [0] * cluster.num_shards  # that parts of pushes had which have left
        if sizes.early:
            workers.announce(self._send_early)

    def send_gradient(self, worker: int, loss: float = 0.0, gradient: Gradient | None = None) -> None:
        """As above.

        Where a worker does not wait for all blocks, another shard comes first each time: else one block would always be
        the last, and never be taken.
        """
        now, workers, num_shards = self._queue.now, self._workers, len(self.shards)
        workers.num_missing[worker] = num_shards
        workers.num_sent[worker] = 1 + (number := workers.num_sent[worker])
        first = workers.rules[worker].tag % num_shards if workers.rules else 0
        for turn in range(first, first + num_shards):
            shard = turn % num_shards
            version = workers.versions[shard][worker]
            tag = workers.rules[worker].tag if workers.rules else version
            push = Push(worker, shard, version, tag, loss, gradient, number, now)
            self._send(push, self._sizes.push[shard])
        self._communication.sent(worker, now)
        workers.pushed(worker)

    def _send_early(self, worker: int, computed_at: float, gradient_s: float) -> None:
        """Schedule the parts of a gradient that has begun."""
        for early in self._sizes.early:
            at = computed_at - (1.0 - early.ready) * gradient_s
            self._queue.push(at, PushPart(worker, early.shard, early.size_bytes))

    def push_part(self, part: PushPart) -> None:
        """It needs no event when it arrives: the rest of its push comes after it."""
        worker, shard, size_bytes = part.worker, part.shard, part.size_bytes
        self._early_bytes[shard] += size_bytes
        if self._shared is None:
            self._cluster.network.push(self._queue.now, worker, shard, size_bytes)
        else:
            self._shared.send(self._queue.now, Flow(True, worker, shard), size_bytes, part)
            self._await_shared()

    def push_arrived(self, push: Push) -> None:
        if self._cluster.update_s and not push.is_handled:
            push.is_handled = True
            self._free_at[push.shard] = at = max(self._queue.now, self._free_at[push.shard]) + self._cluster.update_s
            self._queue.push(at, push)
            return
        now, worker, shard = self._queue.now, push.worker, self.shards[push.shard]
        is_stale = shard.is_stale(worker, push.version)
        if push.number == self._workers.num_sent[worker] - 1:
            self._communication.arrived(worker, now, push.through_at - push.sent_at, is_stale)
        if is_stale:
            shard.reject(now, worker, push.version, push.gradient)
            return
        number = self._num_pushes
        self._num_pushes = number + 1
        shard.push(now, number, worker, push.version, push.tag, push.number, push.loss, push.gradient)

    def grant(self, shard: int, worker: int, version: int) -> None:
        weights = None if self._learners is None else self._learners.pin(shard, worker)
        has_block = self._has_block[shard]
        size_bytes = (self._sizes.pull if has_block[worker] else self._sizes.block)[shard]
        has_block[worker] = 1
        self._num_blocks[shard] += 1
        self._tell_learners(shard, worker, weights)
        self._send_to_worker(Block(worker, shard, version, self._queue.now, weights), size_bytes)

    def repeat(self, shard: int, worker: int) -> None:
        version = self.shards[shard].version
        self._tell_learners(shard, worker, None)
        self._send_to_worker(Block(worker, shard, version, self._queue.now, repeats=True), 0)

    def _tell_learners(self, shard: int, worker: int, weights: Version | None) -> None:
        """A worker is sent this, or goes on with what it has."""
        if self._learners is not None:
            self._learners.sent(worker, shard, weights, self._queue.now)

    def interrupt(self, shard: int, worker: int) -> None:
        """The block that follows cancels what the worker computes."""

    def network_timer(self, timer: NetworkTimer) -> None:
        """Of what has gone through, only latency and delays are left."""
        assert self._shared is not None
        at = self._queue.now + self._cluster.network.latency_s
        for message in self._shared.through(self._queue.now):  # none, if what was sent since holds it up
            if isinstance(message, PushPart):
                continue
            message.through_at = at
            late = self._cluster.late_push if isinstance(message, Push) else self._cluster.late_pull
            self._queue.push(late(at, message.shard, message.worker), message)
        self._await_shared()

    def _send(self, message: Push | Block, size_bytes: int) -> None:
        """A message leaves now."""
        now, worker, shard, is_push = self._queue.now, message.worker, message.shard, isinstance(message, Push)
        if self._shared is not None:
            self._shared.send(now, Flow(is_push, worker, shard), size_bytes, message)
            self._await_shared()
            return
        cluster = self._cluster
        arrives = (
            cluster.push(now, worker, shard, size_bytes) if is_push else cluster.pull(now, shard, worker, size_bytes)
        )
        message.through_at = cluster.through_at
        self._queue.push(arrives, message)

    def _send_to_worker(self, block: Block, size_bytes: int) -> None:
        self._communication.granted(block.worker, self._queue.now)
        self._send(block, size_bytes)

    def _await_shared(self) -> None:
        """Schedule a timer for when the next message is through the shared network."""
        assert self._shared is not None
        at = self._shared.next_through
        if at != self._shared_at:
            self._shared_at = at
            if at < math.inf:
                self._queue.push(at, NetworkTimer())

    def links_s(self) -> list[tuple[float, float]] | None:
        network, now = self._cluster.network, self._queue.now
        if not network.seconds_a_byte:
            return None
        pushes = [event for _, event in self._queue.scheduled() if isinstance(event, Push)]
        links = []
        for shard, size in enumerate(self._sizes.push):
            seconds = size * network.seconds_a_byte
            early_s = self._early_bytes[shard] * network.seconds_a_byte
            received = sum(self._workers.num_sent) * seconds + early_s
            whole, pull = self._sizes.block[shard], self._sizes.pull[shard]
            sent = self._num_blocks[shard] * (pull * network.seconds_a_byte)
            sent += sum(self._has_block[shard]) * ((whole - pull) * network.seconds_a_byte)  # the first of each worker
            if self._shared is not None:
                received -= self._shared.left_s(now, True, shard)
                sent -= self._shared.left_s(now, False, shard)
            else:
                received -= sum(min(seconds, max(0.0, p.through_at - now)) for p in pushes if p.shard == shard)
                sent -= network.backlog_s(now, shard)
            links.append((received, sent))
        return links

    def state_dict(self, table: TensorTable) -> dict[str, Any]:
        shared = None if self._shared is None else self._shared.state_dict(lambda message: plain(message, table))
        own = {
            "blocks": list(self._num_blocks),
            "has_block": [list(workers) for workers in self._has_block],
            "free_at": list(self._free_at),
            "early_bytes": list(self._early_bytes),
            "shared": shared,
        }
        return super().state_dict(table) | own

    def load_state_dict(self, state: Mapping[str, Any], table: TensorTable) -> None:
        super().load_state_dict(state, table)
        self._num_blocks, self._free_at = list(state["blocks"]), list(state["free_at"])
        self._early_bytes = list(state["early_bytes"])
        self._has_block = [bytearray(workers) for workers in state["has_block"]]
        if self._shared is not None:
            self._shared.load_state_dict(state["shared"], lambda words: event_of(words, table))
            self._shared_at = self._shared.next_through
