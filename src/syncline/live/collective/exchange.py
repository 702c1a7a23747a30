"""How the members of a collective average: by all-reduce, compressed by all-gather, or with peers.

Batch-norm buffers and extra elements travel with the gradient or the weights, so that a step costs one exchange.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from syncline.learning.buckets import Buckets
from syncline.learning.compression import Compression, Mean, PushCompressor
from syncline.learning.flat import FlatModule
from syncline.learning.gossip import Gossip, mean_of
from syncline.learning.push_sum import PushSum
from syncline.learning.worker_state import Stateful
from syncline.live.collective.process_group import (
    Group,
    MemberLost,
    all_gather,
    all_reduce,
    send_and_receive,
    start_all_reduce,
)
from syncline.strategies.collective import Averaging


class Exchange(ABC):
    """What one member sends, and what it makes of what all send."""

    parts: Mapping[str, Stateful] = {}  # by name, what it keeps from step to step

    @property
    def push_sum_weight(self) -> float:
        """Of this member's replica; 1 unless peers send to more or to fewer than they receive from."""
        return 1.0

    def prepare(self, turn: int, step: int) -> None:  # noqa: B027  most prepare nothing
        """Make what is sent in this step, of this turn; a part of the gradient's time."""

    @abstractmethod
    def average(self, group: Group, turn: int) -> list[float]:
        """Replace what is exchanged, buffers and extra elements by their means over the group of this turn.

        Returns:
            The sums of the extra elements.

        Raises:
            MemberLost: another member is lost.
        """


class AllReduce(Exchange):
    """Uncompressed.

    Args:
        flat: what this member has.
        averages_weights: the weights are exchanged; else the gradient.
        per_tensor: one all-reduce for each tensor of them, and one for the rest.
    """

    def __init__(self, flat: FlatModule, averages_weights: bool, per_tensor: bool) -> None:
        self._extra = flat.extra
        if per_tensor:
            vector = flat.weights if averages_weights else flat.gradient
            self._exchanged = [*(vector[place.begin : place.end] for place in flat.layout.places), flat.beside]
        else:
            self._exchanged = [flat.with_weights if averages_weights else flat.with_gradient]

    def average(self, group: Group, turn: int) -> list[float]:
        for tensor in self._exchanged:
            all_reduce(tensor, group)
        sums: list[float] = self._extra.tolist()
        size = dist.get_world_size(group)
        for tensor in self._exchanged:
            tensor.div_(size)
        return sums


class Overlapped(Exchange):
    """All-reduces of parts, from the end of the vector, each once the backward pass has completed its gradient.

    The last part is sent with buffers and extra elements, so that it leaves when the loss is known.

    Args:
        flat: what this member has.
        averages_weights: the weights are exchanged; else the gradient.
        bucket_bytes: of a part.
    """

    def __init__(self, flat: FlatModule, averages_weights: bool, bucket_bytes: int) -> None:
        self._flat = flat
        self._exchanged = flat.weights if averages_weights else flat.gradient
        self._with_beside = flat.with_weights if averages_weights else flat.with_gradient
        self._group: Group = None
        self._buckets = Buckets(flat, max(1, bucket_bytes // flat.gradient.element_size()), self._send)
        self._before_send: Callable[[slice], None]  # of the step that was begun
        self._waits: list[Callable[[], object]] = []
        self.places = self._buckets.places  # of the parts
        self._last = self._exchanged[self.places[-1]]
        self._message = flat.beside.new_empty(self._last.numel() + flat.beside.numel())  # with the last part

    def begin(self, group: Group, before_send: Callable[[slice], None] = lambda place: None) -> None:
        """The next step is to be averaged over this group; `before_send` is called with each part that is ready."""
        self._group, self._before_send = group, before_send
        self._waits.clear()
        self._buckets.begin()

    def complete(self) -> None:
        """The gradient is complete: what is left may be sent, too."""
        self._buckets.complete()

    def average(self, group: Group, turn: int) -> list[float]:
        flat = self._flat
        torch.cat([self._last, flat.beside], out=self._message)
        self._waits.append(start_all_reduce(self._message, group))
        for wait in self._waits:
            wait()
        self._last.copy_(self._message[: self._last.numel()])
        flat.beside.copy_(self._message[self._last.numel() :])
        sums: list[float] = flat.extra.tolist()
        self._with_beside.div_(dist.get_world_size(group))
        return sums

    def _send(self, place: slice) -> None:
        self._before_send(place)
        if place != self.places[-1]:
            self._waits.append(start_all_reduce(self._exchanged[place], self._group))


class Peers(Exchange):
    """The mean of one's own weights and of those that peers send, by push-sum weights.

    Args:
        flat: what this member has; rank: of this member.
        turns: who averages with whom, of each turn.
    """

    def __init__(self, flat: FlatModule, rank: int, turns: Sequence[Sequence[Averaging]]) -> None:
        self._own, self._rank, self._turns = flat.with_weights, rank, turns
        begin = flat.buffers.numel()
        self._extra = slice(begin, begin + flat.extra.numel())
        self._members = [next(each.members for each in turn if rank in each.receivers) for turn in turns]
        self._to = [_receivers(turn, rank) for turn in turns]
        most = max(map(len, self._members))
        self._received = [torch.empty_like(self._own) for _ in range(most - 1)]
        self._push_sum = PushSum(len(turns[0]))
        self.parts = {"push-sum": self._push_sum}

    @property
    def push_sum_weight(self) -> float:
        return self._push_sum.weights[self._rank]

    def average(self, group: Group, turn: int) -> list[float]:
        members = self._members[turn]
        received = dict(zip((peer for peer in members if peer != self._rank), self._received, strict=False))
        send_and_receive(self._own, self._to[turn], received)
        vectors = [received.get(member, self._own) for member in members]
        sums: list[float] = torch.stack([vector[self._extra] for vector in vectors]).sum(0).tolist()
        self._own.copy_(mean_of(vectors, self._push_sum.advance(self._turns[turn])[self._rank]))
        return sums


def _receivers(turn: Sequence[Averaging], rank: int) -> list[int]:
    """The others to whom this member sends."""
    return [peer for each in turn if rank in each.members for peer in each.receivers if peer != rank]


class CompressedGradients(Exchange):
    """The mean of what the compressed gradients of all stand for."""

    def __init__(self, flat: FlatModule, compressor: PushCompressor) -> None:
        self._flat, self._compressor = flat, compressor
        self.parts = {"compress": compressor}
        self._gathered = _AllGather(flat, compressor.compression)
        self._sent = torch.empty(0)

    def prepare(self, turn: int, step: int) -> None:
        (self._sent,) = self._compressor(self._flat.gradient, step)

    def average(self, group: Group, turn: int) -> list[float]:
        return self._gathered(self._sent, group, self._flat.gradient.zero_())


class CompressedWeights(Exchange):
    """A step towards the mean of the weights, by compressed changes.

    Args:
        gossip: of this member, in its groups of the two turns.
    """

    def __init__(self, flat: FlatModule, gossip: Sequence[Gossip]) -> None:
        self._flat, self._gossip = flat, gossip
        self.parts = {f"consensus-{turn}": part for turn, part in enumerate(gossip)}
        self._gathered = _AllGather(flat, gossip[0].compression)
        self._sent = torch.empty(0)

    def prepare(self, turn: int, step: int) -> None:
        self._sent, _ = self._gossip[turn].send(self._flat.weights, step)

    def average(self, group: Group, turn: int) -> list[float]:
        gossip = self._gossip[turn]
        sums = self._gathered(self._sent, group, gossip.offset_from_mean)
        gossip.step(self._flat.weights)
        return sums


class _AllGather:
    """An all-gather of compressed vectors; its memory is used again and again.

    Args:
        flat: what this member has.
        compression: of what all send.
    """

    def __init__(self, flat: FlatModule, compression: Compression) -> None:
        self._flat, self._mean = flat, Mean(compression, flat.weights.numel())
        self._parts: list[Tensor] = []

    def __call__(self, sent: Tensor, group: Group, out: Tensor) -> list[float]:
        """Send these bytes to all members, and add to `out` [n] the mean of what the bytes of all stand for.

        They are summed in order of ranks: all members have the same bits. Buffers and extra elements become means.

        Returns:
            The sums of the extra elements.

        Raises:
            MemberLost: another member is lost, or sends what no vector has as its bytes.
        """
        flat, size = self._flat, sent.numel()
        message = torch.cat([sent.to(flat.weights.device), flat.beside.view(torch.uint8)])
        self._parts = all_gather(message, group, self._parts)
        try:
            self._mean.add_to(out, [part[:size].cpu() for part in self._parts])
        except ValueError as error:
            raise MemberLost(f"an all-gather failed: a member has sent {error}") from None
        flat.beside.zero_()
        for part in self._parts:
            flat.beside.add_(part[size:].clone().view(flat.beside.dtype))
        sums: list[float] = flat.extra.tolist()
        flat.beside.div_(len(self._parts))
        return sums
