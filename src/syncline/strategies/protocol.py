"""The interface of strategies: events in the past tense, commands in the imperative, one protocol.

This file may hold: events, commands, the protocols, the base class of options, ProtocolError.
It may not hold: I/O, clocks, tensors, random numbers, or anything of one particular algorithm.

A strategy starts with all its workers holding version 0 and computing. Workers that join later are announced by
`WorkerJoined`. A strategy without a server has no state machine: its options name a `Collective`, or `Neighbours`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, dataclass_transform

import msgspec

from syncline.checks import Checked
from syncline.strategies.collective import Collective
from syncline.strategies.neighbours import Neighbours


@dataclass_transform(frozen_default=True)
class Message(msgspec.Struct, frozen=True, gc=False):
    """An event or a command. A Struct: it is frozen, and made in a quarter of the time that a dataclass takes."""


class ProtocolError(Exception):
    """An impossible event in this state: a fault of the engine, never of the user. The state is unchanged."""


class PushArrived(Message):
    """Worker `worker` delivered a gradient; its tensors stay with the engine."""

    at: float  # seconds of the driving clock, never decreasing
    push: int  # arrival number, unique, increasing
    worker: int  # 0 .. num_workers - 1
    version: int  # of the granted weights: updates that the shard had applied; or the tag of its PullRule
    loss: float  # mean over the mini-batch; 0.0 if only times are simulated


class TimerFired(Message):
    """The time of the last `WakeAt` has come."""

    at: float


class WorkerJoined(Message):
    """A worker is ready that was not active before; it holds no weights yet."""

    at: float
    worker: int


class WorkerLeft(Message):
    """A worker is gone; its pushes that had arrived stay valid."""

    at: float
    worker: int


Event = PushArrived | TimerFired | WorkerJoined | WorkerLeft


class Apply(Message):
    """One optimizer step on the mean of these pending pushes; the version goes up by one."""

    pushes: tuple[int, ...]  # several may be from one worker
    scale: float = 1.0  # factor on the learning rate
    is_sum: bool = False  # a step on their sum in place of their mean
    because: str = ""


class Grant(Message):
    """Send the worker the current block and version; it may start its next iteration.

    A worker that is computing is granted only after an `Interrupt`, or if it has a `PullRule`: then the block is kept
    until the rule takes it.
    """

    worker: int
    because: str = ""


class Repeat(Message):
    """The worker continues with its next mini-batch on the version it has."""

    worker: int
    because: str = ""


class Hold(Message):
    """The worker waits; a later command grants it."""

    worker: int
    because: str = ""


class Discard(Message):
    """This pending push will never be applied."""

    push: int
    because: str = ""


class Interrupt(Message):
    """The worker cancels its gradient; a push of it in flight is stale and rejected. A `Grant` follows.

    Its gradient must be of an older version than the current one, which tells the push from the next.
    """

    worker: int
    because: str = ""


class WakeAt(Message):
    """Send `TimerFired` at this time (seconds of the driving clock); it replaces any earlier `WakeAt`."""

    at: float  # infinite: never
    because: str = ""


class WaitFor(Message):
    """For information: an update waits for `count` gradients from now on (AdaSync's K; N, K or c clipped)."""

    count: int
    because: str = ""


Command = Apply | Grant | Repeat | Hold | Discard | Interrupt | WakeAt | WaitFor


class Saved(Protocol):
    """What a checkpoint keeps."""

    def state_dict(self) -> dict[str, Any]:
        """The whole state in plain types (JSON can hold it)."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a state from `state_dict`."""
        ...


class Strategy(Saved, Protocol):
    """The synchronisation at one shard: a deterministic state machine without clock, tensors or I/O."""

    def begin(self) -> list[Command]:
        """The commands at 0 s, when all workers begin to compute: WakeAt or WaitFor."""
        ...

    def handle(self, event: Event) -> list[Command]:
        """The commands in response to `event`, in the order of execution.

        Raises:
            ProtocolError: the event cannot happen in this state, which is left as it was.
        """
        ...


class PullRule(Saved, Protocol):
    """The pull side of one worker: when it starts, on which of the received blocks, and the tag of its pushes.

    Initially no block has arrived. `arrived`, `pushed` and `closed` return when the worker may start: now (a time not
    later than `at`), at a later time unless another event comes before, or None: not before another block arrives.
    """

    @property
    def tag(self) -> int:
        """The version that the next push is tagged with."""
        ...

    def arrived(self, at: float, shard: int, version: int) -> float | None:
        """A block of this version arrived; None while the worker computes."""
        ...

    def pushed(self, at: float) -> float | None:
        """The worker has sent its gradient."""
        ...

    def closed(self, at: float, shard: int) -> float | None:
        """No more blocks of this shard will arrive: it is not waited for."""
        ...

    def start(self) -> Sequence[int]:
        """The worker starts. Returns the shards whose newest block it takes; it keeps the blocks of the others."""
        ...


class StrategyOptions(Checked):
    """Base of the options of strategies, frozen dataclasses that check their own ranges (ValueError)."""

    __slots__ = ()
    _where = "strategy"

    name: str
    single_server: ClassVar[bool] = False  # the algorithm needs one logical server: several shards are refused
    elastic: ClassVar[bool] = True  # it continues without a worker that died; else real runs restart from a checkpoint
    follows_losses: ClassVar[bool] = False  # losses decide who waits for whom, so that times alone differ from a run's

    @property
    def collective(self) -> Collective | None:
        """What the workers average among themselves, step by step; None: another kind of strategy."""
        return None

    @property
    def neighbours(self) -> Neighbours | None:
        """With whom each worker averages its replica, whenever it has a gradient; None: another kind of strategy."""
        return None

    @property
    def has_server(self) -> bool:
        """The gradients meet at a parameter server (`start`). Follows from `collective` and `neighbours`."""
        return self.collective is None and self.neighbours is None

    @property
    def has_replicas(self) -> bool:
        """The workers average weights that each has stepped. Follows from `collective` and `neighbours`."""
        collective = self.collective
        return self.neighbours is not None if collective is None else collective.replicas

    @property
    def evaluates_mean(self) -> bool | None:
        """Of replicas, whether their mean is evaluated, else the first one; None: there are none."""
        collective = self.collective
        return (collective is None or collective.evaluates_mean) if self.has_replicas else None

    @property
    def interrupts(self) -> bool:
        """It interrupts workers."""
        return False

    @property
    def changes_rate(self) -> bool:
        """The factor on the learning rate of its updates (`Apply.scale`) changes during the run."""
        return False

    @property
    def lead_bound(self) -> int | None:
        """Upper bound of the pushes by which a worker is ahead of the slowest; None: unbounded."""
        return None

    def lead_note(self, lead: int) -> str:
        """Explains a lead above what the options suggest; else empty."""
        return ""

    @property
    def staleness_bound(self) -> int | None:
        """Upper bound of the updates between the weights of a gradient and its use; None: unbounded."""
        return None

    @property
    def first_count(self) -> int | None:
        """Number of gradients that an update waits for at first, if it adapts during the run; else None."""
        return None

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        """Check the size of the cluster.

        Raises:
            ValueError: the algorithm does not support these numbers of workers or shards.
        """
        if num_shards > 1 and (self.single_server or not self.has_server):
            why = "needs one logical server" if self.has_server else "has no server"
            raise ValueError(f"strategy={self.name} {why}: cluster.shards must be 1, got {num_shards}")
        has_peers = self.neighbours is not None or (self.collective is not None and self.collective.peers is not None)
        if has_peers and num_workers < 2:
            raise ValueError(f"strategy={self.name} needs peers: cluster.workers must be >= 2, got {num_workers}")

    def start(self, num_workers: int) -> Strategy:
        """A new state machine for workers 0 .. num_workers - 1."""
        raise NotImplementedError(f"{self.name} has no server")

    def pull_rule(self, num_shards: int) -> PullRule | None:
        """A new pull side for one worker; None: it waits for one answer of every shard."""
        return None
