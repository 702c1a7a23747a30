"""What a strategy hears and says: events in the past tense, commands in the imperative, one protocol.

This file may hold: events, commands, the protocols and what every strategy's options share, ProtocolError.
It may not hold: I/O, clocks, tensors, random numbers, or anything of one particular algorithm.

A strategy starts with all its workers holding version 0 and computing. Later joiners are heard as `WorkerJoined`.
A collective has no server and no machine: it answers one question, which workers average with each other at a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def _message(cls: type[_T]) -> type[_T]:
    """A slotted dataclass that the type checker holds to be frozen.

    At run time it is left open: a frozen `__init__` costs four times as much, and a timing-only simulation makes
    three messages a worker-step.
    """
    return dataclass(slots=True, unsafe_hash=True)(cls)


class ProtocolError(Exception):
    """An event that cannot happen in this state: a fault of the engine, never of the user. The state is unchanged."""


@_message
class PushArrived:
    """Worker `worker` delivered a gradient; its tensors stay with the engine."""

    at: float  # seconds of the driving clock, never decreasing
    push: int  # arrival number, unique, increasing
    worker: int  # 0 .. num_workers - 1
    version: int  # updates the shard had applied when the worker was granted these weights, or the tag of its PullRule
    loss: float  # mean over the mini-batch; 0.0 when only time is simulated


@_message
class TimerFired:
    """The moment asked for by the last `WakeAt` has come."""

    at: float


@_message
class WorkerJoined:
    """A worker that was not there (or had left) is ready and holds no weights yet."""

    at: float
    worker: int


@_message
class WorkerLeft:
    """A worker is gone; pushes of its own that had arrived stay valid."""

    at: float
    worker: int


Event = PushArrived | TimerFired | WorkerJoined | WorkerLeft


@_message
class Apply:
    """One optimizer step on the mean of these pending pushes; the version goes up by one."""

    pushes: tuple[int, ...]  # a worker may own several
    scale: float = 1.0  # factor on the learning rate
    is_sum: bool = False  # a step on their sum in place of their mean
    because: str = ""


@_message
class Grant:
    """Send the worker the current block and version; it may start its next iteration.

    A worker that is computing is granted only after an `Interrupt`, or if it has a `PullRule`: then the block is kept
    until the rule takes it.
    """

    worker: int
    because: str = ""


@_message
class Repeat:
    """The worker goes on with its next mini-batch at the version it has."""

    worker: int
    because: str = ""


@_message
class Hold:
    """The worker waits; a later command grants it."""

    worker: int
    because: str = ""


@_message
class Discard:
    """This pending push will never be applied."""

    push: int
    because: str = ""


@_message
class Interrupt:
    """The worker drops what it is computing, and a push of it that is under way is void; a `Grant` follows."""

    worker: int
    because: str = ""


@_message
class WakeAt:
    """Send `TimerFired` at this time (seconds of the driving clock), and at no time asked for before."""

    at: float  # infinite: never
    because: str = ""


@_message
class WaitFor:
    """Nothing to do: tells that an update waits for so many gradients from now on (AdaSync's K; N, K or c clipped)."""

    count: int
    because: str = ""


Command = Apply | Grant | Repeat | Hold | Discard | Interrupt | WakeAt | WaitFor


class Strategy(Protocol):
    """Who waits for whom at one shard: a deterministic state machine without clock, tensors or I/O."""

    def handle(self, event: Event) -> list[Command]:
        """The commands that answer `event`, in the order to carry them out.

        Raises:
            ProtocolError: the event cannot happen in this state, which is left as it was.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The whole state in plain types (JSON can hold it)."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        ...


class PullRule(Protocol):
    """The pull side of one worker: when it goes on, with which of the blocks that came, and its pushes' tag.

    It starts before any block has come. `arrived`, `pushed` and `closed` say when the worker may go on: now (a time not
    later than `at`), at a later time unless something happens before, or None: not before another block has come.
    """

    @property
    def tag(self) -> int:
        """The version that the next push is tagged with."""
        ...

    def arrived(self, at: float, shard: int, version: int) -> float | None:
        """A block of this version came; while the worker computes the answer is None."""
        ...

    def pushed(self, at: float) -> float | None:
        """The worker has sent its gradient."""
        ...

    def closed(self, at: float, shard: int) -> float | None:
        """No block of this shard will come any more: it is not waited for."""
        ...

    def start(self) -> Sequence[int]:
        """The worker goes on: the shards whose newest block it takes; of the others it keeps what it has."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The whole state in plain types (JSON can hold it)."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state_dict` gave."""
        ...


class StrategyOptions:
    """What a user chooses about a strategy; each is a frozen dataclass that checks its own ranges (ValueError)."""

    __slots__ = ()

    name: str
    single_server: ClassVar[bool] = False  # the algorithm needs one logical server: more shards are refused
    elastic: ClassVar[bool] = True  # it goes on without a worker that died; else real runs restart from a checkpoint
    replicas: ClassVar[bool] = False  # a collective averages the workers' parameters after steps of their own

    @property
    def has_server(self) -> bool:
        """The gradients meet at a parameter server (`start`), not in collectives (`groups`)."""
        return True

    @property
    def averages_first(self) -> bool:
        """Replicas are averaged before the forward pass, not after the step."""
        return False

    @property
    def sends_tensors_singly(self) -> bool:
        """Its collectives send one message a tensor, each blocking, rather than one of all tensors."""
        return False

    @property
    def interrupts(self) -> bool:
        """It breaks off what workers compute."""
        return False

    @property
    def lead_bound(self) -> int | None:
        """Most pushes a worker may ever be ahead of the slowest one; None if nothing bounds it."""
        return None

    def lead_note(self, lead: int) -> str:
        """Why a run could have so large a lead, where its user might expect a bound; else empty."""
        return ""

    @property
    def staleness_bound(self) -> int | None:
        """Most updates between the weights of a gradient and its use; None if nothing bounds it."""
        return None

    @property
    def first_count(self) -> int | None:
        """Gradients that an update waits for at first, where that is meant to change in the run; else None."""
        return None

    def check_cluster(self, num_workers: int, num_shards: int) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: the algorithm does not run on so many workers or shards.
        """
        if num_shards > 1 and (self.single_server or not self.has_server):
            why = "needs one logical server" if self.has_server else "has no server"
            raise ValueError(f"strategy={self.name} {why}: cluster.shards must be 1, got {num_shards}")

    def start(self, num_workers: int) -> Strategy:
        """A fresh state machine for workers 0 .. num_workers - 1."""
        raise NotImplementedError(f"{self.name} has no server")

    def pull_rule(self, num_shards: int) -> PullRule | None:
        """A fresh pull side for one worker; None: it waits for one answer of every shard."""
        return None

    def groups(self, step: int, num_workers: int) -> list[list[int]]:
        """Who averages with whom at this step (from 0): every worker is in exactly one group.

        They repeat every other step, and the groups of two successive steps join each worker with every other.
        """
        raise NotImplementedError(f"{self.name} has no collective")
