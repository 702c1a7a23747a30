"""The messages between the coordinator of a run and its processes, JSON on the wire.

A message is a JSON object of its fields and of `kind`, the name of its class.
"""

from collections.abc import Mapping
from typing import Any, dataclass_transform

import msgspec

from syncline.live.wire.sockets import WireError


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Tagged(msgspec.Struct, frozen=True, tag_field="kind", tag=True, forbid_unknown_fields=True):
    """A message; `kind` is its tag."""


# Process -> coordinator


class Hello(Tagged):
    """The first message of every process."""

    role: str  # shard, worker
    index: int  # among the processes of its role
    address: str = ""  # of a shard, of the first member of a collective, or of a peer
    pid: int = 0
    clock_error_s: float = 0.0  # with which it knows the coordinator's clock, at most
    host: str = ""  # its name
    versions: dict[str, str] = msgspec.field(default_factory=dict)  # what must be the same on all hosts


class Ready(Tagged):
    """Of a shard: all workers are connected; of a collective: all members are. The clock may start."""


class Stopped(Tagged):
    """The checkpoint is on disk that `Stop` asked for."""


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
    """The answer to `ReportActivity`: what a member of a collective is doing."""

    doing: str


# Coordinator -> process


class Addresses(Tagged):
    """Of the shards, or of the first member of a collective or first peer."""

    addresses: list[str]


class Begin(Tagged):
    """The run begins."""

    zero_s: float  # on the coordinator's monotonic clock


class Stop(Tagged):
    """Write a checkpoint and end."""

    checkpoint: float  # its number


class ReportActivity(Tagged):
    """To a member of a collective, which answers with `Activity`."""


class WorkerLost(Tagged):
    """To shards: this process of a worker is lost, whose host may be cut off."""

    worker: int
    pid: int
    why: str


class End(Tagged):
    """The run is over."""

    why: str = ""


ControlMessage = (
    Hello | Ready | Stopped | ProgressReport | SnapshotWritten | Warn | Unreachable | RestartNeeded | Done | Activity
) | (Addresses | Begin | Stop | ReportActivity | WorkerLost | End)


def encode(message: ControlMessage) -> dict[str, Any]:
    """What JSON holds of a message."""
    values: dict[str, Any] = msgspec.to_builtins(message)
    return values


def decode(data: Mapping[str, Any]) -> ControlMessage:
    """The message that `encode` gave. Raises WireError if its kind is unknown, or its fields or their types differ."""
    try:
        message: ControlMessage = msgspec.convert(data, ControlMessage)
    except msgspec.ValidationError as error:
        raise WireError(f"not a message: {error}"[:200]) from None
    if encode(message).keys() != data.keys():  # a field with a default is sent, too
        raise WireError(f"not a message: {type(message).__name__} with the fields {sorted(data)}"[:200])
    return message
