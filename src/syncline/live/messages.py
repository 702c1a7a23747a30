"""The messages between the launcher of a run and its processes, JSON on the wire.

A message is a JSON object of its fields and of `kind`, the name of its class; a `Signal` is its kind alone.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, dataclass_transform

import msgspec

from syncline.live.process import Job
from syncline.live.transport import WireError


class Signal(Enum):
    """A message without fields; the value is its kind."""

    READY = "Ready"  # of a shard: all workers are connected; of a collective: all members are; the clock may start
    STOPPED = "Stopped"  # the checkpoint is on disk that `Stop` asked for
    REPORT_ACTIVITY = "ReportActivity"  # to a member of a collective, which answers with `Activity`
    EXIT = "Exit"  # to an agent: the run is over; it ends


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Tagged(msgspec.Struct, frozen=True, tag_field="kind", tag=True, forbid_unknown_fields=True):
    """A message with fields; `kind` is its tag."""


# Process -> launcher


class Hello(Tagged):
    """The first message of every process."""

    role: str  # shard, worker, agent
    index: int  # among the processes of its role; -1: an agent
    address: str = ""  # of a shard, or of the first member of a collective; an agent's host
    pid: int = 0
    clock_error_s: float = 0.0  # with which it knows the launcher's clock, at most
    host: str = ""  # an agent's, as in the launcher's list
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # an agent's: what must be the same on all hosts


class ProgressReport(Tagged):
    updates: int
    samples: int
    time_s: float
    loss: float | None  # mean since the last snapshot; None: not known
    num_train: int  # training samples, an epoch
    count: int | None = None  # gradients that an update waits for, where the strategy sets it


class SnapshotWritten(Tagged):
    number: int


class Warn(Tagged):
    text: str
    at: float  # seconds of the run


class Unreachable(Tagged):
    """A worker could not connect to a shard, or lost it."""

    why: str


class RestartNeeded(Tagged):
    """The run must restart from its last checkpoint."""

    why: str


class Done(Tagged):
    """The run has ended at this process; a worker leaves the fields empty."""

    ended_by: str = ""
    totals: dict[str, Any] = msgspec.field(default_factory=dict)  # of progress.Totals


class Activity(Tagged):
    """The answer to `REPORT_ACTIVITY`: what a member of a collective is doing."""

    doing: str


# Launcher -> process


class Addresses(Tagged):
    """Of the shards, or of the first member of a collective."""

    addresses: list[str]


class Begin(Tagged):
    """The run begins."""

    zero_s: float  # on the launcher's monotonic clock


class Stop(Tagged):
    """Write a checkpoint and end."""

    checkpoint: float  # its number


class WorkerLost(Tagged):
    """To shards: this process of a worker is lost, whose host may be cut off."""

    worker: int
    pid: int
    why: str


class End(Tagged):
    """The run is over; on an agent: kill all processes."""

    why: str = ""


# Launcher -> agent


class Listen(Tagged):
    """Listen, so that other hosts can try to connect; check that this folder exists."""

    folder: str


class TryConnect(Tagged):
    """Try to connect to each of these hosts."""

    addresses: dict[str, str]  # by host
    timeout_s: float


class Start(Tagged):
    """Start the processes of this host."""

    job: Job


class Add(Tagged):
    """Start the processes of this job beside those of this host."""

    job: Job


# Agent -> launcher


class Listening(Tagged):
    address: str = ""
    error: str = ""  # why the host cannot take part; empty: it listens


class ConnectResults(Tagged):
    """The answer to `TryConnect`."""

    failures: dict[str, str]  # host -> why it cannot be reached


class ProcessesEnded(Tagged):
    why: str  # what failed; empty: nothing
    was_requested: bool  # by `End`
    lost: bool = False  # the supervisor was, and all its processes with it: they may be started again


_TAGGED = (
    (Hello | ProgressReport | SnapshotWritten | Warn | Unreachable | RestartNeeded | Done | Activity)
    | (Addresses | Begin | Stop | WorkerLost | End | Listen | TryConnect | Start | Add)
    | (Listening | ConnectResults | ProcessesEnded)
)
Message = Signal | _TAGGED
_SIGNALS = {signal.value: signal for signal in Signal}


def encode(message: Message) -> dict[str, Any]:
    """What JSON holds of a message."""
    if isinstance(message, Signal):
        return {"kind": message.value}
    values: dict[str, Any] = msgspec.to_builtins(message)
    return values


def decode(data: Mapping[str, Any]) -> Message:
    """The message that `encode` gave. Raises WireError if its kind is unknown, or its fields or their types differ."""
    if len(data) == 1 and (signal := _SIGNALS.get(str(data.get("kind")))) is not None:
        return signal
    try:
        message: Message = msgspec.convert(data, _TAGGED)
    except msgspec.ValidationError as error:
        raise WireError(f"not a message: {error}"[:200]) from None
    if encode(message).keys() != data.keys():  # a field with a default is sent, too
        raise WireError(f"not a message: {type(message).__name__} with the fields {sorted(data)}"[:200])
    return message
