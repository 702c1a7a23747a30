"""What a strategy hears and says: events in the past tense, commands in the imperative, one protocol.

This file may hold: events, commands, the two protocols, ProtocolError.
It may not hold: I/O, clocks, tensors, random numbers, or anything of one particular algorithm.

A strategy starts with all its workers holding version 0 and computing. Later joiners are heard as `WorkerJoined`.
"""

from collections.abc import Mapping
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
    version: int  # updates the shard had applied when the worker was granted these weights
    loss: float  # mean over the mini-batch; 0.0 when only time is simulated


@_message
class TimerFired:
    """The moment asked for by `WakeAt` has come."""

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
    because: str = ""


@_message
class Grant:
    """Send the worker the current block and version; it may start its next iteration."""

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
    """The worker drops what it is computing."""

    worker: int
    because: str = ""


@_message
class WakeAt:
    """Send `TimerFired` at this time (seconds of the driving clock)."""

    at: float
    because: str = ""


Command = Apply | Grant | Repeat | Hold | Discard | Interrupt | WakeAt


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


class StrategyOptions(Protocol):
    """What a user chooses about a strategy: a frozen dataclass that checks its own ranges (ValueError)."""

    single_server: ClassVar[bool]  # the algorithm needs one logical server: a config with more shards is refused
    elastic: ClassVar[bool]  # it goes on without a worker that died; else real runs begin again from their checkpoint

    @property
    def name(self) -> str: ...

    @property
    def lead_bound(self) -> int | None:
        """Most pushes a worker may ever be ahead of the slowest one; None if nothing bounds it."""
        ...

    def start(self, num_workers: int) -> Strategy:
        """A fresh state machine for workers 0 .. num_workers - 1."""
        ...
