"""The messages between the launcher of a run and its processes, JSON on the wire.

A message is a JSON object of its fields and of `kind`, the name of its class; a `Signal` is its kind alone.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from enum import Enum
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from syncline.live.process import Job
from syncline.live.transport import WireError


class Signal(Enum):
    """A message without fields; the value is its kind."""

    READY = "Ready"  # of a shard: all workers are connected; of a collective: all members are; the clock may start
    STOPPED = "Stopped"  # a checkpoint is on disk, as STOP asked for
    REPORT_ACTIVITY = "ReportActivity"  # to a member of a collective, which answers with `Activity`
    STOP = "Stop"  # write a checkpoint and end
    EXIT = "Exit"  # to an agent: the run is over; it ends


# Process -> launcher


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of every process."""

    role: str  # shard, worker, agent
    index: int  # among the processes of its role; -1: an agent
    address: str = ""  # of a shard, or of the first member of a collective; an agent's host
    pid: int = 0
    clock_error_s: float = 0.0  # with which it knows the launcher's clock, at most
    host: str = ""  # an agent's, as in the launcher's list
    versions: dict[str, str] = field(default_factory=dict)  # an agent's: what must be the same on all hosts


@dataclass(frozen=True, slots=True)
class ProgressReport:
    updates: int
    samples: int
    time_s: float
    loss: float | None  # mean since the last snapshot; None: not known
    count: int | None = None  # gradients that an update waits for, where the strategy sets it


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    number: int


@dataclass(frozen=True, slots=True)
class Warn:
    text: str
    at: float  # seconds of the run


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A worker could not connect to a shard, or lost it."""

    why: str


@dataclass(frozen=True, slots=True)
class RestartNeeded:
    """The run must restart from its last checkpoint."""

    why: str


@dataclass(frozen=True, slots=True)
class Done:
    """The run has ended at this process; a worker leaves the fields empty."""

    ended_by: str = ""
    totals: dict[str, Any] = field(default_factory=dict)  # of progress.Totals


@dataclass(frozen=True, slots=True)
class Activity:
    """The answer to `REPORT_ACTIVITY`: what a member of a collective is doing."""

    doing: str


# Launcher -> process


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of the shards, or of the first member of a collective."""

    addresses: list[str]


@dataclass(frozen=True, slots=True)
class Begin:
    """The run begins."""

    zero_s: float  # on the launcher's monotonic clock


@dataclass(frozen=True, slots=True)
class End:
    """The run is over; on an agent: kill all processes."""

    why: str = ""


# Launcher -> agent


@dataclass(frozen=True, slots=True)
class Listen:
    """Listen, so that other hosts can try to connect; check that this folder exists."""

    folder: str


@dataclass(frozen=True, slots=True)
class TryConnect:
    """Try to connect to each of these hosts."""

    addresses: dict[str, str]  # by host
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """Start the processes of this host."""

    job: Job


# Agent -> launcher


@dataclass(frozen=True, slots=True)
class Listening:
    address: str = ""
    error: str = ""  # why the host cannot take part; empty: it listens


@dataclass(frozen=True, slots=True)
class ConnectResults:
    """The answer to `TryConnect`."""

    failures: dict[str, str]  # host -> why it cannot be reached


@dataclass(frozen=True, slots=True)
class ProcessesEnded:
    why: str  # what failed; empty: nothing
    was_requested: bool  # by `End`


Message = (
    (Hello | Signal | ProgressReport | SnapshotWritten | Warn | Unreachable | RestartNeeded | Done | Activity)
    | (Addresses | Begin | End | Listen | TryConnect | Start)
    | (Listening | ConnectResults | ProcessesEnded)
)
_SIGNALS = {signal.value: signal for signal in Signal}
_CLASSES: dict[str, Any] = {cls.__name__: cls for cls in get_args(Message) if cls is not Signal}


def encode(message: Message) -> dict[str, Any]:
    """What JSON holds of a message."""
    if isinstance(message, Signal):
        return {"kind": message.value}
    return {"kind": type(message).__name__, **asdict(message)}


def decode(data: Mapping[str, Any]) -> Message:
    """The message that `encode` gave. Raises WireError if its kind is unknown, or its fields or their types differ."""
    values = dict(data)
    kind = values.pop("kind", None)
    if not isinstance(kind, str) or kind not in _CLASSES | _SIGNALS:
        raise WireError(f"an unknown message {str(kind)[:50]!r}")
    hints = {} if kind in _SIGNALS else get_type_hints(_CLASSES[kind])
    if values.keys() != hints.keys():
        raise WireError(f"a message {kind} with the fields {sorted(values)}"[:200])
    if kind in _SIGNALS:
        return _SIGNALS[kind]
    checked = {name: _checked(value, hints[name], f"{kind}.{name}") for name, value in values.items()}
    message: Message = _CLASSES[kind](**checked)
    return message


def _checked(value: Any, hint: Any, name: str) -> Any:
    """This value as a field of this type."""
    if is_dataclass(hint) and isinstance(value, dict):
        try:
            return hint(**value)  # type: ignore[operator]  # a class, not an instance
        except TypeError:
            raise WireError(f"{name} with the fields {sorted(value)}"[:200]) from None
    allowed = {get_origin(each) or each for each in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
    if float in allowed:
        allowed.add(int)
    if type(value) not in allowed:
        raise WireError(f"{name} is {type(value).__name__}")
    return value
