"""What is due in virtual time: gradients that are finished, messages that arrive, timers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from syncline.learning.parameters import Gradient, Version
from syncline.simulation.tensor_table import TensorTable


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes on the wire, by shard."""

    block: Sequence[int]  # of the weights
    push: Sequence[int]
    pull: Sequence[int]  # of a worker's pulls after its first, which is a whole block


@dataclass(slots=True, eq=False)
class Push:
    """A block of a gradient arrives at a shard."""

    worker: int
    shard: int
    version: int  # that this block was computed at
    tag: int
    loss: float
    gradient: Gradient | None  # None where only time is simulated
    number: int  # of the gradient, by its worker's own count
    sent_at: float  # seconds
    through_at: float = 0.0  # when the network has delivered it; injected delays follow
    is_handled: bool = False  # the shard has begun with it, if that takes time


@dataclass(slots=True, eq=False)
class Block:
    """A block of the weights arrives at a worker, or the permission to continue without one."""

    worker: int
    shard: int
    version: int
    sent_at: float
    weights: Version | None = None
    repeats: bool = False
    through_at: float = 0.0


@dataclass(slots=True, eq=False)
class StrategyTimer:
    """The time that a shard's strategy asked for, unless it has asked for another one since."""

    shard: int


@dataclass(slots=True, eq=False)
class PullTimer:
    """The time at which a worker's pull rule lets it continue, unless it has said something else since."""

    worker: int


@dataclass(slots=True, eq=False)
class NetworkTimer:
    """The time at which the next message has gone through the shared network, unless another was sent meanwhile."""


@dataclass(slots=True, eq=False)
class Lost:
    """A worker's process is lost."""

    worker: int
    back_at: float  # seconds; when it is there again


@dataclass(slots=True, eq=False)
class Back:
    """A lost worker is there again, as a new process."""

    worker: int


Message = Push | Block
Computed = int
"""A worker, by its number, has finished its gradient. No object: 10,000 of them would not fit the caches."""

Event = Computed | Push | Block | StrategyTimer | PullTimer | NetworkTimer | Lost | Back
_KINDS = {kind.__name__: kind for kind in (Push, Block, StrategyTimer, PullTimer, NetworkTimer, Lost, Back)}


def to_json(event: Event, table: TensorTable) -> Any:
    """The event in plain types; its tensors go to the table."""
    if isinstance(event, Computed):
        return event
    kind = type(event)
    fields = {name: getattr(event, name) for name in kind.__dataclass_fields__}
    if isinstance(event, Push):
        fields["gradient"] = table.put(event.gradient)
    elif isinstance(event, Block):
        fields["weights"] = table.put(event.weights)
    return [kind.__name__, fields]


def from_json(words: Any, table: TensorTable) -> Any:
    """What `to_json` wrote."""
    if isinstance(words, Computed):
        return words
    name, fields = words
    event = _KINDS[name](**fields)
    if isinstance(event, Push):
        event.gradient = table.gradient(fields["gradient"])
    elif isinstance(event, Block):
        event.weights = table.version(fields["weights"])
    return event
